"""What the PCE of a perfectly calibrated forecast looks like in a finite sample."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from prerank.calibration.errors import centred_levels, pce, reliability_curve
from prerank.forecast import accepts_arrays
from prerank.randomness import numpy_generator

_REPLICATES = 50_000  # the size of a 5 % test is then known to 0.1 points


@dataclass(frozen=True, eq=False)
class PCENull:
    """Null distribution of the PCE of one projection: exact mean, and a sorted sample for quantiles and p-values.

    The sample is drawn when it is first asked for.
    """

    mean: float
    draw: Callable[[], np.ndarray]

    @cached_property
    def sample(self) -> np.ndarray:
        return self.draw()

    def quantile(self, level: float) -> float:
        return float(np.quantile(self.sample, level))

    def p_value(self, statistic: float | np.ndarray) -> np.ndarray:
        """Share of the null at or above the statistic, (1 + #) / (B + 1): never zero, valid for any B."""
        above = len(self.sample) - np.searchsorted(self.sample, np.asarray(statistic) * (1 - 1e-9), side="left")
        return (1.0 + above) / (len(self.sample) + 1.0)


def cell_probabilities(levels: np.ndarray, n_members: int | None) -> np.ndarray:
    """Probability of each cell between levels (J + 1 of them) for a calibrated PIT.

    Continuous PITs: the width of the cell. Unrandomised ranks among M members live on k/M, k = 0..M.
    """
    below = levels if n_members is None else (np.floor(levels * n_members + 1e-9) + 1.0) / (n_members + 1.0)
    return np.diff(np.concatenate([[0.0], np.clip(below, 0.0, 1.0), [1.0]]))


def pce_null(
    n_cases: int,
    n_levels: int = 100,
    power: float = 1,
    levels: Tensor | None = None,
    n_members: int | None = None,
) -> PCENull:
    """Null distribution of `pce` for `n_cases` calibrated PITs; it depends on nothing else.

    `n_members` is for unrandomised ranks (`EmpiricalRank`), whose PCE does not vanish however many the cases. The
    sample has 50,000 replicates, is drawn from the multinomial law of the counts (so it costs the same for any N) and
    is cached. The mean is exact for powers 1 and 2.

    >>> null = pce_null(256)
    >>> round(null.mean, 4), round(null.quantile(0.95), 3)
    (0.0196, 0.036)
    """
    if n_cases < 1:
        raise ValueError(f"{n_cases} cases: at least one is needed")
    grid = (centred_levels(n_levels) if levels is None else levels).double()
    return _pce_null(n_cases, tuple(grid.tolist()), float(power), n_members)


@lru_cache(maxsize=64)
def _pce_null(n_cases: int, levels: tuple[float, ...], power: float, n_members: int | None) -> PCENull:
    def draw() -> np.ndarray:
        counts = null_counts(n_cases, levels, n_members)
        total = np.zeros(len(counts))
        for j, level in enumerate(levels):  # level by level, so that nothing of size (B, J) is made twice
            total += np.abs(counts[:, j] / n_cases - level) ** power
        return np.sort(total / len(levels))

    grid = np.array(levels)
    probability = np.clip(np.cumsum(cell_probabilities(grid, n_members))[:-1], 0.0, 1.0)
    if power == 1:
        mean = _mean_absolute_deviation(n_cases, grid, probability).mean()
    elif power == 2:
        mean = ((probability - grid) ** 2 + probability * (1 - probability) / n_cases).mean()
    else:
        return PCENull(float(draw().mean()), draw)
    return PCENull(float(mean), draw)


@lru_cache(maxsize=2)
def null_counts(n_cases: int, levels: tuple[float, ...], n_members: int | None = None) -> np.ndarray:
    """How many of `n_cases` calibrated PITs lie at or below each level, in 50,000 replicates: (B, J)."""
    cells = cell_probabilities(np.array(levels), n_members)
    generator = numpy_generator(0, "pce null", n_cases, len(levels), n_members)
    counts = generator.multinomial(n_cases, cells / cells.sum(), size=_REPLICATES)
    return np.asfortranarray(counts[:, :-1].cumsum(1, dtype=np.int32))


def _mean_absolute_deviation(n: int, levels: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """E|level - X / n| for X binomial(n, probability): exact, from partial sums of the binomial law."""
    # E|X - a| = a (2 F(a) - 1) + E X - 2 E[X; X <= a] with a = n level, and E[X; X <= a] = n p F_{n-1}(a - 1)
    a = n * levels
    whole = np.floor(a + 1e-9)
    below = stats.binom.cdf(whole, n, probability)
    partial = n * probability * stats.binom.cdf(whole - 1, n - 1, probability)
    return np.abs(a * (2 * below - 1) + n * probability - 2 * partial) / n


class Band(NamedTuple):
    """Simultaneous band of a reliability curve: levels, lower, upper (J,) each, and the pointwise level used."""

    levels: Tensor
    lower: Tensor
    upper: Tensor
    pointwise: float


def reliability_band(n_cases: int, coverage: float = 0.95, n_levels: int = 100, levels: Tensor | None = None) -> Band:
    """Band that the whole reliability curve of a calibrated forecast stays in with probability `coverage`.

    Binomial quantiles at each level, at a common pointwise level that is tuned by simulation so that they hold
    simultaneously (Säilynoja, Bürkner and Vehtari 2022).

    >>> band = reliability_band(500)
    >>> bool((band.lower <= band.levels).all() and (band.levels <= band.upper).all())
    True
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage}: a probability between 0 and 1, such as 0.95")
    grid = (centred_levels(n_levels) if levels is None else levels).double()
    alpha = grid.numpy()
    counts = null_counts(n_cases, tuple(alpha.tolist()))
    tails = np.ones(len(counts))
    for j, level in enumerate(alpha):
        if 0 < level < 1:
            x, where = np.unique(counts[:, j], return_inverse=True)
            two_sided = 2 * np.minimum(stats.binom.cdf(x, n_cases, level), stats.binom.sf(x - 1, n_cases, level))
            np.minimum(tails, two_sided[where], out=tails)
    # The curve with exactly this tail belongs to the band: a hair less, or rounding would shut it out.
    tail = float(np.quantile(tails, 1 - coverage, method="lower")) * (1 - 1e-9)
    lower = stats.binom.ppf(tail / 2, n_cases, alpha) / n_cases
    upper = stats.binom.ppf(1 - tail / 2, n_cases, alpha) / n_cases
    # at levels 0 and 1 the curve cannot be wrong, and the quantile function answers -1 there
    inside = (alpha > 0) & (alpha < 1)
    return Band(
        grid,
        torch.from_numpy(np.where(inside, lower, alpha)),
        torch.from_numpy(np.where(inside, upper, alpha)),
        1 - tail,
    )


@accepts_arrays("pit", "levels")
def corrected_pce(
    pit: Tensor,
    n_levels: int = 100,
    power: float = 1,
    levels: Tensor | None = None,
) -> Tensor:
    r"""PCE without the part that a finite sample adds: (..., N, K) -> (..., K), negative where noise alone would do.

    For power 2 each level's binomial variance, estimated with divisor N - 1, is subtracted: exactly unbiased. For power
    1 the null level is subtracted in quadrature and the sign kept, $\mathrm{sign}(x)\sqrt{|x|}$ with
    $x = \mathrm{PCE}^2 - E_0[\mathrm{PCE}]^2$: near zero for a calibrated forecast, nearly no change for a large PCE.
    """
    n_cases = pit.shape[-2]
    if n_cases < 2:
        raise ValueError("a corrected PCE needs at least two cases")
    if power == 2:
        curve = reliability_curve(pit, n_levels, levels)
        noise = curve.frequency * (1 - curve.frequency) / (n_cases - 1)
        return ((curve.levels[:, None] - curve.frequency).square() - noise).mean(-2)
    if power != 1:
        raise ValueError(f"a corrected PCE is defined for powers 1 and 2, not {power}")
    excess = pce(pit, n_levels, 1, levels).square() - pce_null(n_cases, n_levels, 1, levels).mean ** 2
    return excess.sign() * excess.abs().sqrt()
