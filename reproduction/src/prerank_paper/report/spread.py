"""How far a baseline depends on where its training started, and whether the paper's lies within that.

The paper's cell is a mean over five splits with one network each. Ours has the same splits, row by row, and several networks
for each. What differs is chance in training, so a cell agrees if it lies within two standard deviations of that chance.
"""

import numpy as np
import pandas as pd

from prerank_paper.benchmark.plan import NONE
from prerank_paper.benchmark.records import Results
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.summaries import CELL, PUBLISHED_PROTOCOL, datasets_run, is_exact

WITHIN = 0.2
_ROUNDED = 0.0005  # the paper prints three decimals
_COLUMNS = [*CELL, "value", "deviation", "initialisations", "value_paper", "within 20 %", "within 2 deviations"]


def baseline_networks(results: Results) -> pd.DataFrame:
    """As-published test PCE of every baseline network: dataset, prerank, seed, initialisation, value."""
    records = results.records
    right = (records["part"] == "test") & (records["evaluation"] == PUBLISHED_PROTOCOL.evaluation)
    right &= (records["metric"] == PUBLISHED_PROTOCOL.pce) & (records["penalty"] == NONE)
    found = records.loc[right, [*CELL, "seed", "initialisation", "value"]]
    return found[np.isfinite(found["value"])].reset_index(drop=True)


def against_spread(results: Results) -> pd.DataFrame:
    """A row per baseline cell that the paper prints, of datasets with its values and several initialisations.

    `value` is the mean over splits and initialisations. `deviation` is the standard deviation of the difference between
    the paper's mean over S splits and ours over S x I networks: with s that of networks of one split, s √((1 + 1/I) / S).
    """
    status = datasets_run(results)["dataset_status"].to_dict()
    printed = {(r["dataset"], r["prerank"]): float(r["value"]) for r in paper_table("pce_baseline").to_dict("records")}
    rows = []
    for (dataset, prerank), networks in baseline_networks(results).groupby(CELL, sort=False):
        by_split = networks.groupby("seed")["value"]
        fewest = int(by_split.size().min())
        if fewest < 2 or (dataset, prerank) not in printed or not is_exact(status[dataset]):
            continue
        within = float(np.sqrt(by_split.var().mean()))
        deviation = within * np.sqrt((1 + 1 / fewest) / by_split.ngroups)
        value, paper = float(by_split.mean().mean()), printed[dataset, prerank]
        off = abs(value - paper)
        close = off <= WITHIN * paper, off <= 2 * deviation + _ROUNDED
        rows.append([dataset, prerank, value, deviation, fewest, paper, *close])
    return pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(_COLUMNS[-2:], bool))


def spread_shares(cells: pd.DataFrame) -> str:
    """In words, how many of the cells of `against_spread` agree by either rule."""
    by_share, by_spread = (int(cells[name].sum()) for name in _COLUMNS[-2:])
    return (
        f"Of {len(cells)} baseline cells with several initialisations, {by_share} lie within 20 % of the paper's and "
        f"{by_spread} within two standard deviations of what another initialisation gives."
    )
