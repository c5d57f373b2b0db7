"""`MixtureRegressor`: the paper's model and its tuning behind scikit-learn's interface."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from prerank.calibration import PreRank, needs_of
from prerank.data import Standardiser
from prerank.estimator.delegation import by_the_calibrated
from prerank.estimator.persistence import read, write
from prerank.estimator.preparation import Prepared, prepare
from prerank.estimator.units import in_target_units
from prerank.forecast import GaussianMixture
from prerank.saving import decode, encode
from prerank.training import (
    Architecture,
    Bar,
    FitOptions,
    FittedFleet,
    PreRankPenalty,
    Progress,
    Run,
    Silent,
    fit,
    forecast_of,
    listed,
    tune,
)

_ROWS = 1 << 14  # rows forecast at a time where the result is smaller than the forecasts
_Y = {"ensure_2d": False, "dtype": (np.float64, np.float32)}
_X = {"dtype": (np.float64, np.float32)}


class Task(NamedTuple):
    """One model that is to be trained: its rows, penalty, options and seed, and whether y had one axis."""

    prepared: Prepared
    penalty: PreRankPenalty | None
    options: FitOptions
    seed: int
    one_axis: bool


class MixtureRegressor(RegressorMixin, BaseEstimator):
    r"""A network whose forecast is a Gaussian mixture over all targets, trained by NLL plus a pre-rank penalty.

    Without `preranks` it minimises the negative log-likelihood. With one (`preranks=PCA()`) or several
    (`preranks=[Marginal(), HDR()]`) it adds `strength` times their calibration error (Algorithm 1). `strength="auto"`
    trains all `strengths` and 0 at once, as one fleet, and keeps the one that the paper's rule prefers on the validation
    rows: the smallest PCE among those whose energy score is at most (1 + `tolerance`) times that of strength 0.

    Features and targets are standardised inside; forecasts come back in the units of y. `validation_fraction` of the rows
    decide when to stop (the paper's shares are 40 and 10 %, hence 0.2) and which strength to keep. `sample_weight` enters
    the score and the empirical CDF of the PITs; rows of weight zero have no influence. Networks have torch's default
    dtype; forecasts are computed in double precision, so that a row's forecast does not depend on its companions. The
    same integer `random_state` gives the same model. `device` is where to train and forecast: None is the CPU.

    `calibrate=True` corrects forecasts by what rows say that they were not fitted on, by five folds, or as many as it says:
    `calibrated_` is then a `CalibratedRegressorCV`, which answers in the model's place. It costs the training of four
    networks, each on three fifths of the rows, and forecasts that are computed by draws.

    Fitted: `strength_`, `tuning_` (strength, seed, PCE and energy score of every candidate, or None), `seed_`,
    `n_features_in_`, `feature_names_in_`, `n_targets_`, `validation_nll_` (standard units), `best_epoch_`, `n_epochs_`,
    `x_scaler_`, `y_scaler_`, `architecture_`, `weights_`.

    >>> from prerank import Location
    >>> from prerank.data import Bimodal
    >>> table = Bimodal().table(200)
    >>> small = {"n_components": 2, "hidden": (8,), "learning_rate": 0.1, "patience": 2, "random_state": 0}
    >>> model = MixtureRegressor(preranks=Location(), strength=1.0, **small).fit(table.x, table.y)
    >>> model.predict(table.x[:5]).shape
    (5, 2)
    >>> model.predict_distribution(table.x[:5])
    GaussianMixture(5 cases, 2 components, 2 targets)
    >>> model.sample(table.x[:5], n_draws=50).shape
    (5, 50, 2)
    """

    def __init__(
        self,
        preranks: PreRank | Sequence[PreRank] | None = None,
        strength: float | Literal["auto"] = "auto",
        *,
        strengths: Sequence[float] = (0, 0.01, 0.1, 1, 5, 10),
        tolerance: float = 0.1,
        n_components: int = 5,
        hidden: Sequence[int] = (100, 100),
        learning_rate: float = 1e-4,
        batch_size: int = 256,
        max_epochs: int = 5000,
        patience: int = 15,
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
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, validation_rows: Any = None) -> Self:
        """Train on features X (N, L) and targets y (N, D) or (N,), weighted by `sample_weight` (N,).

        `validation_rows` (N,), a mask, says which rows decide when to stop, in place of a share chosen at random: the
        latest of a series, or whole groups.
        """
        if self.calibrate:
            return self._fit_calibrated(X, y, sample_weight, validation_rows)
        task = self._task(X, y, sample_weight, validation_rows)
        return self._keep(task, *self._train(task))

    def _fit_calibrated(self, X: Any, y: Any, sample_weight: Any, validation_rows: Any) -> Self:
        from prerank.estimator.crossfit import CalibratedRegressorCV  # which is built on this class

        if validation_rows is not None:
            raise ValueError("calibrate finds rows to stop by in its folds; leave validation_rows out")
        cv = 5 if self.calibrate is True else self.calibrate
        plain = clone(self).set_params(calibrate=False)
        self.calibrated_ = CalibratedRegressorCV(plain, cv=cv, random_state=self.random_state)
        self.calibrated_.fit(X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_", "n_targets_"):
            if hasattr(self.calibrated_, name):
                setattr(self, name, getattr(self.calibrated_, name))
        return self

    def _task(self, X: Any, y: Any, sample_weight: Any, validation_rows: Any) -> Task:
        """What there is to train: all inputs checked, rows split and standardised."""
        names = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else None
        X, y = validate_data(self, X, y, validate_separately=(_X, _Y))
        check_consistent_length(X, y)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        options = self._options()
        targets = y[:, None] if y.ndim == 1 else y
        penalty = self._penalty(targets.shape[1])
        seed = self._seed()
        prepared = prepare(
            X,
            targets,
            weights,
            self.validation_fraction,
            seed,
            names or [f"y{d + 1}" for d in range(targets.shape[1])],
            self.device,
            None if validation_rows is None else _mask(validation_rows, len(X)),
        )
        return Task(prepared, penalty, options, seed, y.ndim == 1)

    def _keep(self, task: Task, fleet: FittedFleet, place: int, table: pd.DataFrame | None) -> Self:
        """Become the model at a place of a trained fleet; the table is what it was chosen from."""
        self._one_axis = task.one_axis
        self.n_targets_ = task.prepared.data.y.shape[1]
        self.seed_ = task.seed
        self.strength_ = float(fleet.runs[place].strength)
        self.tuning_ = table
        self.x_scaler_, self.y_scaler_ = task.prepared.x_scaler, task.prepared.y_scaler
        self.architecture_ = fleet.architecture
        self.weights_ = tuple(tensor[place : place + 1].cpu() for tensor in fleet.weights)
        self.validation_nll_ = float(fleet.best_score[place])
        self.best_epoch_ = int(fleet.best_epoch[place])
        self.n_epochs_ = fleet.epochs
        self._report(bool(fleet.diverged[place]))
        return self

    @by_the_calibrated
    def predict(self, X: Any) -> np.ndarray:
        """Mean of the forecast, (N, D), or (N,) if y had one axis."""
        X = self._features(X)
        mean = np.empty((len(X), self.n_targets_))
        for rows, law in self._forecasts(X):
            mean[rows] = law.mean.cpu().numpy()
        return mean[:, 0] if self._one_axis else mean

    @by_the_calibrated
    def predict_distribution(self, X: Any) -> GaussianMixture:
        """The forecast itself, batch shape (N,) and event shape (D,), in the units of y and double precision."""
        return self._forecast(self._features(X))

    @by_the_calibrated
    def sample(self, X: Any, n_draws: int = 100, seed: int = 0) -> np.ndarray:
        """Equally weighted draws (N, M, D) of the forecast; a row's depend on its forecast, its position and the seed."""
        X = self._features(X)
        if not isinstance(n_draws, Integral) or n_draws < 1:
            raise ValueError(f"n_draws={n_draws!r}: how many members to draw per row, a whole number of at least 1")
        members = np.empty((len(X), int(n_draws), self.n_targets_))
        for rows, law in self._forecasts(X):
            ids = torch.arange(rows.start, rows.stop)
            members[rows] = law.ensemble(int(n_draws), seed, case_ids=ids).members.cpu().numpy()
        return members

    @by_the_calibrated
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood of y, in its units: larger is better. It is not the R² of other regressors."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, reset=False, validate_separately=(_X, _Y))
        check_consistent_length(X, y)
        targets = torch.from_numpy(np.array(y[:, None] if y.ndim == 1 else y, dtype=np.float64))
        if targets.shape[1] != self.n_targets_:
            raise ValueError(f"y has {targets.shape[1]} targets, but the model was fitted to {self.n_targets_}")
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        likelihood = np.empty(len(X))
        for rows, law in self._forecasts(X):
            likelihood[rows] = law.log_prob(targets[rows].to(law.loc)).cpu().numpy()
        return float(np.average(likelihood, weights=weights))

    def save(self, path: Path | str) -> None:
        """Write the fitted model to one file (safetensors with JSON in its header), atomically.

        A `RandomState` is saved as the seed that was drawn from it. A pre-rank of your own cannot be saved: it is code.
        """
        check_is_fitted(self)
        if self.calibrate:
            raise ValueError("a calibrated model is saved by calibrated_.save, and read by CalibratedRegressorCV.load")
        parameters = self.get_params(deep=False)
        if isinstance(self.random_state, np.random.RandomState):
            parameters["random_state"] = self.seed_
        tensors = {f"weights.{i}": tensor for i, tensor in enumerate(self.weights_)}
        for name in ("x_scaler", "y_scaler"):
            scaler = getattr(self, f"{name}_")
            tensors[f"{name}.mean"] = torch.from_numpy(scaler.mean)
            tensors[f"{name}.scale"] = torch.from_numpy(scaler.scale)
        fitted: dict[str, Any] = {name: getattr(self, name) for name in _FITTED}
        fitted["architecture_"] = asdict(self.architecture_)
        if self.tuning_ is not None:
            fitted["tuning_"] = self.tuning_.to_dict("list")
        if hasattr(self, "feature_names_in_"):
            fitted["feature_names_in_"] = list(self.feature_names_in_)
        write(
            path,
            tensors,
            {"parameters": {name: encode(value, name) for name, value in parameters.items()}, "fitted": fitted},
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The model that `save` wrote; its forecasts are the same to the last bit.

        A model that was trained on another machine's device: `load(path).set_params(device=None)`.
        """
        tensors, about = read(path)
        model = cls(**{name: decode(value) for name, value in about["parameters"].items()})
        fitted = about["fitted"]
        for name in _FITTED:
            setattr(model, name, fitted[name])
        architecture = fitted["architecture_"]
        model.architecture_ = Architecture(**{**architecture, "hidden": tuple(architecture["hidden"])})
        model.tuning_ = pd.DataFrame(fitted["tuning_"]) if "tuning_" in fitted else None
        if "feature_names_in_" in fitted:
            model.feature_names_in_ = np.array(fitted["feature_names_in_"], dtype=object)
        model.x_scaler_, model.y_scaler_ = (
            Standardiser(tensors[f"{name}.mean"].numpy(), tensors[f"{name}.scale"].numpy())
            for name in ("x_scaler", "y_scaler")
        )
        model.weights_ = tuple(tensors[f"weights.{i}"] for i in range(len(tensors) - 4))
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _options(self) -> FitOptions:
        for name in ("n_components", "batch_size", "max_epochs", "patience"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name}={value!r}: a whole number of at least 1 is needed")
        if not all(isinstance(width, Integral) and width >= 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden!r}: the widths of the hidden layers, such as (100, 100)")
        if not isinstance(self.learning_rate, Real) or not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate={self.learning_rate!r}: a positive number is needed")
        if not isinstance(self.validation_fraction, Real) or not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction={self.validation_fraction!r}: a share between 0 and 1 is needed")
        return FitOptions(
            n_components=int(self.n_components),
            hidden=tuple(int(width) for width in self.hidden),
            learning_rate=float(self.learning_rate),
            batch_size=int(self.batch_size),
            max_epochs=int(self.max_epochs),
            patience=int(self.patience),
        )

    def _penalty(self, n_targets: int) -> PreRankPenalty | None:
        """The penalty, refused before any training if it makes no sense for this many targets."""
        auto = isinstance(self.strength, str)
        if auto and self.strength != "auto":
            raise ValueError(f'strength={self.strength!r}: a number of at least 0, or "auto"')
        if not auto and not (isinstance(self.strength, Real) and 0 <= self.strength < np.inf):
            raise ValueError(f'strength={self.strength!r}: a number of at least 0, or "auto"')
        if self.preranks is None:
            if not auto and self.strength != 0:
                raise ValueError(f"strength={self.strength} has nothing to weigh; give preranks, such as PCA()")
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

    def _train(self, task: Task) -> tuple[FittedFleet, int, pd.DataFrame | None]:
        """The trained fleet, the place in it of the model to keep, and the table it was chosen from."""
        data, options, seed = task.prepared.data, task.options, task.seed
        progress: Progress = Bar() if self.verbose else Silent()
        if task.penalty is not None and self.strength == "auto":
            strengths = sorted({0.0, *(float(strength) for strength in self.strengths)})
            tuned = tune(
                task.penalty, data, strengths, (seed,), options, tolerance=float(self.tolerance), progress=progress
            )
            return tuned.fleet, tuned.models()[0], tuned.table
        fleet = fit([self._run(task)], data, options, progress)
        self._refuse_diverged(fleet, 0)
        return fleet, 0, None

    def _run(self, task: Task) -> Run:
        """The one run of a model whose strength is given."""
        return Run(task.seed) if task.penalty is None else Run(task.seed, task.penalty, float(self.strength))

    def _refuse_diverged(self, fleet: FittedFleet, place: int) -> None:
        if not bool(torch.isfinite(fleet.best_score[place])):
            raise ValueError(
                f"training diverged in its first epoch (learning_rate={self.learning_rate:g}); "
                "lower the learning rate, and look for extreme values in X and y"
            )

    def _report(self, diverged: bool) -> None:
        if diverged:
            warnings.warn(
                f"the loss was not finite after epoch {self.best_epoch_}; the weights of that epoch are kept "
                "(a lower learning_rate may help)",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif self.n_epochs_ == self.max_epochs and self.n_epochs_ - 1 - self.best_epoch_ < self.patience:
            warnings.warn(
                f"max_epochs={self.max_epochs} ended the training before patience={self.patience} did (best epoch: "
                f"{self.best_epoch_ + 1}); the validation score was perhaps still falling",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _features(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, **_X)

    def _forecasts(self, X: np.ndarray) -> Iterator[tuple[slice, GaussianMixture]]:
        """Forecasts of some rows at a time, so that memory stays near that of the result."""
        for start in range(0, len(X), _ROWS):
            rows = slice(start, min(start + _ROWS, len(X)))
            yield rows, self._forecast(X[rows])

    def _forecast(self, X: np.ndarray) -> GaussianMixture:
        x = torch.from_numpy(self.x_scaler_.apply(X.astype(np.float64))).to(self.device)
        with torch.no_grad():
            law = forecast_of([tensor.to(x) for tensor in self.weights_], x, self.architecture_)
            law = GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])
            return in_target_units(law, self.y_scaler_)


def _mask(values: Any, n_rows: int) -> np.ndarray:
    """`validation_rows` as a mask (N,)."""
    mask = np.asarray(values)
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ValueError(
            f"validation_rows has shape {mask.shape} and type {mask.dtype}; it is a mask of True and False, ({n_rows},)"
        )
    return mask


_FITTED = (
    "_one_axis",
    "n_features_in_",
    "n_targets_",
    "seed_",
    "strength_",
    "validation_nll_",
    "best_epoch_",
    "n_epochs_",
)
