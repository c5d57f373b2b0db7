"""What the pictures of a check show: histograms, curves and consistency bands, computed once for figure and report."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prerank.calibration import PCETest, ProjectedPIT, centred_levels, reliability_curve
from prerank.calibration.projected_pits import PreRankPIT
from prerank.plotting.panels import CrossedHeat, GroupHeat, PreRankPanel, ProjectionPanel, ratio

if TYPE_CHECKING:
    import pandas as pd

_BINS = 10  # of PITs that are numbers, and of more ranks than a picture can show one by one
_MOST_RANKS = 20


def panels(
    pit: ProjectedPIT,
    test: PCETest,
    table: "pd.DataFrame",
    projections: "pd.DataFrame",
    case_weights: Tensor | None,
    level: float,
    sentences: Mapping[str, str],
) -> list[PreRankPanel]:
    """One panel per pre-rank, from the PITs of a check, its test, its two tables and its sentences."""
    levels = centred_levels()
    found, start = [], 0
    every = projections.to_dict("records")
    for part, row in zip(pit.parts, table.to_dict("records"), strict=True):
        own = pit.of(part.prerank)
        n_ranks = _few_ranks(part)
        n_bins = n_ranks or _BINS
        curve, heights = _curves_and_heights(own, levels, n_bins, case_weights)
        curve = curve - levels.numpy()[:, None]
        columns = slice(start, start + len(part.names))
        start = columns.stop
        spread = test.spread[:, columns].cpu().numpy()
        width, failed = float(row["band"]), bool(row["adjusted p-value"] <= level)
        lines = every[columns]
        found.append(
            PreRankPanel(
                part.prerank,
                tuple(
                    ProjectionPanel(
                        str(name),
                        heights[k],
                        curve[:, k],
                        width * spread[:, k],
                        float(line["PCE"]),
                        float(line["expected PCE"]),
                        float(line["adjusted p-value"]),
                        str(line["reading"]),
                        failed and bool(line["adjusted p-value"] <= level),
                    )
                    for k, (name, line) in enumerate(zip(part.names, lines, strict=True))
                ),
                levels.numpy(),
                _band_of_bins(
                    spread, test.projection_expected_pce[columns].cpu().numpy(), n_bins, pit.n_cases, case_weights
                ),
                float(row["PCE"]),
                float(row["expected PCE"]),
                float(row["low"]),
                float(row["high"]),
                float(row["p-value"]),
                float(row["adjusted p-value"]),
                str(row["reading"]),
                failed,
                sentences.get(part.prerank, ""),
                n_ranks is not None,
            )
        )
    return found


def _few_ranks(part: PreRankPIT) -> int | None:
    """How many ranks there are, if so few that each can have its bar: one more than members of equal weight."""
    if part.observed.are_values or part.n_members is None or part.n_members + 1 > _MOST_RANKS:
        return None
    ends = torch.stack(part.observed.bounds()) * (part.n_members + 1)
    return part.n_members + 1 if bool(((ends - ends.round()).abs() < 1e-6).all()) else None


def group_heat(tables: "Mapping[Any, pd.DataFrame]", adjusted: Sequence[float], level: float) -> GroupHeat:
    """The heat map of groups, from the tables of their checks and their p-values adjusted for the groups."""
    preranks = list(dict.fromkeys(str(name) for table in tables.values() for name in table.index))
    ratios = np.full((len(tables), len(preranks)), np.nan)
    failed = np.zeros(ratios.shape, dtype=bool)
    for g, table in enumerate(tables.values()):
        for name, row in zip(table.index, table.to_dict("records"), strict=True):
            place = g, preranks.index(str(name))
            ratios[place] = ratio(float(row["PCE"]), float(row["expected PCE"]))
            failed[place] = adjusted[g] <= level and row["adjusted p-value"] <= level
    return GroupHeat(tuple(map(str, tables)), tuple(preranks), ratios, failed, np.asarray(adjusted))


def crossed_heat(heat: GroupHeat, groups: Sequence[tuple[Any, Any]], titles: Sequence[str]) -> CrossedHeat:
    """The heat map of groups that two labels make, as a table of the two; labels stand in the order of the groups."""
    rows, columns = (list(dict.fromkeys(group[part] for group in groups)) for part in (0, 1))
    ratios = np.full((len(rows), len(columns)), np.nan)
    failed = np.zeros(ratios.shape, dtype=bool)
    for k, (row, column) in enumerate(groups):
        place = rows.index(row), columns.index(column)
        ratios[place] = np.nanmax(heat.ratios[k])
        failed[place] = heat.failed[k].any()
    texts = [tuple(str(label).removesuffix(" 00:00:00") for label in labels) for labels in (rows, columns)]
    return CrossedHeat((titles[0], titles[1]), texts[0], texts[1], ratios, failed)


def _curves_and_heights(
    pit: ProjectedPIT, levels: Tensor, n_bins: int, case_weights: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Reliability curves (J, K) and histogram densities (K, bins), which are the rises of the curve from edge to edge."""
    edges = torch.arange(1, n_bins + 1, dtype=torch.float64) / n_bins
    joined, order = torch.cat([levels, edges]).sort(stable=True)
    weights = None if case_weights is None else case_weights.to(pit.device)
    found = reliability_curve(pit, levels=joined.to(pit.device), case_weights=weights).frequency.cpu().double()
    curve = torch.empty_like(found).index_copy_(0, order, found).numpy()
    shares = np.diff(curve[len(levels) :], axis=0, prepend=0.0)
    return curve[: len(levels)], shares.T * n_bins


def _band_of_bins(
    spread: np.ndarray, expected: np.ndarray, n_bins: int, n_cases: int, case_weights: Tensor | None
) -> tuple[float, float]:
    """Densities between which all bins of all projections stay with probability 95 % or more under calibration.

    Counts of independent cases are binomial, and the band holds for each bin at 5 % over the number of bins and projections.
    Dependent cases count as fewer: as many as, if independent, would have the PCE that is expected of the dependent ones.
    `spread` (J, K) is that of the curves if cases are independent, from which their expected PCE follows.
    """
    size = float(n_cases) if case_weights is None else float(case_weights.sum() ** 2 / case_weights.square().sum())
    independent = spread.mean(0) * (2 / np.pi) ** 0.5  # the mean of |x| for a normal x
    inflation = np.divide(expected, independent, out=np.ones_like(expected), where=independent > 1e-12)
    count = max(1, int(size / max(1.0, float(inflation.max())) ** 2 + 1e-9))
    return _band_of_counts(count, spread.shape[1], n_bins)


@lru_cache(maxsize=1024)
def _band_of_counts(n_cases: int, n_projections: int, n_bins: int) -> tuple[float, float]:
    from scipy import stats  # loads slowly

    share = 1.0 / n_bins
    tail = 0.05 / n_bins / n_projections / 2
    ends = stats.binom.ppf(tail, n_cases, share), stats.binom.isf(tail, n_cases, share)
    return float(ends[0]) / n_cases / share, float(ends[1]) / n_cases / share
