"""Rows that belong together: patients with several visits. No patient is on both sides of a fold."""

import numpy as np

from prerank import Location, Marginal
from prerank.regression import CalibratedRegressorCV, MixtureRegressor


def visits(n_patients: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four visits of every patient: features, two readings, and the patient's number."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), 4)
    own = rng.gumbel(size=(n_patients, 2))[patient]  # what no feature says, the same at every visit, and skewed
    x = rng.normal(size=(len(patient), 2))
    return x, np.tanh(x) + own + 0.5 * rng.normal(size=(len(patient), 2)), patient


def main() -> None:
    x, y, patient = visits(150, seed=0)
    network = MixtureRegressor(n_components=1, hidden=(16,), learning_rate=0.02, patience=5, random_state=0)
    model = CalibratedRegressorCV(network, [Marginal(), Location()], cv=5, random_state=0)
    model.fit(x, y, groups=patient)
    print(model.summary())
    fresh, observed, _ = visits(100, seed=1)
    plain = network.fit(x, y)
    for name, each in (("plain", plain), ("calibrated", model)):
        print(f"{name}: log-likelihood of fresh patients {each.score(fresh, observed):.3f}")


if __name__ == "__main__":
    main()
