"""Time and memory of a diagnosis at N = 10,000 cases, M = 100 members, D = 16 targets, and of the energy score.

    PYTHONPATH=src python benchmarks/diagnostics.py

One row per pre-rank, then all seven together, then with the test over all of them (999 exchange replicates). Every row
runs in a process of its own; memory is the peak of the process above what it held with the data loaded. The aim is 10 s
and 1.5 GB on two cores for all seven. The rows of the energy score come from benchmarks/score_times.py where that is there.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from prerank import Ensemble, paper_preranks, pce_test, projected_pit

TOGETHER, WITH_TEST = "all seven", "all seven and their joint test"


def run(name: str, n_cases: int, n_members: int, n_targets: int, threads: int, connection: Any) -> None:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_cases, n_members + 1, n_targets, generator=generator)
    y, forecast = x[:, 0].contiguous(), Ensemble(x[:, 1:])
    preranks = paper_preranks(n_targets)
    chosen = [prerank for prerank in preranks if name in (prerank.name, TOGETHER, WITH_TEST)]
    small = Ensemble(x[:50, 1:])  # the first call of an operation loads it
    pce_test(projected_pit(y[:50], small, chosen, exchangeable=True), n_replicates=2)
    before, cpu, begin = peak(), time.process_time(), time.perf_counter()
    pit = projected_pit(y, forecast, chosen, exchangeable=name == WITH_TEST)
    if name == WITH_TEST:
        pce_test(pit)
    connection.send((time.perf_counter() - begin, time.process_time() - cpu, peak() - before))


def peak() -> float:
    """Largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def measure(name: str, n_cases: int, n_members: int, n_targets: int, threads: int) -> tuple[float, float, float]:
    context = multiprocessing.get_context("spawn")  # a forked process would inherit the peak
    here, there = context.Pipe()
    process = context.Process(target=run, args=(name, n_cases, n_members, n_targets, threads, there))
    process.start()
    there.close()
    result = here.recv()
    process.join()
    return result  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None, help="also write the rows there")
    options = parser.parse_args()
    names = [prerank.name for prerank in paper_preranks(options.targets)]
    rows = []
    print(f"N = {options.cases}, M = {options.members}, D = {options.targets}, {options.threads} threads")
    print(f"{'':34s} {'seconds':>8s} {'CPU s':>8s} {'MB':>7s}")
    for name in [*names, TOGETHER, WITH_TEST]:
        wall, cpu, memory = measure(name, options.cases, options.members, options.targets, options.threads)
        rows.append({"what": name, "seconds": wall, "cpu_seconds": cpu, "bytes": memory})
        print(f"{name:34s} {wall:8.2f} {cpu:8.2f} {memory / 1e6:7.0f}", flush=True)
    try:
        from score_times import energy_score_rows
    except ImportError as reason:
        print(f"energy score: left out ({reason})")
    else:
        for row in energy_score_rows(options.cases, options.members, options.targets):
            what = f"energy score, {row['contender']}"
            print(f"{what:34s} {row['seconds']:8.2f} {'':8s} {row['peak_mb']:7.0f}", flush=True)
            rows.append({"what": what, "seconds": row["seconds"], "bytes": 1e6 * row["peak_mb"]})
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
