"""`prerank check`: a file of forecasts in, a verdict out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prerank.wording import printable

if TYPE_CHECKING:
    from prerank.calibration import PreRank


# known without loading torch; "contrast" is there for two targets, "scale" and "dependency" for more
PRERANKS = ("marginal", "location", "scale", "dependency", "contrast", "PCA", "HDR", "copula")


def completed(incomplete: str) -> list[str]:
    """Names of pre-ranks that begin like this, for a shell."""
    return [name for name in PRERANKS if name.lower().startswith(incomplete.lower())]


def check(
    forecasts: Annotated[
        Path,
        typer.Argument(
            metavar="FORECASTS", help="NPZ, NetCDF, Zarr, or a table in long form: CSV, TSV, Parquet, Feather."
        ),
    ],
    observations: Annotated[
        Path | None,
        typer.Argument(
            metavar="OBSERVATIONS", help="A second file; without it they are in the first.", show_default=False
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Column or dimension of cases; repeatable.", show_default="case, or as in CF"),
    ] = None,
    member: Annotated[
        str | None, typer.Option(help="Column or dimension of members.", show_default="member, or as in CF")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Column or dimension of targets.", show_default="target, or as in CF")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(help="Column, array or variable of forecasts.", show_default="value; members in NPZ"),
    ] = None,
    observation: Annotated[
        str | None,
        typer.Option(
            help="Column, array or variable of observations.", show_default="observation; observations in NPZ"
        ),
    ] = None,
    axes: Annotated[
        str | None, typer.Option(help="NPZ: order of the members' axes.", show_default="case,member,target")
    ] = None,
    block: Annotated[
        str | None, typer.Option(help="Column that says which cases depend on each other, such as a date.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Column of groups that are checked one by one, such as a place.")
    ] = None,
    prerank: Annotated[
        list[str] | None,
        typer.Option(help="Pre-rank to look at; repeatable.", show_default="the paper's", autocompletion=completed),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    replicates: Annotated[int, typer.Option(min=19, help="Replicates of the tests.")] = 999,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw rank histograms and reliability diagrams: PNG, SVG or PDF."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in the place of the table.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="End with status 1 if the forecast is miscalibrated.")] = False,
) -> None:
    """Is the joint forecast of a file calibrated, and if not, how?

    prerank check forecasts.npz   (arrays members and observations)

    prerank check forecasts.csv observations.csv   (case, member, target, value)

    prerank check forecasts.parquet --case date --case place --block date

    prerank check ensemble.nc stations.nc --prerank location --prerank HDR

    prerank check ensemble.zarr stations.zarr --by season --block time

    prerank check forecasts.npz --json --fail   (status 1 if miscalibrated)
    """
    from prerank.cli.document import as_document  # torch and pandas load slowly
    from prerank.data import Naming, read_forecasts
    from prerank.diagnosis import check as check_arrays

    if by is not None and plot is not None:
        raise ValueError("--plot draws a single check; leave out --by")
    keep = tuple(dict.fromkeys(name for name in (block, by) if name is not None))
    order = None if axes is None else tuple(name.strip() for name in axes.split(","))
    naming = Naming(tuple(case or ()), member, tuple(target or ()), value, observation, order, keep)
    found = read_forecasts(forecasts, observations, naming)
    preranks = _preranks(prerank, found.y.shape[1])

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
        result.plot(plot)  # type: ignore[attr-defined]
    typer.echo(as_document(result, seed) if as_json else printable(str(result)))
    if fail and result.calibrated is False:
        raise typer.Exit(1)


def _preranks(names: list[str] | None, n_targets: int) -> "list[PreRank] | None":
    from prerank.calibration import paper_preranks

    if names is None:
        return None
    known = {item.name.lower(): item for item in paper_preranks(n_targets)}
    for name in names:
        if name.lower() not in known:
            there = ", ".join(item.name for item in known.values())
            raise ValueError(f"there is no pre-rank {name!r} for this many targets ({n_targets}); choose from {there}")
    return [known[name] for name in dict.fromkeys(name.lower() for name in names)]
