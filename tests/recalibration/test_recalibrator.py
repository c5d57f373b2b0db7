"""What a `Recalibrator` passes on, does in which order, keeps, says and refuses, with steps that only take notes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Laplace

from prerank import Custom, Ensemble, Location, Marginal, Recalibrator
from prerank.recalibration import Affine, ErrorLaw, Tilt
from prerank.recalibration.affine import FittedAffine
from prerank.recalibration.dressing import FittedDressing
from prerank.recalibration.guard import Verdict
from prerank.recalibration.persistence import About, read_steps, write
from prerank.recalibration.recalibrator import _listed_steps
from prerank.recalibration.tilt import FittedTilt


class Noted:
    """What a step of notes becomes: adds a number to all members."""

    def __init__(self, plus):
        self.plus = plus

    @property
    def changed(self):
        return self.plus != 0

    def transform(self, forecast):
        return Ensemble(forecast.members + self.plus) if self.plus else forecast

    def summary(self):
        return f"plus {self.plus}"


class Notes:
    """A step that keeps what it is given."""

    def __init__(self, plus=0, name=""):
        self.plus, self.name, self.seen = plus, name, []

    def __eq__(self, other):
        return self.name == other.name

    def fit(self, forecast, held_out):
        self.seen.append((forecast, held_out, torch.is_grad_enabled()))
        return Noted(self.plus)


MEMBERS = torch.arange(72.0).reshape(12, 3, 2).double()
Y = torch.arange(24.0).reshape(12, 2).double()


def fitted_tilt(n_features=0):
    theta = torch.full((3, 2, 3), 0.5).double() if n_features else torch.full((2, 3), 0.5).double()
    rows = torch.arange(60.0).reshape(3, 20).double()
    features = (torch.zeros(3).double(), torch.ones(3).double()) if n_features else ()
    verdict = Verdict(0.5, 2.0, 0.25, 0.125, 0.1, 0.2, 40)
    preranks, groups = (Marginal(), Location()), (("marginal", 2), ("location", 1))
    return FittedTilt(preranks, groups, theta, 0.1, 0.3, 0.2, verdict, False, 0.01, rows, -rows, 50, 200, 7, *features)


def test_a_step_is_given_everything_in_its_place():
    notes = Notes()
    weights = torch.arange(12.0)
    recalibrator = Recalibrator([Location()], [notes], n_folds=3, seed=4)
    assert recalibrator.fit(MEMBERS, Y, case_weights=weights) is recalibrator
    forecast, held_out, gradients = notes.seen[0]
    assert torch.equal(forecast.members, MEMBERS)
    assert torch.equal(held_out.y, Y)
    torch.testing.assert_close(held_out.weights, weights.double() / 5.5)
    assert (held_out.folds.n_folds, held_out.seed, held_out.features, gradients) == (3, 4, None, False)
    assert list(held_out.preranks) == [Location()]
    assert (recalibrator.n_cases_, recalibrator.n_targets_, recalibrator.n_features_) == (12, 2, 0)


def test_the_defaults_are_five_folds_seed_zero_and_equal_weights():
    notes = Notes()
    Recalibrator(steps=notes).fit(MEMBERS, Y)
    _, held_out, _ = notes.seen[0]
    assert (held_out.folds.n_folds, held_out.seed) == (5, 0)
    assert torch.equal(held_out.weights, torch.ones(12).double())
    assert torch.equal(held_out.folds.block, torch.arange(12))


def test_blocks_and_features_reach_the_step():
    notes = Notes()
    notes.by_features = True
    recalibrator = Recalibrator(steps=[notes], n_folds=2)
    recalibrator.fit(MEMBERS, Y, features=torch.arange(36.0).reshape(12, 3), blocks=np.arange(12) // 3)
    _, held_out, _ = notes.seen[0]
    assert held_out.folds.block.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert held_out.features.values.shape == (12, 3)
    assert recalibrator.n_features_ == 3


def test_each_step_starts_from_what_the_one_before_made():
    first, second = Notes(plus=1, name="first"), Notes(plus=10, name="second")
    recalibrator = Recalibrator(steps=(first, second)).fit(MEMBERS, Y)
    assert torch.equal(second.seen[0][0].members, MEMBERS + 1)
    assert torch.equal(recalibrator.transform(MEMBERS[:3]).members, MEMBERS[:3] + 11)
    assert recalibrator.changed_ is True


def test_a_step_that_changed_nothing_is_not_repeated_and_another_is_tried():
    idle = Notes(name="idle")
    assert len(Recalibrator(steps=[idle, idle, idle]).fit(MEMBERS, Y).steps_) == 1
    other = Notes(name="other")
    assert len(Recalibrator(steps=[idle, other]).fit(MEMBERS, Y).steps_) == 2
    busy = Notes(plus=1, name="busy")
    assert len(Recalibrator(steps=[busy, busy]).fit(MEMBERS, Y).steps_) == 2


def test_where_nothing_was_changed_the_same_object_comes_back_and_the_summary_says_so():
    recalibrator = Recalibrator(steps=[Notes()]).fit(MEMBERS, Y)
    forecast = Ensemble(MEMBERS)
    assert recalibrator.transform(forecast) is forecast
    assert recalibrator.changed_ is False
    assert recalibrator.summary() == "Fitted on 12 cases, 2 targets. Nothing was changed.\nplus 0"
    repeated = Recalibrator(steps=[Notes(plus=2)]).fit(MEMBERS, torch.where(Y < 8, 0.0, Y))
    assert repeated.tied_.tolist() == [4 / 12, 4 / 12]
    lines = repeated.summary().splitlines()
    assert lines[0] == "Fitted on 12 cases, 2 targets."
    assert lines[1].startswith("observations of targets 1 (33%), 2 (33%) repeat others")
    assert lines[2:] == ["plus 2"]


def test_the_default_steps_are_values_that_follow_the_forecast_and_the_features():
    members, law = Ensemble(MEMBERS), Independent(Laplace(Y, torch.ones(2)), 1)
    given = Tilt(degree=2, by_features=True)
    assert _listed_steps(None, members, False) == [ErrorLaw()]
    assert _listed_steps(None, members, True) == [ErrorLaw()]
    assert _listed_steps(None, law, False) == [Affine(), Tilt(), Tilt()]
    assert _listed_steps(None, law, True) == [Affine(), given, Tilt(), Tilt()]
    assert _listed_steps(Tilt(), law, False) == [Tilt()]


@pytest.mark.parametrize(
    ("steps", "with_features", "error", "message"),
    [
        ((), False, ValueError, r"^steps=\(\): nothing would be learnt"),
        ((Affine(), Tilt), False, TypeError, "^steps: the class Tilt is no step; pass values"),
        ((Affine(), "tilt"), False, TypeError, "is no step; pass values such as"),
        (3, False, TypeError, "is no step; pass values such as"),
        ((Affine(), Tilt()), True, ValueError, "features are given, and no step uses them"),
    ],
)
def test_what_is_no_list_of_steps_is_refused(steps, with_features, error, message):
    with pytest.raises(error, match=message):
        _listed_steps(steps, Ensemble(MEMBERS), with_features)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(11), r"case_weights has shape \(11,\); one number per case is \(12,\)"),
        (torch.ones(12, 1), r"case_weights has shape \(12, 1\)"),
        (torch.zeros(12), "^all 12 case_weights are zero; at least one must be positive"),
        ([-1.0, -2.0, *[1.0] * 10], "^2 of 12 case_weights are negative"),
        ([torch.nan, *[1.0] * 11], "^1 of 12 case_weights"),
        ([torch.inf, -1.0, *[1.0] * 10], "^2 of 12 case_weights"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Recalibrator(steps=[Notes()]).fit(MEMBERS, Y, case_weights=weights)


def test_weights_of_zero_are_weights():
    notes = Notes()
    Recalibrator(steps=[notes]).fit(MEMBERS, Y, case_weights=[0.0, *[1.0] * 11])
    assert float(notes.seen[0][1].weights[0]) == 0.0
    assert float(notes.seen[0][1].weights.mean()) == pytest.approx(1.0)


def test_options_that_are_no_whole_numbers_are_refused():
    for options in ({"n_folds": 1}, {"n_folds": 2.0}, {"seed": 0.5}):
        with pytest.raises((TypeError, ValueError), match="a whole number"):
            Recalibrator(steps=[Notes()], **options).fit(MEMBERS, Y)
    assert Recalibrator(steps=[Notes()], seed=-3, n_folds=2).fit(MEMBERS, Y).changed_ is False


def test_other_targets_and_other_features_are_refused():
    notes = Notes()
    recalibrator = Recalibrator(steps=[notes]).fit(MEMBERS, Y)
    with pytest.raises(ValueError, match="the Recalibrator was fitted on 2 targets, but the forecast is for 1;"):
        recalibrator.transform(MEMBERS[..., :1])
    law = Independent(Laplace(torch.zeros(5, 3), torch.ones(3)), 1)
    with pytest.raises(ValueError, match="on 2 targets, but the forecast is for 3;"):
        recalibrator.transform(law)
    with pytest.raises(ValueError, match="was fitted on no features, and some are given"):
        recalibrator.transform(MEMBERS, torch.ones(12))
    notes.by_features = True
    recalibrator.fit(MEMBERS, Y, features=torch.arange(12.0))
    with pytest.raises(ValueError, match="was fitted on 1 feature, and none are given"):
        recalibrator.transform(MEMBERS)
    with pytest.raises(ValueError, match="2 features are given, but the Recalibrator was fitted on 1;"):
        recalibrator.transform(MEMBERS, torch.ones(12, 2))
    with pytest.raises(ValueError, match="a row for each of the 5 cases"):
        recalibrator.transform(MEMBERS[:5], torch.ones(12))
    assert torch.equal(recalibrator.transform(MEMBERS[:5], torch.ones(5)).members, MEMBERS[:5])
    two = Independent(Laplace(torch.zeros(5, 2), torch.ones(2)), 1)
    assert recalibrator.transform(two, torch.ones(5)) is two


def test_densities_of_a_prerank_are_the_rows_of_its_projections_in_the_first_tilt_that_changes():
    recalibrator = Recalibrator(steps=[Notes()]).fit(MEMBERS, Y)
    assert recalibrator.densities_ == {}
    refused = replace(fitted_tilt(3), ridge=None, observed=torch.zeros(3, 20))
    recalibrator.steps_ = (refused, fitted_tilt(), replace(fitted_tilt(), observed=torch.ones(3, 20)), Noted(0))
    found = recalibrator.densities_
    assert list(found) == ["marginal", "location"]
    assert found["marginal"].observed.tolist() == torch.arange(40.0).reshape(2, 20).tolist()
    assert found["location"].corrected.tolist() == (-torch.arange(40.0, 60.0)[None]).tolist()
    assert isinstance(found["location"].observed, np.ndarray)


def test_steps_are_the_same_after_a_file(tmp_path):
    two = torch.ones(2).double()
    steps = (
        FittedAffine(1 * two, 2 * two, 0.1, 0.25, 0.0625, 3),
        FittedAffine(0 * two, two, None, 0.0, 0.0, 3, discrete=True),
        FittedDressing(4 * two, 3 * two, torch.eye(2).double(), 0.5, 0.25, 2.0, 0.125, 3.0),
        fitted_tilt(),
        fitted_tilt(3),
    )
    known = {"n_cases": 9, "n_targets": 2, "n_features": 3, "n_folds": 5, "seed": 0, "n_members": 8}
    write(tmp_path / "steps", steps, known)
    back, about = read_steps(tmp_path / "steps")
    assert about == About(**known, tied=[0.0, 0.0], target_names=None, notes=())
    assert len(back) == len(steps)
    for step, again in zip(steps, back, strict=True):
        assert type(again) is type(step)
        assert again.summary() == step.summary()
        for name, value in vars(step).items():
            kept = getattr(again, name)
            assert torch.equal(kept, value) if isinstance(value, torch.Tensor) else kept == value
    assert isinstance(back[3].verdict, Verdict)
    with pytest.raises(
        TypeError, match="cannot be saved: a file holds FittedAffine, FittedDressing, FittedErrorLaw, FittedTilt, never"
    ):
        write(tmp_path / "other", (Noted(1),), {})


def test_what_is_known_of_the_cases_is_the_same_after_a_file(tmp_path):
    recalibrator = Recalibrator(steps=[Notes()], n_folds=3, seed=9).fit(MEMBERS, torch.where(Y < 8, 0.0, Y))
    recalibrator.steps_, recalibrator.n_features_ = (fitted_tilt(3),), 3
    recalibrator.save(tmp_path / "file")
    back = Recalibrator.load(tmp_path / "file")
    for name in ("n_cases_", "n_targets_", "n_features_", "n_folds", "seed"):
        assert getattr(back, name) == getattr(recalibrator, name)
    assert back.tied_.tolist() == recalibrator.tied_.tolist()
    assert (back.steps, back.preranks) == (None, None)


def test_a_file_from_before_features_and_ties_were_kept_is_read(tmp_path):
    write(tmp_path / "old", (), {"n_cases": 5, "n_targets": 2, "n_folds": 5, "seed": 0})
    back = Recalibrator.load(tmp_path / "old")
    assert (back.n_features_, back.tied_.tolist()) == (0, [0.0, 0.0])


def test_several_models_at_once_are_refused():
    with pytest.raises(ValueError, match=r"one model"):
        Recalibrator(steps=[Notes()]).fit(MEMBERS.expand(4, 12, 3, 2), Y)


def test_a_pre_rank_that_is_not_a_number_for_draws_is_refused(standard, observed):
    forecast = standard(30)
    roots = Custom(lambda points: points[..., :1].sqrt())
    with pytest.raises(ValueError, match="PITs are NaN for"):
        Recalibrator(roots, steps=[Tilt(n_draws=10, n_reference=10)]).fit(forecast, observed(forecast, 1))


def test_two_tilts_by_features_come_back_from_one_file(standard, observed, tmp_path):
    forecast = standard(60)
    features = torch.randn(60, 1, generator=torch.Generator().manual_seed(2))
    tilt = Tilt(degree=1, n_draws=10, n_reference=10, pool=50, by_features=True)
    other = Tilt(degree=2, n_draws=10, n_reference=10, pool=50, by_features=True)
    fitted = Recalibrator(Location(), steps=[tilt, other]).fit(forecast, observed(forecast, 3), features=features)
    fitted.save(tmp_path / "both")
    for one, again in zip(fitted.steps_, Recalibrator.load(tmp_path / "both").steps_, strict=True):
        assert torch.equal(one.centre, again.centre)
