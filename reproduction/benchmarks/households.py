"""The households baseline, five seeds, next to the paper: does the as-published protocol reproduce its table?

PRERANK_DATA=folder python reproduction/benchmarks/households.py
"""

from pathlib import Path

import pandas as pd
import torch

from prerank.preranks import paper_preranks
from prerank.training import Bar, FitOptions, Run, TrainingSet, fit
from prerank_paper.datasets import load, split
from prerank_paper.datasets.splitting import PAPER_SEEDS, published_order
from prerank_paper.evaluation import evaluate_both

# Baseline PCE of the paper (its table of the unregularised model), and the range of its regularised NLL and energy score.
PAPER = {
    "marginal": 0.095, "location": 0.092, "scale": 0.125, "dependency": 0.022, "PCA": 0.066, "HDR": 0.097, "copula": 0.149,
}  # fmt: skip
RANGES = {"nll": (3.23, 3.40), "energy score": (0.921, 0.952)}


def training_sets(name: str, device: str = "cpu") -> tuple[dict[int, TrainingSet], dict[int, tuple]]:
    """Per seed the rows to train and stop by, and the rows to test on."""
    table = load(name, accept_licence=True)
    train, test = {}, {}
    for seed in PAPER_SEEDS:
        parts = split(table, seed, order=published_order)

        def tensors(part):
            return torch.from_numpy(part.x).to(device), torch.from_numpy(part.y).to(device)

        train[seed] = TrainingSet(*tensors(parts.train), *tensors(parts.validation))
        test[seed] = tensors(parts.test)
    return train, test


def main() -> None:
    train, test = training_sets("households")
    fleet = fit([Run(seed) for seed in PAPER_SEEDS], train, FitOptions(), Bar("households"))
    records = []
    for place, seed in enumerate(PAPER_SEEDS):
        x, y = test[seed]
        law = fleet.forecast(x, [place])
        records.append(evaluate_both(y[None], law, paper_preranks(y.shape[-1])).assign(seed=seed))
    table = pd.concat(records)
    print(f"epochs of the best weights: {fleet.best_epoch.tolist()}, steps {fleet.steps}")
    for metric, (low, high) in RANGES.items():
        values = table[(table.metric == metric) & (table.protocol == "as published")].value
        print(f"{metric:<13} {values.mean():.3f} (se {values.sem():.3f}), the paper's regularised rows {low} to {high}")
    print(f"{'pre-rank':<11} {'paper':>6} {'as published':>13} {'ratio':>6} {'exact':>7} {'null':>6} {'median p':>9}")
    for name, value in PAPER.items():
        rows = table[table.prerank == name]
        published = rows[rows.protocol == "as published"].value.mean()
        exact = rows[(rows.protocol == "exact") & (rows.metric == "pce")]
        print(
            f"{name:<11} {value:>6.3f} {published:>13.3f} {published / value:>6.2f} {exact.value.mean():>7.4f} "
            f"{exact.expected_pce.mean():>6.4f} {exact.p_value.median():>9.3f}"
        )
    out = Path("out")
    out.mkdir(exist_ok=True)
    table.to_csv(out / "households.csv", index=False)


if __name__ == "__main__":
    main()
