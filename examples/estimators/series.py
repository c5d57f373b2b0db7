"""A series: models are fitted on the past alone, and the correction is learnt from what they said of the future."""

import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from prerank import Location, Marginal
from prerank.regression import CalibratedRegressorCV, MixtureRegressor, sample


def series(n_steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Yesterday's two values as features, today's as targets; shocks have heavy tails."""
    rng = np.random.default_rng(seed)
    shocks = rng.standard_t(4, size=(n_steps + 1, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
    values = np.zeros((n_steps + 1, 2))
    for t in range(1, n_steps + 1):
        values[t] = 0.8 * values[t - 1] + shocks[t]
    return values[:-1], values[1:]


def main() -> None:
    x, y = series(800, seed=0)
    past, future = slice(0, 600), slice(600, 800)
    weeks = np.arange(600) // 7  # neighbouring days count as one where the correction asks for evidence
    network = MixtureRegressor(n_components=1, hidden=(16,), learning_rate=0.02, patience=5, random_state=0)
    model = CalibratedRegressorCV(network, [Marginal(), Location()], cv=TimeSeriesSplit(5), random_state=0)
    model.fit(x[past], y[past], groups=weeks)
    print(model.summary())
    members = sample(model, x[future], n_draws=200)
    inside = (np.quantile(members, 0.05, axis=1) < y[future]) & (y[future] < np.quantile(members, 0.95, axis=1))
    print(f"inside their 90 % intervals: {inside.mean(0).round(2)} of the next {len(inside)} days")


if __name__ == "__main__":
    main()
