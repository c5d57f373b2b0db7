"""All that a check needs of a tilted forecast comes from one pool of draws of each case."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from prerank import HDR, PCA, Copula, GaussianMixture, Location, Marginal, Scale, check, projected_pit
from prerank.calibration import EmpiricalRank, RandomisedRank, ks_test
from prerank.recalibration import HighestDensityRegions
from prerank.recalibration.densities import density_scale
from prerank.recalibration.one_pool import InUnits
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.tilted import Tilted

PRERANKS = (Marginal(), Location(), HDR(), Copula())


def tilted(n_cases, strength=0.3, seed=0, pool=400, times=1):
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(n_cases, 2, 2, generator=generator, dtype=torch.float64)
    law = GaussianMixture(
        torch.zeros(n_cases, 2), loc, torch.eye(2, dtype=torch.float64).expand(n_cases, 2, 2, 2).clone()
    )
    for k in range(times):
        theta = strength * torch.randn(2, 5, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
        law = Tilted(law, OldPITs(PRERANKS, 200, 0), theta, pool)
    return law


@pytest.fixture
def root_draws(monkeypatch):
    """How many draws of a mixture are made for each stream."""
    made: dict[str, int] = {}
    whole = GaussianMixture.ensemble

    def counted(self, n_draws, seed=0, stream="members", case_ids=None):
        made[stream] = made.get(stream, 0) + n_draws * self.batch_shape[-1]
        return whole(self, n_draws, seed, stream, case_ids)

    monkeypatch.setattr(GaussianMixture, "ensemble", counted)
    return made


@pytest.mark.parametrize("times", [1, 2])
def test_a_check_draws_once_whatever_it_looks_along(times, root_draws):
    y = tilted(40, times=times).ensemble(1, seed=5).members[:, 0]
    law = tilted(40, times=times)  # which has computed nothing yet
    root_draws.clear()
    projected_pit(y, law, [Marginal(), Location(), Scale(), PCA(), HDR(), Copula()], n_draws=20)
    assert root_draws["pool for ranked members"] == 40 * 20
    assert not [stream for stream in root_draws if stream.startswith("pool for reference")]
    whole = root_draws.get("pool for the normaliser", 0)
    assert whole == (times - 1) * 40 * 400  # PITs of the second tilt are learnt from the first one's pool


@pytest.mark.parametrize("times", [1, 2])
def test_the_corrected_law_is_calibrated_for_its_own_draws(times):
    law = tilted(250, times=times)
    y = law.ensemble(1, seed=77).members[:, 0]
    pit = projected_pit(y, law, [Location(), Scale(), PCA(), HDR(), Copula()], RandomisedRank(), n_draws=50, seed=3)
    assert float(ks_test(pit.lower).min()) > 0.001 / 6


@pytest.mark.parametrize("worth", [1, 4, 50], ids=["hardly any pool", "a small pool", "a pool"])
def test_ranks_are_uniform_however_small_the_pool_is(worth, monkeypatch):
    """An observation that is drawn by its weight from a few points is one of these points: theory holds for two of them."""
    n_cases, n_draws = 3000, 9
    law = tilted(n_cases, strength=1.0)
    monkeypatch.setattr(Tilted, "_points_to_rank", lambda *_: worth)
    y = law.ensemble(1, seed=21).members[:, 0]
    pit = projected_pit(y, law, [Marginal(), Scale(), PCA(), HDR(), Copula()], RandomisedRank(), n_draws=n_draws)
    assert float(ks_test(pit.lower).min()) > 0.001 / pit.lower.shape[-1]


def test_the_observation_is_at_one_of_even_steps_through_the_shares():
    """With M + 1 draws of all points, it and a draw are the same point as often as two independent draws are, and less."""
    law, y = tilted(4), torch.zeros(4, 2, dtype=torch.float64)
    drawn, view = law.draws_and_view(y, 60, 0, torch.arange(4))
    share = torch.softmax(view.exponent, -1)
    for case in range(4):
        points = view.points[case]
        assert torch.equal(points[0], y[case])
        counts = (drawn.members[case][None] == points[:, None]).all(-1).sum(1) + (torch.arange(len(points)) == 0)
        assert int(counts.sum()) == 61
        assert bool(((counts - 61 * share[case]).abs() < 1).all())  # systematic sampling


def test_a_likely_observation_is_among_the_draws_that_rank_it():
    law = tilted(4)
    y = law.ensemble(1, seed=2).members[:, 0]
    drawn, view = law.draws_and_view(y, 2000, 0, torch.arange(4))
    copies = (drawn.members == y[:, None]).all(-1).sum(-1)
    assert_close(copies.double() + 1, 2001 * torch.softmax(view.exponent, -1)[:, 0], rtol=0, atol=1.0)


def test_draws_follow_the_seed_and_the_names_of_cases_alone():
    law, ids, y = tilted(6), torch.tensor([3, 1, 4, 9, 5, 2]), torch.zeros(6, 2, dtype=torch.float64)
    drawn, view = law.draws_and_view(y, 20, 1, ids)
    assert not torch.equal(law.draws_and_view(y, 20, 2, ids)[0].members, drawn.members)
    some = torch.tensor([4, 0])
    again, part = law.select(some).draws_and_view(y[some], 20, 1, ids[some])
    assert_close(again.members, drawn.members[some])
    assert_close(part.draws("copula", 30).members, view.draws("copula", 30).members[some])
    assert_close(part.covariance, view.covariance[some])


def test_a_density_of_the_view_is_that_of_the_law_up_to_a_constant_of_each_case():
    law = tilted(5)
    drawn, view = law.draws_and_view(torch.zeros(5, 2), 20, 0, torch.arange(5))
    for points in (drawn.members, torch.zeros(5, 3, 2, dtype=torch.float64)):
        difference = view.log_density().function(points) - law.log_density(points)
        assert_close(difference, difference[:, :1].expand_as(difference))


def test_chunks_change_nothing(monkeypatch):
    law = tilted(30)
    y = law.ensemble(1, seed=5).members[:, 0]
    whole = projected_pit(y, law, [Location(), HDR(), Copula()])
    monkeypatch.setattr(Tilted, "slices_to_rank", lambda *_: [slice(0, 7), slice(7, 30)])
    for one, other in zip(whole.parts, projected_pit(y, law, [Location(), HDR(), Copula()]).parts, strict=True):
        assert torch.equal(one.observed.lower, other.observed.lower)


def test_directions_of_a_second_tilt_do_not_know_the_draws_that_it_is_fitted_to():
    law = tilted(6)
    members, exponent = law._kept
    expected, before = (
        law.reference_covariance,
        OldPITs((PCA(),), 50, 0).learnt(law, torch.arange(6)).parts[0].projection,
    )
    second = torch.arange(members.shape[1]) >= members.shape[1] // 2
    law._kept = torch.where(second[:, None], 9.0 * members.flip(-1), members), exponent
    assert torch.equal(law.reference_covariance, expected)
    after = OldPITs((PCA(),), 50, 0).learnt(law, torch.arange(6)).parts[0].projection
    assert torch.equal(before.directions, after.directions)


def test_an_empirical_rank_has_no_copies_of_the_observation_among_its_draws():
    law = tilted(30)
    y = law.ensemble(1, seed=5).members[:, 0]
    pit = projected_pit(y, law, [Location(), HDR()], EmpiricalRank(), n_draws=20)
    assert float(pit.parts[0].ties.max()) == 0.0
    assert set((20 * pit.lower).round(decimals=9).flatten().tolist()) <= set(map(float, range(21)))


def test_targets_of_unlike_size_are_ranked_in_units():
    law, unit = tilted(20), torch.tensor([4.0, 0.5], dtype=torch.float64)
    divided = law.in_units(torch.ones(2)).in_units(unit)
    assert isinstance(divided, InUnits)
    y = law.ensemble(1, seed=9).members[:, 0]
    drawn, view = law.draws_and_view(y, 20, 0, torch.arange(20))
    scaled, seen = divided.draws_and_view(y / unit, 20, 0, torch.arange(20))
    assert_close(scaled.members * unit, drawn.members)
    assert_close(seen.draws("some", 9).members * unit, view.draws("some", 9).members)
    assert_close(divided.ensemble(9).members * unit, law.ensemble(9).members)
    points = drawn.members[:, :5]
    assert_close(
        seen.log_density().function(points / unit).diff(dim=-1), view.log_density().function(points).diff(dim=-1)
    )
    assert_close(divided.log_prob(y / unit), law.log_prob(y) + unit.log().sum())
    assert divided.select(slice(0, 3)).batch_shape == (3,)


def test_a_check_divides_targets_that_differ_tenfold():
    law = tilted(60)
    far = GaussianMixture(
        law.root.logits, law.root.loc * torch.tensor([1.0, 99.0]), law.root.scale_tril * torch.tensor([[1.0], [99.0]])
    )
    law = Tilted(far, law.pits, law.theta, 400)
    result = check(law.ensemble(1, seed=4).members[:, 0], law)
    assert any("divided by their pooled spread" in note for note in result.notes)
    assert result.p_value > 1e-4


def test_a_region_takes_its_draws_from_the_pool_of_the_normaliser(root_draws):
    law = tilted(12)
    scale = density_scale(law, 200, 0, "regions", common=True)
    assert root_draws["pool for the normaliser"] == 12 * 400
    assert not [stream for stream in root_draws if "regions" in stream]
    drawn = law._from_pool(200, "regions 0", slice(None)).members
    expected = law.log_prob(drawn.movedim(1, 0)).T.sort(-1, descending=True).values
    assert_close(scale.falling, expected)


def test_regions_of_a_corrected_law_cover_as_promised():
    law, new = tilted(300), tilted(300, seed=1)
    region = HighestDensityRegions(n_draws=200).fit(law, law.ensemble(1, seed=8).members[:, 0]).region(new, 0.8)
    inside = region.contains(new.ensemble(1, seed=9).members[:, 0])
    low, high = region.coverage(300, confidence=0.999)[1:]
    assert low <= np.mean(inside.numpy()) <= high
