"""A pipeline with categories and gaps, a target that is modelled by its logarithm, and forecasts that are calibrated.

Rows are flats, of a kind and of a size that is sometimes unknown; targets are rent, positive, and years since a repair.
"""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch.distributions import ExpTransform

from prerank import Location, Marginal
from prerank.regression import CalibratedRegressorCV, MixtureRegressor, TransformedTargets, predict_quantiles


def flats(n_rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["attic", "cellar", "loft"], n_rows)
    size = rng.gamma(9.0, 8.0, n_rows)
    luck = rng.gumbel(size=n_rows)  # skewed, which no single Gaussian is
    rent = np.exp(5.0 + 0.01 * size + 0.3 * (kind == "loft") + 0.2 * luck)
    repair = 10.0 - 3.0 * luck + rng.normal(size=n_rows)
    x = pd.DataFrame({"kind": kind, "size": np.where(rng.random(n_rows) < 0.1, np.nan, size)})
    return x, pd.DataFrame({"rent": rent, "repair": repair})


def main() -> None:
    x, y = flats(500, seed=0)
    columns = ColumnTransformer(
        [
            ("kind", OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            ("size", SimpleImputer(add_indicator=True), ["size"]),
        ]
    )
    network = MixtureRegressor(n_components=1, hidden=(16,), learning_rate=0.02, patience=5, random_state=0)
    calibrated = CalibratedRegressorCV(make_pipeline(columns, network), [Marginal(), Location()], cv=3, random_state=0)
    model = TransformedTargets(calibrated, [ExpTransform(), None]).fit(x, y)
    fresh, observed = flats(200, seed=1)
    print(model.estimator_.summary())
    print(f"mean log-likelihood of {len(fresh)} fresh rows: {model.score(fresh, observed):.2f}")
    print("mean forecast of the first two rows:")
    print(model.predict(fresh.head(2)).round(1).to_string())
    print("their 5, 50 and 95 % quantiles of rent:")
    print(predict_quantiles(model, fresh.head(2))[:, :, 0].round(0))


if __name__ == "__main__":
    main()
