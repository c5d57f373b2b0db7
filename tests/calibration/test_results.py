"""What a result is: a value that cannot be changed, cut and joined without loss, and honest about what it knows."""

import dataclasses

import pytest
import torch
from torch.distributions import MultivariateNormal

from builders import normal, random_mixture, uniform
from prerank.calibration import (
    ClosedForm,
    EmpiricalRank,
    RandomisedRank,
    SmoothRank,
    pce_null,
    pce_test,
    projected_pit,
    reliability_curve,
)
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import HDR, PCA, Copula, Custom, Location, Marginal, Scale
from prerank.preranks.exchangeable_points import reference_subset
from prerank.preranks.projection import LinearProjection, PointwiseProjection


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LinearProjection(torch.eye(2)[None], ("a", "b")), "note"),
        (lambda: PointwiseProjection(torch.Tensor.square, ("a",)), "note"),
        (lambda: Intervals(torch.zeros(2, 1), torch.ones(2, 1)), "unit"),
        (lambda: ProjectedPIT.of_values(torch.ones(2, 1)), "pick"),
        (lambda: ProjectedPIT.of_values(torch.ones(2, 1)).parts[0], "note"),
        (lambda: pce_null(3), "mean"),
    ],
)
def test_results_cannot_be_changed_and_are_equal_only_to_themselves(make, field):
    value = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, None)
    other = dataclasses.replace(value)
    assert value == value
    assert value != other  # tensors have no single truth value, so contents are not compared
    assert len({value, other}) == 2


def test_ways_and_functions_of_points_are_values():
    for value in (Custom(abs, name="size"), RandomisedRank(), ClosedForm(), EmpiricalRank(), SmoothRank()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.name = "another"
        assert value == dataclasses.replace(value)
        assert len({value, dataclasses.replace(value)}) == 1


def test_numbers_from_elsewhere_keep_their_names_groups_and_order():
    z = uniform(4, 3, seed=3)
    one, several = ProjectedPIT.of_values(z[:, :1]), ProjectedPIT.of_values(z)
    assert (one.names, one.groups) == (("pit",), ("pit",))
    assert several.names == ("pit 1", "pit 2", "pit 3")
    assert several.groups == ("pit",) * 3
    assert several.exact
    assert several.method == "given"
    assert several.notes == {}
    assert several.case_ids.tolist() == [0, 1, 2, 3]
    assert several.tied.tolist() == [0.0] * 3
    single = ProjectedPIT.of_values(z.float())
    assert single.lower.dtype == torch.float32
    assert single.tied.dtype == single.parts[0].ties.dtype == torch.float64  # shares are counted in double precision
    named = ProjectedPIT.of_values(z, ["a", "b", "c"], ["x", "y", "x"])
    assert named.groups == ("x", "x", "y")
    assert named.names == ("a", "c", "b")
    assert torch.equal(named.lower, z[:, [0, 2, 1]])
    assert torch.equal(named.of("x").values, z[:, [0, 2]])
    models = ProjectedPIT.of_values(uniform(2, 5, 4, 3, seed=4), groups=["x", "y", "x"])
    assert models.lead == (2, 5)
    assert models.tied.shape == (2, 5, 3)
    assert models.n_cases == 4
    for bad in (torch.tensor(0.5), torch.rand(4)):
        with pytest.raises(ValueError, match=r"use pit\[:, None\]"):
            ProjectedPIT.of_values(bad)


def test_one_pair_of_ties_in_two_thousand_points_leaves_the_law_known_and_more_do_not():
    x = normal(200, 10, 1, seed=5)
    x[0, 3] = x[0, 4]
    for n_tied, known in ((1, True), (2, False)):
        x[:n_tied, 3] = x[:n_tied, 4]
        pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), exchangeable=True)
        assert bool(pit.parts[0].law_is_known) is known
        test = pce_test(pit, n_replicates=9)
        exact = pce_null(200, n_members=9).mean
        assert (float(test.projection_expected_pce[0]) == exact) is known


def test_weights_and_varying_numbers_of_members_leave_the_law_unknown():
    x = normal(6, 5, 1, seed=6)
    weighted = projected_pit(x[:, 0], Ensemble(x[:, 1:], torch.ones(6, 4).double()), Marginal())
    assert not weighted.parts[0].law_is_known.any()
    randomised = projected_pit(x[:, 0], Ensemble(x[:, 1:].round()), Marginal(), RandomisedRank())
    assert randomised.parts[0].law_is_known.all()  # numbers, uniform whatever ties
    tied = projected_pit(x[:, 0].round(), Ensemble(x[:, 1:].round()), Marginal(), EmpiricalRank())
    assert not tied.parts[0].law_is_known.any()


def test_observations_alone_are_the_first_points():
    x = normal(7, 6, 2, seed=7).round()
    for weights in (None, uniform(7, 5, seed=8)):
        pit = projected_pit(x[:, 0], Ensemble(x[:, 1:], weights), [Marginal(), Location()], exchangeable=True)
        for part in pit.parts:
            lower, upper = part.as_single_points().bounds()
            torch.testing.assert_close(lower[:, 0], part.points.bounds()[0][:, 0])
            torch.testing.assert_close(upper[:, 0], part.points.bounds()[1][:, 0])
            assert part.as_single_points().lower.is_floating_point() == (weights is not None)


def test_models_cases_and_sets_are_cut_with_everything_that_belongs_to_them():
    x, weights = normal(2, 9, 6, 2, seed=9).round(), uniform(2, 9, 5, seed=10)
    for own in (None, weights):
        pit = projected_pit(x[..., 0, :], Ensemble(x[..., 1:, :], own), [Marginal(), Location()], exchangeable=True)
        model = pit.model(1)
        assert model.lead == ()
        assert torch.equal(model.lower, pit.lower[1])
        assert torch.equal(model.points.upper, pit.points.upper[1])
        assert torch.equal(model.tied, pit.tied[1])
        assert own is None or torch.equal(model.pick, pit.pick[1])
        some = pit.select(torch.tensor([4, 1]))
        assert torch.equal(some.points.lower, pit.points.lower[:, [4, 1]])
        assert own is None or torch.equal(some.pick, pit.pick[:, [4, 1]])
        sets = model.in_sets(2)  # of nine cases, eight
        assert sets.lead == (2,)
        assert sets.n_cases == 4
        assert sets.case_ids.tolist() == [0, 1, 2, 3]
        assert torch.equal(sets.lower[1], model.lower[4:8])
        assert torch.equal(sets.points.upper[1], model.points.upper[4:8])
        assert torch.equal(sets.tied[1], model.tied)
        assert own is None or torch.equal(sets.pick[1], model.pick[4:8])
        of_all = pit.in_sets(2)  # of every model
        assert of_all.lead == (*pit.lead, 2)
        assert torch.equal(of_all.lower[1], sets.lower)
        assert torch.equal(of_all.points.upper[1], sets.points.upper)
        assert torch.equal(of_all.tied[1], sets.tied)
        assert own is None or torch.equal(of_all.pick[1], sets.pick)
    numbers = ProjectedPIT.of_values(uniform(3, 5, 2, seed=11))
    assert numbers.model(2).are_values
    assert torch.equal(numbers.model(2).lower, numbers.lower[2])
    uneven = Intervals(torch.zeros(2, 1, dtype=torch.int32), torch.ones(2, 1, dtype=torch.int32), torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="different numbers of members"):
        uneven.in_sets(2, -2)
    assert uneven.bounds()[1].flatten().tolist() == pytest.approx([1 / 3, 1 / 4])
    assert uneven.select(torch.tensor([1]), -2).bounds()[1].item() == pytest.approx(1 / 4)


def test_results_of_different_precision_stand_side_by_side_in_the_wider():
    law = GaussianMixture(torch.zeros(4, 1), torch.zeros(4, 1, 2), torch.eye(2).expand(4, 1, 2, 2))
    pit = projected_pit(torch.zeros(4, 2), law, [Location(), Scale()], n_draws=9)
    assert pit.parts[0].observed.lower.dtype == torch.float32
    assert pit.lower.dtype == pit.values.dtype == torch.float64
    assert not pit.are_values
    turned = projected_pit(torch.zeros(4, 2), law, [Scale(), Location()], n_draws=9)
    assert turned.lower.dtype == torch.float64
    assert torch.equal(turned.lower, pit.lower[:, [1, 0]])
    assert projected_pit(torch.zeros(4, 2), law, [Location(), Marginal()]).are_values


# -- progress and chunks


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 100)


@pytest.mark.parametrize("kind", ["ensemble", "weighted", "mixture", "draws as reference", "law as reference"])
def test_progress_is_told_chunk_by_chunk_and_changes_nothing(kind, small_chunks, monkeypatch):
    y, members = normal(9, 3, seed=12), normal(9, 7, 3, seed=13)
    forecast = {
        "ensemble": lambda: Ensemble(members),
        "weighted": lambda: Ensemble(members, uniform(9, 7, seed=14)),
        "mixture": lambda: random_mixture(9),
        "draws as reference": lambda: Ensemble(members, reference=normal(9, 6, 3, seed=15)),
        "law as reference": lambda: Ensemble(members, reference=MultivariateNormal(torch.zeros(9, 3), torch.eye(3))),
    }[kind]()
    told = []
    preranks = [Marginal(), PCA(), HDR(), Scale()]
    given = {"exchangeable": True, "n_draws": 15}
    found = projected_pit(y, forecast, preranks, on_progress=lambda *numbers: told.append(numbers), **given)
    if kind == "law as reference":  # a torch law cannot be cut into cases
        assert told == []
    else:
        assert len(told) > 1
        assert told[-1] == (9, 9)
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert {total for _, total in told} == {9}
    monkeypatch.undo()
    whole = projected_pit(y, forecast, preranks, **given)
    torch.testing.assert_close(found.lower, whole.lower, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.tied, whole.tied)
    for one, other in zip(found.parts, whole.parts, strict=True):
        torch.testing.assert_close(one.ties, other.ties)
        assert (one.points is None) == (other.points is None) == (one.method == "closed form")
        if one.points is not None:
            torch.testing.assert_close(one.points.bounds(), other.points.bounds(), rtol=0, atol=1e-12)
    assert (found.pick is None) == (whole.pick is None) == (kind != "weighted")
    if kind == "weighted":
        torch.testing.assert_close(found.pick, whole.pick)


def test_linear_projections_do_not_depend_on_the_blocks_they_are_computed_in(monkeypatch):
    y, members = normal(9, 3, seed=27), normal(9, 12, 3, seed=28)
    whole = projected_pit(y, Ensemble(members), [Location(), PCA()], exchangeable=True)
    monkeypatch.setattr("prerank._reproducible_math.BYTES", 500)
    parts = projected_pit(y, Ensemble(members), [Location(), PCA()], exchangeable=True)
    assert torch.equal(parts.points.lower, whole.points.lower)


def test_gradients_keep_all_cases_together(small_chunks):
    law = random_mixture(9)
    y = normal(9, 3, seed=16).requires_grad_()
    assert projected_pit(y, law, Location()).lower.requires_grad
    members = normal(9, 7, 3, seed=17).requires_grad_()
    smooth = projected_pit(normal(9, 3, seed=18), Ensemble(members), Scale(), SmoothRank())
    assert smooth.values.requires_grad
    with torch.no_grad():
        assert not projected_pit(y, law, Location()).lower.requires_grad


def test_a_large_weighted_ensemble_is_split_with_its_weights():
    n_members = 1200
    y, members, weights = normal(3, 2, seed=19), normal(3, n_members, 2, seed=20), uniform(3, n_members, seed=21)
    chosen = reference_subset(n_members)
    rest = torch.tensor([m for m in range(n_members) if m not in set(chosen.tolist())])
    by_hand = Ensemble(members[:, rest], weights[:, rest], Ensemble(members[:, chosen], weights[:, chosen]))
    found = projected_pit(y, Ensemble(members, weights), [Marginal(), PCA(), HDR(), Copula()])
    expected = projected_pit(y, by_hand, [Marginal(), PCA(), HDR(), Copula()])
    torch.testing.assert_close(found.lower, expected.lower)
    torch.testing.assert_close(found.upper, expected.upper)
    assert found.notes["HDR"].endswith(", learnt from 250 of 1,200 members, the others are ranked")
    assert "marginal" not in found.notes


# -- ways


def test_a_closed_form_is_asked_for_by_name_and_has_no_points():
    y, law = normal(5, 3, seed=22), random_mixture(5)
    for exchangeable in (False, True):
        pit = projected_pit(y, law, Location(), ClosedForm(), n_draws=30, exchangeable=exchangeable)
        assert not pit.has_points
        assert pit.points is None
        assert pit.method == "closed form"


def test_a_smooth_rank_says_that_it_is_one_and_not_exact():
    smooth = projected_pit(normal(5, 3, seed=26), random_mixture(5), [Scale()], SmoothRank(temperature=7.0), n_draws=12)
    assert not smooth.exact
    assert smooth.method == "smooth rank among 12 draws, temperature 7"
    assert smooth.are_values
    assert projected_pit(normal(5, 3, seed=26), random_mixture(5), [Scale(), Location()], n_draws=12).exact


def test_empirical_ranks_are_shares_of_members_at_or_below():
    y = torch.tensor([[2.0], [0.0], [9.0], [2.5]]).double()
    members = torch.tensor([1.0, 2.0, 2.0, 3.0, 4.0]).double().expand(4, 5)[..., None]
    weights = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0]).double().expand(4, 5)
    plain = projected_pit(y, Ensemble(members), Marginal(), EmpiricalRank())
    assert plain.values.flatten().tolist() == pytest.approx([3 / 5, 0.0, 1.0, 3 / 5])
    weighted = projected_pit(y, Ensemble(members, weights), Marginal(), EmpiricalRank())
    assert weighted.values.flatten().tolist() == pytest.approx([4 / 8, 0.0, 1.0, 4 / 8])
    assert not plain.exact
    assert plain.method == "empirical rank among 5 members"
    assert plain.tied.tolist() == [0.25]


def test_a_member_with_all_the_weight_has_nobody_to_be_ranked_among():
    members = torch.tensor([[[1.0], [2.0], [3.0]]]).double()
    forecast = Ensemble(members, torch.tensor([[0.0, 0.0, 2.0]]).double())
    empirical = projected_pit(torch.tensor([[1.5]]).double(), forecast, Marginal(), EmpiricalRank(), exchangeable=True)
    assert empirical.points.lower[0, :, 0].tolist() == [0.0, 0.0, 0.0, 1.0]
    ranked = projected_pit(torch.tensor([[1.5]]).double(), forecast, Marginal(), exchangeable=True)
    assert ranked.points.lower[0, :, 0].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert ranked.points.upper[0, :, 0].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_weighted_ranks_are_shares_of_the_weight_below_and_at():
    y = torch.tensor([[2.0]]).double()
    members = torch.tensor([[[1.0], [2.0], [3.0]]]).double()
    weights, own = torch.tensor([[1.0, 2.0, 3.0]]).double(), torch.tensor([4.0]).double()
    exact = projected_pit(y, Ensemble(members, weights), Marginal(), observation_weights=own, exchangeable=True)
    assert exact.exact
    assert exact.method == "weighted rank among 3 members"
    assert exact.points.lower[0, :, 0].tolist() == pytest.approx([0.1, 0.0, 0.1, 0.7])
    assert exact.points.upper[0, :, 0].tolist() == pytest.approx([0.7, 0.1, 0.7, 1.0])
    unknown = projected_pit(y, Ensemble(members, weights), Marginal(), exchangeable=True)
    assert not unknown.exact
    assert unknown.method.endswith("the observation's own weight unknown: approximate")
    # a member that stands in for the observation leaves its own weight out
    assert unknown.points.lower[0, :, 0].tolist() == pytest.approx([1 / 6, 0.0, 1 / 4, 3 / 3])
    assert unknown.points.upper[0, :, 0].tolist() == pytest.approx([3 / 6, 0.0, 1 / 4, 3 / 3])
    alone = projected_pit(y, Ensemble(members, weights), Marginal())
    assert (alone.lower.item(), alone.upper.item()) == pytest.approx((1 / 6, 3 / 6))


def test_randomised_ranks_lie_in_their_intervals_and_depend_on_the_names_of_cases():
    x = normal(40, 6, 2, seed=23).round()
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    whole = projected_pit(y, forecast, [Marginal()], exchangeable=True)
    drawn = projected_pit(y, forecast, [Marginal()], RandomisedRank(), exchangeable=True)
    assert drawn.are_values
    assert drawn.method == "randomised rank among 5 members"
    assert (drawn.points.lower >= whole.points.lower).all()
    assert (drawn.points.lower <= whole.points.upper).all()
    inside = ((drawn.points.lower - whole.points.lower) / (whole.points.upper - whole.points.lower)).flatten()
    assert abs(float(inside.mean()) - 0.5) < 5 / (12 * len(inside)) ** 0.5
    back = torch.arange(39, -1, -1)
    turned = projected_pit(y[back], Ensemble(x[back, 1:]), [Marginal()], RandomisedRank(), case_ids=back)
    assert torch.equal(turned.lower, drawn.lower[back])
    assert not torch.equal(projected_pit(y, forecast, [Marginal()], RandomisedRank(), seed=1).lower, drawn.lower)


def test_the_case_ids_of_a_result_are_those_given():
    x = normal(4, 3, 1, seed=24)
    ids = torch.tensor([9, 2, 5, 7])
    assert projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), case_ids=ids).case_ids.tolist() == [9, 2, 5, 7]
    assert projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal()).case_ids.tolist() == [0, 1, 2, 3]
    law = random_mixture(4)
    y = normal(4, 3, seed=25)
    scale = projected_pit(y, law, Scale(), n_draws=9, case_ids=ids)
    order = torch.tensor([2, 0, 3, 1])
    turned = projected_pit(y[order], law.select(order), Scale(), n_draws=9, case_ids=ids[order])
    assert torch.equal(turned.lower, scale.lower[order])


def test_a_pit_at_a_level_counts_as_below_it():
    z = torch.tensor([[0.2], [0.2000001], [0.4], [0.5]], dtype=torch.float64)
    curve = reliability_curve(z, levels=torch.tensor([0.2, 0.4], dtype=torch.float64))
    assert curve.frequency[:, 0].tolist() == [0.25, 0.75]
