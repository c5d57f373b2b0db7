"""Other models that give joint forecasts, behind the interface of the estimators: to be compared with, not to be used."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from prerank import Ensemble, GaussianMixture
from prerank.randomness import numpy_generator


class LinearGaussian(RegressorMixin, BaseEstimator):
    """Ridge regression with the strength by leave-one-out, and a shrunk covariance of residuals (Ledoit and Wolf 2004)."""

    def fit(self, X: Any, y: Any) -> Self:
        self.scaler_ = StandardScaler().fit(X)
        features = self.scaler_.transform(X)
        self.mean_ = RidgeCV(np.logspace(-2, 4, 13)).fit(features, y)
        residuals = np.asarray(y) - self.mean_.predict(features).reshape(np.shape(y))
        covariance = LedoitWolf().fit(residuals).covariance_
        self.factor_ = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
        return self

    def predict_distribution(self, X: Any) -> GaussianMixture:
        loc = torch.from_numpy(self.mean_.predict(self.scaler_.transform(X)))[:, None]
        factor = torch.from_numpy(self.factor_).expand(len(loc), 1, -1, -1)
        return GaussianMixture(torch.zeros(len(loc), 1), loc, factor)


class BoostedQuantiles(RegressorMixin, BaseEstimator):
    """Boosted quantiles of every target, tied together by the Gaussian copula of held-out normal scores.

    Trees see `1 - share` of the rows; the copula is that of the others. Quantiles are sorted, linear between levels and
    go on beyond the outermost ones with the slope of a normal law.
    """

    def __init__(
        self, n_levels: int = 9, share: float = 0.2, max_rows: int = 20_000, n_draws: int = 200, seed: int = 0
    ):
        self.n_levels = n_levels
        self.share = share
        self.max_rows = max_rows
        self.n_draws = n_draws
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        order = numpy_generator(self.seed, "boosted").permutation(len(X))[: self.max_rows]
        copula, trees = np.split(order, [max(2, int(self.share * len(order)))])
        self.levels_ = (np.arange(self.n_levels) + 0.5) / self.n_levels
        self.models_ = [
            [
                HistGradientBoostingRegressor(
                    loss="quantile", quantile=level, early_stopping=True, random_state=self.seed
                ).fit(X[trees], y[trees, d])
                for level in self.levels_
            ]
            for d in range(y.shape[1])
        ]
        scores = self._scores(self._quantiles(X[copula]), y[copula])
        correlation = LedoitWolf().fit(scores).covariance_
        spread = np.sqrt(np.diag(correlation))
        self.factor_ = np.linalg.cholesky(correlation / np.outer(spread, spread))
        return self

    def _quantiles(self, X: np.ndarray) -> np.ndarray:
        """Sorted quantiles (N, D, J)."""
        each = [np.stack([model.predict(X) for model in models], -1) for models in self.models_]
        return np.sort(np.stack(each, 1), -1)

    def _normal(self) -> np.ndarray:
        return torch.special.ndtri(torch.from_numpy(self.levels_)).numpy()

    def _scores(self, quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Normal scores (N, D) of observations."""
        known = self._normal()
        found = np.empty_like(y, dtype=float)
        for d in range(y.shape[1]):
            for i in range(len(y)):
                ends = quantiles[i, d] + 1e-9 * np.arange(self.n_levels)
                slope = max((ends[-1] - ends[0]) / (known[-1] - known[0]), 1e-9)
                inside = np.clip(y[i, d], ends[0], ends[-1])
                found[i, d] = np.interp(inside, ends, known) + (y[i, d] - inside) / slope
        return np.clip(found, -5, 5)

    def predict_distribution(self, X: Any) -> Ensemble:
        quantiles, known = self._quantiles(np.asarray(X)), self._normal()
        n_cases, n_targets, _ = quantiles.shape
        noise = numpy_generator(self.seed, "draws").standard_normal((n_cases, self.n_draws, n_targets)) @ self.factor_.T
        inside = np.clip(noise, known[0], known[-1])
        place = np.clip(np.searchsorted(known, inside) - 1, 0, self.n_levels - 2)
        share = (inside - known[place]) / (known[place + 1] - known[place])
        by_case = np.moveaxis(quantiles, -1, 1)  # (N, J, D)
        left, right = (np.take_along_axis(by_case, place + step, 1) for step in (0, 1))
        slope = (quantiles[..., -1] - quantiles[..., 0]) / (known[-1] - known[0])
        return Ensemble(torch.from_numpy(left + share * (right - left) + (noise - inside) * slope[:, None]))


class ForestWeights(RegressorMixin, BaseEstimator):
    """Training rows weighted by how often they share a leaf (Meinshausen 2006), as equally weighted draws."""

    def __init__(
        self, n_trees: int = 200, min_leaf: int = 10, max_rows: int = 20_000, n_draws: int = 200, seed: int = 0
    ):
        self.n_trees = n_trees
        self.min_leaf = min_leaf
        self.max_rows = max_rows
        self.n_draws = n_draws
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        rows = numpy_generator(self.seed, "forest").permutation(len(X))[: self.max_rows]
        self.y_ = np.asarray(y)[rows]
        self.forest_ = RandomForestRegressor(
            self.n_trees, min_samples_leaf=self.min_leaf, max_features=1 / 3, n_jobs=-1, random_state=self.seed
        ).fit(X[rows], self.y_ / self.y_.std(0))
        self.leaves_ = self.forest_.apply(X[rows])
        return self

    def predict_distribution(self, X: Any) -> Ensemble:
        """A draw is a training row of the same leaf in a tree chosen at random."""
        generator = numpy_generator(self.seed, "draws")
        leaves = self.forest_.apply(np.asarray(X))
        chosen = np.empty((len(leaves), self.n_draws), dtype=np.int64)
        tree = generator.integers(self.n_trees, size=chosen.shape)
        share = generator.random(chosen.shape)
        for t in range(self.n_trees):
            order = np.argsort(self.leaves_[:, t], kind="stable")
            ordered = self.leaves_[order, t]
            rows, draws = np.nonzero(tree == t)
            first, last = (np.searchsorted(ordered, leaves[rows, t], side=side) for side in ("left", "right"))
            chosen[rows, draws] = order[first + (share[rows, draws] * (last - first)).astype(np.int64)]
        return Ensemble(torch.from_numpy(self.y_[chosen].astype(np.float64)))
