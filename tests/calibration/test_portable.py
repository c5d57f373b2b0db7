"""Equal means equal on every processor: what a library rounds by position decides no rank.

Processors differ in where they round the last digit of a product or a triangular solve, so a test that passes here may
fail elsewhere. `rounds_by_position` makes every such call of this process the worst of them: one unit in the last place,
on a checkerboard. The claims must hold all the same.
"""

import math
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

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
    projected_pit,
)
from prerank import _reproducible_math as elementwise
from prerank.calibration.curve_table import Resampled, tables_of
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.reliability import centred_levels
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
    point_density,
    principal_directions,
)
from prerank.preranks.exchangeable_points import canonical_order, canonical_points, reference_subset, spread_matrix
from prerank.preranks.point_density import bandwidths, joint_cdf, log_kernel_density
from prerank.preranks.rank_counts import ascending
from prerank.preranks.rounding import rounded

WEIGHTS = torch.tensor([0.3, -1.7, 0.9], dtype=torch.float64)
PRODUCT = Custom(lambda y: y[..., :3] @ WEIGHTS.to(y)[: y.shape[-1]], name="a product of the user's")
PRERANKS = [
    *(Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula(n_reference=50), Contrast()),
    SquaredDifference(),
    *(AverageRank(50), BandDepth(50), EnergyScore(50), SpanningTree(20), Mahalanobis(n_reference=50), Sliced()),
    *(ReferenceDistance(), ReferenceDistance(norm=1, name="absolute"), Exceedance(0.3), Maximum(), Minimum(), Range()),
    *(Variogram(), Variogram(lags=1, exponent=0.5, name="roots of variogram")),
]
DATA = {
    "continuous": lambda x: x,
    "binary": lambda x: (x > 0).to(x),
    "counts": lambda x: x.abs().mul(1.5).floor(),
    "rounded to 0.1": lambda x: x.mul(3.0).round() / 10,
    "signed zeros": lambda x: x.round() * 0.5,
}


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def off_by_one_unit(values):
    """Every second number, by row and column, one unit in the last place up."""
    if not isinstance(values, torch.Tensor) or not values.is_floating_point() or values.ndim == 0:
        return values
    odd = torch.arange(values.shape[-1]) % 2
    if values.ndim > 1:
        odd = (odd + torch.arange(values.shape[-2])[:, None]) % 2
    return torch.where(odd.bool(), torch.nextafter(values, torch.full_like(values, math.inf)), values)


@pytest.fixture
def rounds_by_position(monkeypatch):
    def spoil(owner, name, applies=lambda *_, **__: True):
        original = getattr(owner, name)

        def spoiled(*given, **named):
            result = original(*given, **named)
            return off_by_one_unit(result) if applies(*given, **named) else result

        monkeypatch.setattr(owner, name, spoiled)

    for name in ("matmul", "bmm", "baddbmm", "einsum", "addmm", "mm"):
        spoil(torch, name)
    for name in ("matmul", "__matmul__", "bmm", "baddbmm", "mm"):
        spoil(torch.Tensor, name)
    spoil(torch.linalg, "solve_triangular")
    exact = "donot_use_mm_for_euclid_dist"
    spoil(torch, "cdist", lambda *_, **named: named.get("compute_mode") != exact)

    def other_axis_than_the_last(values, dim=None, *_, **__):
        return isinstance(dim, int) and dim not in (-1, values.ndim - 1)

    for owner in (torch, torch.Tensor):
        for name in ("sum", "mean", "logsumexp"):
            spoil(owner, name, other_axis_than_the_last)
    assert not torch.equal(torch.eye(2) @ torch.eye(2), torch.eye(2))


def mixture(n_cases, n_targets, dtype, n_components=5):
    factor = 0.3 * numbers(n_cases, n_components, n_targets, n_targets, dtype=dtype).tril(-1)
    return GaussianMixture(
        numbers(n_cases, n_components, seed=1, dtype=dtype),
        numbers(n_cases, n_components, n_targets, seed=2, dtype=dtype),
        factor + torch.eye(n_targets, dtype=dtype),
    )


def gaussian(n_cases, n_targets, dtype):
    law = mixture(n_cases, n_targets, dtype, 1)
    return MultivariateNormal(law.loc[:, 0], scale_tril=law.scale_tril[:, 0])


def suits(prerank, n_targets):
    return n_targets > 2 or not isinstance(prerank, Dependency | Variogram)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_equal_points_have_equal_projections_where_libraries_round_by_position(rounds_by_position, prerank, dtype):
    for n_targets in (2, 3, 6, 7, 9, 13, 16, 17):
        if not suits(prerank, n_targets):
            continue
        laws = [mixture(2, n_targets, dtype), gaussian(2, n_targets, dtype)]
        for n_points in (2, 7, 33, 101):
            points = numbers(2, n_points, n_targets, seed=n_points, dtype=dtype)
            same = points[:, :1].expand(-1, n_points, -1).contiguous()
            twice = torch.cat([points[:, 1:], points], 1)
            for law in (*laws, Ensemble(points)):
                projection = prerank.given(law)
                everywhere, again = projection(same), projection(twice)
                assert (everywhere == everywhere[:, :1]).all(), (law, n_targets, n_points)
                assert torch.equal(again[:, : n_points - 1], again[:, n_points:]), (law, n_targets, n_points)


@pytest.mark.parametrize("n_targets", [2, 6, 9, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equal_values_have_equal_closed_form_pits_where_libraries_round_by_position(
    rounds_by_position, n_targets, dtype
):
    law = mixture(3, n_targets, dtype, n_components=10)
    for n_points in (7, 101):
        values = numbers(3, 1, n_targets, dtype=dtype).expand(-1, n_points, -1).contiguous()
        pit = law.cdf_along(PCA().given(law).directions, values)
        assert (pit == pit[:, :1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("data", list(DATA))
@pytest.mark.parametrize("prerank", [*PRERANKS, PRODUCT], ids=lambda p: p.name)
def test_whichever_point_is_the_observation_all_points_keep_their_ranks(rounds_by_position, prerank, data, dtype):
    """What validity needs, to the last digit, even for a function of the user's that calls a matrix product."""
    for n_members, n_targets in ((2, 3), (5, 2), (11, 7)):
        if not suits(prerank, n_targets):
            continue
        x = DATA[data](numbers(40, n_members + 1, n_targets, seed=n_targets, dtype=dtype))
        order = numbers(40, n_members + 1, seed=9).argsort(-1)
        moved = x.gather(1, order[..., None].expand_as(x))
        for reference in (None, mixture(40, n_targets, dtype)):
            first, second = (
                projected_pit(points[:, 0], Ensemble(points[:, 1:], reference=reference), prerank, exchangeable=True)
                for points in (x, moved)
            )
            for before, after in zip(first.points.bounds(), second.points.bounds(), strict=True):
                assert torch.equal(before.gather(1, order[..., None].expand_as(before)), after)


@pytest.mark.parametrize("data", ["binary", "counts", "rounded to 0.1"])
@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_on_discrete_data_projections_that_differ_by_rounding_noise_tie(rounds_by_position, prerank, data):
    """Two projections are equal, or differ by more than arithmetic could have made of equal ones.

    A tie is lost where the numbers lie on either side of a boundary between two multiples: errors of some 2^-50 against
    multiples of 2^-36, so once in thousands. One in a hundred would be a fault.
    """
    near = lost = 0
    for n_members, n_targets in ((2, 3), (3, 2), (8, 5)):
        if not suits(prerank, n_targets):
            continue
        points = canonical_points(DATA[data](numbers(200, n_members + 1, n_targets, seed=n_members)))
        projection = prerank.given(Ensemble(points.ordered))
        projected = points.as_given(rounded(projection(points.ordered)))
        apart = (projected[:, :, None] - projected[:, None]).abs()
        close = apart <= 1e-9 * projected.abs().amax(1)[:, None, None]
        own = torch.eye(n_members + 1, dtype=torch.bool)[None, :, :, None]
        near += int((close & ~own).sum())
        lost += int((close & (apart > 0)).sum())
    assert near > 0
    assert lost <= near / 100


def test_pooled_densities_of_binary_targets_tie_where_they_are_equal():
    """Ranks against densities that are counted: one number per set of targets in which two points differ."""
    x = DATA["binary"](numbers(300, 3, 3))
    differ = x[:, :, None] != x[:, None]
    step = 1.0 / bandwidths(x).square()
    density = [
        [math.fsum(math.exp(-0.5 * math.fsum((d * s).tolist())) for d in row) for row in case]
        for case, s in zip(differ, step[:, 0], strict=True)
    ]
    exact = torch.tensor(density, dtype=torch.float64)
    below = (exact[:, None] < exact[:, :, None] * (1 - 1e-9)).sum(-1)
    upto = (exact[:, None] < exact[:, :, None] * (1 + 1e-9)).sum(-1)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), HDR(), exchangeable=True)
    lower, upper = pit.points.bounds()
    assert torch.equal((3 * lower[..., 0]).round().long(), below)
    assert torch.equal((3 * upper[..., 0]).round().long(), upto)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, 1e300])] * 3), min_size=1, max_size=9))
def test_canonical_order_is_that_of_the_targets_one_after_another(rows):
    points = torch.tensor(rows, dtype=torch.float64)
    found = canonical_points(torch.stack([points, points.flip(0)])).ordered
    assert [tuple(row) for row in found[0].tolist()] == sorted(rows)
    assert torch.equal(found[0], found[1])
    assert not torch.signbit(found[found == 0]).any()
    assert torch.equal(canonical_order(points[None]).sort(-1).values[0], torch.arange(len(rows)))


def test_equal_points_share_one_place_and_others_do_not():
    x = DATA["binary"](numbers(50, 9, 3))
    place = canonical_points(x).place
    same = (x[:, :, None] == x[:, None]).all(-1)
    assert torch.equal(same, place[:, :, None] == place[:, None])


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1.0),
        (torch.float32, 9.97e36),
        (torch.float64, 1.0),
        (torch.float64, 1e-200),
        (torch.float64, 1e200),
    ],
    ids=str,
)
@pytest.mark.parametrize("n_targets", [2, 16, 20])
def test_points_that_are_all_equal_have_principal_directions(n_targets, dtype, size):
    points = (size * numbers(300, 1, n_targets)).to(dtype).expand(-1, 11, -1)
    assert (spread_matrix(points) == 0).all()
    projected = PCA().given(Ensemble(points))(points)
    assert projected.isfinite().all()
    assert (projected == projected[:, :1]).all()


def test_principal_directions_do_not_change_with_a_unit_that_squares_could_not_hold():
    points = numbers(20, 30, 4)
    directions = PCA().given(Ensemble(points)).directions
    for size in (2.0**-500, 2.0**1000):
        assert torch.equal(PCA().given(Ensemble(points * size)).directions, directions)


def test_a_covariance_that_is_not_finite_is_refused_with_the_number_of_cases():
    covariance = torch.eye(3).repeat(5, 1, 1)
    covariance[3, 1, 1] = math.inf
    with pytest.raises(ValueError, match="not finite in 1 of 5 cases"):
        principal_directions(covariance)


def test_the_spread_matrix_is_the_covariance_but_for_its_unit():
    points, weights = numbers(6, 12, 4), numbers(6, 12, seed=1).exp()
    for own in (None, weights):
        expected = Ensemble(points, own).covariance_matrix
        found = spread_matrix(points, own)
        torch.testing.assert_close(found * (expected[:, :1, :1] / found[:, :1, :1]), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_point_has_the_density_and_joint_cdf_that_it_has_alone_whatever_the_blocks(monkeypatch, weighted):
    points, centres = numbers(7, 45, 3), numbers(7, 20, 3, seed=1)
    points[2, 5] += 300.0  # so far out that exponentials vanish
    weights = numbers(7, 20, seed=2).exp() if weighted else None
    law = mixture(7, 3, torch.float64)

    def everything():
        linear = PCA().given(law)(points)
        return log_kernel_density(points, centres, weights), joint_cdf(points, centres, weights), linear

    whole, density = everything(), law.log_density(points)
    assert whole[0].isfinite().all()
    for size in (8, 1 << 10, 1 << 13):
        monkeypatch.setattr(elementwise, "BYTES", size)
        for found, expected in zip(everything(), whole, strict=True):
            assert torch.equal(found, expected)
        torch.testing.assert_close(law.log_density(points), density, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("n_points", "n_targets"), [(2, 3), (31, 4), (64, 2), (65, 3), (130, 5), (300, 1)])
@pytest.mark.parametrize("data", ["continuous", "binary", "counts"])
def test_pooled_points_have_the_joint_cdf_and_density_of_points_among_others(n_points, n_targets, data):
    x = numbers(4, n_points, n_targets, seed=n_points)
    x = x if data == "continuous" else DATA[data](x)
    x[..., 0] += x[..., -1]
    x = canonical_points(x).ordered
    assert torch.equal(joint_cdf(x, x), joint_cdf(x, x.clone()))
    found, expected = log_kernel_density(x, x), log_kernel_density(x, x.clone())
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_the_density_of_pooled_points_does_not_change_with_other_cases(monkeypatch):
    x = numbers(40, 100, 7)
    whole = log_kernel_density(x, x)
    for size in (1 << 10, 1 << 17):
        monkeypatch.setattr(point_density, "_IN_CACHE", size)
        assert torch.equal(log_kernel_density(x, x), whole)
    alone = [log_kernel_density(case, case) for case in x[:, None]]
    assert torch.equal(torch.cat(alone), whole)


def test_a_far_outlier_leaves_the_density_of_pooled_points_exact():
    x = numbers(3, 200, 12)
    x[:, 0] *= 1e8
    torch.testing.assert_close(log_kernel_density(x, x), log_kernel_density(x, x.clone()), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["all different", "ties", "differ in the last digit", "infinite", "one"])
def test_numbers_are_put_in_the_order_of_a_stable_sort(kind, dtype):
    rows = numbers(50, 3, 40).to(dtype)
    if kind == "ties":
        rows = rows.round(decimals=1)  # with -0.0 and 0.0
    if kind == "differ in the last digit":
        rows = rows[..., :1].expand(rows.shape).clone()
        rows[..., ::2] = torch.nextafter(rows[..., ::2], torch.tensor(-math.inf, dtype=dtype))
    if kind == "infinite":
        rows[:, :, 3], rows[:, :, 7], rows[:, :, 9] = math.inf, -math.inf, math.inf
    if kind == "one":
        rows = rows[..., :1]
    for same in (rows, rows.mT.contiguous().mT):
        ordered, order = same.sort(dim=-1, stable=True)
        found = ascending(same)
        assert torch.equal(found.order, order)
        rises = ordered[..., 1:] != ordered[..., :-1]
        assert bool(rises.all()) if found.rises is None else torch.equal(found.rises, rises)


def test_sets_drawn_from_all_rows_have_the_sums_of_their_rows():
    levels = centred_levels(20)
    ranks = torch.randint(0, 12, (70, 5), generator=torch.Generator().manual_seed(1))
    ((_, table),) = tables_of(Intervals(ranks, ranks + 1, 13), levels)
    rows = torch.randint(0, 70, (9, 70), generator=torch.Generator().manual_seed(2))
    assert torch.equal(Resampled.of(table).sums(rows, None), table.sums(rows, None))


def peak_memory(function):
    """The most bytes that the tensors made by a call held at one time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    held = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert held
    return max(accumulate(held))


@pytest.mark.parametrize(("n_cases", "n_points"), [(1, 50_000), (30, 1751)])
@pytest.mark.parametrize("function", [log_kernel_density, joint_cdf])
def test_very_many_points_take_little_memory(function, n_cases, n_points):
    points, centres = numbers(n_cases, n_points, 5), numbers(n_cases, 250, 5, seed=1)
    copies = 4 * points.numel() * points.element_size()
    assert peak_memory(lambda: function(points, centres)) <= copies + 4 * elementwise.BYTES


def test_the_density_for_training_is_the_density():
    law = mixture(4, 6, torch.float64)
    for n_points in (1, 5, 40):
        points = numbers(4, n_points, 6, seed=n_points)
        for_training = law.log_density(points.clone().requires_grad_())
        assert for_training.requires_grad
        torch.testing.assert_close(law.log_density(points), for_training.detach(), rtol=1e-12, atol=1e-12)
        directions = PCA().given(law).directions
        for_training = law.cdf_along(directions, points.clone().requires_grad_())
        torch.testing.assert_close(law.cdf_along(directions, points), for_training.detach(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n_members", [1001, 1499, 50_000])
def test_the_reference_of_many_members_is_spread_evenly_over_them(n_members):
    chosen = reference_subset(n_members)
    assert len(chosen.unique()) == 250
    assert 0 <= chosen.min() < n_members / 250
    assert n_members - n_members / 250 <= chosen.max() < n_members
    assert chosen.diff().max() - chosen.diff().min() <= 1
    assert reference_subset(1000) is None
