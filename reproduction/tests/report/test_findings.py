"""Counts and costs follow from the records."""

import numpy as np
import pandas as pd
import pytest

from prerank_paper.report.findings import (
    computing_table,
    model_minutes,
    overstated,
    price,
    price_table,
    rejection_table,
    rejections,
    smallest_p_values,
)
from prerank_paper.report.summaries import EXACT_PROTOCOL, PROTOCOLS, PUBLISHED_PROTOCOL, baseline, tuned_strengths


def seeds_with(p_values):
    rows = [
        {"dataset": f"d{place}", "prerank": "scale", "strength": 0.0, "seed": seed, "value": 0.1, "p_value": p}
        for place, p in enumerate(p_values)
        for seed in range(3)
    ]
    return pd.DataFrame(rows).assign(expected_pce=0.01, corrected=0.09, low=0.0, high=0.2)


def test_holm_counts_fewer_than_single_tests():
    counted = rejections(seeds_with([0.0001, 0.02, 0.024, 0.4]), pd.Series({"scale": 0.0001}))
    assert counted == (4, 3, 1, 0)


def test_a_simulated_p_value_that_cannot_be_smaller_is_unresolved():
    counted = rejections(seeds_with([0.001] * 30), pd.Series({"scale": 0.001}))
    assert counted.rejected == 30
    assert counted.after_holm == 0
    assert counted.unresolved == 30


def test_no_tests_are_no_cells(results):
    assert rejections(baseline(results, PUBLISHED_PROTOCOL), smallest_p_values(results)).cells == 0


def test_every_way_of_training_is_counted(results):
    table = rejection_table(results, {p: tuned_strengths(results, p) for p in PROTOCOLS}).set_index("models")
    assert table.loc["baseline", "cells"] == 20
    assert len(table) == 5


def test_the_published_evaluation_calls_all_of_these_miscalibrated(results):
    both = overstated(results)
    assert len(both) == 20  # all but dependency of two targets
    assert both["called_miscalibrated"].all()
    assert not both["is_miscalibrated"].all()


def test_price_is_what_was_added(results):
    records = results.records.copy()
    dear = (records["penalty"] == "PCA") & (records["training"] == "exact")
    plain = records[records["penalty"] == "none"].set_index(
        ["dataset", "seed", "part", "evaluation", "metric", "prerank"]
    )
    for place in records.index[dear & records["metric"].isin(["nll", "energy score"])]:
        row = records.loc[place]
        base = plain["value"][tuple(row[plain.index.names])]
        records.loc[place, "value"] = base + 0.5 if row["metric"] == "nll" else 1.1 * base
    table = price_table(price(results._replace(records=records), EXACT_PROTOCOL)).set_index("pre-rank")
    assert table.loc["PCA", "energy score, upper quartile"] == pytest.approx(0.1)
    assert table.loc["PCA", "NLL, median"] == pytest.approx(0.5)


def test_minutes_are_per_model_and_beside_the_authors(results):
    minutes = model_minutes(results).set_index(["dataset", "training", "prerank", "n_draws"])
    timed = results.timings.set_index(["dataset", "training", "prerank", "n_draws"])
    place = ("households", "exact", "HDR", 100)
    assert minutes.loc[place, "minutes"] == pytest.approx(timed.loc[place, "ms_per_step"] / 5 * 4000 / 60_000)
    assert minutes.loc[place, "authors_minutes"] == 10.5
    assert np.isnan(minutes.loc[("house", "exact", "HDR", 100), "ratio"])


def test_no_timings_are_no_minutes(make):
    assert model_minutes(make(["house"], seeds=(0,), timings=False)).empty


def test_computing_has_a_row_for_every_fleet(results):
    table = computing_table(results)
    assert len(table) == 6
    assert table["seconds per model"].iloc[0] == pytest.approx(120 / 100)


def test_computing_says_which_fleets_shared_the_device(results):
    assert "beside" not in computing_table(results)  # nor in records that do not say
    shared = results._replace(fleets=results.fleets.assign(beside=4.0))
    assert computing_table(shared)["beside"].tolist() == [4] * 6
    partly = pd.concat([results.fleets[:2], shared.fleets[2:]])
    assert sorted(computing_table(results._replace(fleets=partly))["beside"]) == [1, 1, 4, 4, 4, 4]
