"""From the benchmark's records to cell statistics: a cell is one dataset and one pre-rank.

Two steps, each a pure function of frames. A selection (`baseline`, `penalised`, `on_every_prerank`, `at_tuned_strength`)
gives a row per dataset, pre-rank and seed; `summarise` turns it into a row per cell.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from prerank.datasets import Card
from prerank.training import choose_strength
from prerank_paper.benchmark.plan import NONE, PRERANKS, PUBLISHED_STRENGTH, TOGETHER
from prerank_paper.benchmark.records import Results
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.protocols import AS_PUBLISHED, EXACT

CELL = ["dataset", "prerank"]
_TESTS = ["expected_pce", "corrected", "low", "high", "p_value"]
_SEED_COLUMNS = [*CELL, "strength", "seed", "value", *_TESTS]
_CELL_COLUMNS = [*CELL, "value", "standard_error", "n_seeds", "expected_pce", "corrected", "corrected_error", "p_value"]


class Protocol(NamedTuple):
    """How models were trained (this chooses among the penalised ones; a baseline has no penalty) and evaluated."""

    training: str
    evaluation: str

    @property
    def pce(self) -> str:
        """The record that is this evaluation's PCE: over the whole test set, or the published mean over batches."""
        return "pce" if self.evaluation == EXACT else "pce per 256"

    @property
    def folder(self) -> str:
        return self.evaluation.replace(" ", "-")


EXACT_PROTOCOL = Protocol(EXACT, EXACT)
PUBLISHED_PROTOCOL = Protocol(AS_PUBLISHED, AS_PUBLISHED)
PROTOCOLS = (EXACT_PROTOCOL, PUBLISHED_PROTOCOL)

Tuned = Mapping[Protocol, pd.DataFrame]
"""The strengths of `tuned_strengths`, by protocol."""


def datasets_run(results: Results) -> pd.DataFrame:
    """A row per dataset of the results, in the paper's order, others after: n_targets, n_test, dataset_status, ..."""
    known = [item.name for item in PAPER_DATASETS]
    table = results.fleets.drop_duplicates("dataset").set_index("dataset")
    order = [name for name in known if name in table.index] + [name for name in table.index if name not in known]
    return table.loc[order]


def is_exact(status: str) -> bool:
    """Whether a dataset has the very values that the paper used."""
    return Card(name="", status=status).is_exact


def says_scale(results: Results, dataset: str, prerank: str, evaluation: str) -> bool:
    """Whether a cell is that of scale: with two targets the exact protocol has no dependency of its own."""
    two_targets = int(datasets_run(results)["n_targets"].get(dataset, 0)) == 2
    return evaluation == EXACT and prerank == "dependency" and two_targets


def was_trained(results: Results, training: str, penalties: Collection[str] = ()) -> bool:
    """Whether there is a model of that protocol, with one of the penalties if any are named.

    What nobody asked for is not missing from a report.
    """
    models = results.models[results.models["training"] == training]
    return bool((models["penalty"].isin(penalties) if penalties else models["penalty"] != NONE).any())


def baseline(results: Results, protocol: Protocol, metric: str = "pce", part: str = "test") -> pd.DataFrame:
    """Models without a penalty on every pre-rank; for NLL and energy score the pre-rank is "none"."""
    records = _of_metric(results, protocol, metric, part)
    chosen = records[(records["penalty"] == NONE) & (records["initialisation"] == 0)]
    return _per_seed(chosen, chosen["prerank"].where(chosen["prerank"] != "", NONE))


def penalised(
    results: Results,
    protocol: Protocol,
    metric: str = "pce",
    strength: float | None = PUBLISHED_STRENGTH,
    part: str = "test",
) -> pd.DataFrame:
    """Models with a penalty on one pre-rank, by that pre-rank and evaluated on it; strength None: all strengths.

    A model trained as published with dependency on two targets is evaluated exactly on scale, of which its squared
    difference is an increasing function.
    """
    records = _of_metric(results, protocol, metric, part)
    chosen = records[(records["training"] == protocol.training) & records["penalty"].isin(PRERANKS)]
    if strength is not None:
        chosen = chosen[np.isclose(chosen["strength"], strength)]
    if metric == "pce":
        two_targets = set(datasets_run(results).query("n_targets == 2").index)
        as_scale = (chosen["penalty"] == "dependency") & chosen["dataset"].isin(two_targets)
        own = chosen["penalty"].mask(as_scale & (protocol.evaluation == EXACT), "scale")
        chosen = chosen[chosen["prerank"] == own]
    return _per_seed(chosen, chosen["penalty"])


def on_every_prerank(
    results: Results, protocol: Protocol, penalty: str, strength: float = PUBLISHED_STRENGTH
) -> pd.DataFrame:
    """PCE on every pre-rank of the models with one penalty, whichever it is."""
    records = _of_metric(results, protocol, "pce", "test")
    chosen = records[(records["training"] == protocol.training) & (records["penalty"] == penalty)]
    chosen = chosen[np.isclose(chosen["strength"], strength)]
    return _per_seed(chosen, chosen["prerank"])


def tuned_strengths(results: Results, protocol: Protocol) -> pd.DataFrame:
    """The paper's rule on the validation records: dataset, prerank, value (the strength).

    The PCE of the penalty's own pre-rank and the energy score, both as the protocol evaluates them. Cells without a
    penalised model are left out, and models without finite values do not count.
    """
    penalties = _validation(results, protocol)
    unpenalised = _validation_baseline(results, protocol)
    rows = []
    for (dataset, prerank), candidates in penalties.groupby(CELL, sort=False):
        base = unpenalised[(unpenalised["dataset"] == dataset) & (unpenalised["prerank"] == prerank)]
        if len(base):
            table = pd.concat([base, candidates], ignore_index=True)
            rows.append({"dataset": dataset, "prerank": prerank, "value": choose_strength(table)})
    return pd.DataFrame(rows, columns=[*CELL, "value"]).astype({"value": float})


def at_tuned_strength(
    results: Results, protocol: Protocol, strengths: pd.DataFrame, metric: str = "pce"
) -> pd.DataFrame:
    """Each cell's models at its own strength of `tuned_strengths`; at strength 0 these are the baselines."""
    chosen = strengths.rename(columns={"value": "chosen"})
    rows = penalised(results, protocol, metric, strength=None).merge(chosen, on=CELL)
    plain = baseline(results, protocol, metric)
    if metric != "pce":
        plain = plain.drop(columns="prerank").merge(pd.DataFrame({"prerank": PRERANKS}), how="cross")
    both = pd.concat([rows, plain.merge(chosen, on=CELL)], ignore_index=True)
    return both[np.isclose(both["strength"], both["chosen"])][_SEED_COLUMNS].reset_index(drop=True)


def summarise(seeds: pd.DataFrame) -> pd.DataFrame:
    """A row per cell: mean and standard error over seeds, expected and bias-corrected PCE, and one p-value.

    The p-value is twice the median of the seeds' (at most 1): valid however the seeds depend on each other. A single
    seed has no standard error. Seeds without a finite value are not counted.
    """
    rows = []
    sound = seeds[np.isfinite(seeds["value"])]
    for (dataset, prerank), cell in sound.groupby(CELL, sort=False):
        p_values = cell["p_value"].dropna()
        rows.append(
            {
                "dataset": dataset,
                "prerank": prerank,
                "value": cell["value"].mean(),
                "standard_error": cell["value"].sem(),
                "n_seeds": len(cell),
                "expected_pce": cell["expected_pce"].mean(),
                "corrected": cell["corrected"].mean(),
                "corrected_error": cell["corrected"].sem(),
                "p_value": cell_p_value(p_values) if len(p_values) else np.nan,
            }
        )
    return pd.DataFrame(rows, columns=_CELL_COLUMNS).astype(dict.fromkeys(_CELL_COLUMNS[2:], float))


def table_of(penalty: str) -> str:
    """The paper's table of a penalty on several pre-ranks.

    >>> table_of("PCA + ALL")
    'pce_pca_all'
    """
    return f"pce_{TOGETHER[penalty].lower()}_all"


def paper_cells(results: Results, protocol: Protocol) -> dict[str, pd.DataFrame]:
    """The cells of every table of the paper and of those that it lacks, by name; the names are those of the files."""
    strengths = tuned_strengths(results, protocol)
    cells = {"selected_lambda": strengths}
    for metric, name in (("pce", "pce"), ("nll", "nll"), ("energy score", "energy_score")):
        cells[f"{name}_baseline"] = summarise(baseline(results, protocol, metric))
        cells[f"{name}_regularised"] = summarise(penalised(results, protocol, metric))
        cells[f"{name}_tuned"] = summarise(at_tuned_strength(results, protocol, strengths, metric))
    for penalty in TOGETHER:
        cells[table_of(penalty)] = summarise(on_every_prerank(results, protocol, penalty))
    return cells


def cell_p_value(p_values: pd.Series) -> float:
    """Twice the median of the p-values, at most 1.

    >>> cell_p_value(pd.Series([0.01, 0.02, 0.4]))
    0.04
    """
    return min(1.0, 2.0 * float(p_values.median()))


def failed_models(results: Results) -> pd.DataFrame:
    """The models that have no numbers, with the reason. One that diverged after a sound epoch is not among them."""
    return results.models[results.models["error"].fillna("") != ""].reset_index(drop=True)


def _of_metric(results: Results, protocol: Protocol, metric: str, part: str) -> pd.DataFrame:
    records = results.records
    name = protocol.pce if metric == "pce" else metric
    right = (records["part"] == part) & (records["evaluation"] == protocol.evaluation) & (records["metric"] == name)
    return records[right]


def _per_seed(records: pd.DataFrame, prerank: pd.Series) -> pd.DataFrame:
    return records.assign(prerank=prerank)[_SEED_COLUMNS].reset_index(drop=True)


def _validation(results: Results, protocol: Protocol) -> pd.DataFrame:
    """Validation PCE and score of every penalised model: dataset, prerank, strength, seed, pce, score."""
    by = [*CELL, "strength", "seed"]
    errors = penalised(results, protocol, "pce", None, "validation")[[*by, "value"]].rename(columns={"value": "pce"})
    scores = penalised(results, protocol, "energy score", None, "validation")[[*by, "value"]]
    return _finite(errors.merge(scores.rename(columns={"value": "score"}), on=by))


def _validation_baseline(results: Results, protocol: Protocol) -> pd.DataFrame:
    """The same for the models without a penalty, once for each pre-rank."""
    by = ["dataset", "strength", "seed"]
    errors = baseline(results, protocol, "pce", "validation")[[*by, "prerank", "value"]]
    scores = baseline(results, protocol, "energy score", "validation")[[*by, "value"]]
    return _finite(errors.rename(columns={"value": "pce"}).merge(scores.rename(columns={"value": "score"}), on=by))


def _finite(table: pd.DataFrame) -> pd.DataFrame:
    return table[np.isfinite(table["pce"]) & np.isfinite(table["score"])]
