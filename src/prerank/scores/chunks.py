"""Score many cases in chunks, so that pairs of members never fill the memory."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prerank._chunks import at_once
from prerank._parallel import in_threads
from prerank.scores.estimators import Pairing


class Members(NamedTuple):
    """Points (n, M, D) and their shares (n, M), which sum to one."""

    points: Tensor
    share: Tensor


# observations (n, D), the first set, the second (None: the first again), factor (n,) -> scores (n,) or (n, K)
CaseScore = Callable[[Tensor, Members, Members | None, Tensor], Tensor]


def over_cases(score: CaseScore, y: Tensor, pairing: Pairing, elements_per_case: int) -> Tensor:
    """Apply `score` to all cases, as many at a time as fit a chunk; leading axes come back.

    With gradients, each of several chunks is computed again on the way back instead of being kept, so that they too
    need the memory of one chunk.
    """
    ensembles = [pairing.first] if pairing.second is None else [pairing.first, pairing.second]
    cases = torch.Size(np.broadcast_shapes(y.shape[:-1], *(ensemble.members.shape[:-2] for ensemble in ensembles)))
    flat = [_flatten(y, cases, 1)]
    for ensemble in ensembles:
        flat += [_flatten(ensemble.members, cases, 2), _flatten(ensemble.probabilities, cases, 1)]
    flat.append(_flatten(pairing.factor, cases, 0))

    def one(*chunk: Tensor) -> Tensor:
        observed, *sets, factor = chunk
        return score(observed, Members(*sets[:2]), Members(*sets[2:]) if len(sets) > 2 else None, factor)

    count, size = flat[0].shape[0], at_once(elements_per_case, y.device)
    if count <= size:
        return one(*flat).unflatten(0, cases)
    pieces = list(zip(*(tensor.split(size) for tensor in flat), strict=True))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in flat):
        scores = [checkpoint(one, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
        return torch.cat(scores).unflatten(0, cases)
    # Written into one tensor instead of collected: small results left between large temporaries split the heap, which
    # then grows with the number of chunks (measured: 8 MB against up to 230 MB).
    result = torch.empty(0)

    def write(number: int, part: Tensor) -> None:
        nonlocal result
        if number == 0:
            result = part.new_empty(count, *part.shape[1:])
        result[number * size : (number + 1) * size] = part

    in_threads(lambda number: one(*pieces[number]), range(len(pieces)), write, spread=y.device.type == "cpu")
    return result.unflatten(0, cases)


def _flatten(values: Tensor, cases: torch.Size, own_axes: int) -> Tensor:
    shape = values.shape[values.ndim - own_axes :]
    return values.expand(*cases, *shape).reshape(-1, *shape)
