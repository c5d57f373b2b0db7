"""The corrected forecast: a distribution with a density that is multiplied by a function of its own PITs."""

import math
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank._parallel import in_threads, single_threaded
from prerank._wording import shape_in_words
from prerank.forecasts import Ensemble, can_be_cut, case_by_case, equally_weighted_draws
from prerank.forecasts.batching import CaseByCase
from prerank.preranks import view_of
from prerank.preranks.exchangeable_points import spread_matrix
from prerank.randomness import case_keys, uniform
from prerank.recalibration.basis import log_tilt
from prerank.recalibration.batching import may_be_spread, select, some_cases
from prerank.recalibration.pit_coordinates import LearntPITs, OldPITs

if TYPE_CHECKING:
    from prerank.preranks import View

_Result = TypeVar("_Result")

POOL_PER_DRAW = 2
MOST_KEPT = 1 << 26  # numbers of a pool that is kept
LARGEST_POOL = 10  # times the usual one: beyond it a few copies cost less than draws


class Moments(NamedTuple):
    """What a pool of draws says of every case: log normaliser and its error (N,), mean, covariance, effective size."""

    log_normaliser: Tensor
    log_normaliser_error: Tensor
    mean: Tensor
    covariance: Tensor
    effective_size: Tensor


class Tilted(Distribution):
    r"""$f^*(y \mid x) \propto f(y \mid x) \exp \sum_{kj} \theta_{jk} b_j(Z_k(y; x))$ with f = `base` and PITs Z under f.

    The base may be a `Tilted` itself: draws then come from the forecast at the bottom, its `root`, and weigh by all tilts at
    once.

    Draws are equally weighted: resampled by their weights, at even steps, from `pool` draws of the root, or from as many
    as are worth two for every draw that is asked for, by `share`, the effective share of a pool that is expected; where in
    a case it is worth less than one, from a larger one; but at most from `largest` (ten times `pool` if it is not given).
    So few are copies. `effective_size` (N,) is how many
    independent draws a pool is worth. The normaliser, mean and covariance are averages over a pool;
    `log_normaliser_error` (N,) is the standard error of the log density that comes of it, and where the effective size is
    small the log density is optimistic. Draws through
    `prerank.forecasts.equally_weighted_draws` depend on (seed, stream, case) alone if those of the root do.

    Parameters
    ----------
    base : torch.distributions.Distribution
        The forecast f, of batch shape (n_cases,) and event shape (n_targets,).
    pits : OldPITs
        How its PITs are computed.
    theta : Tensor, shape (degree, n_projections) or (n_cases, degree, n_projections)
        Coefficients, the same for all cases or by case.
    pool : int, default 2000
        Draws of the root that a case is computed from, at least.
    case_ids : Tensor of int, shape (n_cases,), optional
        Identifiers of the cases, by which draws are keyed; positions by default.
    share : float, default 1.0
        Effective share of a pool that is expected.
    largest : int, optional
        The most draws of a pool; ten times `pool` by default.

    See Also
    --------
    Tilt : the step of recalibration that makes it
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(
        self,
        base: Distribution,
        pits: OldPITs,
        theta: Tensor,
        pool: int = 2000,
        case_ids: Tensor | None = None,
        share: float = 1.0,
        largest: int | None = None,
    ) -> None:
        # a case must not share its draws with those of another chunk, nor have others when it is cut out
        self.base = base if isinstance(base, Tilted) else case_by_case(base)
        self.pits, self.theta, self.pool, self.share = pits, theta, pool, share
        self.largest = LARGEST_POOL * pool if largest is None else largest
        self.case_ids = torch.arange(base.batch_shape[-1]) if case_ids is None else case_ids
        self._known = _Known()
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def __repr__(self) -> str:
        sizes = shape_in_words((), case=self.batch_shape[-1], target=self.event_shape[-1])
        root = self.root.law if isinstance(self.root, CaseByCase) else self.root
        return f"Tilted({type(root).__name__}, {sizes})"

    @property
    def root(self) -> Distribution:
        """The forecast that was tilted first."""
        return self.base.root if isinstance(self.base, Tilted) else self.base

    @property
    def support(self) -> Any:
        return self.root.support

    def select(self, cases: Tensor | slice) -> "Tilted":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        Tilted
            The forecast of these cases.
        """
        ids = self.case_ids[cases.cpu() if isinstance(cases, Tensor) else cases]
        theta = self.theta
        if theta.ndim == 3:
            theta = theta[cases.to(theta.device) if isinstance(cases, Tensor) else cases]
        part = Tilted(select(self.base, cases), self.pits, theta, self.pool, ids, self.share, self.largest)
        if self.has_pool:
            members, exponent = self._kept
            where = cases.to(members.device) if isinstance(cases, Tensor) else cases
            part._kept = members[where], exponent[where]
        return part

    def named(self, case_ids: Tensor) -> "Tilted":
        """The same forecast, its draws and those of the tilts before it keyed by other identifiers (N,) of its cases.

        Parameters
        ----------
        case_ids : Tensor of int, shape (n_cases,)
            The identifiers; cases with the same one have the same random numbers.

        Returns
        -------
        Tilted
            The forecast.
        """
        base = self.base.named(case_ids) if isinstance(self.base, Tilted) else self.base
        return Tilted(base, self.pits, self.theta, self.pool, case_ids, self.share, self.largest)

    def with_pool(self, pool: int) -> "Tilted":
        """The same forecast, computed with another number of draws.

        Parameters
        ----------
        pool : int
            Draws of the root for each case.

        Returns
        -------
        Tilted
            The forecast; this object if the number is the same.
        """
        if pool == self.pool:
            return self
        return Tilted(self.base, self.pits, self.theta, pool, self.case_ids, self.share, self.largest)

    def pool_worth(self, n_draws: int) -> int:
        """How many draws of the root are worth so many independent ones: `pool` at least, and `largest` at most.

        Parameters
        ----------
        n_draws : int
            How many independent draws.

        Returns
        -------
        int
            Draws of the root, by the share that is expected.
        """
        return max(self.pool, min(math.ceil(n_draws / self.share), self.largest))

    def values_per_case(self, n_points: int) -> int:
        """Numbers of the largest temporary that weights of so many points of a case take: PITs, or targets.

        Parameters
        ----------
        n_points : int
            Points of a case.

        Returns
        -------
        int
            How many numbers there are for each case.
        """
        own = max(self.theta.shape[-1], 8) * n_points
        return max(own, self.base.values_for_pits(n_points)) if isinstance(self.base, Tilted) else own

    def values_for_pits(self, n_points: int) -> int:
        """The same for PITs under this forecast: they are learnt from its pool, which is made for them unless it is kept.

        Parameters
        ----------
        n_points : int
            Points of a case.

        Returns
        -------
        int
            How many numbers there are for each case.
        """
        return self.values_per_case(n_points if self.has_pool else max(n_points, self.pool))

    @single_threaded()
    def log_weights(self, points: Tensor) -> Tensor:
        """The exponent of the tilt, of all tilts, at points (N, P, D): (N, P).

        Parameters
        ----------
        points : Tensor, shape (n_cases, n_points, n_targets)
            Points, several for each case.

        Returns
        -------
        Tensor, shape (n_cases, n_points)
            Logarithms of weights, up to a constant of each case.
        """
        if (known := self._known.get(points)) is not None:
            return known
        if isinstance(self.base, Tilted):
            self.base.keep_pool()  # other points will need it too
        result = points.new_empty(points.shape[:-1])

        def write(cases: slice, part: "Tilted") -> None:
            result[cases] = part._exponent(points[cases])

        self._in_parts(write, points.shape[-2], points.device)
        self._known.add(points, result)
        return result

    @single_threaded()
    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of `value` (*sample, N, D), with a normaliser from a pool of draws.

        Parameters
        ----------
        value : Tensor, shape (*sample_shape, n_cases, n_targets)
            Points, one for each case.

        Returns
        -------
        Tensor, shape (*sample_shape, n_cases)
            Log densities, without gradient.

        Raises
        ------
        ValueError
            If there is not one point for each case and target.
        """
        if value.shape[-2:] != (*self.batch_shape, *self.event_shape):
            raise ValueError(
                f"value has shape {tuple(value.shape)}, but the forecast is for {self.batch_shape[-1]} cases and "
                f"{self.event_shape[-1]} targets"
            )
        points = value.reshape(-1, *value.shape[-2:]).movedim(0, -2)
        return self.log_density(points).movedim(-1, 0).reshape(value.shape[:-1])

    @single_threaded()
    def log_density(self, points: Tensor) -> Tensor:
        """Log density (N, P) of points (N, P, D), as `log_prob`.

        Parameters
        ----------
        points : Tensor, shape (n_cases, n_points, n_targets)
            Points, several for each case.

        Returns
        -------
        Tensor, shape (n_cases, n_points)
            Log densities, without gradient.
        """
        with torch.no_grad():
            return self.log_unnormalised(points) - self._moments.log_normaliser[..., None]

    def log_unnormalised(self, points: Tensor) -> Tensor:
        """Log density (N, P) of points (N, P, D), up to a constant of each case that takes a pool to know.

        Parameters
        ----------
        points : Tensor, shape (n_cases, n_points, n_targets)
            Points, several for each case.

        Returns
        -------
        Tensor, shape (n_cases, n_points)
            Log densities without their normaliser.
        """
        return view_of(self.root).log_density().function(points) + self.log_weights(points)

    @property
    def log_normaliser_error(self) -> Tensor:
        """Standard error (N,) of the log density, from the draws of its normaliser."""
        return self._moments.log_normaliser_error

    @property
    def effective_size(self) -> Tensor:
        """Kish's effective size (N,) of a pool of `pool` draws."""
        return self._moments.effective_size

    @property
    def mean(self) -> Tensor:
        """Mean (N, D), from a pool of draws."""
        return self._moments.mean

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance (N, D, D), from a pool of draws."""
        return self._moments.covariance

    @property
    def variance(self) -> Tensor:
        """Variance (N, D) of each target, from a pool of draws."""
        return self._moments.covariance.diagonal(dim1=-2, dim2=-1)

    @single_threaded()
    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws (N, M, D), resampled from a pool.

        Parameters
        ----------
        n_draws : int
            Members per case.
        seed : int, default 0
            Seed of the draws.
        stream : str, default 'members'
            What the draws are for; another name gives independent draws.
        case_ids : Tensor of int, shape (n_cases,), optional
            Identifiers of the cases; the forecast's own by default.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets).
        """
        ids = self.case_ids if case_ids is None else case_ids.cpu()
        n_points = max(POOL_PER_DRAW * n_draws, self.pool_worth(POOL_PER_DRAW * n_draws))
        members, worth = self._resampled(n_draws, n_points, seed, stream, ids)
        return Ensemble(self._with_more(members, worth, n_points, seed, stream, ids))

    def slices_to_draw(self, n_draws: int) -> list[slice]:
        """Chunks of cases for `ensemble` of so many draws.

        Parameters
        ----------
        n_draws : int
            Members per case.

        Returns
        -------
        list of slice
            All cases, a few at a time; one slice where the root cannot be cut into cases.
        """
        n_points = max(POOL_PER_DRAW * n_draws, self.pool_worth(POOL_PER_DRAW * n_draws))
        return some_cases(self.root, self.values_per_case(n_points), self.theta.device)

    def _with_more(self, members: Tensor, worth: Tensor, n_points: int, seed: int, stream: str, ids: Tensor) -> Tensor:
        """Draws (N, M, D), those of cases whose pool of so many points was worth (N,) too little from larger pools."""
        n_draws = members.shape[-2]
        few = (worth < n_draws).nonzero()[:, 0]
        # what is expected of a pool on average may fail in a case: there another one is made, four times as large
        while len(few) and n_points < self.largest and can_be_cut(self.root):
            n_points = min(4 * n_points, self.largest)
            again, worth = self.select(few)._resampled(n_draws, n_points, seed, stream, ids[few.cpu()])
            members[few], few = again, few[worth < n_draws]
        return members

    def _resampled(self, n_draws: int, n_points: int, seed: int, stream: str, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Draws (N, M, D) from pools of so many points, and how many independent ones (N,) each pool was worth."""

        def one(cases: slice, part: "Tilted") -> tuple[Tensor, Tensor, Tensor]:
            members, exponent = part._pool_of(n_points, seed, stream, ids[cases])
            share = torch.softmax(exponent, -1)
            pick = picked(share, _steps(n_draws, seed, stream, ids[cases].to(members.device)))
            return taken(members, pick), 1 / share.square().sum(-1), exponent.gather(-1, pick)

        drawn, worth, exponents = zip(*self._in_parts(one, n_points), strict=True)
        if len(drawn) == 1:
            self._known.add(drawn[0], exponents[0])
            return drawn[0], worth[0]
        return torch.cat(drawn), torch.cat(worth)

    def _pool_of(self, n_points: int, seed: int, stream: str, ids: Tensor) -> tuple[Tensor, Tensor]:
        """A pool (N, P, D) of draws of the root, and the exponent (N, P) there, all cases at once."""
        # PITs are learnt under the forecast's own identifiers, whatever names the draws are asked for by
        members = equally_weighted_draws(self.root, n_points, seed, f"pool for {stream}", ids).members
        return members, self._exponent(members)

    @property
    def may_be_spread(self) -> bool:
        """Whether several threads may work on parts of it at a time."""
        return self.pits.may_be_spread and may_be_spread(self.root, self.theta.device)

    def slices_to_rank(self, n_draws: int) -> list[slice]:
        """Chunks of cases for `draws_and_view` of so many draws.

        Parameters
        ----------
        n_draws : int
            Draws per case.

        Returns
        -------
        list of slice
            All cases, a few at a time; one slice where the root cannot be cut into cases.
        """
        return some_cases(self.root, self.values_per_case(self._points_to_rank(n_draws)), self.theta.device)

    def draws_and_view(
        self, y: Tensor, n_draws: int, seed: int, case_ids: Tensor, unit: Tensor | None = None
    ) -> tuple[Ensemble, "View"]:
        """Draws (N, M, D) to rank observations y (N, D) among, and a view of all that pre-ranks may ask: from one pool.

        The view knows the pool and the observation, each with its share, and not which is which. With a `unit` (D,) the
        observations are in these units, and so are the draws and what the view is asked.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets)
            Observations.
        n_draws : int
            Draws per case.
        seed : int
            Seed of the draws.
        case_ids : Tensor of int, shape (n_cases,)
            Identifiers of the cases, by which draws are keyed.
        unit : Tensor, shape (n_targets,), optional
            What the targets of `y` are divided by; nothing by default.

        Returns
        -------
        draws : Ensemble
            Members (n_cases, n_draws, n_targets).
        view : View
            What pre-ranks learn from.
        """
        from prerank.recalibration.one_pool import PoolView

        ids, n_points, stream = case_ids.cpu(), self._points_to_rank(n_draws), "ranked members"
        pool = equally_weighted_draws(self.root, n_points, seed, f"pool for {stream}", ids).members
        known = torch.cat([(y if unit is None else y * unit.to(y))[:, None].to(pool), pool], 1)
        exponent = self._exponent(known)
        asked = known if unit is None else known / unit.to(known)
        asked = torch.cat([y[:, None], asked[:, 1:]], 1)  # copies of the observation are to tie with it
        keys = case_keys(seed, ids.to(pool.device), "resampling", stream)
        drawn = taken(asked, _beside_the_first(torch.softmax(exponent, -1), keys, n_draws))
        return Ensemble(drawn), PoolView(self, seed, case_ids, points=known, exponent=exponent, unit=unit)

    def _points_to_rank(self, n_draws: int) -> int:
        """Points of a pool that is worth as many draws as are ranked: ranks are exact for any, and more add no power."""
        return min(math.ceil(n_draws / self.share), max(self.largest, n_draws))

    def in_units(self, units: Tensor) -> Distribution:
        """The same forecast with each target divided by a number (D,).

        Parameters
        ----------
        units : Tensor, shape (n_targets,)
            What each target is divided by.

        Returns
        -------
        Distribution
            The forecast in these units.
        """
        from prerank.recalibration.one_pool import InUnits

        return InUnits(self, units)

    def reference_draws(self, n_draws: int, stream: str) -> Ensemble:
        """Draws (N, M, D) for PITs to be learnt from: at even steps through the first half of the pool of the moments.

        Parameters
        ----------
        n_draws : int
            Draws per case.
        stream : str
            What the draws are for; another name begins at another place.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets).
        """
        return self._from_pool(n_draws, stream, slice(0, -(-self.pool // 2)))

    @property
    def reference_covariance(self) -> Tensor:
        """Covariance (N, D, D) up to a factor, of the first half of the pool of the moments."""
        members, exponent = (part[:, : -(-self.pool // 2)] for part in self._kept)
        return spread_matrix(members, torch.softmax(exponent, -1))

    def draws_to_rank(self, y: Tensor, n_draws: int, stream: str) -> Ensemble:
        """Draws (N, M, D) to rank observations y (N, D) among, that are independent of `reference_draws`.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets)
            Observations.
        n_draws : int
            Draws per case.
        stream : str
            What the draws are for; another name begins at another place.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets).
        """
        members, exponent = (part[:, self.pool // 2 :] for part in self._kept)
        y = y[:, None].to(members)
        exponent = torch.cat([self._exponent(y), exponent], -1)
        keys = case_keys(self.pits.seed, self.case_ids.to(members.device), "resampling", stream)
        pick = _beside_the_first(torch.softmax(exponent, -1), keys, n_draws)
        drawn = taken(torch.cat([y, members], 1), pick)
        self._known.add(drawn, exponent.gather(-1, pick))
        return Ensemble(drawn)

    @property
    def draws_in_pool(self) -> int:
        """How many draws the pool of the moments serves, of which few are copies."""
        return self.pool // POOL_PER_DRAW

    def density_of_draws(self, n_draws: int, stream: str) -> Tensor:
        """Log density (N, M) of draws at even steps through the pool of the moments, which is kept.

        Parameters
        ----------
        n_draws : int
            Draws per case.
        stream : str
            What the draws are for; another name begins at another place.

        Returns
        -------
        Tensor, shape (n_cases, n_draws)
            Log densities, without gradient.
        """

        def one(_: slice, part: "Tilted") -> Tensor:
            return part.log_density(part._from_pool(n_draws, stream, slice(None)).members)

        self.keep_pool()
        return torch.cat(self._in_parts(one, max(n_draws, self.pool)))

    def _from_pool(self, n_draws: int, stream: str, half: slice) -> Ensemble:
        members, exponent = (part[:, half] for part in self._kept)
        keys = case_keys(self.pits.seed, self.case_ids.to(members.device), "even steps", stream)
        pick = picked(torch.softmax(exponent, -1), even_steps(uniform(keys, (1,)), n_draws))
        drawn = taken(members, pick)
        self._known.add(drawn, exponent.gather(-1, pick))
        return Ensemble(drawn)

    @single_threaded()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Equally weighted draws from torch's global generator, sample axes first, as torch has it.

        Parameters
        ----------
        sample_shape : torch.Size or tuple of int, default ()
            Axes of draws, which come first.

        Returns
        -------
        Tensor, shape (*sample_shape, n_cases, n_targets)
            Draws, without gradient.
        """
        sample_shape = torch.Size(sample_shape)
        seed = int(torch.randint(1 << 62, ()))
        drawn = self.ensemble(math.prod(sample_shape), seed, "sample").members
        return drawn.movedim(-2, 0).reshape(*sample_shape, *self.batch_shape, *self.event_shape)

    def _in_parts(
        self, function: Callable[[slice, "Tilted"], _Result], n_points: int, device: torch.device | None = None
    ) -> list[_Result]:
        """`function(cases, forecast of these cases)` of a few cases at a time."""
        device = self.theta.device if device is None else device
        slices = some_cases(self.root, self.values_per_case(n_points), device)
        if len(slices) == 1:
            return [function(slices[0], self)]
        return in_threads(lambda cases: function(cases, self.select(cases)), slices, spread=self.may_be_spread)

    def _exponent(self, points: Tensor) -> Tensor:
        """The exponent of all tilts at points (N, P, D), all cases at once."""
        before = None
        if isinstance(self.base, Tilted):
            before = self.base._exponent(points)
            self.base._known.add(points, before)  # PITs of the base's density need it too
        if self._known.pits is None:
            self._known.pits = self.pits.learnt(self.base, self.case_ids.to(points.device))
        own = log_tilt(self._known.pits(points), self.theta)
        return own if before is None else own + before

    @property
    def has_pool(self) -> bool:
        """Whether the pool of all cases is there already."""
        return "_kept" in self.__dict__

    def keep_pool(self) -> None:
        """Make the pool of all cases now, and keep it, unless it would take more than half a gigabyte.

        The same goes for the tilts before it. What is selected from this forecast then has its part of these pools.
        """
        if isinstance(self.base, Tilted):
            self.base.keep_pool()
        if self.has_pool:
            return
        if self.batch_shape[-1] * self.pool * self.event_shape[-1] > MOST_KEPT or not can_be_cut(self.root):
            return
        parts = self._in_parts(lambda _, part: part._kept, self.pool)
        self._kept = tuple(torch.cat(column) for column in zip(*parts, strict=True))

    @cached_property
    def _kept(self) -> tuple[Tensor, ...]:
        """A pool (N, P, D) of draws of the root, and the exponent (N, P) there."""
        stream = "pool for the normaliser"
        members = equally_weighted_draws(self.root, self.pool, self.pits.seed, stream, self.case_ids).members
        return members, self._exponent(members)

    @cached_property
    def _moments(self) -> Moments:
        # a part's pool is gone before its thread makes the next one
        found = [_moments_of(self)] if self.has_pool else self._in_parts(lambda _, part: _moments_of(part), self.pool)
        return Moments(*(torch.cat(column) for column in zip(*found, strict=True)))


def _moments_of(part: Tilted) -> Moments:
    points, exponent = part._kept
    share = torch.softmax(exponent, -1)
    squares = share.square().sum(-1)
    mean = (share[..., None] * points).sum(-2)
    centred = points - mean[..., None, :]
    return Moments(
        torch.logsumexp(exponent, -1) - math.log(part.pool),
        (squares - 1 / part.pool).clamp_min(0.0).sqrt(),
        mean,
        (share[..., None] * centred).mT @ centred,
        1 / squares,
    )


def _steps(n_draws: int, seed: int, stream: str, ids: Tensor) -> Tensor:
    """Where cases are resampled: at even steps from a place that is keyed by seed, stream and case, (N, M)."""
    return even_steps(uniform(case_keys(seed, ids, "resampling", stream), (1,)), n_draws)


def even_steps(start: Tensor, count: int) -> Tensor:
    """Numbers (n, M) at even steps through (0, 1) from a start (n, 1)."""
    return (torch.arange(count, device=start.device) + start) / count


def _beside_the_first(share: Tensor, keys: Tensor, n_draws: int) -> Tensor:
    """Which of P points with shares (n, P) to rank the first among, (n, M), so that it is exchangeable with them.

    If the first is an observation that comes from the law, and the others are a pool with importance weights, then the
    observation is each of these P points with a probability of that point's share, given all of them. So are M + 1 places at
    even steps through the shares, end joined to beginning, if they begin at random. The observation gets one of these, at
    random within its own share, and the draws get the others. However small the pool is, ranks are then uniform; a small
    one costs power, because draws are copies of the observation more often.
    """
    begin = share[:, :1].double() * uniform(keys, (1,))
    return picked(share, (begin + torch.arange(1, n_draws + 1, device=share.device) / (n_draws + 1)) % 1.0)


def picked(share: Tensor, u: Tensor) -> Tensor:
    """Which of P points with shares (n, P) uniform numbers (n, M) fall on: (n, M)."""
    return torch.searchsorted(share.double().cumsum(-1), u).clamp_max(share.shape[-1] - 1)


def taken(members: Tensor, pick: Tensor) -> Tensor:
    """Members (n, P, D) by their numbers (n, M): (n, M, D)."""
    return members.gather(-2, pick[..., None].expand(*pick.shape, members.shape[-1]))


class _Known:
    """What was computed before: what PITs take from the base, and exponents at points, for as long as those are there.

    PITs of every pre-rank go into an exponent, and a density, a score and a weight may each need it at the same points.
    Tensors of torch's inference mode do not say whether they have changed since, and are not remembered.
    """

    def __init__(self) -> None:
        self.pits: LearntPITs | None = None
        self._found: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def __reduce__(self) -> tuple[type["_Known"], tuple[()]]:
        return _Known, ()  # a copy in another process knows none of these points

    def get(self, points: Tensor) -> Tensor | None:
        there, version, exponent = self._found.get(id(points), (None, 0, None))
        return exponent if there is not None and there() is points and version == points._version else None

    def add(self, points: Tensor, exponent: Tensor) -> None:
        if points.is_inference():
            return
        key = id(points)
        self._found[key] = (weakref.ref(points, lambda _: self._found.pop(key, None)), points._version, exponent)
