"""`CalibratedRegressorCV`: any forecasting estimator, recalibrated on out-of-fold predictions."""

import warnings
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state, indexable
from sklearn.utils.validation import check_is_fitted

from prerank._parameters import require_whole
from prerank._wording import counted
from prerank.arrays.conversion import described, without_mask
from prerank.forecasts import Ensemble, Forecast
from prerank.forecasts.equal_mixture import equal_mixture, side_by_side
from prerank.preranks import PreRank
from prerank.randomness import numpy_generator
from prerank.recalibration import Recalibrator, Tilted
from prerank.regression.cv_plans import Outside, Plan, folds_by, held_out, single
from prerank.regression.fold_models import Index, fitted_models
from prerank.regression.predictions import (
    as_forecast,
    cells_of,
    drawn_values,
    inmost,
    predict_distribution,
    predict_quantiles,
)
from prerank.regression.regressor import MixtureRegressor
from prerank.regression.rows import observed_for, require_targets, table_of, targets_of, weights_of
from prerank.regression.scorers import LogLikelihood
from prerank.regression.storing import read_parts, write_parts

_FEWEST = 10  # held-out rows from which anything is learnt
_FOR_THE_MEAN = 1000  # draws, where targets have atoms
_FOR_A_POOL = 100  # rows from which a fold can be held out


_KEPT = ("_one_axis", "n_models_", "n_features_in_", "n_targets_", "target_names_")


class Data(NamedTuple):
    """Rows of positive weight: features, targets, weights and groups."""

    x: Any
    y: Any
    weights: np.ndarray | None
    groups: np.ndarray | None


class CalibratedRegressorCV(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """An estimator of joint forecasts, recalibrated on out-of-fold predictions.

    A row that the correction is learnt from has no part in its own forecast: neither in training, early stopping,
    scaling nor the choice of a strength. Networks of all folds are trained as one fleet. A fold that tests rows it is
    trained on, and folds that test a row twice, are refused. Where the correction is a tilt, forecasts are computed by
    draws, which takes longer.

    Parameters
    ----------
    estimator : estimator, optional
        A `MixtureRegressor` (the default), or any other with `fit(X, y)` and `predict_distribution(X)`, a pipeline
        with one at its end among them.
    preranks : PreRank or sequence of PreRank, optional
        What the correction looks at; the paper's by default.
    cv : int or splitter, default 10
        Number of folds (shuffled, or by groups if `fit` is given some), or a splitter of scikit-learn's.
    ensemble : bool or 'auto', default 'auto'
        True: up to four models, each early-stopped on a different fold, and every fifth fold held out to learn the
        correction; forecasts are the equal mixture of all models. Ten folds, which test every row once, train on 70 %
        of the rows. At least three are needed; of fewer than six there is a model less than folds. False: one model of
        all rows, with a correction learnt from models of the folds, which are fitted on fewer rows than the one that
        is corrected; K folds cost K + 1 models. "auto": True where the folds allow it and there are at least 100 rows,
        else False, as for `TimeSeriesSplit` and folds with a gap: rows that no fold tests are then fitted on, and not
        learnt from.
    max_held_out : int or None, default 2048
        The most rows that the correction is learnt from; None for no limit.
    recalibrator : Recalibrator, optional
        What learns the correction; `Recalibrator(preranks)` by default.
    random_state : int, RandomState or None, default None
        Seeds folds, models and draws; None takes the estimator's, if that is a number.

    Attributes
    ----------
    models_ : list of estimators
        Those whose equal mixture is corrected.
    recalibrator_ : Recalibrator or None
        The correction; None with fewer than ten held-out rows.
    n_models_ : int
        Models fitted in all.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X was a frame.
    n_targets_ : int
        Number of targets.
    target_names_ : list of str or None
        Names of the targets, if y was a frame.

    See Also
    --------
    Recalibrator : corrects forecasts without their estimator

    Examples
    --------
    >>> from prerank import Marginal
    >>> from prerank.datasets import Bimodal
    >>> table = Bimodal().table(200)
    >>> network = MixtureRegressor(n_components=1, hidden=(8,), learning_rate=0.1, patience=2, random_state=0)
    >>> model = CalibratedRegressorCV(network, Marginal(), cv=3).fit(table.x, table.y)
    >>> model.predict(table.x[:5]).shape, model.n_models_
    ((5, 2), 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        preranks: PreRank | Sequence[PreRank] | None = None,
        *,
        cv: Any = 10,
        ensemble: bool | Literal["auto"] = "auto",
        max_held_out: int | None = 2048,
        recalibrator: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.preranks = preranks
        self.cv = cv
        self.ensemble = ensemble
        self.max_held_out = max_held_out
        self.recalibrator = recalibrator
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit models and their correction.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Goes to the estimator and to the recalibrator; rows of weight zero have no influence.
        groups : array_like, shape (n_rows,), optional
            Kept together: by the folds, and in the standard errors of the recalibrator.

        Returns
        -------
        CalibratedRegressorCV
            The fitted estimator itself.
        """
        require_targets(self, y)
        X = table_of(self, X, reset=True)
        self._require_parts()
        targets = targets_of(self, y, X)
        data = _rows(X, without_mask(y), sample_weight, groups)
        seed = self._seed()
        plan = self._plan(data, seed)
        estimator = MixtureRegressor() if self.estimator is None else self.estimator
        models = fitted_models(estimator, data.x, data.y, data.weights, plan.jobs, seed)
        learnt_from = self._at_most(plan.outside, seed)
        outside = side_by_side(
            [_mixture([models[j] for j in part.jobs], _safe_indexing(data.x, part.rows)) for part in learnt_from]
        )
        observed = [
            np.asarray(as_forecast(models[part.jobs[0]], _safe_indexing(data.y, part.rows))) for part in learnt_from
        ]
        rows = np.concatenate([part.rows for part in learnt_from])
        self.recalibrator_ = self._learnt(outside, np.concatenate(observed), rows, data, seed)
        self.models_ = [models[j] for j in plan.final]
        self.n_models_ = len(models)
        self._one_axis, self.n_targets_ = targets.one_axis, targets.values.shape[1]
        self.target_names_ = list(data.y.columns) if isinstance(data.y, pd.DataFrame) else None
        return self

    def predict_distribution(self, X: Any) -> Forecast:
        """The corrected joint forecast; a row's does not depend on the rows beside it.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        Ensemble or Distribution
            Batch shape (n_rows,), event shape (n_targets,).
        """
        check_is_fitted(self)
        X = table_of(self, X, reset=False)
        forecast = _mixture(self.models_, X)
        if self.recalibrator_ is None:
            return forecast
        corrected = self.recalibrator_.transform(forecast)
        # draws of a tilt are keyed by what is in a row, and not by where it stands
        return corrected.named(_identifiers(X)) if isinstance(corrected, Tilted) else corrected

    def predict(self, X: Any) -> Any:
        """Mean of the forecast.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray or DataFrame, shape (n_rows, n_targets), or (n_rows,) if y had one axis
            A frame if y was one.
        """
        forecast = self.predict_distribution(X)
        mean = forecast.mean.cpu().numpy()
        if cells_of(self, forecast) is not None:
            mean = drawn_values(self, forecast, _FOR_THE_MEAN, 0, _identifiers(X)).mean(1)
        if self.target_names_ is not None:
            return pd.DataFrame(mean, index=getattr(X, "index", None), columns=self.target_names_)
        return mean[:, 0] if self._one_axis else mean

    def sample(self, X: Any, n_draws: int = 100, seed: int = 0) -> np.ndarray:
        """Equally weighted draws of the corrected forecast; a row's depend on it, its position and the seed.

        Discrete targets are drawn on their own support, where the estimator spreads them over cells.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        n_draws : int, default 100
            Members per row.
        seed : int, default 0
            Seed of the draws.

        Returns
        -------
        ndarray, shape (n_rows, n_draws, n_targets)
            Members, in the units of y.
        """
        forecast = self.predict_distribution(X)
        n_draws = require_whole(n_draws, "n_draws")
        if isinstance(forecast, Ensemble):
            raise TypeError("an ensemble that is not dressed has no draws but its members; see predict_distribution")
        return drawn_values(self, forecast, n_draws, seed, torch.arange(forecast.batch_shape[-1]))

    def predict_quantiles(
        self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95), n_draws: int = 1000, seed: int = 0
    ) -> np.ndarray:
        """Quantiles of single targets, as `prerank.regression.predict_quantiles` gives them.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        levels : sequence of float, default (0.05, 0.5, 0.95)
            Probabilities between 0 and 1.
        n_draws : int, default 1000
            Draws to take quantiles of, where the forecast is not a `GaussianMixture`.
        seed : int, default 0
            Of these draws.

        Returns
        -------
        ndarray, shape (n_rows, n_levels, n_targets)
            Quantiles, in the units of y.
        """
        return predict_quantiles(self, X, levels, n_draws, seed)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood, in the units of y: larger is better. It is not the R² of other regressors.

        Where the estimator spreads discrete targets over their cells, it is that of the cells.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The mean.
        """
        return LogLikelihood()(self, X, y, sample_weight)

    def dequantised(self, y: Any, seed: int = 0) -> Any:
        """Targets as they are forecast: discrete ones spread over their cells, where the estimator does so.

        Parameters
        ----------
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        seed : int, default 0
            Seed of the spreading.

        Returns
        -------
        array_like, shape (n_rows, n_targets) or (n_rows,)
            Spread targets.
        """
        check_is_fitted(self)
        own = inmost(self.models_[0])
        return own.dequantised(y, seed) if hasattr(own, "dequantised") else y

    def summary(self) -> str:
        """What was fitted and what the correction changes, in words.

        Returns
        -------
        str
            A few lines.
        """
        check_is_fitted(self)
        head = f"{counted(self.n_models_, 'model')} fitted, {len(self.models_)} of them forecast."
        if self.recalibrator_ is None:
            return f"{head} Too few rows to learn a correction from."
        told = getattr(self.recalibrator_, "summary", None)
        return head if told is None else f"{head}\n{told()}"

    def save(self, path: Path | str) -> None:
        """Write what was fitted to one file, safetensors with JSON in its header: networks and a `Recalibrator`.

        `estimator`, `cv` and `recalibrator`, which are for fitting, are not kept.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        about = {name: getattr(self, name) for name in _KEPT}
        write_parts(path, self.models_, self.recalibrator_, {**about, "names": None if names is None else list(names)})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """What `save` wrote: its forecasts are the same to the last bit.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        CalibratedRegressorCV
            The fitted estimator.
        """
        models, recalibrator, about = read_parts(path)
        result = cls()
        result.models_, result.recalibrator_ = models, recalibrator
        for name in _KEPT:
            setattr(result, name, about[name])
        if about["names"] is not None:
            result.feature_names_in_ = np.array(about["names"], dtype=object)
        return result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _require_parts(self) -> None:
        """Refuse, before anything is fitted, what can be no estimator or no recalibrator."""
        for part, verbs, say in (
            (self.estimator, ("fit", "get_params"), "an estimator such as MixtureRegressor()"),
            (self.recalibrator, ("fit", "transform"), "a Recalibrator, or what has its fit(forecast, y) and transform"),
        ):
            if part is not None and (isinstance(part, type) or not all(hasattr(part, verb) for verb in verbs)):
                name = "estimator" if part is self.estimator else "recalibrator"
                raise TypeError(f"{name} is {described(part)}; pass {say}, or leave it out")

    def _seed(self) -> int:
        source = self.random_state
        if source is None:
            source = getattr(self.estimator, "random_state", None)
        if isinstance(source, Integral):
            return int(source)
        return int(check_random_state(source).randint(np.iinfo(np.int32).max))

    def _plan(self, data: Data, seed: int) -> Plan:
        if not isinstance(self.ensemble, bool) and not (isinstance(self.ensemble, str) and self.ensemble == "auto"):
            raise ValueError(f'ensemble={self.ensemble!r}: True, False or "auto"')
        n_rows = len(data.y)
        folds = folds_by(self.cv, data.x, data.y, data.groups, seed)
        tested = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=n_rows)
        once = bool((tested == 1).all())
        # a pool is trained on what its folds do not test; rows that a splitter keeps out of both would come back in
        gaps = [n_rows - len(fold.train) - len(fold.test) for fold in folds]
        if self.ensemble is True and (not once or len(folds) < 3):
            raise ValueError(
                f"ensemble=True needs at least three folds that test every row once; cv={self.cv!r} has {len(folds)} and "
                f"leaves {int((tested == 0).sum())} of {n_rows} rows untested: use ensemble=False"
            )
        if self.ensemble is True and any(gaps):
            raise ValueError(
                f"ensemble=True trains on all rows but the held-out ones, and cv={self.cv!r} keeps up to {max(gaps)} of "
                f"{n_rows} rows out of both the training and the test rows of a fold; use ensemble=False"
            )
        pooled = self.ensemble is True or (
            self.ensemble == "auto" and once and not any(gaps) and len(folds) > 2 and n_rows >= _FOR_A_POOL
        )
        return held_out(folds) if pooled else single(folds, n_rows)

    def _at_most(self, outside: Sequence[Outside], seed: int) -> list[Outside]:
        """No more held-out rows than are wanted, chosen by seed."""
        n_rows = sum(len(part.rows) for part in outside)
        if self.max_held_out is None or n_rows <= require_whole(self.max_held_out, "max_held_out"):
            return list(outside)
        kept = np.zeros(n_rows, dtype=bool)
        kept[numpy_generator(seed, "held-out rows").permutation(n_rows)[: self.max_held_out]] = True
        ends = np.cumsum([len(part.rows) for part in outside])[:-1]
        parts = [Outside(part.rows[own], part.jobs) for part, own in zip(outside, np.split(kept, ends), strict=True)]
        return [part for part in parts if len(part.rows)]

    def _learnt(self, forecast: Forecast, y: np.ndarray, rows: Index, data: Data, seed: int) -> Any:
        """The fitted recalibrator, or None where rows, or groups, are too few."""
        blocks = None if data.groups is None else data.groups[rows]
        count = len(rows) if blocks is None else len(np.unique(blocks))
        if count < _FEWEST:
            what = "rows" if blocks is None else "groups"
            warnings.warn(
                f"{count} held-out {what} are too few to learn a correction from, so forecasts are left as they are; "
                f"{_FEWEST} are the fewest",
                UserWarning,
                stacklevel=3,
            )
            return None
        recalibrator = (
            Recalibrator(self.preranks, seed=seed)
            if self.recalibrator is None
            else clone(self.recalibrator, safe=False)
        )
        observed = observed_for(y, forecast)
        more: dict[str, Any] = {"case_weights": None if data.weights is None else data.weights[rows], "blocks": blocks}
        recalibrator.fit(forecast, observed, **{name: value for name, value in more.items() if value is not None})
        return recalibrator


def _rows(X: Any, y: Any, sample_weight: Any, groups: Any) -> Data:
    """Rows of positive weight; frames stay frames."""
    y = y if isinstance(y, pd.DataFrame) else np.asarray(y)
    X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
    labels = None if groups is None else np.asarray(groups)
    weights = weights_of(sample_weight, y)
    if weights is None:
        return Data(X, y, None, labels)
    kept = np.flatnonzero(weights > 0)
    return Data(
        _safe_indexing(X, kept), _safe_indexing(y, kept), weights[kept], None if labels is None else labels[kept]
    )


def _mixture(models: Sequence[Any], X: Any) -> Forecast:
    return equal_mixture([predict_distribution(model, X) for model in models])


def _identifiers(X: Any) -> torch.Tensor:
    """Identifiers (N,) of rows by what is in them: equal rows have equal forecasts, wherever they stand."""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    return torch.from_numpy(pd.util.hash_pandas_object(frame, index=False).to_numpy().view(np.int64).copy())
