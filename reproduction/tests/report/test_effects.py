"""Changes are counted against the baselines of the same splits, and one wild likelihood decides nothing."""

import numpy as np
import pandas as pd
import pytest

from prerank_paper.report.effects import (
    by_dataset,
    calibration_changes,
    calibration_table,
    changes,
    counts,
    degradation_table,
    score_changes,
)
from prerank_paper.report.spread import against_spread, baseline_networks, spread_shares
from prerank_paper.report.summaries import EXACT_PROTOCOL, PROTOCOLS, baseline, penalised, tuned_strengths


@pytest.fixture(scope="module")
def tuned(results):
    return {protocol: tuned_strengths(results, protocol) for protocol in PROTOCOLS}


def seeds(values, prerank="scale"):
    return pd.DataFrame({"dataset": "air", "prerank": prerank, "seed": range(len(values)), "value": values})


def test_a_change_is_paired_by_seed_and_its_p_value_is_that_of_the_t_test():
    before = seeds([1.0, 2.0, 30.0, 4.0, 5.0]).drop(columns="prerank")
    after = pd.concat([seeds([1.3, 2.4, 30.2, 4.3, 5.3], name) for name in ("scale", "PCA")])
    cells = changes(before, after, "value", "median")
    assert list(cells["prerank"]) == ["scale", "PCA"]
    assert cells["change"].tolist() == pytest.approx([0.3, 0.3])
    t = 0.3 / (np.std([0.3, 0.4, 0.2, 0.3, 0.3], ddof=1) / np.sqrt(5))
    assert t == pytest.approx(9.4868, abs=1e-3)
    assert cells["p_value"].tolist() == pytest.approx(
        [0.000690] * 2, rel=1e-2
    )  # t of 9.487 with four degrees of freedom


def test_one_wild_seed_does_not_decide_the_change_of_a_score(results):
    records = results.records.copy()
    wild = (records["metric"] == "nll") & (records["penalty"] == "none") & (records["seed"] == 42)
    records.loc[wild, "value"] += 1e7
    usual = score_changes(results, EXACT_PROTOCOL, "nll")["change"]
    assert (score_changes(results._replace(records=records), EXACT_PROTOCOL, "nll")["change"].abs() < 10).all()
    assert (usual.abs() < 10).all()


def test_a_cell_without_change_is_neither_worse_nor_better():
    cells = changes(seeds([1.0, 2.0]), seeds([1.0, 2.0]), "value", "mean")
    assert counts(cells) == {
        "cells": 1, "worse": 0, "worse, p ≤ 5 %": 0, "better": 0, "better, p ≤ 5 %": 0, "unchanged": 1
    }  # fmt: skip
    assert cells["p_value"].tolist() == [1.0]


def test_a_single_seed_has_a_change_and_no_p_value():
    cells = changes(seeds([1.0]), seeds([2.0]), "value", "mean")
    assert cells["change"].tolist() == [1.0]
    assert cells["p_value"].isna().all()
    assert counts(cells)["worse, p ≤ 5 %"] == 0


def test_seeds_that_diverged_do_not_count():
    cells = changes(seeds([1.0, np.nan, 3.0]), seeds([2.0, 2.0, np.inf]), "value", "mean")
    assert cells["n_seeds"].tolist() == [1]


def test_pces_change_as_the_tables_say(results):
    cells = calibration_changes(results, "exact").set_index(["dataset", "prerank"])
    before, after = baseline(results, EXACT_PROTOCOL), penalised(results, EXACT_PROTOCOL)
    place = ("households", "HDR")
    means = [part.groupby(["dataset", "prerank"])["corrected"].mean()[place] for part in (before, after)]
    assert cells.loc[place, ["before", "after"]].tolist() == pytest.approx(means)


def test_tables_have_a_row_for_each_training_and_strength(results, tuned):
    assert len(degradation_table(results, tuned)) == 8
    table = calibration_table(results, tuned)
    assert len(table) == 4
    assert (table["worse"] + table["better"] + table["unchanged"] == table["cells"]).all()
    assert set(by_dataset(results)["dataset"]) == {"air", "house", "households"}


def test_agreement_is_judged_by_the_spread_of_networks_of_one_split(results):
    """Three networks for each split that differ by a known amount: the deviation is what the formula says."""
    records = results.records
    plain = records[records["penalty"] == "none"]
    shifts = {1: 0.01, 2: -0.01}
    more = [plain.assign(initialisation=k, value=plain["value"] + shift) for k, shift in shifts.items()]
    several = results._replace(records=pd.concat([records, *more], ignore_index=True))
    cells = against_spread(several).set_index(["dataset", "prerank"])
    assert len(baseline_networks(several)) == 3 * len(baseline_networks(results))
    assert cells["deviation"].to_numpy() == pytest.approx(0.01 * np.sqrt((1 + 1 / 3) / 3))
    off = (cells["value"] - cells["value_paper"]).abs()
    assert (cells["within 2 deviations"] == (off <= 2 * cells["deviation"] + 0.0005)).all()
    assert f"Of {len(cells)} baseline cells" in spread_shares(against_spread(several))
    assert against_spread(results).empty
