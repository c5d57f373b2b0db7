"""Options that several commands have: what the files of forecasts hold, and which pre-ranks are looked at."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prerank.io import Matched, Naming
    from prerank.preranks import PreRank

NO_BLOCK = "none"
# known without loading torch; "contrast" is there for two targets, "scale" and "dependency" for more
PRERANKS = (
    *("marginal", "location", "scale", "dependency", "contrast", "PCA", "HDR", "copula"),
    *("average rank", "band depth", "spanning tree", "energy score", "Mahalanobis", "reference distance", "variogram"),
    *("sliced", "maximum", "minimum", "range", "exceedance=", "isotropy="),
)


class DependenceName(StrEnum):
    """What --dependence takes."""

    gaussian = "gaussian"
    empirical = "empirical"
    schaake = "schaake"
    independent = "independent"


def completed(incomplete: str) -> list[str]:
    """Names of pre-ranks that begin like this, for a shell."""
    return [name for name in PRERANKS if name.lower().startswith(incomplete.lower())]


Forecasts = Annotated[
    Path,
    typer.Argument(
        metavar="FORECASTS",
        help="NPZ, NetCDF, Zarr, a table (CSV, TSV, Parquet, Feather), or the folder of a forecast hub.",
    ),
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
    list[str] | None,
    typer.Option(
        help="Column or dimension of targets; in a hub the target's name.", show_default="target, or as in CF"
    ),
]
Joint = Annotated[
    list[str] | None,
    typer.Option(
        help="Column or dimension across which the forecast is joint, such as a lead or horizon; repeatable.",
        show_default="as --target",
    ),
]
Model = Annotated[
    list[str] | None,
    typer.Option(help="Hub: model to look at, * and ? allowed; repeatable.", show_default="the only one"),
]
Value = Annotated[
    str | None, typer.Option(help="Column, array or variable of forecasts.", show_default="value; members in NPZ")
]
Observation = Annotated[
    str | None,
    typer.Option(help="Column, array or variable of observations.", show_default="observation; observations in NPZ"),
]
Members = Annotated[
    list[str] | None,
    typer.Option(
        help="Wide table: columns of members, 'A,B', 'LEAR *', '/DNN \\d/' or '*'; repeatable.",
        show_default="a row per member",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        help="Wide table: column of times; --joint hour, weekday, day or month splits it.",
        show_default="the one of dates",
    ),
]
Level = Annotated[str, typer.Option(help="Table of quantiles: column of levels.")]
LeadUnits = Annotated[
    str | None,
    typer.Option(help="Hindcast: what leads are counted in, such as days.", show_default="as the file says"),
]
Axes = Annotated[str | None, typer.Option(help="NPZ: order of the members' axes.", show_default="case,member,target")]
Block = Annotated[
    str | None,
    typer.Option(
        help="Column that says which cases depend on each other, such as a date, or none.",
        show_default="none; rounds of a hub",
    ),
]
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
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw rank histograms and reliability diagrams: PNG, SVG or PDF.")
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a report to read in a browser: one HTML file, no network needed."),
]
Title = Annotated[str | None, typer.Option(help="Heading of the report.", show_default="the name of the file")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in the place of the table.")]


def naming_of(options: Mapping[str, Any]) -> "Naming":
    """The names as they were given, and the columns that are kept, each once; not every command has every option."""
    from prerank.io import Naming  # pandas loads slowly

    axes = options.get("axes")
    order = None if axes is None else tuple(name.strip() for name in axes.split(","))
    block = None if options.get("block") == NO_BLOCK else options.get("block")
    kept = tuple(dict.fromkeys(name for name in (block, *(options.get("by") or ())) if name is not None))
    several = {name: tuple(options.get(name) or ()) for name in ("case", "target", "joint", "model", "members")}
    return Naming(
        **several,
        member=options.get("member"),
        value=options.get("value"),
        observation=options.get("observation"),
        axes=order,
        lead_units=options.get("lead_units"),
        time=options.get("time"),
        keep=kept,
    )


def block_of(option: str | None, found: "Matched") -> str | None:
    """The column of blocks: as was said, or as the kind of file proposes."""
    return None if option == NO_BLOCK else option or found.block


def require_inputs(*paths: Path | None) -> None:
    """Refuse a file that is not there, with a name like it, before anything is loaded that reads files."""
    for path in paths:
        if path is None or _is_there(path):
            continue
        there = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, there, 1, 0.75)
        why = "no such file" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise ValueError(f"{path} cannot be read: {why}" + (f"; is it {path.parent / near[0]}?" if near else ""))


def _is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # a name that is too long, or a link that leads back: said by whoever opens it
        return True
    return True


def require_preranks(names: list[str] | None) -> None:
    """Refuse names that no pre-rank has, whatever the number of targets."""
    known = {name.removesuffix("=").lower() for name in PRERANKS}
    for name in names or ():
        if name.partition("=")[0].strip().lower() not in known:  # a value after it is read by who makes the pre-rank
            raise ValueError(f"there is no pre-rank {name!r}; choose from {', '.join(PRERANKS)}")


def preranks_named(names: list[str] | None, n_targets: int) -> "list[PreRank] | None":
    """Pre-ranks by their names; None for those of the paper."""
    from prerank.preranks.naming import prerank_named

    if names is None:
        return None
    each = {name.strip().lower(): name for name in reversed(names)}  # once, however it is spelt
    return [prerank_named(name, n_targets) for name in reversed(each.values())]
