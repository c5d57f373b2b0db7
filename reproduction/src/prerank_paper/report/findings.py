"""What the benchmark says: how many cells are miscalibrated, what a penalty changes, what it costs."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from prerank.calibration import holm
from prerank_paper.benchmark.plan import NONE, PRERANKS, PUBLISHED_STRENGTH
from prerank_paper.benchmark.records import Results
from prerank_paper.report.effects import score_changes
from prerank_paper.report.paper_values import paper_minutes
from prerank_paper.report.published_null import statistic_null
from prerank_paper.report.summaries import (
    CELL,
    EXACT_PROTOCOL,
    PROTOCOLS,
    PUBLISHED_PROTOCOL,
    Protocol,
    Tuned,
    at_tuned_strength,
    baseline,
    datasets_run,
    penalised,
    summarise,
)

LEVEL = 0.05


class Rejections(NamedTuple):
    """Of the cells with an exact test: how many it rejects, and how many after Holm's adjustment over all of them.

    `unresolved` are rejected cells that Holm's adjustment loses although their p-value is the smallest that any model has
    for that pre-rank, as a rule the smallest that the simulation can give.
    """

    cells: int
    rejected: int
    after_holm: int
    unresolved: int


def smallest_p_values(results: Results) -> pd.Series:
    """The smallest p-value of any model, by pre-rank."""
    return results.records.groupby("prerank")["p_value"].min()


def rejections(seeds: pd.DataFrame, smallest: pd.Series) -> Rejections:
    """Count miscalibrated cells of a selection that was evaluated exactly, by the p-value of the cell (5 %).

    `smallest` comes from `smallest_p_values`.
    """
    cells = summarise(seeds).dropna(subset="p_value")
    if cells.empty:
        return Rejections(0, 0, 0, 0)
    p_values = cells["p_value"].to_numpy()
    adjusted = holm(torch.from_numpy(p_values.copy())).numpy()
    at_smallest = p_values <= 2 * smallest.reindex(cells["prerank"]).to_numpy() * (1 + 1e-9)
    lost = (p_values <= LEVEL) & (adjusted > LEVEL) & at_smallest
    return Rejections(len(cells), int((p_values <= LEVEL).sum()), int((adjusted <= LEVEL).sum()), int(lost.sum()))


def rejection_table(results: Results, tuned: Tuned) -> pd.DataFrame:
    """Exact tests of the baselines, and of both trainings at strength 10 and at the tuned strength."""
    smallest = smallest_p_values(results)
    rows = [{"models": "baseline", **rejections(baseline(results, EXACT_PROTOCOL), smallest)._asdict()}]
    for own in PROTOCOLS:
        training, protocol = own.training, Protocol(own.training, EXACT_PROTOCOL.evaluation)
        words = "exactly" if training == EXACT_PROTOCOL.training else training
        for what, seeds in (
            (f"strength {PUBLISHED_STRENGTH:g}", penalised(results, protocol)),
            ("tuned strength", at_tuned_strength(results, protocol, tuned[own])),
        ):
            rows.append({"models": f"trained {words}, {what}", **rejections(seeds, smallest)._asdict()})
    return pd.DataFrame(rows)


def overstated(results: Results) -> pd.DataFrame:
    """Baseline cells under both evaluations: value, expected value and verdict of each.

    By one rule for both, a cell is called miscalibrated if its value (mean over seeds) lies above the 95 % quantile of
    the statistic's null for one seed: `called_miscalibrated` as published, `above_null` exactly. The exact test is that of
    the records: `is_miscalibrated` if the cell's p-value is at most 5 %.
    """
    exact = summarise(baseline(results, EXACT_PROTOCOL))
    published = summarise(baseline(results, PUBLISHED_PROTOCOL))
    both = exact.merge(published, on=CELL, suffixes=("_exact", "_published"))
    n_test = datasets_run(results)["n_test"]

    def limits(protocol: Protocol) -> np.ndarray:
        return np.array(
            [statistic_null(protocol, int(n_test[name])).quantile(1 - LEVEL) for name in both["dataset"]], dtype=float
        )

    return pd.DataFrame(
        {
            "dataset": both["dataset"],
            "prerank": both["prerank"],
            "exact": both["value_exact"],
            "exact_null": both["expected_pce_exact"],
            "published": both["value_published"],
            "published_null": both["expected_pce_published"],
            "called_miscalibrated": both["value_published"] > limits(PUBLISHED_PROTOCOL),
            "above_null": both["value_exact"] > limits(EXACT_PROTOCOL),
            "is_miscalibrated": both["p_value_exact"] <= LEVEL,
        }
    )


def price(results: Results, protocol: Protocol, strengths: float | pd.DataFrame | None = None) -> pd.DataFrame:
    """What the penalty costs the median seed of each cell: energy score (relative) and NLL (absolute).

    At one strength (10), or at the `strengths` of `tuned_strengths`.
    """
    energy = score_changes(results, protocol, "energy score", strengths)
    nll = score_changes(results, protocol, "nll", strengths)
    relative = energy[CELL].assign(energy_score=energy["change"] / energy["before"])
    return relative.merge(nll[CELL].assign(nll=nll["change"]), on=CELL, how="outer")


def price_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Quartiles over datasets of `price`, per pre-rank and over all cells: no mean, which one likelihood can decide."""
    rows = []
    for name in (*PRERANKS, "all"):
        own = cells if name == "all" else cells[cells["prerank"] == name]
        if own.empty:
            continue
        row: dict[str, object] = {"pre-rank": name, "cells": len(own)}
        for column, words in (("energy_score", "energy score"), ("nll", "NLL")):
            for share, which in ((0.25, "lower quartile"), (0.5, "median"), (0.75, "upper quartile")):
                row[f"{words}, {which}"] = own[column].quantile(share)
        rows.append(row)
    return pd.DataFrame(rows)


def computing_table(results: Results) -> pd.DataFrame:
    """What each fleet took: one fleet trains all models of a dataset and a protocol at once.

    The ratio is the authors' minutes for one model (mean over the pre-ranks, S = 100) over the fleet's time by model.
    """
    order = {name: place for place, name in enumerate(datasets_run(results).index)}
    fleets = results.fleets.sort_values(
        ["dataset", "training"], key=lambda c: c.map(order) if c.name == "dataset" else c
    )
    recorded = paper_minutes().query("n_draws == 100").groupby("dataset")["minutes"].mean()
    by_model = fleets["seconds"] / fleets["n_models"]
    table = pd.DataFrame(
        {
            "dataset": fleets["dataset"],
            "training": fleets["training"],
            "device": fleets["device"],
            "sessions": fleets["sessions"].fillna(1).astype(int) if "sessions" in fleets else 1,
            "D": fleets["n_targets"],
            "n_train": fleets["n_train"],
            "models": fleets["n_models"],
            "steps": fleets["steps"],
            "ms per step": fleets["ms_per_step"],
            "seconds": fleets["seconds"],
            "peak GiB": fleets["peak_bytes"].where(fleets["peak_bytes"] > 0) / 2**30,  # none is known of a CPU
            "seconds per model": by_model,
            "authors' ratio": 60 * fleets["dataset"].map(recorded) / by_model,
        }
    )
    if "beside" in fleets and (fleets["beside"].fillna(1) > 1).any():
        table.insert(4, "beside", fleets["beside"].fillna(1).astype(int))
    return table.reset_index(drop=True)


def model_minutes(results: Results) -> pd.DataFrame:
    """Minutes per model and pre-rank from the timings, beside the authors' where they recorded them.

    Ours: milliseconds per step and model (a fleet's step divided by its models) times the mean number of steps that
    the models of that penalty and strength 10 took until their early stop. A timing serves all datasets with as many
    targets, one of its own first.
    """
    models = results.models[np.isclose(results.models["strength"], PUBLISHED_STRENGTH)]
    steps = models.groupby(["dataset", "training", "penalty"], sort=False)["steps"].mean().rename("model_steps")
    wanted = steps.reset_index().rename(columns={"penalty": "prerank"})
    targets = datasets_run(results)["n_targets"]
    timed = results.timings.rename(columns={"dataset": "timed_on"})
    timed = timed.assign(n_targets=timed["timed_on"].map(targets)).drop(columns="device")
    ours = wanted.assign(n_targets=wanted["dataset"].map(targets)).merge(timed, on=["n_targets", "training", "prerank"])
    ours = ours.assign(other=ours["dataset"] != ours["timed_on"]).sort_values("other", kind="stable")
    ours = ours.drop_duplicates(["dataset", "training", "prerank", "n_draws"])
    ours = ours.assign(minutes=ours["ms_per_step"] / ours["n_models"] * ours["model_steps"] / 60_000)
    theirs = paper_minutes().rename(columns={"minutes": "authors_minutes"})
    both = ours.merge(theirs, on=["dataset", "prerank", "n_draws"], how="left")
    both = both.assign(ratio=both["authors_minutes"] / both["minutes"])
    order = {name: place for place, name in enumerate(targets.index)}
    both = both.sort_values(
        ["dataset", "training", "prerank", "n_draws"], key=lambda c: c.map(order) if c.name == "dataset" else c
    )
    columns = ["dataset", "training", "prerank", "n_draws", "model_steps", "minutes", "authors_minutes", "ratio"]
    return both[both["prerank"] != NONE][columns].reset_index(drop=True)
