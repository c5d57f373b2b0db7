"""Features, and beside them out-of-fold predictions of other regressors: trees find what a network of few rows does not."""

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from prerank.arrays.conversion import described
from prerank.regression.cv_plans import folds_by
from prerank.regression.fold_models import seeded_copy
from prerank.regression.rows import features_of, targets_of, weights_of

Array = NDArray[np.float64]
_FEATURES: dict[str, Any] = {"ensure_all_finite": "allow-nan", "dtype": np.float64}


class StackedFeatures(TransformerMixin, BaseEstimator):
    """The features, and for each target one more: the out-of-fold prediction of another regressor.

    For the first step of a pipeline that ends with a `MixtureRegressor`: the network starts from a linear combination
    of the predictions, and learns the joint distribution around it. Training rows get the prediction of models that
    have not seen them: those of the other folds, and for rows that no fold tests models of all rows that one does.
    Rows that come later get the mean prediction of the models of all folds: as with scikit-learn's `TargetEncoder`,
    `fit_transform(X, y)` is not `fit(X, y).transform(X)`.

    Parameters
    ----------
    estimator : estimator, optional
        Any regressor of a single target; `HistGradientBoostingRegressor()` by default. One is fitted for each target
        and fold.
    cv : int or splitter, default 5
        Number of folds, or a splitter of scikit-learn's.
    random_state : int, RandomState or None, default None
        Seeds folds and models.

    Attributes
    ----------
    models_ : list of list of estimators
        For each fold one of each target.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X was a frame.
    n_targets_ : int
        Number of targets.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from prerank.datasets import Bimodal
    >>> from prerank.regression.predictions import predict_distribution
    >>> from prerank.regression.regressor import MixtureRegressor
    >>> table = Bimodal().table(200)
    >>> network = MixtureRegressor(n_components=2, hidden=(8,), learning_rate=0.1, patience=2, random_state=0)
    >>> model = make_pipeline(StackedFeatures(random_state=0), network).fit(table.x, table.y)
    >>> predict_distribution(model, table.x[:5]).batch_shape, model[:-1].transform(table.x[:5]).shape[1] - table.x.shape[1]
    (torch.Size([5]), 2)
    """

    def __init__(
        self, estimator: Any = None, *, cv: Any = 5, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the models of all folds.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Goes to the models.
        groups : array_like, shape (n_rows,), optional
            Rows of a group are in one fold.

        Returns
        -------
        StackedFeatures
            The fitted transformer itself.
        """
        self.fit_transform(X, y, sample_weight, groups)
        return self

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Array:
        """Fit, and give the features with predictions of models that have not seen the row.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Goes to the models.
        groups : array_like, shape (n_rows,), optional
            Rows of a group are in one fold.

        Returns
        -------
        ndarray, shape (n_rows, n_features + n_targets)
            Features, then predictions.
        """
        if self.estimator is not None and not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict")):
            raise TypeError(
                f"estimator is {described(self.estimator)}; pass a regressor such as Ridge(), or leave it out"
            )
        features = features_of(self, X, reset=True, ensure_min_samples=2, **_FEATURES)
        targets = targets_of(self, y, features).values.astype(np.float64)
        weights = weights_of(sample_weight, features)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        predicted, self.models_ = np.full(targets.shape, np.nan), []
        cv = min(self.cv, len(features)) if isinstance(self.cv, Integral) else self.cv
        tested = np.zeros(len(features), dtype=bool)
        for fold, (train, test) in enumerate(folds_by(cv, features, targets, groups, seed)):
            tested[test] = True
            models = [
                self._fitted(
                    seed + 1000 * fold + d, features[train], column, None if weights is None else weights[train]
                )
                for d, column in enumerate(targets[train].T)
            ]
            predicted[test] = _predicted(models, features[test])
            self.models_.append(models)
        self.n_targets_ = targets.shape[1]
        untested = ~tested
        if untested.any():  # the first rows of a series, say, which all models of the folds have seen
            rest = None if weights is None else weights[~untested]
            others = [
                self._fitted(seed + 1000 * len(self.models_) + d, features[~untested], column, rest)
                for d, column in enumerate(targets[~untested].T)
            ]
            predicted[untested] = _predicted(others, features[untested])
        return np.hstack([features, predicted])

    def transform(self, X: Any) -> Array:
        """The features with the mean prediction of the models of all folds, for rows that were not fitted on.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray, shape (n_rows, n_features + n_targets)
            Features, then predictions.
        """
        check_is_fitted(self, "models_")
        features = features_of(self, X, reset=False, **_FEATURES)
        return np.hstack([features, self._mean(features)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the features, then `prediction1`, `prediction2`, ...

        Parameters
        ----------
        input_features : array_like of str, optional
            Names of the features; those seen in `fit` by default.

        Returns
        -------
        ndarray of str, shape (n_features + n_targets,)
            The names.
        """
        check_is_fitted(self, "models_")
        names = _check_feature_names_in(self, input_features)
        return np.concatenate([names, [f"prediction{d + 1}" for d in range(self.n_targets_)]]).astype(object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.estimator is None or get_tags(self.estimator).input_tags.allow_nan
        return tags

    def _fitted(self, seed: int, features: Array, target: Array, weights: Array | None) -> Any:
        plain = HistGradientBoostingRegressor() if self.estimator is None else self.estimator
        model = seeded_copy(plain, seed & 0x7FFFFFFF)
        return model.fit(features, target) if weights is None else model.fit(features, target, sample_weight=weights)

    def _mean(self, features: Array) -> Array:
        return np.mean([_predicted(models, features) for models in self.models_], 0)


def _predicted(models: list[Any], features: Array) -> Array:
    return np.column_stack([np.asarray(model.predict(features), dtype=np.float64).reshape(-1) for model in models])
