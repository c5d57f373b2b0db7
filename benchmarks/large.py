"""Time and memory of `check` with very large ensembles.

    PYTHONPATH=src python benchmarks/large.py

20 cases of 50,000 members and 5 targets, and 2,000 cases of 2,000 members and 10 targets. Each size runs in a process of its
own; memory is the peak of the process above what it held with the data loaded.
"""

import argparse
import multiprocessing
import time
from typing import Any

import numpy as np
import torch

from diagnostics import peak
from prerank import Ensemble, check

SIZES = ((20, 50_000, 5), (2_000, 2_000, 10))


def run(size: tuple[int, int, int], threads: int, connection: Any) -> None:
    torch.set_num_threads(threads)
    n_cases, n_members, n_targets = size
    rng = np.random.default_rng(0)
    members = rng.normal(size=(n_cases, n_members, n_targets))
    y = rng.normal(size=(n_cases, n_targets))
    check(y[:5], Ensemble(members[:5, :50]), n_replicates=2)  # the first call of an operation loads it
    before, begin = peak(), time.perf_counter()
    result = check(y, Ensemble(members))  # a shape of 2,000 by 2,000 says nothing about its axes
    connection.send((time.perf_counter() - begin, peak() - before, members.nbytes, result.verdict))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")  # a forked process would inherit the peak
    print(f"{'cases x members x targets':28s} {'seconds':>8s} {'MB':>7s} {'data, MB':>9s}")
    for size in SIZES:
        here, there = context.Pipe()
        process = context.Process(target=run, args=(size, options.threads, there))
        process.start()
        there.close()
        seconds, memory, data, verdict = here.recv()
        process.join()
        name = " x ".join(f"{n:,}" for n in size)
        print(f"{name:28s} {seconds:8.1f} {memory / 1e6:7.0f} {data / 1e6:9.0f}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
