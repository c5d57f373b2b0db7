"""Densities, their scale, PITs of points and cases a few at a time, by closed forms and numbers worked by hand."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Distribution, Independent, Laplace, LogNormal, MultivariateNormal, Normal

from builders import normal
from prerank import Copula, Ensemble, GaussianMixture, Location, Marginal, Scale
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import Tilted
from prerank.recalibration.batching import over_drawn, select, some_cases
from prerank.recalibration.densities import (
    DensityScale,
    as_density,
    as_mixture,
    density_scale,
    kernel_mixture,
    log_density,
)
from prerank.recalibration.held_out import held_out_cases, to_correct
from prerank.recalibration.pit_coordinates import OldPITs, reference_draws

CPU = torch.device("cpu")


def positive(n_cases):
    return Independent(LogNormal(normal(n_cases, 2), torch.tensor([0.5, 1.0]).double()), 1)


def test_a_kernel_density_has_scotts_widths_and_the_members_weights():
    members, weights = normal(3, 5, 2), 0.2 + torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
    law = kernel_mixture(Ensemble(members.float()))
    width = members.std(1, correction=0) * 5 ** (-1 / 6)
    torch.testing.assert_close(law.scale_tril, torch.diag_embed(width[:, None].expand(3, 5, 2)), rtol=1e-5, atol=0)
    assert (law.loc.dtype, law.scale_tril.dtype, law.logits.dtype) == (torch.float64,) * 3
    torch.testing.assert_close(law.weights, torch.full((3, 5), 0.2).double())
    law = kernel_mixture(Ensemble(members, weights))
    share = weights.double() / weights.double().sum(1, keepdim=True)
    mean = (share[..., None] * members).sum(1)
    spread = (share[..., None] * (members - mean[:, None]).square()).sum(1).sqrt()
    size = 1 / share.square().sum(1, keepdim=True)
    torch.testing.assert_close(law.scale_tril[:, 2].diagonal(dim1=-2, dim2=-1), spread * size ** (-1 / 6))
    torch.testing.assert_close(law.weights, share)


def test_every_forecast_with_a_density_is_taken_as_it_is(mixed):
    mixture, other, members = mixed(3), positive(3), Ensemble(normal(3, 5, 2))
    assert as_density(mixture) is mixture
    assert as_density(other) is other
    assert isinstance(as_density(members), GaussianMixture)
    assert as_mixture(mixture) is mixture
    assert as_mixture(members).n_components == 5
    gaussian = MultivariateNormal(normal(3, 2), torch.eye(2).double())
    assert torch.equal(as_mixture(gaussian).loc[:, 0], gaussian.loc)
    with pytest.raises(TypeError, match="the CDFs of an Independent are not known in closed form"):
        as_mixture(other)


def test_points_outside_the_support_have_no_density_and_the_others_their_own():
    law = positive(3)
    points = normal(3, 4, 2).exp()
    expected = law.log_prob(points.movedim(1, 0)).movedim(0, 1)
    torch.testing.assert_close(log_density(law, points), expected)
    points[1, 2, 0], points[2, 0, 1] = -1.0, -2.0
    state = torch.get_rng_state()
    found = log_density(law, points)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found.isinf().nonzero(), torch.tensor([[1, 2], [2, 0]]))
    assert bool((found[found.isinf()] < 0).all())
    torch.testing.assert_close(found[found.isfinite()], expected[found.isfinite()])


class Unsaid(Distribution):
    """Does not say where it lives; has a density."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, n_cases):
        super().__init__(torch.Size((n_cases,)), torch.Size((2,)), validate_args=False)

    def log_prob(self, value):
        return -value.abs().sum(-1)


def test_a_law_that_does_not_say_where_it_lives_is_asked_everywhere(mixed):
    points = normal(3, 4, 2)
    torch.testing.assert_close(log_density(Unsaid(3), points), -points.abs().sum(-1))
    gaussian = MultivariateNormal(normal(3, 2), torch.eye(2).double())
    torch.testing.assert_close(log_density(gaussian, points), gaussian.log_prob(points.movedim(1, 0)).movedim(0, 1))
    mixture = mixed(3)
    torch.testing.assert_close(log_density(mixture, points), mixture.log_density(points))


def test_mass_is_linear_between_draws_and_goes_on_in_nats_beyond_them():
    scale = DensityScale(torch.tensor([[0.0, -1.0, -3.0], [5.0, 5.0, 4.0]]).double())
    given = torch.tensor([[0.5, 0.0, -1.0, -2.0, -3.0, -4.0], [7.0, 5.0, 4.5, 4.25, 4.0, -torch.inf]])
    expected = [[-0.5, 0.0, 0.5, 0.75, 1.0, 2.0], [-2.0, 0.0, 0.75, 0.875, 1.0, math.inf]]
    assert scale.mass(given).tolist() == expected
    assert scale.mass(given).dtype == torch.float64


@pytest.mark.parametrize(
    ("mass", "expected"),
    [(-2.0, 2.0), (0.0, 0.0), (0.25, -0.5), (0.5, -1.0), (0.75, -2.0), (1.0, -3.0), (1.5, -3.5), (3.0, -5.0)],
)
def test_the_log_density_at_a_mass_leads_back_to_it(mass, expected):
    scale = DensityScale(torch.tensor([[0.0, -1.0, -3.0]]).double())
    assert scale.log_density(mass).tolist() == [expected]
    assert scale.mass(scale.log_density(mass)[:, None]).tolist() == [[mass]]


def test_the_scale_of_a_case_is_made_of_its_own_draws_however_it_is_cut(mixed, monkeypatch):
    law = mixed(5)
    drawn = equally_weighted_draws(law, 20, 3, "here").members
    expected = law.log_density(drawn).sort(-1, descending=True).values
    torch.testing.assert_close(density_scale(law, 20, 3, "here").falling, expected)
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    torch.testing.assert_close(density_scale(law, 20, 3, "here").falling, expected)
    other = positive(4)
    drawn = equally_weighted_draws(other, 20, 3, "here").members
    expected = log_density(other, drawn).sort(-1, descending=True).values
    torch.testing.assert_close(density_scale(other, 20, 3, "here").falling, expected)


def test_mixtures_are_cut_into_cases_and_other_laws_are_not(mixed, monkeypatch, opaque):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 16)
    law = mixed(5)
    parts = over_drawn(lambda *part: part, law, 2)
    assert [cases for cases, _, _ in parts] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert [ids.tolist() for _, _, ids in parts] == [[0, 1], [2, 3], [4]]
    assert torch.equal(parts[1][1].loc, law.loc[2:4])
    other = positive(5)
    ((cases, same, ids),) = over_drawn(lambda *part: part, other, 2)
    assert (cases, ids.tolist()) == (slice(None), [0, 1, 2, 3, 4])
    assert same is other
    assert some_cases(law, 8, CPU) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert some_cases(opaque(other), 8, CPU) == [slice(None)]
    assert select(other, slice(None)) is other
    assert torch.equal(select(law, torch.tensor([3, 1])).loc, law.loc[[3, 1]])
    assert select(law, slice(0, 1)).batch_shape == (1,)


def test_a_forecast_of_several_models_or_without_cases_is_refused(mixed):
    assert torch.equal(to_correct(np.zeros((2, 3, 4))).law.members, torch.zeros(2, 3, 4).double())
    assert to_correct(mixed(3)).law.batch_shape == (3,)
    assert to_correct(mixed(3).expand((1, 3))).law.batch_shape == (3,)
    with pytest.raises(ValueError, match=r"leading axes \(4, 2\) before its cases; give one model at a time"):
        to_correct(Ensemble(torch.zeros(4, 2, 5, 3, 2)))
    with pytest.raises(ValueError, match=r"leading axes \(4,\) before its cases"):
        to_correct(mixed(3).expand((4, 3)))
    with pytest.raises(ValueError, match="event shape"):
        to_correct(Normal(torch.zeros(3, 2), torch.ones(2)))
    with pytest.raises(ValueError, match="every member of every case has a missing value"):
        to_correct(torch.full((2, 3, 4), torch.nan))


def test_held_out_cases_are_counted_and_compared(mixed):
    forecast, y = mixed(3), normal(3, 2)
    found = held_out_cases(forecast, y.numpy(), at_least=3)
    assert found.forecast is forecast
    assert torch.equal(found.observed(), y)
    with pytest.raises(ValueError, match=r"^3 held-out cases; at least 4 are needed"):
        held_out_cases(forecast, y, at_least=4)
    assert len(held_out_cases(mixed(1), y[:1]).observed()) == 1
    with pytest.raises(TypeError, match="y is an Ensemble"):
        held_out_cases(y, Ensemble(torch.zeros(3, 4, 2)))


def test_pits_of_linear_preranks_of_a_mixture_are_its_cdfs(mixed):
    law, points = mixed(4), normal(4, 6, 2)
    found = OldPITs((Marginal(), Location()), 10, 0)(law, points, torch.arange(4))
    spread = law.scale_tril.square().sum(-1).sqrt()
    cdf = (
        law.weights[..., None, None] * Normal(law.loc, spread).cdf(points.movedim(1, 0)[:, :, None]).movedim(0, 2)
    ).sum(1)
    torch.testing.assert_close(found[..., :2], cdf)
    centre, factor = law.loc.mean(-1), law.scale_tril.mean(-2).square().sum(-1).sqrt()
    z = (points.mean(-1)[..., None] - centre[:, None]) / factor[:, None]
    torch.testing.assert_close(found[..., 2], (law.weights[:, None] * torch.special.ndtr(z)).sum(-1))


def test_other_pits_are_middle_ranks_among_reference_draws(mixed):
    law, points = mixed(3), normal(3, 6, 2)
    drawn = equally_weighted_draws(law, 30, 5, "reference of the tilt", torch.arange(3)).members
    points[0, 0] = drawn[0, 4]  # a tie
    found = OldPITs((Marginal(), Scale()), 30, 5)(law, points, torch.arange(3))
    assert found.shape == (3, 6, 3)
    # Scale is the variance over targets
    values, reference = points.var(-1, correction=0), drawn.var(-1, correction=0)
    below = (reference[:, None] < values[..., None]).sum(-1)
    ties = (reference[:, None] == values[..., None]).sum(-1)
    assert int(ties[0, 0]) == 1
    torch.testing.assert_close(found[..., 2], (below + (ties + 1) / 2) / 31, check_dtype=False)
    other = Independent(Laplace(normal(3, 2), torch.ones(2).double()), 1)
    drawn = equally_weighted_draws(other, 30, 5, "reference of the tilt", torch.arange(3)).members
    below = (drawn[:, None] < points[:, :, None]).sum(2)
    found = OldPITs((Marginal(),), 30, 5)(other, points.float(), torch.arange(3))
    torch.testing.assert_close(found, ((below + 0.5) / 31).float())


def test_pits_depend_on_the_case_and_not_on_its_neighbours(mixed):
    law, points, old = mixed(4), normal(4, 6, 2), OldPITs((Scale(), Copula()), 30, 5)
    whole = old(law, points, torch.arange(4))
    some = torch.tensor([2, 0])
    torch.testing.assert_close(old(law.select(some), points[some], some), whole[some])
    assert not torch.equal(old(law.select(some), points[some], torch.arange(2)), whole[some])


def test_points_without_a_pit_are_refused_with_their_count(mixed):
    points = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [-2.0, torch.nan]]).double().expand(2, 3, 2)
    with pytest.raises(
        ValueError, match=r"PITs are NaN for 4 of 6 points; a pre-rank must be a number for every point"
    ):
        OldPITs((Marginal(),), 10, 0)(mixed(2), points, torch.arange(2))


def test_projections_are_named_by_prerank(mixed):
    old = OldPITs((Marginal(), Location()), 10, 0)
    for law in (mixed(3), positive(3)):
        names = old.names(law)
        assert list(names) == ["marginal", "location"]
        assert [len(parts) for parts in names.values()] == [2, 1]


def test_a_forecast_that_keeps_a_pool_is_asked_for_draws_of_it(mixed):
    law = mixed(3)
    tilted = Tilted(law, OldPITs((Marginal(),), 10, 0), torch.zeros(1, 2).double(), pool=40)
    assert torch.equal(reference_draws(tilted, 7, 9, "some").members, tilted.reference_draws(7, "some").members)
    expected = equally_weighted_draws(law, 7, 9, "some", torch.arange(3)).members
    assert torch.equal(reference_draws(law, 7, 9, "some", torch.arange(3)).members, expected)


def test_joint_cdfs_are_learnt_from_few_draws(mixed, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "prerank.recalibration.pit_coordinates.equally_weighted_draws",
        lambda law, n, *rest: (asked.append(n), equally_weighted_draws(law, n, *rest))[1],
    )
    OldPITs((Copula(),), 30, 0)(mixed(2), normal(2, 3, 2), torch.arange(2))
    assert sorted(asked) == [30, 250]
