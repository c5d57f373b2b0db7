"""What a call costs beside other programs: wall clock over that of one thread alone on a quiet machine.

    python benchmarks/contention.py --old DIR     now and before (another source tree), three quarters of an hour
    python benchmarks/contention.py --quick       a few cells, to see it work

Beside zero, one, two and four processes that compute (a Python loop, matrix products of NumPy, operations of torch) run
a small and a larger `check`, a `Recalibrator` and a regressor's fit: ten calls in a process of their own after a warm-up,
or as many as fit into 15 seconds. Trees take turns under the same neighbours. The floor is what a program of fixed work
without any threads loses there. Further rows: the same bits with one, two and three threads, and two threads against one
without neighbours.

Cells that are in the file already are left out, so that an interrupted run goes on where it was. Start it on a machine that
does nothing else.
"""

import argparse
import csv
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = ("loop", "numpy", "torch")
NOBODY = ("", 0)
CALLS = 10  # of each cell
BUDGET = 15.0  # seconds after which a cell starts no further call
LIMIT = 60  # seconds after which a cell is ended, and what it was at counted with these


class Cell(NamedTuple):
    """What is measured, by which tree, with how many threads (0: as it comes), beside whom."""

    task: str
    tree: str
    threads: int
    kind: str
    beside: int


# What is measured, in a process of its own


def bits(*arrays: Any) -> str:
    import numpy as np

    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def check_of(n_cases: int, n_members: int, n_targets: int) -> Callable[[], str]:
    import numpy as np

    from prerank import check

    truth = np.random.default_rng(1).normal(size=(n_cases, n_members + 1, n_targets))

    def call() -> str:
        result = check(truth[:, 0], 0.9 * truth[:, 1:])
        numbers = result.table.select_dtypes("number").to_numpy(dtype=float)
        return bits(result.pit.lower, result.pit.upper, numbers)

    return call


def recalibration() -> Callable[[], str]:
    import numpy as np

    from prerank import Recalibrator, as_ensemble
    from prerank.forecasts import equally_weighted_draws

    truth = np.random.default_rng(2).normal(size=(600, 31, 3))
    y, members = 1.3 * truth[:300, 0] + 0.2, as_ensemble(truth[:300, 1:])
    others = as_ensemble(truth[300:, 1:])

    def call() -> str:
        corrected = Recalibrator().fit(members, y).transform(others)
        return bits(equally_weighted_draws(corrected, 100).members)

    return call


def regressor() -> Callable[[], str]:
    import warnings

    from prerank import MixtureRegressor
    from prerank.datasets import Bimodal

    table = Bimodal().table(2000)

    def call() -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the epochs are too few
            model = MixtureRegressor(max_epochs=30, random_state=0).fit(table.x, table.y)
        return bits(model.predict(table.x))

    return call


def fixed_work() -> Callable[[], str]:
    import numpy as np

    def call() -> str:
        rng, total = np.random.default_rng(3), 0
        for _ in range(60):
            total += sum(number & 7 for number in range(20_000))
            total += int(np.sort(rng.normal(size=20_000)).argmax())
        return str(total)

    return call


TASKS: dict[str, Callable[[], Callable[[], str]]] = {
    "check 500 x 30 x 4": lambda: check_of(500, 30, 4),
    "check 10,000 x 20 x 10": lambda: check_of(10_000, 20, 10),
    "recalibrator 300 x 30 x 3": recalibration,
    "regressor 2,000 rows": regressor,
    "check 10,000 x 100 x 16": lambda: check_of(10_000, 100, 16),
    "check 100 x 10 x 2": lambda: check_of(100, 10, 2),
    "fixed work": fixed_work,
}
COMPARED = list(TASKS)[:4]
FLOOR = "fixed work"


def measure(task: str, threads: int) -> None:
    """Print seconds of calls after a warm-up, and the bits of each result, a line for each."""
    if threads and task != FLOOR:
        grant(threads)
    call = TASKS[task]()
    call()
    print("warm", flush=True)
    begin = time.perf_counter()
    for _ in range(CALLS):
        start = time.perf_counter()
        found = call()
        print(json.dumps({"seconds": time.perf_counter() - start, "bits": found}), flush=True)
        if time.perf_counter() - begin > BUDGET:
            return


def grant(threads: int) -> None:
    """As many threads as are asked for, also more than there are processors."""
    import torch

    torch.set_num_threads(threads)
    try:
        from prerank._parallel import spreading
    except ImportError:  # an older tree
        return
    spreading._processors = lambda: threads  # type: ignore[assignment]


# Who computes beside it


def compute(kind: str) -> None:
    """Until it is ended."""
    if kind == "numpy":
        import numpy as np

        values = np.random.default_rng(0).normal(size=(500, 500))
        step: Callable[[], object] = lambda: values @ values  # noqa: E731
    elif kind == "torch":
        import torch

        numbers = torch.rand(200_000)
        step = lambda: numbers.exp().sum()  # noqa: E731
    else:
        step = lambda: sum(range(10_000))  # noqa: E731
    step()
    print("computing", flush=True)
    while True:
        step()


@contextmanager
def neighbours(kind: str, count: int) -> Iterator[None]:
    """Processes that compute; each is ended by its number, whatever happens."""
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            command = [sys.executable, __file__, "--beside", kind]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(ROOT, 0)))
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


# The run


def environment(tree: Path, threads: int) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if threads:
        own |= {"OMP_NUM_THREADS": str(threads), "PRERANK_NUM_THREADS": str(threads)}
    return own | {"PYTHONPATH": str(tree / "src")}


def run(cell: Cell, trees: dict[str, Path]) -> list[dict[str, Any]]:
    """Seconds and bits of each call; a cell that is ended counts what it was at with the limit."""
    command = [sys.executable, __file__, "--measure", cell.task, "--threads", str(cell.threads)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(trees.get(cell.tree, ROOT), cell.threads)
    )
    ended = True
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        ended = False
    finally:
        process.kill()
        if not ended:
            output, _ = process.communicate()
        process.wait()
    if ended and process.returncode:
        raise SystemExit(f"{cell} failed with status {process.returncode}")
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return found or [{"seconds": LIMIT, "bits": "not ended"}]


def planned(trees: dict[str, Path], quick: bool, only: list[str]) -> list[Cell]:
    """All cells: neighbours change rarely, trees take turns within a repeat."""
    tasks = COMPARED[:1] if quick else [name for name in COMPARED if name in only]
    beside = [NOBODY, ("loop", 1)] if quick else [NOBODY, *((kind, n) for n in (1, 2, 4) for kind in KINDS)]
    sizes = tasks if quick else [name for name in only if name != FLOOR]
    cells = [Cell(task, "now", threads, *NOBODY) for task in sizes for threads in (1, 2, 3)]
    for kind, count in beside:
        cells += [Cell(FLOOR, "now", 1, kind, count)]
        cells += [Cell(task, tree, 0, kind, count) for task in tasks for tree in trees]
    return cells


def collect(path: Path, trees: dict[str, Path], quick: bool, only: list[str], seconds: float) -> None:
    begin = time.perf_counter()
    done = {Cell(*row[:2], int(row[2]), row[3], int(row[4])) for row in rows_of(path)}
    left = [cell for cell in planned(trees, quick, only) if cell not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.writer(file)
        if new:
            table.writerow([*Cell._fields, "call", "seconds", "bits"])
        while left:
            kind, count = left[0].kind, left[0].beside
            some = [cell for cell in left if (cell.kind, cell.beside) == (kind, count)]
            with neighbours(kind, count):
                for cell in some:
                    if time.perf_counter() - begin > seconds:
                        raise SystemExit("out of time: run again to go on")
                    found = run(cell, trees)
                    table.writerows([*cell, k, f"{one['seconds']:.4f}", one["bits"]] for k, one in enumerate(found))
                    file.flush()
                    print(*cell, *(f"{one['seconds']:.2f}" for one in found), flush=True)
            left = [cell for cell in left if cell not in some]


def rows_of(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def summary(path: Path) -> str:
    """Tables of the file, in Markdown."""
    import pandas as pd

    found = pd.read_csv(path, keep_default_na=False)
    alone = found[(found.threads == 1) & (found.beside == 0) & (found.tree == "now")].groupby("task").seconds.median()
    found["ratio"] = found.seconds / found.task.map(alone)
    asked = found[(found.threads == 0) | (found.task == FLOOR)]
    lines = [
        "# Beside other programs",
        "",
        "Wall clock over that of one thread alone: median, and the worst of all repeats.",
        "",
    ]
    trees = list(dict.fromkeys(asked[asked.task != FLOOR].tree))
    floor = asked[asked.task == FLOOR]
    for task in dict.fromkeys(asked[asked.task != FLOOR].task):
        lines += [f"## {task} ({alone[task]:.3g} s alone)", ""]
        lines += table_line("beside", *trees, "a program without threads"), table_line(*["---"] * (len(trees) + 2))
        own = asked[asked.task == task]
        for kind, count in dict.fromkeys(zip(own.kind, own.beside, strict=True)):
            parts = [own[(own.kind == kind) & (own.beside == count) & (own.tree == tree)].ratio for tree in trees]
            parts.append(floor[(floor.kind == kind) & (floor.beside == count)].ratio)
            lines.append(table_line(f"{count} {kind}" if count else "nobody", *map(median_and_worst, parts)))
        lines.append("")
    quiet = found[(found.threads > 0) & (found.task != FLOOR)]
    lines += [
        "## Threads, without neighbours",
        "",
        table_line("task", "1 thread, s", "2 threads over 1", "the same bits"),
    ]
    lines.append(table_line(*["---"] * 4))
    for task in dict.fromkeys(quiet.task):
        own = quiet[quiet.task == task]
        one, two = (own[own.threads == n].seconds.median() for n in (1, 2))
        same = "yes" if own.bits.nunique() == 1 else "no"
        lines.append(table_line(task, f"{one:.3g}", f"{two / one:.2f}", f"{same} ({own.threads.nunique()} numbers)"))
    return "\n".join(lines) + "\n"


def table_line(*parts: str) -> str:
    return "| " + " | ".join(parts) + " |"


def median_and_worst(ratios: Any) -> str:
    return f"{ratios.median():.2f} ({ratios.max():.2f})" if len(ratios) else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="another source tree, measured as `before`")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "contention", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a few cells, in a file of their own")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), help="some of what is measured")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no cell after so many seconds")
    parser.add_argument("--measure", choices=list(TASKS), help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--beside", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beside:
        compute(options.beside)
    if options.measure:
        measure(options.measure, options.threads)
        return
    trees = {"now": ROOT} | ({"before": options.old.resolve()} if options.old else {})
    path = options.out / ("quick.csv" if options.quick else "contention.csv")
    try:
        collect(path, trees, options.quick, options.tasks, options.seconds)
    finally:
        if path.exists():
            path.with_suffix(".md").write_text(summary(path))
    print(f"{path.with_suffix('.md')}")


if __name__ == "__main__":
    main()
