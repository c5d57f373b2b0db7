"""Options that several commands have: what the files of forecasts hold, and which pre-ranks are looked at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prerank.io import Naming
    from prerank.preranks import PreRank

# known without loading torch; "contrast" is there for two targets, "scale" and "dependency" for more
PRERANKS = (
    *("marginal", "location", "scale", "dependency", "contrast", "PCA", "HDR", "copula"),
    *("average rank", "band depth", "spanning tree", "energy score", "Mahalanobis", "reference distance", "variogram"),
    *("sliced", "maximum", "minimum", "range", "exceedance=", "isotropy="),
)


def completed(incomplete: str) -> list[str]:
    """Names of pre-ranks that begin like this, for a shell."""
    return [name for name in PRERANKS if name.lower().startswith(incomplete.lower())]


Forecasts = Annotated[
    Path,
    typer.Argument(metavar="FORECASTS", help="NPZ, NetCDF, Zarr, or a table in long form: CSV, TSV, Parquet, Feather."),
]
Observations = Annotated[
    Path | None,
    typer.Argument(metavar="OBSERVATIONS", help="A second file; without it they are in the first.", show_default=False),
]
Case = Annotated[
    list[str] | None,
    typer.Option(help="Column or dimension of cases; repeatable.", show_default="case, or as in CF"),
]
Member = Annotated[str | None, typer.Option(help="Column or dimension of members.", show_default="member, or as in CF")]
Target = Annotated[
    list[str] | None, typer.Option(help="Column or dimension of targets.", show_default="target, or as in CF")
]
Value = Annotated[
    str | None, typer.Option(help="Column, array or variable of forecasts.", show_default="value; members in NPZ")
]
Observation = Annotated[
    str | None,
    typer.Option(help="Column, array or variable of observations.", show_default="observation; observations in NPZ"),
]
Axes = Annotated[str | None, typer.Option(help="NPZ: order of the members' axes.", show_default="case,member,target")]
Block = Annotated[str | None, typer.Option(help="Column that says which cases depend on each other, such as a date.")]
Preranks = Annotated[
    list[str] | None,
    typer.Option(
        "--prerank",
        help=f"Pre-rank to look at, repeatable: {', '.join(PRERANKS)}.",
        show_default="the paper's",
        autocompletion=completed,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Replicates = Annotated[int, typer.Option(min=19, help="Replicates of the tests.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in the place of the table.")]


def naming_of(
    case: list[str] | None,
    member: str | None,
    target: list[str] | None,
    value: str | None,
    observation: str | None,
    axes: str | None,
    *keep: str | None,
) -> "Naming":
    """The names as they were given, and the columns that are kept, each once."""
    from prerank.io import Naming  # pandas loads slowly

    order = None if axes is None else tuple(name.strip() for name in axes.split(","))
    kept = tuple(dict.fromkeys(name for name in keep if name is not None))
    return Naming(tuple(case or ()), member, tuple(target or ()), value, observation, order, kept)


def preranks_named(names: list[str] | None, n_targets: int) -> "list[PreRank] | None":
    """Pre-ranks by their names; None for those of the paper."""
    from prerank.preranks.naming import prerank_named

    if names is None:
        return None
    each = {name.strip().lower(): name for name in reversed(names)}  # once, however it is spelt
    return [prerank_named(name, n_targets) for name in reversed(each.values())]
