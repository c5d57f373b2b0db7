"""What the PCE of a perfectly calibrated forecast looks like in a finite sample."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._parallel import single_threaded
from prerank.arrays.conversion import accepts_arrays
from prerank.calibration.checks import require_exponent
from prerank.calibration.curve_table import numbers_of_ranks
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import curve_sums, steps
from prerank.calibration.reliability import centred_levels, pce, reliability_curve
from prerank.randomness import numpy_generator

REPLICATES = 50_000  # the size of a 5 % test is then known to 0.1 points


@dataclass(frozen=True, eq=False)
class PCENull:
    """Null distribution of the PCE of one projection: exact mean, and a sorted sample for quantiles and p-values.

    The sample is drawn when it is first asked for.

    Attributes
    ----------
    mean : float
        Expected PCE of a calibrated projection.
    draw : callable
        Gives the sorted sample; `sample` calls it once.
    """

    mean: float
    draw: Callable[[], np.ndarray]

    @cached_property
    def sample(self) -> np.ndarray:
        """PCEs of calibrated PITs in ascending order, 50,000 of them."""
        return self.draw()

    def quantile(self, level: float) -> float:
        """Quantile of the sample.

        Parameters
        ----------
        level : float
            Probability between 0 and 1, such as 0.95.

        Returns
        -------
        float
            The PCE that calibrated PITs stay below with this probability.
        """
        return float(np.quantile(self.sample, level))

    def p_value(self, statistic: float | np.ndarray) -> np.ndarray:
        """Share of the null at or above the statistic, (1 + #) / (B + 1): never zero, valid for any B.

        Parameters
        ----------
        statistic : float or ndarray
            Observed PCEs.

        Returns
        -------
        float or ndarray
            p-values, in the shape of `statistic`.
        """
        above = len(self.sample) - np.searchsorted(self.sample, np.asarray(statistic) * (1 - 1e-9))
        return (1.0 + above) / (len(self.sample) + 1.0)


def null_cells(levels: np.ndarray, n_members: int | None, unrandomised: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cells that a calibrated PIT falls into: their probabilities (U,), and what each adds to the curve, (U, J).

    Continuous PITs fall between levels. A rank among M members is one of M + 1 equally probable intervals; unrandomised
    ranks live on k / M, k = 0..M.
    """
    if n_members is not None and not unrandomised:
        numbers = numbers_of_ranks(n_members + 1, torch.from_numpy(levels))
        probability = (numbers.upper - numbers.lower).numpy()
        return probability, steps(numbers.lower, numbers.upper, torch.from_numpy(levels)).numpy()
    below = levels if n_members is None else (np.floor(levels * n_members + 1e-9) + 1.0) / (n_members + 1.0)
    cells = np.arange(len(levels) + 1)
    probability = np.diff(np.concatenate([[0.0], below, [1.0]]))
    return probability, (cells[:, None] <= cells[:-1]).astype(float)


@single_threaded()
def pce_null(
    n_cases: int,
    n_levels: int = 100,
    exponent: float = 1,
    levels: Tensor | None = None,
    n_members: int | None = None,
    unrandomised: bool = False,
) -> PCENull:
    """Null distribution of `pce` for `n_cases` calibrated PITs of one projection; it depends on nothing else.

    `n_members` is for ranks among M members without ties, which come closer to the diagonal than continuous PITs; with
    `unrandomised=True` they are those of `EmpiricalRank`, whose PCE does not vanish however many the cases. The sample
    has 50,000 replicates, is drawn from the multinomial law of the counts (so it costs the same for any N) and
    is cached. The mean is exact for exponent 2, and for exponent 1 except for ranks as intervals (0.3 % there).

    Parameters
    ----------
    n_cases : int
        Number of cases N, at least one.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    exponent : float, default 1
        Deviations are averaged to this power; positive.
    levels : Tensor, shape (n_levels,), optional
        Levels of your own, probabilities in ascending order.
    n_members : int, optional
        Members that each observation is ranked among; None means continuous PITs.
    unrandomised : bool, default False
        Whether ranks are those of `EmpiricalRank`; it says nothing without `n_members`.

    Returns
    -------
    PCENull
        Mean, quantiles and p-values.

    Examples
    --------
    >>> null = pce_null(256)
    >>> round(null.mean, 4), round(null.quantile(0.95), 3), round(pce_null(256, n_members=2).mean, 3)
    (0.0196, 0.036, 0.015)
    """
    if n_cases < 1:
        raise ValueError(f"{n_cases} cases: at least one is needed")
    if n_members is not None and n_members < 1:
        raise ValueError(f"n_members={n_members}: at least one member is needed, or None for continuous PITs")
    grid = centred_levels(n_levels) if levels is None else levels
    return _pce_null(n_cases, tuple(grid.tolist()), float(require_exponent(exponent)), n_members, unrandomised)


@lru_cache(maxsize=64)
def _pce_null(
    n_cases: int, levels: tuple[float, ...], exponent: float, n_members: int | None, unrandomised: bool
) -> PCENull:
    def draw() -> np.ndarray:
        curves = null_curves(n_cases, levels, n_members, unrandomised)
        total = np.zeros(len(curves))
        for j, level in enumerate(levels):  # level by level, so that nothing of size (B, J) is made twice
            total += np.abs(curves[:, j] - level) ** exponent
        return np.sort(total / len(levels))

    grid = np.array(levels)
    probability, adds = null_cells(grid, n_members, unrandomised)
    expected = np.minimum(probability @ adds, 1.0)
    if exponent == 2:
        variance = probability @ adds**2 - expected**2
        return PCENull(float(((expected - grid) ** 2 + variance / n_cases).mean()), draw)
    if exponent == 1 and (n_members is None or unrandomised):
        return PCENull(float(_mean_absolute_deviation(n_cases, grid, expected).mean()), draw)
    sample = draw()
    return PCENull(float(sample.mean()), lambda: sample)


def rank_spread(levels: Tensor, n_members: int | None) -> Tensor:
    """Standard deviation of what one calibrated PIT adds to the curve at each level, (J,): for ranks without ties."""
    probability, adds = null_cells(levels.cpu().numpy(), n_members, False)
    return torch.from_numpy((probability @ adds**2 - (probability @ adds) ** 2).clip(0.0)).sqrt().to(levels)


def maximum_null(n_cases: int, levels: Tensor, n_members: int | None, unrandomised: bool) -> np.ndarray:
    """Sorted sample of the largest deviation of a calibrated curve in units of its standard deviation at each level."""
    return _maximum_null(n_cases, tuple(levels.tolist()), n_members, unrandomised)


@lru_cache(maxsize=64)
def _maximum_null(n_cases: int, levels: tuple[float, ...], n_members: int | None, unrandomised: bool) -> np.ndarray:
    grid = np.array(levels)
    spread = rank_spread(torch.from_numpy(grid), n_members).numpy() / np.sqrt(n_cases)
    curves = null_curves(n_cases, levels, n_members, unrandomised)
    return np.sort(_largest_deviation(curves, grid, spread))


def _largest_deviation(curves: np.ndarray, grid: np.ndarray, spread: np.ndarray) -> np.ndarray:
    largest = np.zeros(len(curves))
    for j, level in enumerate(grid.tolist()):
        if spread[j] > 1e-12 and 0 < level < 1:
            np.maximum(largest, np.abs(curves[:, j] - level) / spread[j], out=largest)
    return largest


@lru_cache(maxsize=2)
def null_curves(
    n_cases: int, levels: tuple[float, ...], n_members: int | None = None, unrandomised: bool = False
) -> np.ndarray:
    """Reliability curves of `n_cases` calibrated PITs of one projection, 50,000 of them: (B, J)."""
    probability, adds = null_cells(np.array(levels), n_members, unrandomised)
    as_intervals = n_members is not None and not unrandomised
    stream = ("pce null of ranks" if as_intervals else "pce null", n_cases, len(levels), n_members)
    generator = numpy_generator(0, *stream)
    counts = generator.multinomial(n_cases, probability / probability.sum(), size=REPLICATES)
    if not as_intervals:
        return np.asfortranarray(counts[:, :-1].cumsum(1, dtype=np.int32) / n_cases)
    curves = np.empty((REPLICATES, len(levels)), order="F")
    for rows in np.split(np.arange(REPLICATES), 10):
        curves[rows] = counts[rows] @ adds / n_cases
    return curves


def _mean_absolute_deviation(n: int, levels: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """E|level - X / n| for X binomial(n, probability): exact, from partial sums of the binomial law."""
    # E|X - a| = a (2 F(a) - 1) + E X - 2 E[X; X <= a] with a = n level, and E[X; X <= a] = n p F_{n-1}(a - 1)
    a = n * levels
    whole = np.floor(a + 1e-9)
    below = _binomial_cdf(whole, n, probability)
    partial = n * probability * _binomial_cdf(whole - 1, n - 1, probability)
    return np.abs(a * (2 * below - 1) + n * probability - 2 * partial) / n


def _binomial_cdf(x: np.ndarray, n: int, probability: np.ndarray) -> np.ndarray:
    """P(X <= x) for X binomial(n, probability) and whole x, by the incomplete beta function."""
    from scipy.special import betaincc  # loads slowly, and all of scipy.stats more so

    inside = np.clip(x, 0, max(0, n - 1))
    below = betaincc(inside + 1, np.maximum(n - inside, 1), probability)
    return np.asarray(np.where(x < 0, 0.0, np.where(x >= n, 1.0, below)))


class Band(NamedTuple):
    """Simultaneous band of a reliability curve.

    Attributes
    ----------
    levels : Tensor, shape (n_levels,)
        The levels.
    lower : Tensor, shape (n_levels,)
        Lower end at each level.
    upper : Tensor, shape (n_levels,)
        Upper end at each level.
    pointwise : float
        Coverage at a single level for which the band covers all of them together as often as was asked for.
    """

    levels: Tensor
    lower: Tensor
    upper: Tensor
    pointwise: float


@single_threaded()
def reliability_band(
    n_cases: int,
    coverage: float = 0.95,
    n_levels: int = 100,
    levels: Tensor | None = None,
    n_members: int | None = None,
) -> Band:
    """Band that the whole reliability curve of a calibrated forecast stays in with probability `coverage`.

    For continuous PITs binomial quantiles at each level, at a common pointwise level that is tuned by simulation so that
    they hold simultaneously (Säilynoja, Bürkner and Vehtari 2022). For ranks among `n_members` members without ties,
    which are intervals, the diagonal plus and minus a common multiple of the standard deviation at each level.

    Parameters
    ----------
    n_cases : int
        Number of cases N, at least one.
    coverage : float, default 0.95
        How often the curve of a calibrated forecast is to stay inside at all levels, between 0 and 1.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    levels : Tensor, shape (n_levels,), optional
        Levels of your own, probabilities in ascending order.
    n_members : int, optional
        Members that each observation is ranked among; None means continuous PITs.

    Returns
    -------
    Band
        Ends at each level, in double precision.

    Examples
    --------
    >>> band = reliability_band(500)
    >>> bool((band.lower <= band.levels).all() and (band.levels <= band.upper).all())
    True
    """
    if n_cases < 1:
        raise ValueError(f"{n_cases} cases: at least one is needed")
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage}: a probability between 0 and 1, such as 0.95")
    grid = (centred_levels(n_levels) if levels is None else levels).double()
    alpha = grid.numpy()
    curves = null_curves(n_cases, tuple(alpha.tolist()), n_members)
    if n_members is not None:
        return _band_of_ranks(n_cases, coverage, grid, curves, n_members)
    from scipy import stats  # loads slowly

    tails = np.ones(len(curves))
    for j, level in enumerate(alpha):
        x, where = np.unique(np.rint(curves[:, j] * n_cases), return_inverse=True)
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


def _band_of_ranks(n_cases: int, coverage: float, grid: Tensor, curves: np.ndarray, n_members: int) -> Band:
    from scipy.special import ndtr  # loads slowly

    spread = rank_spread(grid, n_members).numpy() / np.sqrt(n_cases)
    largest = _largest_deviation(curves, grid.numpy(), spread)
    width = float(np.quantile(largest, coverage, method="higher")) * (1 + 1e-9)
    half = torch.from_numpy(width * spread)
    pointwise = 1 - 2 * float(ndtr(-width))
    return Band(grid, (grid - half).clamp_min(0.0), (grid + half).clamp_max(1.0), pointwise)


@single_threaded()
@accepts_arrays("pit", "levels", "expected_pce", "blocks")
def corrected_pce(
    pit: ProjectedPIT | Tensor,
    n_levels: int = 100,
    exponent: float = 1,
    levels: Tensor | None = None,
    expected_pce: Tensor | float | None = None,
    blocks: Tensor | None = None,
) -> Tensor:
    r"""PCE without the part that a finite sample adds: (..., N, K) -> (..., K), negative where noise alone would do.

    For exponent 2 the sample variance of the curve at each level is subtracted: exactly unbiased for independent cases;
    with `blocks` (N,) of dependent cases the variance is that between blocks. For exponent 1 the PCE expected under
    calibration is subtracted in quadrature and the sign kept, $\mathrm{sign}(x)\sqrt{|x|}$ with
    $x = \mathrm{PCE}^2 - E_0[\mathrm{PCE}]^2$: near zero for a calibrated forecast, nearly no change for a large PCE.
    `expected_pce` (K,) is that expectation where it is not known from N and M: where ranks tie, carry weights, or cases are
    dependent, it is what `pce_test` gives.

    Parameters
    ----------
    pit : ProjectedPIT or array_like of shape (..., n_cases, n_projections)
        PITs of at least two cases.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    exponent : float, default 1
        1 or 2; no other is defined.
    levels : array_like, shape (n_levels,), optional
        Levels of your own, probabilities in ascending order.
    expected_pce : float or array_like of shape (..., n_projections), optional
        PCE expected under calibration, for exponent 1: by default that of N cases, and of M members where PITs are ranks.
        Exponent 2 needs none.
    blocks : array_like, shape (n_cases,), optional
        Labels of dependent cases. Exponent 1 then needs `expected_pce`.

    Returns
    -------
    Tensor or ndarray, shape (..., n_projections)
        Corrected errors.

    Raises
    ------
    ValueError
        For fewer than two cases or another exponent, and where the PCE expected under calibration is neither known nor
        given.

    See Also
    --------
    pce_test : gives the PCE that is expected of each projection
    """
    n_cases = pit.n_cases if isinstance(pit, ProjectedPIT) else pit.shape[-2]
    if n_cases < 2:
        raise ValueError("a corrected PCE needs at least two cases")
    if exponent == 2:
        curve = reliability_curve(pit, n_levels, levels)
        return ((curve.levels[:, None] - curve.frequency).square() - _noise(pit, curve.levels, blocks)).mean(-2)
    if exponent != 1:
        raise ValueError(f"a corrected PCE is defined for exponents 1 and 2, not {exponent}")
    if expected_pce is None:
        if blocks is not None:
            raise ValueError(
                "the PCE expected of dependent cases is not known: pass expected_pce=pce_test(...).projection_expected_pce"
            )
        expected_pce = _expected_pce(pit, n_cases, n_levels, levels)
    return in_quadrature(pce(pit, n_levels, 1, levels), expected_pce)


def in_quadrature(error: Tensor, expected_pce: Tensor | float) -> Tensor:
    """sign(x) sqrt(|x|) with x = error² - expected_pce²."""
    excess = error.square() - expected_pce**2
    return excess.sign() * excess.abs().sqrt()


def _expected_pce(pit: ProjectedPIT | Tensor, n_cases: int, n_levels: int, levels: Tensor | None) -> Tensor | float:
    """PCE expected of each projection under calibration, where it depends on N and M alone."""
    if not isinstance(pit, ProjectedPIT):
        return pce_null(n_cases, n_levels, 1, levels).mean
    if pit.pick is not None or not all(bool(part.law_is_known.all()) for part in pit.parts):
        raise ValueError(
            "the PCE expected of tied or weighted ranks depends on the data: compute the PITs with "
            "projected_pit(..., exchangeable=True) and pass expected_pce=pce_test(...).projection_expected_pce"
        )
    means = [
        pce_null(n_cases, n_levels, 1, levels, part.n_members, part.unrandomised).mean
        for part in pit.parts
        for _ in part.names
    ]
    return torch.tensor(means, dtype=torch.float64, device=pit.device)


def _noise(pit: ProjectedPIT | Tensor, levels: Tensor, blocks: Tensor | None) -> Tensor:
    """Sampling variance of the curve at each level, estimated from cases or blocks: (..., J, K)."""
    lower, upper = (pit.lower, pit.upper) if isinstance(pit, ProjectedPIT) else (pit, pit)
    n_cases = lower.shape[-2]
    if blocks is not None:
        sums, sizes = block_sums(pit, levels.double(), blocks)
        mean = sums.sum(0) / n_cases
        residual = sums - sizes.reshape(-1, *(1,) * (sums.ndim - 1)) * mean
        return residual.square().sum(0) * (len(sums) / (len(sums) - 1) / n_cases**2)
    first = curve_sums(lower, upper, levels.double()) / n_cases
    second = _squares(lower, upper, levels.double()) / n_cases
    return ((second - first.square()).clamp_min(0.0) / (n_cases - 1)).to(lower)


def _squares(lower: Tensor, upper: Tensor, levels: Tensor) -> Tensor:
    """Sums over cases of squared contributions: (..., N, K) -> (..., J, K)."""
    flat = (end.movedim(-2, 0).reshape(lower.shape[-2], -1) for end in (lower, upper))
    low, high = flat
    total = levels.new_zeros(low.shape[1], len(levels))
    for cases in chunks(len(low), low.shape[1] * len(levels), levels.device):
        shares = steps(low[cases].flatten(), high[cases].flatten(), levels)
        total += shares.square().reshape(cases.stop - cases.start, -1, len(levels)).sum(0)
    return total.reshape(*lower.shape[:-2], lower.shape[-1], len(levels)).mT


def block_sums(pit: ProjectedPIT | Tensor, levels: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Contributions to the curve summed over the cases of each block, (n_blocks, ..., J, K), and the blocks' sizes."""
    labels = torch.unique(blocks.to(pit.device), return_inverse=True)[1]
    sizes = torch.bincount(labels)
    sums = []
    for cases in labels.argsort(stable=True).split(sizes.tolist()):
        some = pit.select(cases) if isinstance(pit, ProjectedPIT) else pit[..., cases, :]
        lower, upper = (some.lower, some.upper) if isinstance(some, ProjectedPIT) else (some, some)
        sums.append(curve_sums(lower, upper, levels))
    return torch.stack(sums), sizes.double()
