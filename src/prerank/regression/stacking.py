"""Features, and beside them what models of single targets say: trees find what a network of few rows does not."""

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _check_feature_names_in, _check_sample_weight, check_is_fitted, validate_data

from prerank.arrays.conversion import described
from prerank.regression.cv_plans import folds_by
from prerank.regression.fold_models import seeded_copy
from prerank.regression.predictions import require_numbers, require_targets, target_values

Array = NDArray[np.float64]


class StackedFeatures(TransformerMixin, BaseEstimator):
    """The features, and for each target one more: what models of other rows predict.

    For the first step of a pipeline that ends with a `MixtureRegressor`: the network starts from a linear combination of the
    predictions, and learns the joint law around it. `estimator` is any regressor of a single target, by default
    `HistGradientBoostingRegressor()`; one is fitted for each target and fold of `cv`, a number of folds or a splitter of
    scikit-learn's.

    Training rows get the prediction of models that have not seen them: those of the other folds, and for rows that no fold
    tests models of all rows that one does. Rows that come later get the mean prediction of the models of all folds: as with
    scikit-learn's `TargetEncoder`, `fit_transform(X, y)` is not `fit(X, y).transform(X)`.

    Fitted: `models_` (for each fold one of each target), `n_features_in_`, `feature_names_in_`, `n_targets_`.

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
        """Fit the models of all folds on features X (N, L) and targets y (N, D) or (N,)."""
        self.fit_transform(X, y, sample_weight, groups)
        return self

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Array:
        """Fit, and X (N, L + D) with predictions of models that have not seen the row.

        Rows of a group, as `groups` (N,) label them, are in one fold. `sample_weight` (N,) goes to the models.
        """
        if self.estimator is not None and not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict")):
            raise TypeError(
                f"estimator is {described(self.estimator)}; pass a regressor such as Ridge(), or leave it out"
            )
        require_numbers(X, "X")
        features = validate_data(self, X, ensure_all_finite="allow-nan", ensure_min_samples=2, dtype=np.float64)
        require_targets(self, y)
        targets = target_values(y)
        targets = targets[:, None] if targets.ndim == 1 else targets
        if targets.ndim != 2 or len(targets) != len(features) or not targets.shape[1]:
            raise ValueError(
                f"y has shape {np.shape(y)}, and X has {len(features)} rows; y is (rows,) or (rows, targets)"
            )
        if not np.isfinite(targets).all():
            raise ValueError(
                f"{int((~np.isfinite(targets)).any(1).sum())} rows of y have NaN or infinity; drop them first"
            )
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
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
        """X (N, L + D) with the mean prediction of the models of all folds, for rows that were not fitted on."""
        check_is_fitted(self, "models_")
        features = validate_data(self, X, reset=False, ensure_all_finite="allow-nan", dtype=np.float64)
        return np.hstack([features, self._mean(features)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the features, then `prediction1`, `prediction2`, ..."""
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
