"""Counts and costs follow from the records."""

import numpy as np
import pandas as pd
import pytest

from prerank.studies.benchmark.bounds import p_value_bounds, refined
from prerank.studies.benchmark.findings import (
    computing_table,
    model_minutes,
    overstated,
    price,
    price_table,
    rejection_table,
    rejections,
    smallest_p_values,
)
from prerank.studies.benchmark.summaries import EXACT_PROTOCOL, PROTOCOLS, PUBLISHED_PROTOCOL, baseline, tuned_strengths


def seeds_with(p_values):
    rows = [
        {"dataset": f"d{place}", "prerank": "scale", "strength": 0.0, "seed": seed, "value": 0.1, "p_value": p}
        for place, p in enumerate(p_values)
        for seed in range(3)
    ]
    return pd.DataFrame(rows).assign(null_level=0.01, corrected=0.09, low=0.0, high=0.2)


def test_holm_counts_fewer_than_single_tests():
    counted = rejections(seeds_with([0.0001, 0.02, 0.024, 0.4]), pd.Series({"scale": 0.0001}))
    assert counted == (4, 3, 1, 0)


def test_a_simulated_p_value_that_cannot_be_smaller_is_unresolved():
    counted = rejections(seeds_with([0.001] * 30), pd.Series({"scale": 0.001}))
    assert counted.rejected == 30
    assert counted.after_holm == 0
    assert counted.unresolved == 30


def test_a_bound_resolves_what_replicates_cannot():
    seeds = seeds_with([0.001] * 90)
    bounds = seeds[["dataset", "prerank", "strength", "seed"]].assign(bound=1e-9)
    assert rejections(seeds, pd.Series({"scale": 0.001}), bounds) == (90, 90, 90, 0)
    some = rejections(seeds, pd.Series({"scale": 0.001}), bounds[bounds["dataset"] < "d2"])
    assert (some.after_holm, some.unresolved) == (12, 78)


def test_a_refined_p_value_is_twice_the_smaller_and_holds_its_size():
    """Uniform p-values and a bound that is one too: the smaller of both, doubled, is rejected at most as often."""
    uniform = np.random.default_rng(3).uniform(size=(2, 4000))
    seeds = pd.DataFrame({"dataset": [f"d{k}" for k in range(4000)], "prerank": "PCA", "strength": 0.0, "seed": 0})
    found = refined(seeds.assign(p_value=uniform[0]), seeds.assign(bound=uniform[1]))["p_value"]
    assert np.allclose(found, np.minimum(1.0, 2 * uniform.min(0)))
    assert (found <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    untouched = refined(seeds.assign(p_value=uniform[0]), seeds.iloc[:0].assign(bound=0.0))["p_value"]
    assert np.array_equal(untouched, uniform[0])


def test_bounds_are_of_the_largest_deviation_over_all_projections(results):
    bounds = p_value_bounds(results, "exact").set_index(["dataset", "prerank", "strength", "seed"])["bound"]
    curves = results.curves.query(
        "dataset == 'air' and prerank == 'PCA' and penalty == 'none' and evaluation == 'exact'"
    )
    own = curves[curves["seed"] == 42]
    largest = (own["frequency"] - own["level"]).abs().max()
    assert bounds["air", "PCA", 0.0, 42] == pytest.approx(min(1.0, 6 * 2 * np.exp(-2 * 1000 * largest**2)))
    assert set(bounds.index.get_level_values("prerank")) == {"marginal", "PCA"}
    assert set(bounds.index.get_level_values("strength")) == {0.0, 10.0}


def test_uniform_pits_pass_the_bound(results):
    """Of 400 sets of 1,000 uniform PITs with four projections the bound rejects at most 5 % and some noise."""
    levels = np.linspace(0.01, 0.99, 50)
    pits = np.random.default_rng(11).uniform(size=(400, 4, 1000))
    curves = pd.DataFrame(
        {
            "dataset": "air", "training": "none", "penalty": "none", "strength": 0.0, "evaluation": "exact",
            "prerank": "PCA",
            "seed": np.repeat(np.arange(400), 4 * 50),
            "projection": np.tile(np.repeat(np.arange(1, 5), 50), 400),
            "level": np.tile(levels, 1600),
            "frequency": (pits[..., None, :] <= levels[:, None]).mean(-1).ravel(),
        }
    )  # fmt: skip
    bounds = p_value_bounds(results._replace(curves=curves), "none")["bound"]
    assert len(bounds) == 400
    assert (bounds <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


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
