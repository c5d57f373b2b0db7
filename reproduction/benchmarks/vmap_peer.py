"""The same fleet as one would write it with torch.func and torch.compile: a peer for the library's own training step.

    python reproduction/benchmarks/vmap_peer.py --verify  # loss and gradients equal the library's, every pre-rank
    python reproduction/benchmarks/vmap_peer.py --verify --compile          # the same through torch.compile

One model is an `nn.Module` and a loss of one minibatch; `torch.func.stack_module_state`, `functional_call` and `vmap` make
a fleet of it, and `torch.compile` fuses loss, gradients and Adam into one step, replayed as a CUDA graph on a GPU. The
penalty is that of one pre-rank in the exact protocol: closed-form PITs for linear pre-ranks, smooth ranks among weighted
draws from every component for the others.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.functional import pad, softplus

COMPONENTS, HIDDEN, FLOOR = 5, 100, 1e-3
TEMPERATURE, LEVELS, AT_LEAST = 100.0, 100, 2
LINEAR = ("none", "marginal", "location", "contrast", "PCA")
Noise = Mapping[str, Tensor]


class Mixture(NamedTuple):
    """Of one minibatch: logits (B, C), means (B, C, D), Cholesky factors (B, C, D, D)."""

    logits: Tensor
    loc: Tensor
    tril: Tensor


class Network(nn.Module):
    """One model: two hidden layers, five components."""

    def __init__(self, n_features: int, n_targets: int) -> None:
        super().__init__()
        self.d = n_targets
        outputs = COMPONENTS * (1 + n_targets + n_targets * (n_targets + 1) // 2)
        self.layers = nn.Sequential(
            nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
        )

    def forward(self, x: Tensor) -> Mixture:
        c, d = COMPONENTS, self.d
        logits, loc, raw = self.layers(x).split([c, c * d, c * d * (d + 1) // 2], -1)
        raw = raw.unflatten(-1, (c, -1))
        # row by row, padded: no indices, so no atomics in the backward pass
        rows = [pad(raw[..., i * (i + 1) // 2 : (i + 1) * (i + 2) // 2], (0, d - 1 - i)) for i in range(d)]
        factors = torch.stack(rows, -2)
        diagonal = torch.eye(d, dtype=torch.bool, device=x.device)
        return Mixture(logits, loc.unflatten(-1, (c, d)), torch.where(diagonal, softplus(factors) + FLOOR, factors))


def log_density(law: Mixture, points: Tensor) -> Tensor:
    """Of points (B, P, D): (B, P)."""
    log_det = law.tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    height = law.logits.log_softmax(-1) - log_det - 0.5 * points.shape[-1] * math.log(2 * math.pi)
    centred = (points[:, None] - law.loc[:, :, None]).mT
    whitened = torch.linalg.solve_triangular(law.tril, centred, upper=False)
    return torch.logsumexp(height[..., None] - 0.5 * whitened.square().sum(-2), -2)


def pit_along(law: Mixture, directions: Tensor, y: Tensor) -> Tensor:
    """CDF of u'Y at u'y: directions (B or 1, D, K), y (B, D) -> (B, K)."""
    loc = law.loc @ directions
    scale = (law.tril.mT @ directions[:, None]).square().sum(-2).sqrt()
    value = (y[:, :, None] * directions).sum(-2)
    below = torch.special.ndtr((value[:, None] - loc) / scale)
    return (law.logits.softmax(-1)[..., None] * below).sum(-2).clamp(0.0, 1.0)


def principal_directions(law: Mixture) -> Tensor:
    """Eigenvectors (B, D, D) of the mixture's covariance, largest first, the largest entry of each positive."""
    weights, loc, tril = law.logits.detach().softmax(-1), law.loc.detach(), law.tril.detach()
    centred = loc - (weights[..., None] * loc).sum(-2, keepdim=True)
    covariance = tril @ tril.mT + centred[..., :, None] * centred[..., None, :]
    vectors = torch.linalg.eigh((weights[..., None, None] * covariance).sum(-3)).eigenvectors.flip(-1)
    size = vectors.abs()
    largest = (size >= (1 - 1e-5) * size.amax(-2, keepdim=True)).to(torch.uint8).argmax(-2, keepdim=True)
    return vectors * torch.where(vectors.gather(-2, largest) < 0, -1.0, 1.0)


def draws(law: Mixture, noises: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Sets of draws (B, S, D) from every component in proportion to its detached weight, and their weights (B, S)."""
    n_draws = noises[0].shape[-2]
    weights = law.logits.softmax(-1)
    free = n_draws - AT_LEAST * COMPONENTS
    share = weights.detach() * free
    whole = share.floor()
    order = (share - whole).argsort(-1, descending=True).argsort(-1)
    counts = whole + (order < free - whole.sum(-1, keepdim=True)) + AT_LEAST
    position = torch.arange(n_draws, device=counts.device)
    choice = (position[:, None] >= counts.cumsum(-1)[:, None, :-1]).sum(-1)
    # by all components and then chosen: factors gathered for every draw would be D times as large
    place = choice[:, None, :, None].expand(-1, 1, -1, law.loc.shape[-1])
    members = [
        (law.loc[:, :, None] + torch.einsum("bcij,bsj->bcsi", law.tril, noise)).gather(1, place)[:, 0]
        for noise in noises
    ]
    return members, (weights / counts).gather(-1, choice)


def log_joint_cdf(points: Tensor, reference: Tensor, weights: Tensor) -> Tensor:
    """Smooth log joint CDF of points (B, P, D) under weighted draws (B, R, D), with Scott's bandwidths: (B, P)."""
    held, share = reference.detach(), weights.detach()[..., None]
    spread = (share * (held - (share * held).sum(-2, keepdim=True)).square()).sum(-2, keepdim=True).sqrt()
    shrink = (1.0 / share.square().sum(-2, keepdim=True)) ** (-1.0 / (points.shape[-1] + 4))
    bandwidth = torch.where(spread > 0, spread, 1.0) * shrink
    excess = (reference[:, None] / bandwidth[:, None] - points[:, :, None] / bandwidth[:, None]).clamp_min(0.0)
    return torch.logsumexp(weights.log()[:, None] - 0.5 * excess.square().sum(-1), -1)


def variance(points: Tensor) -> Tensor:
    return (points - points.mean(-1, keepdim=True)).square().mean(-1)


def dependency(points: Tensor) -> Tensor:
    return -0.5 * (points[..., 1:] - points[..., :-1]).square().mean(-1) / variance(points)


def pits(prerank: str, law: Mixture, y: Tensor, noise: Noise) -> Tensor:
    """Training PITs (B, K) of one pre-rank."""
    d = y.shape[-1]
    if prerank == "marginal":
        return pit_along(law, torch.eye(d, dtype=y.dtype, device=y.device)[None], y)
    if prerank == "location":
        return pit_along(law, torch.full((1, d, 1), 1 / d, dtype=y.dtype, device=y.device), y)
    if prerank == "contrast":
        return pit_along(law, torch.tensor([1.0, -1.0], dtype=y.dtype, device=y.device)[None, :, None], y)
    if prerank == "PCA":
        return pit_along(law, principal_directions(law), y)
    (members, *learnt), weights = draws(law, [noise[name] for name in ("ranked", "learnt") if name in noise])
    weights = weights / weights.sum(-1, keepdim=True)
    points = torch.cat([y[:, None], members], -2)
    project: dict[str, Callable[[Tensor], Tensor]] = {
        "scale": variance,
        "dependency": dependency,
        "HDR": lambda points: log_density(law, points),
        "copula": lambda points: log_joint_cdf(points, learnt[0], weights),
    }
    t, ranked = project[prerank](points).split([1, members.shape[-2]], -1)
    held, share = ranked.detach(), weights.detach()
    spread = (share * (held - (share * held).sum(-1, keepdim=True)).square()).sum(-1, keepdim=True).sqrt()
    below = torch.sigmoid(TEMPERATURE * (t - ranked) / torch.where(spread > 0, spread, 1.0))
    return (weights * below).sum(-1, keepdim=True)


def penalty(pit: Tensor) -> Tensor:
    """PCE-KDE of PITs (B, K), a mean over projections."""
    levels = (torch.arange(LEVELS, dtype=pit.dtype, device=pit.device) + 0.5) / LEVELS
    smooth = torch.sigmoid(TEMPERATURE * (levels[:, None, None] - pit)).mean(-2)
    return (levels[:, None] - smooth).abs().mean()


@dataclass(frozen=True)
class Peer:
    """A fleet with a penalty on one pre-rank ("none": without), as a function of stacked parameters."""

    network: nn.Module
    prerank: str

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, y: Tensor, noise: Noise, strength: Tensor) -> Tensor:
        """Of one model."""
        law = functional_call(self.network, dict(parameters), (x,))
        score = -log_density(law, y[:, None]).mean()
        return score if self.prerank == "none" else score + strength * penalty(pits(self.prerank, law, y, noise))

    def gradients(
        self, parameters: Mapping[str, Tensor], x: Tensor, y: Tensor, noise: Noise, strength: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Gradients and losses of all models: x (E, B, L), y (E, B, D), noise (E, B, S, D), strength (E,)."""
        return vmap(grad_and_value(self.loss))(parameters, x, y, noise, strength)


def streams_of(prerank: str) -> tuple[str, ...]:
    """Which sets of normal numbers a pre-rank uses."""
    return () if prerank in LINEAR else ("ranked", "learnt") if prerank == "copula" else ("ranked",)


class Training:
    """The fleet in training: parameters, Adam, and a step of it. Models of one seed share rows and random numbers."""

    def __init__(
        self, prerank: str, x: Tensor, y: Tensor, strengths: Sequence[float], n_draws: int, batch: int = 256
    ) -> None:
        n_seeds, self.batch, self.n_draws = len(x), batch, n_draws
        device, dtype = x.device, x.dtype
        models = [Network(x.shape[-1], y.shape[-1]).to(device, dtype) for _ in range(n_seeds * len(strengths))]
        parameters, _ = stack_module_state(models)
        self.parameters = {name: tensor.detach() for name, tensor in parameters.items()}
        self.first = {name: torch.zeros_like(tensor) for name, tensor in self.parameters.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in self.parameters.items()}
        self.count = torch.zeros((), dtype=dtype, device=device)
        self.seed_of = torch.arange(n_seeds, device=device).repeat_interleave(len(strengths))
        self.strength = torch.tensor(list(strengths) * n_seeds, dtype=dtype, device=device)
        self.x, self.y = x, y
        self.peer = Peer(models[0].to("meta"), prerank)

    def step(self, rows: Tensor) -> None:
        """One step on rows (seeds, B) of the data (seeds, N, ...)."""
        seed = torch.arange(len(rows), device=rows.device)[:, None]
        x, y = self.x[seed, rows], self.y[seed, rows]
        shape = (*rows.shape, self.n_draws, y.shape[-1])
        noise = {
            name: torch.randn(shape, dtype=y.dtype, device=y.device)[self.seed_of]
            for name in streams_of(self.peer.prerank)
        }
        gradients, _ = self.peer.gradients(self.parameters, x[self.seed_of], y[self.seed_of], noise, self.strength)
        self.count += 1
        for name, gradient in gradients.items():
            m, v = self.first[name], self.second[name]
            m.lerp_(gradient, 0.1)
            v.lerp_(gradient.square(), 0.001)
            root = (v / (1 - 0.999**self.count)).sqrt() + 1e-8
            self.parameters[name].sub_(1e-4 / (1 - 0.9**self.count) * m / root)


def captured(function: Callable[[Tensor], None], rows: Tensor) -> Callable[[Tensor], None]:
    """The function as a CUDA graph."""
    static = rows.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(static)

    def replay(rows: Tensor) -> None:
        static.copy_(rows)
        graph.replay()

    return replay


def prepared(training: Training, compile_it: bool = True) -> tuple[Callable[[Tensor], None], str]:
    """The step, compiled and on a GPU captured as a graph, and how it came out; warmed up.

    The library's eigenvectors make the host wait, so that PCA cannot be captured.
    """
    step = torch.compile(training.step, dynamic=False) if compile_it else training.step
    n_rows = training.x.shape[1]
    rows = torch.arange(training.batch, device=training.x.device).expand(len(training.x), -1) % n_rows
    rows = rows.contiguous()
    how = "compiled" if compile_it else "eager"
    for _ in range(3):
        step(rows)
    if training.x.device.type == "cuda" and training.peer.prerank != "PCA":
        try:
            return captured(step, rows), f"{how}, one graph"
        except RuntimeError as failure:
            return step, f"{how}, no graph: {str(failure).splitlines()[0]}"
    return step, how


def milliseconds_per_step(training: Training, step: Callable[[Tensor], None], n_steps: int, looks: int = 3) -> float:
    """The median over a few looks of the mean time of so many steps; the step is warm."""
    on_gpu = training.x.device.type == "cuda"
    generator = torch.Generator(training.x.device).manual_seed(0)
    shape = (n_steps, len(training.x), training.batch)
    rows = torch.randint(training.x.shape[1], shape, device=training.x.device, generator=generator)
    taken = []
    for _ in range(looks):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for some in rows:
            step(some)
        if on_gpu:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return 1000 * sorted(taken)[looks // 2] / n_steps


class Difference(NamedTuple):
    """Of the peer from the library: relative errors of the losses and of the gradients."""

    prerank: str
    n_targets: int
    loss: float
    gradient: float


def difference(
    prerank: str, n_targets: int, compile_it: bool = False, batch: int = 24, n_draws: int = 30
) -> Difference:
    """Both for the same parameters, rows and random numbers, in double precision: two seeds by two strengths."""
    from prerank.preranks import paper_preranks
    from prerank.training import NegativeLogLikelihood, PreRankPenalty, Run
    from prerank.training.fleet import Architecture, forecast_of, new_fleet

    n_features, generator = 3, torch.Generator().manual_seed(7)
    runs = [Run(seed) for seed in (0, 1) for _ in (0, 1)]
    strength = torch.tensor([0.5, 10.0] * 2, dtype=torch.float64)
    architecture = Architecture(n_features, n_targets)
    weights = new_fleet(runs, architecture, torch.float64, torch.device("cpu")).weights
    leaves = [tensor.requires_grad_() for tensor in weights]

    def numbers(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64, generator=generator).repeat_interleave(2, 0)

    x, y = numbers(batch, n_features), numbers(batch, n_targets)
    noise = {name: numbers(batch, n_draws, n_targets) for name in streams_of(prerank)}
    forecast = forecast_of(leaves, x, architecture)
    ours = NegativeLogLikelihood()(y, forecast).mean(-1)
    if prerank != "none":
        (item,) = (item for item in paper_preranks(n_targets) if item.name == prerank)
        ours = ours + strength * PreRankPenalty(item, n_draws=n_draws)(y, forecast, noise=noise)
    own = torch.autograd.grad(ours.sum(), leaves)
    # the library's weights are (E, in, out) and its biases (E, 1, out)
    names = [f"layers.{2 * k}.{part}" for k in range(3) for part in ("weight", "bias")]
    parameters = {
        name: (tensor.mT if name.endswith("weight") else tensor[:, 0]).detach().contiguous()
        for name, tensor in zip(names, leaves, strict=True)
    }
    peer = Peer(Network(n_features, n_targets).to("meta"), prerank)
    gradients_of = torch.compile(peer.gradients, dynamic=False) if compile_it else peer.gradients
    gradients, theirs = gradients_of(parameters, x, y, noise, strength)
    found = torch.cat([gradients[name].flatten(1) for name in names], -1)
    wanted = [g.mT if name.endswith("weight") else g[:, 0] for name, g in zip(names, own, strict=True)]
    expected = torch.cat([part.flatten(1) for part in wanted], -1)
    return Difference(
        prerank,
        n_targets,
        float((theirs / ours.detach() - 1).abs().max()),
        float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max()),
    )


def preranks_of(n_targets: int) -> list[str]:
    """The pre-ranks of the exact protocol with so many targets, and none."""
    dependence = "dependency" if n_targets > 2 else "contrast"
    return ["none", "marginal", "location", "scale", dependence, "PCA", "HDR", "copula"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verify", action="store_true", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--preranks", nargs="+")
    asked = parser.parse_args()
    worst = 0.0
    for n_targets in asked.dimensions:
        for name in asked.preranks or preranks_of(n_targets):
            found = difference(name, n_targets, asked.compile)
            worst = max(worst, found.loss, found.gradient)
            print(f"D = {n_targets} {name:<11} loss {found.loss:.1e}, gradients {found.gradient:.1e}", flush=True)
    print(f"worst relative error: {worst:.1e}")
    return 0 if worst < 1e-8 else 1


if __name__ == "__main__":
    sys.exit(main())
