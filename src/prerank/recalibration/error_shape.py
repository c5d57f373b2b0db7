"""The shape of errors: Student's t, kernels about a case's members, or a few groups of errors, each a Gaussian."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank.recalibration.error_scatter import Scatter, log_t, t_scatters

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of standard deviations that members carry, and kernels about them do not
SHAPES = ("t", "members", "groups")
COUNTS = (2, 4, 6)  # of groups
_PSEUDO = 2.0  # cases that pull the centre of a group to zero and its size to one
_PASSES = 100


class Groups(NamedTuple):
    r"""$\sum_k \pi_k\, N(a_k, f_k^2 \Sigma)$ for standardised errors: skew, with humps or with heavy tails.

    Logarithms of the weights (K,), centres (K, D), sizes (K,) and the covariance (D, D) that all share.
    """

    log_weights: Tensor
    centres: Tensor
    sizes: Tensor
    covariance: Tensor

    def joint(self, z: Tensor) -> Tensor:
        """Log densities (N, K) of errors (N, D) in every group, with its weight."""
        factor, n_targets = torch.linalg.cholesky(self.covariance), z.shape[1]
        apart = (z[:, None] - self.centres).reshape(-1, n_targets).mT
        white = torch.linalg.solve_triangular(factor, apart, upper=False).square().sum(0)
        square = white.reshape(len(z), -1) / self.sizes.square()
        log_det = factor.diagonal().log().sum() + n_targets * self.sizes.log()
        return self.log_weights + log_t(square, log_det, math.inf, n_targets)


def fit_groups(z: Tensor, weights: Tensor, count: int) -> Groups:
    """Groups of errors (N, D) by expectation and maximisation from slices along the direction of their skewness.

    Pseudo-cases keep groups from being empty or of no size, and the covariance is shrunk to its diagonal a little, more
    where cases are few.
    """
    n_targets, total = z.shape[1], weights.sum()
    share = weights / total
    usual = (share[:, None] * z.square()).sum(0)
    usual = torch.where(usual > 0, usual, 1.0)
    few = float((0.5 * n_targets / total).clamp(max=0.5))
    third = (share[:, None] * z**3).sum(0) / usual**1.5
    place = (z @ (third / usual.sqrt())).argsort(stable=True).argsort(stable=True)
    member = 0.1 / count + 0.9 * torch.nn.functional.one_hot(place * count // len(z), count).to(z)
    sizes, before = z.new_ones(count), -math.inf
    for _ in range(_PASSES):
        own = member * weights[:, None]
        mass = own.sum(0)
        centres = own.mT @ z / (mass + _PSEUDO)[:, None]
        apart = z[:, None] - centres
        rooted = (apart * (own / sizes.square()).sqrt()[..., None]).flatten(0, 1)
        covariance = (rooted.mT @ rooted + usual.diag()) / (total + 1)
        covariance = (1 - few) * covariance + few * covariance.diagonal().diag()
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, apart.flatten(0, 1).mT, upper=False).square().sum(0)
        square = (own * white.reshape(own.shape)).sum(0) / n_targets
        sizes = ((square + _PSEUDO) / (mass + _PSEUDO)).sqrt()
        found = Groups(((mass + 1) / (total + count)).log(), centres, sizes, covariance)
        joint = found.joint(z)
        density = torch.logsumexp(joint, 1)
        after = float(share @ density)
        if after - before < 1e-4:
            break
        member, before = (joint - density[:, None]).exp(), after
    return found


def covariances(z: Tensor, weights: Tensor, without: Tensor, scatter: Scatter) -> tuple[Tensor, Tensor]:
    """Gaussian covariances of standardised errors (N, D), of all and without each fold, as sure as a t's scatter is."""
    used = weights * torch.cat([torch.ones_like(without[:1]), without])
    plain = t_scatters(z, used, math.inf)
    both = torch.cat([scatter.whole[None], scatter.without])
    size = (plain.diagonal(dim1=-2, dim2=-1) / both.diagonal(dim1=-2, dim2=-1)).sqrt()
    both = both * size[..., :, None] * size[..., None, :]
    return both[0], both[1:]


def log_densities(z: Tensor, factor: Tensor, points: Tensor) -> Tensor:
    r"""Log densities (shares, N) of errors (N, D) under kernels $N(\beta a_k, (1 - \beta^2) \Sigma)$ about points (N, K, D).

    One for every share beta, with Cholesky factors (N, D, D) of the covariance.
    """
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
