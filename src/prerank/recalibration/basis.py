r"""The functions that a tilt is made of: shifted Legendre polynomials, orthonormal for a uniform PIT.

$b_j(u) = \sqrt{2j + 1}\, P_j(2u - 1)$ for j = 1, 2, ...: mean zero and variance one under calibration, so that their means
over observed PITs are the components of Neyman's smooth test.
"""

import torch
from torch import Tensor


def legendre(pits: Tensor, degree: int) -> Tensor:
    """The first polynomials at PITs (..., K): (..., J, K).

    >>> legendre(torch.tensor([0.0, 0.5, 1.0]), 2)
    tensor([[-1.7321,  0.0000,  1.7321],
            [ 2.2361, -1.1180,  2.2361]])
    """
    result = pits.new_empty(*pits.shape[:-1], degree, pits.shape[-1])
    x = 2.0 * pits - 1.0
    before, here = torch.ones_like(x), x
    for j in range(1, degree + 1):
        result[..., j - 1, :] = here * (2 * j + 1) ** 0.5
        before, here = here, ((2 * j + 1) * x * here - j * before) / (j + 1)
    return result


def log_tilt(pits: Tensor, theta: Tensor) -> Tensor:
    r"""$\sum_{kj} \theta_{jk} b_j(Z_k)$: PITs (N, P, K) and coefficients (J, K), or (N, J, K) by case -> (N, P).

    By Clenshaw's recurrence: two passes over the points for each degree, and no polynomial is kept.
    """
    theta = theta.to(pits)
    degree = theta.shape[-2]
    x = 2.0 * pits - 1.0
    here, after = torch.zeros_like(x), torch.zeros_like(x)
    for j in range(degree, 0, -1):
        coefficient = theta[..., None, j - 1, :] * (2 * j + 1) ** 0.5
        step = torch.addcmul(coefficient, x, here, value=(2 * j + 1) / (j + 1))
        here, after = step.sub_(after, alpha=(j + 1) / (j + 2)), here
    return (x * here).sub_(after, alpha=0.5).sum(-1)


def by_case(theta: Tensor, features: Tensor) -> Tensor:
    """Coefficients (N, J, K) of cases with features (N, L), from those (L, J, K) of each feature."""
    return torch.einsum("nl,ljk->njk", features.to(theta), theta)
