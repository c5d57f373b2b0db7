"""A fleet of E equals E fleets of one, in single precision on a GPU: every parameter after 50 steps, per pre-rank.

python benchmarks/fleet.py --device cuda
"""

import argparse

import torch

from prerank.calibration import paper_preranks
from prerank.training import FitOptions, PreRankPenalty, PublishedPenalty, Run, TrainingSet, fit


def main(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1100, 5, generator=generator)
    y = torch.randn(1100, 4, generator=generator) * (1 + x[:, :1].abs()) + x[:, 1:]
    x, y = x.to(device), y.to(device)
    data = TrainingSet(x[:1000], y[:1000], x[1000:], y[1000:])
    preranks = paper_preranks(4)
    runs = [Run(0), Run(1)]
    runs += [Run(seed, PreRankPenalty(item), 5.0 + seed) for item in preranks for seed in (0, 1)]
    runs += [Run(0, PublishedPenalty(item), 5.0) for item in preranks]
    options = FitOptions(max_epochs=13, patience=10**6, min_improvement=0.0)  # 4 steps an epoch: 52 steps
    together = fit(runs, data, options)
    again = fit(runs, data, options)
    worst = 0.0
    for place, run in enumerate(runs):
        alone = fit([run], data, options)
        pairs = list(zip(alone.weights, together.weights, strict=True))
        difference = max(float((a[0] - b[place]).abs().max()) for a, b in pairs)
        rerun = max(
            float((a[place] - b[place]).abs().max()) for a, b in zip(again.weights, together.weights, strict=True)
        )
        apart = sum(int(((a[0] - b[place]).abs() > 1e-4).sum()) for a, b in pairs)
        count = sum(a[0].numel() for a, _ in pairs)
        worst = max(worst, difference)
        name = run.penalty.name if run.penalty else "none"
        score = abs(float(alone.best_score[0] - together.best_score[place]))
        print(
            f"{name:<28} seed {run.seed}: parameters {difference:.1e}, over 1e-4: {apart} of {count}, "
            f"score {score:.1e}; re-run {rerun:.1e}"
        )
    print(f"worst parameter difference after {together.steps} steps: {worst:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    main(parser.parse_args().device)
