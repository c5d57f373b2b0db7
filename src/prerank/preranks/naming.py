"""Pre-ranks by the names that a command line gives them, some with a value: `exceedance=0.5`, `isotropy=4x5`."""

from collections.abc import Callable, Mapping

from prerank.preranks.distances import EnergyScore, Mahalanobis
from prerank.preranks.extremes import Exceedance, Maximum, Minimum, Range
from prerank.preranks.pooled_ranks import AverageRank, BandDepth
from prerank.preranks.reference_distance import ReferenceDistance
from prerank.preranks.sliced import Sliced
from prerank.preranks.spanning_tree import SpanningTree
from prerank.preranks.table1 import Dependency, PreRank, paper_preranks
from prerank.preranks.variogram import Isotropy, Variogram
from prerank.preranks.view import needs_of


def _grid(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    return int(rows), int(columns)


WITH_VALUE: Mapping[str, tuple[str, Callable[[str], PreRank]]] = {
    "dependency": ("LAG", lambda text: Dependency(int(text))),
    "exceedance": ("THRESHOLD", lambda text: Exceedance(float(text))),
    "isotropy": ("ROWSxCOLUMNS", lambda text: Isotropy(_grid(text))),
    "variogram": ("ROWSxCOLUMNS", lambda text: Variogram(shape=_grid(text))),
}
"""Pre-ranks that take a value after their name: what it is called, and how it is read."""


def field_preranks(n_targets: int) -> list[PreRank]:
    """The pre-ranks beyond the paper's that need no more than their defaults and are defined for this many targets.

    >>> [item.name for item in field_preranks(1)][:3]
    ['average rank', 'band depth', 'spanning tree']
    """
    listed: list[PreRank] = [
        *(AverageRank(), BandDepth(), SpanningTree(), EnergyScore(), Mahalanobis(), ReferenceDistance()),
        *(Variogram(), Sliced(), Maximum(), Minimum(), Range()),
    ]
    return [item for item in listed if _is_defined(item, n_targets)]


def _is_defined(prerank: PreRank, n_targets: int) -> bool:
    try:
        needs_of(prerank, n_targets)
    except ValueError:
        return False
    return True


def prerank_named(text: str, n_targets: int) -> PreRank:
    """The pre-rank of a name, upper or lower case, with a value after it where it takes one.

    >>> prerank_named("Energy Score", 3).name, prerank_named("exceedance=0.5", 3)
    ('energy score', Exceedance(threshold=0.5, name='exceedance'))
    """
    name, given, value = (part.strip() for part in text.partition("="))
    known = {item.name.lower(): item for item in (*paper_preranks(n_targets), *field_preranks(n_targets))}
    if given and name.lower() in WITH_VALUE:
        what, read = WITH_VALUE[name.lower()]
        try:
            return read(value)
        except ValueError:
            raise ValueError(f"{text!r}: {name.lower()}={what} takes another value than {value!r}") from None
    if not given and name.lower() in known:
        return known[name.lower()]
    there = ", ".join(
        [item.name for item in known.values()] + [f"{key}={what}" for key, (what, _) in WITH_VALUE.items()]
    )
    raise ValueError(f"there is no pre-rank {text!r} for this many targets ({n_targets}); choose from {there}")
