"""What the targets of a forecast are called in a sentence: "the 24 hours", "lead 12", "Oslo and Bergen"."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prerank._wording import printable

_NOUN = re.compile(r"[^\W\d_][\w -]{0,29}")
_BARE = re.compile(r"[-+−]?[\d.][\d.,:/ +−eETZ-]*( days?.*)?")  # a number, a date, a length of time: no name by itself
_WHOLE = {"lat": "latitude", "lon": "longitude", "variable": "variable", "name": "target"}
_SHOWN = 6  # names that are listed in a sentence
_LONGEST = 60  # signs of a name


@dataclass(frozen=True)
class TargetWords:
    """A noun for the targets in the singular, and what each of them is called in the tables.

    >>> hours = TargetWords("hour", tuple(str(hour) for hour in range(24)))
    >>> hours.all, hours.some([3]), hours.some([0, 1, 2, 7])
    ('the 24 hours', 'hour 3', 'hours 0 to 2 and 7')
    >>> TargetWords("station", ("Oslo", "Bergen", "Voss")).some([0, 2])
    'Oslo and Voss'
    """

    noun: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, labels: Any, names: Sequence[str]) -> "TargetWords":
        """From the pandas index that labels the targets, if there is one, and the targets' names.

        >>> import pandas as pd
        >>> TargetWords.of(pd.Index([6, 12], name="lead_time"), ["6", "12"]).some([1])
        'lead time 12'
        """
        shown = tuple(_clipped(printable(str(name))) for name in names)
        levels = list(getattr(labels, "names", ()))
        if len(levels) < 2:
            return cls(_noun(levels[0] if levels else None), shown)
        # several dimensions together, such as latitude and longitude: each part is named in the name of a target
        parts = [
            ", ".join(
                named(_noun(level, ""), str(part).removesuffix(" 00:00:00"))
                for level, part in zip(levels, label, strict=True)
            )
            for label in labels
        ]
        return cls("target", tuple(_clipped(printable(part)) for part in parts))

    @property
    def plural(self) -> str:
        """The noun for several of them."""
        return _plural(self.noun)

    @property
    def all(self) -> str:
        """All of them, as the subject of a sentence."""
        count = len(self.names)
        return f"the {count:,} {self.plural}" if count > 2 else self._listed(range(count))

    def one(self, place: int) -> str:
        """A target by its name: a number has the noun before it."""
        return named(self.noun, self.names[place])

    def some(self, places: Sequence[int]) -> str:
        """Several targets, in their order: neighbours as "3 to 6", very many as the first ones and a count."""
        if len(places) == len(self.names) > 2:
            return f"all {len(places):,} {self.plural}"
        return self._listed(sorted(places))

    def _listed(self, places: Sequence[int]) -> str:
        if len(places) == 1:
            return self.one(places[0])
        bare = all(_BARE.fullmatch(self.names[place]) for place in places)
        said = []
        for run in _runs(places):
            said += [f"{self.names[run[0]]} to {self.names[run[-1]]}"] if len(run) > 2 else [self.names[k] for k in run]
        if len(said) > _SHOWN:
            return f"{len(places):,} of {self.all} ({', '.join(said[:3])}, ...)"
        return (f"{self.plural} " if bare else "") + listed(said)


def listed(items: Sequence[str]) -> str:
    """Words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Places in their order, cut into runs of neighbours."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def named(noun: str, name: str) -> str:
    """A name by itself, or after a noun where it is a number, a date or a length of time."""
    return f"{noun} {name}".strip() if _BARE.fullmatch(name) else name


def _noun(name: Any, otherwise: str = "target") -> str:
    """The name of a dimension or a column as a noun in the singular; `otherwise` where it is none."""
    text = str(name).replace("_", " ").strip() if isinstance(name, str) else ""
    if not _NOUN.fullmatch(text):
        return otherwise
    text = _WHOLE.get(text, text)
    if text.endswith("ies") and text not in ("series", "species"):
        return f"{text[:-3]}y"
    if text.endswith("s") and not text.endswith(("ss", "us", "is", "ies")):
        return text[:-1]
    return text


def _plural(noun: str) -> str:
    if noun in ("series", "species"):
        return noun
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
