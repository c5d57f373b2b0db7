"""Many targets and odd small problems: how far `MixtureRegressor` is from the truth, and whether it fails silently.

    python benchmarks/many_targets.py              # D = 24, 30, 60, 100 with 2,000 rows of known laws
    python benchmarks/many_targets.py --small      # 200 random small problems
    python benchmarks/many_targets.py --summary    # results/estimator/many_targets.md

Every fit is one process with one thread. Killed, or out of `--seconds`, it goes on where it was.
"""

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch

from prerank.datasets import Heteroscedastic
from prerank.forecasts import GaussianMixture
from prerank.io import DataError
from prerank.regression import MixtureRegressor

RESULTS = Path(__file__).parent.parent / "results" / "estimator"
TARGETS = (24, 30, 60, 100)
ROWS = 2000


@dataclass(frozen=True)
class LinearFactors:
    """Ten normal features with a linear mean, and three common factors behind the errors."""

    n_targets: int

    def law(self, x: np.ndarray) -> GaussianMixture:
        rng = np.random.default_rng(self.n_targets)
        slope = rng.normal(size=(10, self.n_targets)) / np.sqrt(10)
        loadings = rng.normal(size=(self.n_targets, 3)) / 2
        factor = np.linalg.cholesky(loadings @ loadings.T + 0.5 * np.eye(self.n_targets))
        shape = (len(x), 1, self.n_targets, self.n_targets)
        return GaussianMixture(np.zeros((len(x), 1)), (x @ slope)[:, None], np.broadcast_to(factor, shape).copy())

    def rows(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.random.default_rng([seed, n]).normal(size=(n, 10))
        return x, self.law(x).ensemble(1, seed).members[:, 0].numpy()


@dataclass(frozen=True)
class Moving(Heteroscedastic):
    """The library's recipe: a mean that is no line, scales and correlations that move with the features."""

    def rows(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        table = self.table(n, seed)
        return table.x, table.y


LAWS = {"linear": LinearFactors, "moving": Moving}
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "defaults": {},
    "varying": {"common_correlations": False},
    **{f"{c} components": {"n_components": c} for c in (1, 2, 3, 5)},
}


def known(law: str, n_targets: int, setting: str) -> dict[str, Any]:
    """Test log-likelihoods of truth, reference and estimator on fresh rows of a known law."""
    torch.set_num_threads(1)
    truth: Any = LAWS[law](n_targets)
    (x, y), (x_test, y_test) = truth.rows(ROWS, 0), truth.rows(ROWS + 1, 1)
    make = MixtureRegressor.paper if setting == "paper" else MixtureRegressor
    model = make(random_state=0, **SETTINGS[setting])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        started = time.perf_counter()
        model.fit(x, y)
        seconds = time.perf_counter() - started
    kept = model.uses_reference_
    likelihoods = {}
    for name, uses in (("reference", True), ("network", False)):
        model.uses_reference_ = uses
        likelihoods[name] = model.score(x_test, y_test)
    observed = torch.from_numpy(y_test)
    return {
        "law": law,
        "targets": n_targets,
        "setting": setting,
        "truth": float(truth.law(x_test).log_prob(observed).mean()),
        **likelihoods,
        "used": "reference" if kept else "network",
        "warned": len(told) > 0,
        "seconds": round(seconds, 1),
    }


def problem(number: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """A random small problem, and what is odd about it."""
    rng = np.random.default_rng(number)
    n, d = int(np.exp(rng.uniform(np.log(20), np.log(2000)))), int(rng.integers(1, 41))
    n_features = int(rng.integers(1, 13))
    x = rng.normal(size=(n, n_features))
    y = x @ rng.normal(size=(n_features, d)) + rng.normal(size=(n, d)) * np.exp(0.3 * x[:, :1])
    odd = [f"n={n}", f"D={d}", f"L={n_features}"]

    def happens(what: str, share: float) -> bool:
        if rng.uniform() < share:
            odd.append(what)
            return True
        return False

    if happens("constant feature", 0.2):
        x[:, 0] = 3.0
    if n_features > 1 and happens("duplicated feature", 0.2):
        x[:, -1] = x[:, 0]
    if n_features > 2 and happens("collinear features", 0.2):
        x[:, 1] = x[:, 0] + x[:, 2]
    if d > 1 and happens("duplicated target", 0.15):
        y[:, -1] = y[:, 0]
    if d > 2 and happens("collinear targets", 0.15):
        y[:, 1] = y[:, 0] + y[:, 2]
    if happens("counts", 0.2):
        y[:, 0] = rng.poisson(np.exp(np.clip(x[:, 0], -2, 2)))
    if happens("zeros", 0.2):
        y[:, -1] = np.maximum(y[:, -1], 0.0)
    if happens("rounded", 0.15):
        y = np.round(y, 1)
    if happens("outliers in X", 0.2):
        x[rng.integers(n, size=2), 0] *= 1000.0
    if happens("outliers in y", 0.2):
        y[rng.integers(n, size=2), 0] += 200.0
    if happens("constant target", 0.05):
        y[:, 0] = 1.0
    if happens("large units", 0.1):
        y = y * 1e8
    return x, y, odd


def small(number: int) -> dict[str, Any]:
    """What becomes of a small problem: refused with a sentence, or forecast next to its reference on held-out rows."""
    torch.set_num_threads(1)
    x, y, odd = problem(number)
    rows = np.random.default_rng([number, 1]).permutation(len(x))
    train, test = rows[: max(4, len(x) * 3 // 4)], rows[max(4, len(x) * 3 // 4) :]
    record: dict[str, Any] = {"number": number, "odd": ", ".join(odd)}
    model = MixtureRegressor(random_state=number, max_epochs=300)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            model.fit(x[train], y[train])
        except DataError as refusal:
            return record | {"outcome": "refused", "said": str(refusal)[:120]}
        record["seconds"] = round(time.perf_counter() - started, 2)
    kept = model.uses_reference_
    likelihoods = {}
    for name, uses in (("reference", True), ("network", False)):
        model.uses_reference_ = uses
        likelihoods[name] = model.score(x[test], y[test])
    model.uses_reference_ = kept
    used = likelihoods["reference" if kept else "network"]
    finite = bool(np.isfinite(model.predict(x[test])).all() and np.isfinite(model.sample(x[test], 20)).all())
    return record | {
        "outcome": "reference" if kept else "network",
        "test": used,
        "reference_test": likelihoods["reference"],
        "network_test": likelihoods["network"],
        "finite": finite and bool(np.isfinite(used)),
        "worse_per_target": (likelihoods["reference"] - used) / y.shape[1],
        "said": "; ".join(str(item.message)[:80] for item in told),
    }


def run(function: Any, tasks: list[tuple[Any, ...]], out: Path, workers: int, seconds: float) -> None:
    """Call the function with every task, a row for each, until the time is over."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(out).to_dict("records") if out.exists() else []
    end = time.monotonic() + seconds
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        futures = {pool.submit(function, *task): task for task in tasks}
        try:
            for future in as_completed(futures, timeout=max(1.0, end - time.monotonic())):
                try:
                    rows.append(future.result())
                except Exception as error:
                    print(futures[future], repr(error)[:300], flush=True)
        except TimeoutError:
            print("out of time", flush=True)
        for process in list(pool._processes.values()):
            process.terminate()
    first = list(rows[0])[:3] if function is known else ["number"]
    pd.DataFrame(rows).sort_values(first).to_csv(out, index=False, float_format="%.4g")


def summary(folder: Path) -> str:
    """Both tables as a page."""
    lines = [
        "# Many targets, and small problems",
        "",
        "Written by `benchmarks/many_targets.py`. Mean log-likelihood of 2,001 fresh rows after a fit to 2,000:",
        "`linear` has ten features, a linear mean and three common factors behind its errors; `moving` is",
        "`prerank.datasets.Heteroscedastic`, whose mean is no line and whose scales and correlations move with",
        "two features.",
        "",
        "| law | targets | setting | truth | reference | network | used | warned |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    known_laws = pd.read_csv(folder / "many_targets.csv").sort_values(["law", "targets", "setting"])
    for row in known_laws.itertuples():
        cells = (row.law, row.targets, row.setting, f"{row.truth:.1f}", f"{row.reference:.1f}", f"{row.network:.1f}")  # type: ignore[str-format]
        lines.append(f"| {' | '.join(map(str, cells))} | {row.used} | {'yes' if row.warned else 'no'} |")
    found = pd.read_csv(folder / "small_problems.csv")
    fitted = found[found["outcome"] != "refused"]
    counts = found["outcome"].value_counts()
    worse = fitted["worse_per_target"]
    lines += [
        "",
        "200 random problems of 20 to 2,000 rows and 1 to 40 targets, with constant, duplicated and collinear columns,",
        "counts, zeros, rounding and outliers (`small_problems.csv`); a quarter of the rows is held out.",
        "",
        f"* {counts.get('refused', 0)} were refused with a sentence, all for a constant target.",
        f"* {counts.get('network', 0)} are forecast by the network, {counts.get('reference', 0)} by the reference, which a "
        "warning says.",
        f"* Forecasts, draws and likelihoods that are not finite: {int((~fitted['finite'].astype(bool)).sum())}.",
        f"* Held-out likelihood below the reference's by more than 0.1 nats per target: {int((worse > 0.1).sum())} of "
        f"{len(fitted)}; the most is {worse.max():.2f}.",
    ]
    return "\n".join(lines) + "\n"


def done(out: Path, columns: list[str]) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in pd.read_csv(out)[columns].to_numpy().tolist()} if out.exists() else set()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--settings", nargs="*", default=["paper", "defaults"])
    parser.add_argument("--targets", type=int, nargs="*", default=list(TARGETS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e6)
    given = parser.parse_args()
    if given.summary:
        (given.out / "many_targets.md").write_text(summary(given.out))
    elif given.small:
        path = given.out / "small_problems.csv"
        left = [(n,) for n in range(200) if (n,) not in done(path, ["number"])]
        run(small, left, path, given.workers, given.seconds)
    else:
        path = given.out / "many_targets.csv"
        planned = [(law, d, setting) for d in sorted(given.targets)[::-1] for law in LAWS for setting in given.settings]
        left = [task for task in planned if task not in done(path, ["law", "targets", "setting"])]
        run(known, left, path, given.workers, given.seconds)
