"""What targets are called."""

from typing import Any

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


def _name(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(_name(part) for part in label)
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else str(label)
