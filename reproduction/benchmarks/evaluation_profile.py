"""Where the time of a fleet's evaluation goes: the library's functions by the seconds that they take, children included.

    python reproduction/benchmarks/evaluation_profile.py house --device cuda        # one GPU, half a minute
    python reproduction/benchmarks/evaluation_profile.py ansur2 --seeds 0           # a trial on a CPU, under a minute

The fleet is that of the benchmark, trained for one epoch. On a GPU it is evaluated twice and the second time is shown, when
all kernels are compiled; a function that waits for the device is charged with what was under way.
"""

import argparse
import cProfile
import pstats
from pathlib import Path

import prerank
from prerank_paper.benchmark.plan import Grid
from prerank_paper.benchmark.work import Settings, work
from prerank_paper.datasets.sizes import dataset_size

HOME = Path(prerank.__file__).parent


def table(profile: cProfile.Profile, n_rows: int) -> str:
    """Functions of the library by cumulative seconds."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = [
        (cumulative, total, calls, f"{Path(file).relative_to(HOME)}:{name}")
        for (file, _, name), (_, calls, total, cumulative, _) in stats.items()
        if Path(file).is_relative_to(HOME)
    ]
    lines = [f"{'seconds':>8} {'itself':>8} {'calls':>8}  function"]
    lines += [f"{row[0]:8.2f} {row[1]:8.2f} {row[2]:8d}  {row[3]}" for row in sorted(own, reverse=True)[:n_rows]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--protocol", default="exact")
    parser.add_argument("--seeds", default="0,42,866,12,4")
    parser.add_argument("--rows", type=int, default=40)
    given = parser.parse_args()
    seeds = tuple(int(seed) for seed in given.seeds.split(","))
    grid = Grid((given.dataset,), seeds=seeds, protocols=(given.protocol,))
    (fleet,) = grid.fleets({given.dataset: dataset_size(given.dataset).n_targets})
    settings = Settings(given.device, max_epochs=1, accept_licence=True)
    if given.device != "cpu":
        work(fleet, settings, None)
    profile = cProfile.Profile()
    result = profile.runcall(work, fleet, settings, None)
    about = result.about
    print(
        f"{fleet.name}, {about['n_models']} models, {about['n_test']:,} test rows: {about['evaluation_seconds']:.1f} s"
    )
    print(table(profile, given.rows))


if __name__ == "__main__":
    main()
