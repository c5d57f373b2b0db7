"""More strength calibrates more and costs more, or not; the spread over datasets and seeds is what the definitions say."""

import numpy as np
import pytest

from prerank_paper.report.strengths import all_along, along_strengths, strength_table, tightness_table, trend_table
from prerank_paper.report.summaries import EXACT_PROTOCOL, PUBLISHED_PROTOCOL, baseline, penalised

COUNTS = ("PCE falls", "energy score rises", "NLL rises")


def with_values(results, column, change):
    """Results whose records have other values: `change` is given the frame of those that are chosen."""
    records = results.records.copy()
    chosen = records["penalty"].isin(["none", "scale"])
    records.loc[chosen, column] = change(records[chosen])
    return results._replace(records=records)


def scale_row(cells):
    return cells[(cells["dataset"] == "air") & (cells["prerank"] == "scale")].set_index("strength")


def test_a_pce_that_falls_and_scores_that_rise_are_counted_as_such(results):
    rising = with_values(results, "value", lambda rows: 10 + rows["strength"])
    falling = with_values(rising, "corrected", lambda rows: 1 / (1 + rows["strength"]))
    along = {EXACT_PROTOCOL: along_strengths(falling, EXACT_PROTOCOL).query("prerank == 'scale'")}
    (row,) = trend_table(along).to_dict("records")
    assert [row[name] for name in ("cells", "strengths", *COUNTS)] == [3, 3, 3, 3, 3]
    cells = scale_row(along[EXACT_PROTOCOL])
    assert cells["PCE"].tolist() == pytest.approx([1, 1 / 2, 1 / 11])
    assert cells["energy_score"].tolist() == pytest.approx([0, 0.1, 1.0])
    assert cells["nll"].tolist() == pytest.approx([0, 1, 10])


def test_what_is_the_same_at_every_strength_neither_falls_nor_rises(results):
    constant = with_values(with_values(results, "value", lambda rows: 1.0), "corrected", lambda rows: 0.5)
    along = {EXACT_PROTOCOL: along_strengths(constant, EXACT_PROTOCOL).query("prerank == 'scale'")}
    (row,) = trend_table(along).to_dict("records")
    assert [row[name] for name in ("cells", *COUNTS)] == [3, 0, 0, 0]


def test_a_cell_without_one_of_the_strengths_does_not_count(results):
    records = results.records
    lost = (records["dataset"] == "air") & (records["penalty"] == "PCA") & (records["strength"] == 10.0)
    whole, partial = (
        trend_table({EXACT_PROTOCOL: along_strengths(results._replace(records=part), EXACT_PROTOCOL)})
        for part in (records, records[~lost])
    )
    assert whole["cells"].item() - partial["cells"].item() == 1
    assert partial["strengths"].item() == 3


def test_a_strength_has_the_medians_of_its_cells(results):
    along = all_along(results)
    table = strength_table(along).set_index(["trained", "evaluated", "strength"])
    cells = along[PUBLISHED_PROTOCOL].query("strength == 10")
    row = table.loc[("as published", "as published", 10.0)]
    assert row["PCE"] == pytest.approx(cells["PCE"].median())
    after, before = penalised(results, PUBLISHED_PROTOCOL), baseline(results, PUBLISHED_PROTOCOL)
    means = [part.groupby(["dataset", "prerank"])["value"].mean() for part in (before, after)]
    assert row["PCE lower"] == (means[1] < means[0]).sum()
    assert table.xs(0.0, level="strength")[["PCE lower", "energy score", "NLL"]].eq(0).all(axis=None)


def test_the_spread_is_that_over_datasets_and_over_seeds(results):
    table = tightness_table(results).set_index(["trained", "evaluated", "pre-rank"])
    seeds = baseline(results, EXACT_PROTOCOL).query("prerank == 'HDR'").groupby("dataset")["value"]
    low, high = np.quantile(seeds.mean(), [0.25, 0.75])
    assert table.loc[("exactly", "exactly", "HDR"), "before"] == pytest.approx(high - low)
    assert table.loc[("exactly", "exactly", "HDR"), "seeds before"] == pytest.approx(np.median(seeds.std()))
    # dependency of two targets has no exact baseline, so that house does not count
    assert table.loc[("exactly", "exactly", "dependency"), "datasets"] == 2


def test_without_penalised_models_there_is_nothing_to_say(results):
    plain = results._replace(records=results.records[results.records["penalty"] == "none"])
    assert strength_table(all_along(plain)).empty
    assert (trend_table(all_along(plain))["cells"] == 0).all()
    assert tightness_table(plain).empty
