"""Quantiles of a forecast hub made joint, against independent margins and the team's own samples, on weeks held out.

python benchmarks/joint_from_margins.py HUB writes results/recalibration/joint-from-margins.csv. HUB is the folder of a
FluSight hub (hubverse layout) with the model UMass-trends_ensemble, whose quantiles and samples are of the same target.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from prerank import Ensemble, Recalibrator, check, energy_score, variogram_score
from prerank.forecasts import equally_weighted_draws
from prerank.io import read_hub, read_hub_quantiles
from prerank.recalibration import (
    EmpiricalCopula,
    GaussianCopula,
    Independence,
    JointFromMargins,
    QuantileMargins,
    margins_kept,
)

OUT = Path(__file__).parents[1] / "results" / "recalibration" / "joint-from-margins.csv"
MODEL, TARGET, N_DRAWS = "UMass-trends_ensemble", "wk inc flu hosp", 100
WAYS = {
    "independent margins": Independence(),
    "Gaussian copula": GaussianCopula(),
    "ranks of errors": EmpiricalCopula(),
    "Schaake shuffle": EmpiricalCopula(of_observations=True),
}


def judged(y: np.ndarray, forecast: Ensemble, unit: np.ndarray) -> dict[str, float]:
    """Fair scores, also in units of each place's median forecast, and PCE over expected of every pre-rank."""
    seen, unit = torch.tensor(y), torch.tensor(unit)
    table = check(y, forecast, n_replicates=199).table
    own = Ensemble(forecast.members / unit[:, None, None])
    return {
        "energy score": float(energy_score(seen, forecast).mean()),
        "variogram score": float(variogram_score(seen, forecast).mean()),
        "energy score, in units": float(energy_score(seen / unit[:, None], own).mean()),
        "variogram score, in units": float(variogram_score(seen / unit[:, None], own).mean()),
        **{f"{name} ratio": row["PCE"] / row["expected PCE"] for name, row in table.iterrows()},
        "rejected": int((table["adjusted p-value"] <= 0.05).sum()),
    }


def main(hub: Path) -> None:
    found = read_hub_quantiles(hub, model=(MODEL,), target=TARGET)
    quantiles, y = found.values.transpose(0, 2, 1), found.y.to_numpy()
    weeks = found.columns["reference_date"].to_numpy()
    samples = read_hub(hub, model=(MODEL,), target=TARGET)
    if not np.array_equal(samples.y.to_numpy(), y):
        raise SystemExit("samples and quantiles are not of the same cases in the same order")
    rows = []
    for first in sorted(set(weeks))[4:6]:  # four or three weeks judge
        early, late = weeks < first, weeks >= first
        past, new = (QuantileMargins(quantiles[which], found.levels, lower=0) for which in (early, late))
        unit = quantiles[late][:, len(found.levels) // 2].mean(1).clip(1.0)
        base = {"judged from": first, "past cases": int(early.sum()), "cases": int(late.sum())}
        for seed in range(3):
            for name, way in WAYS.items():
                model = JointFromMargins(way, N_DRAWS, seed).fit(past, y[early])
                drawn = model.transform(new)
                kept = margins_kept(drawn, new).largest
                rows.append({**base, "seed": seed, "method": name, "margins": kept, **judged(y[late], drawn, unit)})
                if name == "Gaussian copula" and seed == 0:
                    corrected = Recalibrator(seed=seed).fit(model.transform(past), y[early])
                    law = corrected.transform(drawn)
                    after = law if isinstance(law, Ensemble) else equally_weighted_draws(law, N_DRAWS, seed)
                    rows.append(
                        {**base, "seed": seed, "method": "Gaussian copula, corrected", **judged(y[late], after, unit)}
                    )
        own = Ensemble(torch.tensor(np.asarray(samples.members)[late]))
        rows.append({**base, "seed": 0, "method": "the team's samples", **judged(y[late], own, unit)})
        print(pd.DataFrame(rows).groupby("method").mean(numeric_only=True).round(2).to_string(), flush=True)
    pd.DataFrame(rows).round(5).to_csv(OUT, index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
