"""Would the tests notice? Small faults are put into the core, one at a time, and the tests must fail.

    python benchmarks/mutants.py --sample 400 --seed 0         # a stratified random sample of the whole core
    python benchmarks/mutants.py --changed HEAD~3              # every mutant of the files changed since a revision
    python benchmarks/mutants.py --only scores forecasts       # some packages or modules; also with the two above
    python benchmarks/mutants.py --again build/mutants/abc/results.jsonl     # the survivors of an earlier run

Needs the extra `mutants`. The faults are those of cosmic-ray (operators, comparisons, numbers, booleans, loops, handlers,
decorators), kept to the replacements somebody might have written by mistake: `+` becomes `-`, not `>>`, whose crash
no test could miss. Two kinds are added through its plugin class, since this code's faults are often of them: a keyword
argument left out (`correction=0`) and a method left out (`.detach()`). mutmut, by its source, leaves out functions with
a decorator, which are most of the public ones here.

Left alone is what no test on a CPU could tell: message texts and annotations; branches for a GPU, and functions that
only such branches call; the size of a piece where work is cut into pieces (the last arguments of `chunks`, `blocks`,
`at_once`, `over_cases`, `by_columns`, and those of `lru_cache`), which costs time and memory and changes no number; and
what is assigned to names that only these places read.

A place in the code is sampled first, then one fault there; strata are modules, in proportion to their places. Tests
run once under coverage; a mutant meets those tests of its package's folders that execute its statement, the fastest
first, until one fails or 20 seconds of tests are over. What is left then meets the slower ones, for up to 40 more
seconds. The checkout is never touched: each of the workers has its own copy of the tree. Results are JSON lines in a
folder named after the content of the tree, so a run that is stopped goes on where it was. Time-outs count as killed.
`benchmarks/survivors.md` holds the reasons of known survivors; a mutant stays a survivor in the first score whatever
its reason, and a second one leaves out those proven equivalent.
"""

import argparse
import ast
import compileall
import difflib
import functools
import hashlib
import importlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator

ROOT = Path(__file__).parents[1]
CORE = (
    "calibration",
    "preranks",
    "forecasts",
    "inputs",
    "recalibration",
    "scores",
    "training/penalty.py",
    "training/tuning.py",
    "datasets/splitting.py",
    "datasets/cleaning.py",
    "_parallel",
    "diagnosis/plane.py",
    "diagnosis/recommendation.py",
    "plotting/plane.py",
)
TESTS = {
    "calibration": ("tests/calibration", "tests/diagnosis", "tests/test_bad_inputs.py"),
    "preranks": ("tests/calibration", "tests/diagnosis", "tests/test_bad_inputs.py"),
    "forecasts": ("tests/forecasts", "tests/diagnosis", "tests/test_bad_inputs.py"),
    "inputs": ("tests/forecasts", "tests/diagnosis", "tests/test_bad_inputs.py"),
    "recalibration": ("tests/recalibration",),
    "scores": ("tests/scores", "tests/test_bad_inputs.py"),
    "training": ("tests/training", "tests/test_bad_inputs.py"),
    "datasets": ("tests/data", "tests/test_bad_inputs.py"),
    "_parallel": ("tests/test_parallel.py",),
    "diagnosis": ("tests/diagnosis", "tests/test_bad_inputs.py"),
    "plotting": ("tests/diagnosis", "tests/plotting"),
}
COPIED = ("src", "tests", "benchmarks", "docs", "README.md", "pyproject.toml")
# Seconds of tests that a mutant meets, and those that a survivor meets after them: leaving out the slowest can only make the
# score lower, and without a limit nearly all the time would go into the survivors.
MOST_SECONDS = 20.0
MORE_SECONDS = 40.0
SURVIVORS = ROOT / "benchmarks" / "survivors.md"
# what the tests import anyway: loaded once, so that a mutant's process, a fork of this one, starts in a moment
PRELOADED = (
    *("torch", "torch.distributions", "scipy.stats", "pandas", "sklearn.base", "xarray", "scoringrules"),
    *("matplotlib.pyplot", "hypothesis", "pytest"),
)

NEAREST = {
    "ReplaceBinaryOperator": (
        "Add_Sub Sub_Add Mul_Div Mul_Add Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul BitAnd_BitOr BitOr_BitAnd BitXor_BitOr"
    ),
    "ReplaceComparisonOperator": (
        "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
    ),
    "ReplaceUnaryOperator": "Delete_USub Delete_Not Delete_Invert",
}
WHOLE = (
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
)


class LeaveOutKeyword(Operator):
    """f(x, keyword=value) becomes f(x)."""

    def mutation_positions(self, node: Any) -> list[tuple[Any, Any]]:  # a list: the node is mutated while it is read
        return [(argument.start_pos, argument.end_pos) for argument in self._keywords(node)]

    def mutate(self, node: Any, index: int) -> Any:
        unwanted = self._keywords(node)[index]
        if node.type == "trailer":  # the only argument
            node.children.remove(unwanted)
        else:
            place = node.children.index(unwanted)
            comma = place - 1 if place else 1
            for child in sorted((place, comma), reverse=True):
                del node.children[child]
        return node

    @staticmethod
    def _keywords(node: Any) -> list[Any]:
        if node.type not in ("trailer", "arglist"):
            return []
        children = [child for child in node.children if child.type == "argument"]
        # where a result is kept is no business of a test on a CPU
        return [
            child
            for child in children
            if child.children[1].type == "operator"
            and child.children[1].value == "="
            and child.children[0].value not in ("device", "name", "stream")
        ]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("f(x, y=1)", "f(x)"),)


class LeaveOutMethod(Operator):
    """x.method() becomes x, for methods that return something of the same shape."""

    NAMES = (
        *(
            "abs",
            "ceil",
            "clamp",
            "clamp_max",
            "clamp_min",
            "clone",
            "detach",
            "double",
            "exp",
            "expm1",
            "flip",
            "floor",
        ),
        *("log", "log1p", "log_softmax", "neg", "round", "sigmoid", "softmax", "sqrt", "square", "tril", "triu"),
        *("dropna", "fillna", "lower", "sort", "sort_index", "sort_values", "strip"),
    )

    def mutation_positions(self, node: Any) -> list[tuple[Any, Any]]:
        return [(node.children[place].start_pos, node.children[place + 1].end_pos) for place in self._places(node)]

    def mutate(self, node: Any, index: int) -> Any:
        place = self._places(node)[index]
        del node.children[place : place + 2]
        return node

    def _places(self, node: Any) -> list[int]:
        if node.type != "atom_expr" or node.children[0].get_code().strip() in ("torch", "np", "math", "F"):
            return []
        return [
            place
            for place, (name, call) in enumerate(itertools.pairwise(node.children))
            if name.type == call.type == "trailer"
            and name.children[0].value == "."
            and name.children[1].value in self.NAMES
            and call.children[0].value == "("
        ]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("x.detach()", "x"),)


@functools.cache
def operators() -> dict[str, Operator]:
    chosen = [f"{kind}_{change}" for kind, changes in NEAREST.items() for change in changes.split()]
    known = {name: plugins.get_operator(f"core/{name}")() for name in (*chosen, *WHOLE)}
    return {**known, "LeaveOutKeyword": LeaveOutKeyword(), "LeaveOutMethod": LeaveOutMethod()}


Position = tuple[int, int]
BROKEN = 70  # the exit status of a job that failed by itself


@dataclass(frozen=True)
class Site:
    """A place in a module, and the faults (operator, occurrence) that can be put there."""

    path: str
    start: Position
    end: Position
    faults: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    operator: str
    source: str
    diff: str

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.path}\n{self.diff}".encode()).hexdigest()[:16]


def modules(only: list[str]) -> list[str]:
    """Paths of the core's modules below src/prerank."""
    folder = ROOT / "src" / "prerank"
    found = []
    for item in CORE:
        paths = [folder / item] if item.endswith(".py") else sorted((folder / item).glob("*.py"))
        found += [path.relative_to(folder).as_posix() for path in paths]
    if not only:
        return found
    chosen = [path for path in found if any(path.startswith(item.removeprefix("src/prerank/")) for item in only)]
    if not chosen:
        raise SystemExit(f"none of {', '.join(only)} is in the core; it has {', '.join(found)}")
    return chosen


def changed_modules(revision: str) -> list[str]:
    listed = ["git", "diff", "--name-only", "--relative", revision, "--", "src/prerank"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    core = set(modules([]))
    return [name for name in (path.removeprefix("src/prerank/") for path in names) if name in core]


def sites_of(path: str) -> list[Site]:
    """All places of a module where a fault can be put."""
    source = (ROOT / "src" / "prerank" / path).read_text()
    spared = _spared(source)
    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    places: dict[tuple[Position, Position], list[tuple[str, int]]] = {}
    for name, operator in operators().items():
        places_of = [(node, place) for node in nodes for place in operator.mutation_positions(node)]
        for occurrence, (node, (start, end)) in enumerate(places_of):
            if node.parent is not None and node.parent.type == "parameters":
                continue  # the * of def f(x, *, y)
            if not any(first <= start and end <= last for first, last in spared):
                places.setdefault((start, end), []).append((name, occurrence))
    return [Site(path, start, end, tuple(faults)) for (start, end), faults in sorted(places.items())]


def _spared(source: str) -> list[tuple[Position, Position]]:
    """Annotations, aliases of types, texts, what is raised, and what only a GPU runs."""
    lines = source.splitlines()

    def position(line: int, offset: int) -> Position:  # ast counts bytes, parso characters
        return line, len(lines[line - 1].encode()[:offset].decode())

    def span(node: ast.AST) -> tuple[Position, Position]:
        return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)  # type: ignore

    tree = ast.parse(source)
    spared: list[ast.AST] = []
    for item in tree.body:  # Forecast = Ensemble | Distribution; ELEMENTS_ON_GPU = ...
        name = item.targets[0] if isinstance(item, ast.Assign) else None
        if isinstance(name, ast.Name) and (
            name.id.endswith("_GPU")
            or (name.id[0].isupper() and not name.id.isupper())
            or ast.unparse(item.value).startswith("TypeVar(")  # type: ignore[attr-defined]
        ):
            spared.append(item)
    for node in ast.walk(tree):
        protocol = isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Protocol" for base in node.bases)
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if protocol or text or isinstance(node, ast.Raise | ast.JoinedStr):
            spared.append(node)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            spared.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            spared.append(node.annotation)
    idle = [*_only_on_a_gpu(tree), *_only_the_size_of_a_chunk(tree)]
    return [span(node) for node in (*spared, *idle, *_computed_for(tree, idle))]


def _only_on_a_gpu(tree: ast.Module) -> list[ast.AST]:
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _asks_for_gpu(node.test):
            # the branch, and the question: on a CPU its other conditions decide nothing
            found += [node.test, *node.body]
        elif isinstance(node, ast.Assign | ast.Return) and node.value and _asks_for_gpu(node.value):
            found.append(node)
    inside = _inside(found)
    for item in tree.body:  # a function that nothing else in its module calls
        if isinstance(item, ast.FunctionDef) and item.name.startswith("_"):
            uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == item.name]
            if uses and all(id(use) in inside for use in uses):
                found.append(item)
    return found


# functions that cut work into pieces, and the place from which their arguments are no more than the size of a piece
PIECES = {"by_columns": 2, "chunks": 1, "blocks": 2, "at_once": 0, "over_cases": 3, "lru_cache": 0}


def _only_the_size_of_a_chunk(tree: ast.Module) -> list[ast.AST]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found: list[ast.AST] = []
    for call in calls:
        if call.func.id in PIECES:  # type: ignore[attr-defined]
            found += [*call.args[PIECES[call.func.id] :], *call.keywords]  # type: ignore[attr-defined]
    return found


def _computed_for(tree: ast.Module, idle: list[ast.AST]) -> list[ast.AST]:
    """What is assigned to names that are read in idle places alone, and what is assigned for those, and so on."""
    found: list[ast.AST] = []
    while True:
        inside = _inside([*idle, *found])
        new: list[ast.AST] = []
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            read: dict[str, bool] = {}  # whether all places that read a name are idle
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    read[node.id] = read.get(node.id, True) and id(node) in inside
            for node in ast.walk(function):
                targets: list[tuple[ast.expr, ast.expr]] = []
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    left, right = node.targets[0], node.value
                    pairs = isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple)
                    targets = list(zip(left.elts, right.elts, strict=True)) if pairs else [(left, right)]  # type: ignore
                elif isinstance(node, ast.AugAssign):
                    targets = [(node.target, node.value)]
                elif isinstance(node, ast.For):
                    targets = [(node.target, node.iter)]
                for left, right in targets:
                    if isinstance(left, ast.Name) and read.get(left.id, False) and id(right) not in inside:
                        new.append(node if isinstance(node, ast.AugAssign) else right)
        if not new:
            return found
        found += new


def _inside(nodes: list[ast.AST]) -> set[int]:
    return {id(part) for node in nodes for part in ast.walk(node)}


def _asks_for_gpu(expression: ast.expr) -> bool:
    text = ast.unparse(expression)
    return any(name in text for name in ("kernel_for(", "is_cuda", "'cuda'"))


def mutant_of(site: Site, fault: tuple[str, int]) -> Mutant | None:
    """The module with a fault in it; None where Python would not accept it, or would see no difference."""
    original = (ROOT / "src" / "prerank" / site.path).read_text()
    name, occurrence = fault
    source = mutate_code(original, operators()[name], occurrence)
    try:
        if source is None or ast.dump(ast.parse(source)) == ast.dump(ast.parse(original)):
            return None
    except SyntaxError:
        return None
    diff = difflib.unified_diff(original.splitlines(), source.splitlines(), site.path, site.path, n=0, lineterm="")
    return Mutant(site.path, site.start[0], name, source, "\n".join(list(diff)[2:]))


def every(paths: list[str]) -> list[Mutant]:
    found = (mutant_of(site, fault) for path in paths for site in sites_of(path) for fault in site.faults)
    return list({mutant.key: mutant for mutant in found if mutant}.values())


def sampled(paths: list[str], size: int, seed: int) -> list[Mutant]:
    """Sites at random, in each module in proportion to their number and at least one; one fault at each."""
    sites = {path: sites_of(path) for path in paths}
    sites = {path: found for path, found in sites.items() if found}
    total = sum(map(len, sites.values()))
    size = min(size, total)
    share = {path: size * len(found) / total for path, found in sites.items()}
    wanted = {path: max(1, math.floor(value)) for path, value in share.items()}
    for path in sorted(share, key=lambda path: math.floor(share[path]) - share[path]):
        if sum(wanted.values()) < size and share[path] >= 1:
            wanted[path] += 1
    chosen = []
    for path, found in sites.items():
        chance = random.Random(f"{seed} {path}")
        own: list[Mutant] = []
        for site in chance.sample(found, len(found)):
            if len(own) == wanted[path]:
                break
            faults = chance.sample(site.faults, len(site.faults))
            own += itertools.islice(filter(None, (mutant_of(site, fault) for fault in faults)), 1)
        chosen += own
    return chosen


# --- running -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a fork of this process does in a copy of the tree, and how long it may take."""

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], int]
    limit: float


def in_copies(jobs: Iterable[Job], copies: list[Path]) -> Iterator[tuple[Job, Path, int | None, float]]:
    """Run jobs, one at a time in each copy; the exit status, None after a time-out, and the seconds it took."""
    waiting = iter(jobs)
    free = list(copies)
    running: dict[int, tuple[Job, Path, float]] = {}
    try:
        while True:
            while free and (job := next(waiting, None)):
                copy = free.pop()
                job.prepare(copy)
                running[_forked(job, copy)] = job, copy, time.monotonic()
            if not running:
                return
            time.sleep(0.02)
            for child, (job, copy, started) in list(running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                took = time.monotonic() - started
                if not ended and took <= job.limit:
                    continue
                del running[child]
                free.append(copy)
                if not ended:
                    _end(child)
                yield job, copy, os.waitstatus_to_exitcode(status) if ended else None, took
    finally:
        for child in running:
            _end(child)


def _forked(job: Job, copy: Path) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = BROKEN
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()  # a group of its own, so that whatever a test starts ends with it
        with open(copy / "log.txt", "wb", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(copy)
        sys.path[:0] = [str(copy / "src")]
        os.environ["PYTHONPATH"] = str(copy / "src")
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        status = job.run(copy)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def copy_of_tree(folder: Path) -> Path:
    listed = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *COPIED]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    compileall.compile_dir(folder / "src", quiet=2)
    return folder


def digest() -> str:
    """Of everything that a result depends on: the core and its tests."""
    total = hashlib.sha256()
    for folder in ("src", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in (".py", ".json", ".npz") and path != Path(__file__):
                total.update(f"{path.relative_to(ROOT)}".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def _pytest(arguments: list[str], plugin: object) -> int:
    import pytest
    from hypothesis import settings

    settings.register_profile("mutants", database=None, deadline=None, derandomize=True)
    quiet = ["-p", "no:cacheprovider", "--hypothesis-profile=mutants", "--tb=no", "-q"]
    return int(pytest.main([*quiet, *arguments], plugins=[plugin]))


class Recorder:
    """Which test executes which line, and how long it takes."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._item = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("prerank"):  # what an earlier test left in a cache would not be executed again
                for value in list(vars(module).values()):
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
        self._item = nodeid
        self.coverage.switch_context(nodeid)

    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        # a wider fixture is made once, in the first test that wants it, but serves the whole file
        self.coverage.switch_context(self._item if fixturedef.scope == "function" else self._item.split("::")[0])

    def pytest_fixture_post_finalizer(self) -> None:
        self.coverage.switch_context(self._item)

    def pytest_runtest_call(self) -> None:
        self.coverage.switch_context(self._item)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def record_coverage(folder: str, copy: Path) -> int:
    os.environ["COVERAGE_CORE"] = "ctrace"  # the only one that knows contexts
    import coverage

    measured = coverage.Coverage(data_file=None, include=[str(copy / "src" / "*")], config_file=False)
    recorder = Recorder(measured)
    measured.start()
    status = _pytest([folder], recorder)
    measured.stop()
    data = measured.get_data()
    tests = {name: place for place, name in enumerate(recorder.seconds)}
    members: dict[str, list[int]] = {}
    for name, place in tests.items():
        members.setdefault(name, []).append(place)
        members.setdefault(name.split("::")[0], []).append(place)
    lines: dict[str, dict[int, list[int]]] = {}
    for file in data.measured_files():
        path = Path(file).relative_to(copy / "src" / "prerank").as_posix()
        lines[path] = {
            line: sorted({place for context in contexts for place in members.get(context, ())})
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    record = {"tests": list(tests), "seconds": recorder.seconds, "failed": sorted(recorder.failed), "lines": lines}
    (copy / "coverage.json").write_text(json.dumps(record))
    return 0 if status in (0, 1) else status


class InOrder:
    """Only the tests wanted, in their order; remembers the first that failed."""

    def __init__(self, wanted: list[str], everything: set[str], told: Path) -> None:
        self.place = {name: place for place, name in enumerate(wanted)}
        self.functions = {name.split("[")[0] for name in wanted}
        self.everything = everything
        self.told = told

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # a mutant may change what a test is parametrised with, and so its name: such a test is run, at the end
        last = len(self.place)
        kept = [item for item in items if item.nodeid in self.place or self._renamed(item.nodeid)]
        items[:] = sorted(kept, key=lambda item: self.place.get(item.nodeid, last))

    def _renamed(self, name: str) -> bool:
        return name not in self.everything and name.split("[")[0] in self.functions

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.told.write_text(report.nodeid)


class Coverage:
    """The tests of each folder that execute a statement, fastest first."""

    def __init__(self, folders: dict[str, dict[str, Any]]) -> None:
        self.folders = folders
        self.everything = {name for record in folders.values() for name in record["tests"]}

    def tests(self, mutant: Mutant) -> list[tuple[str, float]]:
        lines = _statement(ROOT / "src" / "prerank" / mutant.path, mutant.line)
        first, last = lines or (1, 10**9)
        found: dict[str, float] = {}
        late: dict[str, float] = {}
        for folder in TESTS[mutant.path.split("/")[0]]:
            record = self.folders.get(folder)
            if record is None:
                continue
            failed = set(record["failed"])
            for line, places in record["lines"].get(mutant.path, {}).items():
                if first <= int(line) <= last:
                    names = (record["tests"][place] for place in places)
                    found |= {name: record["seconds"][name] for name in names if name not in failed}
            if lines is None:  # run when the module is imported, by everybody: those that use the module first
                rest = (name for name in record["tests"] if name not in failed)
                late |= {name: record["seconds"][name] for name in rest}
        late = {name: seconds for name, seconds in late.items() if name not in found}
        return [item for part in (found, late) for item in sorted(part.items(), key=lambda item: item[1])]

    def in_passes(self, mutant: Mutant) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
        """The tests that a mutant meets at once, and those that it meets if it survives."""
        ordered = self.tests(mutant)
        spent = list(itertools.accumulate(seconds for _, seconds in ordered))
        count = sum(total <= MOST_SECONDS for total in spent)
        rest = [item for item, total in zip(ordered, spent, strict=True) if total > MOST_SECONDS]
        before = spent[count - 1] if count else 0.0
        return ordered[:count], [
            item for item, total in zip(rest, spent[count:], strict=True) if total - before <= MORE_SECONDS
        ]


def _statement(path: Path, line: int) -> tuple[int, int] | None:
    """Lines of the statement at a line: the head of a compound one, the body of a function for its head.

    None outside functions, where it is run on import.
    """
    tree = ast.parse(path.read_text())
    inner: ast.stmt | None = None
    functions = 0
    for node in ast.walk(tree):  # breadth first: the innermost comes last
        if isinstance(node, ast.stmt) and _first(node) <= line <= (node.end_lineno or 0):
            inner = node
            functions += isinstance(node, ast.FunctionDef)
    if inner is None or not functions:
        return None
    if isinstance(inner, ast.FunctionDef):
        return inner.body[0].lineno, inner.end_lineno or 0
    body = getattr(inner, "body", None)
    return inner.lineno, max(inner.lineno, body[0].lineno - 1) if body else inner.end_lineno or 0


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])


def measured_coverage(folders: list[str], store: Path, copies: list[Path]) -> Coverage:
    known: dict[str, dict[str, Any]] = {}
    jobs = []
    for folder in folders:
        kept = store / f"coverage {folder.replace('/', ' ')}.json"
        if kept.exists():
            known[folder] = json.loads(kept.read_text())
        elif (ROOT / folder).exists():
            jobs.append(Job(folder, lambda copy: None, functools.partial(record_coverage, folder), 3600.0))
    for job, copy, status, took in in_copies(jobs, copies):
        if status != 0:
            raise SystemExit(
                f"{job.name} could not be run (status {status}):\n{(copy / 'log.txt').read_text()[-3000:]}"
            )
        text = (copy / "coverage.json").read_text()
        known[job.name] = json.loads(text)
        (store / f"coverage {job.name.replace('/', ' ')}.json").write_text(text)
        print(f"{job.name}: {len(known[job.name]['tests'])} tests in {took:.0f} s, {_not_used(known[job.name])}")
    return Coverage(known)


def _not_used(record: dict[str, Any]) -> str:
    return f"{len(record['failed'])} skipped or failed without a mutant, and not used"


def mutant_job(mutant: Mutant, tests: list[tuple[str, float]], everything: set[str]) -> Job:
    names = [name for name, _ in tests]

    def prepare(copy: Path) -> None:
        changed = copy / "src" / "prerank" / mutant.path
        last = copy / "mutated.txt"
        if last.exists():  # put back what the last mutant changed
            shutil.copy2(ROOT / "src" / "prerank" / last.read_text(), copy / "src" / "prerank" / last.read_text())
        last.write_text(mutant.path)
        changed.write_text(mutant.source)
        for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
            compiled.unlink()  # its time and size might be those of the mutant
        (copy / "killer.txt").unlink(missing_ok=True)

    def run(copy: Path) -> int:
        files = sorted({name.split("::")[0] for name in names})
        return _pytest(["-x", *files], InOrder(names, everything, copy / "killer.txt"))

    return Job(mutant.key, prepare, run, 60.0 + 5 * sum(seconds for _, seconds in tests))


def run_mutants(
    mutants: list[Mutant], coverage: Coverage, results: Path, copies: list[Path]
) -> dict[str, dict[str, Any]]:
    done = _read(results)
    named = {mutant.key: mutant for mutant in mutants}
    waiting = [mutant for mutant in mutants if mutant.key not in done]
    print(f"{len(mutants)} mutants, {len(mutants) - len(waiting)} of them done before; results in {results}")
    random.Random(0).shuffle(waiting)  # so that a run that is stopped has seen something of every module
    tests = {mutant.key: coverage.in_passes(mutant) for mutant in mutants}

    def write(mutant: Mutant, outcome: str, took: float, by: str | None, passes: int) -> None:
        record = {
            "key": mutant.key,
            "path": mutant.path,
            "line": mutant.line,
            "operator": mutant.operator,
            "outcome": outcome,
            "passes": passes,
            "seconds": round(took, 1),
            "tests": sum(len(part) for part in tests[mutant.key][:passes]),
            "by": by,
            "diff": mutant.diff,
        }
        done[mutant.key] = record
        with results.open("a") as file:
            file.write(json.dumps(record) + "\n")

    for number in (1, 2):
        if number == 2:
            waiting = [
                named[key] for key in named if done[key]["outcome"] == "survived" and done[key].get("passes") == 1
            ]
        for mutant in waiting:
            if not tests[mutant.key][number - 1]:
                write(mutant, "survived", 0.0, None, number)
        jobs = (
            mutant_job(mutant, tests[mutant.key][number - 1], coverage.everything)
            for mutant in waiting
            if tests[mutant.key][number - 1]
        )
        started = time.monotonic()
        for count, (job, copy, status, took) in enumerate(in_copies(jobs, copies), 1):
            outcome, by = _outcome(status, copy)
            write(named[job.name], outcome, took, by, number)
            if sys.stdout.isatty() or count % 20 == 0:
                print(f"{count} of {len(waiting)} run in {time.monotonic() - started:.0f} s", flush=True)
    return {key: done[key] for key in named}


def _outcome(status: int | None, copy: Path) -> tuple[str, str | None]:
    killer = copy / "killer.txt"
    by = killer.read_text() if killer.exists() else None
    if status == BROKEN:
        raise SystemExit(f"a mutant could not be run:\n{(copy / 'log.txt').read_text()[-3000:]}")
    if status not in (None, 0, 5) and by is None:  # it could not even be imported, or it crashed
        by = f"status {status}: {(copy / 'log.txt').read_text()[-300:]}"
    return {None: "timed out", 0: "survived", 5: "survived"}.get(status, "killed"), by  # 5: no test left to run


def _read(results: Path) -> dict[str, dict[str, Any]]:
    if not results.exists():
        return {}
    found = {}
    for line in results.read_text().splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # a line cut short by an interrupt
            continue
        found[record["key"]] = record
    return found


# --- telling -----------------------------------------------------------------------------------------------------------


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not total:
        return 0.0, 1.0
    z, share = 1.959964, hits / total
    centre, spread = share + z * z / (2 * total), z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    low, high = (centre - spread) / (1 + z * z / total), (centre + spread) / (1 + z * z / total)
    return max(low, 0.0), min(high, 1.0)


def reasons() -> dict[tuple[str, str], str]:
    """Known survivors: path and diff (without positions) to the reason written below it in survivors.md."""
    if not SURVIVORS.exists():
        return {}
    known = {}
    for section in SURVIVORS.read_text().split("\n## ")[1:]:
        heading, _, rest = section.partition("\n```diff\n")
        diff, _, reason = rest.partition("\n```\n")
        known[heading.strip(), _changes(diff)] = " ".join(reason.split())
    return known


def _changes(diff: str) -> str:
    lines = (line for line in diff.splitlines() if not line.startswith("@@"))
    return "\n".join(line[0] + " ".join(line[1:].split()) for line in lines if line)


def report(records: Iterable[dict[str, Any]]) -> str:
    records = sorted(records, key=lambda record: (record["path"], record["line"]))
    known = reasons()
    lines = [f"{'module':<32} {'mutants':>7} {'killed':>7} {'survived':>8} {'timed out':>9}"]
    paths = sorted({record["path"] for record in records})
    for path in [*paths, "all"]:
        outcomes = [record["outcome"] for record in records if path in ("all", record["path"])]
        counts = [outcomes.count(name) for name in ("killed", "survived", "timed out")]
        lines.append(f"{path:<32} {len(outcomes):>7} {counts[0]:>7} {counts[1]:>8} {counts[2]:>9}")
    survivors = [record for record in records if record["outcome"] == "survived"]
    why = {record["key"]: known.get((record["path"], _changes(record["diff"]))) for record in survivors}
    equivalent = sum((why[record["key"]] or "").lower().startswith("equivalent") for record in survivors)
    lines += ["", _score("score, every survivor counted", len(records) - len(survivors), len(records))]
    if equivalent:
        text = f"score without {equivalent} proven equivalent (benchmarks/survivors.md)"
        lines.append(_score(text, len(records) - len(survivors), len(records) - equivalent))
    lines.append("a time-out counts as killed")
    for record in survivors:
        where = f"{record['path']}:{record['line']} ({record['operator']}, {record['tests']} tests ran)"
        lines += ["", where, record["diff"], f"reason: {why[record['key']] or 'none known'}"]
    return "\n".join(lines)


def _score(text: str, hits: int, total: int) -> str:
    low, high = wilson(hits, total)
    return f"{text}: {hits} of {total}, {hits / max(total, 1):.1%} (95 % interval {low:.1%} to {high:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="how many mutants; 400 unless --changed or --again is given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--changed", metavar="REV", help="modules that differ from this revision")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="packages or modules, below src/prerank")
    parser.add_argument("--again", type=Path, metavar="RESULTS", help="the survivors of these results")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    options = parser.parse_args()

    paths = modules(options.only)
    if options.changed:
        paths = [path for path in changed_modules(options.changed) if path in paths]
        if not paths:
            raise SystemExit(f"no module of the core differs from {options.changed}")
    if options.again:
        before = [record for record in _read(options.again).values() if record["outcome"] == "survived"]
        wanted = {(record["path"], _changes(record["diff"])) for record in before}
        found = every([path for path in paths if path in {path for path, _ in wanted}])
        mutants = [mutant for mutant in found if (mutant.path, _changes(mutant.diff)) in wanted]
    elif options.changed and options.sample is None:
        mutants = every(paths)
    else:
        mutants = sampled(paths, options.sample or 400, options.seed)
    if options.list:
        print("\n\n".join(f"{mutant.path}:{mutant.line} {mutant.operator}\n{mutant.diff}" for mutant in mutants))
        return

    store = options.out / digest()
    store.mkdir(parents=True, exist_ok=True)
    for name in PRELOADED:
        importlib.import_module(name)
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that copies and children go, as they do on Ctrl-C
    with tempfile.TemporaryDirectory() as temporary:
        copies = [copy_of_tree(Path(temporary) / f"worker{number}") for number in range(options.workers)]
        packages = dict.fromkeys(path.split("/")[0] for path in (mutant.path for mutant in mutants))
        folders = list(dict.fromkeys(folder for package in packages for folder in TESTS[package]))
        coverage = measured_coverage(folders, store, copies)
        records = run_mutants(mutants, coverage, store / "results.jsonl", copies)
    text = report(records.values())
    print(f"\n{text}")
    (store / "report.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
