"""What targets and members are called."""

import re
from collections.abc import Sequence
from typing import Any

from prerank._wording import counted
from prerank.arrays.labels import Labels


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

    Members with names are models, each with errors of its own; numbered ones, such as "m01" and "m02", are exchangeable.

    >>> member_names(["GFS", "ICON"]), member_names(["m01", "m02"]), member_names([1, 2])
    (('GFS', 'ICON'), None, None)
    """
    if labels is None or not all(isinstance(label, str) for label in labels):
        return None
    names = tuple(str(label) for label in labels)
    if len({re.sub(r"\d+", "", name) for name in names}) < 2 or len(set(names)) < len(names):
        return None
    return names


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
