"""Which pre-ranks tell most about a forecast: chosen on one half of the cases, tested on the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank._wording import counted
from prerank.arrays.labels import Axes
from prerank.calibration import PCETest, ProjectedPIT
from prerank.calibration.checks import require_whole
from prerank.calibration.evidence import LEVEL
from prerank.calibration.testing import NEARLY_BLIND
from prerank.diagnosis.checking import check_of
from prerank.diagnosis.execution import Asked, MemorySource, pits_and_test, prepare
from prerank.diagnosis.result import Check
from prerank.inputs import Cases
from prerank.inputs.lazy_members import is_lazy
from prerank.plotting.tables import p_text
from prerank.preranks import PreRank, paper_preranks
from prerank.preranks.naming import field_preranks

if TYPE_CHECKING:
    import pandas as pd

ALIKE = 0.9  # correlation of PITs from which on two projections say the same
FEWEST = 20  # cases: ten to learn from and ten to test on
TELLING, KEPT, SEEN = "most telling", "chosen", "sees an error, others more"
REDUNDANT, BLIND, FLAT = "redundant", "nearly blind", "sees no error"


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """The outcome of `recommend`: prints what each pre-rank told on one half, and the test of those chosen on the other.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per candidate, from the half that was learnt on: `verdict`, `p-value` (not adjusted, and of no use as
        evidence for those chosen by it), `ratio` (PCE over the PCE expected under calibration), `power`, and for a
        redundant one which chosen pre-rank it is `like` and the `correlation` of their PITs.
    chosen : tuple of PreRank
        The pre-ranks to look at, the most telling first.
    tested : Check
        The check of them on the other half, whose p-values are valid.
    n_learnt : int
        Cases of the half that was learnt on.
    """

    table: "pd.DataFrame"
    chosen: tuple[PreRank, ...]
    tested: Check
    n_learnt: int

    @property
    def sentences(self) -> list[str]:
        """What was learnt, a line for each verdict, and what the test said."""
        said = [
            f"Learnt on {counted(self.n_learnt, 'case')}, tested on the other {self.tested.n_cases:,}.",
            *(_of_chosen(name, row, self.tested) for name, row in self._rows(TELLING, KEPT)),
        ]
        for name, row in self._rows(REDUNDANT):
            said.append(f"{name}: says what {row['like']} says (correlation of their PITs {row['correlation']:+.2f}).")
        for verdict, words in (
            (SEEN, "see an error as well, less clearly"),
            (FLAT, "see no error here"),
            (BLIND, "nearly blind here: too many ties, or too few cases or members"),
        ):
            names = [name for name, _ in self._rows(verdict)]
            if names:
                said.append(f"{', '.join(names)}: {words}.")
        return [*said, self.tested.verdict.partition("\n")[0]]

    def _rows(self, *verdicts: str) -> list[tuple[str, Any]]:
        return [(str(name), row) for name, row in self.table.iterrows() if row["verdict"] in verdicts]

    def __str__(self) -> str:
        return "\n".join([*self.sentences, "", str(self.tested)])

    __repr__ = __str__


def _of_chosen(name: str, row: Any, tested: Check) -> str:
    p = float(tested.table["adjusted p-value"][name])
    if row["verdict"] == KEPT:
        return f"{name}: no sign of an error on the first half; adjusted p-value on the second {p_text(p)}."
    outcome = "confirmed" if p <= LEVEL else "not confirmed"
    return f"{name}: {row['ratio']:.1f} times the expected PCE; {outcome} on the second half (adjusted p-value {p_text(p)})."


@dataclass(frozen=True, eq=False)
class _Candidates(Asked):
    """All pre-ranks that need no more than their defaults, unless others are named."""

    def listed(self, n_targets: int) -> list[PreRank]:
        if self.preranks is None:
            return [*paper_preranks(n_targets), *field_preranks(n_targets)]
        return super().listed(n_targets)


@single_threaded()
def recommend(
    y: Any,
    forecast: Any,
    preranks: Sequence[PreRank] | None = None,
    *,
    most: int = 3,
    axes: Axes | None = None,
    joint: str | Sequence[str] | None = None,
    scale: Literal["auto", "pooled", "none"] = "auto",
    blocks: Any = None,
    case_ids: Any = None,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> Recommendation:
    """Which pre-ranks tell most about this forecast, which repeat others, and which see next to nothing?

    A pre-rank that was picked because its histogram looked bad has no valid p-value on the same cases. So the cases are
    cut in two halves, in their order. On the first all candidates are tested; those with the smallest p-values are
    chosen, except nearly blind ones and those whose PITs correlate by 0.9 or more with one chosen before. The second
    half, which had no say, tests those alone: its p-values are valid, and adjusted for a few pre-ranks instead of many.

    Half of the cases are spent on the choice: if you know what you look for, `check` it with all of them.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets)
        Observations of 20 cases or more: NumPy, torch, pandas or xarray.
    forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        Members in memory, an `Ensemble`, a `GaussianMixture` or a torch distribution.
    preranks : sequence of PreRank, optional
        Candidates: by default the pre-ranks of the paper and those of the field that need no value of yours.
    most : int, default 3
        How many are chosen at most.
    axes : sequence or dict of str, optional
        What the axes of arrays, and the dimensions of xarray objects, are; as for `check`.
    joint : str or sequence of str, optional
        The dimensions of xarray objects that are forecast together; as for `check`.
    scale : {"auto", "pooled", "none"}, default "auto"
        Whether targets are divided by their pooled spread; as for `check`.
    blocks : array_like, shape (n_cases,), optional
        Labels of dependent cases; a block is in one half as a whole.
    case_ids : array_like, shape (n_cases,), optional
        Identifiers that random numbers are keyed by; as for `check`.
    n_draws : int, default 100
        Draws of a distribution.
    n_replicates : int, default 999
        Replicates of the tests.
    seed : int, default 0
        Of everything random.

    Returns
    -------
    Recommendation
        What each pre-rank told on one half, and the test of those chosen on the other.

    Raises
    ------
    ValueError
        For fewer than 20 cases, cases that are all in one block, members in Dask chunks, and where no candidate has power.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(200, 11, 3))
    >>> found = recommend(truth[:, 0], 0.6 * truth[:, 1:], most=2)
    >>> found.tested.rejected, len(found.chosen)
    (True, 2)
    """
    if is_lazy(forecast):
        raise ValueError("recommend needs the members in memory; load a part of the cases, such as forecast[:1000]")
    most, seed = require_whole(most, "most"), require_whole(seed, "seed", at_least=None)
    n_draws, n_replicates = require_whole(n_draws, "n_draws"), require_whole(n_replicates, "n_replicates")
    asked = _Candidates(preranks, scale, n_draws, n_replicates, 1.0, seed)
    cases = prepare(Cases.of(y, forecast, axes, joint=joint), asked).along(case_ids=case_ids, blocks=blocks)
    source, labels = MemorySource(cases, asked), cases.blocks
    first, second = _halves(len(cases.observed()), labels)
    own = None if labels is None else torch.unique(labels[first], return_inverse=True)[1]
    pit, test = pits_and_test(source, first, own, None)
    table = judged(pit, test, most)
    chosen = [str(name) for name, row in table.iterrows() if row["verdict"] in (TELLING, KEPT)]
    if not chosen:
        raise ValueError(
            f"none of {len(table)} pre-ranks has power with {counted(len(first), 'case')} to learn from; take more cases"
        )
    few = source.of_preranks(chosen)
    return Recommendation(table, tuple(few.preranks), check_of(few, asked, second, []), len(first))


def _halves(n_cases: int, blocks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Numbers of the cases of the first half, and of the second; blocks stay whole, in the order in which they begin."""
    if n_cases < FEWEST:
        raise ValueError(
            f"{n_cases} cases are too few to learn from one half and test on the other; {FEWEST} are needed"
        )
    if blocks is None:
        return torch.arange(n_cases // 2), torch.arange(n_cases // 2, n_cases)
    blocks = blocks.cpu()
    order = list(dict.fromkeys(blocks.tolist()))
    sizes = torch.bincount(blocks)[order].cumsum(0)
    count = 1 + int((sizes[:-1] - n_cases / 2).abs().argmin()) if len(order) > 1 else 0
    in_first = torch.isin(blocks, torch.tensor(order[:count], dtype=blocks.dtype))
    if count == 0:
        raise ValueError("all cases are in one block, which cannot be cut into a half to learn from and one to test on")
    return in_first.nonzero()[:, 0], (~in_first).nonzero()[:, 0]


def judged(pit: ProjectedPIT, test: PCETest, most: int) -> "pd.DataFrame":
    """One row per pre-rank, those chosen first."""
    import pandas as pd  # loads slowly

    names = list(test.groups)
    ratio = (test.statistic / test.expected_pce.clamp_min(1e-300)).tolist()
    p_value = test.p_value.tolist()
    power, start = [], 0
    for part in pit.parts:
        power.append(float(test.projection_power[start : start + len(part.names)].nan_to_num(1.0).amax()))
        start += len(part.names)
    correlation = _correlations(pit)
    chosen: list[int] = []
    verdicts, like = {}, {}
    for k in sorted(range(len(names)), key=lambda k: (p_value[k], -ratio[k])):
        nearest = max(chosen, key=lambda c: abs(float(correlation[k, c])), default=None)
        if power[k] < NEARLY_BLIND and p_value[k] > LEVEL:
            verdicts[k] = BLIND
        elif nearest is not None and abs(float(correlation[k, nearest])) >= ALIKE:
            verdicts[k], like[k] = REDUNDANT, nearest
        elif len(chosen) < most:
            chosen.append(k)
            verdicts[k] = TELLING if p_value[k] <= LEVEL else KEPT
        else:
            verdicts[k] = SEEN if p_value[k] <= LEVEL else FLAT
    rows = [
        {
            "pre-rank": names[k],
            "verdict": verdict,
            "p-value": p_value[k],
            "ratio": ratio[k],
            "power": power[k],
            "like": names[like[k]] if k in like else "",
            "correlation": float(correlation[k, like[k]]) if k in like else float("nan"),
        }
        for k, verdict in verdicts.items()
    ]
    order = {verdict: place for place, verdict in enumerate((TELLING, KEPT, SEEN, FLAT, REDUNDANT, BLIND))}
    rows.sort(key=lambda row: order[str(row["verdict"])])
    return pd.DataFrame(rows).set_index("pre-rank")


def _correlations(pit: ProjectedPIT) -> Tensor:
    """How far each pre-rank (rows) is said by each other (columns): correlations of PITs, (G, G).

    Of several projections each looks for the one that it is most like; the least like of them counts.
    """
    values = pit.values.double()
    centred = values - values.mean(0)
    length = centred.square().sum(0).sqrt()
    centred = centred / torch.where(length > 0, length, 1.0)
    between = centred.T @ centred
    ends = torch.tensor([0, *(len(part.names) for part in pit.parts)]).cumsum(0).tolist()
    spans = [slice(a, b) for a, b in pairwise(ends)]
    found = torch.zeros(len(spans), len(spans), dtype=torch.float64)
    for g, own in enumerate(spans):
        for h, other in enumerate(spans):
            block = between[own, other]
            best = block.gather(1, block.abs().argmax(1, keepdim=True))[:, 0]
            found[g, h] = best[best.abs().argmin()]
    return found
