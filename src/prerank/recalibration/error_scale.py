"""How large errors are in a case: a log-linear regression on the members' spread and on features."""

from typing import NamedTuple

import torch
from torch import Tensor

FREEDOM = 6.0  # of the t whose likelihood is maximised: robust, and nearly efficient for Gaussian errors
LEAST = 0.05  # of a target's usual spread: members that agree say no more than that
_ITERATIONS = 100


def usual_spread(spread: Tensor, weights: Tensor) -> Tensor:
    """The usual spread (D,) of the members, from that of every case (N, D); one where they always agree."""
    usual = (weights[:, None] * spread.square()).mean(0).sqrt()
    return torch.where(usual > 0, usual, 1.0)


def size_basis(spread: Tensor, usual: Tensor, features: Tensor | None) -> Tensor:
    """What the logarithm of a size is linear in, (N, D, G): the members' spread in this target against the others, that of
    all targets together, and features (N, L)."""
    relative = (spread / usual).clamp_min(LEAST)
    whole = relative.square().mean(1, keepdim=True).sqrt()
    own = (relative / whole).log()
    by_case = [whole.log(), *([] if features is None else features.split(1, 1))]
    return torch.stack([own, *(part.expand_as(own) for part in by_case)], -1)


def level_of(values: Tensor, reach: Tensor) -> Tensor:
    """The members' level (N, 1): the mean over targets of values (N, D), each in units of its reach (D,)."""
    return (values / torch.where(reach > 0, reach, 1.0)).mean(1, keepdim=True)


class Sizes(NamedTuple):
    """Log sizes (D,) of errors where all functions are zero, and slopes (G,)."""

    level: Tensor
    slopes: Tensor

    def log_size(self, basis: Tensor) -> Tensor:
        """Logarithms (N, D) of sizes."""
        return self.level + basis @ self.slopes


def fit_sizes(errors: Tensor, basis: Tensor, weights: Tensor, n_blocks: int, start: Sizes | None = None) -> Sizes:
    """Sizes of errors (N, D) by the likelihood of single targets, each a Student t, less a ridge of one pseudo-block.

    The loss is convex in levels and slopes; a step of Fisher scoring that does not lower it is shortened.
    """
    share = weights / weights.sum()
    if start is None:
        usual = (share[:, None] * errors.square()).sum(0).sqrt().clamp_min(1e-3)
        start = Sizes(usual.log(), basis.new_zeros(basis.shape[-1]))
    ridge, information = 1 / n_blocks, 2 * FREEDOM / (FREEDOM + 3)
    cross = torch.einsum("n,ndg->dg", share, basis)
    gram = torch.einsum("n,ndg,ndh->gh", share, basis, basis)

    def loss_of(sizes: Sizes) -> tuple[float, Tensor]:
        log_size = sizes.log_size(basis)
        square = (errors.square() * (-2 * log_size).exp()).clamp_max(1e12)
        loss = (share[:, None] * (log_size + 0.5 * (FREEDOM + 1) * torch.log1p(square / FREEDOM))).sum()
        pull = 0.5 * ridge * (sizes.level.square().sum() + sizes.slopes.square().sum())
        return float(loss + pull), square

    current, (least, square) = start, loss_of(start)
    curvature = information
    for _ in range(_ITERATIONS):
        slope = share[:, None] * (1 - (FREEDOM + 1) * square / (FREEDOM + square))
        of_level = slope.sum(0) + ridge * current.level
        of_slopes = torch.einsum("nd,ndg->g", slope, basis) + ridge * current.slopes
        # the levels' part of the Hessian is diagonal, and eliminated
        diagonal = curvature + ridge
        inner = curvature * gram + ridge * torch.eye(len(gram)).to(gram) - curvature**2 * cross.mT @ cross / diagonal
        step = torch.linalg.solve(inner, of_slopes - curvature * cross.mT @ of_level / diagonal)
        moved = Sizes(current.level - (of_level - curvature * cross @ step) / diagonal, current.slopes - step)
        loss, its_square = loss_of(moved)
        if loss > least:
            curvature *= 2
            if curvature > 64:
                break
            continue
        done = least - loss < 1e-10
        current, least, square, curvature = moved, loss, its_square, max(information, curvature / 2)
        if done:
            break
    return current
