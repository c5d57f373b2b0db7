"""Does training produce NaN on any dataset at hand? Small fleets of all pre-ranks on every one of them.

    PRERANK_DATA=folder python benchmarks/robustness.py                    # every dataset at hand, 60 steps
    PRERANK_DATA=folder python benchmarks/robustness.py --tails            # heavy tails: wq, scpf and house, to the end

The first table counts models that diverged or have a weight, a validation score or a test score that is not finite, at two
learning rates and strength 10. The second trains baselines to their early stop and asks where a test NLL comes from: its
mean, median and largest value next to the validation NLL, for several floors of the scale; by how many standard deviations
the features of the worst row lie outside the training range; and mean and largest value with features clipped to that range.
"""

import argparse
import os

import torch

from prerank.io import DataError
from prerank.preranks import paper_preranks
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit
from prerank_paper.datasets import load, split
from prerank_paper.datasets.catalogue import PAPER_DATASETS

MOST_ROWS = 4000
FLOORS = (1e-3, 1e-2, 3e-2)


def prepared(name: str, seed: int, most_rows: int | None = MOST_ROWS) -> tuple[TrainingSet, torch.Tensor, torch.Tensor]:
    """Training and validation rows, and the test rows; big tables are cut to their first rows of each part."""
    parts = split(load(name, accept_licence=True), seed)

    def tensors(part) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(part.x[:most_rows]).float(), torch.from_numpy(part.y[:most_rows]).float()

    return TrainingSet(*tensors(parts.train), *tensors(parts.validation)), *tensors(parts.test)


def names() -> list[str]:
    at_hand = []
    for item in PAPER_DATASETS:
        name = item if isinstance(item, str) else item.name
        try:
            load(name, accept_licence=True)
        except DataError:
            continue
        at_hand.append(name)
    return at_hand


def short_fits(chosen: list[str], steps: int) -> int:
    """Print one line per dataset; return how many models failed."""
    print(f"{'dataset':<12} {'D':>3} {'models':>6} {'lr 1e-3':>8} {'lr 1e-4':>8}   worst test NLL of a trained model")
    failed = 0
    for name in chosen:
        data, x_test, y_test = prepared(name, 0)
        n_targets = data.y.shape[1]
        runs = [Run(0)] + [Run(0, PreRankPenalty(item), 10.0) for item in paper_preranks(n_targets)]
        bad, worst = [], 0.0
        for rate in (1e-3, 1e-4):
            options = FitOptions(learning_rate=rate, max_epochs=max(1, steps // -(-len(data.x) // 256)))
            fleet = fit(runs, data, options)
            score = -fleet.forecast(x_test).log_prob(y_test.expand(len(runs), -1, -1)).mean(-1)
            sound = fleet.best_score.isfinite() & score.isfinite() & ~fleet.diverged
            for weight in fleet.weights:
                sound &= weight.flatten(1).isfinite().all(-1)
            bad.append(int((~sound).sum()))
            worst = max(worst, float(score.max()))
        failed += sum(bad)
        print(f"{name:<12} {n_targets:>3} {len(runs):>6} {bad[0]:>8} {bad[1]:>8}   {worst:.2f}", flush=True)
    return failed


def tails(chosen: list[str], seeds: tuple[int, ...], max_epochs: int) -> None:
    heads = (
        "dataset",
        "floor",
        "seed",
        "valid NLL",
        "test NLL",
        "median",
        "largest",
        "outside by",
        "clipped",
        "largest",
    )
    print("{:<8} {:>6} {:>4} {:>9} {:>9} {:>8} {:>9} {:>10} {:>9} {:>9}".format(*heads))
    for name in chosen:
        for seed in seeds:
            data, x_test, y_test = prepared(name, seed, None)
            low, high = data.x.min(0).values, data.x.max(0).values
            outside = torch.maximum(low - x_test, x_test - high).amax(-1).clamp_min(0.0)
            for floor in FLOORS:
                fleet = fit([Run(seed)], data, FitOptions(learning_rate=1e-3, max_epochs=max_epochs, floor=floor))
                score, clipped = (
                    -fleet.forecast(x).log_prob(y_test[None])[0].double()
                    for x in (x_test, torch.minimum(torch.maximum(x_test, low), high))
                )
                print(
                    f"{name:<8} {floor:>6g} {seed:>4} {float(fleet.best_score[0]):>9.3f} {float(score.mean()):>9.3f} "
                    f"{float(score.median()):>8.3f} {float(score.max()):>9.1f} {float(outside[score.argmax()]):>10.1f} "
                    f"{float(clipped.mean()):>9.3f} {float(clipped.max()):>9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tails", action="store_true")
    parser.add_argument("--epochs", type=int, default=100, help="at most, for --tails")
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if "PRERANK_DATA" not in os.environ:
        raise SystemExit("PRERANK_DATA names no folder of datasets: nothing to do")
    if given.tails:
        tails(given.only or ["wq", "scpf", "house"], (0, 42), given.epochs)
    else:
        failures = short_fits(given.only or names(), given.steps)
        print(f"models that failed: {failures}")
        raise SystemExit(failures > 0)
