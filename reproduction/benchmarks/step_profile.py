"""Where the time of a training step goes on a GPU: kernels by name, their launches and microseconds in a step.

    python reproduction/benchmarks/step_profile.py [--targets 2 6 16] [--protocol exact] [--rows 25]      # one GPU, a minute

The fleet is that of `step_times.py`. Kernels of parallel branches run at the same time, so that their microseconds add up
to more than the step takes; the share of a step in which no kernel runs is printed beside it.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from prerank.training import FitOptions, fit
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from step_times import all_of, grid
from training import BATCH, make_set

STEPS_OF_AN_EPOCH, EPOCHS = 16, 30
PAUSE = 20_000.0  # microseconds without a kernel: something was compiled or captured


class Launch(NamedTuple):
    """A kernel that ran: its name, and when, in microseconds."""

    name: str
    start: float
    end: float


def launches_of(events: Iterable[Any]) -> list[Launch]:
    """What ran on the GPU, in order, without copies and fills."""
    found = []
    for event in events:
        if event.device_type() == DeviceType.CUDA and not event.name().startswith("Mem"):
            start = event.start_ns() / 1000
            found.append(Launch(event.name(), start, start + event.duration_ns() / 1000))
    return sorted(found, key=lambda launch: launch.start)


def busy(launches: Iterable[Launch]) -> float:
    """Microseconds in which at least one kernel ran."""
    total, until = 0.0, float("-inf")
    for launch in launches:
        total += max(0.0, launch.end - max(launch.start, until))
        until = max(until, launch.end)
    return total


def after_the_last_pause(launches: list[Launch]) -> list[Launch]:
    """What ran since the last pause: captured steps alone."""
    first = 0
    for place in range(1, len(launches)):
        if launches[place].start - launches[place - 1].end > PAUSE:
            first = place
    return launches[first:]


def table(launches: list[Launch], n_rows: int) -> str:
    """Kernels by the time that they take together, in microseconds and in % of all of it."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for launch in launches:
        by_name[launch.name].append(launch.end - launch.start)
    total = sum(map(sum, by_name.values()))
    lines = [f"{'kernel':<60} {'launches':>8} {'us each':>8} {'share':>6}"]
    for name, taken in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:n_rows]:
        mean, share = sum(taken) / len(taken), 100 * sum(taken) / total
        lines.append(f"{name[:60]:<60} {len(taken):>8} {mean:>8.1f} {share:>5.1f}%")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", default=[2, 6, 16])
    parser.add_argument("--protocol", choices=(EXACT, AS_PUBLISHED), default=EXACT)
    parser.add_argument("--rows", type=int, default=25)
    options = parser.parse_args()
    for n_targets in options.targets:
        runs = all_of(grid(n_targets, options.protocol))
        data = make_set(n_targets, "cuda", STEPS_OF_AN_EPOCH * BATCH)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            fit(runs, data, FitOptions(max_epochs=EPOCHS, patience=10**6))
            torch.cuda.synchronize()
        late = after_the_last_pause(launches_of(profiled.profiler.kineto_results.events()))
        span = late[-1].end - late[0].start
        print(
            f"D = {n_targets}, {options.protocol}, {len(runs)} models: {100 * busy(late) / span:.0f} % of the time busy"
        )
        print(table(late, options.rows), flush=True)


if __name__ == "__main__":
    main()
