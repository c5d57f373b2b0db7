"""A joint forecast from forecasts of every target by itself, and a dependence that is learnt from past observations."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._parallel import in_threads, single_threaded
from prerank._parameters import require_whole
from prerank.arrays import as_observations
from prerank.forecasts import Ensemble
from prerank.randomness import case_keys, normal, uniform
from prerank.recalibration.densities import MOST_DRAWS
from prerank.recalibration.held_out import require_fitted
from prerank.recalibration.marginal_forecasts import as_margins

_FEWEST = 5  # past cases that a dependence is learnt from


class Dependence(Protocol):
    """How targets go together: learnt from past ranks, drawn for new cases."""

    def fit(self, levels: Tensor, past: Tensor) -> "FittedDependence":
        """Learn from past observations (N, D) and the levels (N, D) that they have in their margins."""


class FittedDependence(Protocol):
    """A dependence that was learnt."""

    def draw(self, keys: Tensor, n_draws: int) -> Tensor:
        """Levels (N, n_draws, D), each uniform by itself, for cases with these keys (N,)."""

    def summary(self) -> str:
        """What was learnt, in a sentence."""


@dataclass(frozen=True)
class GaussianCopula:
    r"""A normal dependence of the margins' errors: one correlation matrix for all cases.

    The correlations are those of the normal scores of ranks among the past cases, so that margins may be wrong. They are
    drawn towards zero by the share that their sampling error asks for (Schäfer and Strimmer 2005),
    $\lambda = \sum \widehat{\mathrm{Var}}(r_{ij}) / \sum r_{ij}^2$ over pairs. More joint extremes than a normal law
    has are not seen.

    References
    ----------
    Schäfer and Strimmer (2005): A shrinkage approach to large-scale covariance matrix estimation and implications for
    functional genomics. Statistical Applications in Genetics and Molecular Biology 4, 32.
    """

    def fit(self, levels: Tensor, past: Tensor) -> "FittedGaussianCopula":
        """Learn the correlations.

        Parameters
        ----------
        levels : Tensor, shape (n_cases, n_targets)
            Levels that the past observations have in their margins.
        past : Tensor, shape (n_cases, n_targets)
            The observations, which are not looked at.

        Returns
        -------
        FittedGaussianCopula
            The correlations.
        """
        scores = torch.special.ndtri((levels.argsort(0).argsort(0) + 1.0).double() / (len(levels) + 1))
        scores = (scores - scores.mean(0)) / scores.std(0, correction=0)
        n, d = scores.shape
        correlation = scores.mT @ scores / n
        if d == 1:
            return FittedGaussianCopula(correlation, 0.0, n)
        products = scores[:, :, None] * scores[:, None, :]
        variance = (products - correlation).square().sum(0) * n / (n - 1) ** 3
        off = ~torch.eye(d, dtype=torch.bool, device=scores.device)
        size = float(correlation[off].square().sum())
        shrinkage = min(1.0, float(variance[off].sum()) / size) if size > 0 else 1.0
        return FittedGaussianCopula(torch.where(off, (1 - shrinkage) * correlation, 1.0), shrinkage, n)


class FittedGaussianCopula(NamedTuple):
    """Correlations (D, D), the share by which they were drawn towards zero, and the number of past cases."""

    correlation: Tensor
    shrinkage: float
    n_cases: int

    def draw(self, keys: Tensor, n_draws: int) -> Tensor:
        """Levels (N, n_draws, D), each uniform by itself, for cases with these keys (N,)."""
        values, vectors = torch.linalg.eigh(self.correlation)
        root = vectors * values.clamp_min(0).sqrt()
        noise = normal(keys, (n_draws, len(root))).to(root)
        return torch.special.ndtr(noise @ root.mT)

    def summary(self) -> str:
        """What was learnt, in a sentence."""
        count = len(self.correlation)
        pairs = self.correlation[~torch.eye(count, dtype=torch.bool, device=self.correlation.device)]
        between = f"correlations {float(pairs.min()):.2f} to {float(pairs.max()):.2f}" if count > 1 else "one target"
        return (
            f"Gaussian copula of {self.n_cases:,} cases: {between}, drawn towards zero by {100 * self.shrinkage:.0f} %"
        )


@dataclass(frozen=True)
class EmpiricalCopula:
    """The ranks of past cases, drawn with replacement, each spread over its own step: a dependence of any shape.

    By default the ranks are those of the levels that past observations have in their margins: the dependence of the
    forecast's errors. With `of_observations=True` they are the ranks of past observations among each other, the Schaake
    shuffle (Clark et al. 2004), which takes what targets have in common over the cases, such as a season, for dependence
    within a case. Needs more past cases than `GaussianCopula`.

    Parameters
    ----------
    of_observations : bool, default False
        Whether ranks are those of observations among each other.

    References
    ----------
    Clark, Gangopadhyay, Hay, Rajagopalan and Wilby (2004): The Schaake shuffle. Journal of Hydrometeorology 5, 243-262.
    """

    of_observations: bool = False

    def fit(self, levels: Tensor, past: Tensor) -> "FittedEmpiricalCopula":
        """Keep the ranks of past cases.

        Parameters
        ----------
        levels : Tensor, shape (n_cases, n_targets)
            Levels that the past observations have in their margins.
        past : Tensor, shape (n_cases, n_targets)
            The observations, whose ranks are kept with `of_observations=True`.

        Returns
        -------
        FittedEmpiricalCopula
            The ranks.
        """
        order = levels.argsort(0)
        if self.of_observations:  # equal ones in the order of their levels, which are at random within an atom
            order = order.gather(0, past.gather(0, order).argsort(dim=0, stable=True))
        return FittedEmpiricalCopula(order.argsort(0), self.of_observations)


class FittedEmpiricalCopula(NamedTuple):
    """Ranks (H, D) of past cases, from zero, and whether they are those of observations."""

    ranks: Tensor
    of_observations: bool

    def draw(self, keys: Tensor, n_draws: int) -> Tensor:
        """Levels (N, n_draws, D), each uniform by itself, for cases with these keys (N,)."""
        count, n_targets = self.ranks.shape
        noise = uniform(keys, (n_draws, n_targets + 1)).to(self.ranks.device).double()
        picked = (noise[..., 0] * count).long().clamp_max(count - 1)
        return ((self.ranks[picked] + noise[..., 1:]) / count).clamp(1e-12, 1 - 1e-12)

    def summary(self) -> str:
        """What was learnt, in a sentence."""
        what = "observations (Schaake shuffle)" if self.of_observations else "errors"
        return f"ranks of {len(self.ranks):,} past {what}"


@dataclass(frozen=True)
class Independence:
    """No dependence at all: what margins by themselves say, to compare with."""

    def fit(self, levels: Tensor, past: Tensor) -> FittedGaussianCopula:
        """Learn nothing.

        Parameters
        ----------
        levels : Tensor, shape (n_cases, n_targets)
            Levels of past cases, of which only the shape counts.
        past : Tensor, shape (n_cases, n_targets)
            Their observations, which are not looked at.

        Returns
        -------
        FittedGaussianCopula
            Correlations of zero.
        """
        return FittedGaussianCopula(torch.eye(levels.shape[1]).to(levels), 1.0, len(levels))


@dataclass(eq=False)
class JointFromMargins:
    r"""A joint forecast from margins and past observations: the margins are kept, the dependence is learnt.

    Each draw takes its levels from the dependence and its values from the margins, $y_d = \hat F_d^{-1}(U_d)$ with every
    $U_d$ uniform: the law of each target is the margin that was given, whatever the dependence, and draws are independent.
    Assumed is that the dependence is the same in all cases, past and new, and that there are enough past cases to learn it
    from. Neither is so by itself: `check` the result on cases after those. Errors of the margins stay; `Recalibrator`
    corrects them, and the rest, on held-out cases.

    Parameters
    ----------
    dependence : Dependence, default GaussianCopula()
        How targets go together: `GaussianCopula()`, `EmpiricalCopula()`, or `EmpiricalCopula(of_observations=True)`, the
        Schaake shuffle. `Independence()` is there to compare with.
    n_draws : int, default 100
        Draws of every case.
    seed : int, default 0
        Seed of the draws, and of the places of observations within atoms.

    Attributes
    ----------
    dependence_ : FittedDependence
        What was learnt.
    n_targets_ : int
        Number of targets.

    See Also
    --------
    QuantileMargins : margins from quantiles
    margins_kept : whether draws have the quantiles of the margins
    EnsembleCopulaCoupling, SchaakeShuffle : margins that are corrected, in the order of members or of the past

    Examples
    --------
    >>> from prerank.recalibration import QuantileMargins
    >>> levels = torch.linspace(0.05, 0.95, 19)
    >>> past = QuantileMargins(torch.special.ndtri(levels)[None, :, None].expand(200, -1, 2), levels)
    >>> y = torch.randn(200, 1, generator=torch.Generator().manual_seed(1)).expand(-1, 2)
    >>> joint = JointFromMargins().fit(past, y)
    >>> print(joint.summary())
    Gaussian copula of 200 cases: correlations 0.99 to 0.99, drawn towards zero by 1 %
    >>> joint.transform(past)
    Ensemble(200 cases, 100 members, 2 targets)
    """

    dependence: Dependence = GaussianCopula()
    n_draws: int = 100
    seed: int = 0
    dependence_: FittedDependence = field(init=False, repr=False)
    n_targets_: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_most=MOST_DRAWS)
        require_whole(self.seed, "seed", at_least=None)
        if not hasattr(self.dependence, "fit"):
            raise TypeError(
                f"dependence={self.dependence!r}: give GaussianCopula(), EmpiricalCopula() or Independence()"
            )

    @single_threaded()
    @torch.no_grad()
    def fit(self, margins: Any, y: Any) -> "JointFromMargins":
        """Learn the dependence from past margins and their observations.

        Parameters
        ----------
        margins : QuantileMargins, DistributionMargins or distribution
            Margins of N past cases and D targets.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.

        Returns
        -------
        JointFromMargins
            Itself.

        Raises
        ------
        ValueError
            If shapes do not fit, or fewer than five cases are complete.
        """
        known, observed = as_margins(margins), as_observations(y).double()
        if tuple(observed.shape) != tuple(known.shape):
            raise ValueError(
                f"y has shape {tuple(observed.shape)}; the margins have {known.shape[0]} cases and {known.shape[1]} targets"
            )
        complete = ~observed.isnan().any(-1)
        if int(complete.sum()) < _FEWEST:
            raise ValueError(f"{int(complete.sum())} complete past cases; at least {_FEWEST} are needed")
        below, up_to = known.levels_of(observed.nan_to_num())
        at_random = uniform(case_keys(self.seed, torch.arange(len(observed)), "places in atoms"), (observed.shape[1],))
        levels = below + at_random.to(below) * (up_to - below)
        self.dependence_ = self.dependence.fit(levels[complete], observed[complete])
        self.n_targets_ = observed.shape[1]
        return self

    @single_threaded()
    @torch.no_grad()
    def transform(self, margins: Any) -> Ensemble:
        """Draw joint forecasts with these margins.

        Parameters
        ----------
        margins : QuantileMargins, DistributionMargins or distribution
            Margins of new cases, the same targets in the same order.

        Returns
        -------
        Ensemble
            `n_draws` independent, equally weighted draws of every case.

        Raises
        ------
        ValueError
            If it is not fitted yet, or was fitted on another number of targets.
        """
        require_fitted(self, "dependence_")
        known = as_margins(margins)
        n_cases, n_targets = known.shape
        if n_targets != self.n_targets_:
            raise ValueError(f"the margins have {n_targets} targets, fitted were {self.n_targets_}")
        keys = case_keys(self.seed, torch.arange(n_cases), "joint draws")
        return Ensemble(known.values(self._levels(keys)))

    def _levels(self, keys: Tensor) -> Tensor:
        parts = chunks(len(keys), self.n_draws * self.n_targets_, keys.device)
        return torch.cat(in_threads(lambda cases: self.dependence_.draw(keys[cases], self.n_draws), parts))

    def summary(self) -> str:
        """What was learnt, in a sentence.

        Returns
        -------
        str
            The sentence.
        """
        require_fitted(self, "dependence_")
        return self.dependence_.summary()


class Kept(NamedTuple):
    """Shares (J, D) of draws up to the quantile of each level, and standard errors (J,) of shares of independent draws."""

    levels: Tensor
    shares: Tensor
    standard_error: Tensor

    @property
    def largest(self) -> float:
        """The largest deviation from a level, in standard errors."""
        return float(((self.shares - self.levels[:, None]).abs() / self.standard_error[:, None]).max())


@torch.no_grad()
def margins_kept(joint: Ensemble, margins: Any, levels: Any = None) -> Kept:
    """Whether draws have the margins that they were made from: the share of draws up to each quantile.

    Parameters
    ----------
    joint : Ensemble
        Equally weighted draws of N cases.
    margins : QuantileMargins, DistributionMargins or distribution
        Their margins.
    levels : array_like, optional
        Levels to look at; by default those of the quantiles, or tenths.

    Returns
    -------
    Kept
        Shares, which should be the levels within a few standard errors. Draws at an atom count by half a uniform number.

    Examples
    --------
    >>> law = torch.distributions.Normal(torch.zeros(500, 2), 1.0)
    >>> joint = JointFromMargins(Independence()).fit(law, torch.randn(500, 2)).transform(law)
    >>> margins_kept(joint, law).largest < 5
    True
    """
    known = as_margins(margins)
    own = getattr(known, "levels", None) if levels is None else levels
    wanted = torch.linspace(0.1, 0.9, 9).double() if own is None else torch.as_tensor(own).double()
    members = joint.members.double()
    at_random = uniform(case_keys(0, torch.arange(len(members)), "places in atoms"), tuple(members.shape[1:]))
    probabilities = torch.stack(
        [
            below + at_random[:, m].to(below) * (up_to - below)
            for m in range(members.shape[1])
            for below, up_to in [known.levels_of(members[:, m])]
        ]
    )
    shares = torch.stack([(probabilities <= level).double().mean((0, 1)) for level in wanted])
    count = members.shape[0] * members.shape[1]
    return Kept(wanted, shares, (wanted * (1 - wanted) / count).sqrt())
