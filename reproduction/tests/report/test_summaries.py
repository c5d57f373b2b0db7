"""Cell statistics are what a reader would compute by hand from the records."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from prerank.calibration import pce_null
from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.published import published_expected_pce
from prerank_paper.report.published_null import published_null
from prerank_paper.report.summaries import (
    EXACT_PROTOCOL,
    PUBLISHED_PROTOCOL,
    Protocol,
    at_tuned_strength,
    baseline,
    cell_p_value,
    datasets_run,
    on_every_prerank,
    penalised,
    summarise,
    tuned_strengths,
)


def change(results, chosen, **columns):
    """The results with the chosen records changed."""
    records = results.records.copy()
    for name, value in columns.items():
        records.loc[chosen(records), name] = value
    return results._replace(records=records)


def test_a_cell_is_mean_and_standard_error_over_seeds(results):
    cell = summarise(baseline(results, EXACT_PROTOCOL)).set_index(["dataset", "prerank"]).loc[("air", "scale")]
    own = results.records.query(
        "dataset == 'air' and penalty == 'none' and part == 'test' and evaluation == 'exact' and metric == 'pce' "
        "and prerank == 'scale'"
    )
    assert cell["value"] == pytest.approx(own["value"].mean())
    assert cell["standard_error"] == pytest.approx(own["value"].std() / np.sqrt(3))
    assert cell["n_seeds"] == 3


def test_the_published_pce_is_the_one_per_batch(results):
    cells = summarise(baseline(results, PUBLISHED_PROTOCOL))
    assert (cells["expected_pce"] - published_expected_pce(1000)).abs().max() < 1e-12


def test_one_seed_has_no_standard_error(make):
    cells = summarise(baseline(make(["house"], seeds=(0,)), EXACT_PROTOCOL))
    assert cells["standard_error"].isna().all()
    assert cells["value"].notna().all()


def test_a_lost_seed_is_left_out_and_counted(results):
    lost = change(results, lambda r: (r["seed"] == 42) & (r["penalty"] == "scale"), value=np.nan)
    cells = summarise(penalised(lost, PUBLISHED_PROTOCOL)).set_index("prerank")
    assert (cells.loc["scale", "n_seeds"] == 2).all()
    assert (cells.loc["HDR", "n_seeds"] == 3).all()


def test_cell_p_value_is_twice_the_median_but_never_above_one():
    assert cell_p_value(pd.Series([0.001, 0.02, 0.9])) == pytest.approx(0.04)
    assert cell_p_value(pd.Series([0.7, 0.8])) == 1.0


def test_cell_p_value_holds_its_size_for_dependent_seeds():
    generator = np.random.default_rng(0)
    shared, own = generator.normal(size=(4000, 1)), generator.normal(size=(4000, 5))
    p_values = stats.norm.sf(np.sqrt(0.5) * shared + np.sqrt(0.5) * own)
    rejected = np.mean([cell_p_value(pd.Series(row)) <= 0.05 for row in p_values])
    assert rejected <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)


def test_exact_dependency_of_two_targets_has_no_cell(results):
    cells = summarise(penalised(results, EXACT_PROTOCOL)).query("dataset == 'house'")
    assert "dependency" not in set(cells["prerank"])
    assert len(cells) == 6


def test_published_dependency_of_two_targets_is_judged_exactly_by_scale(results):
    cells = penalised(results, Protocol("as published", "exact")).query(
        "dataset == 'house' and prerank == 'dependency'"
    )
    by_scale = results.records.query(
        "dataset == 'house' and training == 'as published' and penalty == 'dependency' and strength == 10 "
        "and part == 'test' and evaluation == 'exact' and metric == 'pce' and prerank == 'scale'"
    )
    assert cells["value"].tolist() == by_scale["value"].tolist()


def test_the_rule_takes_the_smallest_validation_pce(results):
    chosen = tuned_strengths(results, PUBLISHED_PROTOCOL)
    assert len(chosen) == 3 * 7
    assert (chosen["value"] == 10.0).all()  # the penalty takes more, the stronger it is


def test_the_rule_refuses_a_strength_that_costs_too_much(results):
    def spoilt(records):
        strong = (records["penalty"] == "HDR") & (records["strength"] == 10.0) & (records["part"] == "validation")
        return strong & (records["metric"] == "energy score")

    dear = change(results, spoilt, value=2.0)
    chosen = tuned_strengths(dear, PUBLISHED_PROTOCOL).set_index("prerank")["value"]
    assert (chosen["HDR"] == 1.0).all()
    assert (chosen["PCA"] == 10.0).all()


def test_strength_zero_is_the_baseline(results):
    strengths = pd.DataFrame({"dataset": ["air"], "prerank": ["PCA"], "value": [0.0]})
    for metric, name in (("pce", "PCA"), ("nll", "none")):
        plain = baseline(results, EXACT_PROTOCOL, metric)
        plain = plain[(plain["dataset"] == "air") & (plain["prerank"] == name)]
        tuned = at_tuned_strength(results, EXACT_PROTOCOL, strengths, metric)
        assert tuned["value"].tolist() == plain["value"].tolist()
        assert (tuned["prerank"] == "PCA").all()


def test_joint_penalties_are_seen_by_every_prerank(results):
    cells = summarise(on_every_prerank(results, PUBLISHED_PROTOCOL, "PCA + ALL"))
    assert len(cells) == 3 * len(PRERANKS)


def test_datasets_come_in_the_papers_order(results):
    assert list(datasets_run(results).index) == ["households", "air", "house"]


@pytest.mark.parametrize("n_cases", [100, 512, 2318])
def test_published_null_has_the_published_level(n_cases):
    null = published_null(n_cases)
    error = null.sample.std() / np.sqrt(len(null.sample))
    assert null.mean == pytest.approx(published_expected_pce(n_cases))
    assert abs(null.sample.mean() - null.mean) < 5 * error


def test_batches_are_independent_so_their_mean_varies_less():
    one, sixteen = published_null(256), published_null(16 * 256)
    assert sixteen.sample.std() == pytest.approx(one.sample.std() / 4, rel=0.03)
    assert pce_null(16 * 256).mean < sixteen.mean / 3  # but their level is that of 256 cases
