"""PITs where members are missing: cases with equally many are ranked together."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prerank.calibration import PreRank, ProjectedPIT, projected_pit
from prerank.calibration.intervals import Intervals
from prerank.calibration.projectedpit import PreRankPIT
from prerank.forecast import Ensemble


def complete_in_blocks(present: Tensor, blocks: Tensor) -> Tensor:
    """Members (N, M) that are present in every case of their block: only these can be exchanged as a whole."""
    labels = torch.unique(blocks, return_inverse=True)[1]
    absent = torch.zeros(int(labels.max()) + 1, present.shape[1], dtype=torch.long, device=present.device)
    absent.index_add_(0, labels, (~present).long())
    return (absent == 0)[labels]


def pit_of_present_members(
    preranks: Sequence[PreRank],
    ensemble: Ensemble,
    present: Tensor,
    y: Tensor,
    *,
    observation_weights: Tensor | None,
    seed: int,
    case_ids: Tensor,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProjectedPIT:
    """`projected_pit` with all exchangeable points, where `present` (N, M) says which members there are."""
    counts = present.sum(-1)
    order = torch.argsort(present.to(torch.int8), dim=-1, descending=True, stable=True)
    found: list[tuple[Tensor, int, ProjectedPIT]] = []
    for count in counts.unique().tolist():
        cases = (counts == count).nonzero()[:, 0]
        kept = order[cases, :count]
        some = ensemble.select(cases)
        weights = None if some.weights is None else some.weights.gather(1, kept)
        members = some.members.gather(1, kept[..., None].expand(-1, -1, ensemble.n_targets))
        pit = projected_pit(
            y[cases],
            Ensemble(members, weights, some.reference),
            preranks,
            observation_weights=None if observation_weights is None else observation_weights[cases],
            seed=seed,
            case_ids=case_ids[cases],
            exchangeable=True,
            on_progress=on_progress,
        )
        found.append((cases, count, pit))
    _refuse_different_projections(found, ensemble.n_targets)
    parts = tuple(_joined([pit.parts[g] for *_, pit in found], found, len(y)) for g in range(len(preranks)))
    most = max(_n_points(pit) for *_, pit in found)
    pick = torch.zeros(len(y), most, dtype=torch.float64, device=y.device)
    for cases, _, pit in found:
        pick[cases, : _n_points(pit)] = 1.0 / _n_points(pit) if pit.pick is None else pit.pick.double()
    return ProjectedPIT(parts, case_ids, pick)


def _n_points(pit: ProjectedPIT) -> int:
    points = pit.parts[0].points
    assert points is not None
    return points.lower.shape[-2]


def _widths(found: list[tuple[Tensor, int, ProjectedPIT]]) -> list[set[int]]:
    """For each pre-rank the numbers of its projections."""
    return [{len(part.names) for part in parts} for parts in zip(*(pit.parts for *_, pit in found), strict=True)]


def _refuse_different_projections(found: list[tuple[Tensor, int, ProjectedPIT]], n_targets: int) -> None:
    widths = next((w for w in _widths(found) if len(w) > 1), {0})
    if len(widths) > 1:
        sizes = [count for _, count, _ in found]
        raise ValueError(
            f"PCA finds {min(widths)} to {max(widths)} projections because cases have {min(sizes)} to {max(sizes)} "
            f"members; ask for PCA(n_components={min(*sizes, n_targets)})"
        )


def _joined(parts: list[PreRankPIT], found: list[tuple[Tensor, int, ProjectedPIT]], n_cases: int) -> PreRankPIT:
    """One pre-rank's PITs of all cases; points that a case lacks have rank 0 and are never picked."""
    first = max(parts, key=lambda part: part.observed.lower.shape[-2])  # its notes speak for most cases
    counts = [count for _, count, _ in found]
    most = max(part.points.lower.shape[-2] for part in parts if part.points is not None)
    n_projections = len(first.names)
    like = first.points
    assert like is not None
    device = like.lower.device
    lower = torch.zeros(n_cases, most, n_projections, dtype=like.lower.dtype, device=device)
    upper = torch.zeros_like(lower)
    ends = torch.zeros(2, n_cases, n_projections, dtype=torch.float64, device=device)
    unit = torch.ones(n_cases, dtype=torch.long, device=device)
    tied = torch.zeros_like(first.tied)
    ties = torch.zeros_like(first.ties)
    for (cases, _, _), part in zip(found, parts, strict=True):
        assert part.points is not None
        size = part.points.lower.shape[-2]
        lower[cases, :size], upper[cases, :size] = part.points.lower, part.points.upper
        ends[0, cases], ends[1, cases] = part.observed.bounds()
        unit[cases] = part.points.unit if isinstance(part.points.unit, int) else part.points.unit.to(unit)
        tied += part.tied * (len(cases) / n_cases)
        ties += part.ties * (len(cases) / n_cases)
    whole = bool((unit == 1).all())
    return replace(
        first,
        observed=Intervals(ends[0], ends[1]),
        method=first.method.replace(f"{first.n_members} members", f"{min(counts)} to {max(counts)} members"),
        tied=tied,
        ties=ties,
        n_members=None,
        points=Intervals(lower, upper, 1 if whole else unit),
    )
