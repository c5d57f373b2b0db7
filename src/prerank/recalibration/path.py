"""From strong to weak ridges: coefficients of everything and of everything but one fold, side by side."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.recalibration.folds import Folds, best_if_any, mean_and_error, most_cautious
from prerank.recalibration.likelihood import Points

_PASSES = 40
_CLOSE = 1e-6  # nats per case: half the Newton decrement at which a fit counts as done
_REFRESH = 4  # passes with one Hessian
_SATURATED = 0.9  # of the largest gain that there can be: observations are told from all draws, and ridges are alike


class Candidate(NamedTuple):
    """A ridge, the coefficients (J, K) of all cases and (F, J, K) without each fold, and the held-out gain (N,)."""

    ridge: float
    theta: Tensor
    without: Tensor
    gain: Tensor


class Path(NamedTuple):
    """Candidates from the strongest ridge on, and which of them the evidence prefers (None: no change)."""

    candidates: list[Candidate]
    choice: int | None


def ridge_path(
    pits: Tensor,
    weights: Tensor,
    folds: Folds,
    ridges: tuple[float, ...],
    degree: int,
    groups: tuple[int, ...] | None = None,
    cautious: bool = True,
) -> Path:
    """Fit along ridges until weaker ones are worse by cross-validation, or the likelihood is saturated.

    PITs are (N, M + 1, K), the observation first.
    """
    order = folds.fold.argsort(stable=True)  # folds one after another, so that each has a Hessian of its own
    points, weights, fold = Points(pits[order], degree), weights[order].double(), folds.fold[order]
    ends = torch.bincount(fold, minlength=folds.n_folds).cumsum(0).tolist()
    within = [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
    used = torch.stack([fold == fold, *(fold != f for f in range(folds.n_folds))]) * weights
    theta = torch.zeros(len(used), degree, pits.shape[-1], dtype=torch.float64, device=pits.device)
    nothing = torch.log(torch.tensor(float(pits.shape[1]), dtype=torch.float64, device=pits.device))
    back, candidates = order.argsort(), []
    shape = torch.arange(1, degree + 1, dtype=torch.float64, device=pits.device).square()[:, None]
    shape = shape.expand(degree, pits.shape[-1])
    if groups is not None:
        shape = shape * evidence_ridges(points, used[:1], within, shape, groups)
        ridges = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
    best = torch.zeros(len(order), dtype=torch.float64, device=pits.device)  # no change
    for ridge in sorted(ridges, reverse=True):
        theta, value = solve(points, used, within, ridge * shape, theta)
        gain = (value[1:].gather(0, fold[None])[0] + nothing)[back]
        candidates.append(Candidate(ridge, theta[0], theta[1:], gain))
        if float((weights[back] * gain).sum()) > _SATURATED * float(nothing * weights.sum()):
            break
        loss, error = mean_and_error(best - gain, weights[back], folds.block)
        if loss > error:
            break
        if loss < 0:
            best = gain
    rule = most_cautious if cautious else best_if_any
    return Path(candidates, rule([item.gain for item in candidates], weights[back], folds.block))


def evidence_ridges(
    points: Points, used: Tensor, within: list[slice], shape: Tensor, groups: tuple[int, ...]
) -> Tensor:
    """Ridges (K,), one for each group of projections, that make the observations most probable (MacKay 1992)."""
    n, degree, count = float(used.sum()), shape.shape[0], shape.shape[1]
    member = torch.repeat_interleave(torch.arange(len(groups)), torch.tensor(groups)).to(shape.device)
    ridges = torch.full((len(groups),), 0.01, dtype=torch.float64, device=shape.device)
    theta = torch.zeros(1, degree, count, dtype=torch.float64, device=shape.device)
    for _ in range(10):
        penalty = shape * ridges[member]
        theta, _ = solve(points, used, within, penalty, theta)
        information = points.information(theta[0], used[0], within).sum(0) / n
        inverse = torch.linalg.inv(information + torch.diag(penalty.flatten() + 1e-9))
        taken = (penalty * inverse.diagonal().reshape(degree, count)).sum(0)
        free = torch.zeros_like(ridges).index_add_(0, member, degree - taken).clamp_min(1e-3)
        size = torch.zeros_like(ridges).index_add_(0, member, (shape * theta[0].square()).sum(0))
        ridges = (free / (n * size).clamp_min(1e-12)).clamp(1e-5, 10.0)
    return ridges[member]


def solve(points: Points, used: Tensor, within: list[slice], penalty: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method for A weightings (A, N) of the cases: coefficients (A, J, K) and log likelihoods (A, N).

    Row 0 of `used` is everything and row f + 1 leaves slice f of `within` out, or there is row 0 alone. Row 0's Hessian,
    less that of the slice, is a row's metric, and is kept for a few passes: a gradient costs far less. A step that loses
    is halved.
    """
    totals = used.sum(-1)[:, None, None]

    def look(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = points.evaluate(theta, used)
        objective = (used * value.log_likelihood).sum(-1) / totals[:, 0, 0] - 0.5 * (penalty * theta.square()).sum(
            (1, 2)
        )
        return objective, value.gradient / totals - penalty * theta, value.log_likelihood

    theta = start
    objective, gradient, log_likelihood = look(theta)
    for step_number in range(_PASSES):
        if step_number % _REFRESH == 0:
            metric = _metric(points, theta[0], used, within, totals, penalty)
        step = torch.cholesky_solve(gradient.flatten(1)[..., None], metric)[..., 0].reshape(theta.shape)
        if float((step * gradient).sum((1, 2)).max()) < 2 * _CLOSE:
            break
        size = torch.ones(len(theta), 1, 1, dtype=theta.dtype, device=theta.device)
        for _ in range(20):
            tried = theta + size * step
            found = look(tried)
            worse = found[0] < objective - 1e-9
            if not bool(worse.any()):
                break
            size = torch.where(worse[:, None, None], 0.5 * size, size)
        else:
            break
        theta, (objective, gradient, log_likelihood) = tried, found
    return theta, log_likelihood


def _metric(
    points: Points, theta: Tensor, used: Tensor, within: list[slice], totals: Tensor, penalty: Tensor
) -> Tensor:
    """Cholesky factors (A, J K, J K) of minus the Hessians per case, ridge included."""
    parts = points.information(theta, used[0], within)
    whole = parts.sum(0, keepdim=True)
    matrices = torch.cat([whole, whole - parts])[: len(used)] / totals
    # collinear projections leave directions without information; a trace of the diagonal keeps the factor defined
    floor = 1e-6 * matrices.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True) + 1e-12
    return torch.linalg.cholesky(matrices + torch.diag_embed(penalty.flatten() + floor))
