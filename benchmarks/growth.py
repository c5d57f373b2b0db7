"""How the processor time of a check grows, and what it takes beside other source trees.

    python benchmarks/growth.py                     curves over N, M, D, models and threads, into results/growth/growth.csv
    python benchmarks/growth.py --old DIR DIR       five sizes by this tree and others in turn, into results/growth/trees.csv
    python benchmarks/growth.py --memory            peaks of fresh processes, into results/growth/memory.csv
    python benchmarks/growth.py --table             exponents, from the record

A curve changes one number and keeps the others at 1,000 cases, 50 members, 5 targets, one model and one thread. Everything
is checked by the pre-ranks of the paper with 999 replicates; several models are ranked and tested together, without
intervals. Marginal ranks of xskillscore stand beside ours where that is installed. Seconds are of the processor, medians of
three after a first call. With `--old`, memory is the peak of the whole process. Cells that are in the file are left out, so
that an interrupted run goes on where it was.
"""

import argparse
import csv
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "growth"
MIDDLE = {"cases": 1000, "members": 50, "targets": 5, "models": 1, "threads": 1}
CURVES = {
    "cases": (250, 500, 1000, 2000, 4000, 8000),
    "members": (12, 25, 50, 100, 200, 400),
    "targets": (3, 5, 10, 20, 40),
    "models": (1, 2, 4, 8),
    "threads": (1, 2),
}
NAMES = {"prerank": "check", "prerank ranks": "marginal ranks", "xskillscore": "marginal ranks, xskillscore"}
WITHOUT_PEER = ("models", "threads")
SIZES = ((500, 30, 4), (1000, 100, 4), (10_000, 20, 10), (2_000, 50, 25), (10_000, 100, 16))
REPEATS = 3
_WORKER = """
import sys, time
import numpy as np
from prerank import check
points = np.random.default_rng(1).normal(size=tuple(map(int, sys.argv[1:])))
y, members = points[:, 0].copy(), 0.9 * points[:, 1:]
check(y, members)
for line in sys.stdin:
    start = time.process_time()
    check(y, members)
    print(time.process_time() - start, flush=True)
"""


def planned() -> list[tuple[str, str, dict[str, int]]]:
    """Curve, contender and size of every cell."""
    cells = [(curve, "prerank", MIDDLE | {curve: value}) for curve, values in CURVES.items() for value in values]
    for name in ("prerank ranks", "xskillscore"):
        if importlib.util.find_spec("xskillscore"):
            cells += [(c, name, MIDDLE | {c: v}) for c in CURVES if c not in WITHOUT_PEER for v in CURVES[c]]
    return cells


def work_of(contender: str, size: dict[str, int]) -> Callable[[], object]:
    """What is measured."""
    import torch

    from prerank import Ensemble, Marginal, check, pce_test, projected_pit
    from score_times import _contender

    n_cases, n_members, n_targets = size["cases"], size["members"], size["targets"]
    points = np.random.default_rng(1).normal(size=(size["models"], n_cases, n_members + 1, n_targets))
    y, members = points[:, :, 0].copy(), 0.9 * points[:, :, 1:]
    if contender == "xskillscore":
        ranks = _contender("marginal ranks", "xskillscore")
        return lambda: ranks(y[0], members[0])
    torch.set_num_threads(size["threads"])
    if contender == "prerank ranks":
        forecast = Ensemble(torch.from_numpy(members[0]))
        return lambda: projected_pit(torch.from_numpy(y[0]), forecast, Marginal())
    if size["models"] == 1:
        return lambda: check(y[0], Ensemble(torch.from_numpy(members[0])))
    several = torch.from_numpy(y), Ensemble(torch.from_numpy(members))
    return lambda: pce_test(projected_pit(*several, exchangeable=True))


def curves(path: Path) -> None:
    """Measure the cells that are left."""
    done = {(row["curve"], row["contender"], row[row["curve"]]) for row in rows_of(path)}
    for curve, contender, size in planned():
        if (curve, contender, str(size[curve])) in done:
            continue
        call, seconds, walls = work_of(contender, size), [], []
        call()
        for _ in range(REPEATS):
            begin, start = time.perf_counter(), time.process_time()
            call()
            seconds.append(time.process_time() - start)
            walls.append(time.perf_counter() - begin)
        row = {"curve": curve, "contender": contender} | size
        row |= {"seconds": f"{median(seconds):.4f}", "wall": f"{median(walls):.4f}"}
        append(path, row)


def memory(path: Path) -> None:
    """What a fresh process takes at the last two values of every curve of data, with its libraries and its data."""
    done = {(row["curve"], row["contender"], row[row["curve"]]) for row in rows_of(path)}
    own = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    for curve, contender, size in planned():
        again = (curve, contender, str(size[curve])) in done
        if again or curve in WITHOUT_PEER or contender == "prerank ranks" or size[curve] not in CURVES[curve][-2:]:
            continue
        words = [sys.executable, __file__, "--one", contender, *map(str, size.values())]
        peak = float(subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ | own).stdout)
        append(path, {"curve": curve, "contender": contender} | size | {"process_peak_mb": f"{peak:.0f}"})


def trees(path: Path, folders: list[Path]) -> None:
    """Five sizes by several trees, which take turns, each in a process that goes on."""
    own = {"now": ROOT} | {folder.name: folder.resolve() for folder in folders}
    done = {(row["cases"], row["members"], row["targets"]) for row in rows_of(path)}
    for size in SIZES:
        if tuple(map(str, size)) in done:
            continue
        shape = [str(size[0]), str(size[1] + 1), str(size[2])]
        workers = {}
        for name, tree in own.items():
            environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
            workers[name] = subprocess.Popen(
                [sys.executable, "-c", _WORKER, *shape],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        found: list[dict[str, Any]] = []
        for repeat in range(REPEATS):
            for name, worker in workers.items():
                assert worker.stdin is not None
                assert worker.stdout is not None
                worker.stdin.write("\n")
                worker.stdin.flush()
                seconds = float(worker.stdout.readline())
                cell = dict(zip(("cases", "members", "targets"), size, strict=True))
                found.append(cell | {"tree": name, "repeat": repeat, "seconds": f"{seconds:.4f}"})
        peaks = {name: peak_of(worker) for name, worker in workers.items()}
        for row in found:
            append(path, row | {"process_peak_mb": f"{peaks[row['tree']]:.0f}"})


def peak_of(worker: "subprocess.Popen[str]") -> float:
    """The most memory that a process has had, in MB, before it is told to end."""
    peak = highest(worker.pid)
    worker.communicate()
    return peak


def highest(process: int) -> float:
    """The most memory that a process has had so far, in MB; not a number where the system does not say."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return math.nan
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e3


def append(path: Path, row: dict[str, Any]) -> None:
    """A row at the end of a table, which is begun if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def exponent(rows: list[dict[str, str]], curve: str, contender: str, column: str = "seconds") -> float:
    """The power with which a column grows over the upper half of a curve, by least squares of logarithms."""
    own = [row for row in rows if (row["curve"], row["contender"]) == (curve, contender)]
    own = own[len(own) // 2 - (len(own) % 2 == 0) :]
    x, y = (np.log([float(row[name]) for row in own]) for name in (curve, column))
    return float(np.polyfit(x, y, 1)[0])


def table(rows: list[dict[str, str]]) -> list[str]:
    """Lines for the page."""
    lines = [
        "| of | over | from | to | seconds | grows with the power |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for contender, curve in ((contender, curve) for contender in NAMES for curve in CURVES if curve != "threads"):
        own = [row for row in rows if (row["curve"], row["contender"]) == (curve, contender)]
        if not own:
            continue
        first, last = own[0], own[-1]
        lines.append(
            f"| {NAMES[contender]} | {curve} | {int(first[curve]):,} | {int(last[curve]):,} | "
            f"{float(first['seconds']):.3g} to {float(last['seconds']):.3g} | {exponent(rows, curve, contender):.2f} |"
        )
    return lines


def memory_lines(rows: list[dict[str, str]]) -> list[str]:
    """Lines for the page: peaks, and where a straight line through the two of a curve reaches 16 GB."""
    lines = ["| over | of | at | MB | at | MB | 16 GB at about |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for curve, contender in dict.fromkeys((row["curve"], row["contender"]) for row in rows):
        own = [row for row in rows if (row["curve"], row["contender"]) == (curve, contender)]
        (a, low), (b, high) = ((int(row[curve]), float(row["process_peak_mb"])) for row in own)
        end = f" {float(f'{b + (16_000 - high) * (b - a) / (high - low):.1g}'):,.0f}" if high > low else ""
        name = "check" if contender == "prerank" else contender
        lines.append(f"| {curve} | {name} | {a:,} | {low:,.0f} | {b:,} | {high:,.0f} |{end} |")
    return lines


def size_lines(rows: list[dict[str, str]]) -> list[str]:
    """Lines for the page: what each size takes now."""
    lines = ["| cases | members | targets | seconds | memory, MB |", "| ---: | ---: | ---: | ---: | ---: |"]
    for size in _sizes(rows):
        own = [row for row in rows if _size(row) == size and row["tree"] == "now"]
        peak = float(own[0]["process_peak_mb"])
        lines.append(f"| {' | '.join(f'{n:,}' for n in size)} | {_middle(own):.2f} | {peak:.0f} |")
    return lines


def tree_lines(rows: list[dict[str, str]]) -> list[str]:
    """Lines with all trees: seconds, and the peak of the process in MB."""
    names = list(dict.fromkeys(row["tree"] for row in rows))
    names = [*names[1:], names[0]]
    lines = [f"| size | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for size in _sizes(rows):
        cells = []
        for name in names:
            own = [row for row in rows if _size(row) == size and row["tree"] == name]
            cells.append(f"{_middle(own):.2f} s, {float(own[0]['process_peak_mb']):.0f} MB")
        lines.append(f"| {' x '.join(f'{n:,}' for n in size)} | {' | '.join(cells)} |")
    return lines


def _sizes(rows: list[dict[str, str]]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(_size(row) for row in rows))


def _size(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in ("cases", "members", "targets"))


def _middle(rows: list[dict[str, str]]) -> float:
    return median(float(row["seconds"]) for row in rows)


def figure(rows: list[dict[str, str]], path: Path) -> None:
    """Seconds over each number that changes, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [curve for curve in CURVES if curve != "threads" and any(row["curve"] == curve for row in rows)]
    fig, axes = plt.subplots(1, len(shown), figsize=(11, 3), sharey=True, squeeze=False, layout="constrained")
    for ax, curve in zip(axes[0], shown, strict=True):
        for contender, label in NAMES.items():
            own = [row for row in rows if (row["curve"], row["contender"]) == (curve, contender)]
            if own:
                ax.loglog([int(row[curve]) for row in own], [float(row["seconds"]) for row in own], "o-", label=label)
        ax.set_xticks(CURVES[curve], [f"{value:,}" for value in CURVES[curve]], rotation=45, fontsize=8)
        ax.minorticks_off()
        ax.set_xlabel(curve)
    axes[0, 0].set_ylabel("processor seconds")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    fig.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, nargs="+", help="other source trees, named by their folders")
    parser.add_argument("--memory", action="store_true", help="peaks of memory")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="lines for the page, from the record")
    parser.add_argument("--figure", type=Path, help="draw the record into this file")
    options = parser.parse_args()
    path = FOLDER / "growth.csv"
    if options.one:
        work_of(options.one[0], dict(zip(MIDDLE, map(int, options.one[1:]), strict=True)))()
        print(highest(os.getpid()))
    elif options.memory:
        memory(FOLDER / "memory.csv")
    elif options.old:
        trees(FOLDER / "trees.csv", options.old)
    elif options.table or options.figure:
        rows = rows_of(path)
        others = rows_of(FOLDER / "trees.csv")
        peaks = memory_lines(rows_of(FOLDER / "memory.csv"))
        print("\n".join([*table(rows), *peaks, *size_lines(others), *tree_lines(others)]))
        if options.figure:
            figure(rows, options.figure)
    else:
        curves(path)


if __name__ == "__main__":
    main()
