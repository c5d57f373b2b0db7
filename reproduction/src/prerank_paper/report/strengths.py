"""Two of the paper's claims about the penalty: more strength calibrates more and costs more (appendix D), and the PCEs of
the datasets lie closer together with it (section 5.2).

Each is asked of models trained and evaluated in one way, and of those trained as published and evaluated exactly.
"""

from collections.abc import Mapping

import pandas as pd
from scipy import stats

from prerank_paper.benchmark.plan import NONE, PRERANKS
from prerank_paper.benchmark.records import Results
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.report.effects import pce_changes, trained
from prerank_paper.report.findings import price
from prerank_paper.report.summaries import CELL, PROTOCOLS, Protocol, baseline, penalised, summarise

ASKED = (*PROTOCOLS, Protocol(AS_PUBLISHED, EXACT))
Along = Mapping[Protocol, pd.DataFrame]
"""The cells of `along_strengths`, by how models were trained and evaluated."""

_MEASURES = {"PCE": "PCE", "energy_score": "energy score", "nll": "NLL"}
_WHICH = ["trained", "evaluated"]
_BY_STRENGTH = [
    *_WHICH,
    "strength",
    "cells",
    "PCE",
    "PCE lower",
    "energy score",
    "energy score worse",
    "NLL",
    "NLL worse",
]
_TRENDS = [*_WHICH, "cells", "strengths", "PCE falls", "energy score rises", "NLL rises"]
_TIGHTNESS = [*_WHICH, "pre-rank", "datasets", "before", "after", "seeds before", "seeds after"]


def along_strengths(results: Results, protocol: Protocol) -> pd.DataFrame:
    """A row per cell and strength, 0 among them: PCE, and the changes of energy score (relative) and NLL (`price`).

    The PCE is that of the penalised pre-rank, bias-corrected if evaluated exactly; a cell without a baseline has no row.
    """
    records = results.records
    wanted = (records["part"] == "test") & (records["evaluation"] == protocol.evaluation)
    wanted &= records["penalty"].isin([NONE, *PRERANKS]) & records["training"].isin([NONE, protocol.training])
    results = results._replace(records=records[wanted])  # once, and not for every strength
    parts = []
    for strength in sorted(results.records.loc[results.records["penalty"] != NONE, "strength"].unique()):
        cells = pce_changes(results, protocol, float(strength)).merge(
            price(results, protocol, float(strength)), on=CELL
        )
        parts.append(cells.assign(strength=strength, PCE=cells["after"]))
    if not parts:
        return pd.DataFrame(columns=[*CELL, "strength", *_MEASURES])
    plain = pd.concat(parts).drop_duplicates(CELL)
    parts.insert(0, plain.assign(strength=0.0, PCE=plain["before"], energy_score=0.0, nll=0.0))
    return pd.concat(parts, ignore_index=True)[[*CELL, "strength", *_MEASURES]]


def all_along(results: Results) -> Along:
    """`along_strengths` of every way to train and evaluate that is asked about."""
    return {protocol: along_strengths(results, protocol) for protocol in ASKED}


def strength_table(along: Along) -> pd.DataFrame:
    """Medians over cells at every strength, and how many cells lie below (PCE) or above (scores) no penalty at all."""
    rows = []
    for protocol, cells in along.items():
        plain = cells[cells["strength"] == 0].set_index(CELL)["PCE"]
        for strength, found in cells.groupby("strength"):
            before = plain.reindex(pd.MultiIndex.from_frame(found[CELL])).to_numpy()
            counted = [
                int((found["PCE"] < before).sum()),
                *(int((found[name] > 0).sum()) for name in ("energy_score", "nll")),
            ]
            medians = [found[name].median() for name in _MEASURES]
            pairs = [value for pair in zip(medians, counted, strict=True) for value in pair]
            rows.append([*_manner(protocol), strength, len(found), *pairs])
    return pd.DataFrame(rows, columns=_BY_STRENGTH)


def trend_table(along: Along) -> pd.DataFrame:
    """In how many cells PCE falls, and scores rise, with the strength: by the sign of Spearman's rank correlation.

    Cells that lack a strength do not count; a measure that is the same at all strengths neither falls nor rises.
    """
    rows = []
    for protocol, cells in along.items():
        strengths = sorted(cells["strength"].unique())
        trends = []
        for _, cell in cells.groupby(CELL):
            if len(cell) == len(strengths) > 1:
                trends.append([_rank_correlation(cell["strength"], cell[name]) for name in _MEASURES])
        signs = pd.DataFrame(trends, columns=list(_MEASURES), dtype=float)
        counted = [int((signs["PCE"] < 0).sum()), int((signs["energy_score"] > 0).sum()), int((signs["nll"] > 0).sum())]
        rows.append([*_manner(protocol), len(signs), len(strengths), *counted])
    return pd.DataFrame(rows, columns=_TRENDS)


def tightness_table(results: Results) -> pd.DataFrame:
    """How far the PCEs of datasets lie apart before and after the penalty at strength 10, by pre-rank.

    `before` and `after` are interquartile ranges over the datasets that have both; `seeds before` and `seeds after` the
    medians over these datasets of the standard deviation over seeds.
    """
    rows = []
    for protocol in ASKED:
        both = summarise(baseline(results, protocol)).merge(
            summarise(penalised(results, protocol)), on=CELL, suffixes=(" before", " after")
        )
        for name in PRERANKS:
            own = both[both["prerank"] == name]
            if own.empty:
                continue
            ranges = [_interquartile_range(own[f"value {when}"]) for when in ("before", "after")]
            over_seeds = [
                (own[f"standard_error {when}"] * own[f"n_seeds {when}"] ** 0.5).median() for when in ("before", "after")
            ]
            rows.append([*_manner(protocol), name, len(own), *ranges, *over_seeds])
    return pd.DataFrame(rows, columns=_TIGHTNESS)


def _manner(protocol: Protocol) -> tuple[str, str]:
    return trained(protocol.training), trained(protocol.evaluation)


def _rank_correlation(strengths: pd.Series, values: pd.Series) -> float:
    if not values.notna().all() or values.nunique() < 2:
        return 0.0
    return float(stats.spearmanr(strengths, values).statistic)


def _interquartile_range(values: pd.Series) -> float:
    return float(values.quantile(0.75) - values.quantile(0.25))
