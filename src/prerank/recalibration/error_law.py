"""The law of errors: Student's t about a corrected mean, its sizes and scatter learnt from past errors of an ensemble."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._parameters import require_yes_or_no
from prerank._wording import counted
from prerank.arrays.conversion import described
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.randomness import case_keys, normal
from prerank.recalibration.error_mean import Mean, Predictors, regressions, robust_weights, within_reach
from prerank.recalibration.error_scale import LEAST, Sizes, fit_sizes, size_basis, usual_spread
from prerank.recalibration.error_scatter import OWN_SHARES, Scatter, fit_scatter, own_densities, with_own
from prerank.recalibration.folds import Folds
from prerank.recalibration.scale_nodes import scale_nodes
from prerank.recalibration.steps import NOT_SAVED, HeldOut
from prerank.scores import energy_score

_SHARES = (0.5, 0.0)  # of the way from a shift alone to the regression, beside all of it
_DRAWS = 40  # whose energy scores decide it


class _Members(NamedTuple):
    """Mean and standard deviation (N, D) of the members, and deviations (N, M, D) whose squares have its mean."""

    mean: Tensor
    spread: Tensor
    deviations: Tensor

    @classmethod
    def of(cls, ensemble: Ensemble) -> "_Members":
        members, mean = ensemble.members.double(), ensemble.mean.double()
        weight = (ensemble.probabilities.double() * ensemble.n_members).sqrt()[..., None]
        deviations = weight * (members - mean[:, None])
        return cls(mean, deviations.square().mean(1).sqrt(), deviations)

    def standardised(self, usual: Tensor) -> Tensor:
        """Deviations in units of the case's own spread, smaller where members agree."""
        return self.deviations / torch.maximum(self.spread, LEAST * usual)[:, None]


@dataclass(frozen=True)
class ErrorLaw:
    r"""A Student t law about a corrected mean, learnt from past errors of an `Ensemble`: a `GaussianMixture`.

    $$y \mid x \sim t_\nu\bigl(\bar x + m(x),\ \operatorname{diag} \sigma(x)\, \Sigma\, \operatorname{diag} \sigma(x)\bigr)$$

    * The mean error m is linear in the members' mean of all targets, held back beyond three standard deviations; ridges
      are chosen on folds, and how much of the regression is used by the energy score of the whole law.
    * The size σ of errors in a target and case is log-linear in the members' spread, that of the target and that of all.
    * The scatter Σ and the degrees of freedom ν are learnt from standardised errors, the scatter shrunk to a pattern: no
      correlation, the same for all, or, for targets in an order, a dependence on neighbours alone. A share of the members'
      own correlations is added where it gains more than a standard error.

    All errors that are learnt from are those of fits without the case's fold, so that the uncertainty of what was learnt
    widens the law. Features that `fit` is given enter mean and size. Members are exchangeable: with `named_members`
    each is a model of its own, with a column of its own in the regression, and the same members are expected in the same
    places. Not for errors that are skew or have several modes, which no t has.

    Parameters
    ----------
    named_members : bool, default False
        Whether member m is the same model in every case.
    ordered_targets : bool, optional
        Whether targets are in an order, such as hours or leads, so that neighbours belong together. By default as the labels
        of the observations say: numbers or times that rise.

    Examples
    --------
    >>> from prerank import Recalibrator
    >>> generator = torch.Generator().manual_seed(0)
    >>> signal, noise = torch.randn(100, 1, 2, generator=generator), torch.randn(100, 6, 2, generator=generator)
    >>> members, y = Ensemble(signal + 0.3 * noise[:, 1:]), signal[:, 0] + 1 + noise[:, 0]
    >>> law = Recalibrator(steps=[ErrorLaw()]).fit(members, y).transform(members)
    >>> bool((law.mean - signal[:, 0] - 1).mean(0).abs().max() < 0.2)
    True
    """

    named_members: bool = False
    ordered_targets: bool | None = None

    def __post_init__(self) -> None:
        require_yes_or_no(self.named_members, "named_members")
        if self.ordered_targets is not None:
            require_yes_or_no(self.ordered_targets, "ordered_targets")

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedErrorLaw":
        """Learn from an ensemble of held-out cases and their observations.

        Parameters
        ----------
        forecast : Ensemble
            Members of held-out cases.
        held_out : HeldOut
            Observations, weights and folds.

        Returns
        -------
        FittedErrorLaw
            What was learnt, with the laws of the held-out cases by fits without their fold.
        """
        ensemble = _ensemble(forecast)
        members, cases = _Members.of(ensemble), _Cases.of(held_out)
        error = cases.y - members.mean
        used = cases.weights > 0
        unit = _unit(error, cases.weights)
        given = None if held_out.features is None else held_out.features.raw
        predictors = Predictors.of(_raw_predictors(members, unit, self.named_members, given))
        robust = robust_weights(error / unit, used) * cases.weights
        _, first = regressions(error / unit, predictors, robust, cases.folds, cases.n_blocks)
        # large errors are those that are left by a regression
        robust = robust_weights(error / unit - first.held_out, used) * cases.weights
        alone, best = regressions(error / unit, predictors, robust, cases.folds, cases.n_blocks)
        usual = usual_spread(members.spread, cases.weights)
        basis = size_basis(members.spread, usual, _of_features(predictors.values, given))
        deviations = members.standardised(usual)
        ordered = bool(held_out.ordered_targets if self.ordered_targets is None else self.ordered_targets)
        problem = _Problem(error / unit, basis, deviations, robust, cases, ordered)
        chosen, share = problem.solved(best), 1.0
        if bool((best.coefficients != 0).any()):
            scores = {1.0: problem.score(chosen, unit, held_out.seed)}
            for less in _SHARES:
                other = problem.solved(alone.between(best, less))
                scores[less] = problem.score(other, unit, held_out.seed)
                if scores[less] < scores[share]:
                    chosen, share = other, less
        own_share = problem.own_share(chosen, held_out)
        scatter = with_own(chosen.scatter.without[cases.folds.fold], deviations, own_share)
        location = members.mean + unit * chosen.mean.held_out
        return FittedErrorLaw(
            unit,
            predictors.centre,
            predictors.spread,
            predictors.reach,
            chosen.mean.shift,
            chosen.mean.coefficients,
            usual,
            chosen.sizes.level,
            chosen.sizes.slopes,
            chosen.scatter.whole,
            None if math.isinf(chosen.scatter.freedom) else chosen.scatter.freedom,
            own_share,
            ensemble.n_members if self.named_members else None,
            0 if given is None else given.shape[1],
            chosen.scatter.pattern,
            chosen.scatter.share,
            out_of_fold=_t_law(location, unit * chosen.log_size.exp(), scatter, chosen.scatter.freedom, ensemble),
        )


class _Cases(NamedTuple):
    y: Tensor
    weights: Tensor
    folds: Folds
    n_blocks: int

    @classmethod
    def of(cls, held_out: HeldOut) -> "_Cases":
        n_blocks = len(held_out.folds.block[held_out.weights > 0].unique())
        return cls(held_out.y.double(), held_out.weights.double(), held_out.folds, n_blocks)


class _Solution(NamedTuple):
    """A mean, sizes of what it leaves, log sizes (N, D) by fits without the case's fold, and the scatter of both."""

    mean: Mean
    sizes: Sizes
    log_size: Tensor
    scatter: Scatter
    standardised: Tensor


class _Problem(NamedTuple):
    """Errors (N, D) in their units, functions of sizes, standardised deviations of members, and weights for usual cases."""

    errors: Tensor
    basis: Tensor
    deviations: Tensor
    robust: Tensor
    cases: _Cases
    ordered: bool

    def solved(self, mean: Mean) -> _Solution:
        """Sizes and scatter of what is left by a mean, all from fits without the case's fold.

        How sizes differ is learnt from all cases alike, or from usual ones above all, whichever is better for cases of
        other folds; how large they are is left to the scatter, and every case.
        """
        solutions = [self._solved(mean, weights) for weights in (self.cases.weights, self.robust)]
        return max(solutions, key=self._log_likelihood)

    def _solved(self, mean: Mean, weights: Tensor) -> _Solution:
        rest, cases = self.errors - mean.held_out, self.cases
        sizes = fit_sizes(rest, self.basis, weights, cases.n_blocks)
        log_size = torch.empty_like(rest)
        for f, used in enumerate(cases.folds.without):
            inside = cases.folds.fold == f
            without = fit_sizes(rest, self.basis, weights * used, cases.n_blocks, sizes)
            log_size[inside] = without.log_size(self.basis[inside])
        z = rest * (-log_size).exp()
        scatter = fit_scatter(z, cases.weights, cases.folds, self.ordered)
        return _Solution(mean, sizes, log_size, scatter, z)

    def _log_likelihood(self, solution: _Solution) -> float:
        return solution.scatter.log_likelihood - float(self.cases.weights @ solution.log_size.sum(1))

    def score(self, solution: _Solution, unit: Tensor, seed: int) -> float:
        """The energy score of draws of every case's law without its fold, by the same noise for every solution."""
        n_cases, n_targets = self.errors.shape
        ids = torch.arange(n_cases, device=self.errors.device)
        noise = normal(case_keys(seed, ids, "error law"), (_DRAWS, n_targets), torch.float64)
        if not math.isinf(solution.scatter.freedom):
            # a chi-square by its cube root (Wilson and Hilferty), from one more normal number
            root = normal(case_keys(seed, ids, "error law", "sizes"), (_DRAWS, 1), torch.float64)
            small = 2 / (9 * solution.scatter.freedom)
            noise = noise / (1 - small + small**0.5 * root).clamp_min(0.05) ** 1.5
        factor = torch.linalg.cholesky(solution.scatter.without)[self.cases.folds.fold]
        drawn = solution.mean.held_out[:, None] + solution.log_size.exp()[:, None] * (noise @ factor.mT)
        scores = energy_score(unit * self.errors, Ensemble(unit * drawn))
        return float((self.cases.weights * scores).mean())

    def own_share(self, solution: _Solution, held_out: HeldOut) -> float:
        """The share of every case's own scatter that gains most, if that is more than a standard error."""
        if self.errors.shape[1] < 2 or self.deviations.shape[1] < 2:
            return 0.0
        shares = (0.0, *OWN_SHARES)
        values = own_densities(solution.standardised, solution.scatter, self.deviations, self.cases.folds.fold, shares)
        place = int((values @ self.cases.weights).argmax())
        gain, error = held_out.gain(values[place] - values[0])
        return shares[place] if gain > error else 0.0


def _ensemble(forecast: Forecast) -> Ensemble:
    if not isinstance(forecast, Ensemble):
        raise TypeError(
            f"ErrorLaw() is for the members of an Ensemble, and the forecast is {described(forecast)}, which has a law of "
            "its own; use Affine() instead"
        )
    return forecast


def _unit(error: Tensor, weights: Tensor) -> Tensor:
    """The spread (D,) of errors of each target; their size where they are all the same."""
    share = (weights / weights.sum())[:, None]
    unit = (share * (error - (share * error).sum(0)).square()).sum(0).sqrt()
    size = (share * error.square()).sum(0).sqrt()
    return torch.where(unit > 1e-9 * size, unit, torch.where(size > 0, size, 1.0))


def _raw_predictors(members: _Members, unit: Tensor, named: bool, given: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """Groups of predictors (N, F) of the mean and their units: level, members that are models, features."""
    parts = [(members.mean, unit)]
    if named:
        deviations = members.deviations.flatten(1)
        parts.append((deviations, unit.repeat(members.deviations.shape[1])))
    if given is not None:
        spread = given.std(0, correction=0)
        parts.append((given.double(), torch.where(spread > 0, spread, 1.0).double()))
    return parts


def _of_features(values: Tensor, given: Tensor | None) -> Tensor | None:
    """The features among the predictors (N, F) of the mean, of which they are the last."""
    return None if given is None else values[:, values.shape[1] - given.shape[1] :]


def _t_law(location: Tensor, scale: Tensor, scatter: Tensor, freedom: float, like: Ensemble) -> GaussianMixture:
    """The t of every case as a mixture of Gaussians of a few sizes, in the type of an ensemble's members."""
    factor = scale[..., :, None] * torch.linalg.cholesky(scatter)
    nodes = scale_nodes(freedom, location.shape[-1])
    factors = torch.tensor(nodes.factors, dtype=torch.float64, device=location.device)
    logits = torch.tensor(nodes.log_weights, dtype=torch.float64, device=location.device)
    count, dtype = len(factors), like.members.dtype if like.members.is_floating_point() else torch.float64
    return GaussianMixture(
        logits.expand(len(location), -1).to(dtype),
        location[:, None].expand(-1, count, -1).to(dtype),
        (factors[:, None, None] * factor[:, None]).to(dtype),
    )


@dataclass(frozen=True, eq=False)
class FittedErrorLaw:
    """What an `ErrorLaw` has learnt: a mean, sizes and a scatter of errors.

    `unit` (D,) is the spread of the errors, in which all else is. `centre`, `spread`, `reach` (F,) standardise the
    predictors of the mean, with `shift` (D,) and `coefficients` (F, D). `usual` (D,) is the members' usual spread, and
    log sizes are `level` (D,) and `slopes` (G,) times functions of the spread. `scatter` (D, D), `freedom` (None: Gaussian)
    and `own_share` are those of standardised errors. `out_of_fold` is the law of the cases that were learnt from, by fits
    without their fold; it is not saved.
    """

    unit: Tensor
    centre: Tensor
    spread: Tensor
    reach: Tensor
    shift: Tensor
    coefficients: Tensor
    usual: Tensor
    level: Tensor
    slopes: Tensor
    scatter: Tensor
    freedom: float | None
    own_share: float
    n_members: int | None
    n_features: int
    pattern: str
    pattern_share: float
    out_of_fold: GaussianMixture | None = field(default=None, repr=False, metadata=NOT_SAVED)

    @property
    def changed(self) -> bool:
        return True

    def transform(self, forecast: Forecast, features: Tensor | None = None) -> GaussianMixture:
        """The law of other cases; `features` (N, L) as they were given to `fit`."""
        ensemble = _ensemble(forecast)
        if self.n_members is not None and ensemble.n_members != self.n_members:
            raise ValueError(
                f"the forecast has {counted(ensemble.n_members, 'member')}, and ErrorLaw(named_members=True) was fitted on "
                f"{self.n_members}; give it the same members in the same order"
            )
        members = _Members.of(ensemble)
        parts = _raw_predictors(members, self.unit, self.n_members is not None, features)
        raw = torch.cat([part for part, _ in parts], 1)
        values = within_reach(raw, self.centre, self.spread, self.reach)
        location = members.mean + self.unit * (self.shift + values @ self.coefficients)
        basis = size_basis(members.spread, self.usual, _of_features(values, features))
        scale = self.unit * Sizes(self.level, self.slopes).log_size(basis).exp()
        scatter = with_own(self.scatter, members.standardised(self.usual), self.own_share)
        freedom = math.inf if self.freedom is None else self.freedom
        return _t_law(location, scale, scatter.expand(len(scale), -1, -1), freedom, ensemble)

    def summary(self) -> str:
        """What was learnt, in words."""
        shifts = ", ".join(f"{value:+.3g}" for value in (self.unit * self.shift).tolist())
        sizes = ", ".join(f"{value:.3g}" for value in (self.unit * self.level.exp()).tolist())
        depends = "and depends on the members" if bool((self.coefficients != 0).any()) else "in every case"
        tails = "Gaussian" if self.freedom is None else f"Student's t with {self.freedom:g} degrees of freedom"
        own = f", {self.own_share:.0%} of it the members' own" if self.own_share else ""
        return (
            f"law of errors: {tails}; mean error {shifts} {depends}; usual sizes {sizes}; scatter shrunk by "
            f"{self.pattern_share:.0%} to {PATTERNS[self.pattern]}{own}"
        )


PATTERNS = {
    "none": "no correlation",
    "equal": "the same correlation of all targets",
    "band 1": "correlations by way of the target before",
    "band 2": "correlations by way of the two targets before",
    "band 3": "correlations by way of the three targets before",
}
