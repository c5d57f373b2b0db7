"""PITs where members are missing: cases with equally many are ranked together."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prerank.calibration import ProjectedPIT, projected_pit
from prerank.forecasts import Ensemble
from prerank.preranks import PCA, PreRank
from prerank.preranks.selection import of_cases


def pit_of_present_members(
    preranks: Sequence[PreRank],
    ensemble: Ensemble,
    present: Tensor,
    y: Tensor,
    *,
    observation_weights: Tensor | None,
    seed: int,
    case_ids: Tensor,
    fewest: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProjectedPIT:
    """`projected_pit` with all exchangeable points, where `present` (N, M) says which members there are.

    M members give `PCA` at most M directions, so it keeps as many in every case as the one with the `fewest` members has:
    of all cases, of which these may be some. That number depends on how many points a case has and not on which of them is
    the observation, so the points stay exchangeable.
    """
    counts = present.sum(-1)
    fewest = int(counts.min()) if fewest is None else fewest
    preranks, notes = _with_common_components(preranks, fewest, ensemble.n_targets)
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
            of_cases(preranks, cases),
            observation_weights=None if observation_weights is None else observation_weights[cases],
            seed=seed,
            case_ids=case_ids[cases],
            exchangeable=True,
            on_progress=on_progress,
        )
        found.append((cases, count, pit))
    _refuse_different_projections(found)
    joined = ProjectedPIT.of_unequal_cases([(cases, pit) for cases, _, pit in found], case_ids)
    return replace(joined, parts=tuple(replace(part, note=notes.get(part.prerank, part.note)) for part in joined.parts))


def _with_common_components(
    preranks: Sequence[PreRank], fewest: int, n_targets: int
) -> tuple[list[PreRank], dict[str, str]]:
    """The pre-ranks with `PCA` cut to the components that every case has, and what is said of one that is cut."""
    listed: list[PreRank] = []
    notes: dict[str, str] = {}
    for item in preranks:
        if isinstance(item, PCA) and fewest < min(item.n_components or n_targets, n_targets):
            item = replace(item, n_components=fewest)
            notes[item.name] = (
                f"{fewest} of {n_targets} components, as many as the case with the fewest members ({fewest}) has; "
                "leave out cases with few members for more"
            )
        listed.append(item)
    return listed, notes


def _widths(found: list[tuple[Tensor, int, ProjectedPIT]]) -> list[set[int]]:
    """For each pre-rank the numbers of its projections."""
    return [{len(part.names) for part in parts} for parts in zip(*(pit.parts for *_, pit in found), strict=True)]


def _refuse_different_projections(found: list[tuple[Tensor, int, ProjectedPIT]]) -> None:
    for group, part in zip(_widths(found), found[0][2].parts, strict=True):
        if len(group) > 1:
            sizes = [count for _, count, _ in found]
            raise ValueError(
                f"{part.prerank} finds {min(group)} to {max(group)} projections because cases have {min(sizes):,} to "
                f"{max(sizes):,} members; leave it out, or cases with other numbers of members"
            )
