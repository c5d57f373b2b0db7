"""The grid is the paper's: so many models, trained together so, and nothing that makes no sense."""

import math

import pytest

from prerank.training import PreRankPenalty
from prerank_paper.benchmark.plan import PRERANKS, TOGETHER, Grid, Model, penalised_preranks, penalty_of, preranks_of
from prerank_paper.published import PublishedPenalty


def fleets(n_targets, **options):
    return list(Grid(("any",), **options).fleets({"any": n_targets}))


@pytest.mark.parametrize(("n_targets", "n_exact"), [(2, 155), (3, 180), (16, 180)])
def test_a_dataset_has_as_many_models_as_the_paper(n_targets, n_exact):
    exact, published = fleets(n_targets, together=False)
    assert len(exact.models) == n_exact
    assert len(published.models) == 175  # the squared difference stands in for the dependency of two targets
    exact, published = fleets(n_targets)
    assert len(exact.models) == n_exact + 10
    assert len(published.models) == 185


def test_no_model_stands_twice():
    models = [model for fleet in fleets(3) for model in fleet.models]
    assert len(set(models)) == len(models) == 375


def test_baselines_are_trained_once_for_both_protocols():
    exact, published = fleets(3)
    baselines = [Model("none", "none", 0.0, seed) for seed in (0, 42, 866, 12, 4)]
    assert list(exact.models[:5]) == baselines
    assert not set(baselines) & set(published.models)
    (alone,) = fleets(3, protocols=("as published",))
    assert set(alone.models) == set(baselines) | set(published.models)


def test_a_joint_fleet_holds_the_models_of_both_protocols():
    (joint,) = fleets(2, joint=True)
    exact, published = fleets(2)
    assert joint.models == exact.models + published.models
    assert (joint.name, exact.name, published.name) == ("any.both", "any.exact", "any.as-published")


def test_two_targets_have_a_dependency_only_as_published():
    exact, published = fleets(2)
    assert "dependency" not in {model.penalty for model in exact.models}
    assert "dependency" in {model.penalty for model in published.models}
    assert list(preranks_of(3, "exact")) == list(PRERANKS) == list(preranks_of(2, "as published"))


def test_a_single_target_leaves_marginal_and_hdr():
    assert list(preranks_of(1, "exact")) == ["marginal", "HDR"]
    (only,) = fleets(1, preranks=("location",))  # the second fleet would be empty
    assert {model.penalty for model in only.models} == {"none"}


def test_penalties_are_those_of_the_protocol():
    assert penalty_of(Model("none", "none", 0.0, 0), 3) is None
    assert isinstance(penalty_of(Model("exact", "HDR", 1.0, 0), 3), PreRankPenalty)
    assert isinstance(penalty_of(Model("as published", "HDR", 1.0, 0), 3), PublishedPenalty)


def test_together_means_all_that_are_not_the_other():
    assert penalised_preranks("marginal + ALL", PRERANKS) == [name for name in PRERANKS if name != "PCA"]
    assert penalised_preranks("PCA + ALL", PRERANKS) == [name for name in PRERANKS if name != "marginal"]
    assert penalised_preranks("HDR", PRERANKS) == ["HDR"]
    assert penalised_preranks("none", PRERANKS) == []


def test_penalties_on_all_need_all_preranks():
    names = {model.penalty for fleet in fleets(3, preranks=("PCA", "HDR")) for model in fleet.models}
    assert not names & set(TOGETHER)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preranks": ("pca",)}, r"there is no pre-rank 'pca'; known are marginal, location"),
        ({"protocols": ("loose",)}, r"there is no protocol 'loose'; known are exact, as published"),
        ({"datasets": ()}, r"no dataset to run: name at least one"),
        ({"seeds": ()}, r"no seed to run: name at least one"),
        ({"datasets": ("a", "b", "a")}, r"a dataset is named twice in a, b, a"),
        ({"seeds": (1, 1)}, r"a seed is named twice in 1, 1"),
        ({"preranks": ("PCA", "PCA")}, r"a pre-rank is named twice in PCA, PCA"),
        ({"strengths": (0.0, 1.0)}, r"strengths are positive and finite; the baseline, strength 0, is always part"),
        ({"strengths": (-1.0,)}, r"strengths are positive and finite"),
        ({"strengths": (math.nan,)}, r"strengths are positive and finite"),
    ],
    ids=str,
)
def test_a_grid_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Grid(**({"datasets": ("any",)} | options))


def test_without_a_protocol_there_are_baselines_alone():
    (fleet,) = Grid(("wq",), protocols=()).fleets({"wq": 14})
    assert fleet.name == "wq.baseline"
    assert fleet.training == "none"
    assert len(fleet.models) == 5
    assert {model.penalty for model in fleet.models} == {"none"}
