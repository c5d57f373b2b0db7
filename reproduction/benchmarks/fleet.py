"""A fleet of E equals E fleets of one, in single precision on a GPU: every parameter after 50 steps, per pre-rank.

python reproduction/benchmarks/fleet.py --device cuda
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import torch

from prerank.preranks import paper_preranks
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit
from prerank_paper.published import PublishedPenalty


class Comparison(NamedTuple):
    """One model, trained with the others and alone: largest difference of a parameter, of the score, and of a re-run."""

    name: str
    parameters: float
    over: int
    count: int
    score: float
    rerun: float


def compare(device: str, epochs: int = 13) -> Iterator[Comparison]:
    """Baselines, every pre-rank of the paper, and every pre-rank as published; 4 steps an epoch, so 52 by default."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1100, 5, generator=generator)
    y = torch.randn(1100, 4, generator=generator) * (1 + x[:, :1].abs()) + x[:, 1:]
    x, y = x.to(device), y.to(device)
    data = TrainingSet(x[:1000], y[:1000], x[1000:], y[1000:])
    preranks = paper_preranks(4)
    runs = [Run(0), Run(1)]
    runs += [Run(seed, PreRankPenalty(item), 5.0 + seed) for item in preranks for seed in (0, 1)]
    runs += [Run(0, PublishedPenalty(item), 5.0) for item in preranks]
    options = FitOptions(max_epochs=epochs, patience=10**6, min_improvement=0.0)
    together, again = fit(runs, data, options), fit(runs, data, options)
    for place, run in enumerate(runs):
        alone = fit([run], data, options)
        differences = [(a[0] - b[place]).abs() for a, b in zip(alone.weights, together.weights, strict=True)]
        reruns = [(a[place] - b[place]).abs() for a, b in zip(again.weights, together.weights, strict=True)]
        yield Comparison(
            f"{run.penalty.name if run.penalty else 'none'}, seed {run.seed}",
            max(float(part.max()) for part in differences),
            sum(int((part > 1e-4).sum()) for part in differences),
            sum(part.numel() for part in differences),
            abs(float(alone.best_score[0] - together.best_score[place])),
            max(float(part.max()) for part in reruns),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    worst = 0.0
    for found in compare(parser.parse_args().device):
        worst = max(worst, found.parameters)
        print(
            f"{found.name:<33} parameters {found.parameters:.1e}, over 1e-4: {found.over} of {found.count}, "
            f"score {found.score:.1e}; re-run {found.rerun:.1e}",
            flush=True,
        )
    print(f"worst parameter difference: {worst:.1e}")
