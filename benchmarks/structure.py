"""How large is the house, and how many rooms does a call pass? Counts of a source tree, or of two side by side.

    python benchmarks/structure.py                        # this tree
    python benchmarks/structure.py --old TREE             # another tree beside it
    python benchmarks/structure.py --out results/structure

Lines are those of code: docstrings, comments and blank lines are left out. A journey counts the modules in which a
function of its own is called, in any thread, while imports are finished. Exports are the names in `__all__` of public
packages; one without a reference is named on no page of docs/reference. Import time is the median of five processes.
"""

import argparse
import ast
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]

PREPARED = """
import sys, threading, numpy as np, tempfile, os, contextlib, io
seen = set()
def profile(frame, event, arg):
    if event == "call":
        code = frame.f_code
        name = frame.f_globals.get("__name__", "")
        if name.startswith("prerank") and code.co_name not in ("<module>", "<lambda>"):
            seen.add(name)
rng = np.random.default_rng(0)
common = rng.normal(size=(300, 1, 1))
members = common + rng.normal(size=(300, 20, 3))
y = common[:, 0] + rng.normal(size=(300, 3))
def start():
    threading.setprofile(profile); sys.setprofile(profile)
"""
JOURNEYS = {
    "check(arrays)": """
from prerank import check
check(y, members)
start()
check(y, members)
""",
    "fit, one epoch": """
import torch
from prerank import MixtureRegressor
def fit():
    MixtureRegressor.paper(max_epochs=1).fit(rng.normal(size=(300, 4)), y)
fit()
start()
fit()
""",
    "Recalibrator: fit, transform, check": """
from prerank import Recalibrator, check
def journey():
    check(y[150:], Recalibrator().fit(members[:150], y[:150]).transform(members[150:]))
journey()
start()
journey()
""",
    "CSV to HTML report": """
import pandas as pd
from prerank.cli import main
folder = tempfile.mkdtemp()
rows = [(i, m, d, members[i, m, d]) for i in range(60) for m in range(10) for d in range(3)]
pd.DataFrame(rows, columns=["case", "member", "target", "value"]).to_csv(folder + "/f.csv", index=False)
own = [(i, d, y[i, d]) for i in range(60) for d in range(3)]
pd.DataFrame(own, columns=["case", "target", "value"]).to_csv(folder + "/o.csv", index=False)
def journey():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.argv = ["prerank", "check", folder + "/f.csv", folder + "/o.csv", "--html", folder + "/r.html"]
        main()
journey()
assert os.path.exists(folder + "/r.html")
start()
journey()
""",
}


def code_lines(path: Path) -> int:
    """Lines of code of a file, without docstrings, comments and blank lines."""
    source = path.read_text()
    counted: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            if token.type not in (*skipped, tokenize.ENCODING, tokenize.ENDMARKER):
                counted.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                counted -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(counted)


def size_of(folders: list[Path]) -> dict[str, int]:
    files = [path for folder in folders if folder.exists() for path in sorted(folder.rglob("*.py"))]
    return {"modules": len(files), "lines": sum(map(code_lines, files))}


def run(tree: Path, code: str) -> str:
    paths = os.pathsep.join(str(tree / part) for part in ("src", "reproduction/src"))
    environment = {**os.environ, "PYTHONPATH": paths, "PRERANK_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
    if found.returncode:
        raise SystemExit(f"{tree}: {found.stderr[-2000:]}")
    return found.stdout


def modules_of_journey(tree: Path, code: str) -> int:
    ending = "\nsys.setprofile(None); threading.setprofile(None)\nprint('MODULES', len(seen))"
    return int(re.findall(r"MODULES (\d+)", run(tree, PREPARED + code + ending))[-1])


def exports(tree: Path) -> dict[str, int]:
    """Names in `__all__` of packages without an underscore, and those that no page of the reference names."""
    names: set[str] = set()
    folder = tree / "src" / "prerank"
    for path in sorted(folder.rglob("__init__.py")):
        parts = path.parent.relative_to(folder).parts
        if any(part.startswith("_") for part in parts):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                text = ast.unparse(node.value)
                names.update(re.findall(r"'([A-Za-z]\w*)'", text))
    pages = "".join(page.read_text() for page in (tree / "docs" / "reference").glob("*.md"))
    known = set(re.findall(r"\w+", pages))
    return {"exports": len(names), "exports without a reference": len(names - known)}


def asks_for_type(tree: Path) -> int:
    pattern = re.compile(r"isinstance\([^)]*\b(Ensemble|GaussianMixture)\b")
    folder = tree / "src" / "prerank"
    lines = (line for path in folder.rglob("*.py") for line in path.read_text().splitlines())
    return sum(bool(pattern.search(line)) for line in lines)


def import_seconds(tree: Path, what: str) -> float:
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        run(tree, what)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def wheel_kilobytes(tree: Path) -> float | None:
    if importlib.util.find_spec("build") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(tree)],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if made.returncode or not wheels:
            return None
        return wheels[0].stat().st_size / 1000


def measures(tree: Path) -> dict[str, float | int | None]:
    src = tree / "src" / "prerank"
    study = [tree / "reproduction" / "src", src / "studies", src / "benchmark", src / "simulations"]
    inside = size_of([folder for folder in study if folder.is_relative_to(src)])
    whole = size_of([src])
    found: dict[str, float | int | None] = {f"{key} of the library": whole[key] - inside[key] for key in whole}
    found |= {f"{key} of the study": value for key, value in size_of(study).items()}
    found |= {f"modules: {name}": modules_of_journey(tree, code) for name, code in JOURNEYS.items()}
    found |= exports(tree)
    found["lines that ask for a forecast's type"] = asks_for_type(tree)
    found["wheel, kB"] = wheel_kilobytes(tree)
    torch = import_seconds(tree, "import torch")
    found["import of check over that of torch"] = import_seconds(tree, "from prerank import check") / torch
    return found


def table(columns: dict[str, dict[str, float | int | None]]) -> str:
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for name in next(iter(columns.values())):
        cells = [column[name] for column in columns.values()]
        shown = ["" if cell is None else f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}" for cell in cells]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, default=None, help="another tree, counted in the same way")
    parser.add_argument("--out", type=Path, default=None, help="folder for structure.json and structure.md")
    options = parser.parse_args()
    trees = ({"before": options.old.resolve()} if options.old else {}) | {"now": ROOT}
    columns = {name: measures(tree) for name, tree in trees.items()}
    print(table(columns))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "structure.json").write_text(json.dumps(columns, indent=2) + "\n")
        (options.out / "structure.md").write_text(f"# The size of the source\n\n{table(columns)}\n")


if __name__ == "__main__":
    main()
