"""PITs where members are missing: cases with equally many are ranked together."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prerank.calibration import PreRank, ProjectedPIT, projected_pit
from prerank.forecast import Ensemble


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
    return ProjectedPIT.of_unequal_cases([(cases, pit) for cases, _, pit in found], case_ids)


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
