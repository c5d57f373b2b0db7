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
from prerank.recalibration.error_mean import (
    Predictors,
    bumps,
    level_and_features,
    regressions,
    robust_weights,
    within_reach,
)
from prerank.recalibration.error_scale import LEAST, Sizes, level_of, size_basis, usual_spread
from prerank.recalibration.error_scatter import with_own
from prerank.recalibration.scale_nodes import scale_nodes
from prerank.recalibration.steps import NOT_SAVED, HeldOut, in_place, require_ensemble

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

    * The mean error m is linear in the members' mean of all targets, held back beyond three standard deviations, and
      a smooth curve of it, where folds find one; ridges are chosen on folds, and how much of the regression is used by the
      energy score of the whole law.
    * The size σ of errors in a target and case is log-linear in the members' spread, that of the target and that of all,
      and in the members' level, where that gains beyond doubt.
    * The scatter Σ and the degrees of freedom ν are learnt from standardised errors, the scatter shrunk to a pattern: no
      correlation, the same for all, or, for targets in an order, a dependence on neighbours alone. A share of the members'
      own correlations is added where it gains more than a standard error.

    All errors that are learnt from are those of fits without the case's fold, so that the uncertainty of what was learnt
    widens the law; and all that folds choose is judged by an outer fold, which none of it has seen. Features that `fit` is
    given enter mean and size. Members are exchangeable: with `named_members` each is a model of its own, with a column of
    its own in the regression, and the same members are expected in the same places.

    Members whose only fault is a bias, or too large a spread, are moved instead, and keep what else they know: where moved
    ones pass the tests of calibration by the pre-ranks, and the law's energy score is not clearly better.

    In the place of a t the law may have the shape of the members, Gaussian kernels about their standardised deviations, or
    be a few Gaussians, for skew errors or errors with humps, where that gains more than a standard error of the log score.
    And nothing is changed where
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
        law = self._learnt(ensemble, held_out)
        out_of_fold = self._out_of_fold(ensemble, held_out)
        if not self.always:
            law = replace(law, **evidence(ensemble, out_of_fold, held_out)._asdict())
        if not law.changed:
            return law
        moves = None if self.always else moved_members(ensemble, out_of_fold, held_out)
        return replace(law, out_of_fold=out_of_fold) if moves is None else replace(law, moves=moves)

    def _out_of_fold(self, ensemble: Ensemble, held_out: HeldOut) -> GaussianMixture:
        """The law of every case by a fit that has seen nothing of its fold, all that folds choose included."""
        parts = []
        for f, used in enumerate(held_out.folds.without):
            law = self._learnt(ensemble.select(used.nonzero()[:, 0]), held_out.within(f))
            inside = held_out.folds.fold == f
            features = None if held_out.features is None else held_out.features.raw[inside]
            parts.append(law.law(ensemble.select(inside.nonzero()[:, 0]), features))
        return in_place(parts, held_out.folds)

    def _learnt(self, ensemble: Ensemble, held_out: HeldOut) -> "FittedErrorLaw":
        """A law of the errors, whether there is need of one or not."""
        members, cases = _Members.of(ensemble), Cases.of(held_out)
        error, n_targets = cases.y - members.mean, cases.y.shape[1]
        used = cases.weights > 0
        unit = _unit(error, cases.weights)
        given = None if held_out.features is None else held_out.features.raw
        parts = _raw_predictors(members, unit, self.named_members, given, used)
        predictors = Predictors.of(parts, used, 0 if given is None else given.shape[1], held_out.seed)
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
        level = level_of(predictors.values[:, :n_targets], predictors.reach[:n_targets])
        problem, chosen = problem.with_level(level, problem.solved(best), held_out)
        share = 1.0
        if bool((best.coefficients != 0).any() or (best.heights != 0).any()):
            scores = {1.0: problem.score(chosen, unit, held_out.seed)}
            for less in _SHARES:
                other = problem.solved_by(alone.between(best, less), chosen.weights)
                scores[less] = problem.score(other, unit, held_out.seed)
                if scores[less] < scores[share]:
                    chosen, share = other, less
        own_share, density = problem.own_share(chosen, held_out)
        shape = problem.shape(chosen, density, held_out)
        gaussian = shape.kind != "t" or math.isinf(chosen.scatter.freedom)
        curved = bool((chosen.mean.heights != 0).any())
        groups = shape.groups
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
            shape.covariance,
            None if gaussian else chosen.scatter.freedom,
            own_share,
            ensemble.n_members if self.named_members else None,
            0 if given is None else given.shape[1],
            chosen.scatter.pattern,
            chosen.scatter.share,
            shape.kind,
            shape.share,
            *((None,) * 3 if groups is None else (groups.log_weights, groups.centres, groups.sizes)),
            *((predictors.curve.width, predictors.curve.centres, chosen.mean.heights) if curved else (None,) * 3),
        )


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
    and `own_share` are those of standardised errors; a further slope is that of the members' level. With the `shape`
    "members", kernels about the members carry all but a share `shape_share` of the standard deviation; with "groups" there
    are K Gaussians with weights exp `group_logits` (K,), `group_centres` (K, D) and `group_sizes` (K,) times the scatter's.
    Where the mean is curved, it has bumps with `bump_width` (F,), `bump_centres` (C, F) and `bump_heights` (C, D).
    `changed` says whether anything is, by the members' `p_value` and `score` and the law's `gain` over it; where a shift
    and scale of the members will do, `moves` (2, D) has them. `out_of_fold` is the law of the cases that were learnt from,
    by fits without their fold; it is not saved.
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
    group_logits: Tensor | None = None
    group_centres: Tensor | None = None
    group_sizes: Tensor | None = None
    bump_width: Tensor | None = None
    bump_centres: Tensor | None = None
    bump_heights: Tensor | None = None
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
        return self.law(require_ensemble(forecast, "ErrorLaw"), features)

    def law(self, ensemble: Ensemble, features: Tensor | None = None) -> GaussianMixture:
        """The law of other cases, needed or not, in the type of the ensemble's members."""
        if self.n_members is not None and ensemble.n_members != self.n_members:
            raise ValueError(
                f"the forecast has {counted(ensemble.n_members, 'member')}, and ErrorLaw(named_members=True) was fitted on "
                f"{self.n_members}; give it the same members in the same order"
            )
        members, n_targets = _Members.of(ensemble), len(self.unit)
        parts = _raw_predictors(members, self.unit, self.n_members is not None, features)
        values = within_reach(torch.cat([part for part, _ in parts], 1), self.centre, self.spread, self.reach)
        mean = self.shift + values @ self.coefficients
        if self.bump_width is not None and self.bump_centres is not None and self.bump_heights is not None:
            smooth = level_and_features(values, n_targets, self.n_features)
            mean = mean + bumps(smooth, self.bump_width, self.bump_centres) @ self.bump_heights
        basis = size_basis(members.spread, self.usual, _of_features(values, features))
        if basis.shape[-1] < len(self.slopes):
            level = level_of(values[:, :n_targets], self.reach[:n_targets])
            basis = torch.cat([basis, level.expand_as(mean)[..., None]], -1)
        scale = self.unit * Sizes(self.level, self.slopes).log_size(basis).exp()
        logits, loc, tril = self._standardised(members.standardised(self.usual), scale)
        loc = (members.mean + self.unit * mean)[:, None] + scale[:, None] * loc
        dtype = ensemble.members.dtype if ensemble.members.is_floating_point() else torch.float64
        return GaussianMixture(logits.expand(loc.shape[:2]).to(dtype), loc.to(dtype), tril.to(dtype))

    def _standardised(self, deviations: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (K,) and centres (N or 1, K, D) of standardised errors, and their factors times scales (N, K, D, D)."""
        if self.shape == "members":
            size = self.scatter.diagonal().sqrt()
            kernel = (1 - self.shape_share**2) ** 0.5 * scale[..., None] * torch.linalg.cholesky(self.scatter)
            logits = deviations.new_zeros(deviations.shape[1])
            return logits, self.shape_share * size * deviations, kernel[:, None].expand(-1, len(logits), -1, -1)
        if self.shape == "groups":
            assert self.group_logits is not None
            assert self.group_centres is not None
            assert self.group_sizes is not None
            logits, sizes, centres = self.group_logits, self.group_sizes, self.group_centres[None]
            scatter = self.scatter
        else:
            nodes = scale_nodes(math.inf if self.freedom is None else self.freedom, scale.shape[1])
            logits, sizes = (torch.tensor(part, dtype=torch.float64).to(scale) for part in nodes)
            centres, scatter = scale.new_zeros(1, 1, 1), with_own(self.scatter, deviations, self.own_share)
        root = (scale[..., None] * torch.linalg.cholesky(scatter))[:, None]
        return logits, centres.expand(-1, len(logits), scale.shape[1]), sizes[:, None, None] * root

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
            kind = (
                "the shape of the members" if self.group_sizes is None else f"{len(self.group_sizes)} groups of errors"
            )
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
