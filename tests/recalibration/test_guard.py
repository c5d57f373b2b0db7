"""The guard's score is that of the corrected law, and each of its reasons to refuse counts."""

import math

import pytest
import torch

from prerank import GaussianMixture, Marginal
from prerank.recalibration import Tilted
from prerank.recalibration.guard import _SHIFTS, Pools, Verdict, log_score
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.tilted import even_steps, picked, taken


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_weighted_draws_score_as_the_law_that_the_weights_make(shift):
    """Standard normal draws weighted by exp(shift x) are normal about the shift; the CRPS of a right one is 1 / sqrt(pi)."""
    n_cases, n_draws = 3000, 200
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_cases, n_draws, generator=generator, dtype=torch.float64)
    y = shift + torch.randn(n_cases, 1, generator=generator, dtype=torch.float64)
    apart = torch.stack([(x - x.roll(-s, 1)).abs() for s in range(1, _SHIFTS + 1)], 1)
    nothing = torch.zeros(n_cases, n_draws + 1, dtype=torch.float64)
    scores = Pools(nothing[..., None], nothing, nothing, (x - y).abs(), apart).score(shift * x)
    error = float(scores.std()) / math.sqrt(n_cases)
    assert abs(float(scores.mean()) - 1 / math.sqrt(math.pi)) < 4 * error
    assert error < 0.01


def test_hdr_pits_of_the_weighted_law_are_uniform_if_it_is_right():
    n_cases, n_draws = 2000, 400
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n_cases, n_draws, generator=generator, dtype=torch.float64)
    y = 0.7 + torch.randn(n_cases, 1, generator=generator, dtype=torch.float64)
    points = torch.cat([y, x], 1)
    pools = Pools(points[..., None], 0 * points, -0.5 * points.square(), x, x[:, None])
    for weights, right in ((0.7 * points, True), (0 * points, False)):
        pits = pools.hdr(weights)[:, 0]
        assert (abs(float(pits.mean()) - 0.5) < 4.5 / math.sqrt(12 * n_cases) + 1 / n_draws) == right


def test_the_log_score_of_weights_is_that_of_the_law_they_make():
    """Standard normal draws weighted by exp(s x): the observation's density rises by exp(s y - s^2 / 2)."""
    x = torch.randn(50, 20_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = torch.linspace(-2, 2, 50).double()[:, None]
    found = log_score(0.6 * torch.cat([y, x], 1) + 3.0)
    error = (math.exp(0.36) - 1) ** 0.5 / 20_000**0.5
    assert float((found - (0.6 * y[:, 0] - 0.18)).abs().max()) < 4.5 * error


def test_each_reason_alone_refuses():
    good = {"effective_share": 0.5, "score": 1.0, "gain": -0.01, "gain_error": 0.01, "n_cases": 400}
    assert Verdict(**good, hdr_before=0.05, hdr_after=0.06).harmless(0.02, 2.0)
    assert not Verdict(**good, hdr_before=0.05, hdr_after=0.12).harmless(0.02, 2.0)
    assert not Verdict(**{**good, "gain": -0.03}).harmless(0.02, 2.0)
    assert Verdict(**good, log_gain=-0.1, log_gain_error=0.06).harmless(0.02, 2.0)
    assert not Verdict(**good, log_gain=-0.1, log_gain_error=0.04).harmless(0.02, 2.0)
    assert not Verdict(**{**good, "effective_share": 0.01}).harmless(0.02, 2.0)


def test_resampling_at_even_steps_makes_no_copies_of_members_that_weigh_alike():
    members = torch.arange(100.0).reshape(1, 100, 1)
    drawn = taken(members, picked(torch.full((1, 100), 0.01), even_steps(torch.tensor([[0.4]]), 50)))
    assert len(drawn.unique()) == 50


@pytest.mark.parametrize(("share", "pool"), [(1.0, 300), (0.2, 1000), (0.001, 3000)])
def test_a_pool_grows_as_its_effective_share_falls(share, pool, standard, monkeypatch):
    """Two effective draws for every one that is asked for, up to ten times the usual pool."""
    asked = []
    base = standard(3)
    ensemble = type(base).ensemble
    monkeypatch.setattr(type(base), "ensemble", lambda self, n, *rest: (asked.append(n), ensemble(self, n, *rest))[1])
    law = Tilted(base, OldPITs((Marginal(),), 10, 0), torch.zeros(1, 2), pool=300, share=share)
    assert law.ensemble(100).members.shape == (3, 100, 2)
    assert asked == [pool]


def test_a_tilt_of_a_tilt_has_a_density_and_draws_of_the_law_at_the_bottom():
    base = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1))
    theta = torch.tensor([[0.5], [-0.2]], dtype=torch.float64)
    once = Tilted(base, OldPITs((Marginal(),), 400, 0), theta, pool=4000)
    twice = Tilted(once, OldPITs((Marginal(),), 400, 1), theta, pool=4000)
    assert twice.root is base
    grid = torch.linspace(-8, 8, 2001, dtype=torch.float64)
    density = twice.log_prob(grid[:, None, None])[:, 0].exp() * (grid[1] - grid[0])
    assert abs(math.log(float(density.sum()))) < 5 * float(twice.log_normaliser_error[0])
    # draws come from a pool of 4,000 that is worth `effective_size`, and the density from another
    exact, spread = float((grid * density).sum() / density.sum()), float(twice.variance.sqrt()[0, 0])
    drawn = float(twice.ensemble(1000, seed=2).members.mean())
    assert abs(drawn - exact) < 5 * spread * math.sqrt(2 / float(twice.effective_size[0]))
    assert exact > float(once.mean[0, 0]) + 0.2  # the second tilt goes on in the direction of the first
