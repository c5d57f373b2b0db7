"""The law of errors: Student's t about a corrected mean, its sizes and scatter learnt from past errors of an ensemble."""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._parameters import require_yes_or_no
from prerank._wording import counted
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.recalibration.affine import moved
from prerank.recalibration.error_evidence import evidence, moved_members
from prerank.recalibration.error_fit import Cases, ErrorProblem
from prerank.recalibration.error_mean import Predictors, regressions, robust_weights, within_reach
from prerank.recalibration.error_scale import LEAST, Sizes, size_basis, usual_spread
from prerank.recalibration.error_scatter import with_own
from prerank.recalibration.scale_nodes import scale_nodes
from prerank.recalibration.steps import NOT_SAVED, HeldOut, require_ensemble

_SHARES = (0.5, 0.0)  # of the way from a shift alone to the regression, beside all of it


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
    places.

    Members whose only fault is a bias, or too large a spread, are moved instead, and keep what else they know: where moved
    ones pass the tests of calibration by the pre-ranks, and the law's energy score is not clearly better.

    In the place of a t the law may have the shape of the members, or of past errors, where that gains more than a standard
    error of the log score: Gaussian kernels about their standardised deviations. And nothing is changed where
    members pass the tests of calibration by the pre-ranks and the law's energy score is not clearly better.

    Parameters
    ----------
    named_members : bool, default False
        Whether member m is the same model in every case.
    ordered_targets : bool, optional
        Whether targets are in an order, such as hours or leads, so that neighbours belong together. By default as the labels
        of the observations say: numbers or times that rise.
    always : bool, default False
        Whether the law is taken even where the members are calibrated and score no worse.

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
    always: bool = False

    def __post_init__(self) -> None:
        require_yes_or_no(self.always, "always")
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
        ensemble = require_ensemble(forecast, "ErrorLaw")
        members, cases = _Members.of(ensemble), Cases.of(held_out)
        error = cases.y - members.mean
        used = cases.weights > 0
        unit = _unit(error, cases.weights)
        given = None if held_out.features is None else held_out.features.raw
        predictors = Predictors.of(_raw_predictors(members, unit, self.named_members, given, used), used)
        robust = robust_weights(error / unit, used) * cases.weights
        _, first = regressions(error / unit, predictors, robust, cases.folds, cases.n_blocks)
        # large errors are those that are left by a regression
        robust = robust_weights(error / unit - first.held_out, used) * cases.weights
        alone, best = regressions(error / unit, predictors, robust, cases.folds, cases.n_blocks)
        usual = usual_spread(members.spread, cases.weights)
        basis = size_basis(members.spread, usual, _of_features(predictors.values, given))
        deviations = members.standardised(usual)
        ordered = bool(held_out.ordered_targets if self.ordered_targets is None else self.ordered_targets)
        problem = ErrorProblem(error / unit, basis, deviations, robust, cases, ordered)
        chosen, share = problem.solved(best), 1.0
        if bool((best.coefficients != 0).any()):
            scores = {1.0: problem.score(chosen, unit, held_out.seed)}
            for less in _SHARES:
                other = problem.solved(alone.between(best, less))
                scores[less] = problem.score(other, unit, held_out.seed)
                if scores[less] < scores[share]:
                    chosen, share = other, less
        own_share, density = problem.own_share(chosen, held_out)
        shape = problem.shape(chosen, density, held_out)
        gaussian = shape.kind != "t" or math.isinf(chosen.scatter.freedom)
        law = FittedErrorLaw(
            unit,
            predictors.centre,
            predictors.spread,
            predictors.reach,
            chosen.mean.shift,
            chosen.mean.coefficients,
            usual,
            chosen.sizes.level,
            chosen.sizes.slopes,
            shape.covariance,
            None if gaussian else chosen.scatter.freedom,
            own_share,
            ensemble.n_members if self.named_members else None,
            0 if given is None else given.shape[1],
            chosen.scatter.pattern,
            chosen.scatter.share,
            shape.kind,
            shape.share,
            shape.points if shape.kind == "errors" else None,
        )
        location, scale = members.mean + unit * chosen.mean.held_out, unit * chosen.log_size.exp()
        fold = cases.folds.fold
        points = shape.points_without[fold] if shape.kind == "errors" else None
        out_of_fold = law.about(location, scale, deviations, ensemble, shape.without[fold], points)
        if not self.always:
            law = replace(law, **evidence(ensemble, out_of_fold, held_out)._asdict())
        if not law.changed:
            return law
        moves = None if self.always else moved_members(ensemble, out_of_fold, held_out)
        return replace(law, out_of_fold=out_of_fold) if moves is None else replace(law, moves=moves)


def _unit(error: Tensor, weights: Tensor) -> Tensor:
    """The spread (D,) of errors of each target; their size where they are all the same."""
    share = (weights / weights.sum())[:, None]
    unit = (share * (error - (share * error).sum(0)).square()).sum(0).sqrt()
    size = (share * error.square()).sum(0).sqrt()
    return torch.where(unit > 1e-9 * size, unit, torch.where(size > 0, size, 1.0))


def _raw_predictors(
    members: _Members, unit: Tensor, named: bool, given: Tensor | None, used: Tensor | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Groups of predictors (N, F) of the mean and their units: level, members that are models, features."""
    parts = [(members.mean, unit)]
    if named:
        deviations = members.deviations.flatten(1)
        parts.append((deviations, unit.repeat(members.deviations.shape[1])))
    if given is not None:
        spread = (given if used is None else given[used]).std(0, correction=0)
        parts.append((given.double(), torch.where(spread > 0, spread, 1.0).double()))
    return parts


def _of_features(values: Tensor, given: Tensor | None) -> Tensor | None:
    """The features among the predictors (N, F) of the mean, of which they are the last."""
    return None if given is None else values[:, values.shape[1] - given.shape[1] :]


@dataclass(frozen=True, eq=False)
class FittedErrorLaw:
    """What an `ErrorLaw` has learnt: a mean, sizes and a scatter of errors.

    `unit` (D,) is the spread of the errors, in which all else is. `centre`, `spread`, `reach` (F,) standardise the
    predictors of the mean, with `shift` (D,) and `coefficients` (F, D). `usual` (D,) is the members' usual spread, and
    log sizes are `level` (D,) and `slopes` (G,) times functions of the spread. `scatter` (D, D), `freedom` (None: Gaussian)
    and `own_share` are those of standardised errors. With a `shape` other than "t", kernels carry all but a share
    `shape_share` of the standard deviation, about the members or past errors, `points` (K, D). `changed` says
    whether anything is, by the members' `p_value` and `score` and the law's `gain` over it; where a shift and scale of the
    members will do, `moves` (2, D) has them. `out_of_fold` is the law of
    the cases that were learnt from, by fits without their fold; it is not saved.
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
    shape: str = "t"
    shape_share: float = 0.0
    points: Tensor | None = None
    p_value: float | None = None
    score: float = 0.0
    gain: float = 0.0
    gain_error: float = 0.0
    changed: bool = True
    moves: Tensor | None = None
    out_of_fold: GaussianMixture | None = field(default=None, repr=False, metadata=NOT_SAVED)

    def transform(self, forecast: Forecast, features: Tensor | None = None) -> Forecast:
        """The law of other cases; `features` (N, L) as they were given to `fit`. The forecast itself if it was right."""
        if not self.changed:
            return forecast
        if self.moves is not None:
            return moved(require_ensemble(forecast, "ErrorLaw"), self.moves[0], self.moves[1], 0)
        ensemble = require_ensemble(forecast, "ErrorLaw")
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
        deviations = members.standardised(self.usual)
        return self.about(location, scale, deviations, ensemble, self.scatter.expand(len(scale), -1, -1), self.points)

    def about(
        self,
        location: Tensor,
        scale: Tensor,
        deviations: Tensor,
        like: Ensemble,
        scatter: Tensor,
        points: Tensor | None,
    ) -> GaussianMixture:
        """The law of cases with locations and scales (N, D), standardised deviations of members and scatters (N, D, D).

        `points` (K, D), or (N, K, D), are past errors for a law of their shape. In the type of an ensemble's members.
        """
        if self.shape == "t":
            own = with_own(scatter, deviations, self.own_share).expand(len(scale), -1, -1)
            nodes = scale_nodes(math.inf if self.freedom is None else self.freedom, location.shape[-1])
            logits, factors = (torch.tensor(part, dtype=torch.float64).to(location) for part in nodes)
            loc = location[:, None].expand(-1, len(logits), -1)
            tril = factors[:, None, None] * (scale[..., :, None] * torch.linalg.cholesky(own))[:, None]
        else:
            if self.shape == "members":
                points = deviations * scatter.diagonal(dim1=-2, dim2=-1).sqrt()[:, None]
            assert points is not None
            loc = location[:, None] + self.shape_share * scale[:, None] * points
            kernel = (1 - self.shape_share**2) ** 0.5 * scale[..., :, None] * torch.linalg.cholesky(scatter)
            logits, tril = location.new_zeros(loc.shape[1]), kernel[:, None].expand(-1, loc.shape[1], -1, -1)
        dtype = like.members.dtype if like.members.is_floating_point() else torch.float64
        return GaussianMixture(logits.expand(loc.shape[:2]).to(dtype), loc.to(dtype), tril.to(dtype))

    def summary(self) -> str:
        """What was learnt, in words."""
        scores = f"energy score {self.score:.4g} before, gain {self.gain:.3g} ± {self.gain_error:.2g}"
        if not self.changed:
            return (
                "law of errors: nothing was changed; the members pass the tests of calibration, or a law would do no better "
                f"(smallest adjusted p-value {self.p_value:.3f}; {scores})"
            )
        shifts = ", ".join(f"{value:+.3g}" for value in (self.unit * self.shift).tolist())
        sizes = ", ".join(
            f"{value:.3g}" for value in (self.unit * self.level.exp() * self.scatter.diagonal().sqrt()).tolist()
        )
        depends = "and depends on the members" if bool((self.coefficients != 0).any()) else "in every case"
        kind = "Gaussian" if self.freedom is None else f"Student's t with {self.freedom:g} degrees of freedom"
        if self.shape != "t":
            kind = f"the shape of {'the members' if self.shape == 'members' else 'past errors'}"
        if self.moves is not None:
            shifts, sizes = (", ".join(f"{value:.3g}" for value in row.tolist()) for row in self.moves)
            return (
                f"law of errors: members shifted by {shifts}, spreads multiplied by {sizes}; they pass the tests of "
                f"calibration, and a law would score no better (before: smallest adjusted p-value {self.p_value:.3f}, "
                f"energy score {self.score:.4g})"
            )
        own = f", {self.own_share:.0%} of it the members' own" if self.own_share else ""
        why = "" if self.p_value is None else f"; smallest adjusted p-value of the members {self.p_value:.3f}; {scores}"
        return (
            f"law of errors: {kind}; mean error {shifts} {depends}; usual sizes {sizes}; scatter shrunk by "
            f"{self.pattern_share:.0%} to {PATTERNS[self.pattern]}{own}{why}"
        )


PATTERNS = {
    "none": "no correlation",
    "equal": "the same correlation of all targets",
    "band 1": "correlations by way of the target before",
    "band 2": "correlations by way of the two targets before",
    "band 3": "correlations by way of the three targets before",
}
