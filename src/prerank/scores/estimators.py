r"""How a score's spread term is estimated from members.

Every kernel score (energy, variogram, CRPS) of a forecast F is $E\,d(X, y) - \frac12 E\,d(X, X')$ with independent
X, X' from F. Members estimate the first term without bias. The second needs pairs, and the estimators differ in which
pairs they take and how they weight them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prerank._chunks import at_once
from prerank._parallel import in_threads
from prerank.forecasts import Ensemble
from prerank.inputs.checks import require_members
from prerank.scores.inputs import as_dtype


class Pairing(NamedTuple):
    r"""The two sets whose pairs make the spread term, $c \sum_{ij} w_i w'_j\, d(x_i, x'_j)$.

    `second` is None where the first set is paired with itself; `factor` c is (..., N) or a single number.
    """

    first: Ensemble
    second: Ensemble | None
    factor: Tensor

    @property
    def n_members(self) -> int:
        """Members of both sets together, of the first where it is alone."""
        return self.first.n_members + (0 if self.second is None else self.second.n_members)

    @property
    def n_pairs(self) -> int:
        """Pairs of members whose distance is computed."""
        return self.first.n_members * (self.first if self.second is None else self.second).n_members


@dataclass(frozen=True)
class Fair:
    r"""Pairs of different members: $\sum_{ij} w_i w_j d(x_i, x_j) / (1 - \sum_i w_i^2)$, the default.

    For equal weights the divisor of the sum is M (M - 1): the score is then unbiased for that of the distribution the
    members were drawn from, whatever their number. Use it to compare forecasts with different members or weights. It
    can be negative. Undefined for one member.

    With weights it is unbiased only if they do not depend on the members' values. Weights that do, such as importance
    ratios that turn draws of one forecast into another, bias it: for 200 draws of a Gaussian too narrow by a factor
    0.8 with exact density ratios the energy score is too high by 0.31 ± 0.08 % for 4 targets, by 0.80 ± 0.10 % for 16.
    Score equally weighted draws of the corrected forecast instead.

    Examples
    --------
    >>> Fair().pair(Ensemble(torch.zeros(1, 5, 2))).factor
    tensor(1.2500)
    """

    def pair(self, forecast: Ensemble) -> Pairing:
        """Choose the pairs of members that give the spread term.

        Parameters
        ----------
        forecast : Ensemble
            The members that are scored.

        Returns
        -------
        Pairing
            Two sets of members and the factor of their mean distance.
        """
        if forecast.weights is None:
            if forecast.n_members < 2:
                raise ValueError(_too_few(f"the forecast has M = {forecast.n_members} member"))
            count = forecast.n_members
            return Pairing(forecast, None, forecast.members.new_tensor(count / (count - 1)))
        share = forecast.probabilities
        different = (share * (1 - share)).sum(-1)  # 1 - sum w^2, without its rounding error for dominant members
        # zero up to the rounding of shares that sum to one: a single member carries everything
        alone = different <= 4 * torch.finfo(share.dtype).eps
        if bool(alone.any()):
            found = f"in {int(alone.sum())} of {alone.numel()} cases one member carries all the weight"
            raise ValueError(_too_few(found))
        return Pairing(forecast, None, 1 / different)


def _too_few(found: str) -> str:
    return (
        f"{found}, so Fair() has no pair of different members to measure the spread with; "
        "pass at least two members with weight, or Paper() to score a point forecast by its distance"
    )


@dataclass(frozen=True)
class Paper:
    r"""All pairs, a member with itself included: $\sum_{ij} w_i w_j d(x_i, x_j)$, so $1/(2 G^2)$ for G draws.

    The score of the members as a discrete distribution: never negative, defined for one member (the distance), and
    too high by (spread) / (2 G) for the distribution they were drawn from. Use it for the formula of the paper or when
    the members are the forecast. Favours large ensembles.

    Examples
    --------
    >>> Paper().pair(Ensemble(torch.zeros(1, 5, 2))).factor
    tensor(1.)
    """

    def pair(self, forecast: Ensemble) -> Pairing:
        """Choose the pairs of members that give the spread term.

        Parameters
        ----------
        forecast : Ensemble
            The members that are scored.

        Returns
        -------
        Pairing
            Two sets of members and the factor of their mean distance.
        """
        return Pairing(forecast, None, forecast.members.new_ones(()))


@dataclass(frozen=True)
class TwoSets:
    r"""All pairs between two independent sets: $\sum_{ij} w_i w'_j\, d(x_i, x'_j)$, unbiased.

    The distance to the observation comes from the first set alone. The sets are the forecast and `other`, or, without
    `other`, the first floor(M/2) members and the rest, which must then be exchangeable (independent draws are; sorted
    members are not). The protocol behind the paper's published numbers: a distribution with `n_draws=200` makes two
    sets of 100 draws. Noisier than `Fair` at the same M, so use it for that protocol only.

    Parameters
    ----------
    other : Ensemble, optional
        The second set. Without it the members of the forecast are halved.

    Examples
    --------
    >>> pairing = TwoSets().pair(Ensemble(torch.zeros(1, 5, 2)))
    >>> pairing.first.n_members, pairing.second.n_members
    (2, 3)
    """

    other: Ensemble | None = field(default=None, repr=False)

    def pair(self, forecast: Ensemble) -> Pairing:
        """Choose the pairs of members that give the spread term.

        Parameters
        ----------
        forecast : Ensemble
            The members that are scored.

        Returns
        -------
        Pairing
            Two sets of members and the factor of their mean distance.
        """
        return Pairing(*self._sets(forecast), forecast.members.new_ones(()))

    def _sets(self, forecast: Ensemble) -> tuple[Ensemble, Ensemble]:
        members = forecast.members
        if self.other is not None:
            require_members(self.other, "TwoSets(other=)")
            shape, others = tuple(members.shape), tuple(self.other.members.shape)
            if (shape[:-2], shape[-1]) != (others[:-2], others[-1]):
                raise ValueError(
                    f"TwoSets(other=) has members {others}, the forecast {shape}; only the number of members may differ"
                )
            return forecast, as_dtype(self.other, members.dtype)
        if forecast.weights is not None:
            raise ValueError(
                f"TwoSets() would cut {forecast.n_members} weighted members in halves, which need not follow the same "
                "forecast; pass the second set as TwoSets(other=Ensemble(members, weights)), or use Fair()"
            )
        if forecast.n_members < 2:
            raise ValueError(
                f"TwoSets() cannot halve M = {forecast.n_members} member; pass at least two, TwoSets(other=...), "
                "or Paper() to score a point forecast by its distance"
            )
        half = forecast.n_members // 2
        return Ensemble(members[..., :half, :]), Ensemble(members[..., half:, :])


Estimator = Fair | Paper | TwoSets
"""How members give the spread term of a score: `Fair()`, `Paper()` or `TwoSets()`."""


def pair(estimator: Estimator, forecast: Ensemble) -> Pairing:
    """The pairing of an estimator; names and classes in its place are refused."""
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator={estimator!r}; pass one of the values Fair(), Paper() and TwoSets()")
    return estimator.pair(forecast)


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
