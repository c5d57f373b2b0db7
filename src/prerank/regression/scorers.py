"""Scorers of joint forecasts for `GridSearchCV` and `cross_val_score`, and the paper's rule for choosing between models.

A scorer is called with (estimator, X, y) and larger is better. Pipelines and searches are seen through.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank._parameters import require_real, require_whole
from prerank.calibration import pce, projected_pit
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.preranks import PreRank
from prerank.regression.predictions import as_forecast, cells_of, predict_distribution
from prerank.regression.rows import observed_for, weights_of
from prerank.scores import energy_score, nll
from prerank.training import choose_strength


@dataclass(frozen=True)
class LogLikelihood:
    """Mean log-likelihood, in the units of y; a scorer for `cross_val_score` and searches.

    Where an estimator spreads discrete targets over their cells, it is that of the cells, as `MixtureRegressor.score`
    has it.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from prerank.datasets import Bimodal
    >>> from prerank.regression.regressor import MixtureRegressor
    >>> table = Bimodal().table(200)
    >>> network = MixtureRegressor(n_components=1, hidden=(8,), learning_rate=0.1, patience=2, random_state=0)
    >>> cross_val_score(network, table.x, table.y, cv=2, scoring=LogLikelihood()).shape
    (2,)
    """

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator: larger is better.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict_distribution`, or a pipeline or search around one.
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The score.
        """
        forecast, observed, weights = _judged(estimator, X, y, sample_weight)
        cells = cells_of(estimator, forecast)
        if cells is None:
            return _mean(-nll(observed, forecast), weights)  # type: ignore[arg-type]
        return _mean(cells.log_likelihood(observed_for(y, forecast).cpu().numpy(), forecast), weights)


@dataclass(frozen=True)
class NegativeEnergyScore:
    """Minus the mean fair energy score; a scorer for `cross_val_score` and searches.

    Parameters
    ----------
    n_draws : int, default 200
        Equally weighted draws of a distribution.
    scales : tuple of float, optional
        What targets are divided by first, standard deviations of the training rows, say: without them targets in large
        units decide.
    seed : int, default 0
        Seed of the draws.
    """

    n_draws: int = 200
    scales: tuple[float, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_least=2)
        require_whole(self.seed, "seed", at_least=None)
        if self.scales is not None:
            said = f"scales={self.scales!r}: one positive, finite number for each target"
            if isinstance(self.scales, str) or not isinstance(self.scales, Sequence | np.ndarray):
                raise TypeError(said)
            for scale in self.scales:
                if not 0 < require_real(scale, "scales", "one positive, finite number for each target") < np.inf:
                    raise ValueError(said)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator: larger is better.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict_distribution`, or a pipeline or search around one.
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The score.
        """
        forecast, observed, weights = _judged(estimator, X, y, sample_weight)
        drawn = equally_weighted_draws(forecast, self.n_draws, self.seed)
        if self.scales is not None:
            if len(self.scales) != observed.shape[-1]:
                raise ValueError(
                    f"scales={self.scales}: one positive number for each of the {observed.shape[-1]} targets is needed"
                )
            units = observed.new_tensor(self.scales)
            observed, drawn = observed / units, drawn.in_units(units)
        return -_mean(energy_score(observed, drawn), weights)


@dataclass(frozen=True)
class NegativePCE:
    """Minus the PCE, averaged over pre-ranks and their projections; a scorer for `cross_val_score` and searches.

    Even a calibrated forecast of n rows has a PCE near 0.3133 / sqrt(n), so compare on parts of one size.

    Parameters
    ----------
    preranks : PreRank or sequence of PreRank, optional
        The paper's by default.
    n_draws : int, default 200
        Members that are ranked where PITs have no closed form.
    seed : int, default 0
        Seed of the draws.
    """

    preranks: PreRank | Sequence[PreRank] | None = None
    n_draws: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws")
        require_whole(self.seed, "seed", at_least=None)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator: larger is better.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict_distribution`, or a pipeline or search around one.
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The score.
        """
        forecast, observed, weights = _judged(estimator, X, y, sample_weight)
        chosen = list(self.preranks) if isinstance(self.preranks, Sequence) else self.preranks
        if not isinstance(forecast, Ensemble | GaussianMixture):  # drawn once for all pre-ranks
            drawn = equally_weighted_draws(forecast, self.n_draws, self.seed)
            forecast = Ensemble(drawn.members, reference=forecast)
        pit = projected_pit(observed, forecast, chosen, n_draws=self.n_draws, seed=self.seed)
        errors = pce(pit, case_weights=None if weights is None else torch.as_tensor(weights))
        groups = pd.Series(errors.cpu().numpy()).groupby(list(pit.groups)).mean()
        return -float(groups.mean())


@dataclass(frozen=True)
class PaperRule:
    """The candidate with the smallest PCE among those whose energy score is not much worse than the baseline's.

    For `refit` of a search with several scorers: a candidate is admitted if its mean energy score is at most
    (1 + `tolerance`) times that of the baseline.

    Parameters
    ----------
    tolerance : float, default 0.1
        Relative loss of energy score that is accepted.
    energy_score : str, default 'energy_score'
        Name of the energy score among the scorers.
    pce : str, default 'pce'
        Name of the PCE among the scorers.
    baseline : tuple of (str, object), default ('strength', 0)
        Parameter, under any prefix, and value of the baseline; where there is none, it is the candidate with the best
        energy score.

    Examples
    --------
    >>> rule = PaperRule()
    >>> found = {"mean_test_energy_score": np.array([-1.0, -1.05, -1.3]), "mean_test_pce": np.array([-0.05, -0.02, -0.01])}
    >>> rule({**found, "params": [{"strength": 0}, {"strength": 1}, {"strength": 10}]})
    1
    """

    tolerance: float = 0.1
    energy_score: str = "energy_score"
    pce: str = "pce"
    baseline: tuple[str, Any] = ("strength", 0)

    def __call__(self, cv_results: Mapping[str, Any]) -> int:
        """Choose a candidate.

        Parameters
        ----------
        cv_results : dict of str to array_like
            As a search of scikit-learn's keeps them.

        Returns
        -------
        int
            Place of the chosen candidate.

        Raises
        ------
        ValueError
            If a score is missing, or no candidate has finite ones.
        """
        names = [f"mean_test_{name}" for name in (self.energy_score, self.pce)]
        lacking = [name for name in names if name not in cv_results]
        if lacking:
            raise ValueError(
                f"the search has no {lacking[0]!r}; give it scoring={{{self.energy_score!r}: NegativeEnergyScore(), "
                f"{self.pce!r}: NegativePCE()}}"
            )
        score, error = (-np.asarray(cv_results[name], dtype=np.float64) for name in names)
        usable = np.flatnonzero(np.isfinite(score) & np.isfinite(error))
        if not len(usable):
            raise ValueError(f"none of {len(score)} candidates has a finite energy score and PCE")
        name, value = self.baseline
        plain = [i for i in usable if any(_is(item, name, value) for item in cv_results["params"][i].items())]
        first = min(plain or usable, key=lambda i: score[i])
        # the rule is that of a penalty's strength, with the baseline in the place of strength 0
        order = [first, *(i for i in usable if i != first)]
        table = pd.DataFrame(
            {"strength": np.arange(len(order), dtype=float), "seed": 0, "pce": error[order], "score": score[order]}
        )
        return int(order[int(choose_strength(table, tolerance=self.tolerance))])


def _is(item: tuple[str, Any], name: str, value: Any) -> bool:
    parameter, found = item
    return (parameter == name or parameter.endswith(f"__{name}")) and bool(np.all(found == value))


def _judged(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Forecast, Tensor, np.ndarray | None]:
    """The forecast of X, y (N, D) in its place, and weights (N,)."""
    forecast = predict_distribution(estimator, X)
    observed = observed_for(as_forecast(estimator, y), forecast)
    return forecast, observed, weights_of(sample_weight, observed)


def _mean(values: Tensor, weights: np.ndarray | None) -> float:
    return float(np.average(values.cpu().numpy(), weights=weights))
