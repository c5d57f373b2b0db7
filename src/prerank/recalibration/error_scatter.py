"""How errors of several targets belong together: a shrunk scatter matrix with Student's t tails."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.recalibration.folds import Folds

FREEDOMS = (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0, math.inf)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the pattern that a scatter is shrunk to
FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)  # of the scatter that was shrunk
OWN_SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
BANDS = (1, 2, 3)
_PASSES = 100


class Scatter(NamedTuple):
    """A scatter matrix (D, D), those without each fold (F, D, D), degrees of freedom and how it was chosen.

    `log_likelihood` is that of cases by fits without their fold.
    """

    whole: Tensor
    without: Tensor
    freedom: float
    pattern: str
    share: float
    log_likelihood: float


def log_t(square: Tensor, log_det: Tensor, freedom: float, n_targets: int) -> Tensor:
    """Log density of Student's t at squared distances from its centre, given half the log determinant of the scatter."""
    if math.isinf(freedom):
        return -0.5 * square - log_det - 0.5 * n_targets * math.log(2 * math.pi)
    constant = math.lgamma((freedom + n_targets) / 2) - math.lgamma(freedom / 2)
    constant -= 0.5 * n_targets * math.log(freedom * math.pi)
    return constant - log_det - 0.5 * (freedom + n_targets) * torch.log1p(square / freedom)


def distances(z: Tensor, scatter: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances (..., n) of points (n, D) under scatters (..., D, D), and half the log determinants as often."""
    factor = torch.linalg.cholesky(scatter)
    white = torch.linalg.solve_triangular(factor, z.mT.expand(*factor.shape[:-2], *z.mT.shape), upper=False)
    square = white.square().sum(-2)
    return square, factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True).expand_as(square)


def log_density(z: Tensor, scatter: Tensor, freedom: float) -> Tensor:
    """Log densities (..., n) of points (n, D) under scatters (..., D, D)."""
    return log_t(*distances(z, scatter), freedom, z.shape[-1])


def t_scatters(z: Tensor, weights: Tensor, freedom: float, start: Tensor | None = None) -> Tensor:
    """The scatters (A, D, D) of largest t likelihood of points (N, D) about zero, for weights (A, N) of the points.

    Distances are taken in a scatter that is shrunk a little to its diagonal, more where points are few, so that it
    has an inverse even with fewer points than targets; a pseudo-point without correlation keeps it away from zero.
    """
    n_targets = z.shape[1]
    total = weights.sum(-1)
    size = (weights[..., None] * z.square()).sum(-2) / total[:, None]
    prior = torch.diag_embed(torch.where(size > 0, size, 1.0))
    few = (0.5 * n_targets / total).clamp(max=0.5)[:, None, None]

    def mean_of(own: Tensor) -> Tensor:
        return ((own[:, None, :] * z.mT) @ z + prior) / (total + 1)[:, None, None]

    if math.isinf(freedom):
        return mean_of(weights)
    scatter = prior if start is None else start
    for _ in range(_PASSES):
        shrunk = (1 - few) * scatter + few * torch.diag_embed(scatter.diagonal(dim1=-2, dim2=-1))
        factor = torch.linalg.cholesky(shrunk)
        white = torch.linalg.solve_triangular(factor, z.mT.expand(len(factor), *z.mT.shape), upper=False)
        moved = mean_of(weights * (freedom + n_targets) / (freedom + white.square().sum(-2)))
        change = float(((moved - scatter).diagonal(dim1=-2, dim2=-1) / size.clamp_min(1e-12)).abs().max())
        scatter = moved
        if change < 1e-4:
            break
    return scatter


def patterns(scatter: Tensor, ordered: bool) -> Iterator[tuple[str, Tensor]]:
    """What scatters (A, D, D) are shrunk to, all with the same diagonal: names and matrices.

    No correlation; the same correlation of all targets; and, for targets in an order, what follows from each
    target's regression on the one to three before it.
    """
    n_targets = scatter.shape[-1]
    diagonal = scatter.diagonal(dim1=-2, dim2=-1)
    yield "none", torch.diag_embed(diagonal)
    if n_targets < 2:
        return
    size = diagonal.sqrt()
    correlation = scatter / (size[..., :, None] * size[..., None, :])
    mean = (correlation.sum((-2, -1)) - n_targets) / (n_targets * (n_targets - 1))
    mean = mean.clamp(-0.9 / (n_targets - 1), 0.98)[:, None, None]
    equal = mean + (1 - mean) * torch.eye(n_targets).to(scatter)
    yield "equal", equal * size[..., :, None] * size[..., None, :]
    for width in BANDS if ordered else ():
        if width < n_targets - 1:
            yield f"band {width}", banded(scatter, width)


def banded(scatter: Tensor, width: int) -> Tensor:
    """The scatters (A, D, D) in which a target depends on earlier ones through the `width` before it alone."""
    n_targets = scatter.shape[-1]
    slopes, rest = torch.zeros_like(scatter), scatter.diagonal(dim1=-2, dim2=-1).clone()
    for d in range(1, n_targets):
        before = slice(max(0, d - width), d)
        block, side = scatter[:, before, before], scatter[:, before, d]
        block = block + 1e-9 * torch.diag_embed(block.diagonal(dim1=-2, dim2=-1))
        own = torch.linalg.solve(block, side)
        slopes[:, d, before] = own
        rest[:, d] = torch.maximum(rest[:, d] - (own * side).sum(-1), 1e-6 * rest[:, d])
    eye = torch.eye(n_targets).to(scatter)
    root = torch.linalg.solve_triangular(eye - slopes, torch.diag_embed(rest.sqrt()), upper=False, unitriangular=True)
    return root @ root.mT


def fit_scatter(z: Tensor, weights: Tensor, folds: Folds, ordered: bool) -> Scatter:
    """The scatter of standardised errors (N, D) that is best for cases of other folds.

    Freedom, pattern and shrinkage are chosen so, and a factor: what is shrunk to a pattern has a larger determinant. Tails
    are tried from the lightest on, until two have been no better.
    """
    used = weights * torch.cat([torch.ones_like(folds.without[:1]), folds.without])
    shares, factors = (torch.tensor(values, dtype=z.dtype, device=z.device) for values in (SHARES, FACTORS))
    order = folds.fold.argsort(stable=True)
    best, most, scatters, worse = None, -math.inf, None, 0
    for freedom in reversed(FREEDOMS):
        before = most
        scatters = t_scatters(z, used, freedom, scatters)
        for name, pattern in patterns(scatters, ordered):
            mixed = scatters + shares[:, None, None, None] * (pattern - scatters)
            parts = [distances(z[folds.fold == f], mixed[:, f + 1]) for f in range(folds.n_folds)]
            square, log_det = (torch.cat(column, 1) for column in zip(*parts, strict=True))
            own = 0.5 * z.shape[1] * factors.log()[:, None, None]
            values = log_t(square / factors[:, None, None], log_det + own, freedom, z.shape[1]) @ weights[order]
            place = int(values.argmax())
            if float(values.flatten()[place]) > most:
                factor, share = divmod(place, len(SHARES))
                most, chosen = float(values.flatten()[place]), FACTORS[factor] * mixed[share]
                best = Scatter(chosen[0], chosen[1:], freedom, name, SHARES[share], most)
        worse = worse + 1 if most == before else 0
        if worse == 2:
            break
    assert best is not None
    return best


def with_own(scatter: Tensor, deviations: Tensor, share: float) -> Tensor:
    """Scatters (N, D, D): a share of every case's own, the members' correlations with the diagonal of the common one.

    `deviations` (N, M, D) are standardised: their squares have mean one over members, or are zero.
    """
    if share == 0:
        return scatter
    size = scatter.diagonal(dim1=-2, dim2=-1).sqrt()
    own = deviations.mT @ deviations / deviations.shape[-2]
    gap = 1 - own.diagonal(dim1=-2, dim2=-1)  # members that agree have no correlations
    own = (own + torch.diag_embed(gap)) * size[..., :, None] * size[..., None, :]
    return (1 - share) * scatter + share * own


def own_densities(z: Tensor, scatter: Scatter, deviations: Tensor, fold: Tensor, shares: Sequence[float]) -> Tensor:
    """Log densities (len(shares), N) of held-out cases with a share of their own scatters."""
    common = scatter.without[fold]
    values = []
    for share in shares:
        factor = torch.linalg.cholesky(with_own(common, deviations, share))
        white = torch.linalg.solve_triangular(factor, z[..., None], upper=False)[..., 0]
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        values.append(log_t(white.square().sum(-1), log_det, scatter.freedom, z.shape[-1]))
    return torch.stack(values)
