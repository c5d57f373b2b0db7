"""`prerank check`: a file of forecasts in, a verdict out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
)
from prerank.wording import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from prerank.data import Matched
    from prerank.diagnosis import Check, GroupedCheck


def check(
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
    as_json: AsJson = False,
    fail: Annotated[bool, typer.Option("--fail", help="End with status 1 if the forecast is miscalibrated.")] = False,
) -> None:
    """Is the joint forecast of a file calibrated, and if not, how?

    prerank check forecasts.npz   (arrays members and observations)

    prerank check forecasts.csv observations.csv   (case, member, target, value)

    prerank check forecasts.parquet --case date --case place --block date

    prerank check ensemble.nc stations.nc --prerank location --prerank HDR

    prerank check forecasts.npz --json --fail   (status 1 if miscalibrated)
    """
    from prerank.cli.document import as_document  # torch and pandas load slowly
    from prerank.data import read_forecasts
    from prerank.diagnosis import check as check_arrays

    if by is not None and plot is not None:
        raise ValueError("--plot draws a single check; leave out --by")
    naming = naming_of(case, member, target, value, observation, axes, block, by)
    found = read_forecasts(forecasts, observations, naming)
    preranks = preranks_named(prerank, found.y.shape[1])

    def check_rows(rows: Any) -> "Check":
        return check_arrays(
            found.y[rows],
            found.members[rows],
            preranks,
            axes=("case", "member", "target"),
            blocks=None if block is None else found.columns[block].to_numpy()[rows],
            n_replicates=replicates,
            seed=seed,
        )

    result = check_rows(slice(None)) if by is None else _groups(found, by, replicates, check_rows)
    if plot is not None:
        result.plot(plot)  # type: ignore[union-attr]
    typer.echo(as_document(result, seed) if as_json else printable(str(result)))
    if fail and result.calibrated is False:
        raise typer.Exit(1)


def _groups(found: "Matched", by: str, replicates: int, check_rows: "Callable[[Any], Check]") -> "GroupedCheck":
    """The check of every group of cases, together."""
    import pandas as pd

    from prerank.diagnosis import grouped

    codes, labels = pd.factorize(found.columns[by], sort=True)
    if (codes < 0).any():
        raise ValueError(f"{int((codes < 0).sum()):,} of {len(codes):,} cases have no {by!r}; every case needs a group")
    if len(labels) > 0.05 * (replicates + 1):
        raise ValueError(
            f"{len(labels):,} groups with {replicates:,} replicates could never have an adjusted p-value of 0.05; "
            f"take fewer groups, or --replicates {20 * len(labels) - 1}"
        )
    checks = {}
    for number, label in enumerate(labels):
        try:
            checks[str(label)] = check_rows(codes == number)
        except ValueError as error:
            raise ValueError(f"group {label}: {error}") from None
    return grouped(checks)
