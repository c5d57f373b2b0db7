"""`prerank check`: a file of forecasts in, a verdict out."""

from dataclasses import replace
from typing import Annotated

import typer

from prerank._wording import printable
from prerank.cli.fileoptions import (
    AsJson,
    Axes,
    Block,
    Case,
    DependenceName,
    Forecasts,
    Html,
    Joint,
    LeadUnits,
    Level,
    Member,
    Members,
    Model,
    Observation,
    Observations,
    Plot,
    Preranks,
    Replicates,
    Seed,
    Target,
    Time,
    Title,
    Value,
    block_of,
    naming_of,
    preranks_named,
    require_inputs,
    require_preranks,
)
from prerank.cli.outputs import require_outputs, require_picture


def check(
    ctx: typer.Context,
    forecasts: Forecasts,
    observations: Observations = None,
    case: Case = None,
    member: Member = None,
    target: Target = None,
    joint: Joint = None,
    model: Model = None,
    value: Value = None,
    observation: Observation = None,
    axes: Axes = None,
    members: Members = None,
    time: Time = None,
    lead_units: LeadUnits = None,
    block: Block = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column of groups that are checked one by one, such as a place; several together."),
    ] = None,
    dependence: Annotated[
        DependenceName | None,
        typer.Option(
            help="Forecasts are quantiles: how targets go together, learnt from the first half of the cases; the rest is "
            "checked. independent: not at all.",
            show_default="forecasts are joint",
        ),
    ] = None,
    level: Level = "quantile",
    prerank: Preranks = None,
    seed: Seed = 0,
    replicates: Replicates = 999,
    plot: Plot = None,
    html: Html = None,
    title: Title = None,
    as_json: AsJson = False,
    fail: Annotated[bool, typer.Option("--fail", help="End with status 1 if the forecast is miscalibrated.")] = False,
) -> None:
    """Is the joint forecast of a file calibrated, and if not, how?

    prerank check forecasts.npz   (arrays members and observations)

    prerank check forecasts.csv observations.csv   (case, member, target, value)

    prerank check forecasts.parquet --case date --case place --block date

    prerank check ensemble.nc stations.nc --prerank location --prerank HDR

    prerank check forecasts.npz --by place --html report.html

    prerank check ensemble.zarr stations.zarr --by season --block time

    prerank check hub --model "a-*" --model "b-*" --target "wk inc cases" --joint horizon   (a forecast hub)

    prerank check hub --model quantiles-only --dependence gaussian   (quantiles, joined by what past cases say)

    prerank check forecasts.npz --json --fail   (status 1 if miscalibrated)
    """
    require_outputs({"--plot": plot, "--html": html}, (forecasts, observations))
    if plot is not None:
        require_picture(plot)
    require_inputs(forecasts, observations)
    require_preranks(prerank)
    from prerank.cli.document import as_document  # torch and pandas load slowly
    from prerank.diagnosis import check as check_arrays
    from prerank.io import read_forecasts

    naming = naming_of(ctx.params)
    if dependence is None:
        found = read_forecasts(forecasts, observations, naming)
    else:
        from prerank.cli.joint import read_joined

        found = read_joined(forecasts, observations, naming, dependence, level, block, seed)
    preranks = preranks_named(prerank, found.y.shape[1])
    proposed, by = block is None, by or ([] if found.by is None else [found.by])
    block = block_of(block, found)
    if proposed and block is not None and by and not found.columns.duplicated([*dict.fromkeys([*by, block])]).any():
        notes = [note for note in found.notes if not note.startswith("blocks: ")]
        found = found._replace(notes=(*notes, f"no blocks: cases of a group are each of another {block}"))
        block = None

    result = check_arrays(
        found.y,
        found.members,
        preranks,
        axes=("case", "member", "target"),
        blocks=None if block is None else found.columns[block].to_numpy(),
        by=found.columns[list(by)].reset_index(drop=True) if by else None,
        n_replicates=replicates,
        seed=seed,
    )
    result = replace(result, notes=(*found.notes, *result.notes))
    if plot is not None:
        result.plot(plot)
    if html is not None:
        from prerank.cli.repeating import command_line, python_lines

        command, python = command_line(ctx), ""
        if dependence is None:
            said = {**ctx.params, "block": block, "by": by}
            python = python_lines(forecasts, observations, naming, preranks, said)
        result.to_html(html, title=title or f"Is {forecasts.name} calibrated?", command=command, python=python)
    typer.echo(as_document(result, seed) if as_json else printable(str(result)))
    if fail and result.calibrated is False:
        raise typer.Exit(1)
