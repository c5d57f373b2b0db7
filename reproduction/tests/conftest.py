"""Scripts of the study as modules, and results of a benchmark that never ran: random, and shaped like the real ones."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

from prerank.calibration import centred_levels, pce_null
from prerank_paper.benchmark.plan import PRERANKS, PROTOCOLS, TOGETHER
from prerank_paper.benchmark.records import FleetResult, Results, Store
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.published import published_expected_pce
from prerank_paper.report.paper_values import paper_table
from scripts import load_script

# Tests run in two processes; two threads in each would spend their time waiting for one another.
torch.set_num_threads(int(os.environ.get("PRERANK_TEST_THREADS", "1")))

_FOLDER = Path(__file__).parents[1]
THREE = ("house", "households", "air")  # two, four and six targets
N_TEST = 1000
PENALTIES = (*PRERANKS, *TOGETHER)
NOTHING = {"expected_pce": np.nan, "corrected": np.nan, "low": np.nan, "high": np.nan, "p_value": np.nan}


def make_results(
    datasets: Sequence[str] = THREE,
    seeds: Sequence[int] = (0, 42, 866),
    strengths: Sequence[float] = (1.0, 10.0),
    trainings: Sequence[str] = PROTOCOLS,
    status: str = "exact",
    timings: bool = True,
) -> Results:
    """Baselines have the paper's PCE as published and a little more than chance exactly; penalties take most of it."""
    generator = np.random.default_rng(7)
    targets = {item.name: item.n_targets for item in PAPER_DATASETS}
    fleets, models, records, curves, times = [], [], [], [], []
    for dataset in datasets:
        fleets += [_fleet(dataset, targets[dataset], training, status) for training in trainings]
        grid = [("none", "none", 0.0)]
        grid += [
            (t, p, s) for t in trainings for p in PENALTIES for s in strengths if trainable(p, t, targets[dataset])
        ]
        for training, penalty, strength in grid:
            for seed in seeds:
                label = {"dataset": dataset, "training": training, "penalty": penalty}
                label |= {"strength": strength, "seed": seed, "initialisation": 0}
                models.append(
                    label | {"best_epoch": 50, "best_score": 1.0, "steps": 4000, "diverged": False, "error": ""}
                )
                records += _records(label, targets[dataset], generator)
                curves += _curves(label, targets[dataset], generator)
        if timings:
            times += [
                {"dataset": dataset, "training": t, "prerank": p, "n_draws": n, "n_models": 5, "n_steps": 50}
                | {
                    "ms_per_step": generator.uniform(2, 9) * n / 100 * (4 if p in ("HDR", "copula") else 1),
                    "device": "toy",
                }
                for t in trainings
                for p in PRERANKS
                for n in (100, 1000)
                if trainable(p, t, targets[dataset])
            ]
    columns = ["dataset", "training", "prerank", "n_draws", "n_models", "n_steps", "ms_per_step", "device"]
    frames = [pd.DataFrame(rows) for rows in (fleets, models, records, curves)]
    return Results(*frames, pd.DataFrame(times, columns=columns))


def trainable(penalty: str, training: str, n_targets: int) -> bool:
    return not (penalty == "dependency" and training == "exact" and n_targets == 2)


def _fleet(dataset: str, n_targets: int, training: str, status: str) -> dict[str, object]:
    sizes = {"n_features": 14, "n_train": 2900, "n_validation": 700, "n_test": N_TEST, "batches_per_epoch": 12}
    cost = {
        "steps": 6000,
        "epochs": 500,
        "seconds": 120.0,
        "ms_per_step": 20.0,
        "peak_bytes": 3 * 2**30,
        "device": "toy",
    }
    name = f"{dataset}-{training.replace(' ', '-')}"
    what = {"name": name, "dataset": dataset, "training": training, "n_models": 100, "n_targets": n_targets}
    return what | sizes | cost | {"dataset_status": status}


def _records(label: dict[str, object], n_targets: int, generator: np.random.Generator) -> list[dict[str, object]]:
    rows = []
    published = paper_table("pce_baseline").set_index(["dataset", "prerank"])["value"]
    kept = 1 / (1 + float(str(label["strength"])))
    null, floor = pce_null(N_TEST), published_expected_pce(N_TEST)
    for part in ("test", "validation"):
        for evaluation in PROTOCOLS:
            rows += [
                label
                | {"part": part, "evaluation": evaluation, "metric": metric, "prerank": "", **NOTHING}
                | {"value": base * generator.normal(1.0, 0.02)}
                for metric, base in (("nll", 12.0 if label["dataset"] == "air" else -1.2), ("energy score", 0.9))
            ]
            for prerank in PRERANKS:
                if evaluation == "exact" and prerank == "dependency" and n_targets == 2:
                    continue
                line = label | {"part": part, "evaluation": evaluation, "prerank": prerank, **NOTHING}
                own = kept if str(label["penalty"]) == prerank or "ALL" in str(label["penalty"]) else 1.0
                excess = own * published[str(label["dataset"]), prerank] * generator.uniform(0.95, 1.05)
                per_batch = max(float(np.hypot(floor, excess)), floor)
                rows.append(line | {"metric": "pce per 256", "value": per_batch, "expected_pce": floor})
                if evaluation == "exact":
                    value = float(np.hypot(null.mean, 0.15 * excess)) * generator.uniform(0.7, 1.3)
                    tests = {"expected_pce": null.mean, "corrected": value - null.mean, "low": 0.0, "high": 2 * value}
                    tests["p_value"] = float(null.p_value(value))
                    rows.append(line | {"metric": "pce", "value": value} | (tests if part == "test" else {}))
    return rows


def _curves(label: dict[str, object], n_targets: int, generator: np.random.Generator) -> list[dict[str, object]]:
    plain = label["penalty"] == "none"
    if not plain and (label["strength"] != 10.0 or label["penalty"] not in PRERANKS):
        return []
    levels = centred_levels(20).numpy()
    rows = []
    for evaluation in PROTOCOLS:
        # margins for one dataset: drawing takes time
        own = dict.fromkeys([str(label["penalty"]), *(["marginal"] if label["dataset"] == "households" else [])])
        for prerank in PRERANKS if plain else own:
            if evaluation == "exact" and prerank == "dependency" and n_targets == 2:
                continue
            for projection in range(1, (n_targets if prerank in ("marginal", "PCA") else 1) + 1):
                bend = generator.normal(0.0, 0.1) * (1 if plain else 0.2) * (1 if evaluation == "exact" else 3)
                frequency = np.clip(levels + bend * np.sin(2 * np.pi * levels), 0, 1)
                rows += [
                    label
                    | {"evaluation": evaluation, "prerank": prerank, "projection": projection}
                    | {"level": a, "frequency": f}
                    for a, f in zip(levels, frequency, strict=True)
                ]
    return rows


@pytest.fixture(scope="session")
def benchmark_script() -> Callable[[str], ModuleType]:
    """A script of reproduction/benchmarks as a module, by its name."""
    return lambda name: load_script(_FOLDER / "benchmarks" / f"{name}.py")


@pytest.fixture(scope="session")
def make() -> Callable[..., Results]:
    return make_results


@pytest.fixture(scope="session")
def results() -> Results:
    return make_results()


@pytest.fixture
def kept():
    """Write results to a folder as a run leaves them, a folder per fleet."""

    def keep(made: Results, folder):
        store = Store(folder)
        for about in made.fleets.to_dict("records"):
            parts = (made.models, made.records, made.curves)
            own = [part[part["training"].isin(["none", about["training"]])].reset_index(drop=True) for part in parts]
            store.keep_fleet(FleetResult({str(key): value for key, value in about.items()}, *own))
        return store

    return keep
