"""The paper's proposition, and what else must not change a PIT: order, units, duplicates, chunks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from builders import normal, random_mixture
from prerank import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Custom,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    paper_preranks,
    projected_pit,
)
from prerank.calibration import EmpiricalRank
from prerank.preranks import (
    AverageRank,
    BandDepth,
    EnergyScore,
    Exceedance,
    Mahalanobis,
    Maximum,
    Minimum,
    Range,
    ReferenceDistance,
    Sliced,
    SpanningTree,
    SquaredDifference,
    Variogram,
)

FIELD = [
    *(AverageRank(50), BandDepth(50), EnergyScore(50), SpanningTree(20), Mahalanobis(n_reference=50)),
    *(ReferenceDistance(), Exceedance(0.3), Sliced(), Variogram(), Maximum(), Minimum(), Range()),
]
PRERANKS = [
    *(Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula(), Contrast(), SquaredDifference()),
    *FIELD,
]


MAPS = {
    "exp": lambda t: t.exp(),
    "cube": lambda t: t**3,
    "shift and stretch": lambda t: 8.0 * t + 4.0,  # exact in binary
    "arctan": lambda t: t.atan(),
}


@pytest.mark.parametrize("name", list(MAPS))
def test_an_increasing_map_of_the_prerank_leaves_hard_pits_unchanged(name):
    x = normal(60, 12, 4)
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    plain = Custom(lambda points: points.square().sum(-1))
    mapped = Custom(lambda points: MAPS[name](points.square().sum(-1)))
    assert torch.equal(projected_pit(y, forecast, plain).values, projected_pit(y, forecast, mapped).values)
    empirical = EmpiricalRank()
    assert torch.equal(
        projected_pit(y, forecast, plain, empirical).values, projected_pit(y, forecast, mapped, empirical).values
    )


def test_a_decreasing_map_mirrors_hard_pits():
    """Members below become members above: with u for U and then 1 - u, Z becomes 1 - Z. Ranks show it without U."""
    x = normal(60, 12, 4).round(decimals=0)  # with ties
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    plain, mapped = Custom(lambda points: points.sum(-1)), Custom(lambda points: -points.sum(-1))
    z, mirrored = projected_pit(y, forecast, plain).values, projected_pit(y, forecast, mapped).values
    total = x.sum(-1)
    below, at = (total < total[:, :1]).sum(-1)[:, None], (total == total[:, :1]).sum(-1)[:, None]
    u = (z * 12 - below) / at
    torch.testing.assert_close(mirrored, (12 - below - at + u * at) / 12)
    assert (at > 1).any()


def test_density_and_log_density_rank_alike():
    law = random_mixture(80, n_targets=3)
    y = law.ensemble(1, seed=3, stream="observation").members[:, 0]
    forecast = Ensemble(law.ensemble(20, seed=4).members, reference=law)
    points = torch.cat([y[:, None], forecast.members], 1)
    log_density = HDR().given(law)(points)[..., 0]
    expected = (log_density[:, 1:].exp() < log_density[:, :1].exp()).sum(-1)
    z = projected_pit(y, forecast, HDR(), EmpiricalRank()).values[:, 0]
    assert torch.equal((20 * z).round().long(), expected)


def test_for_two_targets_squared_difference_ranks_like_scale():
    x = normal(100, 12, 2).float()
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Scale(), SquaredDifference()], EmpiricalRank()).values
    assert torch.equal(pit[:, 0], pit[:, 1])


def up_to_mirror(z, other):
    """Largest deviation, each case and component taken as it is or mirrored."""
    return torch.minimum((z - other).abs(), (1 - z - other).abs()).max()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 3.0, 1000.0]), n_targets=st.integers(2, 6))
def test_pca_pits_do_not_change_with_origin_unit_or_rotation(seed, scale, n_targets):
    law = random_mixture(10, n_targets=n_targets, seed=seed)
    y = normal(10, n_targets, seed=seed + 9)
    shift = normal(n_targets, seed=seed + 10)
    rotation = torch.linalg.qr(normal(n_targets, n_targets, seed=seed + 11)).Q
    z = projected_pit(y, law, PCA()).values

    def moved(scale, rotation):
        new = GaussianMixture(
            law.logits,
            scale * law.loc @ rotation + shift,
            torch.linalg.cholesky(
                scale**2 * rotation.mT @ (law.scale_tril @ law.scale_tril.mT) @ rotation,
            ),
        )
        return projected_pit(scale * y @ rotation + shift, new, PCA()).values

    gap = torch.linalg.eigvalsh(law.covariance_matrix).diff(dim=-1).min()
    if gap < 1e-3:
        return  # a repeated eigenvalue has no directions of its own
    identity = torch.eye(n_targets, dtype=torch.float64)
    assert up_to_mirror(z, moved(scale, identity)) < 1e-6
    assert up_to_mirror(z, moved(1.0, rotation)) < 1e-6


def test_hard_pca_ranks_of_an_ensemble_do_not_change_with_rotation():
    x = normal(50, 15, 3)
    rotation = torch.linalg.qr(normal(3, 3, seed=5)).Q
    z = projected_pit(x[:, 0], Ensemble(x[:, 1:]), PCA(), EmpiricalRank()).values
    turned = x @ rotation + 7.0
    assert up_to_mirror(z, projected_pit(turned[:, 0], Ensemble(turned[:, 1:]), PCA(), EmpiricalRank()).values) < 1e-9


def test_the_sign_of_a_symmetric_direction_does_not_depend_on_rounding():
    rho = -0.5 + 0.01 * torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = torch.stack([torch.ones_like(rho), rho, rho, torch.ones_like(rho)], -1).reshape(-1, 2, 2)
    law = MultivariateNormal(torch.zeros(200, 2, dtype=torch.float64), covariance)
    assert (PCA().given(law).directions[:, 0] > 0).all()


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_the_order_of_members_does_not_matter(prerank):
    x = normal(40, 12, 4)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    pits = [projected_pit(x[:, 0], Ensemble(members), prerank) for members in (x[:, 1:], x[:, 1:][:, order])]
    torch.testing.assert_close(pits[0].values, pits[1].values, rtol=0, atol=1e-12)
    assert torch.equal(pits[0].tied, pits[1].tied)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_equal_points_have_bitwise_equal_projections_wherever_they_stand(prerank, dtype):
    """A tie between the observation and a member must be a tie, not rounding noise."""
    for n_points in (2, 7, 8, 33, 101):
        for n_targets in (3, 4, 6, 9, 16, 17):
            points = normal(3, n_points, n_targets, seed=n_points, dtype=dtype)
            same = points[:, :1].expand(-1, n_points, -1).contiguous()
            twice = points.clone()
            twice[:, -1] = points[:, 0]
            for law in (Ensemble(points), random_mixture(3, n_targets=n_targets, dtype=dtype)):
                projection = prerank.given(law)
                everywhere, ends = projection(same), projection(twice)
                assert (everywhere == everywhere[:, :1]).all()
                assert torch.equal(ends[:, 0], ends[:, -1])


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_an_observation_among_copies_of_itself_gets_a_uniform_rank(prerank):
    x = normal(2000, 1, 4).expand(-1, 10, -1)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), prerank)
    assert (pit.tied == 1).all()
    # mean of uniforms: five standard errors
    assert ((pit.values.mean(0) - 0.5).abs() < 5 * (1 / 12 / 2000) ** 0.5).all()


FORECASTS = {
    "ensemble": lambda: Ensemble(normal(90, 11, 4)[:, 1:]),
    "mixture": lambda: random_mixture(90, n_targets=4),
    "ensemble with draws as reference": lambda: Ensemble(normal(90, 9, 4), reference=normal(90, 30, 4, seed=8)),
    "ensemble with a mixture as reference": lambda: Ensemble(
        normal(90, 9, 4), reference=random_mixture(90, n_targets=4)
    ),
}


@pytest.mark.parametrize("kind", list(FORECASTS))
def test_cases_by_themselves_have_the_pits_they_have_together(kind):
    forecast, y, ids = FORECASTS[kind](), normal(90, 4, seed=6), torch.arange(90) * 7 + 3
    chosen = [*paper_preranks(4), Contrast(), *FIELD]
    whole = projected_pit(y, forecast, chosen, case_ids=ids, exchangeable=True, n_draws=20)
    some = torch.tensor([71, 3, 40, 8])
    part = projected_pit(y[some], forecast.select(some), chosen, case_ids=ids[some], exchangeable=True, n_draws=20)
    torch.testing.assert_close(part.values, whole.values[some], rtol=0, atol=1e-12)
    for few, all_cases in zip(part.parts, whole.parts, strict=True):
        assert (few.points is None) == (all_cases.points is None) == (few.method == "closed form")
        if few.points is not None:
            torch.testing.assert_close(
                few.points.bounds(), all_cases.points.select(some, -3).bounds(), rtol=0, atol=1e-12
            )
    alone = projected_pit(y, forecast, Location(), case_ids=ids, n_draws=20)
    assert torch.equal(alone.values[:, 0], whole.values[:, whole.groups.index("location")])


@pytest.mark.parametrize("how", [None, EmpiricalRank()], ids=str)
def test_chunks_change_nothing(monkeypatch, how):
    x = normal(90, 11, 4)
    chosen = [*paper_preranks(4), *FIELD, ReferenceDistance(normal(90, 4, seed=5), name="from given points")]

    def run():
        return projected_pit(x[:, 0], Ensemble(x[:, 1:]), chosen, how, exchangeable=True)

    whole = run()
    monkeypatch.setattr(
        "prerank.calibration.pit.chunks", lambda n, *_: [slice(i, min(i + 7, n)) for i in range(0, n, 7)]
    )
    chunked = run()
    assert torch.equal(chunked.values, whole.values)
    for some, every in zip(chunked.points.bounds(), whole.points.bounds(), strict=True):
        assert torch.equal(some, every)
    torch.testing.assert_close(chunked.tied, whole.tied)
    assert (chunked.names, chunked.groups, chunked.method) == (whole.names, whole.groups, whole.method)


def test_the_global_generator_is_left_as_it_was():
    before = torch.random.get_rng_state()
    law = MultivariateNormal(torch.zeros(20, 3), torch.eye(3))
    projected_pit(torch.zeros(20, 3), law, [Location(), Copula(), PCA()], exchangeable=True)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_leading_axes_hold_several_models():
    members, y = normal(3, 30, 9, 4), normal(30, 4, seed=2)
    chosen = [*paper_preranks(4), *FIELD]
    together = projected_pit(y, Ensemble(members), chosen, exchangeable=True)
    assert together.values.shape == (3, 30, 13 + 16)
    for e in range(3):
        one = projected_pit(y, Ensemble(members[e]), chosen, exchangeable=True)
        for alone, among in zip(one.points.bounds(), together.points.bounds(), strict=True):
            assert torch.equal(alone, among[e])
        torch.testing.assert_close(one.tied, together.tied[e])
