"""Targets with atoms: calibration of the estimator before and after dequantising, on wq, scpf and wage.

    python benchmarks/atoms.py --tables build/tables             # results/estimator/atoms.csv
    python benchmarks/atoms.py --summary                         # results/estimator/atoms.md

The tables are those of benchmarks/estimator_settings.py. A fit gets the paper's training and validation rows; all other
rows evaluate it, by plain ranks among 200 draws in values of the targets, so that how values are spread plays no part.
"""

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch

from prerank import HDR, Ensemble, Marginal, Scale
from prerank.calibration import pce, pce_null, projected_pit
from prerank.randomness import keyed_order
from prerank.regression import MixtureRegressor
from prerank.scores import Fair, energy_score
from prerank_paper.datasets.splitting import PAPER_SPLIT

RESULTS = Path(__file__).parent.parent / "results" / "estimator"
DATASETS = ("wq", "scpf", "wage")
WAYS = ("paper", "not dequantised", "dequantised")


def one(name: str, way: str, seed: int, folder: Path) -> list[dict[str, Any]]:
    """PCEs, each with the one expected under calibration, and energy score of one fit."""
    torch.set_num_threads(1)
    with np.load(folder / f"{name}.npz") as table:
        x, y = table["x"], table["y"].astype(np.float64)
    sizes = PAPER_SPLIT.sizes(len(x))
    order = keyed_order(len(x), seed + 1000)
    fitted, held_out = np.split(order, [sizes.train + sizes.validation])
    make = MixtureRegressor.paper if way == "paper" else MixtureRegressor
    model = make(random_state=seed) if way == "paper" else make(random_state=seed, dequantise=way == "dequantised")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[fitted], y[fitted])
    law = model.predict_distribution(x[held_out])
    spread, members = y[fitted].std(0), torch.from_numpy(model.sample(x[held_out], 200))
    energy = float(energy_score(torch.from_numpy(y[held_out] / spread), members / spread, Fair()).mean())
    about = {"dataset": name, "way": way, "seed": seed, "rows": len(held_out), "likelihood": model.likelihood_}
    rows = [{**about, "metric": "energy score", "value": energy}]
    for prerank in (Marginal(), Scale(), HDR()):
        pit = projected_pit(torch.from_numpy(y[held_out]), Ensemble(members, reference=law), prerank)
        expected = pce_null(len(held_out), n_members=pit.parts[0].n_members).mean
        rows.append({**about, "metric": prerank.name, "value": float(pce(pit).mean()), "expected": float(expected)})
    return rows


def summary(found: pd.DataFrame) -> str:
    """The table as a page."""
    errors = found[found["metric"] != "energy score"]
    ratio = errors.assign(ratio=errors["value"] / errors["expected"])
    ratios = ratio.groupby(["dataset", "way", "metric"])["ratio"].mean()
    energy = found[found["metric"] == "energy score"].groupby(["dataset", "way"])["value"].mean()
    lines = [
        "# Targets with atoms, before and after dequantising",
        "",
        "Written by `benchmarks/atoms.py`: PCE over the one expected under calibration, and energy score in standard",
        f"units, on rows that no fit saw; means over {found['seed'].nunique()} seeds.",
        "",
        "| dataset | estimator | marginal | scale | HDR | energy score |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in DATASETS:
        for way in WAYS:
            cells = " | ".join(f"{ratios.loc[(name, way, metric)]:.1f}" for metric in ("marginal", "scale", "HDR"))
            lines.append(f"| {name} | {way} | {cells} | {energy.loc[(name, way)]:.4f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if given.tables:
        out = given.out / "atoms.csv"
        found = pd.read_csv(out).to_dict("records") if out.exists() else []
        done = {(row["dataset"], row["way"], row["seed"]) for row in found}
        planned = [(name, way, seed) for name in DATASETS for way in WAYS for seed in given.seeds]
        tasks = [(*task, given.tables) for task in planned if task not in done]
        with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
            found += [row for rows in pool.map(one, *zip(*tasks, strict=True)) for row in rows]
        out.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(found).to_csv(out, index=False, float_format="%.5g")
    if given.summary:
        (given.out / "atoms.md").write_text(summary(pd.read_csv(given.out / "atoms.csv")))
