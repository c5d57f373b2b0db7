"""What a penalty changes, cell by cell: scores and exact PCE against the baselines of the same splits.

The change of a score is that of the median seed. Likelihoods have heavy tails (one test row beyond anything seen in
training can cost millions of nats), so that a mean over seeds or datasets may say nothing but what that row did. That of a
PCE, which is bounded, is the mean over seeds, as in the tables. Whether a change is more than noise is asked of the
differences of the seeds by a two-sided paired t-test (5 %).
"""

import numpy as np
import pandas as pd
from scipy import stats

from prerank_paper.benchmark.plan import PUBLISHED_STRENGTH
from prerank_paper.benchmark.records import Results
from prerank_paper.protocols import EXACT
from prerank_paper.report.summaries import CELL, PROTOCOLS, Protocol, Tuned, at_tuned_strength, baseline, penalised

LEVEL = 0.05
SCORES = {"energy score": "energy score", "nll": "NLL"}
_COLUMNS = [*CELL, "before", "after", "change", "p_value", "n_seeds"]


def changes(before: pd.DataFrame, after: pd.DataFrame, column: str, typical: str) -> pd.DataFrame:
    """A row per cell of two selections of `summaries`: before, after, change, p-value; `typical` is "mean" or "median".

    A baseline without a pre-rank (its scores) serves every cell of its dataset. Seeds without both values do not count;
    a single seed has no p-value.
    """
    by = [name for name in (*CELL, "seed") if name in before]
    both = after[[*CELL, "seed", column]].merge(before[[*by, column]], on=by, suffixes=("", "_before"))
    both = both[np.isfinite(both[column]) & np.isfinite(both[f"{column}_before"])]
    both = both.assign(change=both[column] - both[f"{column}_before"])
    cells = both.groupby(CELL, sort=False)
    table = cells[[f"{column}_before", column, "change"]].agg(typical).set_axis(_COLUMNS[2:5], axis=1)
    own = {name: differences.to_numpy(dtype=float) for name, differences in cells["change"]}
    tests = {
        "p_value": [_t_test(own[name]) for name in table.index],
        "n_seeds": [len(own[name]) for name in table.index],
    }
    return table.assign(**tests).reset_index()[_COLUMNS].astype(dict.fromkeys(_COLUMNS[2:], float))


def _t_test(values: np.ndarray) -> float:
    """The two-sided p-value of differences; that of no change at all is 1."""
    if len(values) < 2:
        return np.nan
    if not values.any():
        return 1.0
    error = values.std(ddof=1) / np.sqrt(len(values))
    return float(2 * stats.t.sf(abs(values.mean()) / error, len(values) - 1)) if error > 0 else 0.0


def score_changes(
    results: Results, protocol: Protocol, metric: str, strengths: float | pd.DataFrame | None = None
) -> pd.DataFrame:
    """`changes` of a score, at one strength (10) or at the `strengths` of `tuned_strengths`."""
    after = _models_at(results, protocol, metric, strengths)
    return changes(baseline(results, protocol, metric).drop(columns="prerank"), after, "value", "median")


def pce_changes(results: Results, protocol: Protocol, strengths: float | pd.DataFrame | None = None) -> pd.DataFrame:
    """`changes` of the PCE that models are penalised by: bias-corrected if evaluated exactly, else as it was published."""
    column = "corrected" if protocol.evaluation == EXACT else "value"
    return changes(baseline(results, protocol), _models_at(results, protocol, "pce", strengths), column, "mean")


def calibration_changes(results: Results, training: str, strengths: pd.DataFrame | None = None) -> pd.DataFrame:
    """`changes` of the bias-corrected exact PCE of models trained in one way, whose own pre-rank has a baseline."""
    return pce_changes(results, Protocol(training, EXACT), strengths)


def _models_at(
    results: Results, protocol: Protocol, metric: str, strengths: float | pd.DataFrame | None
) -> pd.DataFrame:
    if isinstance(strengths, pd.DataFrame):
        return at_tuned_strength(results, protocol, strengths, metric)
    return penalised(results, protocol, metric, PUBLISHED_STRENGTH if strengths is None else strengths)


def counts(cells: pd.DataFrame) -> dict[str, int]:
    """How many cells get worse (rise) and better, and how many of them by more than noise."""
    clear = cells["p_value"] <= LEVEL
    worse, better = cells["change"] > 0, cells["change"] < 0
    return {
        "cells": len(cells),
        "worse": int(worse.sum()),
        "worse, p ≤ 5 %": int((worse & clear).sum()),
        "better": int(better.sum()),
        "better, p ≤ 5 %": int((better & clear).sum()),
        "unchanged": int((cells["change"] == 0).sum()),
    }


def degradation_table(results: Results, tuned: Tuned) -> pd.DataFrame:
    """Does the penalty cost predictive performance? Energy score and NLL, both protocols, strength 10 and tuned."""
    rows = []
    for protocol in PROTOCOLS:
        for what, strengths in _strengths(tuned[protocol]):
            for metric, name in SCORES.items():
                cells = score_changes(results, protocol, metric, strengths)
                label = {"trained": trained(protocol.training), "strength": what, "score": name}
                rows.append(label | counts(cells))
    return pd.DataFrame(rows)


def calibration_table(results: Results, tuned: Tuned) -> pd.DataFrame:
    """Does the penalty calibrate? Bias-corrected exact PCE, both trainings, strength 10 and tuned."""
    rows = []
    for protocol in PROTOCOLS:
        for what, strengths in _strengths(tuned[protocol]):
            cells = calibration_changes(results, protocol.training, strengths)
            medians = {"median before": cells["before"].median(), "median after": cells["after"].median()}
            label = {"trained": trained(protocol.training), "strength": what}
            rows.append(label | counts(cells) | medians)
    return pd.DataFrame(rows)


def by_dataset(results: Results) -> pd.DataFrame:
    """Where does a penalty help? Cells of each dataset whose bias-corrected exact PCE falls at strength 10, by training."""
    table: dict[str, pd.Series] = {}
    for protocol in PROTOCOLS:
        cells = calibration_changes(results, protocol.training)
        groups = cells.groupby("dataset", sort=False)
        if "baseline" not in table:
            table["baseline"] = groups["before"].median()
        how = trained(protocol.training)
        fell = groups["change"].agg(lambda change: int((change < 0).sum()))
        table[f"trained {how}"] = groups["after"].median()
        table[f"better, {how}"] = fell.astype(str) + " of " + groups.size().astype(str)
    return pd.DataFrame(table).rename_axis("dataset").reset_index()


def _strengths(tuned: pd.DataFrame) -> list[tuple[str, pd.DataFrame | None]]:
    return [(f"{PUBLISHED_STRENGTH:g}", None), ("tuned", tuned)]


def trained(training: str) -> str:
    """How models were trained, or evaluated, as tables say it."""
    return "exactly" if training == EXACT else training
