"""Settings of `MixtureRegressor`: the sweep that its defaults were chosen by, on half of the datasets, and both halves.

    python benchmarks/estimator_settings.py --tables build/tables                 # once: at most 10,000 rows a dataset
    python benchmarks/estimator_settings.py --tables build/tables --sweep         # every setting, choosing half
    python benchmarks/estimator_settings.py --tables build/tables --report        # paper's and new ones, both halves
    python benchmarks/estimator_settings.py --summary                             # results/estimator/settings.md

A fit gets the paper's training and validation rows; settings are compared on its calibration rows, which no fit sees, and
reported on its test rows. Every fit is one process with one thread; `seconds` compare within a file alone. Killed, or out
of `--seconds`, it goes on where it was.
"""

import argparse
import csv
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

RESULTS = Path(__file__).parent.parent / "results" / "estimator"
CHOOSING = ("households", "births1", "wage", "wq", "meps21", "bio", "calcofi", "taxi")
REPORTED = ("air", "births2", "scm20d", "scpf", "house", "blogdata", "ansur2")
"""The catalogue's datasets that are available, in its order, taken by turns."""
TARGETS = {"households": 4, "wq": 14, "air": 6, "births2": 4, "scm20d": 16, "scpf": 3}  # the others have two
ROWS = 10_000
COLUMNS = (
    "setting",
    "dataset",
    "seed",
    "nll",
    "energy",
    "test_nll",
    "test_energy",
    "worst",
    "seconds",
    "epochs",
    "note",
)

NEW = "defaults"
START: dict[str, Any] = {
    "learning_rate": 1e-3,
    "patience": 5,
    "n_restarts": 2,
    "n_components": 5,
    "hidden": (100, 100),
    "batch_size": 256,
    "floor": 1e-3,
    "anchored": True,
    "common_correlations": True,
    "bound_features": True,
}
PLAIN = {"anchored": False, "common_correlations": False}
CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "plain network": PLAIN,
    "varying correlations": {"common_correlations": False},
    "rate 2e-3": {"learning_rate": 2e-3},
    "rate 3e-3": {"learning_rate": 3e-3},
    "rate 5e-3": {"learning_rate": 5e-3},
    "rate 3e-3, plain network": {"learning_rate": 3e-3, **PLAIN},
    "rate 3e-3, varying": {"learning_rate": 3e-3, "common_correlations": False},
    "no restart": {"n_restarts": 0},
    "1 restart": {"n_restarts": 1},
    "3 restarts": {"n_restarts": 3},
    "no restart, patience 15": {"n_restarts": 0, "patience": 15},
    "patience 3": {"patience": 3},
    "patience 8": {"patience": 8},
    "3 components": {"n_components": 3},
    "8 components": {"n_components": 8},
    "hidden 64, 64": {"hidden": (64, 64)},
    "hidden 100": {"hidden": (100,)},
    "hidden 200, 200": {"hidden": (200, 200)},
    "batch 128": {"batch_size": 128},
    "batch 512": {"batch_size": 512},
    "rate 3e-3, batch 512": {"learning_rate": 3e-3, "batch_size": 512},
    "rate 3e-3, batch 128": {"learning_rate": 3e-3, "batch_size": 128},
    "floor 1e-2": {"floor": 1e-2},
    "features not bounded": {"bound_features": False},
    "rate 3e-3, 3 restarts": {"learning_rate": 3e-3, "n_restarts": 3},
    "rate 3e-3, 1 restart": {"learning_rate": 3e-3, "n_restarts": 1},
    "rate 3e-3, hidden 64, 64": {"learning_rate": 3e-3, "hidden": (64, 64)},
}


def regressor(setting: str, seed: int) -> Any:
    """The estimator of a setting."""
    from prerank.regression import MixtureRegressor

    common = {"random_state": seed, "dequantise": True}
    if setting == NEW:
        return MixtureRegressor(random_state=seed)
    if setting == "paper":
        return MixtureRegressor.paper(random_state=seed)
    if setting == "paper, bounded and dequantised":
        return MixtureRegressor.paper(**common, bound_features=True)
    return MixtureRegressor(**{**START, **CHANGES[setting], **common})


def prepare_tables(folder: Path) -> None:
    """Write at most ROWS rows of every dataset as arrays."""
    from prerank.randomness import keyed_order
    from prerank_paper.datasets import load

    folder.mkdir(parents=True, exist_ok=True)
    for name in (*CHOOSING, *REPORTED):
        table = load(name, accept_licence=True)
        rows = np.sort(keyed_order(table.n_cases, 0)[:ROWS])
        np.savez_compressed(folder / f"{name}.npz", x=table.x[rows].astype(np.float32), y=table.y[rows])


def one(task: tuple[str, str, int], folder: Path) -> dict[str, Any]:
    """Fit a setting to a dataset, and score it on rows that it has not seen."""
    import warnings

    import torch

    from prerank.randomness import keyed_order
    from prerank.regression.dequantising import Dequantiser
    from prerank.scores import Fair, energy_score
    from prerank_paper.datasets.splitting import PAPER_SPLIT

    torch.set_num_threads(1)
    setting, name, seed = task
    with np.load(folder / f"{name}.npz") as table:
        x, y = table["x"], table["y"].astype(np.float64)
    sizes = PAPER_SPLIT.sizes(len(x))
    train, validation, held_out, test = np.split(keyed_order(len(x), seed + 1000), np.cumsum(sizes)[:-1])
    fitted = np.concatenate([train, validation])
    model = regressor(setting, seed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        started = time.perf_counter()
        model.fit(x[fitted], y[fitted])
        seconds = time.perf_counter() - started
    cells, spread = Dequantiser.of(y[fitted]), y[fitted].std(0)
    record: dict[str, Any] = {"setting": setting, "dataset": name, "seed": seed, "seconds": round(seconds, 3)}
    for rows, prefix in ((held_out, ""), (test, "test_")):
        likelihood = np.concatenate(
            [
                cells.log_likelihood(y[part], model.predict_distribution(x[part])).numpy()
                for part in np.array_split(rows, max(1, len(rows) // 500))
            ]
        )
        # in standard units; targets with cells have a probability, which has no units
        scale = sum(np.log(spread[d]) for d, support in enumerate(cells.supports) if support is None)
        members = torch.from_numpy(model.sample(x[rows], 100, seed) / spread)
        energy = energy_score(torch.from_numpy(y[rows] / spread), members, Fair()).mean()
        record |= {f"{prefix}nll": -likelihood.mean() - scale, f"{prefix}energy": float(energy)}
        record["worst"] = float(-likelihood.min() - scale)
    note = "; ".join(str(item.message)[:60] for item in told if "validation NLL" in str(item.message))
    return record | {"epochs": model.n_epochs_, "note": "reference" if note else ""}


def tasks_of(settings: list[str], datasets: tuple[str, ...], seeds: list[int]) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for setting in settings:
            for name in datasets:
                yield setting, name, seed


def run(tasks: list[tuple[str, str, int]], folder: Path, out: Path, workers: int, seconds: float) -> None:
    """Work off what is not in `out` yet, a line for each, until the time is over."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done: set[tuple[str, str, int]] = set()
    if out.exists():
        done = {(row.setting, row.dataset, int(row.seed)) for row in pd.read_csv(out).itertuples()}  # type: ignore[arg-type]
    left = [task for task in tasks if task not in done]
    end = time.monotonic() + seconds
    new = not out.exists()
    with out.open("a", newline="") as file, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        futures = {pool.submit(one, task, folder): task for task in left}
        try:
            for future in as_completed(futures, timeout=max(1.0, end - time.monotonic())):
                try:
                    writer.writerow(future.result())
                except Exception as error:
                    print(futures[future], repr(error)[:300], flush=True)
                file.flush()
        except TimeoutError:
            print("out of time", flush=True)
        for process in list(pool._processes.values()):
            process.terminate()


def index(found: pd.DataFrame, against: str) -> pd.DataFrame:
    """Means over datasets of NLL per target and log energy score, both against a setting, and time as a ratio to it.

    Their sum is the index by which settings are compared: the smaller, the better.
    """
    means = found.groupby(["setting", "dataset"])[["nll", "energy", "seconds"]].mean()
    base = means.xs(against, level="setting")
    rows = []
    for setting, group in means.groupby(level="setting"):
        own, other = group.droplevel("setting").align(base, join="inner", axis=0)
        per_target = np.array([TARGETS.get(str(name), 2) for name in own.index])
        rows.append(
            {
                "setting": setting,
                "nll": ((own["nll"] - other["nll"]) / per_target).mean(),
                "energy": np.log(own["energy"] / other["energy"]).mean(),
                "time": np.exp(np.log(own["seconds"] / other["seconds"]).mean()),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(index=table["nll"] + table["energy"]).sort_values("index", ignore_index=True)


def summary(folder: Path) -> str:
    """Both tables as a page."""
    lines = [
        "# Settings of the estimator",
        "",
        "Written by `benchmarks/estimator_settings.py`, which says how; at most 10,000 rows of a dataset, NLL of cells",
        "where targets have atoms, energy score fair and of 100 draws, both in standard units.",
        "",
        "## The sweep",
        "",
        f"Datasets of the choosing half ({', '.join(CHOOSING)}), seed 0, rows that no fit saw. NLL is a difference",
        "per target, energy score a logarithm of a ratio, time a ratio, each to the paper's settings, all means over",
        "datasets (time: one core, geometric). The index is the sum of the first two. `start` is rate 1e-3, patience 5,",
        "2 restarts, 5 components, hidden (100, 100), batches of 256, floor 1e-3, anchored, common correlations,",
        "features bounded, targets dequantised. It was run before the wide component was added, and with the floor added",
        "to the diagonal of a component's factor, where it is now part of the scales and of the factor they multiply.",
        "",
        "| setting | NLL | energy score | index | time |",
        "| --- | --- | --- | --- | --- |",
    ]
    sweep = index(pd.read_csv(folder / "settings_sweep.csv"), "paper")
    lines += [
        f"| {row.setting} | {row.nll:+.3f} | {row.energy:+.4f} | {row.index_:+.3f} | {row.time:.2f} |"
        for row in sweep.rename(columns={"index": "index_"}).itertuples()
    ]
    found = pd.read_csv(folder / "settings.csv")
    means = found.groupby(["dataset", "setting"])[["test_nll", "test_energy", "worst"]].mean()
    lines += [
        "",
        "## Both halves",
        "",
        f"Test rows, means over seeds {', '.join(map(str, sorted(set(found['seed']))))}.",
        "",
    ]
    for half, names in (("the choosing half", CHOOSING), ("the other half", REPORTED)):
        lines += [
            f"### On {half}",
            "",
            "| dataset | NLL, paper | defaults | energy score, paper | defaults | ratio | worst row, paper | defaults |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for name in names:
            paper, new = (means.loc[(name, setting)] for setting in ("paper", NEW))
            lines.append(
                f"| {name} | {paper['test_nll']:.3f} | {new['test_nll']:.3f} | {paper['test_energy']:.4f} | "
                f"{new['test_energy']:.4f} | {new['test_energy'] / paper['test_energy']:.3f} | {paper['worst']:.0f} | "
                f"{new['worst']:.0f} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--settings", nargs="*")
    parser.add_argument("--datasets", nargs="*")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e6)
    given = parser.parse_args()
    if given.tables and not (given.sweep or given.report or given.summary):
        prepare_tables(given.tables)
    if given.sweep:
        chosen = given.settings or ["paper", "paper, bounded and dequantised", *CHANGES]
        planned = list(tasks_of(chosen, tuple(given.datasets or CHOOSING), given.seeds))
        run(planned, given.tables, given.out / "settings_sweep.csv", given.workers, given.seconds)
    if given.report:
        chosen = given.settings or ["paper", NEW]
        planned = list(tasks_of(chosen, tuple(given.datasets or (*CHOOSING, *REPORTED)), given.seeds))
        run(planned, given.tables, given.out / "settings.csv", given.workers, given.seconds)
    if given.summary:
        (given.out / "settings.md").write_text(summary(given.out))
