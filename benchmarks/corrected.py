"""Processor time of a corrected forecast beside the plain one: checks, regions, and the fit of a `Recalibrator`.

    python benchmarks/corrected.py --old DIR DIR       other source trees in turn with this one, into results/corrected
    python benchmarks/corrected.py --quick             a few cases, to see it work

Forecasts are mixtures of two Gaussians with independent targets; what happens is correlated and skewed. Every tree fits
its `Recalibrator` on the same 1,000 cases. Each measurement is a process of its own with
`--threads` threads, after a call on a few cases. `share` is the effective share of the pools of what was fitted.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "corrected" / "corrected.csv"
FIELDS = ("tree", "task", "targets", "cases", "threads", "share", "repeat", "cpu_seconds", "seconds")
N_FITTED = 1000


def forecast_and_truth(n_cases: int, n_targets: int, seed: int) -> tuple[Any, torch.Tensor]:
    """A forecast without dependence or skewness, and observations that have both."""
    from prerank import GaussianMixture

    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(n_cases, n_targets, generator=generator)
    noise = torch.randn(n_cases, n_targets, generator=generator)
    common = torch.randn(n_cases, 1, generator=generator)
    y = mean + torch.expm1(0.25 * (0.9 * noise + 0.45 * common)) / 0.25
    loc = mean[:, None] + torch.tensor([-0.1, 0.3])[:, None]
    tril = torch.eye(n_targets) * torch.tensor([0.8, 1.3])[:, None, None]
    return GaussianMixture(torch.zeros(n_cases, 2), loc, tril.expand(n_cases, 2, -1, -1).clone()), y


def fitted(n_targets: int, path: Path, n_cases: int) -> float:
    """Fit a `Recalibrator` and keep it in a file, unless it is there; the effective share of its pools."""
    from prerank import Recalibrator

    if not path.exists():
        Recalibrator().fit(*forecast_and_truth(n_cases, n_targets, 1)).save(path)
    found = Recalibrator.load(path)
    return min(step.verdict.effective_share for step in found.steps_ if hasattr(step, "verdict") and step.changed)


def _checked(n_cases: int, n_targets: int, learnt: Path, corrected: bool) -> Callable[[], object]:
    from prerank import Recalibrator, check

    forecast, y = forecast_and_truth(n_cases, n_targets, 2)
    few, few_y = forecast_and_truth(30, n_targets, 3)
    if corrected:
        step = Recalibrator.load(learnt)
        forecast, few = step.transform(forecast), step.transform(few)
    check(few_y, few)
    return lambda: check(y, forecast)


def _regions(n_cases: int, n_targets: int, learnt: Path, what: str) -> Callable[[], object]:
    from prerank import HighestDensityRegions, Recalibrator

    step = Recalibrator.load(learnt)
    (old, y), (new, new_y) = (forecast_and_truth(n_cases, n_targets, seed) for seed in (4, 5))
    old, new = step.transform(old), step.transform(new)
    if what == "fit":
        return lambda: HighestDensityRegions().fit(old, y)
    fitted_regions = HighestDensityRegions().fit(old, y)
    if what == "region and contains":
        return lambda: fitted_regions.region(new, 0.9).contains(new_y)
    region = fitted_regions.region(new, 0.9)
    return region.volume


def _fit(n_cases: int, n_targets: int) -> Callable[[], object]:
    from prerank import Recalibrator

    forecast, y = forecast_and_truth(n_cases, n_targets, 1)
    return lambda: Recalibrator().fit(forecast, y)


def one(task: str, n_cases: int, n_targets: int, learnt: Path) -> dict[str, float]:
    """Seconds of a task in this process."""
    if task == "prepare":
        return {"effective": fitted(n_targets, learnt, n_cases)}
    if task.startswith("check"):
        call = _checked(n_cases, n_targets, learnt, task == "check corrected")
    elif task.startswith("regions"):
        call = _regions(n_cases, n_targets, learnt, task.removeprefix("regions: "))
    else:
        call = _fit(n_cases, n_targets)
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return {"cpu_seconds": round(time.process_time() - cpu, 3), "seconds": round(time.perf_counter() - wall, 3)}


def measure(
    trees: dict[str, Path],
    cells: list[tuple[str, int, int]],
    n_repeats: int,
    n_repeats_old: int,
    threads: int,
    folder: Path,
    record: bool,
) -> list[dict[str, Any]]:
    """Records of all trees in turn; cells are (task, targets, cases)."""
    found: list[dict[str, Any]] = []
    shares: dict[tuple[str, int], float] = {}
    if cells[0][0] != "fit":
        for n_targets in sorted({cell[1] for cell in cells}):
            n_cases = min(N_FITTED, 2 * max(cell[2] for cell in cells))
            for name, tree in trees.items():
                share = _elsewhere("prepare", n_cases, n_targets, tree, threads, folder)["effective"]
                shares[name, n_targets] = round(share, 3)
                print(f"{name}, {n_targets} targets: effective share {share:.0%}", flush=True)
    for repeat in range(n_repeats):
        for task, n_targets, n_cases in cells:
            for name, tree in trees.items():
                if name != "now" and repeat >= n_repeats_old:
                    continue
                share = shares.get((name, n_targets), "")
                row = dict(zip(FIELDS, (name, task, n_targets, n_cases, threads, share, repeat), strict=False))
                found.append({**row, **_elsewhere(task, n_cases, n_targets, tree, threads, folder)})
                print(*found[-1].values(), flush=True)
                if record:
                    _record(found)
    return found


def _record(found: list[dict[str, Any]]) -> None:
    """What was found so far in the place of earlier records of the same tasks and numbers of targets."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    new, kept = {(row["task"], str(row["targets"])) for row in found}, []
    if RECORD.exists():
        with RECORD.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if (row["task"], row["targets"]) not in new]
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *found])


def _elsewhere(task: str, n_cases: int, n_targets: int, tree: Path, threads: int, folder: Path) -> dict[str, float]:
    """`one` in a process of its own, with the sources of a tree."""
    own = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(threads), "PRERANK_NUM_THREADS": str(threads)}
    learnt = folder / f"{'now' if tree == ROOT else tree.name}-{n_targets}.safetensors"
    words = [sys.executable, __file__, "--one", task, str(n_cases), str(n_targets), str(learnt)]
    done = subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tree}, {task}: {done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def cells_of(part: str, quick: bool) -> list[tuple[str, int, int]]:
    """What is measured: tasks with numbers of targets and cases."""
    if part == "fit":
        return [("fit", 2 if quick else 16, 60 if quick else 2048)]
    sizes = (2,) if quick else (2, 4, 16)
    n_cases, n_rows = (60, 40) if quick else (2000, 450)
    regions = ("regions: fit", "regions: region and contains", "regions: volume")
    return [
        *((task, n_targets, n_cases) for n_targets in sizes for task in ("check plain", "check corrected")),
        *((task, n_targets, n_rows) for n_targets in sizes[:2] for task in regions),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, nargs="*", default=[], help="other source trees, named by their folders")
    parser.add_argument("--part", choices=("use", "fit"), default="use")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--old-repeats", type=int, help="of other source trees, which may take long; as many by default"
    )
    parser.add_argument("--targets", type=int, nargs="*", help="only these numbers of targets")
    parser.add_argument("--fits", type=Path, help="a folder that keeps what was fitted, for further runs")
    parser.add_argument("--only", default="", help="only tasks that begin so")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        task, n_cases, n_targets, learnt = options.one
        print(json.dumps(one(task, int(n_cases), int(n_targets), Path(learnt))))
        return
    trees = {"now": ROOT, **{tree.name: tree.resolve() for tree in options.old}}
    cells = [cell for cell in cells_of(options.part, options.quick) if cell[1] in (options.targets or [cell[1]])]
    cells = [cell for cell in cells if cell[0].startswith(options.only)]
    with tempfile.TemporaryDirectory() as name:
        n_old = options.repeats if options.old_repeats is None else options.old_repeats
        folder = Path(name) if options.fits is None else options.fits
        found = measure(trees, cells, options.repeats, n_old, options.threads, folder, not options.quick)
    for tree in trees:
        for task, n_targets, n_cases in cells:
            own = [r for r in found if (r["tree"], r["task"], r["targets"]) == (tree, task, n_targets)]
            middle = median(row["cpu_seconds"] for row in own)
            print(f"{tree:10}{task:32}D={n_targets:<4}N={n_cases:<6}{middle:9.2f} s of processor time")


if __name__ == "__main__":
    main()
