r"""Projected PITs: where the observation's projection stands among the forecast's (the paper's $Z_\rho$).

How a PIT is computed is a value: `ClosedForm()`, `RandomisedRank()`, `EmpiricalRank()` (the paper's Algorithm 1) or
`SmoothRank()` (for training). Without one, the exact way is taken: closed form for a linear pre-rank of a Gaussian
mixture, otherwise the rank as an interval, from which no number is drawn.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._chunks import chunks
from prerank._parallel import in_threads, single_threaded
from prerank.arrays import as_observations
from prerank.arrays.precision import in_one_precision, precision_of
from prerank.calibration.checks import refuse_bad_input, require_how, require_whole
from prerank.calibration.projected_pits import PITsEndToEnd, PreRankPIT, ProjectedPIT
from prerank.calibration.ranking import closed_form_pit, empirical_rank_pit, has_closed_form, rank_pit, smooth_rank_pit
from prerank.calibration.smooth_rank import SmoothRank
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, differentiable_draws, equally_weighted_draws
from prerank.preranks.custom import call_only_ours
from prerank.preranks.exchangeable_points import CanonicalPoints, canonical_points, reference_subset
from prerank.preranks.selection import of_cases
from prerank.preranks.table1 import PreRank, listed_preranks
from prerank.preranks.view import DistributionView, PointsView, View
from prerank.randomness import case_keys

HIDES_ERROR = 0.02  # mean share of the observation among all points


@dataclass(frozen=True)
class ClosedForm:
    """The CDF of the projection itself: exact, no draws. For linear pre-ranks of a `GaussianMixture`."""


@dataclass(frozen=True)
class RandomisedRank:
    """(members below + U x (ties + 1)) / (M + 1): PIT values that are exactly uniform under calibration, ties included.

    U depends on (seed, case, pre-rank) alone. For values to hand on; errors and tests need no U, see `projected_pit`.
    """


@dataclass(frozen=True)
class EmpiricalRank:
    """Share of members at or below the observation (Algorithm 1): lives on M + 1 values, so never quite uniform."""


How = ClosedForm | RandomisedRank | EmpiricalRank | SmoothRank


@single_threaded()
def projected_pit(
    y: Tensor,
    forecast: Forecast,
    preranks: PreRank | Sequence[PreRank] | None = None,
    how: How | None = None,
    *,
    observation_weights: Tensor | None = None,
    n_draws: int = 100,
    seed: int = 0,
    case_ids: Tensor | None = None,
    exchangeable: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> ProjectedPIT:
    r"""PIT of each projection, $Z = \hat F_{T \mid X}(T)$: y (..., N, D) -> intervals (..., N, K).

    `preranks` is one or several, which are computed on the same members and stand side by side; those of the paper
    without it. A distribution is evaluated by closed form where there is one, otherwise among `n_draws` equally weighted
    draws. A rank among M members is the interval [below, below + ties + 1] / (M + 1); errors and tests take the mean over a
    uniform number in it, so that nothing depends on how ties are broken. `RandomisedRank()` draws that number.
    For an `Ensemble` with weights, uniformity is exact only with `observation_weights` (..., N), the weight that the
    observation itself carries (an importance ratio, say); without it the PIT is that of the weighted members,
    approximate of order one over the effective size, and `exact` is False. With it, a PIT is an interval as long
    as the observation's share, whose mean is the result's `own_weight`: above 0.02, and twice that of equal weights, it
    hides error and brings a warning. Draws of a model depend on (`seed`, `case_ids`) alone. `exchangeable=True` also ranks
    every other point, which tests of ranks that tie need; a closed form has none.

    From more than 1,000 members without a `reference`, 250 are set aside for the pre-ranks to learn from (directions,
    density, joint CDF), and the observation is ranked among the others: exact, and the cost grows with M instead of M².
    Cases go in chunks, so that memory stays near that of the result; `on_progress(done, total)` is told after each.
    NaN or infinite values, shapes that do not match, and a case without members are refused. One member is enough (two
    possible ranks), so is one case.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations; their leading axes are the forecast's, or left out.
    forecast : Ensemble or Distribution
        Members, a `GaussianMixture` or a torch distribution, for the same cases and targets.
    preranks : PreRank or sequence of PreRank, optional
        Those of the paper by default.
    how : ClosedForm, RandomisedRank, EmpiricalRank or SmoothRank, optional
        How PITs are computed; the exact way by default.
    observation_weights : Tensor, shape (..., n_cases), optional
        The weight that each observation itself carries, for an `Ensemble` with weights.
    n_draws : int, default 100
        Equally weighted draws of a distribution that observations are ranked among.
    seed : int, default 0
        Of everything random.
    case_ids : Tensor of int, shape (n_cases,), optional
        Numbers that name the cases for everything that is keyed by `seed`: 0, 1, ... by default.
    exchangeable : bool, default False
        Whether every other point of a case is ranked, too.
    on_progress : callable, optional
        Called as `on_progress(done, total)`, in cases, after each chunk; not called where all cases are one chunk.

    Returns
    -------
    ProjectedPIT
        PITs of all projections, those of one pre-rank beside those of the next.

    Raises
    ------
    ValueError
        For NaN or infinite values, shapes that do not match, negative weights, and observation weights of members that
        have none.
    TypeError
        If `forecast` is no forecast, `preranks` are no pre-ranks or `how` is no way to compute a PIT, and if `ClosedForm()`
        meets a pre-rank or a forecast that has no closed form.

    Warns
    -----
    UserWarning
        If the observation's own weight is so large that PITs hide error.

    Examples
    --------
    >>> from prerank import Ensemble, Location
    >>> y, members = torch.zeros(2, 3), torch.ones(2, 9, 3)
    >>> pit = projected_pit(y, Ensemble(members), Location())
    >>> pit.lower.squeeze(), pit.upper.squeeze(), pit.method
    (tensor([0., 0.], dtype=torch.float64), tensor([0.1000, 0.1000], dtype=torch.float64), 'rank among 9 members')
    """
    precision, y = precision_of(y), as_observations(y)
    refuse_bad_input(y, forecast, observation_weights)
    if isinstance(forecast, Ensemble) and not y.requires_grad:
        y, members, _ = in_one_precision(y.to(forecast.members.device), forecast.members, precision, forecast.precision)
        forecast = replace(forecast, members=members)
    ids = torch.arange(y.shape[-2], device=y.device) if case_ids is None else case_ids.to(y.device)
    listed = listed_preranks(preranks, y.shape[-1])
    require_how(how, (ClosedForm, RandomisedRank, EmpiricalRank, SmoothRank))
    n_draws, seed = require_whole(n_draws, "n_draws"), require_whole(seed, "seed", at_least=None)
    if isinstance(how, SmoothRank) and exchangeable:
        raise ValueError("smooth PITs are for training and have no test; leave exchangeable=True or SmoothRank() out")

    def some(cases: slice | None) -> ProjectedPIT:
        if cases is None:
            return _of_all_cases(listed, forecast, y, how, observation_weights, n_draws, seed, ids, exchangeable)
        own = None if observation_weights is None else observation_weights[..., cases]
        part = forecast.select(cases)  # type: ignore[union-attr]
        preranks = of_cases(listed, cases)
        return _of_all_cases(preranks, part, y[..., cases, :], how, own, n_draws, seed, ids[cases], exchangeable)

    slices = _slices(forecast, y, how, n_draws)
    if len(slices) == 1:
        return _with_warning(some(None), observation_weights)
    joined = PITsEndToEnd(ids)

    def take(cases: slice, pit: ProjectedPIT) -> None:
        joined.add(cases, pit)
        if on_progress is not None:
            on_progress(cases.stop, y.shape[-2])

    spread = y.device.type == "cpu" and call_only_ours(listed) and getattr(forecast, "may_be_spread", True)
    in_threads(some, slices, take, spread=spread)
    return _with_warning(joined.whole(), observation_weights)


def hidden_error(pit: ProjectedPIT) -> str | None:
    """What is to be said of PITs with the observation's own weight, if that is so large that they hide error.

    Parameters
    ----------
    pit : ProjectedPIT
        PITs, as `projected_pit` gives them with `observation_weights`.

    Returns
    -------
    str or None
        A sentence; None where the weight is small, equal or unknown.
    """
    own = pit.own_weight
    if own is None or pit.pick is None or own <= max(HIDES_ERROR, 2 / pit.pick.shape[-1]):
        return None
    return (
        f"the observation's own weight is {own:.2g} on average: above {HIDES_ERROR:g} a PIT is mostly a random number and "
        "hides error; rank among equally weighted draws instead"
    )


def _with_warning(pit: ProjectedPIT, observation_weights: Tensor | None) -> ProjectedPIT:
    said = None if observation_weights is None else hidden_error(pit)
    if said is not None:
        warnings.warn(said, stacklevel=4)  # the caller of the decorated function
    return pit


def _with_reference(forecast: Forecast) -> tuple[Forecast, str]:
    """A very large bare ensemble in two parts: members to learn from, and members to rank."""
    if not isinstance(forecast, Ensemble) or forecast.reference is not None:
        return forecast, ""
    subset = reference_subset(forecast.n_members)
    if subset is None:
        return forecast, ""
    subset = subset.to(forecast.members.device)
    rest = torch.ones(forecast.n_members, dtype=torch.bool, device=subset.device)
    rest[subset] = False
    ranked = rest.nonzero()[:, 0]
    weights, own = forecast.weights, None
    if weights is not None:
        weights, own = weights[..., ranked], weights[..., subset]
    reference = Ensemble(forecast.members[..., subset, :], own)
    note = f"learnt from {len(subset)} of {forecast.n_members:,} members, the others are ranked"
    return Ensemble(forecast.members[..., ranked, :], weights, reference), note


def _of_all_cases(
    preranks: Sequence[PreRank],
    forecast: Forecast,
    y: Tensor,
    how: How | None,
    observation_weights: Tensor | None,
    n_draws: int,
    seed: int,
    ids: Tensor,
    exchangeable: bool,
) -> ProjectedPIT:
    forecast, note = _with_reference(forecast)
    members = forecast if isinstance(forecast, Ensemble) else None  # draws of a law are made for who ranks them
    points, view = None, None
    if isinstance(forecast, Ensemble) and not isinstance(how, SmoothRank):
        points = _points(forecast, forecast, y)
    if _has_one_pool(forecast, how):
        members, view = forecast.draws_and_view(y, n_draws, seed, ids)  # type: ignore[union-attr]
    else:
        view = _view(forecast, points, y, seed, ids, isinstance(how, SmoothRank))
    weights, pick, exact = None, None, True
    if members is not None and members.weights is not None and not isinstance(how, SmoothRank):
        # Algorithm 1 gives the observation no weight; a rank gives it its own, if that is known
        exact = observation_weights is not None and not isinstance(how, EmpiricalRank)
        own = observation_weights if exact else torch.zeros_like(members.weights[..., 0])
        weights = torch.cat([own[..., None].to(members.weights), members.weights], -1)  # type: ignore[index]
        pick = weights / weights.sum(-1, keepdim=True)
    parts = []
    for item in preranks:
        projection = item.given(view)
        if isinstance(how, ClosedForm) or (how is None and has_closed_form(projection, forecast)):
            parts.append(_noted(closed_form_pit(item, projection, forecast, y), note))
            continue
        if members is None:
            members = _draws(forecast, n_draws, seed, ids, how)  # type: ignore[arg-type]
        if isinstance(how, SmoothRank):
            part = smooth_rank_pit(item, projection, members, y, how)
        else:
            if points is None:
                points = _points(forecast, members, y)
            if isinstance(how, EmpiricalRank):
                part = empirical_rank_pit(item, projection, points, weights, exchangeable)
            else:
                keys = case_keys(seed, ids, "randomised rank", item.name) if isinstance(how, RandomisedRank) else None
                part = rank_pit(item, projection, points, weights, exact, keys, exchangeable)
        parts.append(_noted(part, note))
    return ProjectedPIT(tuple(parts), ids, pick)


def _noted(part: PreRankPIT, note: str) -> PreRankPIT:
    if not note or not part.note:  # a pre-rank that learns nothing has nothing to say about it
        return part
    return replace(part, note=f"{part.note}, {note}")


def _has_one_pool(forecast: Forecast, how: How | None) -> bool:
    """Whether a law gives the draws to rank and what pre-ranks ask at once, because draws cost most of the work.

    Among these draws are copies of the observation, which an empirical rank counts as below it.
    """
    return hasattr(forecast, "draws_and_view") and (how is None or isinstance(how, RandomisedRank))


def _slices(forecast: Forecast, y: Tensor, how: How | None, n_draws: int) -> list[slice]:
    """Chunks of cases whose temporaries stay small; one for all where gradients flow or a law cannot be cut."""
    whole = [slice(None)]
    if isinstance(how, SmoothRank):
        return whole
    if _has_one_pool(forecast, how):
        return forecast.slices_to_rank(n_draws)  # type: ignore[union-attr]
    if isinstance(forecast, GaussianMixture):
        inputs = [forecast.logits, forecast.loc, forecast.scale_tril]
        per_point = forecast.n_targets * forecast.n_components
        n_points = n_draws + 1
    elif isinstance(forecast, Ensemble) and (forecast.reference is None or hasattr(forecast.reference, "select")):
        inputs, per_point, n_points = [forecast.members], forecast.n_targets, forecast.n_members + 1
    else:
        return whole
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in [y, *inputs]):
        return whole
    lead = 1
    for size in inputs[0].shape[: inputs[0].ndim - (2 if isinstance(forecast, GaussianMixture) else 3)]:
        lead *= size
    return chunks(y.shape[-2], lead * n_points * per_point, y.device)


def _draws(law: Distribution, n_draws: int, seed: int, ids: Tensor, how: How | None) -> Ensemble:
    """The draws of a law that are ranked."""
    if isinstance(how, SmoothRank):
        return differentiable_draws(law, n_draws, seed, case_ids=ids)
    # a stream of their own: `forecast.ensemble(1)` as observations must not be one of the draws that rank them
    return equally_weighted_draws(law, n_draws, seed, "ranked members", ids)


def _points(forecast: Forecast, members: Ensemble, y: Tensor) -> CanonicalPoints:
    """The observation and the members, the observation first, and the same in an order that does not know which it is.

    Members that are given are ranked in double precision, draws in that of their model.
    """
    points = _pooled(y, members)
    return canonical_points(points.double() if isinstance(forecast, Ensemble) else points)


def _view(forecast: Forecast, points: CanonicalPoints | None, y: Tensor, seed: int, ids: Tensor, smooth: bool) -> View:
    """What the pre-ranks may look at: the distribution, the reference, or members pooled with the observation."""
    known = forecast.reference if isinstance(forecast, Ensemble) else forecast
    if known is None:
        pooled = _pooled(y, forecast) if points is None else points.ordered  # type: ignore[arg-type]
        return PointsView(Ensemble(pooled), smooth, seed, ids)
    if isinstance(known, Ensemble):
        return PointsView(known, smooth, seed, ids)
    return DistributionView(known, seed, ids, smooth)  # type: ignore[arg-type]


def _pooled(y: Tensor, members: Ensemble) -> Tensor:
    """The observation and the members, (..., N, M + 1, D), the observation first."""
    return torch.cat([y[..., None, :].expand(*members.members.shape[:-2], 1, -1), members.members], -2)
