"""The shape of errors: Student's t, or that of the members or of past errors, each point a Gaussian kernel."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank.randomness import numpy_generator
from prerank.recalibration.error_scatter import Scatter, t_scatters

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of standard deviations that points carry, and kernels do not
SHAPES = ("t", "members", "errors")
POINTS = 50  # past errors that are kept


class Shape(NamedTuple):
    r"""$\frac1K \sum_k N(\beta a_k, (1 - \beta^2) \Sigma)$ for standardised errors, with share beta and points a_k.

    Points are the members of a case or past errors (K, D), which `points` holds, and those of other folds (F, K, D);
    the covariance (D, D) and those without each fold (F, D, D) are Gaussian. `kind` "t" has none of it.
    """

    kind: str
    share: float
    covariance: Tensor
    without: Tensor
    points: Tensor
    points_without: Tensor


def covariances(z: Tensor, weights: Tensor, without: Tensor, scatter: Scatter) -> tuple[Tensor, Tensor]:
    """Gaussian covariances of standardised errors (N, D), of all and without each fold, as sure as a t's scatter is."""
    used = weights * torch.cat([torch.ones_like(without[:1]), without])
    plain = t_scatters(z, used, math.inf)
    size = (plain.diagonal(dim1=-2, dim2=-1) / _diagonals(scatter)).sqrt()
    both = torch.cat([scatter.whole[None], scatter.without]) * size[..., :, None] * size[..., None, :]
    return both[0], both[1:]


def _diagonals(scatter: Scatter) -> Tensor:
    return torch.cat([scatter.whole[None], scatter.without]).diagonal(dim1=-2, dim2=-1)


def some_errors(z: Tensor, weights: Tensor, without: Tensor, seed: int) -> Tensor:
    """Past errors (1 + F, K, D): as many of all cases, and of those that each fold learns from."""
    order = numpy_generator(seed, "errors of the law").permutation(len(z))
    rows = [torch.ones_like(without[0]), *without]
    lists = [[place for place in order.tolist() if bool(row[place]) and float(weights[place]) > 0] for row in rows]
    count = min(POINTS, *(len(places) for places in lists))
    return torch.stack([z[places[:count]] for places in lists])


def log_densities(z: Tensor, factor: Tensor, points: Tensor) -> Tensor:
    """Log densities (shares, N) of standardised errors (N, D) among points (N, K, D), with factors (N, D, D)."""
    n_targets = z.shape[1]
    result = z.new_empty(len(SHARES), len(z))
    for cases in chunks(len(z), points[0].numel() * 4, z.device):
        both = torch.cat([z[cases, None], points[cases]], 1).mT
        white = torch.linalg.solve_triangular(factor[cases], both, upper=False)
        log_det = factor[cases].diagonal(dim1=-2, dim2=-1).log().sum(-1)
        for row, share in enumerate(SHARES):
            rest = 1 - share**2
            square = (white[..., :1] - share * white[..., 1:]).square().sum(-2) / rest
            constant = 0.5 * n_targets * math.log(2 * math.pi * rest) + log_det + math.log(points.shape[1])
            result[row, cases] = torch.logsumexp(-0.5 * square, -1) - constant
    return result
