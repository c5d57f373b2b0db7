"""`prerank check`: a file of forecasts in, a verdict out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prerank.calibration import PreRank
    from prerank.diagnosis import Check


def check(
    forecasts: Annotated[
        Path,
        typer.Argument(metavar="FORECASTS", help="NPZ, NetCDF, or a table in long form: CSV, TSV, Parquet, Feather."),
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
    prerank: Annotated[
        list[str] | None, typer.Option(help="Pre-rank to look at; repeatable.", show_default="the paper's")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
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

    prerank check forecasts.npz --json --fail   (status 1 if miscalibrated)
    """
    from prerank.data import Naming, read_forecasts  # torch and pandas load slowly
    from prerank.diagnosis import check as check_arrays

    keep = () if block is None else (block,)
    order = None if axes is None else tuple(name.strip() for name in axes.split(","))
    naming = Naming(tuple(case or ()), member, tuple(target or ()), value, observation, order, keep)
    found = read_forecasts(forecasts, observations, naming)
    result = check_arrays(
        found.y,
        found.members,
        _preranks(prerank, found.y.shape[1]),
        axes=("case", "member", "target"),
        blocks=None if block is None else found.columns[block].to_numpy(),
        seed=seed,
    )
    if plot is not None:
        result.plot(plot)
    typer.echo(_json(result, seed) if as_json else str(result))
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


def _json(result: "Check", seed: int) -> str:
    """The result as JSON: what is not a number is null."""
    import json

    document = {
        "verdict": result.verdict,
        "calibrated": result.calibrated,
        "p_value": result.p_value,
        "attainable_p_value": result.attainable,
        "cases": result.n_cases,
        "blocks": result.n_blocks,
        "replicates": result.n_replicates,
        "seed": seed,
        "notes": list(result.notes),
        "preranks": _records(result.table),
        "projections": _records(result.projections),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _records(table: Any) -> list[dict[str, Any]]:
    """A row of a table as a mapping, with keys such as adjusted_p_value."""
    records = table.reset_index().to_dict("records")
    return [
        {
            key.lower().replace("pre-rank", "prerank").replace(" ", "_").replace("-", "_"): _finite(item)
            for key, item in row.items()
        }
        for row in records
    ]


def _finite(item: Any) -> Any:
    return None if isinstance(item, float) and item != item else item
