"""A grid search that asks for calibration: the paper's rule among networks, with and without a penalty."""

import pandas as pd
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prerank import PCA, Location, Marginal
from prerank.datasets import Bimodal
from prerank.regression import MixtureRegressor, NegativeEnergyScore, NegativePCE, PaperRule, predict_distribution


def main() -> None:
    table = Bimodal().table(400, seed=0)
    network = MixtureRegressor(PCA(), hidden=(16,), learning_rate=0.05, patience=3, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), network),
        {"mixtureregressor__n_components": [1, 2], "mixtureregressor__strength": [0.0, 1.0]},
        scoring={"energy_score": NegativeEnergyScore(), "pce": NegativePCE([Marginal(), Location(), PCA()])},
        refit=PaperRule(tolerance=0.1),
        cv=2,
    )
    search.fit(table.x, table.y)
    found = pd.DataFrame(search.cv_results_).rename(columns=lambda name: name.removeprefix("param_mixtureregressor__"))
    print(
        found[["n_components", "strength", "mean_test_energy_score", "mean_test_pce"]].round(4).to_string(index=False)
    )
    print("chosen:", search.best_params_)
    print("mean of the first row:", predict_distribution(search, table.x[:1]).mean.numpy().round(2))


if __name__ == "__main__":
    main()
