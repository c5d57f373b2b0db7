"""Do the GPU kernels compute what the plain code computes? Values and gradients against float64, fresh random inputs.

python reproduction/benchmarks/kernels.py      # on a machine with an NVIDIA GPU and Triton
TRITON_INTERPRET=1 python reproduction/benchmarks/kernels.py --dimensions 2  # with Triton and no GPU: slow, interpreted
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from prerank._kernels import MINIBATCH, without
from prerank.calibration import SmoothRank, pce_kde, smooth_pit
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.models.network import mixture_from, perceptron
from prerank.preranks import Dependency, Scale, principal_directions
from prerank.preranks.joint_cdf import smooth_log_joint_cdf
from prerank.preranks.point_density import bandwidths
from prerank.randomness import mix, normal, normals_of_step
from prerank.training import TrainingSet
from prerank.training.batches import Batches
from prerank.training.fleet import Architecture, Run, adam, all_finite, new_fleet
from prerank_paper.published import soft_draws, soft_joint_cdf, with_gumbel

LIMIT = 2e-4  # float32 arithmetic through a Cholesky factor of moderate condition; tf32 would give 1e-3
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Triton's interpreter runs one program after another, so there it gets few.
MODELS, CASES, COMPONENTS, DRAWS = 3, 40 if DEVICE == "cuda" else 2, 5, 100
MANY = 300 if DEVICE == "cuda" else 130

Row = tuple[str, str, float]


def relative(value: Tensor, reference: Tensor) -> float:
    return float((value.detach().double() - reference.detach()).norm() / reference.detach().norm())


class Numbers:
    """Random numbers on the GPU, from a generator of their own."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator(DEVICE).manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=DEVICE)


def mixture(n_targets: int) -> tuple[Tensor, Tensor, Tensor]:
    numbers = Numbers(n_targets)
    loc = numbers(MODELS, CASES, COMPONENTS, n_targets)
    raw = 0.3 * numbers(MODELS, CASES, COMPONENTS, n_targets, n_targets)
    tril = raw.tril(-1) + torch.diag_embed(0.5 + raw.diagonal(dim1=-2, dim2=-1).abs())
    return numbers(MODELS, CASES, COMPONENTS), loc, tril


def errors(what: str, function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Iterator[Row]:
    """Relative errors of the value and of every gradient of a function, float32 against float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        given = [tensor.to(dtype).clone().requires_grad_() for tensor in inputs]
        value = function(*given)
        weight = torch.cos(torch.arange(value.numel(), device=DEVICE)).reshape(value.shape).to(dtype)
        results.append([value, *torch.autograd.grad((value * weight).sum(), given)])
    for number, (a, b) in enumerate(zip(*results, strict=True)):
        yield what, f"gradient {number}" if number else "value", relative(a, b)


def of_mixtures(n_targets: int) -> Iterator[Row]:
    law, numbers = mixture(n_targets), Numbers(1)
    y = numbers(MODELS, CASES, n_targets)
    points = numbers(MODELS, CASES, 37, n_targets)
    noise = numbers(MODELS, CASES, DRAWS, n_targets)
    soft = with_gumbel(numbers(MODELS, CASES, DRAWS, COMPONENTS, n_targets + 1))
    common, own = numbers(1, n_targets, 2), numbers(MODELS, CASES, n_targets, n_targets)

    def density(logits, loc, tril, shift):
        return GaussianMixture(logits, loc, tril).log_density(points.to(loc) + shift)

    def drawn(logits, loc, tril):
        ensemble = GaussianMixture(logits, loc, tril.tril()).draw(DRAWS, noise=noise.to(loc))
        assert ensemble.weights is not None
        return (ensemble.members.square().sum(-1) * ensemble.weights).sum(-1)

    yield from errors("log density", density, (*law, torch.zeros(MODELS, CASES, 1, n_targets, device=DEVICE)))
    yield from errors("log likelihood", lambda a, b, c: GaussianMixture(a, b, c).log_prob(y.to(a)), law)
    owner = torch.tensor([1, 0, 1], device=DEVICE)

    def shared(logits, loc, tril):
        ensemble = GaussianMixture(logits, loc, tril.tril()).draws_from([noise[:2].to(loc)], owner=owner)[0]
        assert ensemble.weights is not None
        return (ensemble.members.square().sum(-1) * ensemble.weights).sum(-1)

    yield from errors("draws", drawn, law)
    yield from errors("draws of shared numbers", shared, law)
    for what, u in (("PIT along common directions", common), ("PIT along own directions", own)):
        yield from errors(what, lambda a, b, c, u=u: GaussianMixture(a, b, c.tril()).pit_along(u.to(a), y.to(a)), law)
    yield from errors("published draws", lambda a, b, c: soft_draws(GaussianMixture(a, b, c.tril()), soft.to(a)), law)
    with torch.no_grad():
        found, exact = (GaussianMixture(*(p.to(t) for p in law)) for t in (torch.float32, torch.float64))
        yield "covariance", "value", relative(found.covariance_matrix, exact.covariance_matrix)


def of_ranks(n_targets: int) -> Iterator[Row]:
    numbers = Numbers(2)
    y, members = numbers(MODELS, CASES, n_targets), numbers(MODELS, CASES, DRAWS, n_targets)
    points, weights = numbers(MODELS, CASES, 37, n_targets), numbers(MODELS, CASES, DRAWS)

    def rank(prerank):
        def pit(members, weights):
            ensemble = Ensemble(members, weights.exp())
            return smooth_pit(y.to(members), ensemble, prerank.given(ensemble), SmoothRank())

        return pit

    def joint(points, draws, weights):
        bandwidth = torch.full_like(points[..., :1, :], 0.6).detach()
        return smooth_log_joint_cdf(points, draws, weights.exp(), bandwidth)

    def vanishing(points, draws):
        # every third draw weighs nothing and lies nearest: dlogF/dw, a quotient of two tiny numbers, would overflow
        nothing = torch.arange(DRAWS, device=DEVICE) % 3 == 0
        weights = torch.where(nothing, 0.0, 1.0).to(points).expand(MODELS, CASES, DRAWS)
        return joint(points, draws + 12.0 * weights[..., None], weights.log())

    for prerank in (Scale(), Dependency()) if n_targets > 2 else (Scale(),) if n_targets > 1 else ():
        yield from errors(f"rank by {prerank.name}", rank(prerank), (members, weights))
    many = [numbers(MODELS, CASES, *shape) for shape in ((MANY, n_targets), (MANY - 10, n_targets), (MANY - 10,))]
    for what, given in (("joint CDF", (points, members, weights)), ("joint CDF, many draws", tuple(many))):
        yield from errors(what, joint, given)
        yield from errors(f"published {what}", lambda p, r: soft_joint_cdf(p, r, 3.0), given[:2])
    yield from errors("joint CDF, no weight", vanishing, (points, members))
    for what, drawn, own in (("bandwidths", members, weights), ("bandwidths, many draws", many[1], many[2])):
        drawn = torch.cat([drawn[..., :-1], torch.full_like(drawn[..., :1], 3.0)], -1)  # points that all agree
        found, exact = (bandwidths(drawn.to(t), own.to(t).exp()) for t in (torch.float32, torch.float64))
        yield what, "value", relative(found, exact)
    pit, cases = torch.special.ndtr(numbers(MODELS, CASES, n_targets)), numbers(MODELS, CASES).exp()
    for what, given, exponent in (
        ("smooth PCE", None, 1),
        ("weighted smooth PCE", cases, 1),
        ("squared PCE", cases, 2),
    ):
        yield from errors(
            what,
            lambda z, given=given, exponent=exponent: pce_kde(z, 20.0, exponent=exponent, case_weights=given),
            (pit,),
        )
    if n_targets > 1:
        a = numbers(500 if DEVICE == "cuda" else 5, n_targets, 3 * n_targets)
        a = a @ a.mT
        v = principal_directions(a).double()
        values = torch.linalg.eigvalsh(a.double()).flip(-1)
        yield "eigenvectors", "A v = lambda v", relative(a.double() @ v, v * values[:, None, :])
        positive = v.gather(-2, v.abs().argmax(-2, keepdim=True)) > 0
        yield "eigenvectors", "signs", relative(positive, torch.ones_like(v[:, :1]))


def of_training(n_targets: int) -> Iterator[Row]:
    numbers = Numbers(3)
    outputs = COMPONENTS * (1 + n_targets + n_targets * (n_targets + 1) // 2)
    sizes = (7, 100, 100, outputs)
    weights = [0.1 * numbers(MODELS, a, b) for a, b in pairwise(sizes)]
    biases = [0.1 * numbers(MODELS, 1, b) for b in sizes[1:]]
    x = numbers(MODELS, CASES, sizes[0])
    # an output of both signs everywhere: half of the hidden units are off
    yield from errors("perceptron", lambda *p: perceptron(x.to(p[0]), p[:3], p[3:]), (*weights, *biases))

    def unpacked(output):
        law = mixture_from(output, n_targets, COMPONENTS, 1e-3)
        return torch.cat([law.logits.flatten(1), law.loc.flatten(1), law.scale_tril.tril().flatten(1)], 1)

    yield from errors("mixture from output", unpacked, (3 * numbers(MODELS, CASES, outputs),))
    keys, step = torch.tensor([5, -7], device=DEVICE), torch.tensor(11, device=DEVICE)
    shape = (CASES, DRAWS, n_targets)
    plain = normal(mix(keys + step), shape, torch.float32).double()
    yield "normal numbers", "value", relative(normals_of_step(keys, step, shape, torch.float32), plain)
    fleets = [
        new_fleet([Run(k) for k in range(MODELS)], Architecture(7, n_targets), dtype, torch.device(DEVICE), 1e-2)
        for dtype in (torch.float32, torch.float64)
    ]
    update = torch.tensor([True, False, True], device=DEVICE)
    for _ in range(3):
        gradients = [numbers(*tensor.shape) for tensor in fleets[0].weights]
        gradients[0][1, 0, 0] = torch.nan
        for fleet in fleets:
            adam(fleet, [g.to(fleet.weights[0]) for g in gradients], update)
    pairs = zip(fleets[0].named_tensors().items(), fleets[1].named_tensors().values(), strict=True)
    for (name, value), reference in pairs:
        if name.startswith(("weights", "first", "second")) and reference.norm() > 0:
            yield "Adam", name, relative(value, reference)
    seeds = torch.tensor([1, 0, 1], device=DEVICE)
    tables = [numbers(2, 50, 7), numbers(2, 50, n_targets), numbers(2, 50)]
    rows = torch.tensor([[3, 49, -1], [0, 1, 2]], device=DEVICE)
    data = TrainingSet(*(table[0] for table in tables[:2]), *(table[0] for table in tables[:2]))
    batches = Batches([data, data], [0, 1], 3)
    batches.x, batches.y, batches.weights = tables
    taken = batches.take(rows, seeds)
    with without([MINIBATCH]):
        expected = batches.take(rows, seeds)
    for name, value, reference in zip(("features", "targets", "weights"), taken, expected, strict=True):
        yield "minibatch", name, relative(value, reference.double())
    large = numbers(MODELS, 100, 100)
    large[2, 99, 99] = torch.inf
    found = all_finite([numbers(MODELS), *gradients, large])
    yield "all finite", "models", relative(found, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64, device=DEVICE))


def let_loops_be_interpreted() -> None:
    """Let Triton's interpreter count to a bound that is an argument, whatever NumPy thinks of it.

    The interpreter holds such a bound as an array of one number and asks `int` for it; NumPy from 2.4 on refuses.
    """
    from triton.runtime import interpreter

    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is None:
        return

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") == "1":
        let_loops_be_interpreted()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("no GPU here; set TRITON_INTERPRET=1 to run the kernels in Triton's interpreter")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 3, 6, 16, 17])
    worst = 0.0
    for dimension in parser.parse_args().dimensions:
        for part in (of_mixtures, of_ranks, of_training):
            for what, name, error in part(dimension):
                flag = "" if error < LIMIT else "  <-- too large"
                print(f"D = {dimension:<3} {what:<28} {name:<18} {error:.1e}{flag}", flush=True)
                worst = max(worst, error if error == error else float("inf"))
    print(f"worst {worst:.1e}, limit {LIMIT:.0e}")
    sys.exit(0 if worst < LIMIT else 1)
