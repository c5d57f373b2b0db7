"""Where the ranks of two projections fall in the plane, and where they would if the members were right."""

import torch
from scipy import stats
from torch import Tensor

from prerank._chunks import chunks
from prerank.calibration import ProjectedPIT
from prerank.calibration.evidence import LEVEL
from prerank.calibration.projected_pits import PreRankPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.plotting.panels import PlaneHistogram


def plane_histogram(pit: ProjectedPIT, first: str, second: str, n_bins: int = 5) -> PlaneHistogram:
    """Observed and expected cases in each cell of the plane of two projections' ranks.

    Two calibrated ranks are each uniform, but together they follow the dependence of the forecast. What is expected of a
    cell is therefore the share of the case's own points in it, observation and members alike, any of which could have
    been the observation. A rank is an interval and counts in every cell by its share. A cell fails if it is beyond what
    chance allows all cells together at 5 %.
    """
    if n_bins < 2:
        raise ValueError(f"n_bins={n_bins}: a histogram has two bins or more")
    (x, own), (y, other) = (_projection(pit, name) for name in (first, second))
    n_cases, n_points = own.lower.shape[:2]
    pick = None if pit.pick is None else pit.pick.double()
    observed, expected, variance = (torch.zeros(n_bins, n_bins, dtype=torch.float64) for _ in range(3))
    for cases in chunks(n_cases, 2 * n_points * n_bins**2, torch.device("cpu")):
        shares = [_shares(one.select(cases, -2), n_bins) for one in (own, other)]
        cells = shares[0][..., :, None] * shares[1][..., None, :]  # (n, P, bins, bins)
        chance = torch.full(cells.shape[:2], 1 / n_points, dtype=torch.float64) if pick is None else pick[cases].cpu()
        mean = (chance[..., None, None] * cells).sum(1)
        observed += cells[:, 0].sum(0)
        expected += mean.sum(0)
        variance += ((chance[..., None, None] * cells.square()).sum(1) - mean.square()).sum(0)
    limit = float(stats.norm.isf(LEVEL / 2 / n_bins**2))
    failed = (observed - expected).abs() > limit * variance.clamp_min(0).sqrt() + 1e-9
    return PlaneHistogram((x, y), observed.numpy(), expected.numpy(), failed.numpy())


def _projection(pit: ProjectedPIT, name: str) -> tuple[str, Intervals]:
    """The ranks of all points, (N, P), of the projection of this name, or of the only one of the pre-rank of this name."""
    known: dict[str, tuple[PreRankPIT, int]] = {}
    for part in pit.parts:
        for k, own in enumerate(part.names):
            known.setdefault(own if len(part.names) > 1 else part.prerank, (part, k))
    if name not in known:
        raise ValueError(f"there is no projection {name!r}; choose from {', '.join(known)}")
    part, k = known[name]
    if part.points is None:
        raise ValueError(f"{name}: its PITs are no ranks among members ({part.method}); draw the plane for an ensemble")
    lower, upper = part.points.bounds()
    return name, Intervals(lower[..., k].cpu().double(), upper[..., k].cpu().double())


def _shares(ranks: Intervals, n_bins: int) -> Tensor:
    """The share of each interval (n, P) in each of equal bins, (n, P, bins)."""
    edges = torch.arange(n_bins + 1, dtype=torch.float64) / n_bins
    lower, upper = ranks.lower[..., None], ranks.upper[..., None]
    width = (upper - lower).clamp_min(1e-12)  # of a number: all of it in one bin
    return ((torch.minimum(lower + width, edges[1:]) - torch.maximum(lower, edges[:-1])) / width).clamp(0.0, 1.0)
