"""From strong to weak ridges: coefficients of everything and of everything but one fold, side by side."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.recalibration.features import Features
from prerank.recalibration.folds import Folds, mean_and_error, most_cautious
from prerank.recalibration.likelihood import Points

_PASSES = 40
_CLOSE = 1e-6  # nats per case: half the Newton decrement at which a fit counts as done
_REFRESH = 4  # passes with one Hessian
_FOR_METRIC = 512  # cases that a Hessian is taken from, about
_SATURATED = 0.9  # of the largest gain that there can be: observations are told from all draws, and ridges are alike


class Candidate(NamedTuple):
    """A ridge, the coefficients of all cases, those (F, ...) without each fold, and the held-out gain (N,).

    Coefficients are (J, K), or (L, J, K) with `features`, by which they are multiplied.
    """

    ridge: float
    theta: Tensor
    without: Tensor
    gain: Tensor
    features: Features | None = None


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
    features: Features | None = None,
) -> Path:
    """Fit along ridges until weaker ones are worse by cross-validation, or the likelihood is saturated.

    PITs are (N, M + 1, K), the observation first. With features, coefficients are multiplied by them.
    """
    order = folds.fold.argsort(stable=True)  # folds one after another, so that each has a Hessian of its own
    points = Points(pits[order], degree, None if features is None else features.values[order])
    weights, fold = weights[order].double(), folds.fold[order]
    ends = torch.bincount(fold, minlength=folds.n_folds).cumsum(0).tolist()
    within = [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
    used = torch.cat([torch.ones_like(folds.without[:1]), folds.without])[:, order] * weights
    theta = torch.zeros(len(used), *points.shape, dtype=torch.float64, device=pits.device)
    nothing = torch.log(torch.tensor(float(pits.shape[1]), dtype=torch.float64, device=pits.device))
    back, candidates = order.argsort(), []
    best = torch.zeros(len(order), dtype=torch.float64, device=pits.device)  # no change
    for ridge in sorted(ridges, reverse=True):
        theta, value = solve(points, used, within, ridge, theta)
        gain = (value[1:].gather(0, fold[None])[0] + nothing)[back]
        candidates.append(Candidate(ridge, theta[0], theta[1:], gain, features))
        if float((weights[back] * gain).sum()) > _SATURATED * float(nothing * weights.sum()):
            break
        loss, error = mean_and_error(best - gain, weights[back], folds.block)
        if loss > error:
            break
        if loss < 0:
            best = gain
    return Path(candidates, most_cautious([item.gain for item in candidates], weights[back], folds.block))


def solve(points: Points, used: Tensor, within: list[slice], ridge: float, start: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method for A weightings (A, N) of the cases: coefficients (A, ...) and log likelihoods (A, N).

    Row 0 of `used` is everything and row f + 1 leaves slice f of `within` out, or there is row 0 alone. Row 0's Hessian,
    less that of the slice, is a row's metric, and is kept for a few passes: a gradient costs far less. A step that loses
    is halved.
    """
    start_shape, start = start.shape, start.flatten(1)
    totals = used.sum(-1, keepdim=True)
    orders = torch.arange(1, points.degree + 1, dtype=start.dtype, device=start.device)
    penalty = (ridge * orders.square()[:, None]).expand(points.shape).flatten()

    def look(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = points.evaluate(theta, used)
        mean = (used * value.log_likelihood).sum(-1) / totals[:, 0]
        objective = mean - 0.5 * (penalty * theta.square()).sum(-1)
        return objective, value.gradient / totals - penalty * theta, value.log_likelihood

    theta = start
    objective, gradient, log_likelihood = look(theta)
    for step_number in range(_PASSES):
        if step_number % _REFRESH == 0:
            metric = _metric(points, theta[0], used, within, penalty)
        step = torch.cholesky_solve(gradient[..., None], metric)[..., 0]
        if float((step * gradient).sum(-1).max()) < 2 * _CLOSE:
            break
        size = torch.ones(len(theta), 1, dtype=theta.dtype, device=theta.device)
        for _ in range(20):
            tried = theta + size * step
            found = look(tried)
            worse = found[0] < objective - 1e-9
            if not bool(worse.any()):
                break
            size = torch.where(worse[:, None], 0.5 * size, size)
        else:
            break
        theta, (objective, gradient, log_likelihood) = tried, found
    return theta.reshape(start_shape), log_likelihood


def _metric(points: Points, theta: Tensor, used: Tensor, within: list[slice], penalty: Tensor) -> Tensor:
    """Cholesky factors (A, coefficients, coefficients) of minus the Hessians per case, ridge included.

    Of many cases some will do: a metric decides how fast a fit converges, and not where to.
    """
    every = max(1, used.shape[1] // _FOR_METRIC)
    parts = [slice(part.start, part.stop, every) for part in within]
    sizes = torch.stack([used[0, part].sum() for part in parts])
    if bool((sizes.sum() <= sizes).any()):  # all the weight is where we did not look, or in one fold
        parts, sizes = within, torch.stack([used[0, part].sum() for part in within])
    found = points.information(theta, used[0], parts)
    whole, size = found.sum(0, keepdim=True), sizes.sum(0, keepdim=True)
    matrices = torch.cat([whole, whole - found])[: len(used)] / torch.cat([size, size - sizes])[: len(used), None, None]
    # collinear projections leave directions without information; a trace of the diagonal keeps the factor defined
    floor = 1e-6 * matrices.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True) + 1e-12
    return torch.linalg.cholesky(matrices + torch.diag_embed(penalty + floor))
