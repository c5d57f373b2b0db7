"""The mean error of a forecast given its members: shrunk regressions, straight and curved, whose strengths folds choose."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.randomness import numpy_generator
from prerank.recalibration.folds import Folds

REACH = 3.0  # standard deviations: a case further out must not carry its mean with it
STRENGTHS = (torch.inf, 100.0, 10.0, 1.0, 0.1, 0.01, 0.001)  # of ridges, per case
BUMPS = 200  # past cases about which a curve has a bump
_WIDTH = 0.5  # of a bump, in usual distances between cases
_NEVER = 1e9  # a ridge that leaves nothing


class Curve(NamedTuple):
    r"""Bumps $\exp(-\tfrac12 |x / w - c_k|^2)$ of predictors x (N, F) at centres c (K, F) with widths w (F,).

    `mixing` (K, K) makes columns of them whose ridge is that of a function with the bump as its kernel, and `usual` (K,) is
    their mean, which is no part of the curve.
    """

    width: Tensor
    centres: Tensor
    mixing: Tensor
    usual: Tensor

    @classmethod
    def of(cls, values: Tensor, used: Tensor, seed: int) -> "Curve":
        """About some of the used cases (N,) of predictors (N, F), half as wide as cases are apart."""
        usual = values[used]
        spread = usual.std(0, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)
        chosen = numpy_generator(seed, "bumps of the mean").permutation(len(usual))[:BUMPS]
        some = usual[torch.as_tensor(chosen, device=usual.device)]
        apart = torch.pdist(some / spread).median() if len(some) > 1 else some.new_ones(())
        width = _WIDTH * torch.where(apart > 0, apart, 1.0) * spread
        centres = some / width
        kernel = bumps(some, width, centres) + 1e-6 * torch.eye(len(some)).to(some)
        mixing = torch.linalg.inv(torch.linalg.cholesky(kernel)).mT
        return cls(width, centres, mixing, (bumps(usual, width, centres) @ mixing).mean(0))

    def columns(self, values: Tensor) -> Tensor:
        """The columns (N, K) of predictors (N, F)."""
        return bumps(values, self.width, self.centres) @ self.mixing - self.usual


def bumps(values: Tensor, width: Tensor, centres: Tensor) -> Tensor:
    """Bumps (N, K) of predictors (N, F)."""
    return (-0.5 * torch.cdist(values / width, centres).square()).exp()


class Predictors(NamedTuple):
    """What a mean depends on: values (N, F) in units of `spread` (F,) about `centre` (F,), at most `reach` (F,) away.

    `groups` are the numbers of columns that are shrunk alike: first the ensemble's level in every target, then the
    deviations of members that are models of their own, and features, where there are any. `curved` (N, K) are the columns
    of a `curve` in level and features.
    """

    values: Tensor
    centre: Tensor
    spread: Tensor
    reach: Tensor
    groups: tuple[int, ...]
    curve: Curve
    curved: Tensor

    @classmethod
    def of(
        cls, parts: Sequence[tuple[Tensor, Tensor]], used: Tensor, n_features: int = 0, seed: int = 0
    ) -> "Predictors":
        """Of groups of raw predictors (N, F) and their units (F,), the last `n_features` of them features.

        `used` cases (N,) say what is usual.
        """
        raw, spread = torch.cat([part for part, _ in parts], 1), torch.cat([unit for _, unit in parts])
        centre = raw[used].mean(0)
        reach = REACH * (raw[used] / spread).std(0, correction=0)
        groups = tuple(part.shape[1] for part, _ in parts)
        values = within_reach(raw, centre, spread, reach)
        smooth = level_and_features(values, groups[0], n_features)
        curve = Curve.of(smooth, used, seed)
        return cls(values, centre, spread, reach, groups, curve, curve.columns(smooth))


def within_reach(raw: Tensor, centre: Tensor, spread: Tensor, reach: Tensor) -> Tensor:
    """Raw predictors (N, F) in their units, those further out than any usual one held back."""
    return torch.minimum(torch.maximum((raw - centre) / spread, -reach), reach)


def level_and_features(values: Tensor, n_targets: int, n_features: int) -> Tensor:
    """Of predictors (N, F) those of the level and the features, not those of members that are models of their own."""
    return torch.cat([values[:, :n_targets], values[:, values.shape[1] - n_features :]], 1)


class Mean(NamedTuple):
    """Shift (D,), coefficients (F, D) and heights of bumps (K, D), and what fits without a case's fold say (N, D)."""

    shift: Tensor
    coefficients: Tensor
    heights: Tensor
    held_out: Tensor

    def between(self, other: "Mean", share: float) -> "Mean":
        """A share of the way to another one."""
        return Mean(*(own + share * (its - own) for own, its in zip(self, other, strict=True)))


def robust_weights(errors: Tensor, used: Tensor) -> Tensor:
    """Weights (N,) of cases by the size of their errors (N, D), with mean one: as t errors of nine targets would have.

    Cases that are not used (N,) do not say what is usual.
    """
    size = (errors - errors[used].median(0).values).square().mean(1)
    usual = size[used].median()
    weights = 9 / (4 + 5 * size / torch.where(usual > 0, usual, 1.0))
    return weights / weights[used].mean()


def regressions(
    errors: Tensor, predictors: Predictors, weights: Tensor, folds: Folds, n_blocks: int
) -> tuple[Mean, Mean]:
    """A shift alone, and the ridge regression of errors (N, D) on predictors that is best for cases of other folds.

    One pseudo-block without error shrinks shifts. Every group of predictors has a ridge of its own, with none of it at one
    end; every target may also have a slope on its own level, fitted before the others.
    """
    used, fold = weights * torch.cat([torch.ones_like(folds.without[:1]), folds.without]), folds.fold
    kinds = (
        (False, True) if bool((predictors.values != 0).any()) else (False,)
    )  # a level that never varies has no slope
    problems = [_Problem.of(errors, predictors, used, n_blocks, slopes) for slopes in kinds]
    n_groups = len(predictors.groups)
    none = (torch.inf,) * (n_groups + 1)
    alone = problems[0].solved(none, fold)
    best, least = (problems[0], none), _loss(errors, alone, weights)
    # level and members' own deviations side by side, then features given those, and a curve given all
    for places in (range(min(2, n_groups)), range(2, n_groups), range(n_groups, n_groups + 1)):
        if not places:
            continue
        for problem in problems if places[0] == 0 else [best[0]]:
            for chosen in itertools.product(STRENGTHS, repeat=len(places)):
                strengths = list(best[1])
                for place, strength in zip(places, chosen, strict=True):
                    strengths[place] = strength
                loss = _loss(errors, problem.solved(strengths, fold), weights)
                if loss < least:
                    best, least = (problem, tuple(strengths)), loss
    return alone, best[0].solved(best[1], fold)


def _loss(errors: Tensor, mean: Mean, weights: Tensor) -> float:
    return float((weights[:, None] * (errors - mean.held_out).square()).sum())


class _Problem(NamedTuple):
    """Normal equations of all cases, and of all but those of each fold; slopes (1 + folds, 2, D) were taken out before."""

    predictors: Predictors
    columns: Tensor
    back: list[Tensor]
    n_cases: int
    pull: float
    grams: Tensor
    sides: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, errors: Tensor, predictors: Predictors, used: Tensor, n_blocks: int, slopes: bool) -> "_Problem":
        x, n_targets, n_cases = predictors.values, errors.shape[1], int((used[0] > 0).sum())
        own, pull = x[:, :n_targets], n_cases / n_blocks
        first = errors.new_zeros(len(used), 2, n_targets)
        if slopes:
            usual = own[used[0] > 0].square().mean(0)
            first = torch.stack([_own_slopes(errors, own, weights, usual, pull) for weights in used])
        rotated, back = [torch.ones_like(errors[:, :1])], []
        for part in (*x.split(predictors.groups, 1), predictors.curved):
            # with more columns than cases their span is enough, and a ridge does not see the difference
            axes = torch.linalg.svd(part, full_matrices=False).Vh if part.shape[1] > len(x) else None
            back.append(torch.eye(part.shape[1]).to(x) if axes is None else axes)
            rotated.append(part if axes is None else part @ axes.mT)
        columns = torch.cat(
            [torch.full((part.shape[1],), place - 1, device=x.device) for place, part in enumerate(rotated)]
        )
        z = torch.cat(rotated, 1)
        grams = torch.stack([(z.mT * weights) @ z for weights in used])
        rest = [errors - slope[0] - own * slope[1] for slope in first]
        sides = torch.stack([(z.mT * weights) @ part for weights, part in zip(used, rest, strict=True)])
        return cls(predictors, columns, back, n_cases, pull, grams, sides, first)

    def solved(self, strengths: Sequence[float], fold: Tensor) -> Mean:
        """Under one ridge per case for each group of predictors."""
        n_targets = self.sides.shape[-1]
        ridges = torch.tensor([min(strength, _NEVER) * self.n_cases for strength in strengths] + [self.pull])
        penalty = ridges.to(self.grams)[self.columns].diag()
        found = torch.cholesky_solve(self.sides, torch.linalg.cholesky(self.grams + penalty))
        parts = found[:, 1:].split([len(axes) for axes in self.back], 1)
        *straight, curved = (axes.mT @ part for axes, part in zip(self.back, parts, strict=True))
        coefficients = torch.cat(straight, 1)
        coefficients[:, range(n_targets), range(n_targets)] += self.slopes[:, 1]
        shift = found[:, 0] + self.slopes[:, 0]
        held_out = torch.empty_like(self.predictors.values[:, :1]).expand(-1, n_targets).clone()
        for f in range(len(shift) - 1):
            inside = fold == f
            held_out[inside] = shift[f + 1] + self.predictors.values[inside] @ coefficients[f + 1]
            held_out[inside] += self.predictors.curved[inside] @ curved[f + 1]
        curve = self.predictors.curve
        return Mean(shift[0] - curve.usual @ curved[0], coefficients[0], curve.mixing @ curved[0], held_out)


def _own_slopes(errors: Tensor, level: Tensor, weights: Tensor, usual: Tensor, pull: float) -> Tensor:
    """Shift and slope (2, D) of each target's errors on its own level, both shrunk by a pseudo-block of `usual` squares."""
    w = weights[:, None]
    total, along = w.sum() + pull, (w * level).sum(0)
    square = (w * level.square()).sum(0) + pull * usual.clamp_min(1e-12)
    right, cross = (w * errors).sum(0), (w * level * errors).sum(0)
    slope = (total * cross - along * right) / (total * square - along.square())
    return torch.stack([(right - slope * along) / total, slope])
