"""Seconds to fit datasets: the paper's settings, the defaults, stacked and calibrated, by turns.

    python benchmarks/estimator_time.py [DATASETS ...]       # results/estimator/time.csv and time.md

Datasets that the record has are not fitted again, but with `--again`. A fit gets the paper's training and validation
rows. Wall-clock time is that of the machine and of who else is on it; processor time is the process's own, all threads
together. Ratios are those of one run. Calibrated models are timed with the first seed alone.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.pipeline import Pipeline, make_pipeline

from prerank.randomness import keyed_order
from prerank.regression import CalibratedRegressorCV, MixtureRegressor, StackedFeatures
from prerank_paper.datasets import load
from prerank_paper.datasets.splitting import PAPER_SPLIT

RESULTS = Path(__file__).parent.parent / "results" / "estimator"


def stacked(**more: Any) -> Pipeline:
    return make_pipeline(StackedFeatures(random_state=0), MixtureRegressor(**more))


WAYS: dict[str, Callable[..., Any]] = {
    "paper": MixtureRegressor.paper,
    "defaults": MixtureRegressor,
    "stacked": stacked,
    "calibrated": lambda random_state: CalibratedRegressorCV(MixtureRegressor(), random_state=random_state),
    "stacked, calibrated": lambda random_state: CalibratedRegressorCV(stacked(), random_state=random_state),
}


def rows_of(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if folder is None:
        table = load(name, accept_licence=True)
        x, y = table.x, table.y
    else:
        with np.load(folder / f"{name}.npz") as arrays:
            x, y = arrays["x"], arrays["y"]
    sizes = PAPER_SPLIT.sizes(len(x))
    rows = keyed_order(len(x), 0)[: sizes.train + sizes.validation]
    return x[rows], y[rows]


def summary(found: pd.DataFrame) -> str:
    """The table as a page."""
    ways = list(found["way"].unique())
    threads = ", ".join(map(str, sorted(set(found["threads"]))))
    lines = [
        "# Time to fit",
        "",
        f"Written by `benchmarks/estimator_time.py`: processor seconds, medians over seeds, threads: {threads}. In",
        "brackets: in units of the paper's settings. Wall-clock times are in the record.",
        "",
        f"| dataset | rows | {' | '.join(ways)} |",
        "| --- | --- " + "| --- " * len(ways) + "|",
    ]
    medians = found.groupby(["dataset", "way"], sort=False)[["rows", "processor"]].median()
    for name in found["dataset"].unique():
        seconds = medians.loc[name]["processor"]
        shown = [f"{seconds[way]:.1f} ({seconds[way] / seconds['paper']:.2f})" for way in ways]
        lines.append(f"| {name} | {medians.loc[name]['rows'].iloc[0]:,.0f} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["households", "births1", "air"])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument(
        "--tables", type=Path, help="arrays of benchmarks/estimator_settings.py, instead of PRERANK_DATA"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="replace what the record has of these datasets")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    x, y = rows_of("births1", given.tables)
    MixtureRegressor(max_epochs=2, random_state=0).fit(x[:500], y[:500])  # libraries are warm after it
    kept = given.out / "time.csv"
    records = pd.read_csv(kept).to_dict("records") if kept.exists() else []
    if given.again:
        records = [row for row in records if row["dataset"] not in given.datasets]
    there = {row["dataset"] for row in records}
    for name in (name for name in given.datasets if name not in there):
        x, y = rows_of(name, given.tables)
        for seed in given.seeds:
            for way, make in WAYS.items():
                if "calibrated" in way and seed != given.seeds[0]:
                    continue
                wall, processor = time.perf_counter(), time.process_time()
                model = make(random_state=seed).fit(x, y)
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                records.append(
                    {"dataset": name, "rows": len(x), "way": way, "seed": seed, "wall": wall, "processor": processor}
                    | {"epochs": getattr(model, "n_epochs_", None), "threads": given.threads}
                )
                print(records[-1], flush=True)
        found = pd.DataFrame(records).round(3)
        given.out.mkdir(parents=True, exist_ok=True)
        found.to_csv(kept, index=False)
        (given.out / "time.md").write_text(summary(found))
