"""Milliseconds per training step on a CPU: each pre-rank alone, in a fleet, and against a plain implementation.

python reproduction/benchmarks/training.py      # two CPU cores: ratios to a plain loop, D = 4 and 16

All numbers of the table come from one run; absolute times are those of the machine. A GPU has `step_times.py`.
"""

import argparse
import time
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank.preranks import paper_preranks
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit
from prerank_paper.benchmark.timing import Stopwatch

BATCH, DRAWS, FEATURES, COMPONENTS = 256, 100, 10, 5
STRENGTHS = (0.01, 0.1, 1.0, 5.0, 10.0)
SEEDS = (0, 42, 866, 12, 4)


def make_set(n_targets: int, device: str, rows: int = 4 * BATCH) -> TrainingSet:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows + 64, FEATURES, generator=generator)
    y = torch.randn(rows + 64, n_targets, generator=generator) * (1 + x[:, :1].abs())
    x, y = x.to(device), y.to(device)
    return TrainingSet(x[:rows], y[:rows], x[rows:], y[rows:])


def milliseconds_per_step(runs: list[Run], data: TrainingSet, epochs: int) -> float:
    """Median time of an epoch after the first (which warms up and captures), over its steps; validation included."""
    watch = Stopwatch()
    fit(runs, data, FitOptions(max_epochs=epochs + 1, patience=10**6), watch)
    taken = sorted(b - a for a, b in pairwise(watch.times))
    return 1000 * taken[len(taken) // 2] / (len(data.x) // BATCH)


class PlainNetwork(nn.Module):
    """One model the way one would write it first."""

    def __init__(self, n_targets: int) -> None:
        super().__init__()
        self.d = n_targets
        triangle = n_targets * (n_targets + 1) // 2
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(),
            nn.Linear(100, COMPONENTS * (1 + n_targets + triangle)),
        )  # fmt: skip

    def forward(self, x: Tensor) -> MixtureSameFamily:
        c, d = COMPONENTS, self.d
        logits, loc, raw = self.layers(x).split([c, c * d, c * d * (d + 1) // 2], -1)
        factor = torch.zeros(len(x), c, d, d)
        rows, columns = torch.tril_indices(d, d)
        factor[..., rows, columns] = raw.reshape(len(x), c, -1)
        diagonal = nn.functional.softplus(factor.diagonal(dim1=-2, dim2=-1)) + 1e-3
        factor = factor.tril(-1) + torch.diag_embed(diagonal)
        normal = MultivariateNormal(loc.reshape(len(x), c, d), scale_tril=factor, validate_args=False)
        return MixtureSameFamily(Categorical(logits=logits), normal, validate_args=False)


def plain_draws(law: MixtureSameFamily) -> Tensor:
    """Differentiable draws through a soft choice of the component, (S, B, D)."""
    each = law.component_distribution.rsample((DRAWS,))
    logits = law.mixture_distribution.logits.expand(DRAWS, *law.mixture_distribution.logits.shape)
    return (nn.functional.gumbel_softmax(logits, tau=1.0)[..., None] * each).sum(-2)


def plain_penalty(name: str, law: MixtureSameFamily, y: Tensor) -> Tensor:
    draws = plain_draws(law)
    if name == "marginal":
        t, hat = y, draws
    elif name == "location":
        t, hat = y.mean(-1, keepdim=True), draws.mean(-1, keepdim=True)
    elif name == "scale":
        t, hat = y.var(-1, correction=0, keepdim=True), draws.var(-1, correction=0, keepdim=True)
    elif name == "dependency":

        def ratio(v: Tensor) -> Tensor:
            return -(v[..., 1:] - v[..., :-1]).square().mean(-1, keepdim=True) / v.var(-1, correction=0, keepdim=True)

        t, hat = ratio(y), ratio(draws)
    elif name == "PCA":
        pooled = draws.detach().reshape(-1, draws.shape[-1])
        vectors = torch.linalg.eigh(torch.cov(pooled.T)).eigenvectors
        t, hat = y @ vectors, draws @ vectors
    elif name == "HDR":
        t, hat = law.log_prob(y)[:, None], torch.stack([law.log_prob(draw) for draw in draws])[..., None]
    else:
        reference = plain_draws(law)

        def joint(point: Tensor) -> Tensor:
            return torch.sigmoid(100 * (point - reference)).prod(-1).mean(0)

        t, hat = joint(y)[:, None], torch.stack([joint(draw) for draw in draws])[..., None]
    pit = torch.sigmoid(100 * (t - hat)).mean(0)
    levels = torch.linspace(0, 1, 100)
    smooth = torch.sigmoid(100 * (levels[:, None, None] - pit)).mean(1)
    return (levels[:, None] - smooth).abs().mean()


def plain_milliseconds(name: str, n_targets: int, steps: int) -> float:
    data = make_set(n_targets, "cpu")
    network = PlainNetwork(n_targets)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    taken = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        law = network(data.x[:BATCH])
        loss = -law.log_prob(data.y[:BATCH]).mean() + 10 * plain_penalty(name, law, data.y[:BATCH])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        taken.append(time.perf_counter() - start)
    return 1000 * sorted(taken[1:])[steps // 2]


def cpu_table(fleet: int, epochs: int) -> None:
    print(f"milliseconds per model and step, batch {BATCH}, S = {DRAWS}, {torch.get_num_threads()} threads")
    heads = ("D", "pre-rank", "plain", "alone", f"fleet of {fleet}", "plain/alone", "plain/fleet")
    print("{:>3} {:<11} {:>8} {:>8} {:>12} {:>12} {:>12}".format(*heads))
    for n_targets in (4, 16):
        data = make_set(n_targets, "cpu", 2 * BATCH)
        for prerank in paper_preranks(n_targets):
            penalty = PreRankPenalty(prerank, n_draws=DRAWS)
            plain = plain_milliseconds(prerank.name, n_targets, 5)
            alone = milliseconds_per_step([Run(0, penalty, 10.0)], data, epochs)
            runs = [Run(SEEDS[k % 5], penalty, 1.0 + k) for k in range(fleet)]
            together = milliseconds_per_step(runs, data, 1) / fleet
            print(
                f"{n_targets:>3} {prerank.name:<11} {plain:>8.1f} {alone:>8.1f} {together:>12.2f} "
                f"{plain / alone:>12.1f} {plain / together:>12.1f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3)
    chosen = parser.parse_args()
    cpu_table(chosen.fleet, chosen.epochs)
