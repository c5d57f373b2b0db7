"""Score many cases in chunks, so that pairs of members never fill the memory."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prerank.scores.estimators import Pairing

# Intermediate numbers per chunk. A million (4 or 8 MB) stays near a CPU's cache, where it is fastest, and is enough to
# keep a GPU busy.
ELEMENTS = 1 << 20


class Members(NamedTuple):
    """Points (n, M, D) and their shares (n, M), which sum to one."""

    points: Tensor
    share: Tensor


# observations (n, D), the first set, the second (None: the first again), factor (n,) -> scores (n,) or (n, K)
CaseScore = Callable[[Tensor, Members, Members | None, Tensor], Tensor]


def over_cases(score: CaseScore, y: Tensor, pairing: Pairing, elements_per_case: int) -> Tensor:
    """Apply `score` to all cases, as many at a time as `ELEMENTS` allows; leading axes come back.

    With gradients, each of several chunks is computed again on the way back instead of being kept, so that they too
    need the memory of one chunk.
    """
    ensembles = [pairing.first] if pairing.second is None else [pairing.first, pairing.second]
    cases = torch.broadcast_shapes(y.shape[:-1], *(ensemble.members.shape[:-2] for ensemble in ensembles))
    flat = [_flatten(y, cases, 1)]
    for ensemble in ensembles:
        flat += [_flatten(ensemble.members, cases, 2), _flatten(ensemble.probabilities, cases, 1)]
    flat.append(_flatten(pairing.factor, cases, 0))

    def one(*chunk: Tensor) -> Tensor:
        observed, *sets, factor = chunk
        return score(observed, Members(*sets[:2]), Members(*sets[2:]) if len(sets) > 2 else None, factor)

    size = max(1, ELEMENTS // elements_per_case)
    if flat[0].shape[0] <= size:
        return one(*flat).unflatten(0, cases)
    recompute = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in flat)
    scores = []
    for chunk in zip(*(tensor.split(size) for tensor in flat), strict=True):
        if recompute:
            scores.append(checkpoint(one, *chunk, use_reentrant=False, preserve_rng_state=False))
        else:
            scores.append(one(*chunk))
    return torch.cat(scores).unflatten(0, cases)


def _flatten(values: Tensor, cases: torch.Size, own_axes: int) -> Tensor:
    shape = values.shape[values.ndim - own_axes :]
    return values.expand(*cases, *shape).reshape(-1, *shape)
