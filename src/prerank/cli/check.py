"""`prerank check`: a file of forecasts in, a verdict out."""

from pathlib import Path
from typing import Annotated

import typer

from prerank._wording import printable
from prerank.cli.fileoptions import (
    AsJson,
    Axes,
    Block,
    Case,
    Forecasts,
    Member,
    Observation,
    Observations,
    Preranks,
    Replicates,
    Seed,
    Target,
    Value,
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
    value: Value = None,
    observation: Observation = None,
    axes: Axes = None,
    block: Block = None,
    by: Annotated[
        str | None, typer.Option(help="Column of groups that are checked one by one, such as a place.")
    ] = None,
    prerank: Preranks = None,
    seed: Seed = 0,
    replicates: Replicates = 999,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw rank histograms and reliability diagrams: PNG, SVG or PDF."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report to read in a browser: one HTML file, no network needed."),
    ] = None,
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

    naming = naming_of(case, member, target, value, observation, axes, block, by)
    found = read_forecasts(forecasts, observations, naming)
    preranks = preranks_named(prerank, found.y.shape[1])

    result = check_arrays(
        found.y,
        found.members,
        preranks,
        axes=("case", "member", "target"),
        blocks=None if block is None else found.columns[block].to_numpy(),
        by=None if by is None else found.columns[by].to_numpy(),
        n_replicates=replicates,
        seed=seed,
    )
    if plot is not None:
        result.plot(plot)
    if html is not None:
        from prerank.cli.repeating import command_line, python_lines

        command, python = command_line(ctx), python_lines(forecasts, observations, naming, preranks, ctx.params)
        result.to_html(html, title=f"Is {forecasts.name} calibrated?", command=command, python=python)
    typer.echo(as_document(result, seed) if as_json else printable(str(result)))
    if fail and result.calibrated is False:
        raise typer.Exit(1)
