"""The field's pre-ranks: definitions, what they see and miss, refusals, training, cases of their own."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from builders import normal, random_mixture, uniform
from prerank import Custom, Dependency, Ensemble, Location, PreRankPenalty, check, check_pits, pce_test, projected_pit
from prerank.calibration import ProjectedPIT, histogram_measures
from prerank.diagnosis.explanations import SHAPES
from prerank.diagnosis.field_sentences import FIELD_SENTENCES
from prerank.preranks import (
    AverageRank,
    BandDepth,
    DistributionView,
    EnergyScore,
    Exceedance,
    Isotropy,
    Mahalanobis,
    Maximum,
    Minimum,
    PreRank,
    Range,
    ReferenceDistance,
    Sliced,
    SpanningTree,
    Variogram,
    needs_of,
)
from prerank.preranks.naming import field_preranks, prerank_named
from prerank.preranks.pooled_ranks import mid_ranks
from prerank.preranks.spanning_tree import lengths_after_insertion, lengths_of_others, lengths_without_each, tree_of

TRAINABLE = [
    EnergyScore(),
    Mahalanobis(),
    ReferenceDistance(),
    Variogram(),
    Isotropy((2, 2)),
    Sliced(),
    Maximum(),
    Range(),
]
UNTRAINABLE = [AverageRank(), BandDepth(), SpanningTree(), Exceedance(0.5)]
FIELD: list[PreRank] = [*TRAINABLE, Minimum(), *UNTRAINABLE]


def members(n_cases=40, n_members=9, n_targets=4, seed=0):
    x = normal(n_cases, n_members + 1, n_targets, seed=seed)
    return x[:, 0], x[:, 1:]


@pytest.mark.parametrize("prerank", FIELD, ids=lambda item: item.name)
def test_every_prerank_is_a_value(prerank):
    with pytest.raises(dataclasses.FrozenInstanceError):
        prerank.name = "another"
    assert prerank == dataclasses.replace(prerank)
    assert hash(prerank) == hash(dataclasses.replace(prerank))
    assert prerank != dataclasses.replace(prerank, name="another")


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Variogram(weights=x),
        lambda x: ReferenceDistance(x),
        lambda x: Custom(math.dist, per_case=x),
    ],
)
def test_preranks_that_hold_arrays_are_equal_if_their_numbers_are(make):
    numbers = uniform(3, 3, seed=1)
    other = numbers.clone()
    other[2, 1] += 1e-9
    assert make(numbers) == make(numbers.numpy().copy())
    assert hash(make(numbers)) == hash(make(numbers.clone()))
    assert make(numbers.float()) == make(numbers.float().double())  # the same numbers
    assert make(numbers) != make(other)
    assert hash(make(numbers)) != hash(make(other))
    assert make(numbers) != numbers.numpy().tobytes()


# -- definitions


def tree_length(points):
    """Kruskal's algorithm, edge by edge."""
    n = len(points)
    parent = list(range(n))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    edges = sorted((math.dist(points[i], points[j]), i, j) for i, j in itertools.combinations(range(n), 2))
    length = 0.0
    for size, i, j in edges:
        if root(i) != root(j):
            parent[root(i)] = root(j)
            length += size
    return length


@pytest.mark.parametrize(("n_points", "n_targets"), [(1, 2), (2, 2), (3, 1), (4, 2), (12, 3), (25, 2)])
def test_trees_are_those_of_kruskal(n_points, n_targets):
    x, y = normal(3, n_points, n_targets, seed=1), normal(3, 6, n_targets, seed=2)
    without = lengths_without_each(torch.cdist(x, x))
    added = lengths_after_insertion(torch.cdist(x, x), torch.cdist(x, y))
    _, _, edge = tree_of(torch.cdist(x, x))
    for case in range(3):
        points = x[case].tolist()
        whole = tree_length(points)
        assert float(edge[case].sum()) == pytest.approx(whole)
        for k in range(n_points):
            assert float(without[case, k]) == pytest.approx(tree_length(points[:k] + points[k + 1 :]))
        for k in range(6):
            larger = tree_length([*points, y[case, k].tolist()])
            assert float(added[case, k]) == pytest.approx(2 * whole - larger)


def test_trees_leave_the_distances_as_they_were():
    distance = torch.cdist(normal(2, 6, 2, seed=1), normal(2, 6, 2, seed=1))
    kept = distance.clone()
    tree_of(distance)
    lengths_without_each(distance)
    lengths_after_insertion(distance, distance)
    assert torch.equal(distance, kept)


def test_points_of_a_pool_and_others_are_told_apart_one_by_one():
    pool, others = normal(2, 7, 2, seed=3), normal(2, 2, 2, seed=4)
    mixed = torch.cat([others, pool[:, 2:4]], 1)
    found = lengths_of_others(mixed, pool)
    without = lengths_without_each(torch.cdist(pool, pool))
    torch.testing.assert_close(found[:, 2:], without[:, 2:4])
    torch.testing.assert_close(found[:, :2], lengths_of_others(others, pool))


def test_mid_ranks_count_points_below_and_half_of_those_level():
    pool = normal(5, 8, 3, seed=5).mul(2).round()
    below = (pool[:, None] < pool[:, :, None]).sum(2)
    at = (pool[:, None] == pool[:, :, None]).sum(2)
    expected = (below + (at + 1) / 2).movedim(-1, 0).double()
    ensemble = Ensemble(pool)
    torch.testing.assert_close(mid_ranks(pool, ensemble), expected)  # all of them at once
    torch.testing.assert_close(mid_ranks(pool.clone(), ensemble), expected)  # one by one
    equal = Ensemble(pool, torch.full((5, 8), 3.0))
    torch.testing.assert_close(mid_ranks(pool, equal), expected)
    twice = Ensemble(pool[:, :4], torch.tensor([2.0, 1.0, 1.0, 0.0]).expand(5, -1))
    by_hand = Ensemble(torch.cat([pool[:, :1], pool[:, :3]], 1))
    torch.testing.assert_close(mid_ranks(pool, twice), mid_ranks(pool.clone(), by_hand))


def test_weights_of_a_reference_count_in_distances():
    pool, points = normal(4, 3, 2, seed=6), normal(4, 5, 2, seed=7)
    doubled = torch.cat([pool, pool[:, :1]], 1)
    weighted = Ensemble(pool, torch.tensor([2.0, 1.0, 1.0]).expand(4, -1))
    for prerank in (EnergyScore(), Mahalanobis()):
        torch.testing.assert_close(prerank.given(weighted)(points), prerank.given(Ensemble(doubled))(points))


def test_distances_are_the_same_where_a_gradient_is_asked_for():
    pool = Ensemble(normal(3, 6, 2, seed=5), uniform(3, 6, seed=6) + 0.1)
    points = normal(3, 4, 2, seed=7)
    for some in (pool, Ensemble(pool.members)):
        score = EnergyScore().given(some)
        torch.testing.assert_close(score(points.clone().requires_grad_()).detach(), score(points))


def test_exceedance_is_the_share_of_targets_above_zero_unless_told_otherwise():
    points = torch.tensor([[[-1.0, 0.5, 2.0], [0.0, 0.2, 0.9]]])
    assert Exceedance().given(Ensemble(points))(points).flatten().tolist() == pytest.approx([2 / 3, 2 / 3])


def test_a_tree_of_two_draws_of_a_law_is_not_one_of_a_single_member():
    law = MultivariateNormal(torch.zeros(3, 2), torch.eye(2))
    assert "one member" not in SpanningTree(n_reference=2).given(law).note
    assert "one member is too few" in SpanningTree().given(Ensemble(normal(3, 2, 2, seed=1))).note


def test_a_lag_beyond_a_grid_is_named_by_both_directions():
    with pytest.raises(ValueError, match=r"\(2 x 3\) are at lag \(0, 5\)"):
        Variogram(lags=((0, 5),), shape=(2, 3)).given(Ensemble(normal(2, 4, 6, seed=3)))
    with pytest.raises(ValueError, match=r"are at lag 9;"):
        Variogram(lags=(9,)).given(Ensemble(normal(2, 4, 6, seed=3)))


def test_for_two_targets_on_a_line_lags_are_the_papers():
    y, x = members()
    points = torch.cat([y[:, None], x], 1)
    for lag in (1, 2, 3):
        expected = Dependency(lag).given(Ensemble(points))(points)
        found = Variogram(lags=lag).given(Ensemble(points))(points)
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0.0)
    both = Variogram(lags=(1, 2)).given(Ensemble(points))(points)
    one, two = (Dependency(lag).given(Ensemble(points))(points) for lag in (1, 2))
    torch.testing.assert_close(both, one + two)


def test_a_lag_and_its_opposite_are_the_same_and_weights_need_no_symmetry():
    field = normal(3, 5, 12, seed=8)
    forward, back = (Variogram(lags=(lag,), shape=(3, 4)).given(Ensemble(field))(field) for lag in ((1, -2), (-1, 2)))
    torch.testing.assert_close(forward, back)
    weights = uniform(12, 12, seed=9)
    whole, upper = (
        Variogram(weights=w).given(Ensemble(field))(field) for w in (weights, (weights.triu(1) + weights.tril(-1).mT))
    )
    torch.testing.assert_close(whole, upper)


def test_a_field_that_is_the_same_along_rows_and_columns_is_isotropic():
    row = normal(4, seed=10)
    symmetric = (row[:, None] + row).reshape(1, 1, 16)
    constant = torch.ones(1, 1, 16, dtype=torch.float64)
    stretched = row.expand(4, 4).reshape(1, 1, 16)
    projection = Isotropy((4, 4), lags=(1, 2)).given(Ensemble(symmetric))
    assert projection(symmetric).abs().item() < 1e-12
    assert projection(constant).item() == 0.0
    assert projection(stretched).item() < -1.0


def test_mahalanobis_distances_do_not_change_with_the_units_and_axes_of_the_targets():
    points = normal(6, 12, 3, seed=11)
    turned = points @ normal(3, 3, seed=12) * 50.0 + 7.0
    torch.testing.assert_close(
        Mahalanobis().given(Ensemble(turned))(turned),
        Mahalanobis().given(Ensemble(points))(points),
        rtol=1e-6,
        atol=1e-8,
    )


def test_full_shrinkage_leaves_only_the_variances():
    points = normal(6, 12, 3, seed=13)
    centred = points - points.mean(1, keepdim=True)
    expected = (centred.square() / centred.square().mean(1, keepdim=True)).sum(-1, keepdim=True)
    torch.testing.assert_close(Mahalanobis(shrinkage=1.0).given(Ensemble(points))(points), expected)


def test_a_target_without_variance_adds_nothing_to_mahalanobis():
    points = normal(6, 12, 2, seed=14)
    with_constant = torch.cat([points, torch.full((6, 12, 1), 5.0)], -1)
    torch.testing.assert_close(
        Mahalanobis().given(Ensemble(with_constant))(with_constant), Mahalanobis().given(Ensemble(points))(points)
    )


def test_directions_depend_on_their_seed_and_nothing_else():
    law, ensemble = random_mixture(5, n_targets=4), Ensemble(normal(9, 3, 4))
    assert torch.equal(Sliced(3).given(law).directions, Sliced(3).given(ensemble).directions)
    assert not torch.equal(Sliced(3, seed=1).given(law).directions, Sliced(3).given(law).directions)
    pit = projected_pit(normal(5, 4), law, Sliced(3))
    assert pit.method == "closed form"


# -- size and sight


@pytest.mark.parametrize("prerank", FIELD, ids=lambda p: p.name)
@pytest.mark.parametrize("data", ["continuous", "counts"])
def test_ranks_of_exchangeable_points_are_uniform(prerank, data):
    """All ranks of all points of a case are those from 0 to M, ties shared: whichever is the observation, exactly."""
    x = normal(30, 8, 4, seed=15)
    x = x if data == "continuous" else x.abs().mul(1.5).floor()
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), prerank, exchangeable=True)
    lower, upper = pit.points.bounds()
    levels = torch.arange(1, 8) / 8
    share = ((levels - lower[..., None]) / (upper - lower)[..., None]).clamp(0, 1).mean(1)
    torch.testing.assert_close(share, levels.double().expand_as(share))


@pytest.mark.parametrize("prerank", FIELD, ids=lambda p: p.name)
def test_a_law_is_ranked_among_draws_with_a_reference_of_its_own(prerank):
    law = MultivariateNormal(torch.zeros(150, 4), torch.eye(4))
    y = normal(150, 4, seed=16, dtype=torch.float32)
    true = pce_test(projected_pit(y, law, prerank, n_draws=20, exchangeable=True))
    assert float(true.p_value.min()) > 1e-3
    narrow = MultivariateNormal(torch.full((150, 4), 0.4), 0.25 * torch.eye(4))
    wrong = pce_test(projected_pit(y, narrow, prerank, n_draws=20, exchangeable=True))
    blind = isinstance(prerank, Variogram | Isotropy)
    assert (float(wrong.p_value.min()) < 0.01) != blind


PLACE = torch.arange(4, dtype=torch.float64)
WRONG = {
    "biased": lambda x: x + 0.6,
    "too narrow": lambda x: 0.55 * x,
    "wrong correlation": lambda x: x @ torch.linalg.cholesky(0.8 ** (PLACE[:, None] - PLACE).abs()).mT,
}
SEES = {
    "biased": ["average rank", "maximum", "minimum", "exceedance", "sliced"],
    "too narrow": ["band depth", "spanning tree", "energy score", "Mahalanobis", "range", "reference distance"],
    "wrong correlation": ["average rank", "variogram", "Mahalanobis", "maximum", "range"],
}
BLIND = {"biased": ["range", "variogram", "isotropy"], "too narrow": ["variogram", "isotropy"], "wrong correlation": []}


@pytest.mark.parametrize("error", list(WRONG))
def test_each_error_is_seen_by_those_that_say_so_and_not_by_the_blind(error):
    y, x = members(400, 15, seed=17)
    pit = projected_pit(y, Ensemble(WRONG[error](x)), FIELD, exchangeable=True)
    found = dict(zip(pit.names and [p.prerank for p in pit.parts], pce_test(pit).p_value.tolist(), strict=True))
    for name in SEES[error]:
        assert found[name] < 0.01, (name, found)
    for name in BLIND[error]:
        assert found[name] > 1e-3, (name, found)


def test_isotropy_sees_a_field_stretched_the_wrong_way():
    y, x = members(300, 15, n_targets=16, seed=18)
    smooth = x.unflatten(-1, (4, 4)).cumsum(-1).flatten(-2)  # along rows alone
    result = check(y, smooth, Isotropy((4, 4)), scale="none")
    assert result.rejected
    assert "biased low" in result.table["reading"].iloc[0]


# -- outcomes at the edges


@pytest.mark.parametrize("prerank", FIELD, ids=lambda p: p.name)
def test_one_member_and_equal_points_have_ranks(prerank):
    y, x = members(30, 1, seed=19)
    pit = projected_pit(y, Ensemble(x), prerank, exchangeable=True)
    assert ((pit.upper - pit.lower) >= 0.5 - 1e-9).all()
    same = projected_pit(y, Ensemble(y[:, None].expand(-1, 5, -1)), prerank, exchangeable=True)
    assert (same.lower == 0).all()
    assert (same.upper == 1).all()
    assert float(pce_test(same).p_value.min()) == 1.0


@pytest.mark.parametrize(
    ("prerank", "n_members"),
    [(BandDepth(), 1), (SpanningTree(), 1), (EnergyScore(), 1), (Mahalanobis(), 1), (Mahalanobis(), 4)],
    ids=str,
)
def test_too_few_members_tie_and_the_note_says_what_to_use(prerank, n_members):
    y, x = members(30, n_members, seed=20)
    axes = ("case", "member", "target")
    result = check(y, x, prerank, axes=axes)
    assert (result.pit.upper - result.pit.lower == 1).all()
    assert "nearly blind" in result.table["reading"].iloc[0]
    if not isinstance(prerank, EnergyScore):
        assert any("use " in note for note in result.notes), result.notes
    assert (check(y, x, Mahalanobis(shrinkage=0.3), axes=axes).pit.tied == 0).all() or n_members == 1


@pytest.mark.parametrize(
    ("prerank", "n_targets", "words"),
    [
        (Range(), 1, r"constant \(zero\) for D=1 target.*use Marginal\(\)"),
        (Sliced(), 1, "one direction for D=1 target"),
        (Variogram(), 1, r"one target has no pairs; use Marginal\(\)"),
        (Variogram(), 2, r"constant for D=2 targets.*use other weights.*Contrast\(\)"),
        (Variogram(weights=torch.ones(4, 4)), 4, "constant for D=4 targets"),
        (Variogram(weights=torch.ones(3, 3)), 4, "weights of 3 targets, got 4 targets"),
        (Variogram(lags=4), 4, "no two of 4 targets .* at lag 4"),
        (Variogram(lags=0), 4, "at lag 0"),
        (Variogram(lags=((2, 0),), shape=(2, 2)), 4, r"no two of 4 targets \(2 x 2\) are at lag \(2, 0\)"),
        (Variogram(shape=(2, 3)), 4, r"shape=\(2, 3\) is no grid of 4 targets"),
        (Isotropy((2, 3)), 4, "is no grid of 4 targets"),
        (Isotropy((1, 4)), 4, r"one row has no isotropy, use Variogram\(\)"),
        (Isotropy((2, 2), lags=(2,)), 4, "from 1 to 1"),
        (Exceedance((0.0, 1.0)), 4, "2 thresholds for 4 targets"),
        (Exceedance(float("nan")), 4, "a threshold is a finite number"),
        (ReferenceDistance(torch.zeros(3)), 4, "reference points of 3 numbers for 4 targets"),
        (ReferenceDistance(torch.zeros(7, 4)), 4, "reference points for 7 cases, got 20 cases"),
        (Custom(lambda y, x: y[..., 0] * x, per_case=[1.0, 2.0]), 4, "per_case of 2 cases, got points of 20"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_has_no_meaning_is_refused_with_the_alternatives(prerank, n_targets, words):
    y, x = members(20, 5, n_targets)
    with pytest.raises(ValueError, match=words):
        projected_pit(y, Ensemble(x), prerank)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Variogram(exponent=0), "a power of differences is positive"),
        (lambda: Isotropy((2, 2), exponent=-1), "a power of differences is positive"),
        (lambda: Variogram(lags=1, weights=torch.ones(3, 3)), "give one of them"),
        (lambda: Variogram(weights=torch.ones(3)), r"one for each pair is \(targets, targets\)"),
        (lambda: Variogram(weights=-torch.ones(3, 3)), "finite and non-negative"),
        (lambda: Variogram(weights=torch.eye(3)), "all weights of pairs are zero"),
        (lambda: Mahalanobis(shrinkage=1.5), "between 0 and 1"),
        (lambda: Sliced(0), "at least one direction"),
        (lambda: ReferenceDistance(norm=3), "1 or 2"),
        (lambda: ReferenceDistance(torch.zeros(2, 2, 2)), r"\(targets,\) or \(cases, targets\)"),
        (lambda: Custom(lambda y, x: y, per_case=torch.zeros(2, 2, 2)), r"\(cases,\) or \(cases, features\)"),
    ],
)
def test_settings_without_a_meaning_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_tree_has_no_weights():
    y, x = members()
    reference = Ensemble(x, torch.ones(40, 9))
    with pytest.raises(ValueError, match=r"a tree has no weights.*EnergyScore\(\)"):
        projected_pit(y, Ensemble(x, reference=reference), SpanningTree())


# -- training


@pytest.mark.parametrize("prerank", [*TRAINABLE, Minimum()], ids=lambda p: p.name)
def test_a_step_down_the_penalty_lowers_it(prerank):
    torch.manual_seed(0)
    y = normal(300, 4, seed=21, dtype=torch.float32)
    scale = torch.full((4,), 0.3, requires_grad=True)
    loc = torch.full((4,), 0.3, requires_grad=True)
    mixing = torch.tensor(0.7, requires_grad=True)
    penalty = PreRankPenalty(prerank, n_draws=40)

    def loss():
        factor = torch.diag_embed(scale) + torch.tril(mixing.expand(4, 4), -1) * scale[:, None]
        law = MultivariateNormal(loc.expand(300, 4), scale_tril=factor.expand(300, 4, 4))
        return penalty(y, law)

    before = loss()
    gradients = torch.autograd.grad(before, [scale, loc, mixing])
    size = sum(float(g.square().sum()) for g in gradients) ** 0.5
    assert size > 1e-4
    with torch.no_grad():
        for parameter, gradient in zip((scale, loc, mixing), gradients, strict=True):
            parameter -= 0.05 * gradient / size
    assert loss() < before


@pytest.mark.parametrize(
    "prerank",
    [
        *UNTRAINABLE,
        ReferenceDistance(torch.zeros(300, 4)),
        Custom(lambda y, x: y[..., 0], per_case=torch.zeros(300)),
    ],
    ids=lambda p: p.name,
)
def test_what_cannot_be_trained_with_is_refused(prerank):
    with pytest.raises(ValueError, match=f"{prerank.name} cannot be trained with.*check with it"):
        PreRankPenalty((Location(), prerank))


@pytest.mark.parametrize(
    "prerank", [Variogram(), Isotropy((2, 2)), Range(), EnergyScore(), ReferenceDistance()], ids=str
)
def test_gradients_are_finite_where_all_targets_are_equal(prerank):
    points = torch.ones(1, 3, 4, dtype=torch.float64)
    points[0, 1] = torch.tensor([1.0, 2.0, 0.0, 4.0])
    points.requires_grad_()
    (gradient,) = torch.autograd.grad(prerank.given(Ensemble(points.detach()))(points).sum(), points)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("prerank", FIELD, ids=lambda p: p.name)
def test_what_a_prerank_says_of_training_is_so(prerank):
    said = " ".join(type(prerank).__doc__.split())
    assert ("It can be trained with" in said) == getattr(prerank, "trainable", True)
    assert ("othing can be trained with it" in said or "no gradient to train with" in said) != (
        "It can be trained with" in said
    )


# -- something of each case, and units


def per_case(n):
    return [
        ReferenceDistance(normal(n, 3, seed=22)),
        Custom(lambda y, x: (y * x).sum(-1), name="weighted sum", per_case=normal(n, 3, seed=23)),
        Custom(
            lambda y, k: np.where(np.asarray(k) % 2 == 0, np.max(y, axis=-1), np.min(y, axis=-1)),
            name="numpy",
            per_case=np.arange(n),
        ),
        Exceedance((0.2, 0.1, 0.0)),
    ]


def test_what_belongs_to_a_case_follows_it_through_missing_values_and_groups():
    y, x = members(60, 9, 3, seed=24)
    y[7, 0], x[11, 2, 1], x[20, :, 0] = torch.nan, torch.nan, torch.nan
    kept = torch.tensor([n for n in range(60) if n not in (7, 20)])
    result = check(y, x, per_case(60), scale="none")
    whole = x[kept].clone()
    whole[kept.tolist().index(11), 2] = 1e9  # any member: that case is left out of the comparison
    cut = [item.select(kept) if hasattr(item, "select") else item for item in per_case(60)]
    alone = projected_pit(y[kept], Ensemble(whole), cut)
    others = torch.tensor([n != 11 for n in kept.tolist()])
    torch.testing.assert_close(result.pit.lower[others], alone.lower[others])
    grouped = check(y, x, per_case(60), scale="none", by=np.arange(60) % 2)
    odd = grouped.checks[1].pit.lower
    torch.testing.assert_close(odd, result.pit.lower[kept % 2 == 1])


def test_thresholds_and_points_are_brought_into_the_units_of_the_targets():
    y, x = members(60, 9, 3, seed=25)
    unit = torch.tensor([1.0, 100.0, 0.01], dtype=torch.float64)
    chosen = [Exceedance((0.2, 20.0, 0.001)), ReferenceDistance(0.5 * unit)]
    scaled = check(y * unit, x * unit, chosen)
    assert any("divided by their pooled spread" in note for note in scaled.notes)
    spread = torch.cat([(x * unit).flatten(0, 1), y * unit]).std(0, correction=0)
    by_hand = [
        Exceedance(tuple((torch.tensor([0.2, 20.0, 0.001]) / spread).tolist())),
        ReferenceDistance(0.5 * unit / spread),
    ]
    expected = projected_pit(y * unit / spread, Ensemble(x * unit / spread), by_hand)
    torch.testing.assert_close(scaled.pit.lower, expected.lower)


def test_members_read_in_chunks_have_the_results_of_those_in_memory():
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    y, x = members(60, 9, 3, seed=26)
    lazy = xr.DataArray(x.numpy(), dims=("case", "member", "target")).chunk({"case": 13})
    chosen = [*per_case(60), ReferenceDistance(name="at random"), SpanningTree(), Mahalanobis()]
    chunked, whole = check(y.numpy(), lazy, chosen), check(y, x, chosen)
    np.testing.assert_allclose(chunked.table["PCE"], whole.table["PCE"], atol=1e-12)
    np.testing.assert_allclose(chunked.table["p-value"], whole.table["p-value"], atol=1e-12)


def test_random_reference_points_depend_on_seed_and_case_alone():
    y, x = members(30, seed=27)
    ids = torch.arange(30) + 5
    first = projected_pit(y, Ensemble(x), ReferenceDistance(), case_ids=ids)
    some = torch.tensor([4, 2, 17])
    part = projected_pit(y[some], Ensemble(x[some]), ReferenceDistance(), case_ids=ids[some])
    assert torch.equal(part.lower, first.lower[some])
    other = projected_pit(y, Ensemble(x), ReferenceDistance(), case_ids=ids, seed=1)
    assert not torch.equal(other.lower, first.lower)


# -- names, words, measures


def test_names_of_the_command_line_make_the_preranks_they_say():
    for prerank in field_preranks(5):
        assert type(prerank_named(prerank.name.upper(), 5)) is type(prerank)
    assert prerank_named("dependency=2", 5) == Dependency(2)
    assert prerank_named("isotropy=2x3", 6) == Isotropy((2, 3))
    assert prerank_named("variogram=2x3", 6).shape == (2, 3)
    assert [item.name for item in field_preranks(1)] == [
        *("average rank", "band depth", "spanning tree", "energy score", "Mahalanobis", "reference distance"),
        *("maximum", "minimum"),
    ]
    with pytest.raises(ValueError, match="no pre-rank 'variogram' for this many targets"):
        prerank_named("variogram", 2)
    with pytest.raises(ValueError, match="exceedance=THRESHOLD takes another value than 'x'"):
        prerank_named("exceedance=x", 2)


def test_every_prerank_has_a_sentence_for_every_shape():
    assert set(FIELD_SENTENCES) == {type(prerank).__name__ for prerank in FIELD}
    for sentences in FIELD_SENTENCES.values():
        assert set(sentences) == set(SHAPES) - {"flat"}


def test_an_outlying_observation_is_said_to_be_outlying_by_distances_and_by_depths():
    y, x = members(300, 15, seed=28)
    result = check(y, 0.6 * x, [EnergyScore(), BandDepth(), SpanningTree(), Mahalanobis()])
    assert [("at the edge of the scenarios" in said) for said in result.sentences.values()] == [True] * 4


def test_all_are_probed_without_a_forecast():
    for prerank in FIELD:
        needs = needs_of(prerank, 4)
        assert needs.linear == isinstance(prerank, Sliced)
        assert not needs.density


@pytest.mark.parametrize("case", ["case_gauss_d2", "case_ties_d5", "case_long_d2"])
@pytest.mark.parametrize("name", ["mv", "avg", "mst", "bd"])
def test_reliability_index_and_entropy_are_those_of_eppverification(golden, case, name):
    arrays = golden(f"{case}.npz")
    n_points = arrays["ens"].shape[1] + 1
    ranks = torch.from_numpy(np.asarray(arrays[f"epp_rank_{name}"], dtype=float))
    pit = (ranks[:, None] - 0.5) / n_points
    for n_bins, index, entropy in np.asarray(arrays[f"epp_mri_ment_{name}"], dtype=float):
        if n_bins < 2:
            continue
        found = histogram_measures(pit, int(n_bins))
        assert float(found.reliability_index) == pytest.approx(index, abs=1e-9)
        if np.isfinite(entropy):
            assert float(found.entropy) == pytest.approx(entropy, abs=1e-9)


def test_an_interval_counts_in_every_bin_that_it_covers():
    y = torch.zeros(4, 2, dtype=torch.float64)
    pit = projected_pit(y, Ensemble(y[:, None].expand(-1, 4, -1)), Location())
    found = histogram_measures(pit, 5)
    assert float(found.reliability_index) == pytest.approx(0.0, abs=1e-12)
    assert float(found.entropy) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="two bins or more"):
        histogram_measures(pit, 1)


def test_a_check_has_both_measures_if_asked():
    result = check_pits(np.column_stack([np.linspace(0.01, 0.99, 200), np.full(200, 0.42)]))
    plain, more = result.to_frame(), result.to_frame(n_bins=10)
    assert list(more.columns) == [*plain.columns, "reliability index", "entropy"]
    np.testing.assert_allclose(more["reliability index"], [0.0, 1.8], atol=0.021)
    np.testing.assert_allclose(more["entropy"], [1.0, 0.0], atol=0.01)
    weights = np.r_[np.ones(100), np.zeros(100)]
    pit = ProjectedPIT.of_values(torch.linspace(0.0025, 0.9975, 200)[:, None])
    halved = histogram_measures(pit, 2, torch.from_numpy(weights))
    assert float(halved.reliability_index) == pytest.approx(1.0)


# -- what stands in results


def test_draws_of_a_law_are_as_many_as_said():
    law = MultivariateNormal(torch.zeros(2, 3), torch.eye(3))
    notes = {
        EnergyScore(): "distances to 1000 points",
        Mahalanobis(): "mean and covariance of 1000 points",
        AverageRank(): "ranks among 1000 points",
        BandDepth(): "depth among 1000 points",
        SpanningTree(): "tree of 100 points",
        EnergyScore(7): "distances to 7 points",
        Mahalanobis(n_reference=7): "mean and covariance of 7 points",
        AverageRank(7): "ranks among 7 points",
        BandDepth(2): "depth among 2 points",
        ReferenceDistance(): "from a random point for each case",
        ReferenceDistance(torch.zeros(3)): "",
    }
    assert [prerank.given(law).note for prerank in notes] == list(notes.values())
    assert Sliced().given(law).names == tuple(f"direction {k}" for k in range(1, 6))
    assert torch.equal(Sliced(seed=0).given(law).directions, Sliced().given(law).directions)
    assert [prerank.given(law).names for prerank in (Maximum(), Minimum(), Range(), EnergyScore(), SpanningTree())] == [
        *(("maximum",), ("minimum",), ("range",), ("energy score",), ("length without it",))
    ]
    assert Variogram().given(law).names == ("variogram of 3 pairs",)
    assert Exceedance().given(law).names == ("share above",)


def test_directions_are_of_length_one_and_in_the_type_of_the_forecast():
    for dtype in (torch.float32, torch.float64):
        directions = Sliced(40).given(Ensemble(torch.zeros(1, 5, 3, dtype=dtype))).directions
        assert directions.dtype == dtype
        torch.testing.assert_close(directions.square().sum(-2), torch.ones(1, 40, dtype=dtype))
        assert directions.mean().abs() < 0.2  # both signs: a standard error is 0.05


def test_random_reference_points_fill_the_box_around_the_points_of_their_case():
    pool = normal(500, 6, 2, seed=30) + torch.tensor([10.0, -3.0])
    low, high = pool.amin(1), pool.amax(1)
    distance = ReferenceDistance(norm=1).given(Ensemble(pool))
    corners = [distance(corner[:, None])[:, 0, 0] for corner in (low, high)]
    # from two opposite corners of a box the distances, of norm 1, to a point inside add up to that of the corners
    torch.testing.assert_close(corners[0] + corners[1], (high - low).sum(-1))
    share = corners[0] / (high - low).sum(-1)
    assert share.min() > 0
    assert share.max() < 1
    assert abs(float(share.mean()) - 0.5) < 0.05
    assert float(share.std()) > 0.15


def test_the_box_of_a_law_is_that_of_100_draws():
    law = MultivariateNormal(torch.zeros(50, 1), torch.eye(1))
    asked = []

    class Recording(DistributionView):
        def draws(self, name, n_draws):
            asked.append(n_draws)
            return super().draws(name, n_draws)

    ReferenceDistance().given(Recording(law))
    assert asked == [100]


def test_units_and_cases_change_only_what_was_given():
    nowhere, one = ReferenceDistance(), ReferenceDistance(torch.tensor([2.0, 6.0]))
    divisor, each = torch.tensor([2.0, 3.0]), ReferenceDistance(torch.arange(6.0).reshape(3, 2))
    assert nowhere.in_units(divisor) is nowhere
    assert one.in_units(divisor).points.tolist() == [1.0, 2.0]
    assert nowhere.select(slice(0, 1)) is nowhere
    assert one.select(slice(0, 1)) is one
    assert each.select(torch.tensor([2, 0])).points.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert (nowhere.trainable, one.trainable, each.trainable) == (True, True, False)
    assert Custom(math.dist).select(slice(0, 1)) == Custom(math.dist)
    assert (Custom(math.dist).trainable, Custom(math.dist, per_case=[1.0]).trainable) == (True, False)
    assert Exceedance(6.0).in_units(divisor).threshold == (3.0, 2.0)


def test_distances_are_euclidean_unless_told_otherwise():
    points = torch.tensor([[[3.0, -4.0]]])
    zero = torch.zeros(2)
    assert ReferenceDistance(zero).given(Ensemble(points))(points).item() == 5.0
    assert ReferenceDistance(zero, norm=1).given(Ensemble(points))(points).item() == 7.0


def test_the_constant_of_an_energy_score_comes_from_a_hundred_draws():
    pool, point = normal(2, 150, 3, seed=31), normal(2, 4, 3, seed=32)
    found = EnergyScore().given(Ensemble(pool))(point)[..., 0]
    among = torch.cdist(pool[:, :100], pool[:, :100]).mean((1, 2))
    torch.testing.assert_close(found, torch.cdist(point, pool).mean(-1) - 0.5 * among[:, None])
    pooled = EnergyScore().given(Ensemble(pool))(pool)[..., 0]  # where it costs nothing, from all
    distance = torch.cdist(pool, pool)
    torch.testing.assert_close(pooled, distance.mean(-1) - 0.5 * distance.mean((1, 2))[:, None])
    weights = uniform(2, 150, seed=33) + 0.1
    weighted = EnergyScore().given(Ensemble(pool, weights))(point)[..., 0]
    share, some = weights / weights.sum(-1, keepdim=True), weights[:, :100] / weights[:, :100].sum(-1, keepdim=True)
    constant = torch.einsum("nr,ns,nrs->n", some, some, torch.cdist(pool[:, :100], pool[:, :100]))
    expected = torch.einsum("npr,nr->np", torch.cdist(point, pool), share) - 0.5 * constant[:, None]
    torch.testing.assert_close(weighted, expected)


@pytest.mark.parametrize(("n_members", "told"), [(3, True), (4, True), (5, False)])
def test_mahalanobis_says_from_how_many_members_on_it_sees(n_members, told):
    y, x = members(20, n_members, 4, seed=34)
    pit = projected_pit(y, Ensemble(x), Mahalanobis(), exchangeable=True)
    assert ("4 targets need 5 members" in Mahalanobis().given(Ensemble(torch.cat([y[:, None], x], 1))).note) == told
    assert bool((pit.upper - pit.lower == 1).all()) == told
    assert "need" not in Mahalanobis(shrinkage=0.1).given(Ensemble(torch.cat([y[:, None], x], 1))).note
    law = MultivariateNormal(torch.zeros(2, 4), torch.eye(4))
    assert "need" not in Mahalanobis(n_reference=4).given(law).note


def test_shrinkage_multiplies_correlations():
    points = normal(4, 30, 3, seed=35)
    centred = points - points.mean(1, keepdim=True)
    covariance = centred.mT @ centred / 30
    shrunk = 0.7 * covariance + 0.3 * torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
    expected = torch.einsum("npi,nij,npj->np", centred, torch.linalg.inv(shrunk), centred)
    torch.testing.assert_close(Mahalanobis(shrinkage=0.3).given(Ensemble(points))(points)[..., 0], expected)
    for edge in (0.0, 1.0):
        assert Mahalanobis(shrinkage=edge).shrinkage == edge
    with pytest.raises(ValueError, match="between 0 and 1"):
        Mahalanobis(shrinkage=-0.1)


def test_variograms_are_sums_over_pairs_with_any_exponent():
    points = normal(2, 3, 5, seed=36)
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs().double()
    apart = (points[..., :, None] - points[..., None, :]).abs()
    for exponent in (0.5, 1.0, 3.0):
        weights = (1 / distance).fill_diagonal_(0.0)
        weights = weights / weights.sum()
        expected = -(0.5 * weights * 2 * apart**exponent).sum((-2, -1)) / 2
        found = Variogram(exponent=exponent, standardised=False).given(Ensemble(points))(points)[..., 0]
        torch.testing.assert_close(found, expected)
        variance = points.var(-1, correction=0)
        standardised = Variogram(exponent=exponent).given(Ensemble(points))(points)[..., 0]
        torch.testing.assert_close(standardised, expected / variance)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_isotropy_is_its_formula(exponent):
    rows, columns = 4, 3
    points = normal(2, 3, rows * columns, seed=37)
    field = points.unflatten(-1, (rows, columns))
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for lag in (1, 2):
        along = (field[..., lag:] - field[..., :-lag]).abs().pow(exponent).flatten(-2)
        across = (field[..., lag:, :] - field[..., :-lag, :]).abs().pow(exponent).flatten(-2)
        g1, g2 = 0.5 * along.mean(-1), 0.5 * across.mean(-1)
        expected -= (g1 - g2) ** 2 / (2 * g1**2 / along.shape[-1] + 2 * g2**2 / across.shape[-1])
    found = Isotropy((rows, columns), lags=(1, 2), exponent=exponent).given(Ensemble(points))(points)[..., 0]
    torch.testing.assert_close(found, expected)
    if exponent == 2.0:
        default = Isotropy((rows, columns)).given(Ensemble(points))(points)
        torch.testing.assert_close(default, Isotropy((rows, columns), (1,), 2.0).given(Ensemble(points))(points))
        assert not torch.equal(default[..., 0], found)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Isotropy((4, 3), lags=()), "from 1 to 2"),
        (lambda: Isotropy((4, 3), lags=(0,)), "from 1 to 2"),
        (lambda: Isotropy((4, 3), lags=(3,)), "from 1 to 2$"),
        (lambda: Isotropy((12, 1)), "one row has no isotropy"),
        (lambda: Isotropy((12,)), "is no grid of 12 targets"),
        (lambda: Isotropy((2, 3, 2)), "is no grid of 12 targets"),
        (lambda: Variogram(lags=-1, shape=(3, 4), weights=None, exponent=math.inf), "positive and finite"),
        (lambda: Variogram(exponent=float("nan")), "positive and finite"),
        (lambda: Variogram(weights=torch.full((12, 12), torch.inf)), "finite and non-negative"),
        (lambda: Variogram(weights=torch.ones(12, 11)), r"one for each pair is \(targets, targets\)"),
        (lambda: Exceedance((0.0,) * 11 + (math.inf,)), "a threshold is a finite number"),
    ],
)
def test_grids_lags_and_powers_without_a_meaning_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make().given(Ensemble(torch.zeros(1, 3, 12)))


def test_only_equal_weights_of_all_pairs_are_the_variance():
    points = normal(1, 3, 4, seed=38)
    equal = torch.ones(4, 4)
    nearly = equal.clone()
    nearly[0, 1] = 1.01
    for prerank in (
        Variogram(weights=nearly),
        Variogram(weights=equal, exponent=1.0),
        Variogram(weights=equal, standardised=False),
        Variogram(weights=equal.tril(-2)),
    ):
        assert prerank.given(Ensemble(points))(points).isfinite().all()
    with pytest.raises(ValueError, match=r"or Scale\(\)$"):
        Variogram(weights=equal.tril().fill_diagonal_(5.0)).given(Ensemble(points))
    with pytest.raises(ValueError, match=r"or Contrast\(\)$"):
        Variogram(weights=torch.ones(2, 2)).given(Ensemble(points[..., :2]))


def test_a_vector_of_equal_targets_is_perfectly_smooth():
    points = torch.tensor([[[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]]])
    found = Variogram().given(Ensemble(points))(points)[0, :, 0]
    assert found[0] == 0.0
    assert found[1] < 0.0


@pytest.mark.parametrize("width", [2, 3])
def test_names_with_a_value_say_what_value_they_take(width):
    with pytest.raises(ValueError, match="there is no pre-rank 'nothing' for this many targets") as refused:
        prerank_named("nothing", width)
    said = str(refused.value)
    for words in (
        "dependency=LAG",
        "exceedance=THRESHOLD",
        "isotropy=ROWSxCOLUMNS",
        "variogram=ROWSxCOLUMNS",
        "marginal",
    ):
        assert words in said
    assert ("range," in said, "variogram," in said) == (True, width == 3)
    assert prerank_named(" Exceedance = -0.5 ", width) == Exceedance(-0.5)
    for text in ("isotropy=2y3", "isotropy=2x", "dependency=1.5", "variogram=x"):
        with pytest.raises(ValueError, match="takes another value than"):
            prerank_named(text, width)
    with pytest.raises(ValueError, match="there is no pre-rank 'maximum=2'"):
        prerank_named("maximum=2", width)
    with pytest.raises(ValueError, match="there is no pre-rank 'exceedance'"):
        prerank_named("exceedance", width)


def test_ten_bins_measure_a_histogram_unless_told_otherwise():
    pit = torch.tensor([0.05, 0.05, 0.15, 0.95])[:, None]
    index, entropy = (float(found) for found in histogram_measures(pit))
    assert index == pytest.approx(0.4 + 0.15 + 0.15 + 7 * 0.1)
    assert entropy == pytest.approx((0.5 * math.log(2) + 2 * 0.25 * math.log(4)) / math.log(10))
    two = histogram_measures(pit, 2)
    assert float(two.reliability_index) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="n_bins"):
        histogram_measures(pit, 0)


def test_ranks_with_uneven_weights_sum_the_weights_below():
    pool = Ensemble(torch.tensor([[[0.0], [1.0], [1.0], [3.0]]]), torch.tensor([[1.0, 2.0, 3.0, 2.0]]))
    points = torch.tensor([[[-1.0], [0.0], [1.0], [2.0], [9.0]]])
    # sums below and through each point, of weights that sum to 4, their middle and a half
    expected = torch.tensor([0.5, 0.75, 2.25, 3.5, 4.5], dtype=torch.float64)
    torch.testing.assert_close(mid_ranks(points, pool)[0, 0], expected)


def test_weights_of_a_pool_count_for_its_own_points_too():
    pool = Ensemble(normal(3, 6, 2, seed=40), uniform(3, 6, seed=41) + 0.1)
    torch.testing.assert_close(mid_ranks(pool.members, pool), mid_ranks(pool.members.clone(), pool))


def test_a_penalty_takes_steps_with_a_function_of_the_users():
    penalty = PreRankPenalty(Custom(lambda y: y.amax(-1), name="highest"), n_draws=20)
    scale = torch.tensor(0.3, requires_grad=True)
    law = MultivariateNormal(torch.zeros(100, 3), scale_tril=(scale * torch.eye(3)).expand(100, 3, 3))
    (gradient,) = torch.autograd.grad(penalty(normal(100, 3, seed=39, dtype=torch.float32), law), scale)
    assert gradient < 0  # wider is better
