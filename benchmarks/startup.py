"""Processor time from nothing to a first answer, beside `import torch`.

    python benchmarks/startup.py                               this tree
    python benchmarks/startup.py --old DIR DIR --repeats 15    others too, in turn, into results/startup/startup.csv

Every measurement is a process of its own: user and system time until it ends, so that other programs on the machine matter
little. All trees and commands take turns, so that a busy moment meets all of them. Sources are compiled before, as those of
an installed package are, also where the environment says that Python is to write no compiled files.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "startup" / "startup.csv"
_BEFORE = "import atexit, sys, time\natexit.register(lambda: sys.stderr.write(f'\\n{time.process_time()}'))\n"
_COMMAND = "sys.argv = {!r}\nfrom prerank.cli import main\nmain()"
PLAIN = {"python": "pass", "import torch": "import torch"}  # the same whatever the tree
OURS = {
    "import prerank": "import prerank",
    "from prerank import check": "from prerank import check",
    "prerank --version": _COMMAND.format(["prerank", "--version"]),
    "prerank --help": _COMMAND.format(["prerank", "--help"]),
    "prerank check --help": _COMMAND.format(["prerank", "check", "--help"]),
    "prerank check of a file that is not there": _COMMAND.format(["prerank", "check", "nowhere.npz"]),
    "prerank check of 50 cases": _COMMAND.format(["prerank", "check", "small.npz"]),
}


def seconds(code: str, tree: Path, folder: str) -> float:
    """Processor time of an interpreter that runs the code with the sources of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE + code], capture_output=True, text=True, cwd=folder, env=environment
    )
    if done.returncode not in (0, 2):  # 2: refused, as it should be
        raise RuntimeError(done.stderr)
    return float(done.stderr.splitlines()[-1])


def measure(trees: dict[str, Path], n_repeats: int) -> list[dict[str, str | int | float]]:
    """A record of every repeat: tree, what was run, and seconds."""
    cells = [("", ROOT, what, code) for what, code in PLAIN.items()]
    cells += [(name, tree, what, code) for name, tree in trees.items() for what, code in OURS.items()]
    found: list[dict[str, str | int | float]] = []
    with tempfile.TemporaryDirectory() as folder:
        points = np.random.default_rng(1).normal(size=(50, 11, 3))
        np.savez(Path(folder) / "small.npz", members=points[:, 1:], observations=points[:, 0])
        for _, tree, _, code in cells:
            seconds(code, tree, folder)  # files come from the disk once, and are compiled
        for repeat in range(n_repeats):
            for name, tree, what, code in cells:
                spent = round(seconds(code, tree, folder), 4)
                found.append({"tree": name, "what": what, "repeat": repeat, "seconds": spent})
    return found


def medians(found: list[dict[str, str | int | float]]) -> dict[tuple[str, str], float]:
    """Median seconds by tree and what was run."""
    cells = list(dict.fromkeys((str(row["tree"]), str(row["what"])) for row in found))
    return {
        cell: median(float(row["seconds"]) for row in found if (row["tree"], row["what"]) == cell) for cell in cells
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, nargs="*", default=[], help="other source trees, named by their folders")
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    trees = {"now": ROOT, **{tree.name: tree.resolve() for tree in options.old}}
    found = measure(trees, options.repeats)
    middle = medians(found)
    torch = middle["", "import torch"]
    print(f"{'':54}{'ms':>8}{'of torch':>10}")
    for (tree, what), value in middle.items():
        print(f"{tree:10}{what:44}{1000 * value:8.0f}{value / torch:10.2f}")
    if options.old:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        with RECORD.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["tree", "what", "repeat", "seconds"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
