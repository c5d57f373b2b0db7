r"""The functions that a tilt is made of: shifted Legendre polynomials, orthonormal for a uniform PIT.

$b_j(u) = \sqrt{2j + 1}\, P_j(2u - 1)$ for j = 1, 2, ...: mean zero and variance one under calibration, so that their means
over observed PITs are the components of Neyman's smooth test.
"""

from collections.abc import Iterator

import torch
from torch import Tensor


def _polynomials(pits: Tensor, degree: int) -> Iterator[Tensor]:
    x = 2.0 * pits - 1.0
    before, here = torch.ones_like(x), x
    for j in range(1, degree + 1):
        yield here * (2 * j + 1) ** 0.5
        before, here = here, ((2 * j + 1) * x * here - j * before) / (j + 1)


def legendre(pits: Tensor, degree: int) -> Tensor:
    """The first polynomials at PITs (..., K): (..., J, K).

    >>> legendre(torch.tensor([0.0, 0.5, 1.0]), 2)
    tensor([[-1.7321,  0.0000,  1.7321],
            [ 2.2361, -1.1180,  2.2361]])
    """
    result = pits.new_empty(*pits.shape[:-1], degree, pits.shape[-1])
    for j, values in enumerate(_polynomials(pits, degree)):
        result[..., j, :] = values
    return result


def log_tilt(pits: Tensor, theta: Tensor) -> Tensor:
    r"""$\sum_{kj} \theta_{jk} b_j(Z_k)$: PITs (N, P, K) and coefficients (J, K), or (N, J, K) by case -> (N, P)."""
    theta = theta.to(pits)
    result = torch.zeros_like(pits[..., 0])
    for j, values in enumerate(_polynomials(pits, theta.shape[-2])):
        result += (values @ theta[..., j, :, None])[..., 0]
    return result


def by_case(theta: Tensor, features: Tensor) -> Tensor:
    """Coefficients (N, J, K) of cases with features (N, L), from those (L, J, K) of each feature."""
    return torch.einsum("nl,ljk->njk", features.to(theta), theta)
