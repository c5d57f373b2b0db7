"""Milliseconds per training step: each pre-rank alone, in a fleet, and against a plain implementation.

    python benchmarks/training.py                      # two CPU cores: ratios to a plain loop, D = 4 and 16
    python benchmarks/training.py --device cuda        # one GPU: 180 models at D = 2, 6, 16, both protocols

All numbers of a table come from one run; absolute times on a CPU are those of the machine.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank.calibration import paper_preranks
from prerank.studies.published import PublishedPenalty
from prerank.training import FitOptions, PreRankPenalty, Run, Stopwatch, TrainingSet, fit

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


def grid(n_targets: int, protocol: type[PreRankPenalty] | type[PublishedPenalty] = PreRankPenalty) -> list[Run]:
    """The benchmark's grid of one dataset: 7 pre-ranks x 5 strengths x 5 seeds and 5 baselines."""
    penalties = [protocol(prerank, n_draws=DRAWS) for prerank in paper_preranks(n_targets)]
    return [Run(seed) for seed in SEEDS] + [
        Run(seed, penalty, strength) for penalty in penalties for strength in STRENGTHS for seed in SEEDS
    ]


def gpu_table(dimensions: list[int], profile: bool, out: Path | None) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(), "float32, no tf32; batch", BATCH, "S", DRAWS)
    print("milliseconds a step of all models, of every third and every ninth; at last each group of the grid alone")
    print("  D  models      all    third    ninth  GB peak  floor ms")
    for n_targets in dimensions:
        data = make_set(n_targets, "cuda", 64 * BATCH)
        for protocol in (PreRankPenalty, PublishedPenalty):
            runs = grid(n_targets, protocol)
            torch.cuda.reset_peak_memory_stats()
            times = [milliseconds_per_step(runs[::share], data, 5) for share in (1, 3, 9)]
            peak = torch.cuda.max_memory_allocated() / 1e9
            listed = " ".join(f"{ms:>8.2f}" for ms in times)
            print(
                f"{n_targets:>3} {len(runs):>7} {listed} {peak:>8.2f} {floor(n_targets):>9.2f}   {protocol.__name__}",
                flush=True,
            )
            if profile:
                _profile(runs, data, out, f"{n_targets}_{protocol.__name__}")
        runs = grid(n_targets)
        parts = {"none": milliseconds_per_step(runs[:5], data, 3)}
        for k, prerank in enumerate(paper_preranks(n_targets)):
            parts[prerank.name] = milliseconds_per_step(runs[5 + 25 * k : 30 + 25 * k], data, 3)
        print("    alone: " + ", ".join(f"{name} {ms:.2f}" for name, ms in parts.items()), flush=True)


def floor(n_targets: int, bandwidth: float = 4.3e12, flops: float = 60e12) -> float:
    """The least milliseconds a step of the grid can take: bytes that must move, or operations, whichever is slower.

    Bytes: weights, gradients and two Adam moments read and written once; activations and mixture parameters of 180 models
    written and read once each way; draws of the 100 models with a non-linear pre-rank likewise. Operations: the
    perceptron forward and backward, the factors times noise, HDR's whitening, the copula's pairs (4 each, twice).
    """
    d, c, e, b, s = n_targets, COMPONENTS, 180, BATCH, DRAWS
    outputs = c * (1 + d + d * (d + 1) // 2)
    weights = FEATURES * 100 + 100 * 100 + 100 * outputs
    moved = 4 * e * (weights * 8 + 4 * b * (200 + outputs)) + 4 * 4 * 100 * b * s * d
    done = 6 * e * b * weights + 6 * 100 * b * s * d * d + 6 * 25 * b * s * c * d * d + 12 * 25 * b * s * s * d
    return 1000 * max(moved / bandwidth, done / flops)


def _profile(runs: list[Run], data: TrainingSet, out: Path | None, name: str) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA]) as recorded:
        fit(runs, data, FitOptions(max_steps=20, patience=10**6))
    text = recorded.key_averages().table(sort_by="cuda_time_total", row_limit=60, max_name_column_width=90)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"profile_{name}.txt").write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--fleet", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 6, 16], help="on a GPU")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if chosen.device == "cuda":
        gpu_table(chosen.dimensions, chosen.profile, chosen.out)
    else:
        cpu_table(chosen.fleet, chosen.epochs)
