"""`Recalibrator`: from a joint forecast to one that is calibrated, learnt on held-out cases."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from prerank._parallel import single_threaded
from prerank._parameters import require_whole
from prerank._progress import shown_if_slow
from prerank._wording import counted
from prerank.arrays.conversion import described
from prerank.arrays.labels import Axes
from prerank.forecasts import Ensemble, Forecast
from prerank.forecasts.support import refuse_outside_support
from prerank.inputs import Cases
from prerank.preranks import PreRank
from prerank.preranks.table1 import listed_preranks
from prerank.recalibration.affine import Affine
from prerank.recalibration.atoms import in_words, tied_shares
from prerank.recalibration.error_law import ErrorLaw, FittedErrorLaw
from prerank.recalibration.features import Features, raw_features
from prerank.recalibration.folds import folds_of
from prerank.recalibration.held_out import FittedOn, held_out_cases, to_correct
from prerank.recalibration.order import Order
from prerank.recalibration.persistence import read_steps, write
from prerank.recalibration.steps import Fitted, HeldOut, Step
from prerank.recalibration.tilt import FittedTilt, Tilt

_UNITS = "mean errors, shifts and sizes are in the units of the targets, energy scores too"


class PITDensities(NamedTuple):
    """Densities (K, bins) of a pre-rank's old PITs: of the observations, and under the corrected forecast.

    Attributes
    ----------
    observed : ndarray, shape (n_projections, n_bins)
        Density of the PITs of the observations in bins of equal width; one everywhere for a calibrated forecast.
    corrected : ndarray, shape (n_projections, n_bins)
        That of PITs of draws of the corrected forecast.
    """

    observed: np.ndarray
    corrected: np.ndarray


class Recalibrator(BaseEstimator):
    """Learn on held-out cases how a forecast goes wrong, and correct other forecasts of the same kind.

    `preranks` are what the tilt looks along and what an ensemble is tested by, the paper's without it. `steps` are what is
    done, in this order: by default `(Affine(), Tilt(), Tilt())`, the second tilt along PITs of what the first has made,
    with features a `Tilt(degree=2, by_features=True)` before them, and for a bare `Ensemble` `(ErrorLaw(),)`, which takes
    features itself, and members that have names as models of their own. Every step but dressing may find that nothing has
    to be changed, which is the usual answer for a calibrated forecast. Every step learns from forecasts by fits of the
    step before that have not seen the case, where it has them.

    Cross-validation has `n_folds` folds: runs where cases stand in an order, that of blocks which are numbers or times, of
    labels of cases which are times, or of the members of an `Ensemble`; otherwise cases are dealt at random. `gap`
    blocks on both sides of a run are not learnt from when it is left out, for cases that share valid times. Everything
    random depends on `seed`. Fewer than two blocks (cases without them) for each fold are refused.

    Fit it on cases that the forecast itself was not fitted on, and judge the result on others again: `check(y, corrected)`.

    Parameters
    ----------
    preranks : PreRank or sequence of PreRank, optional
        What the tilt looks along and what an ensemble is tested by; the paper's by default.
    steps : Step or sequence of Step, optional
        What is done, in this order; by default as above.
    n_folds : int, default 5
        Number of folds, at least two.
    gap : int, default 0
        Blocks, or cases without them, on both sides of a run that are not learnt from when it is left out.
    seed : int, default 0
        Seed of everything random.

    Attributes
    ----------
    steps_ : tuple of Fitted
        What each step has learnt.
    n_cases_ : int
        Number of cases that were learnt from.
    n_features_ : int
        Number of features, 0 for none.
    notes_ : tuple of str
        What was left out of the fit.
    tied_ : ndarray, shape (n_targets,)
        Share of repeated observations by target.
    fitted_on_ : FittedOn
        Number and names of the targets, and number and names of the members, that it was fitted on.

    See Also
    --------
    recalibrate_over_time : a fit every few times, on what was known by then
    CalibratedRegressorCV : an estimator and its correction in one

    Examples
    --------
    >>> from prerank import GaussianMixture
    >>> def forecast(n):  # says zero where one is right
    ...     return GaussianMixture(torch.zeros(n, 1), torch.zeros(n, 1, 2), torch.eye(2).expand(n, 1, 2, 2))
    >>> y = 1 + forecast(300).ensemble(1).members[:, 0]
    >>> recalibrator = Recalibrator(steps=[Affine()]).fit(forecast(300), y)
    >>> recalibrator.transform(forecast(5)).mean[0].round()
    tensor([1., 1.])
    """

    def __init__(
        self,
        preranks: PreRank | Sequence[PreRank] | None = None,
        steps: Sequence[Step] | None = None,
        *,
        n_folds: int = 5,
        gap: int = 0,
        seed: int = 0,
    ) -> None:
        self.preranks = preranks
        self.steps = steps
        self.n_folds = n_folds
        self.gap = gap
        self.seed = seed

    @single_threaded()
    def fit(
        self,
        forecast: Any,
        y: Any,
        *,
        features: Any = None,
        case_weights: Any = None,
        blocks: Any = None,
        axes: Axes | None = None,
        joint: str | Sequence[str] | None = None,
        member_names: Sequence[str] | None = None,
    ) -> Self:
        """Learn from forecasts of held-out cases and their observations (N, D).

        The forecast stands where scikit-learn has X: an `Ensemble`, members (N, M, D), or a distribution of N cases.
        `features` (N, L), a few numbers per case, are what the correction may depend on: for calibration given them, and not
        only on average. `case_weights` (N,) say how much a case counts, zero not at all; cases with the same label in
        `blocks` (N,) stay in one fold and count as one in standard errors. `axes` names the axes of an array of members that
        is not (cases, members, targets), and `joint` the dimensions of targets of xarray objects, as for `check`; what is
        missing, and what has labels, is treated as there, too.

        Members are exchangeable unless they have names: text along their dimension of an xarray object that differs in more
        than numbers, or `member_names` for any array.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of held-out cases.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.
        features : array_like, shape (n_cases, n_features), optional
            What the correction may depend on.
        case_weights : array_like, shape (n_cases,), optional
            How much each case counts; all alike by default.
        blocks : array_like, shape (n_cases,), or str, optional
            Labels of cases that depend on each other; every case is a block of its own by default.
        axes, joint : sequence or dict of str, optional
            What the axes of arrays, and the dimensions of xarray objects, are; as for `check`.
        member_names : sequence of str, optional
            Names of members that are models of their own, one for each.

        Returns
        -------
        Recalibrator
            The fitted recalibrator itself.

        Raises
        ------
        TypeError
            If steps are no steps, or do not fit the forecast.
        ValueError
            If there are too few cases, shapes do not fit, or an observation lies where the forecast cannot be.
        """
        cases = held_out_cases(forecast, y, axes, joint=joint, member_names=member_names)
        return self._learn(cases, features, case_weights, blocks)

    def _learn(self, cases: Cases, features: Any, case_weights: Any, blocks: Any) -> Self:
        """`fit` on cases that have come through the door; what belongs to a case is that of all cases that were given."""
        cases = cases.along(case_weights=case_weights)
        forecast, y, order = cases.law, cases.observed(), Order.of(cases)
        blocks = None if blocks is None else cases.index.label_values(blocks, "blocks")
        refuse_outside_support(
            y,
            forecast,
            "no weight of draws reaches there: pass draws as an Ensemble, which is dressed, or leave those cases out",
        )
        given = None if features is None else Features.of(cases.index.table(features, "features"), len(y), y.device)
        steps = _listed_steps(self.steps, forecast, given is not None, cases.member_names is not None)
        seed = require_whole(self.seed, "seed", at_least=None)
        weights = _of_mean_one(cases.weights, y)
        n_folds = require_whole(self.n_folds, "n_folds", at_least=2)
        gap = require_whole(self.gap, "gap", at_least=0)
        # members of an array stand in the order of time, more often than not, and where they do not it does no harm
        in_order = order.cases or isinstance(forecast, Ensemble)
        folds = folds_of(len(y), n_folds, blocks, seed, y.device, weights, in_order, gap)
        held_out = HeldOut(y, weights, folds, listed_preranks(self.preranks, y.shape[-1]), seed, given, order.targets)
        fitted: list[Fitted] = []
        current = forecast
        with torch.no_grad(), shown_if_slow("fitting", "steps") as tell:
            for place, step in enumerate(steps):
                tell(place, len(steps))
                if place and step == steps[place - 1] and not fitted[-1].changed:
                    continue  # what changed nothing changes nothing again
                if isinstance(step, Tilt) and fitted and _left_members(fitted[-1]):
                    break  # members that are right, or need but a move, have no law to be tilted
                with shown_if_slow(type(step).__name__):
                    learnt = step.fit(current, held_out)
                corrected = getattr(learnt, "out_of_fold", None)
                if corrected is None:
                    corrected = _transformed(learnt, current, None if given is None else given.raw)
                else:
                    learnt = replace(cast(Any, learnt), out_of_fold=None)  # those cases are no part of what was learnt
                fitted.append(learnt)
                current = corrected
        self.steps_ = tuple(fitted)
        by_name = any(isinstance(step, FittedErrorLaw) and step.n_members is not None for step in fitted)
        fitted_on = FittedOn.of(cases)._replace(members=cases.member_names if by_name else None)
        self.n_cases_, self.fitted_on_, self.notes_ = len(y), fitted_on, cases.notes
        self.tied_ = tied_shares(y).cpu().numpy()
        self.n_features_ = 0 if given is None else given.values.shape[1]
        return self

    @single_threaded()
    def transform(
        self,
        forecast: Any,
        features: Any = None,
        *,
        axes: Axes | None = None,
        joint: str | Sequence[str] | None = None,
        member_names: Sequence[str] | None = None,
    ) -> Forecast:
        """The corrected forecast of other cases; the same object where nothing was changed.

        `features` (N, L) are those of these cases, in the order that `fit` was given, if it was given any. `axes` names the
        axes of an array, as in `fit`. Members with the names of `fit` may stand in another order.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of the cases.
        features : array_like, shape (n_cases, n_features), optional
            Their features, where `fit` was given some.
        axes, joint : sequence or dict of str, optional
            What the axes of arrays, and the dimensions of xarray objects, are; as for `check`.
        member_names : sequence of str, optional
            Names of the members, one for each.

        Returns
        -------
        Ensemble or Distribution
            The corrected forecast.

        Raises
        ------
        ValueError
            If it is not fitted yet, or targets, named members or features are others than those of `fit`.
        """
        check_is_fitted(self, "steps_")
        who = "the Recalibrator"
        cases = to_correct(forecast, axes, self.fitted_on_, who, joint=joint, member_names=member_names)
        return self._correct(cases, features)

    def _correct(self, cases: Cases, features: Any) -> Forecast:
        """`transform` of cases that have come through the door."""
        current, raw = cases.law, self._features(features, cases)
        with torch.no_grad(), shown_if_slow("correcting", "steps") as tell:
            for place, step in enumerate(self.steps_):
                tell(place, len(self.steps_))
                current = _transformed(step, current, raw)
        return current

    @property
    def n_targets_(self) -> int:
        """Number of targets."""
        check_is_fitted(self, "steps_")
        return self.fitted_on_.n_targets

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """Names of the targets, if they had some."""
        check_is_fitted(self, "steps_")
        return self.fitted_on_.names

    @property
    def member_names_(self) -> tuple[str, ...] | None:
        """Names of the members, if each is a model that was learnt about by itself."""
        check_is_fitted(self, "steps_")
        return self.fitted_on_.members

    def _features(self, given: Any, cases: Cases) -> Tensor | None:
        if (given is None) != (self.n_features_ == 0):
            known = counted(self.n_features_, "feature") if self.n_features_ else "no features"
            passed = "none" if given is None else "some"
            raise ValueError(f"the Recalibrator was fitted on {known}, and {passed} are given; pass the same as to fit")
        if given is None:
            return None
        raw = raw_features(cases.index.table(given, "features"), len(cases.index.kept))
        if raw.shape[1] != self.n_features_:
            raise ValueError(
                f"{counted(raw.shape[1], 'feature')} are given, but the Recalibrator was fitted on {self.n_features_}; "
                "pass the same ones in the same order"
            )
        return raw

    @property
    def changed_(self) -> bool:
        """Whether any step changes a forecast."""
        check_is_fitted(self, "steps_")
        return any(step.changed for step in self.steps_)

    @property
    def densities_(self) -> dict[str, PITDensities]:
        """Densities of the old PITs by pre-rank, of the first tilt that changes a forecast, or else of the first.

        For `prerank.plotting.recalibration.recalibration_figure`.
        """
        check_is_fitted(self, "steps_")
        tilts = [step for step in self.steps_ if isinstance(step, FittedTilt)]
        if not tilts:
            return {}
        shown = next((tilt for tilt in tilts if tilt.changed), tilts[0])
        first, found = 0, {}
        for name, count in shown.groups:
            rows = slice(first, first + count)
            found[name] = PITDensities(*(part[rows].cpu().numpy() for part in (shown.observed, shown.corrected)))
            first += count
        return found

    def summary(self) -> str:
        """What was changed, step by step, in words.

        Returns
        -------
        str
            Lines of text.
        """
        check_is_fitted(self, "steps_")
        head = f"Fitted on {counted(self.n_cases_, 'case')}, {counted(self.n_targets_, 'target')}."
        verdict = "" if self.changed_ else " Nothing was changed."
        atoms = in_words(torch.as_tensor(self.tied_))
        return "\n".join(
            [
                head + verdict,
                *self.notes_,
                *([] if atoms is None else [atoms]),
                *([_UNITS] if any(step.changed and hasattr(step, "shift") for step in self.steps_) else []),
                *(step.summary() for step in self.steps_),
            ]
        )

    def save(self, path: Path | str) -> None:
        """Write what was learnt to one file, safetensors with JSON in its header.

        Parameters
        ----------
        path : str or path-like
            The file, such as "recalibrator.safetensors".
        """
        check_is_fitted(self, "steps_")
        about: dict[str, Any] = {"n_cases": self.n_cases_, "n_targets": self.n_targets_, "n_features": self.n_features_}
        about |= {"n_folds": int(self.n_folds), "seed": int(self.seed), "tied": self.tied_.tolist()}
        about |= {"n_members": self.fitted_on_.n_members, "target_names": self.target_names_, "notes": self.notes_}
        about |= {"member_names": self.member_names_}
        write(path, self.steps_, about)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """What `save` wrote: it transforms as before. `steps` and `preranks`, which are for fitting, are the defaults.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        Recalibrator
            A fitted recalibrator.
        """
        steps, about = read_steps(path)
        result = cls(n_folds=about.n_folds, seed=about.seed)
        result.steps_ = steps
        result.n_cases_, result.notes_ = about.n_cases, about.notes
        result.fitted_on_ = FittedOn(about.n_targets, about.n_members, about.target_names, about.member_names)
        result.tied_, result.n_features_ = np.asarray(about.tied), about.n_features
        return result


def _left_members(step: Fitted) -> bool:
    return isinstance(step, FittedErrorLaw) and (not step.changed or step.moves is not None)


def _transformed(step: Fitted, forecast: Forecast, features: Tensor | None) -> Forecast:
    if isinstance(step, FittedTilt | FittedErrorLaw) and step.n_features:
        return step.transform(forecast, features)
    return step.transform(forecast)


def _listed_steps(steps: Any, forecast: Forecast, with_features: bool, named: bool = False) -> list[Step]:
    if steps is None:
        if isinstance(forecast, Ensemble):
            return [ErrorLaw(named_members=named)]
        return [Affine(), *([Tilt(degree=2, by_features=True)] if with_features else []), Tilt(), Tilt()]
    listed = [steps] if hasattr(steps, "fit") or not isinstance(steps, Sequence) else list(steps)
    for step in listed:
        if isinstance(step, type) or not hasattr(step, "fit") or _learns_from_y(step):
            raise TypeError(f"steps: {described(step)} is no step; pass values such as (Affine(), Tilt())")
    if not listed:
        raise ValueError("steps=(): nothing would be learnt; pass at least one, such as (Affine(), Tilt())")
    if with_features and not any(isinstance(step, ErrorLaw) or getattr(step, "by_features", False) for step in listed):
        raise ValueError(
            "features are given, and no step uses them; put ErrorLaw() or Tilt(degree=2, by_features=True) among the steps"
        )
    return listed


def _learns_from_y(step: Any) -> bool:
    """Whether something has a `fit` of another kind: a regressor's, or that of a whole recalibration."""
    try:
        return list(inspect.signature(step.fit).parameters)[1:2] == ["y"]
    except (TypeError, ValueError):
        return False


def _of_mean_one(weights: Tensor | None, y: Tensor) -> Tensor:
    if weights is None:
        return torch.ones(len(y), dtype=torch.float64, device=y.device)
    return weights.double() / weights.double().mean()
