"""Do the GPU kernels compute what the plain code computes? Values and gradients against float64, fresh random inputs.

python benchmarks/kernels.py      # on a machine with an NVIDIA GPU and Triton
"""

import argparse
import sys

import torch
from torch import Tensor

from prerank.calibration import jacobi
from prerank.calibration.jointcdf import smooth_log_joint_cdf
from prerank.forecast import GaussianMixture
from prerank.training.published import soft_draws
from prerank.training.softcdf import soft_joint_cdf

LIMIT = 2e-4  # float32 arithmetic through a Cholesky factor of moderate condition; tf32 would give 1e-3


def relative(value: Tensor, reference: Tensor) -> float:
    return float((value.detach().double() - reference.detach()).norm() / reference.detach().norm())


def mixture(n_targets: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(n_targets)
    logits = torch.randn(3, 40, 5, generator=generator, device="cuda")
    loc = torch.randn(3, 40, 5, n_targets, generator=generator, device="cuda")
    raw = 0.3 * torch.randn(3, 40, 5, n_targets, n_targets, generator=generator, device="cuda")
    tril = raw.tril(-1) + torch.diag_embed(0.5 + raw.diagonal(dim1=-2, dim2=-1).abs())
    return [tensor.to(dtype).requires_grad_() for tensor in (logits, loc, tril)]


def both(function, inputs_of) -> list[tuple[str, float]]:
    """Relative errors of the value and of every gradient of a function, float32 against float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = inputs_of(dtype)
        value = function(*inputs)
        weight = torch.cos(torch.arange(value.numel(), device="cuda")).reshape(value.shape).to(dtype)
        gradients = torch.autograd.grad((value * weight).sum(), inputs)
        results.append([value, *gradients])
    names = ["value"] + [f"gradient {k}" for k in range(len(results[0]) - 1)]
    return [(name, relative(a, b)) for name, a, b in zip(names, *results, strict=True)]


def rows(dimensions: list[int]) -> list[tuple[str, str, float]]:
    table = []
    for n_targets in dimensions:
        generator = torch.Generator("cuda").manual_seed(1)
        points = torch.randn(3, 40, 37, n_targets, generator=generator, device="cuda")
        noise = torch.randn(3, 40, 100, n_targets, generator=generator, device="cuda")

        def density(logits, loc, tril, at, points=points):
            return GaussianMixture(logits, loc, tril).log_density(points.to(loc) + at)

        def with_shift(dtype, n_targets=n_targets):
            return [
                *mixture(n_targets, dtype),
                torch.zeros(3, 40, 1, n_targets, device="cuda", dtype=dtype).requires_grad_(),
            ]

        def drawn(logits, loc, tril, noise=noise):
            ensemble = GaussianMixture(logits, loc, tril.tril()).draw(100, noise=noise.to(loc))
            assert ensemble.weights is not None
            return (ensemble.members.square().sum(-1) * ensemble.weights).sum(-1)

        def joint(p, r, w):
            return smooth_log_joint_cdf(p, r, w.softmax(-1), torch.full_like(p[..., :1, :], 0.6).detach())

        def sets(dtype, points=points, noise=noise):
            weights = torch.linspace(-1, 1, 100, device="cuda").expand(3, 40, 100)
            return [t.to(dtype).clone().requires_grad_() for t in (points, noise, weights)]

        def soft(p, r):
            return soft_joint_cdf(p, r, 3.0)

        def averaged(logits, loc, tril, n_targets=n_targets):
            numbers = torch.randn(
                3, 40, 100, 5, n_targets + 1, generator=torch.Generator("cuda").manual_seed(2), device="cuda"
            )
            return soft_draws(GaussianMixture(logits, loc, tril.tril()), numbers.to(loc))

        for what, function, inputs in (
            ("log density", density, with_shift),
            ("draws", drawn, lambda dtype, d=n_targets: mixture(d, dtype)),
            ("joint CDF", joint, sets),
            ("published draws", averaged, lambda dtype, d=n_targets: mixture(d, dtype)),
            ("published CDF", soft, lambda dtype: sets(dtype)[:2]),
        ):
            table += [(f"{what}, D = {n_targets}", name, error) for name, error in both(function, inputs)]
        if 1 < n_targets <= jacobi.LARGEST:
            a = torch.randn(500, n_targets, 3 * n_targets, device="cuda")
            a = a @ a.mT
            v = jacobi.eigenvectors(a).double()
            values = torch.linalg.eigvalsh(a.double())
            table.append(
                (f"eigenvectors, D = {n_targets}", "A v = lambda v", relative(a.double() @ v, v * values[:, None, :]))
            )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 3, 6, 16, 17])
    table = []
    for dimension in parser.parse_args().dimensions:
        for what, name, error in rows([dimension]):
            print(f"{what:<24} {name:<16} {error:.1e}", flush=True)
            table.append((what, name, error))
    worst = max(error for _, _, error in table)
    print(f"worst {worst:.1e}, limit {LIMIT:.0e}")
    sys.exit(0 if worst < LIMIT else 1)
