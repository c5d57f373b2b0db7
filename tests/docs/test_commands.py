"""Every command that a page tells its reader to type is run from a fresh folder, or listed here with a reason."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hindcast_files import iri
from hub_files import add_quantiles, build_hub
from prerank.cli.main import app
from prerank_paper.benchmark.run import Summary
from prerank_paper.cli.main import app as study

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "reproduction" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```([^\s`]*)[^\n`]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
PROGRAMS = {
    "prerank",
    "prerank-paper",
    "make",
    "pip",
    "python",
    "python3",
    "dask",
    "pytest",
    "ruff",
    "mypy",
    "sphinx-build",
    "git",
    "cd",
    "export",
}

QUICK = "--prerank location --replicates 39"
SMALL_HUB = '--target "wk inc cases" --joint horizon'
PUBLISHED = "the published files are not here; see tests/data/test_published_files.py"
SMALL = "--preranks location --max-epochs 1 --replicates 19"


class How(NamedTuple):
    """What is run in place of a command (None: nothing), why, what it must leave in its folder, and if all work is done."""

    instead: str | None
    why: str
    leaves: str = ""
    works: bool = True


AS_IT_STANDS = {
    "prerank --help": "",
    "prerank --version": "",
    "prerank-paper --help": "",
    "prerank check --help": "",
    "prerank-paper datasets": "",
    "prerank check forecasts.csv observations.csv": "",
    "prerank check forecasts.csv observations.csv --prerank location --prerank HDR": "",
    'prerank check hub --model a-csv --target "wk inc cases" --joint horizon': "",
    'prerank check hub --model "*" --joint horizon --html report.html': "report.html",
    'prerank check hub --model "*" --by model --by location --html report.html': "report.html",
    "prerank check hub --model quantiles-only --dependence gaussian": "",
    "prerank check hub --model quantiles-only --dependence independent": "",
    "prerank check quantiles.csv observed.csv --case day --joint hour --dependence gaussian": "",
    "prerank check hindcast.nc observed.nc": "",
    "prerank check hindcast.nc observed.nc --joint L --by season --block none": "",
    'prerank check prices.csv --members "model *" --observation price --joint hour': "",
    'prerank check prices.csv --members "model 1,model 2" --observation price --by weekday --prerank location': "",
    "prerank-paper simulate marginal": "prerank-simulations/marginal.png",
}
"""Commands that are run as they stand, and what each must leave in its folder."""

OTHERWISE = {
    "prerank check": How("prerank check --help", "the name of a command"),
    "prerank check FORECASTS": How("prerank check --help", "a place holder"),
    "prerank check FORECASTS --json": How("prerank check forecasts.csv observations.csv --json", "a place holder"),
    "prerank check forecasts.csv observations.csv --json --fail": How(
        "prerank check forecasts.csv observations.csv --json", "its status is 1, as it should be"
    ),
    "prerank recalibrate": How("prerank recalibrate --help", "the name of a command"),
    "prerank recalibrate FORECASTS --out FILE --json": How("prerank recalibrate --help", "a place holder"),
    "prerank recalibrate FORECASTS": How("prerank recalibrate --help", "a place holder"),
    "prerank recalibrate forecasts.csv observations.csv --out corrected.csv": How(
        f"prerank recalibrate forecasts.csv observations.csv --out corrected.csv {QUICK}",
        "all pre-ranks take longer",
        "corrected.csv",
    ),
    "prerank check corrected.csv": How(f"prerank check corrected.csv {QUICK}", "all pre-ranks take longer"),
    "prerank recalibrate forecasts.csv observations.csv --apply new.csv --save learnt.safetensors --out corrected.csv": How(
        "prerank recalibrate forecasts.csv observations.csv --apply new.csv --save learnt.safetensors --out corrected.csv "
        f"{QUICK}",
        "all pre-ranks take longer",
        "learnt.safetensors",
    ),
    "prerank recalibrate new.csv --load learnt.safetensors --out corrected.csv": How(
        "prerank recalibrate new.csv --load learnt.safetensors --out corrected.csv", "", "corrected.csv"
    ),
    "prerank recalibrate hindcast.nc observed.nc --out corrected.nc": How(
        "prerank recalibrate --help", "needs more starts than the small file has; see test_recalibrate_layouts.py"
    ),
    "prerank recalibrate hub --model a-csv --out corrected-hub": How(
        "prerank recalibrate --help", "needs more rounds than the small hub has; see test_recalibrate_layouts.py"
    ),
    'prerank recalibrate prices.csv --members "model *" --observation price --out corrected.csv --html report.html': How(
        'prerank recalibrate prices.csv --members "model *" --observation price --out corrected.csv '
        f"--html report.html {QUICK}",
        "all pre-ranks take longer",
        "report.html",
    ),
    "prerank joint": How("prerank joint --help", "the name of a command"),
    "prerank joint FORECASTS": How("prerank joint --help", "a place holder"),
    "prerank joint FORECASTS --out FILE --json": How("prerank joint --help", "a place holder"),
    "prerank joint quantiles.csv observed.csv --case day --joint hour --out joint.csv": How(
        f"prerank joint quantiles.csv observed.csv --case day --joint hour --out joint.csv {QUICK}",
        "all pre-ranks take longer",
        "joint.csv",
    ),
    'prerank joint hub --model TEAM --target "wk inc cases" --lower 0 --before 2026-02-07 --out joint.parquet': How(
        "prerank joint --help", "the small hub has samples only; see test_joint_command.py"
    ),
    "prerank joint quantiles.csv observed.csv --case day --joint hour --apply coming.csv --dependence schaake "
    "--out joint.nc": How(
        "prerank joint quantiles.csv observed.csv --case day --joint hour --apply coming.csv --dependence schaake "
        f"--out joint.nc {QUICK}",
        "all pre-ranks take longer",
        "joint.nc",
    ),
    "prerank check GMAO-GEOS-V2p1.RMM1.nc RMM1.observed.interannual.1974-06.2017-07.nc": How(
        "prerank check hindcast.nc observed.nc", PUBLISHED
    ),
    "prerank check CESM-DP-LE.SST.global.nc ERSSTv4.global.mean.nc": How(
        "prerank check hindcast.nc observed.nc", PUBLISHED
    ),
    'prerank check Forecasts_DE_DNN_LEAR_ensembles.csv --members "DNN ?" --members "/LEAR \\d+/" '
    '--observation "Real price"': How(
        'prerank check prices.csv --members "model ?" --members "/model \\d+/" --observation price', PUBLISHED
    ),
    'prerank check hub --model "*" --target "wk inc flu hosp" --joint horizon --html report.html': How(
        f'prerank check hub --model "*" {SMALL_HUB} --html report.html', PUBLISHED, "report.html"
    ),
    'prerank check hub --model "*" --target "wk inc flu hosp" --joint horizon --by model '
    "--by location --html report.html": How(
        f'prerank check hub --model "*" {SMALL_HUB} --by model --by location --html report.html',
        PUBLISHED,
        "report.html",
    ),
    'prerank check hub --model "*" --target "wk inc flu hosp" --joint horizon --dependence independent': How(
        f'prerank check hub --model "*" {SMALL_HUB} --dependence independent', PUBLISHED
    ),
    'prerank check hub --model UMass-trends_ensemble --target "wk inc flu hosp" --joint horizon --dependence gaussian': How(
        f"prerank check hub --model quantiles-only {SMALL_HUB} --dependence gaussian", PUBLISHED
    ),
    'prerank recalibrate hub --model UMass-trends_ensemble --target "wk inc flu hosp" --joint horizon '
    "--out corrected-hub": How("prerank recalibrate --help", PUBLISHED),
    "prerank check quantiles.csv --level quantile_level --value predicted --observation observed --case week "
    "--target horizon --dependence gaussian": How(
        "prerank check quantiles.csv observed.csv --level quantile --value value --case day --target hour --dependence "
        "gaussian",
        "a table of another package",
    ),
    "prerank demo": How("prerank demo --rows 200 --fresh 200", "3,000 rows", "prerank-demo/demonstration.png"),
    "prerank --install-completion": How(None, "writes into the shell's own files"),
    "prerank --show-completion": How(None, "asks which shell it was called from; see test_help_and_completion.py"),
    "prerank COMMAND --help": How("prerank check --help", "a place holder"),
    "prerank-paper COMMAND --help": How("prerank-paper simulate --help", "a place holder"),
    "prerank-paper simulate": How("prerank-paper simulate --help", "the name of a command"),
    "prerank-paper simulate 1": How(
        "prerank-paper simulate 1", "run in small by test_simulate_command.py", works=False
    ),
    "prerank-paper simulate 2": How("prerank-paper simulate 2", "as Simulation 1, with another law", works=False),
    "prerank-paper simulate power": How(
        "prerank-paper simulate power", "run in small by test_simulate_command.py", works=False
    ),
    "prerank-paper simulate 1 --full": How("prerank-paper simulate 1 --full", "takes half a minute", works=False),
    "prerank-paper simulate 2 --full": How("prerank-paper simulate 2 --full", "takes a minute", works=False),
    "prerank-paper simulate power --full": How("prerank-paper simulate power --full", "takes minutes", works=False),
    "prerank-paper benchmark": How("prerank-paper benchmark --help", "the name of a command"),
    "prerank-paper benchmark --quick --out trial": How(
        f"prerank-paper benchmark --quick {SMALL} --out trial",
        "run whole by test_benchmark_command.py",
        "trial/grid.json",
    ),
    "prerank-paper benchmark --device cuda --joint --out results": How(
        f"prerank-paper benchmark --quick {SMALL} --device cpu --joint --out results",
        "needs a GPU, and hours",
        "results/fleets",
    ),
    "prerank-paper benchmark --protocol none --initialisations 3 --out starts": How(
        "prerank-paper benchmark --datasets air --protocol none --initialisations 3 --out starts",
        "trains for minutes",
        works=False,
    ),
    "python reproduction/benchmarks/ablation_evaluation.py --device cuda": How(
        None, "needs a GPU; see test_ablations.py"
    ),
    "python reproduction/benchmarks/ablation_training.py --device cuda": How(
        None, "needs a GPU; see test_ablations.py"
    ),
    "python docs/_build/benchmark_page.py": How(None, "writes into the documentation; see test_benchmark_page.py"),
    "prerank-paper benchmark --datasets households,air --preranks PCA,HDR --strengths 1,10 --seeds 0,42 --out part": How(
        "prerank-paper benchmark --datasets households,air --preranks PCA,HDR --strengths 1,10 --seeds 0,42 --out part",
        "downloads, and trains for minutes",
        works=False,
    ),
    "prerank-paper benchmark --executor dask --workers 4 --out results": How(
        "prerank-paper benchmark --datasets air --executor dask --workers 4 --out results",
        "starts a cluster",
        works=False,
    ),
    "prerank-paper benchmark --executor dask --scheduler tcp://192.0.2.1:8786 --out results": How(
        "prerank-paper benchmark --datasets air --executor dask --scheduler tcp://192.0.2.1:8786 --out results",
        "needs a cluster",
        works=False,
    ),
    "prerank-paper report": How("prerank-paper report --help", "the name of a command"),
    "prerank-paper report DIR": How("prerank-paper report --help", "a place holder"),
    "prerank-paper report results/benchmark --out report": How(None, "draws for minutes; see test_benchmark_page.py"),
    "prerank-paper report results/benchmark": How(None, "draws for minutes; see test_benchmark_page.py"),
    "prerank-paper report results": How("prerank-paper report --help", "what a benchmark of hours gives"),
    "prerank-paper report trial": How("prerank-paper report trial", "", "trial/report/index.md"),
    "prerank-paper datasets fetch NAME": How(None, "downloads; tests/data does it from a server of its own"),
    "prerank-paper datasets show NAME": How(
        "prerank-paper datasets show diabetes", "a place holder", "diabetes-targets.png"
    ),
    "pip install .": How(None, "installs, and needs the network"),
    "pip install . ./reproduction": How(None, "installs, and needs the network"),
    "pip install 'prerank[dask]'": How(None, "installs, and needs the network"),
    "pip install torch --index-url": How(None, "installs, and needs the network"),
    "pip install '.[xarray]'": How(None, "installs, and needs the network"),
    "pip install '.[dask,xarray]'": How(None, "installs, and needs the network"),
    "pip install '.[connectors]'": How(None, "installs, and needs the network"),
    "pip install zuko": How(None, "installs, and needs the network"),
    "prerank check hub --model M": How("prerank check --help", "a place holder"),
    "prerank recalibrate forecasts.csv observations.csv --every 7 --delay 2 --fits kept --out corrected.csv": How(
        "prerank recalibrate forecasts.csv observations.csv --every 150 --delay 2 --fits kept --out corrected.csv",
        "a fit for every week takes a minute",
        "corrected.csv",
    ),
    "dask worker --nthreads 1": How(None, "needs a scheduler"),
    "python reproduction/benchmarks/simulations.py": How(None, "takes minutes"),
    "python docs/_build/architecture.py": How(None, "writes into the documentation; see test_architecture.py"),
}


def at_hand(folder: Path) -> None:
    """The files that a reader has: those that the guide on `check` writes."""
    rng = np.random.default_rng(3)
    signal = rng.normal(size=(400, 1))
    y = signal + rng.normal(size=(400, 3))
    members = signal[:, None] + 0.7 * rng.normal(size=(400, 25, 3))
    days, stations = pd.date_range("2024-01-01", periods=400), ["Oslo", "Bergen", "Voss"]
    labels = pd.MultiIndex.from_product([days, range(25), stations], names=["case", "member", "target"])
    past = pd.DataFrame({"value": members.ravel()}, labels)
    past.to_csv(folder / "forecasts.csv")
    past.loc[days[:5]].to_csv(folder / "new.csv")
    hours = pd.MultiIndex.from_product([range(60), [1, 2], [0.1, 0.5, 0.9]], names=["day", "hour", "quantile"])
    quantiles = pd.DataFrame({"value": np.tile([-1.3, 0.0, 1.3], 120)}, hours).reset_index()
    quantiles.to_csv(folder / "quantiles.csv", index=False)
    quantiles[quantiles["day"] < 5].to_csv(folder / "coming.csv", index=False)
    seen = quantiles[quantiles["quantile"] == 0.5].drop(columns="quantile")
    seen.assign(value=rng.normal(size=len(seen))).to_csv(folder / "observed.csv", index=False)
    seen = pd.MultiIndex.from_product([days, stations], names=["case", "target"])
    pd.DataFrame({"value": y.ravel()}, seen).to_csv(folder / "observations.csv")
    add_quantiles(build_hub(folder / "hub", 6), "quantiles-only", [0.05, 0.25, 0.5, 0.75, 0.95], 6)
    dataset, truth, _ = iri()
    dataset.to_netcdf(folder / "hindcast.nc")
    truth.to_netcdf(folder / "observed.nc")
    times = pd.date_range("2024-01-01", periods=60 * 24, freq="h", name="time")
    names = ["price", *(f"model {k}" for k in range(1, 6))]
    pd.DataFrame(rng.normal(size=(len(times), 6)), times, names).to_csv(folder / "prices.csv")


class Command(NamedTuple):
    text: str
    shown: str | None = None  # the output that the page shows


def commands(text: str) -> list[Command]:
    """What a page tells its reader to type: in blocks of shell or text, and in the text itself."""
    found: list[tuple[int, Command]] = []
    end = -1
    for block in FENCE.finditer(text):
        language, body = block[1], re.sub(r" *\\\n *", " ", block[2])
        follows_code = end >= 0 and not text[end : block.start()].strip()  # then it is the output of that code
        if language == "python":
            end = block.end()
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, _, shown = part.partition("\n")
                found += [(block.start(), Command(one, shown)) for one in _typed(line)]
        elif not (language == "text" and follows_code):
            is_shell = language in ("bash", "sh", "shell")
            lines = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
            found += [
                (block.start(), Command(one)) for line in lines for one in _typed(line) if is_shell or _known(one)
            ]
    # fences become blanks, so that places stay what they were
    prose = FENCE.sub(lambda block: " " * len(block[0]), text)
    for span in SPAN.finditer(prose):
        one = " ".join(span[1].split())
        if _known(one) and " " in one:
            found.append((span.start(), Command(one)))
    return [command for _, command in sorted(found, key=lambda item: item[0])]


def _typed(line: str) -> list[str]:
    """The commands of a line, without what is said about them after two spaces or a hash."""
    return [one.strip() for one in re.split(r"\s{2,}|\s#", line.strip())[0].split("&&")]


def _known(text: str) -> bool:
    return text.split()[0] in PROGRAMS if text.split() else False


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def how(command: str) -> How | None:
    if command in AS_IT_STANDS:
        return How(command, "", AS_IT_STANDS[command])
    return OTHERWISE.get(command)


TOLD = {page: commands(page.read_text(encoding="utf-8")) for page in PAGES}
WITH_COMMANDS = [page for page, told in TOLD.items() if told]
RUN = [page for page, told in TOLD.items() if any((known := how(one.text)) and known.instead for one in told)]


def test_commands_are_found_wherever_a_page_has_them():
    page = """Type `make test`, or `prerank-paper
report DIR`. `make` and `prerank.data` are names.

```python
run()
```

```text
make believe that this is output
```

```text
prerank demo      what it does
grid.json         no command
```

```bash
cd folder && unheard-of --flag   # why
prerank-paper benchmark \\
  --quick
```

```console
$ prerank --version   # which
prerank 1.2.3
$ prerank demo
```
"""
    assert [(one.text, one.shown) for one in commands(page)] == [
        ("make test", None),
        ("prerank-paper report DIR", None),
        ("prerank demo", None),
        ("cd folder", None),
        ("unheard-of --flag", None),
        ("prerank-paper benchmark --quick", None),
        ("prerank --version", "prerank 1.2.3\n"),
        ("prerank demo", ""),
    ]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_every_command_is_run_or_listed_with_a_reason(page):
    unknown = [one.text for one in TOLD[page] if not one.text.startswith("make ") and how(one.text) is None]
    assert not unknown, f"{named(page)} has {unknown}; run them here, or say why not"


def test_the_lists_name_only_commands_that_a_page_has():
    told = {one.text for commands in TOLD.values() for one in commands}
    assert told >= set(AS_IT_STANDS) | set(OTHERWISE)
    assert not set(AS_IT_STANDS) & set(OTHERWISE)


@pytest.fixture(scope="module")
def after(tmp_path_factory) -> Callable[[tuple[How, ...]], tuple[Path, str]]:
    """The folder and the last output after commands that are run one after the other from a folder with what is at hand.

    What several pages begin with is run once.
    """

    @cache
    def state(done: tuple[How, ...]) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp("reader")
        if not done:
            at_hand(folder)
            return folder, ""
        shutil.copytree(state(done[:-1])[0], folder, dirs_exist_ok=True)
        return folder, run(done[-1], folder, tmp_path_factory.mktemp("cache"))

    return state


def run(known: How, folder: Path, empty: Path) -> str:
    """Run a command in a folder; it must end well."""
    assert known.instead is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        patch.setenv("PRERANK_CACHE", str(empty))
        patch.delenv("PRERANK_DATA", raising=False)
        if not known.works:  # the command reads its options and prepares; what takes long is left out
            patch.setattr("prerank_paper.benchmark.run.run_benchmark", lambda *_, **__: Summary(0, 0, []))
            for name in ("simulation_study", "power_study"):
                patch.setattr(f"prerank_paper.cli.simulations.{name}", lambda *_: [])
        program, *arguments = shlex.split(known.instead)
        result = CliRunner().invoke({"prerank": app, "prerank-paper": study}[program], arguments)
    assert result.exit_code == 0, f"{known.instead}: {result.output}"
    return result.output


@pytest.mark.parametrize("page", RUN, ids=named)
def test_commands_run_in_order_from_a_fresh_folder(page, after, assert_same_text):
    done: tuple[How, ...] = ()
    for one in TOLD[page]:
        known = how(one.text)
        if known is None or known.instead is None:
            continue
        done = (*done, known)
        folder, printed = after(done)
        assert (folder / known.leaves).exists(), f"{known.instead} leaves no {known.leaves}"
        if one.shown:
            assert_same_text(printed, one.shown, f"{named(page)}, {one.text}")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    "command", sorted({o.text for told in TOLD.values() for o in told if o.text.startswith("make ")})
)
def test_make_knows_every_target_that_a_page_names(command):
    """They install, test for minutes or serve pages, so that make only says what it would do."""
    planned = subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr


def test_what_is_not_run_names_things_that_exist():
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    for command in OTHERWISE:
        for extra in re.findall(r"(?:prerank|\.)\[(\w+)\]", command):
            assert f"\n{extra} = " in extras, f"{command}: there is no such extra"
        for script in re.findall(r"^python (\S+\.py)", command):
            assert (ROOT / script).exists(), f"{command}: there is no such script"
