"""Which axis is which, and which case is which: names of xarray dimensions, labels of pandas and xarray.

A label is what a container calls a case or a target: an xarray coordinate, or a pandas index or column name. A pandas
`RangeIndex`, the default, means position and is no label; so is an xarray dimension without a coordinate.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prerank._wording import counted
from prerank.arrays.conversion import from_arrow

ROLES = ("case", "member", "target")
_OF_Y = ("case", "target")
NAMES = {
    "case": ("case", "time", "date", "valid_time", "init_time", "forecast_reference_time"),
    "member": ("member", "realization", "realisation", "number", "ensemble", "ens", "sample", "draw"),
    "target": ("target", "station", "lead", "lead_time", "step", "lat", "lon", "latitude", "longitude"),
}
"""What dimensions are called by the CF conventions, by ECMWF and by others, and which role that is."""
Axes = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of cases, targets and members as pandas indices; None where there are none and position counts."""

    cases: Any = None
    targets: Any = None
    members: Any = None

    def or_else(self, other: "Labels") -> "Labels":
        """These labels, and another's where there are none."""
        own, others = ((one.cases, one.targets, one.members) for one in (self, other))
        return Labels(*(there if mine is None else mine for mine, there in zip(own, others, strict=True)))


def is_xarray(value: object) -> bool:
    return hasattr(type(value), "dims") and hasattr(type(value), "transpose") and hasattr(type(value), "indexes")


def is_pandas(value: object) -> bool:
    return hasattr(type(value), "iloc") and hasattr(value, "index")


def orient_dimensions(
    y: Any, forecast: Any, axes: Axes | None, joint: str | Sequence[str] | None = None
) -> tuple[Any, Any, bool]:
    """xarray objects with their dimensions in the order (case, target) and (case, member, target).

    Roles come from `axes`, from dimensions that are called like them or as usual (`NAMES`), and from dimensions of the same
    name in the other object. Several dimensions of cases, or of targets, are taken together. `joint` names the dimensions
    of targets; all others but that of the members are cases then. Also says whether the layout of the forecast is known
    now, so that no shape needs guessing.
    """
    order = tuple(y.dims) if is_xarray(y) else ()
    if joint is not None:
        axes, order = _roles_of_joint(y, forecast, axes, (joint,) if isinstance(joint, str) else tuple(joint))
    before = {dim for value in (y, forecast) if is_xarray(value) for dim in value.dims}
    y, forecast = _stacked(y, axes, _OF_Y, order), _stacked(forecast, axes, ROLES, order)
    y_dims = _dims(y, 2)
    forecast_dims = _dims(forecast, 3)
    if isinstance(axes, Mapping):
        gone = before - {dim for value in (y, forecast) if is_xarray(value) for dim in value.dims}
        axes = {dim: role for dim, role in axes.items() if dim not in gone}
    if isinstance(axes, Mapping):
        _check_mapping(axes, y_dims, forecast_dims)
    of_forecast = {} if forecast_dims is None else _said(forecast_dims, axes, ROLES)
    of_y = {} if y_dims is None else _said(y_dims, axes if isinstance(axes, Mapping) else None, _OF_Y)
    if y_dims is not None and not of_y and not _shared(y_dims, of_forecast):
        _refuse_two_orders(y_dims, forecast_dims)
    if y_dims is not None:
        of_y = _completed(y_dims, {**_shared(y_dims, of_forecast), **of_y}, _OF_Y, "y")
        y = y.transpose(*_in_order(y_dims, of_y, _OF_Y))
    if forecast_dims is None:
        return y, forecast, False
    of_forecast = {**_shared(forecast_dims, of_y), **of_forecast}
    if not of_forecast:
        return y, forecast, False
    of_forecast = _completed(forecast_dims, of_forecast, ROLES, "the forecast")
    return y, forecast.transpose(*_in_order(forecast_dims, of_forecast, ROLES)), True


def _roles_of_joint(
    y: Any, forecast: Any, axes: Axes | None, joint: tuple[Any, ...]
) -> tuple[dict[Any, str], tuple[Any, ...]]:
    """The role of every dimension, and the order in which several of one role are taken together."""
    if not is_xarray(forecast if y is None else y):
        raise TypeError(
            f"joint={joint!r} names dimensions, which only xarray objects have; pass y and forecast as such"
        )
    if not (axes is None or isinstance(axes, Mapping)):
        raise TypeError(f"joint={joint!r} names the targets; name the members by a mapping, axes={{name: 'member'}}")
    known = tuple(forecast.dims) if y is None else tuple(y.dims)
    dims = tuple(forecast.dims) if is_xarray(forecast) else known
    for dim in joint:
        if dim not in known or dim not in dims or joint.count(dim) > 1:
            raise ValueError(f"joint={joint!r}: name dimensions of both, each once; y has {known}, the forecast {dims}")
    if not is_xarray(forecast):  # whose cases and targets stand where those of y are put
        cases = tuple(dim for dim in known if dim not in joint)
        return {**dict.fromkeys(cases, "case"), **dict.fromkeys(joint, "target")}, (*cases, *joint)
    said = dict(axes or {})
    members = [dim for dim in forecast.dims if said.get(dim) == "member"]
    members = members or [dim for dim in forecast.dims if y is not None and dim not in known]
    members = members if len(members) == 1 else [dim for dim in forecast.dims if role_of(dim) == "member"]
    if len(members) != 1:
        raise ValueError(
            f"the forecast has the dimensions {tuple(forecast.dims)}, and which one holds the members is not clear; say "
            f"axes={{{forecast.dims[0]!r}: 'member'}}"
        )
    cases = tuple(dim for dim in known if dim not in (*joint, *members))
    strange = [dim for dim in forecast.dims if dim not in (*cases, *joint, *members)]
    if strange or not cases:
        raise ValueError(
            f"joint={joint!r} leaves the dimensions {cases} of y for the cases, and the forecast has "
            f"{tuple(dim for dim in forecast.dims if dim not in (*joint, *members))}; both need the same, at least one"
        )
    roles = {**dict.fromkeys(cases, "case"), members[0]: "member", **dict.fromkeys(joint, "target")}
    return roles, (*cases, *joint)


def _refuse_two_orders(y_dims: tuple[Any, ...], forecast_dims: tuple[Any, ...] | None) -> None:
    """Where no name says which dimension holds the cases, the order must: the same in y and in the forecast."""
    there = [dim for dim in forecast_dims or () if dim in y_dims]
    if len(there) == 2 and tuple(there) != y_dims:
        first, last = y_dims
        raise ValueError(
            f"y has the dimensions {y_dims} and the forecast {forecast_dims}, in another order; say which holds the cases: "
            f"axes={{{first!r}: 'case', {last!r}: 'target'}} or axes={{{last!r}: 'case', {first!r}: 'target'}}"
        )


def _dims(value: Any, n_axes: int) -> tuple[Any, ...] | None:
    return tuple(value.dims) if is_xarray(value) and len(value.dims) == n_axes else None


def _check_mapping(axes: Mapping[str, str], *known: tuple[Any, ...] | None) -> None:
    dims = [dim for names in known if names is not None for dim in names]
    if not dims:
        raise TypeError(
            f"axes={dict(axes)} names dimensions, which only xarray objects have; for an array, say what each axis is: "
            'axes=("member", "case", "target")'
        )
    for dim, role in axes.items():
        if role not in ROLES or dim not in dims:
            example = dict(zip(dims[-3:], ROLES, strict=False))
            raise ValueError(
                f"axes={dict(axes)}: {dim!r}: {role!r} does not give a dimension (one of {tuple(dict.fromkeys(dims))}) a "
                f"role (one of {ROLES}); write it like {example}"
            )


def role_of(dim: Any) -> str | None:
    """The role of a dimension that is called as usual.

    >>> role_of("realization"), role_of("valid_time"), role_of("x")
    ('member', 'case', None)
    """
    return next((role for role, names in NAMES.items() if dim in names), None)


def _stacked(value: Any, axes: Axes | None, wanted: tuple[str, ...], order: tuple[Any, ...]) -> Any:
    """An xarray array with several dimensions of a role taken together, in the order of y, and called like the role."""
    if not is_xarray(value) or hasattr(type(value), "data_vars") or len(value.dims) <= len(wanted):
        return value
    said = axes if isinstance(axes, Mapping) else {}
    roles = {dim: said.get(dim, role_of(dim)) for dim in value.dims}
    unknown = [dim for dim, role in roles.items() if role not in wanted]
    if unknown:
        return value
    for role in wanted:
        dims = [dim for dim in value.dims if roles.get(dim) == role]
        dims = sorted(dims, key=lambda dim: order.index(dim) if dim in order else len(order))
        if len(dims) > 1 and role != "member":
            if role in dims:  # what is made may not be called like what it is made of
                value = value.rename({role: f"{role}_"})
                dims = [f"{role}_" if dim == role else dim for dim in dims]
            value = value.stack({role: dims})
    return value


def _said(dims: tuple[Any, ...], axes: Axes | None, wanted: tuple[str, ...]) -> dict[Any, str]:
    """What `axes` and the names of the dimensions say about their roles, as far as they do."""
    named = {dim: dim for dim in dims if dim in wanted}
    if axes is None or len(named) == len(dims):
        return _as_usual(dims, named, wanted)
    if isinstance(axes, Mapping):
        return _as_usual(dims, {**named, **{dim: role for dim, role in axes.items() if dim in dims}}, wanted)
    if sorted(axes) == sorted(map(str, dims)):
        given = dict(zip(axes, wanted, strict=True))
    elif sorted(axes) == sorted(wanted):
        given = dict(zip(dims, axes, strict=True))
    else:
        raise ValueError(
            f"axes={tuple(axes)} for the dimensions {dims}: name each of {wanted} exactly once, in the order of the "
            "dimensions, or name the dimensions in the order (case, member, target)"
        )
    for dim, role in given.items():
        if named.get(dim, role) != role:
            raise ValueError(
                f"axes={tuple(axes)} makes the dimension {dim!r} the {role}s; name the dimensions {dims} in the order "
                "(case, member, target)"
            )
    return given


def _as_usual(dims: tuple[Any, ...], known: dict[Any, str], wanted: tuple[str, ...]) -> dict[Any, str]:
    """The known roles, and those of dimensions with usual names where only one dimension could have the role."""
    usual = {dim: role_of(dim) for dim in dims if dim not in known}
    roles = [role for role in usual.values() if role in wanted]
    free = {role for role in roles if roles.count(role) == 1 and role not in known.values()}
    return {**{dim: role for dim, role in usual.items() if role is not None and role in free}, **known}


def _shared(dims: tuple[Any, ...], other: dict[Any, str]) -> dict[Any, str]:
    return {dim: other[dim] for dim in dims if dim in other}


def _completed(dims: tuple[Any, ...], known: dict[Any, str], wanted: tuple[str, ...], what: str) -> dict[Any, str]:
    """A role for every dimension: the last one by elimination, several only where they stand in their usual places."""
    for dim, role in known.items():
        if role not in wanted or list(known.values()).count(role) > 1:
            raise ValueError(
                f"{what} has the dimensions {dims}, of which {dim!r} would be the {role}s; it needs one each for "
                f"{', '.join(wanted)}: say which with axes={{name: role}}"
            )
    unknown = [dim for dim in dims if dim not in known]
    left = [role for role in wanted if role not in known.values()]
    if len(unknown) > 1 and any(dims.index(dim) != wanted.index(role) for dim, role in known.items()):
        raise ValueError(
            f"{what} has the dimensions {dims}, of which {' and '.join(map(repr, unknown))} could be "
            f"{' or '.join(left)}: say which with axes={{{unknown[0]!r}: {left[0]!r}, ...}}"
        )
    return {**known, **dict(zip(unknown, left, strict=True))}


def _in_order(dims: tuple[Any, ...], roles: dict[Any, str], wanted: tuple[str, ...]) -> list[Any]:
    return sorted(dims, key=lambda dim: wanted.index(roles[dim]))


def labels_of(value: Any, n_axes: int) -> Labels:
    """Labels of the first axis (cases); of two axes or more of the last (targets), of three of the second (members)."""
    value = from_arrow(value)
    if is_xarray(value) and len(value.dims) == n_axes:
        indexes = value.indexes
        last, second = (
            indexes.get(value.dims[place]) if n_axes > least else None for place, least in ((-1, 1), (1, 2))
        )
        return Labels(indexes.get(value.dims[0]), last, second)
    if is_pandas(value):
        columns = getattr(value, "columns", None) if hasattr(type(value), "columns") else None
        return Labels(_unless_default(value.index), None if columns is None else _unless_default(columns))
    if n_axes == 2 and isinstance(getattr(value, "columns", None), list):  # a table without an index, such as polars'
        import pandas as pd

        return Labels(None, pd.Index(value.columns))
    return Labels()


def _unless_default(index: Any) -> Any:
    return None if type(index).__name__ == "RangeIndex" else index


def positions(labels: Any, wanted: Any, what: str, axis: str = "case", whose: str = "y") -> np.ndarray | None:
    """Where in `labels` each of the `wanted` labels stands; None where nothing needs moving or one side has no labels.

    Labels must be the same on both sides, each once (unless both have the same order already).
    """
    if labels is None or wanted is None or (len(labels) == len(wanted) and labels.equals(wanted)):
        return None
    for index, name in ((wanted, whose), (labels, what)):
        if not index.is_unique:
            twice = index[index.duplicated()][0]
            raise ValueError(
                f"{axis} {label_text(twice)} occurs more than once in {name}, and {what} has another order than {whose}, "
                f"so they cannot be aligned; give every {axis} a label of its own, or pass {_plain(what)} to go by position"
            )
    try:
        found = np.asarray(labels.get_indexer(wanted))
    except (TypeError, ValueError):  # labels of kinds that cannot even be compared
        found = np.full(len(wanted), -1)
    except Exception as error:  # pandas has an error of its own, of no public base, for intervals that overlap
        if type(error).__name__ != "InvalidIndexError":
            raise
        raise ValueError(
            f"the labels of the {axis}s are intervals that overlap, such as {label_text(labels[0])}, so {what} and {whose} "
            f"cannot be matched; label every {axis} by one point, such as the left end, or pass {_plain(what)} to go by "
            "position"
        ) from None
    if (found < 0).any():
        first = int(np.argmax(found < 0))
        there = f"{label_text(labels[first])} in {what}" if first < len(labels) else f"missing from {what}"
        raise ValueError(
            f"{axis} {first} is {label_text(wanted[first])} in {whose} and {there}, and {what} lacks "
            f"{int((found < 0).sum())} of the {len(wanted)} labels of {whose}; give both the same {axis}s, "
            f"or pass {_plain(what)} to go by position"
        )
    if len(labels) > len(wanted):
        extra = np.setdiff1d(np.arange(len(labels)), found)
        raise ValueError(
            f"{what} has {len(extra)} {axis}s that {whose} lacks, the first {label_text(labels[int(extra[0])])}; "
            f"give both the same {axis}s"
        )
    return found


def _plain(what: str) -> str:
    return ("forecast" if what == "the forecast" else what) + ".to_numpy()"


def label_text(label: Any) -> str:
    """A label as an error shows it: a date without its midnight, text in quotes."""
    text = str(label) if hasattr(label, "isoformat") or isinstance(label, np.datetime64) else repr(label)
    if isinstance(label, np.generic):
        text = repr(label.item()) if not isinstance(label, np.datetime64) else text
    return text.removesuffix(" 00:00:00")


def target_names(labels: Labels, n_targets: int) -> tuple[str, ...]:
    """What targets are called by their labels; y1, y2, ... where they have none."""
    if labels.targets is None:
        return tuple(f"y{d + 1}" for d in range(n_targets))
    names = tuple(_name(label) for label in labels.targets)
    if not all(name.strip() for name in names):
        place = next(place for place, name in enumerate(names) if not name.strip())
        raise ValueError(f"target {place + 1} of {len(names)} has an empty name; give every target a name of its own")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"target {twice!r} occurs more than once; give every target a name of its own")
    return names


def member_names(labels: Any) -> tuple[str, ...] | None:
    """What members are called, where they have names: text that differs in more than numbers; None for numbered members.

    Members with names are models, each with errors of its own; numbered ones, such as "m01" and "m02", are exchangeable, and
    so is a control run with its perturbations, "c00", "p01", "p02" and so on.

    >>> member_names(["GFS", "ICON"]), member_names(["m01", "m02"]), member_names(["c00", "p01", "p02", "p03"])
    (('GFS', 'ICON'), None, None)
    """
    if labels is None or not all(isinstance(label, str) for label in labels):
        return None
    names = tuple(str(label) for label in labels)
    if len(set(names)) < len(names):
        return None
    alike = max(Counter(re.sub(r"\d+", "", name) for name in names).values(), default=0)
    numbered = alike == len(names) or alike >= max(3, len(names) - 1)
    return None if numbered else names


def declared_names(names: Sequence[str], n_members: int) -> tuple[str, ...]:
    """Names that are given for members, one each, checked."""
    given = [names] if isinstance(names, str) else [*names]
    if len(given) != n_members or len({str(name) for name in given}) < n_members:
        raise ValueError(
            f"member_names has {counted(len(given), 'name')}, {len({str(name) for name in given})} of them different, for "
            f"{counted(n_members, 'member')}; give each member a name of its own"
        )
    return tuple(str(name) for name in given)


def _name(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(_name(part) for part in label)
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else str(label)
