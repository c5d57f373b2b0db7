"""Energy score: time and peak memory against the back ends of scoringrules.

Run `python benchmarks/scores.py`. Every contender scores the same members in a process of its own, with the fair
estimator, in single precision, after a warm-up on a few cases that loads and compiles what it needs. Peak memory is
what the process needs on top of its inputs. The torch back end of scoringrules holds all pairs of all cases at once;
where that does not fit in the free memory it gets fewer cases and its figures are scaled up, and the table says so.
"""

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CASES, MEMBERS, TARGETS = 10_000, 100, 16
CONTENDERS = ["prerank", "scoringrules numba", "scoringrules torch"]
REPEATS = 2


def energy_score_rows(cases: int = CASES, members: int = MEMBERS, targets: int = TARGETS) -> list[dict]:
    """One row per contender: seconds, peak MB, and both as multiples of ours."""
    rows = []
    for name in CONTENDERS:
        scored = _cases_that_fit(cases, members, targets) if name == "scoringrules torch" else cases
        command = [sys.executable, __file__, "--contender", name, "--cases", str(scored)]
        command += ["--members", str(members), "--targets", str(targets)]
        measured = _in_a_process(command)
        scale = cases / scored
        rows.append(
            {
                "contender": name,
                "cases": cases,
                "scaled from": scored if scored < cases else None,
                "seconds": measured["seconds"] * scale,
                "peak_mb": measured["peak_mb"] * scale,
                "mean_of_first": measured["mean_of_first"],
            }
        )
    for row in rows:
        if not math.isclose(row["mean_of_first"], rows[0]["mean_of_first"], rel_tol=1e-5):
            raise RuntimeError(f"{row['contender']} disagrees: {row['mean_of_first']}, ours {rows[0]['mean_of_first']}")
        row["time_ratio"] = row["seconds"] / rows[0]["seconds"]
        row["memory_ratio"] = row["peak_mb"] / rows[0]["peak_mb"]
    return rows


def _in_a_process(command: list[str]) -> dict:
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def _cases_that_fit(cases: int, members: int, targets: int) -> int:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    per_case = 4 * 2 * members**2 * targets  # single precision, room for two arrays of all pairs
    return max(1, min(cases, int(0.8 * available / per_case)))


def _contender(name: str) -> Callable:
    # imported here, so that no contender pays for the libraries of another
    if name == "prerank":
        from prerank.scores import energy_score

        return energy_score
    import scoringrules

    backend = name.split()[-1]
    return lambda y, members: scoringrules.es_ensemble(y, members, estimator="fair", backend=backend)


def _measure(name: str, cases: int, members: int, targets: int) -> dict:
    import torch

    score = _contender(name)
    generator = torch.Generator().manual_seed(0)
    forecast = torch.randn(cases, members, targets, generator=generator)
    y = torch.randn(cases, targets, generator=generator)
    if name == "scoringrules numba":
        forecast, y = forecast.numpy(), y.numpy()
    first = score(y[:10], forecast[:10])
    seconds, peaks = [], []
    for _ in range(REPEATS):
        before = _start_of_peak()
        started = time.perf_counter()
        score(y, forecast)
        seconds.append(time.perf_counter() - started)
        peaks.append(_peak_bytes() - before)
    return {"seconds": min(seconds), "peak_mb": max(peaks) / 1e6, "mean_of_first": float(first.mean())}


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--targets", type=int, default=TARGETS)
    parser.add_argument("--contender", choices=CONTENDERS, help="measure this one alone, here, and print JSON")
    options = parser.parse_args()
    size = (options.cases, options.members, options.targets)
    if options.contender:
        print(json.dumps(_measure(options.contender, *size)))
        return
    print("Energy score, N = {:,}, M = {}, D = {}, single precision, {} CPUs".format(*size, os.cpu_count()))
    print(f"{'':20}{'seconds':>10}{'times ours':>12}{'peak MB':>10}{'times ours':>12}")
    for row in energy_score_rows(*size):
        note = f"  scaled from {row['scaled from']:,} cases" if row["scaled from"] else ""
        print(
            f"{row['contender']:20}{row['seconds']:10.2f}{row['time_ratio']:12.1f}"
            f"{row['peak_mb']:10.0f}{row['memory_ratio']:12.1f}{note}"
        )


if __name__ == "__main__":
    main()
