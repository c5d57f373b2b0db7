"""`MixtureRegressor`: a mixture network and its tuning behind scikit-learn's interface."""

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from prerank._parallel import in_threads, single_threaded
from prerank._parameters import require_whole
from prerank._serialization import refusing_forgery
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, needs_of
from prerank.regression.delegation import by_the_calibrated
from prerank.regression.dequantising import N_DRAWS
from prerank.regression.fitting import Chosen, Task, train, what_to_know, with_tail
from prerank.regression.persistence import read_model, write_model
from prerank.regression.predictions import predict_quantiles
from prerank.regression.preparation import in_target_units, prepare
from prerank.regression.rows import features_of, row_mask, targets_of, weights_of
from prerank.regression.settings import PAPER, fit_options, require_device, require_strengths
from prerank.training import Bar, FitOptions, PreRankPenalty, Silent
from prerank.training.fleet import forecast_of
from prerank.training.penalty import listed

_ROWS = 1 << 14  # rows forecast at a time where the result is smaller than the forecasts
_PARTS = ("logits", "loc", "scale_tril")
_FLOATS = (np.float64, np.float32)


def _numbered(n_targets: int) -> list[str]:
    return [f"y{d + 1}" for d in range(n_targets)]


def _some_rows(n_rows: int, at_once: int) -> list[slice]:
    return [slice(start, min(start + at_once, n_rows)) for start in range(0, n_rows, at_once)]


def _is_cpu(device: torch.device | str | None) -> bool:
    return device is None or torch.device(device).type == "cpu"


class MixtureRegressor(RegressorMixin, BaseEstimator):
    """A network whose forecast is a Gaussian mixture over all targets, trained by NLL plus a pre-rank penalty.

    Without `preranks` it minimises the negative log-likelihood. With one (`preranks=PCA()`) or several
    (`preranks=[Marginal(), HDR()]`) it adds `strength` times their calibration error (Algorithm 1). The defaults were
    chosen on data for likelihood, energy score and time; `MixtureRegressor.paper()` has the paper's settings. Features
    and targets are standardised inside; forecasts come back in the units of y, computed in double precision, so that a
    row's forecast does not depend on its companions. Ctrl-C ends the training and keeps the best network so far, with
    a warning; a second one is a KeyboardInterrupt.

    Parameters
    ----------
    preranks : PreRank or sequence of PreRank, optional
        What the penalty calibrates; no penalty if None.
    strength : float or 'auto', default 'auto'
        The paper's lambda. "auto" trains all `strengths` and 0 at once, as one fleet, and keeps the one that the
        paper's rule prefers on the validation rows: the smallest PCE among those whose energy score is at most (1 +
        `tolerance`) times that of strength 0.
    strengths : sequence of float, default (0, 0.01, 0.1, 1, 5, 10)
        Candidates of `strength="auto"`.
    tolerance : float, default 0.1
        Relative loss of energy score that it accepts.
    n_components : int, optional
        Components of the mixture. None is 5, and with more than 16 targets fewer where there are few rows for each.
    hidden : sequence of int, default (100, 100)
        Width of each hidden layer.
    learning_rate : float, default 5e-3
        Of Adam.
    batch_size : int, default 256
        Rows of a minibatch.
    max_epochs : int, default 5000
        The most epochs.
    patience : int, default 5
        Epochs without an improvement of the validation score that end a round of training.
    n_restarts : int, default 2
        How often a network that has waited `patience` epochs, or diverged, goes on from its best weights at 0.3 times
        the learning rate.
    floor : float, default 1e-3
        The least spread of a component, in standard units.
    anchored : bool, default True
        Whether the network starts at the linear-Gaussian reference and learns what differs from it.
    common_correlations : bool, default True
        Whether the correlations of a component do not vary with the features; its scales do.
    bound_features : bool, default True
        Whether standardised features are held within the range of the training rows; beyond four standard deviations
        they grow like a logarithm. `outside_range` tells which rows had a feature outside.
    dequantise : bool, default True
        Whether counts, rounded and zero-inflated targets are recognised and spread over the cells of their values.
        `predict_distribution` then forecasts the spread targets (`dequantised` spreads observations to compare with),
        while `predict` and `sample` give values of y. Likelihoods are those of cells; `likelihood_` says of which
        targets.
    fall_back : bool, default True
        Whether the linear-Gaussian reference makes the forecasts, with a warning, where the network's validation NLL
        is not below that of the reference.
    tail_weight : float, default 1e-3
        Weight of one component more, three times as wide as the reference, which bounds what a single surprising row
        can cost.
    validation_fraction : float, default 0.2
        Share of the rows that decide when to stop and which strength to keep.
    calibrate : bool or int, default False
        Whether to recalibrate forecasts on out-of-fold predictions, by ten folds, or as many as it says: `calibrated_`
        is then a `CalibratedRegressorCV`, which answers in the model's place. It costs the training of four networks,
        each on seven tenths of the rows, and forecasts that are computed by draws.
    random_state : int, RandomState or None, default None
        The same integer gives the same model.
    device : torch.device or str, optional
        Where to train and forecast: None is the CPU.
    verbose : bool, default False
        Whether a bar shows the progress.

    Attributes
    ----------
    strength_ : float
        The strength of the network.
    tuning_ : pandas.DataFrame or None
        Strength, seed, PCE and energy score of every candidate.
    seed_ : int
        The seed that was used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X was a frame.
    n_targets_ : int
        Number of targets.
    target_names_ : list of str or None
        Names of the targets, if y had names.
    validation_nll_ : float
        Validation NLL of the network, in standard units.
    reference_nll_ : float
        That of the linear-Gaussian reference.
    uses_reference_ : bool
        Whether the reference makes the forecasts.
    likelihood_ : str
        Of what likelihoods are: a density, or cells of which targets.
    best_epoch_ : int
        The epoch whose weights were kept.
    n_epochs_ : int
        Epochs that were trained.
    x_scaler_ : Standardiser
        Of the features.
    y_scaler_ : Standardiser
        Of the targets.
    feature_range_ : FeatureRange
        Range of the training rows.
    dequantiser_ : Dequantiser
        Which targets are discrete, and their cells.
    reference_ : LinearGaussian
        The reference.
    architecture_ : Architecture
        Sizes of the network.
    weights_ : tuple of Tensor
        Weights of the network.

    See Also
    --------
    CalibratedRegressorCV : recalibrates any forecasting estimator
    PreRankPenalty : the penalty in a loop of your own

    Examples
    --------
    >>> from prerank import Location
    >>> from prerank.datasets import Bimodal
    >>> table = Bimodal().table(200)
    >>> small = {"n_components": 2, "hidden": (8,), "learning_rate": 0.1, "patience": 2, "random_state": 0}
    >>> model = MixtureRegressor(preranks=Location(), strength=1.0, **small).fit(table.x, table.y)
    >>> model.predict(table.x[:5]).shape
    (5, 2)
    >>> model.predict_distribution(table.x[:5])
    GaussianMixture(5 cases, 3 components, 2 targets)
    >>> model.sample(table.x[:5], n_draws=50).shape
    (5, 50, 2)
    >>> model.outside_range([[0.5, 0.5], [9.0, 0.5]])
    array([False,  True])
    """

    def __init__(
        self,
        preranks: PreRank | Sequence[PreRank] | None = None,
        strength: float | Literal["auto"] = "auto",
        *,
        strengths: Sequence[float] = (0, 0.01, 0.1, 1, 5, 10),
        tolerance: float = 0.1,
        n_components: int | None = None,
        hidden: Sequence[int] = (100, 100),
        learning_rate: float = 5e-3,
        batch_size: int = 256,
        max_epochs: int = 5000,
        patience: int = 5,
        n_restarts: int = 2,
        floor: float = 1e-3,
        anchored: bool = True,
        common_correlations: bool = True,
        bound_features: bool = True,
        dequantise: bool = True,
        fall_back: bool = True,
        tail_weight: float = 1e-3,
        validation_fraction: float = 0.2,
        calibrate: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
        device: torch.device | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.preranks = preranks
        self.strength = strength
        self.strengths = strengths
        self.tolerance = tolerance
        self.n_components = n_components
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.n_restarts = n_restarts
        self.floor = floor
        self.anchored = anchored
        self.common_correlations = common_correlations
        self.bound_features = bound_features
        self.dequantise = dequantise
        self.fall_back = fall_back
        self.tail_weight = tail_weight
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @classmethod
    def paper(
        cls,
        preranks: PreRank | Sequence[PreRank] | None = None,
        strength: float | Literal["auto"] = "auto",
        **parameters: Any,
    ) -> Self:
        """A regressor with the paper's settings, and whatever else it is given.

        Parameters
        ----------
        preranks : PreRank or sequence of PreRank, optional
            What the penalty calibrates; no penalty if None.
        strength : float or 'auto', default 'auto'
            The paper's lambda.
        **parameters : object
            Other parameters of the regressor, in place of the paper's.

        Returns
        -------
        MixtureRegressor
            An unfitted regressor.

        Examples
        --------
        >>> MixtureRegressor.paper(patience=3)
        ... # doctest: +ELLIPSIS
        MixtureRegressor(anchored=False, ...)
        """
        return cls(preranks, strength, **{**PAPER, **parameters})

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, validation_rows: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights in the score and in the empirical CDF of the PITs; rows of weight zero have no influence.
        validation_rows : array_like of bool, shape (n_rows,), optional
            Which rows decide when to stop, in place of a share chosen at random: the latest of a series, or whole
            groups.

        Returns
        -------
        MixtureRegressor
            The fitted estimator itself.
        """
        if self.calibrate:
            return self._fit_calibrated(X, y, sample_weight, validation_rows)
        task = self._task(X, y, sample_weight, validation_rows)
        return self._keep(task, train(task, Bar() if self.verbose else Silent()))

    def _fit_calibrated(self, X: Any, y: Any, sample_weight: Any, validation_rows: Any) -> Self:
        from prerank.regression.calibrated import CalibratedRegressorCV  # which is built on this class

        if validation_rows is not None:
            raise ValueError("calibrate finds rows to stop by in its folds; leave validation_rows out")
        cv = 10 if self.calibrate is True else self.calibrate
        plain = clone(self).set_params(calibrate=False)
        self.calibrated_ = CalibratedRegressorCV(plain, cv=cv, random_state=self.random_state)
        self.calibrated_.fit(X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_", "n_targets_"):
            if hasattr(self.calibrated_, name):
                setattr(self, name, getattr(self.calibrated_, name))
        return self

    def _task(self, X: Any, y: Any, sample_weight: Any, validation_rows: Any) -> Task:
        """What there is to train: all inputs checked, rows split and standardised."""
        X = features_of(self, X, reset=True, dtype=_FLOATS)
        targets, names, one_axis = targets_of(self, y, X)
        weights = weights_of(sample_weight, X)
        options = self._options(*targets.shape)
        penalty = self._penalty(targets.shape[1])
        seed = self._seed()
        prepared = prepare(
            X,
            targets,
            weights,
            self.validation_fraction,
            seed,
            names or _numbered(targets.shape[1]),
            self.device,
            None if validation_rows is None else row_mask(validation_rows, len(X)),
            bound_features=self.bound_features,
            dequantise=self.dequantise,
        )
        auto = penalty is not None and self.strength == "auto"
        strengths = sorted({0.0, *map(float, self.strengths)}) if auto else [0.0 if penalty is None else self.strength]
        tolerance = float(self.tolerance) if auto else None
        return Task(prepared, penalty, options, seed, [float(one) for one in strengths], tolerance, one_axis, names)

    def _keep(self, task: Task, chosen: Chosen) -> Self:
        """Become the model that was chosen."""
        prepared, fleet, place = task.prepared, chosen.fleet, chosen.place
        self._one_axis, self.target_names_, self.seed_ = task.one_axis, task.names, task.seed
        self.n_targets_ = prepared.data.y.shape[1]
        self.x_scaler_, self.y_scaler_ = prepared.x_scaler, prepared.y_scaler
        self.feature_range_, self.dequantiser_ = prepared.features, prepared.dequantiser
        self.likelihood_ = prepared.dequantiser.likelihood(task.names or _numbered(self.n_targets_))
        self.strength_ = float(fleet.runs[place].strength)
        self.tuning_ = chosen.table
        self.architecture_ = fleet.architecture
        self.weights_ = tuple(tensor[place : place + 1].cpu() for tensor in fleet.weights)
        self.validation_nll_ = chosen.validation_nll
        self.reference_, self.reference_nll_ = chosen.reference, chosen.reference_nll
        self.uses_reference_ = bool(self.fall_back and chosen.loses)
        self.best_epoch_ = int(fleet.best_epoch[place])
        self.n_epochs_ = fleet.epochs
        for text in what_to_know(chosen, task.options, self.uses_reference_):
            warnings.warn(text, ConvergenceWarning, stacklevel=3)
        return self

    @by_the_calibrated
    @single_threaded()
    def predict(self, X: Any) -> np.ndarray | pd.DataFrame | pd.Series:
        """Mean of the forecast.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray, DataFrame or Series, shape (n_rows, n_targets), or (n_rows,) if y had one axis
            Pandas if X is a frame and y had names.
        """
        index = X.index if isinstance(X, pd.DataFrame) else None
        X = self._features(X)
        mean = np.empty((len(X), self.n_targets_))

        def write(rows: slice, law: GaussianMixture) -> None:
            mean[rows] = self.dequantiser_.mean(law)

        self._each_forecast(write, X)
        if index is None or self.target_names_ is None:
            return mean[:, 0] if self._one_axis else mean
        if self._one_axis:
            return pd.Series(mean[:, 0], index, name=self.target_names_[0])
        return pd.DataFrame(mean, index, self.target_names_)

    @by_the_calibrated
    @single_threaded()
    def predict_distribution(self, X: Any) -> GaussianMixture:
        """The joint forecast, in the units of y and double precision.

        Discrete targets are forecast as `dequantised` spreads them.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        GaussianMixture
            Batch shape (n_rows,), event shape (n_targets,).
        """
        X = self._features(X)
        laws = in_threads(lambda rows: self._forecast(X[rows]), _some_rows(len(X), _ROWS), spread=_is_cpu(self.device))
        if len(laws) == 1:
            return laws[0]
        logits, loc, tril = (torch.cat([getattr(law, part) for law in laws]) for part in _PARTS)
        return GaussianMixture(logits, loc, tril)

    @by_the_calibrated
    @single_threaded()
    def sample(self, X: Any, n_draws: int = 100, seed: int = 0) -> np.ndarray:
        """Equally weighted draws of the forecast; a row's depend on its forecast, its position and the seed.

        Discrete targets are drawn on their own support: counts are whole.

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
        X = self._features(X)
        require_whole(seed, "seed", at_least=None)
        if not isinstance(n_draws, Integral) or isinstance(n_draws, bool) or n_draws < 1:
            raise ValueError(f"n_draws={n_draws!r}: how many members to draw per row, a whole number of at least 1")
        members = np.empty((len(X), int(n_draws), self.n_targets_))

        def write(rows: slice, law: GaussianMixture) -> None:
            ids = torch.arange(rows.start, rows.stop)
            drawn = law.ensemble(int(n_draws), seed, case_ids=ids).members.cpu().numpy()
            members[rows] = self.dequantiser_.snapped(drawn)

        self._each_forecast(write, X)
        return members

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

    def outside_range(self, X: Any) -> np.ndarray:
        """Which rows have a feature outside the range of the training rows: their forecasts extrapolate.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray of bool, shape (n_rows,)
            True where a feature is outside.
        """
        X = self._features(X)
        if self.feature_range_ is None:
            raise ValueError("the model was saved by a release that kept no range of features; fit it anew")
        return self.feature_range_.outside(self._standardised(X))

    @by_the_calibrated
    @single_threaded()
    def dequantised(self, y: Any, seed: int = 0) -> np.ndarray:
        """Discrete targets spread over the middle of their cells, as `predict_distribution` forecasts them.

        What is spread depends on the seed and the row's position. Continuous targets stay as they are.

        Parameters
        ----------
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        seed : int, default 0
            Seed of the spreading.

        Returns
        -------
        ndarray, shape (n_rows, n_targets) or (n_rows,)
            Spread targets.
        """
        check_is_fitted(self)
        targets = self._targets(np.asarray(y, dtype=np.float64))
        spread = self.dequantiser_.dequantised(targets, seed)
        return spread[:, 0] if np.ndim(y) == 1 else spread

    @by_the_calibrated
    @single_threaded()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood, in the units of y: larger is better. It is not the R² of other regressors.

        For discrete targets it is that of their cells (`likelihood_`), a probability where all targets are discrete.

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
        check_is_fitted(self)
        X = self._features(X)
        targets = self._targets(targets_of(self, y, X).values.astype(np.float64))
        weights = weights_of(sample_weight, X)
        likelihood = np.empty(len(X))

        def write(rows: slice, law: GaussianMixture) -> None:
            likelihood[rows] = self.dequantiser_.log_likelihood(targets[rows], law, rows.start).cpu().numpy()

        self._each_forecast(write, X, N_DRAWS if self.dequantiser_.has_atoms else 1)
        return float(np.average(likelihood, weights=weights))

    def save(self, path: Path | str) -> None:
        """Write the fitted model to one file (safetensors with JSON in its header), atomically.

        A `RandomState` is saved as the seed that was drawn from it. A pre-rank of your own cannot be saved: it is
        code.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        check_is_fitted(self)
        if self.calibrate:
            raise ValueError("a calibrated model is saved by calibrated_.save, and read by CalibratedRegressorCV.load")
        parameters = self.get_params(deep=False)
        if isinstance(self.random_state, np.random.RandomState):
            parameters["random_state"] = self.seed_
        write_model(path, parameters, vars(self))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The model that `save` wrote; its forecasts are the same to the last bit.

        A model that was trained on another machine's device: `load(path).set_params(device=None)`.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        MixtureRegressor
            The fitted estimator.
        """
        parameters, fitted = read_model(path)
        with refusing_forgery(path, "MixtureRegressor"):
            model = cls(**parameters)
        for name, value in fitted.items():
            setattr(model, name, value)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _options(self, n_rows: int, n_targets: int) -> FitOptions:
        settings = self.get_params(deep=False)
        require_strengths(settings)
        require_device(self.device)
        return fit_options(settings, n_rows, n_targets)

    def _penalty(self, n_targets: int) -> PreRankPenalty | None:
        """The penalty, refused before any training if it makes no sense for this many targets."""
        if self.preranks is None:
            return None
        preranks = listed(self.preranks)
        for item in preranks:
            needs_of(item, n_targets)
        return PreRankPenalty(preranks)

    def _seed(self) -> int:
        source = check_random_state(self.random_state)
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(source.randint(np.iinfo(np.int32).max))

    def _features(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return features_of(self, X, reset=False, dtype=_FLOATS)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """y (N, D), refused if D is another than the model was fitted to."""
        targets = y[:, None] if y.ndim == 1 else y
        if targets.shape[1] != self.n_targets_:
            raise ValueError(f"y has {targets.shape[1]} targets, but the model was fitted to {self.n_targets_}")
        return targets

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return self.x_scaler_.apply(X.astype(np.float64))

    def _each_forecast(self, write: Callable[[slice, GaussianMixture], None], X: np.ndarray, points: int = 1) -> None:
        """`write(rows, forecast)` of some rows at a time, fewer where many points of each are needed.

        Memory stays near the result's.
        """
        some = _some_rows(len(X), max(1, _ROWS // max(1, points, self.n_targets_**2 // 64)))
        in_threads(lambda rows: write(rows, self._forecast(X[rows])), some, spread=_is_cpu(self.device))

    def _forecast(self, X: np.ndarray) -> GaussianMixture:
        standard = self._standardised(X)
        if self.bound_features:
            standard = self.feature_range_.bounded(standard)
        x = torch.from_numpy(standard).to(self.device)
        with torch.no_grad():
            if self.uses_reference_:
                law = self.reference_.forecast(x)
            else:
                laws = forecast_of([tensor.to(x) for tensor in self.weights_], x, self.architecture_)
                law = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0])
            if self.tail_weight > 0:
                law = with_tail(law, self.reference_.forecast(x), self.tail_weight)
            return in_target_units(law, self.y_scaler_)
