"""The paper's loss, term by term (eq. 7 to 9, Algorithms 1 and 2), from scratch: floats, loops and nothing of the library.

Where the library departs from the paper's letter, the loops follow its decisions: draws come from every component and are
weighted by pi_c / n_c; a smooth rank divides by the spread of the projected draws (6); the smooth copula is a logarithm (15)
of draws of its own (2).
"""

import math

import numpy as np
import pytest
import torch

from prerank.calibration import SmoothRank
from prerank.forecasts import GaussianMixture
from prerank.preranks import HDR, PCA, Contrast, Copula, Dependency, Location, Marginal, Scale
from prerank.training import Architecture, NegativeLogLikelihood, PreRankPenalty, Run
from prerank.training.grouping import grouped
from prerank.training.loss import Loss, StepNoise

B, C, D, S, J = 6, 2, 3, 9, 7
TAU, TAU_OF_RANKS = 20.0, 5.0
ALL = [Marginal(), Location(), Contrast(), PCA(), Scale(), Dependency(), HDR(), Copula()]
# Sums of a few dozen terms of order one, in another order: each term is within a few units in the last place.
CLOSE = {"rel": 1e-11, "abs": 1e-13}


@pytest.fixture(scope="module")
def problem():
    """Logits, means, factors, observations, and the normal numbers of the draws to rank and of those to learn from."""
    rng = np.random.default_rng(5)
    factor = np.tril(0.5 * rng.normal(size=(B, C, D, D)), -1) + np.eye(D) * (0.6 + rng.random((B, C, D, 1)))
    given = rng.normal(size=(B, C)), rng.normal(size=(B, C, D)), factor, 0.5 + rng.normal(size=(B, D))
    return *given, rng.normal(size=(B, S, D)), rng.normal(size=(B, S, D))


def softmax(logits):
    total = sum(math.exp(value) for value in logits)
    return [math.exp(value) / total for value in logits]


def counts(weights):
    """Two draws for every component, the rest in proportion to the weights, the largest remainders rounded up."""
    shares = [weight * (S - 2 * C) for weight in weights]
    whole = [math.floor(share) for share in shares]
    by_remainder = sorted(range(C), key=lambda c: whole[c] - shares[c])
    for c in by_remainder[: S - 2 * C - sum(whole)]:
        whole[c] += 1
    return [2 + count for count in whole]


def draws(logits, loc, factor, noise):
    """Points mu_c + L_c eps, component after component, and their weights pi_c / n_c."""
    weights = softmax(logits)
    points, shares = [], []
    for c, count in enumerate(counts(weights)):
        for _ in range(count):
            points.append(loc[c] + factor[c] @ noise[len(points)])
            shares.append(weights[c] / count)
    return points, shares


def log_density(y, logits, loc, factor):
    total = 0.0
    for c, weight in enumerate(softmax(logits)):
        covariance = factor[c] @ factor[c].T
        distance = (y - loc[c]) @ np.linalg.inv(covariance) @ (y - loc[c])
        total += weight * math.exp(-distance / 2) / math.sqrt((2 * math.pi) ** D * np.linalg.det(covariance))
    return math.log(total)


def principal_components(logits, loc, factor):
    """Algorithm 2 with the covariance of the forecast itself; the largest entry of a direction is positive."""
    weights = softmax(logits)
    mean = sum(weights[c] * loc[c] for c in range(C))
    parts = (factor[c] @ factor[c].T + np.outer(loc[c] - mean, loc[c] - mean) for c in range(C))
    _, vectors = np.linalg.eigh(sum(weight * part for weight, part in zip(weights, parts, strict=True)))
    chosen = [vectors[:, k] for k in reversed(range(D))]
    return [direction * math.copysign(1.0, direction[abs(direction).argmax()]) for direction in chosen]


def linear_pit(direction, y, logits, loc, factor):
    """A linear function of a Gaussian mixture is a mixture of scalar Gaussians."""
    total = 0.0
    for c, weight in enumerate(softmax(logits)):
        deviation = math.sqrt(direction @ factor[c] @ factor[c].T @ direction)
        total += weight * 0.5 * math.erfc(-(direction @ (y - loc[c])) / deviation / math.sqrt(2))
    return total


def weighted_deviation(values, shares):
    mean = sum(share * value for share, value in zip(shares, values, strict=True))
    return math.sqrt(sum(share * (value - mean) ** 2 for share, value in zip(shares, values, strict=True)))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def smooth_pit(function, y, points, shares, once):
    """Line 7 of Algorithm 1 with the indicator made smooth, in units of the spread of the projected draws."""
    t, projected = function(y), [function(point) for point in points]
    spread = once("spread", lambda: weighted_deviation(projected, shares))
    return sum(
        share * sigmoid(TAU_OF_RANKS * (t - other) / spread) for share, other in zip(shares, projected, strict=True)
    )


def scale(y):
    mean = sum(y) / D
    return sum((value - mean) ** 2 for value in y) / D


def dependency(y):
    variogram = sum((y[d] - y[d + 1]) ** 2 for d in range(D - 1)) / (2 * (D - 1))
    return -variogram / scale(y)


def scotts_rule(points, shares):
    """The weighted spread of each target times the effective number of points to the power -1 / (D + 4)."""
    effective = 1 / sum(share**2 for share in shares)
    return [weighted_deviation([p[d] for p in points], shares) * effective ** (-1 / (D + 4)) for d in range(D)]


def log_joint_cdf(y, points, shares, widths):
    """Decision 15."""
    total = 0.0
    for point, share in zip(points, shares, strict=True):
        above = sum((max(point[d] - y[d], 0.0) / widths[d]) ** 2 for d in range(D))
        total += share * math.exp(-above / 2)
    return math.log(total)


def pits(prerank, problem, kept=None):
    """Z_rho of every case, one list per projection. What a gradient takes as a constant is read from `kept`, once there."""
    rows = []
    for case, (logits, loc, factor, y, ranked, learnt) in enumerate(zip(*problem, strict=True)):
        law = logits, loc, factor

        def once(name, compute, case=case):
            return compute() if kept is None else kept.setdefault((case, name), compute())

        if prerank in LINEAR:
            directions = once("directions", lambda law=law: LINEAR[prerank](law))
            rows.append([linear_pit(direction, y, *law) for direction in directions])
            continue
        reference = draws(*law, learnt)
        widths = once("widths", lambda reference=reference: scotts_rule(*reference))
        function = {
            Scale(): scale,
            Dependency(): dependency,
            HDR(): lambda point, law=law: log_density(point, *law),
            Copula(): lambda point, reference=reference, widths=widths: log_joint_cdf(point, *reference, widths),
        }[prerank]
        rows.append([smooth_pit(function, y, *draws(*law, ranked), once)])
    return list(zip(*rows, strict=True))


LINEAR = {
    Marginal(): lambda law: list(np.eye(D)),
    Location(): lambda law: [np.full(D, 1 / D)],
    Contrast(): lambda law: [np.array([1.0, -1.0, 0.0])],
    PCA(): lambda law: principal_components(*law),
}


def pce_kde(values, exponent, case_weights=None):
    """Eq. 7 and 8 at the centres of J cells."""
    shares = [1 / B] * B if case_weights is None else [weight / sum(case_weights) for weight in case_weights]
    total = 0.0
    for j in range(J):
        level = (j + 0.5) / J
        smoothed = sum(share * sigmoid(TAU * (level - z)) for share, z in zip(shares, values, strict=True))
        total += abs(level - smoothed) ** exponent
    return total / J


def regulariser(preranks, problem, exponent, case_weights=None, kept=None):
    """The mean over pre-ranks of the mean over their projections."""
    each = []
    for prerank in preranks:
        errors = [pce_kde(values, exponent, case_weights) for values in pits(prerank, problem, kept)]
        each.append(sum(errors) / len(errors))
    return sum(each) / len(each)


def library(preranks, exponent):
    return PreRankPenalty(preranks, TAU, J, exponent, S, SmoothRank(TAU_OF_RANKS))


def tensors(problem):
    logits, loc, factor, y, ranked, learnt = (torch.from_numpy(part) for part in problem)
    return GaussianMixture(logits, loc, factor), y, {"ranked": ranked, "learnt": learnt}


@pytest.mark.parametrize("prerank", ALL, ids=lambda prerank: prerank.name)
def test_the_training_pits_are_those_of_the_paper(prerank, problem):
    law, y, noise = tensors(problem)
    (ours,) = library(prerank, 1).pits(y, law, noise=noise)
    theirs = pits(prerank, problem)
    assert ours.shape == (B, len(theirs))
    assert ours.T.flatten().tolist() == pytest.approx([z for values in theirs for z in values], **CLOSE)
    assert ours.std(0).min() > 0.05  # and they are not all alike, which would compare nothing


@pytest.mark.parametrize("exponent", [1, 2, 3.5])
@pytest.mark.parametrize("preranks", [*((item,) for item in ALL), tuple(ALL)], ids=lambda items: str(len(items)))
def test_the_penalty_is_eq_8_averaged_over_projections_and_preranks(preranks, exponent, problem):
    law, y, noise = tensors(problem)
    ours = library(preranks, exponent)(y, law, noise=noise)
    assert float(ours) == pytest.approx(regulariser(preranks, problem, exponent), **CLOSE)


def test_weights_of_cases_enter_the_smoothed_cdf(problem):
    law, y, noise = tensors(problem)
    weights = [3.0, 1.0, 0.0, 2.0, 0.5, 1.0]
    ours = library((Location(), Scale()), 1)(y, law, noise=noise, case_weights=torch.tensor(weights).double())
    assert float(ours) == pytest.approx(regulariser((Location(), Scale()), problem, 1, weights), **CLOSE)


@pytest.mark.parametrize("by_parts", [False, True], ids=["as on a CPU", "as on a GPU"])
@pytest.mark.parametrize("strength", [0.0, 0.1, 10.0])
def test_the_loss_that_fit_minimises_is_the_mean_nll_plus_strength_times_the_penalty(strength, by_parts, problem):
    """Eq. 9. The numbers of the draws are those of the step."""
    law, y, _ = tensors(problem)
    preranks = (Location(), Scale(), Copula())
    runs, seed_of, step = [Run(3, library(preranks, 1), strength)], torch.tensor([0]), torch.tensor(5)
    grouping = grouped(runs, seed_of, Architecture(1, D, C), B, by_parts)
    numbers = StepNoise([3], ("score", "ranked", "learnt"), torch.float64, torch.device("cpu"))
    loss = Loss(NegativeLogLikelihood(), grouping, torch.tensor([strength], dtype=torch.float64), seed_of, numbers)
    (ours,) = loss(y[None], law.expand((1, B)), torch.ones(1, B).double(), step)
    (drawn,) = numbers.of_groups([runs[0].penalty.streams(law, B)], step)
    noise = [drawn[name][0].numpy() for name in ("ranked", "learnt")]
    nll = sum(-log_density(y, *law) for *law, y in zip(*problem[:3], problem[3], strict=True)) / B
    expected = nll + strength * regulariser(preranks, (*problem[:4], *noise), 1)
    assert float(ours) == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("prerank", ALL, ids=lambda prerank: prerank.name)
def test_gradients_are_the_finite_differences_of_the_loops_and_reach_every_parameter(prerank, problem):
    """Directions, spreads and bandwidths keep the value they have at the starting point: a gradient takes them as constants.

    Central differences of step h are off by h^2 / 6 times a third derivative, of order one here, and by rounding over h.
    """
    step, off = 1e-5, 1e-8
    leaves = [torch.from_numpy(part).clone().requires_grad_() for part in problem[:3]]
    _, y, noise = tensors(problem)
    gradients = torch.autograd.grad(library(prerank, 2)(y, GaussianMixture(*leaves), noise=noise), leaves)
    kept = {}
    regulariser((prerank,), problem, 2, kept=kept)
    for place, (name, gradient) in enumerate(zip(("logits", "loc", "factor"), gradients, strict=True)):
        differences = np.zeros_like(problem[place])
        for index in np.ndindex(2, *problem[place].shape[1:]):  # two cases tell as much as all
            values = []
            for sign in (1, -1):
                moved = [part.copy() for part in problem]
                moved[place][index] += sign * step
                values.append(regulariser((prerank,), moved, 2, kept=kept))
            differences[index] = (values[0] - values[1]) / (2 * step)
        if name == "factor":  # what stands above the diagonal is no parameter
            differences, gradient = np.tril(differences), gradient.tril()
        assert gradient[:2].flatten().tolist() == pytest.approx(differences[:2].flatten().tolist(), rel=0, abs=off)
        assert abs(differences).max() > 1000 * off, name  # the comparison is of something
