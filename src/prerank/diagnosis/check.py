"""`check`: the one call a forecaster makes."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import (
    PCETest,
    PreRank,
    ProjectedPIT,
    paper_preranks,
    pce_test,
    projected_pit,
)
from prerank.calibration.inputs import checked_case_ids
from prerank.calibration.preranks import Marginal
from prerank.diagnosis.missing import complete_in_blocks, pit_of_present_members
from prerank.diagnosis.preparation import Prepared, prepare
from prerank.diagnosis.progress import check_progress
from prerank.diagnosis.result import LEVEL, Check, tables
from prerank.forecast import Ensemble, as_tensor


def check(
    y: Any,
    forecast: Any,
    preranks: Sequence[PreRank] | PreRank | None = None,
    *,
    axes: tuple[str, ...] | None = None,
    scale: Literal["auto", "pooled", "none"] = "auto",
    case_weights: Any = None,
    observation_weights: Any = None,
    blocks: Any = None,
    case_ids: Any = None,
    n_draws: int = 100,
    n_replicates: int = 999,
    power: float = 1,
    seed: int = 0,
) -> Check:
    """Is the joint forecast calibrated, and if not, how?

    `y` (N, D) are observations, `forecast` members (N, M, D), an `Ensemble`, a `GaussianMixture` or a torch
    distribution; NumPy, torch or pandas. `axes` names the axes of an array in another order, such as
    ("member", "case", "target"). `preranks` are those of the paper unless said otherwise.

    Missing values: a member with NaN is left out of its case, which is then ranked among those present; a case whose
    observation has NaN is dropped; both are counted in the notes. `scale="pooled"` divides each target by the pooled
    spread of members and observations; "auto" does so when spreads differ more than tenfold, and says so.
    `case_weights` (N,) weigh the cases (interval and corrected PCE stay empty then). `blocks` (N,) labels dependent
    cases (a date, say), which are then exchanged with the same member: p-values, intervals (from 20 blocks on), corrected
    PCE and bands all follow. `observation_weights` (N,) belong to weighted members, see `projected_pit`.

    No result depends on how ties are broken. Draws of a distribution, the replicates of the tests and the bootstrap are
    keyed by `seed` and by `case_ids` (N,), whole numbers or labels; without them cases are named by their position, and
    then another order of the cases is another set of names.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(300, 21, 3))
    >>> result = check(truth[:, 0], truth[:, 1:])
    >>> result.calibrated
    True
    >>> check(truth[:, 0], 0.6 * truth[:, 1:]).table.loc["location", "reading"]
    'under-dispersed'
    """
    if scale not in ("auto", "pooled", "none"):
        raise ValueError(f'scale={scale!r}: say "auto", "pooled" or "none"')
    prepared = prepare(y, forecast, axes, scale)
    names = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else None
    chosen = _chosen(preranks, prepared.y.shape[-1])
    device = prepared.y.device
    weights = _per_case(case_weights, "case_weights", prepared, device)
    own = _per_case(observation_weights, "observation_weights", prepared, device)
    labels = _block_labels(blocks, prepared)
    ids = _case_ids(case_ids, prepared)
    pit = _pit(chosen, prepared, own, labels, ids, n_draws, seed)
    marginal = next((item.name for item in chosen if isinstance(item, Marginal)), None)
    if names is not None and marginal is not None:
        pit = pit.renamed(marginal, names)
    test = pce_test(pit, power=power, n_replicates=n_replicates, seed=seed, blocks=labels, case_weights=weights)
    notes = [*prepared.notes, *_few_values(prepared, names)]
    if not pit.exact:
        notes.append(f"PITs: {pit.method}")
    notes.extend(f"{group}: {note}" for group, note in pit.notes.items())
    notes.append(_monte_carlo(pit, n_replicates))
    return Check(
        *tables(pit, test, labels, weights),
        pit,
        test,
        tuple(notes),
        len(prepared.y),
        None if labels is None else len(labels.unique()),
        float(test.attainable),
        n_replicates,
        None if weights is None else weights.cpu().double(),
    )


def _pit(
    preranks: list[PreRank],
    prepared: Prepared,
    observation_weights: Tensor | None,
    blocks: Tensor | None,
    case_ids: Tensor,
    n_draws: int,
    seed: int,
) -> ProjectedPIT:
    """PITs of the observation and of all points that could have been it."""
    law = prepared.forecast
    size = law.members.numel() if isinstance(law, Ensemble) else n_draws * prepared.y.numel()
    with check_progress(size) as on_progress:
        if prepared.present is not None:
            assert isinstance(law, Ensemble)
            present = prepared.present if blocks is None else complete_in_blocks(prepared.present, blocks)
            if not present.any(-1).all():
                raise ValueError(
                    "a block has no member that is present in all of its cases; drop such blocks or members"
                )
            return pit_of_present_members(
                preranks,
                law,
                present,
                prepared.y,
                observation_weights=observation_weights,
                seed=seed,
                case_ids=case_ids,
                on_progress=on_progress,
            )
        return projected_pit(
            preranks,
            law,
            prepared.y,
            observation_weights=observation_weights,
            n_draws=n_draws,
            seed=seed,
            case_ids=case_ids,
            exchangeable=True,
            on_progress=on_progress,
        )


def _monte_carlo(pit: ProjectedPIT, n_replicates: int) -> str:
    """What of the result is simulated, and how precise it is."""
    error = (LEVEL * (1 - LEVEL) / n_replicates) ** 0.5
    return f"p-values from {n_replicates:,} exchange replicates: at {LEVEL} their standard error is {error:.3f}"


def check_pits(pit: Any, names: Sequence[str] | None = None) -> Check:
    """The same table for PITs computed elsewhere: (N,) or (N, K), one row per column.

    The columns' dependence is unknown, so p-values are corrected by Holm's method, which holds under any.

    >>> check_pits(np.linspace(0.001, 0.999, 200)).calibrated
    True
    """
    if names is None and isinstance(pit, pd.DataFrame):
        names = [str(name) for name in pit.columns]
    values = as_tensor(pit, "pit")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"pit has shape {tuple(values.shape)}; give (N,) or (N, K)")
    missing = values.isnan().any(-1)
    notes = [f"{int(missing.sum())} of {len(values)} cases dropped: a PIT is missing"] if missing.any() else []
    values = values[~missing]
    if len(values) == 0:
        raise ValueError("there are no PITs: at least one case is needed")
    labels = tuple(names) if names is not None else tuple(f"pit {k + 1}" for k in range(values.shape[1]))
    if len(labels) != values.shape[1] or len(set(labels)) != len(labels):
        raise ValueError(f"{len(labels)} names for {values.shape[1]} columns of PITs; each needs a name of its own")
    pit = ProjectedPIT.of_values(values, labels, labels)
    columns = [pce_test(pit.of(label)) for label in labels]
    per_column = [name for name in PCETest._fields if name not in ("groups", "attainable")]
    joined = {name: torch.cat([getattr(column, name) for column in columns], -1) for name in per_column}
    joined["corrected_p_value"] = holm(joined["p_value"])
    test = PCETest(groups=labels, attainable=torch.zeros(()), **joined)
    return Check(*tables(pit, test, None, None), pit, test, tuple(notes), len(values))


def _chosen(preranks: Sequence[PreRank] | PreRank | None, n_targets: int) -> list[PreRank]:
    if preranks is None:
        return list(paper_preranks(n_targets))
    return list(preranks) if isinstance(preranks, Sequence) else [preranks]


def _per_case(values: Any, what: str, prepared: Prepared, device: torch.device) -> Tensor | None:
    """A number per case of the user's, cut to the cases that are left."""
    if values is None:
        return None
    tensor = as_tensor(values, what).to(device)
    if tensor.ndim != 1 or len(tensor) <= int(prepared.cases.max()):
        raise ValueError(f"{what} has shape {tuple(tensor.shape)}; one number per case is needed")
    return tensor[prepared.cases]


def _case_ids(case_ids: Any, prepared: Prepared) -> Tensor:
    """Whole numbers that name the cases that are left; their positions where no names are given."""
    if case_ids is None:
        return prepared.cases
    return checked_case_ids(case_ids, prepared.n_given)[prepared.cases.cpu()].to(prepared.y.device)


def _block_labels(blocks: Any, prepared: Prepared) -> Tensor | None:
    if blocks is None:
        return None
    if not isinstance(prepared.forecast, Ensemble):
        raise ValueError(
            "blocks= needs an ensemble whose members run through the cases of a block; a distribution has none"
        )
    array = np.asarray(blocks)
    if array.ndim != 1 or len(array) <= int(prepared.cases.max()):
        raise ValueError(f"blocks have shape {array.shape}; one label per case is needed")
    _, labels = np.unique(array, return_inverse=True)
    return torch.as_tensor(labels)[prepared.cases.cpu()].to(prepared.y.device)


def _few_values(prepared: Prepared, names: list[str] | None) -> list[str]:
    """A continuous forecast of a target that takes few values cannot have uniform PITs: say so."""
    notes = []
    y = prepared.y
    for d in range(y.shape[-1]):
        observed = len(y[:, d].unique())
        if len(y) < 5 * observed or len(y) < 20:
            continue
        if isinstance(prepared.forecast, Ensemble):
            members = prepared.forecast.members[..., d]
            if len(members[: max(1, 20_000 // members.shape[1])].unique()) <= 4 * observed:
                continue  # the members take few values too, and ties are ranked fairly
        name = names[d] if names else f"y{d + 1}"
        notes.append(
            f"{name} takes only {observed} values in {len(y)} cases: no continuous forecast of it can be uniform"
        )
    return notes


def holm(p_values: Tensor) -> Tensor:
    """p-values (n,) corrected for having looked n times, valid under any dependence (Holm 1979)."""
    order = p_values.argsort()
    count = len(p_values)
    factors = torch.arange(count, 0, -1, dtype=p_values.dtype)
    adjusted = (p_values[order] * factors).cummax(0).values.clamp_max(1.0)
    return torch.empty_like(p_values).scatter_(0, order, adjusted)
