"""What smooth ranks and kernel densities measure distances by: a spread that gradients do not see, and Scott's rule."""

import math

import pytest
import torch

from prerank.calibration.smooth_rank import SmoothRank, smooth_pit, spread
from prerank.forecasts import Ensemble
from prerank.preranks import Copula
from prerank.preranks.joint_cdf import smooth_log_joint_cdf
from prerank.preranks.point_density import bandwidths, log_kernel_density
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.view import PointsView

IDENTITY = PointwiseProjection(lambda points: points, ("itself",))
POINTS = [[[0.0], [1.0], [4.0]]]


def test_the_spread_of_a_smooth_rank_is_a_constant_of_its_gradient():
    """dZ/dT_m = -w_m tau/s sigma' with s held: through s, every member would also pull on all the others."""
    members = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    y = torch.tensor([[2.0]], dtype=torch.float64)
    pit = smooth_pit(y, Ensemble(members, weights), IDENTITY, SmoothRank(temperature=1.5))
    (gradient,) = torch.autograd.grad(pit.sum(), members)
    deviation = math.sqrt(0.5 * 0 + 0.25 * 1 + 0.25 * 16 - (0.5 * 0 + 0.25 * 1 + 0.25 * 4) ** 2)
    below = [1 / (1 + math.exp(-1.5 * (2.0 - t) / deviation)) for t in (0.0, 1.0, 4.0)]
    shares = (0.5, 0.25, 0.25)
    assert float(pit.detach()) == pytest.approx(sum(w * b for w, b in zip(shares, below, strict=True)), rel=1e-12)
    slopes = [-w * 1.5 / deviation * b * (1 - b) for w, b in zip(shares, below, strict=True)]
    assert gradient.flatten().tolist() == pytest.approx(slopes, rel=1e-12)


def test_the_spread_carries_no_gradient_of_members_or_weights():
    members = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    weights = torch.full((1, 3, 1), 1 / 3, dtype=torch.float64, requires_grad=True)
    assert not spread(members, weights).requires_grad


def test_members_that_all_agree_have_spread_one():
    agreed = torch.full((1, 4, 1), 7.0, dtype=torch.float64)
    assert float(spread(agreed, torch.full((1, 4, 1), 0.25, dtype=torch.float64))) == 1.0


def test_bandwidths_are_the_deviation_with_divisor_r_times_scotts_factor():
    """Two points one unit either side of their mean deviate by one: R, not R - 1, divides their squares."""
    centres = torch.tensor([[[1.0, 10.0], [3.0, 50.0]]], dtype=torch.float64)
    expected = [1.0 * 2 ** (-1 / 6), 20.0 * 2 ** (-1 / 6)]
    assert bandwidths(centres).flatten().tolist() == pytest.approx(expected, rel=1e-12)
    assert bandwidths(centres, torch.ones(1, 2).double()).flatten().tolist() == pytest.approx(expected, rel=1e-12)


def test_weighted_bandwidths_count_the_effective_number_of_centres():
    """Weights 3 : 1 are worth 1 / (9/16 + 1/16) = 1.6 points, whose mean lies a quarter of the way."""
    centres = torch.tensor([[[0.0], [4.0]]], dtype=torch.float64)
    found = bandwidths(centres, torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    deviation = math.sqrt(0.75 * 1.0**2 + 0.25 * 3.0**2)
    assert float(found) == pytest.approx(deviation * 1.6 ** (-1 / 5), rel=1e-12)


def test_a_target_on_which_all_centres_agree_is_measured_in_its_own_unit():
    centres = torch.tensor([[[0.1, 1.0], [0.1, 3.0], [0.1, 5.0]]], dtype=torch.float64)
    factor = 3 ** (-1 / 6)
    for weights in (None, torch.ones(1, 3).double()):
        constant, moving = bandwidths(centres, weights).flatten().tolist()
        assert moving == pytest.approx(math.sqrt(8 / 3) * factor, rel=1e-12)
        assert constant == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 5.0)])
def test_the_kernel_density_is_a_sum_of_gaussians_with_these_bandwidths(weights):
    centres = [(0.0, 1.0), (2.0, -1.0), (3.0, 4.0)]
    shares = [1 / 3] * 3 if weights is None else [weight / 8 for weight in weights]
    tensor = torch.tensor([centres], dtype=torch.float64)
    given = None if weights is None else torch.tensor([weights], dtype=torch.float64)
    widths = bandwidths(tensor, given).flatten().tolist()
    points = [(0.0, 1.0), (1.0, 1.0), (5.0, -3.0)]
    found = log_kernel_density(torch.tensor([points], dtype=torch.float64), tensor, given).flatten()
    expected = []
    for point in points:
        total = 0.0
        for share, centre in zip(shares, centres, strict=True):
            distance = sum(((p - c) / width) ** 2 for p, c, width in zip(point, centre, widths, strict=True))
            total += share * math.exp(-distance / 2)
        expected.append(math.log(total))
    constant = float(found[0]) - expected[0]  # up to a constant, the same for all points
    assert (found - constant).tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("weights", [None, [[0.5, 0.25, 0.25]]])
def test_an_absolute_smooth_rank_is_a_mean_of_sigmoids_of_differences(weights):
    members = torch.tensor(POINTS, dtype=torch.float64)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    shares = [1 / 3] * 3 if weights is None else weights[0]
    for y in (-1.0, 0.5, 3.0):
        pit = smooth_pit(
            torch.tensor([[y]]).double(),
            Ensemble(members, given),
            IDENTITY,
            SmoothRank(temperature=1.5, relative=False),
        )
        below = [1 / (1 + math.exp(-1.5 * (y - t))) for t in (0.0, 1.0, 4.0)]
        assert float(pit) == pytest.approx(sum(w * b for w, b in zip(shares, below, strict=True)), rel=1e-12)


def test_a_scale_that_is_given_takes_the_place_of_the_spread():
    members, y = torch.tensor(POINTS, dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64)
    scale = torch.full((1, 1, 1), 8.0).double()
    for relative in (True, False):
        found = smooth_pit(y, Ensemble(members), IDENTITY, SmoothRank(3.0, relative), scale)
        expected = torch.sigmoid(3.0 * (2.0 - members[0, :, 0]) / 8.0).mean()
        assert float(found) == pytest.approx(float(expected))


def test_the_bandwidths_of_a_smooth_copula_are_constants_of_its_gradient():
    generator = torch.Generator().manual_seed(0)
    members, points = (torch.randn(2, size, 3, generator=generator, dtype=torch.float64) for size in (6, 4))
    weights = torch.rand(2, 6, generator=generator, dtype=torch.float64)
    held = bandwidths(members, weights)

    def gradients(value):
        members_, weights_ = members.clone().requires_grad_(), weights.clone().requires_grad_()
        return torch.autograd.grad(value(members_, weights_).sum(), [members_, weights_])

    learnt = gradients(lambda m, w: Copula().given(PointsView(Ensemble(m, w), smooth=True))(points))
    constant = gradients(lambda m, w: smooth_log_joint_cdf(points, m, w / w.sum(-1, keepdim=True), held))
    for found, expected in zip(learnt, constant, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_smooth_joint_cdf_has_the_gradient_of_its_formula_in_points_draws_and_weights():
    generator = torch.Generator().manual_seed(1)
    points, draws = (torch.randn(2, size, 3, generator=generator, dtype=torch.float64) for size in (4, 5))
    weights = 0.2 + torch.rand(2, 5, generator=generator, dtype=torch.float64)
    width = 0.5 + torch.rand(2, 1, 3, generator=generator, dtype=torch.float64)
    found = smooth_log_joint_cdf(points, draws, weights, width)
    excess = ((draws[:, None] - points[:, :, None]) / width[:, None]).clamp_min(0)
    share = weights / weights.sum(-1, keepdim=True)
    expected = (share[:, None] * (-0.5 * excess.square().sum(-1)).exp()).sum(-1).log()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(smooth_log_joint_cdf(points, draws, 7 * weights, width), expected)
    equal = smooth_log_joint_cdf(points, draws, torch.ones_like(weights), width)
    torch.testing.assert_close(smooth_log_joint_cdf(points, draws, None, width), equal)
    given = [part.requires_grad_() for part in (points, draws, weights)]
    assert torch.autograd.gradcheck(lambda *parts: smooth_log_joint_cdf(*parts, width), given)
