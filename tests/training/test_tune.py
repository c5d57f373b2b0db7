"""The rule that chooses a strength, as a function of a table, and a whole tuning."""

import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch

from prerank.calibration import pce, projected_pit
from prerank.forecasts import GaussianMixture
from prerank.preranks import Location, Scale
from prerank.scores import energy_score
from prerank.training import PAPER_STRENGTHS, PreRankPenalty, choose_strength, fit, tune

tune_module = sys.modules["prerank.training.tuning"]


def table(strengths, pces, scores, seeds=(0,)):
    return pd.DataFrame(
        [
            {"strength": strength, "seed": seed, "pce": value, "score": score}
            for strength, value, score in zip(strengths, pces, scores, strict=True)
            for seed in seeds
        ]
    )


@pytest.mark.parametrize(
    ("strengths", "pces", "scores", "options", "chosen"),
    [
        ((0, 1, 10), (0.05, 0.02, 0.01), (1.0, 1.05, 1.2), {}, 1),
        ((0, 1, 10), (0.05, 0.02, 0.01), (1.0, 1.05, 1.2), {"tolerance": 0.25}, 10),
        ((0, 1, 10), (0.05, 0.02, 0.01), (1.0, 1.05, 1.2), {"tolerance": 0.0}, 0),
        ((0, 1), (0.05, 0.01), (1.0, 1.0), {"tolerance": 0.0}, 1),  # at most: equal is admitted
        ((0, 1, 10), (0.02, 0.01, 0.01), (1.0, 1.0, 1.0), {}, 1),  # ties go to the smaller
        ((10, 1, 0), (0.01, 0.01, 0.01), (1.0, 1.0, 1.0), {}, 0),  # whatever the order of the rows
        ((0, 1), (0.01, 0.02), (1.0, 0.5), {}, 0),  # a better score does not pay for a worse PCE
        ((0, 1, 10), (0.05, 0.02, 0.01), (-1.0, -0.96, -0.5), {"absolute_tolerance": 0.05}, 1),
        ((0, 1, 10), (0.05, 0.02, 0.01), (-1.0, -0.96, -0.5), {"absolute_tolerance": 1.0}, 10),
        ((0, 1), (0.05, 0.01), (2.0, 2.1), {"absolute_tolerance": 0.0}, 0),
        ((0,), (0.05,), (1.0,), {}, 0),
    ],
)
def test_the_rule(strengths, pces, scores, options, chosen):
    assert choose_strength(table(strengths, pces, scores), **options) == chosen


def test_means_are_taken_over_seeds():
    """Strength 1 is best for one seed, strength 2 on average; strength 3 is too dear on average only."""
    rows = pd.DataFrame(
        {
            "strength": [0, 1, 2, 3] * 2,
            "seed": [0] * 4 + [1] * 4,
            "pce": [0.05, 0.00, 0.02, 0.0, 0.05, 0.06, 0.02, 0.0],
            "score": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.4],
        }
    )
    assert choose_strength(rows) == 2


def test_parsimony_takes_the_smallest_strength_that_cannot_be_told_from_the_best():
    rows = pd.DataFrame(
        {
            "strength": [0.0] * 3 + [1.0] * 3 + [10.0] * 3,
            "seed": [0, 1, 2] * 3,
            "pce": [0.050, 0.051, 0.049, 0.011, 0.009, 0.0104, 0.010, 0.010, 0.010],
            "score": 1.0,
        }
    )
    assert choose_strength(rows) == 10.0
    assert choose_strength(rows, parsimonious=True) == 1.0
    assert choose_strength(rows[rows.seed == 0], parsimonious=True) == 10.0  # one seed cannot tell, so the best stays


@pytest.mark.parametrize(
    ("t", "chosen"),
    [
        (2.8, 0.0),  # a difference of this many standard errors is chance at 5 %
        (3.0, 1.0),  # and this is not, by a one-sided test; a two-sided one would want 4.3
        (4.2, 1.0),
    ],
)
def test_parsimony_asks_a_one_sided_question(t, chosen):
    """Three seeds, two degrees of freedom: the 95 % quantile of Student's t is 2.92, the 97.5 % one 4.30."""
    differences = [0.01 * (1 + step * 3**0.5 / t) for step in (-1, 0, 1)]  # mean 0.01, deviation 0.01 sqrt(3) / t
    rows = pd.DataFrame(
        {"strength": [0.0] * 3 + [1.0] * 3, "seed": [0, 1, 2] * 2, "pce": [0.02 + d for d in differences] + [0.02] * 3}
    ).assign(score=1.0)
    assert choose_strength(rows) == 1.0
    assert choose_strength(rows, parsimonious=True) == chosen


def test_tables_that_cannot_be_judged_are_refused():
    good = table((0, 1), (0.1, 0.1), (1.0, 1.0))
    with pytest.raises(ValueError, match=r"lacks the columns \['score'\]; it has \['strength', 'seed', 'pce'\]"):
        choose_strength(good.drop(columns="score"))
    with pytest.raises(ValueError, match=r"strength 0 must be a candidate; the table has \[1\]"):
        choose_strength(good[good.strength > 0])
    with pytest.raises(ValueError, match=r"missing for strengths \[1\]; leave diverged models out"):
        choose_strength(table((0, 1), (0.1, float("nan")), (1.0, 1.0)))
    with pytest.raises(ValueError, match=r"scores are negative \(down to -0.5\).*absolute_tolerance"):
        choose_strength(table((0, 1), (0.1, 0.1), (1.0, -0.5)))
    with pytest.raises(ValueError, match=r"tolerance=-0.1.*would refuse strength 0"):
        choose_strength(good, tolerance=-0.1)
    with pytest.raises(ValueError, match=r"absolute_tolerance=-1"):
        choose_strength(good, absolute_tolerance=-1)


def test_the_papers_grid():
    assert PAPER_STRENGTHS == (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)


def test_tuning_trains_all_strengths_at_once_and_applies_the_rule(tiny, small):
    data = {0: tiny(seed=0, dtype=torch.float32), 1: tiny(seed=1, dtype=torch.float32)}
    penalty = PreRankPenalty((Location(), Scale()), n_draws=20)
    tuned = tune(penalty, data, strengths=(1.0, 10.0), seeds=(0, 1), options=small(max_epochs=6))
    assert sorted(tuned.table.strength.unique()) == [0.0, 1.0, 10.0]  # zero is always a candidate
    assert len(tuned.table) == len(tuned.fleet.runs) == 6
    assert tuned.strength == choose_strength(tuned.table)
    places = tuned.models()
    assert [tuned.fleet.runs[place].strength for place in places] == [tuned.strength] * 2
    # one record, recomputed by hand
    place = next(i for i, run in enumerate(tuned.fleet.runs) if run.strength == 10.0 and run.seed == 1)
    laws = tuned.fleet.forecast(data[1].x_validation, [place])
    law, y = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0]), data[1].y_validation
    errors = [pce(projected_pit(y, law, item)).mean() for item in (Location(), Scale())]
    row = tuned.table[(tuned.table.strength == 10.0) & (tuned.table.seed == 1)].iloc[0]
    assert row.pce == pytest.approx(float(sum(errors)) / 2)
    assert row.score == pytest.approx(float(energy_score(y, law.ensemble(100)).mean()))


def test_a_model_that_never_trained_is_left_out_of_the_table(tiny, small):
    healthy = tiny(dtype=torch.float32)
    data = {0: healthy, 1: healthy._replace(x=healthy.x * 1e30)}
    tuned = tune(PreRankPenalty(Location()), data, strengths=(1.0,), seeds=(0, 1), options=small())
    assert tuned.table.seed.tolist() == [0, 0]
    assert tuned.fleet.diverged.tolist() == [False, True, False, True]


def test_a_model_that_diverged_after_it_had_learnt_something_keeps_its_place_in_the_table(tiny, small, monkeypatch):
    """Its best weights are from before, and as good as those of any model that was stopped early."""
    fitted = []

    def fit_and_blow_up(*given):
        fitted.append(fit(*given))
        return replace(fitted[0], diverged=torch.tensor([False, True, False]))

    monkeypatch.setattr(tune_module, "fit", fit_and_blow_up)
    data = tiny(dtype=torch.float32)
    tuned = tune(PreRankPenalty(Location()), data, strengths=(0.0, 1.0, 5.0), options=small())
    assert fitted[0].best_score.isfinite().all()
    assert tuned.table.strength.tolist() == [0.0, 1.0, 5.0]
    with pytest.raises(AttributeError):  # what was chosen stays chosen
        tuned.strength = 5.0


@pytest.mark.parametrize(("options", "n_draws"), [({}, 100), ({"n_draws": 7}, 7)])
def test_validation_takes_a_hundred_draws_unless_told_otherwise(tiny, small, options, n_draws):
    """Scale is ranked among draws, and the energy score is that of draws."""
    data = tiny(dtype=torch.float32)
    penalty = PreRankPenalty(Scale(), n_draws=20)
    tuned = tune(penalty, data, (1.0,), options=small(max_epochs=2), **options)
    for place, row in tuned.table.iterrows():
        laws = tuned.fleet.forecast(data.x_validation, [place])
        law, y = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0]), data.y_validation
        assert row.pce == pytest.approx(float(pce(projected_pit(y, law, Scale(), n_draws=n_draws)).mean()))
        assert row.score == pytest.approx(float(energy_score(y, law.ensemble(n_draws)).mean()))


def test_of_a_single_seed_any_difference_counts():
    assert choose_strength(table((0, 1), (0.05, 0.02), (1.0, 1.0)), parsimonious=True) == 1
    assert choose_strength(table((0, 1, 2), (0.05, 0.02, 0.02), (1.0, 1.0, 1.0)), parsimonious=True) == 1
    same = table((0, 1), (0.05, 0.02), (1.0, 1.0), seeds=(0, 1, 2))  # differences that do not vary
    assert choose_strength(same, parsimonious=True) == 1
    assert choose_strength(same) == 1


def test_a_tuning_whose_baseline_diverged_says_so(tiny, small):
    options = small(learning_rate=1e18)
    poisoned = tiny(dtype=torch.float32)
    poisoned = poisoned._replace(x_validation=poisoned.x_validation * 1e38)
    with pytest.raises(
        ValueError, match=r"training diverged in its first epoch with strength 0.*lower the learning rate"
    ):
        tune(PreRankPenalty(Location()), poisoned, (0, 1.0), options=options)
