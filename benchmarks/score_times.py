"""Scores and marginal ranks: processor time and peak memory beside other packages.

    python benchmarks/score_times.py                        all tasks, into results/scores/scores.csv
    python benchmarks/score_times.py --tasks "energy score" some of them

Every contender computes the same thing of the same numbers in a process of its own, with one thread, of numbers in single
precision, after a warm-up on a few cases that loads and compiles what it needs; three times. Scores have the fair
estimator, and the variogram score also the usual one (`Paper()` here, "nrg" there). Marginal ranks are the counts of the
rank histogram over all cases and targets. Seconds are of the processor, so that other programs matter little; peak memory
is what the process needs on top of its inputs. A contender that holds all pairs of all cases at once gets as many cases as
fit into half of the free memory, or 2 GB, and the compiled fair variogram score, which goes through all pairs of members
and of targets, gets 200; such figures are scaled up, and the record says so. Packages that are not installed are left out
(`pip install scoringrules[numba] xskillscore scores`).
"""

import argparse
import contextlib
import csv
import importlib.metadata
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "scores" / "scores.csv"
CASES, MEMBERS, TARGETS = 10_000, 100, 16
_RULES = ["prerank", "scoringrules numba", "scoringrules torch"]
CONTENDERS = {
    "energy score": _RULES,
    "variogram score": _RULES,
    "variogram score, usual": _RULES,
    "CRPS": _RULES,
    "marginal ranks": ["prerank", "xskillscore", "scores"],
}
REPEATS = 3
FEW = 10  # cases of the warm-up, on which contenders have to agree


def rows_of(task: str, cases: int = CASES, members: int = MEMBERS, targets: int = TARGETS) -> list[dict[str, Any]]:
    """A row per contender and repeat: processor seconds, peak MB, and the number of cases that they are scaled from."""
    rows = []
    for name in (name for name in CONTENDERS[task] if importlib.util.find_spec(name.split()[0])):
        release = importlib.metadata.version(name.split()[0])
        some = cases if name == "prerank" else _cases_that_fit(task, name, cases, members, targets)
        command = [sys.executable, __file__, "--contender", name, "--tasks", task]
        command += ["--cases", str(some), "--members", str(members), "--targets", str(targets)]
        measured = _in_a_process(command)
        for repeat, seconds in enumerate(measured["seconds"]):
            size = {
                "task": task,
                "contender": name,
                "version": release,
                "repeat": repeat,
                "cases": cases,
                "members": members,
            }
            rows.append(
                size
                | {
                    "targets": targets,
                    "scaled_from": some,
                    "seconds": round(seconds * cases / some, 4),
                    "peak_mb": round(measured["peak_mb"] * cases / some, 1),
                    "of_few": measured["of_few"],
                }
            )
    for row in rows:
        if not math.isclose(row["of_few"], rows[0]["of_few"], rel_tol=1e-4):
            raise RuntimeError(f"{task}: {row['contender']} disagrees: {row['of_few']}, ours {rows[0]['of_few']}")
    return rows


def energy_score_rows(cases: int = CASES, members: int = MEMBERS, targets: int = TARGETS) -> list[dict[str, Any]]:
    """One row per contender for the energy score: medians of seconds and peak MB, and both as multiples of ours."""
    return summaries(rows_of("energy score", cases, members, targets))


def summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for every task and contender: medians, and both as multiples of ours."""
    found = []
    for task, name in dict.fromkeys((row["task"], row["contender"]) for row in rows):
        own = [row for row in rows if (row["task"], row["contender"]) == (task, name)]
        seconds, peak = (median(float(row[key]) for row in own) for key in ("seconds", "peak_mb"))
        ours = next((one for one in found if one["task"] == task), {"seconds": seconds, "peak_mb": peak})
        ratios = {"time_ratio": seconds / ours["seconds"], "memory_ratio": peak / max(ours["peak_mb"], 0.1)}
        found.append(own[0] | {"seconds": seconds, "peak_mb": peak} | ratios)
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines for the page."""
    lines = [
        "| task | by | seconds | over ours | MB | scaled from |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in summaries(rows):
        scaled = f"{int(row['scaled_from']):,}" if int(row["scaled_from"]) < int(row["cases"]) else ""
        cells = [row["task"], row["contender"], f"{row['seconds']:.2f}", f"{row['time_ratio']:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row['peak_mb']:,.0f}", scaled]).rstrip() + " |")
    return lines


def _in_a_process(command: list[str]) -> dict[str, Any]:
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "NUMBA", "OPENBLAS")}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | one).stdout
    return json.loads(printed.splitlines()[-1])  # type: ignore[no-any-return]


def _cases_that_fit(task: str, name: str, cases: int, members: int, targets: int) -> int:
    """Pairs of members in every target, of targets in every member, or both; single precision, three copies."""
    pairs = {
        "energy score": members**2 * targets,
        "variogram score": members**2 * targets**2,
        "variogram score, usual": members * targets**2,
        "CRPS": members**2 * targets,
    }
    if (task, name) == ("variogram score", "scoringrules numba"):
        return min(cases, 200)
    if not name.endswith("torch"):
        return cases
    available = min(4e9, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(1, min(cases, int(0.5 * available / (4 * 3 * pairs[task]))))


def _contender(task: str, name: str) -> Callable[[Any, Any], Any]:
    # imported here, so that no contender pays for the libraries of another
    if name == "prerank":
        from prerank import Ensemble, Marginal, projected_pit
        from prerank.scores import Paper, crps, energy_score, variogram_score

        def histogram(y: Any, members: Any) -> Any:
            pit = projected_pit(y, Ensemble(members), Marginal())
            count = members.shape[1] + 1
            return (pit.lower * count).round().long().flatten().bincount(minlength=count)

        scores = {"energy score": energy_score, "variogram score": variogram_score, "CRPS": crps}
        scores["variogram score, usual"] = lambda y, members: variogram_score(y, members, estimator=Paper())
        return scores.get(task, histogram)
    if task == "marginal ranks":
        import xarray as xr

        def labelled(y: Any, members: Any) -> tuple[Any, Any]:
            return xr.DataArray(y, dims=("case", "target")), xr.DataArray(members, dims=("case", "member", "target"))

        if name == "xskillscore":
            import xskillscore

            return lambda y, members: (
                xskillscore.rank_histogram(
                    *labelled(y, members), dim=["case", "target"], member_dim="member", random_for_tied=False
                ).values
            )
        from scores.probability import rank_histogram

        return lambda y, members: rank_histogram(*labelled(y, members)[::-1], "member").values * y.size
    import scoringrules

    backend = name.split()[-1]
    if task == "CRPS":
        return lambda y, members: scoringrules.crps_ensemble(y, members, m_axis=1, estimator="fair", backend=backend)
    function = scoringrules.es_ensemble if task == "energy score" else scoringrules.vs_ensemble
    estimator = "nrg" if task.endswith("usual") else "fair"
    return lambda y, members: function(y, members, estimator=estimator, backend=backend)


def _one_number(task: str, found: Any) -> float:
    """The mean score, or the mean rank."""
    if task != "marginal ranks":
        return float(found.mean())
    return float(sum(rank * float(count) for rank, count in enumerate(found)) / float(found.sum()))


def _measure(task: str, name: str, cases: int, members: int, targets: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    score = _contender(task, name)
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(FEW, members + 1, targets, generator=generator)
    x = torch.randn(cases, members + 1, targets, generator=generator)
    y, forecast, few_y, few_members = x[:, 0].clone(), x[:, 1:].clone(), few[:, 0], few[:, 1:]
    if name not in ("prerank", "scoringrules torch"):
        y, forecast, few_y, few_members = (part.numpy() for part in (y, forecast, few_y, few_members))
    del x
    first = score(few_y, few_members)
    score(y[:50], forecast[:50])
    seconds, peaks = [], []
    for _ in range(REPEATS):
        before = _start_of_peak()
        started = time.process_time()
        score(y, forecast)
        seconds.append(time.process_time() - started)
        peaks.append(_peak_bytes() - before)
    return {"seconds": seconds, "peak_mb": max(peaks) / 1e6, "of_few": _one_number(task, first)}


def _start_of_peak() -> int:
    """Bytes in use now; from here on the high-water mark counts afresh where the system lets us reset it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    # VmHWM rather than ru_maxrss where there is one: the latter includes the process that started this one
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--tasks", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--contender", help="measure this one alone, here, and print JSON")
    options = parser.parse_args()
    size = (options.cases, options.members, options.targets)
    if options.contender:
        print(json.dumps(_measure(options.tasks[0], options.contender, *size)))
        return
    rows: list[dict[str, Any]] = []
    for task in options.tasks:
        rows += rows_of(task, *size)
        for row in summaries([one for one in rows if one["task"] == task]):
            note = f"  scaled from {row['scaled_from']:,} cases" if row["scaled_from"] < row["cases"] else ""
            print(
                f"{task:16}{row['contender']:20}{row['seconds']:9.3f} s{row['time_ratio']:9.2f}"
                f"{row['peak_mb']:9.0f} MB{row['memory_ratio']:9.1f}{note}",
                flush=True,
            )
    if options.tasks == list(CONTENDERS) and size == (CASES, MEMBERS, TARGETS):
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        with RECORD.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
