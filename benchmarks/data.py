"""Time and memory of loading and splitting: PRERANK_DATA=... python benchmarks/data.py [NAME ...]."""

import resource
import sys
import time

import prerank.randomness  # noqa: F401 - imported first: imports are not what is measured
from prerank_paper.datasets import load, split


def peak_mb() -> float:
    """The largest resident memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    """Print one line per dataset, the largest by default."""
    print(f"after imports: {peak_mb():.0f} MB")
    for name in [argument for argument in sys.argv[1:] if not argument.startswith("-")] or ["calcofi"]:
        start = time.perf_counter()
        table = load(name, accept_licence="--accept-licence" in sys.argv, download=False)
        loaded = time.perf_counter()
        parts = split(table, seed=0)
        done = time.perf_counter()
        print(
            f"{name}: {table.n_cases:,} rows, load {loaded - start:.2f} s, split {done - loaded:.2f} s, "
            f"peak {peak_mb():.0f} MB, sizes {tuple(parts.sizes)}"
        )


if __name__ == "__main__":
    main()
