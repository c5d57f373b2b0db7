"""The paper's family: a mixture of multivariate Gaussians for every case."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal, constraints

from prerank._chunks import chunks
from prerank._kernels import ALLOCATION, COVARIANCE, DRAWS, LOG_DENSITY, LOG_LIKELIHOOD, PIT_ALONG, kernel_for
from prerank._parallel import in_threads, single_threaded
from prerank._reproducible_math import gaussian_log_density
from prerank._wording import shape_in_words
from prerank.arrays.conversion import as_tensor
from prerank.forecasts._component_draws import Draw
from prerank.forecasts.ensemble import Ensemble
from prerank.randomness import case_keys, normal, uniform


class GaussianMixture(Distribution):
    r"""Mixture of C Gaussians per case, $\sum_c \pi_c(x)\, N(\mu_c(x), L_c(x) L_c(x)^\top)$.

    A torch distribution with batch shape (..., n_cases) and event shape (n_targets,). Linear projections have closed
    forms.

    Parameters
    ----------
    logits : array_like, shape (..., n_cases, n_components)
        Logarithms of the weights, up to a constant per case.
    loc : array_like, shape (..., n_cases, n_components, n_targets)
        Means of the components.
    scale_tril : array_like, shape (..., n_cases, n_components, n_targets, n_targets)
        Cholesky factors: lower triangular with a positive diagonal.
    validate_args : bool, optional
        Passed on to torch's `Distribution`.

    Examples
    --------
    >>> forecast = GaussianMixture(torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.eye(3).expand(4, 2, 3, 3))
    >>> forecast
    GaussianMixture(4 cases, 2 components, 3 targets)
    >>> forecast.log_prob(torch.zeros(4, 3))
    tensor([-2.7568, -2.7568, -2.7568, -2.7568])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, logits: Tensor, loc: Tensor, scale_tril: Tensor, validate_args: bool | None = None) -> None:
        logits, loc = as_tensor(logits, "logits"), as_tensor(loc, "loc")
        scale_tril = as_tensor(scale_tril, "scale_tril")
        expected = (*logits.shape, *loc.shape[-1:])
        if logits.ndim == 0 or loc.shape != expected or scale_tril.shape != (*expected, loc.shape[-1]):
            raise ValueError(
                f"logits {tuple(logits.shape)} go with loc (..., C, D) and scale_tril (..., C, D, D), "
                f"got loc {tuple(loc.shape)} and scale_tril {tuple(scale_tril.shape)}"
            )
        # one type for all three, the widest: a mixture in two types would fail much later, in a product
        dtype = torch.promote_types(torch.promote_types(logits.dtype, loc.dtype), scale_tril.dtype)
        self.logits = logits.to(dtype)
        self.loc = loc.to(dtype)
        self.scale_tril = scale_tril.to(dtype)
        super().__init__(logits.shape[:-1], loc.shape[-1:], validate_args=validate_args)

    def __repr__(self) -> str:
        *lead, n_cases = self.batch_shape or (None,)
        axes = {} if n_cases is None else {"case": n_cases}
        return f"GaussianMixture({shape_in_words(tuple(lead), **axes, component=self.n_components, target=self.n_targets)})"

    @staticmethod
    def of_normal(normal: MultivariateNormal) -> "GaussianMixture":
        """A multivariate normal as the mixture of one component that it is.

        Parameters
        ----------
        normal : torch.distributions.MultivariateNormal
            Batch shape (..., n_cases), event shape (n_targets,).

        Returns
        -------
        GaussianMixture
            The same distribution.
        """
        one = normal.loc.new_zeros(*normal.batch_shape, 1)
        return GaussianMixture(one, normal.loc[..., None, :], normal.scale_tril[..., None, :, :])

    @property
    def n_components(self) -> int:
        """Number of components C."""
        return self.logits.shape[-1]

    @property
    def n_targets(self) -> int:
        """Number of targets D."""
        return self.loc.shape[-1]

    @property
    def log_weights(self) -> Tensor:
        """Logarithms of the components' weights, (..., N, C)."""
        return torch.log_softmax(self.logits, -1)

    @property
    def weights(self) -> Tensor:
        """Weights of the components, which sum to one, (..., N, C)."""
        return torch.softmax(self.logits, -1)

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, (..., N, D)."""
        return (self.weights[..., None] * self.loc).sum(-2)

    @property
    def covariance_matrix(self) -> Tensor:
        r"""$\sum_c \pi_c (L_c L_c^\top + (\mu_c - \mu)(\mu_c - \mu)^\top)$, (..., N, D, D)."""
        parts = self.loc, self.scale_tril, self.logits
        if fused := kernel_for(COVARIANCE, self.loc, fixed=parts, targets=self.n_targets):
            return fused(*parts)
        centred = self.loc - self.mean[..., None, :]
        within = self.scale_tril @ self.scale_tril.mT
        between = centred[..., :, None] * centred[..., None, :]
        return (self.weights[..., None, None] * (within + between)).sum(-3)

    @property
    def variance(self) -> Tensor:
        """Variance of each target, (..., N, D)."""
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "GaussianMixture":
        """The same mixture with a larger batch shape, as torch has it.

        Parameters
        ----------
        batch_shape : torch.Size or tuple of int
            The new batch shape (..., n_cases).
        _instance : GaussianMixture, optional
            Unused; torch's protocol has it.

        Returns
        -------
        GaussianMixture
            The expanded distribution.
        """
        shape = (*batch_shape, self.n_components, self.n_targets)
        return GaussianMixture(
            self.logits.expand(shape[:-1]), self.loc.expand(shape), self.scale_tril.expand(*shape, self.n_targets)
        )

    def in_units(self, units: Tensor) -> "GaussianMixture":
        """The same forecast in other units.

        Parameters
        ----------
        units : Tensor, shape (n_targets,)
            What each target is divided by.

        Returns
        -------
        GaussianMixture
            The forecast in these units.
        """
        units = units.to(self.loc)
        return GaussianMixture(self.logits, self.loc / units, self.scale_tril / units[:, None])

    def select(self, cases: Tensor | slice) -> "GaussianMixture":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        GaussianMixture
            The forecast of these cases.
        """
        return GaussianMixture(
            self.logits[..., cases, :], self.loc[..., cases, :, :], self.scale_tril[..., cases, :, :, :]
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of one point per case, as torch has it.

        Parameters
        ----------
        value : Tensor, shape (*sample_shape, ..., n_cases, n_targets)
            Points.

        Returns
        -------
        Tensor, shape (*sample_shape, ..., n_cases)
            Log densities, differentiable.
        """
        if value.shape[-1:] != self.event_shape:
            raise ValueError(f"value has shape {tuple(value.shape)}, but the forecast is for {self.n_targets} targets")
        extra = value.ndim - len(self.batch_shape) - 1
        if extra < 0:  # one set of values for several models, as torch's own distributions take it
            value, extra = value.expand(*self.batch_shape, value.shape[-1]), 0
        if extra == 0:
            if fused := kernel_for(LOG_LIKELIHOOD, self.loc, value, fixed=(value,), targets=self.n_targets):
                return fused(value, self.loc, self.scale_tril, self.logits)
            return self.log_density(value[..., None, :])[..., 0]
        sample_shape = value.shape[:extra]
        points = value.reshape(-1, *value.shape[extra:]).movedim(0, -2)
        return self.log_density(points).movedim(-1, 0).reshape(*sample_shape, *self.batch_shape)

    def log_density(self, points: Tensor) -> Tensor:
        """Log density of several points per case.

        Where no gradient is asked for, equal points have bitwise equal densities wherever they stand. In
        training no rank hangs on a tie, and one triangular solve has one backward pass.

        Parameters
        ----------
        points : Tensor, shape (..., n_cases, n_points, n_targets)
            Points.

        Returns
        -------
        Tensor, shape (..., n_cases, n_points)
            Log densities, differentiable.
        """
        if fused := kernel_for(LOG_DENSITY, self.loc, points, targets=self.n_targets, points=points.shape[-2]):
            return fused(points, self.loc, self.scale_tril, self.log_weights)
        log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = self.log_weights - log_det - 0.5 * self.n_targets * math.log(2 * math.pi)
        if not self._needs_gradient(points):
            lead = np.broadcast_shapes(points.shape[:-2], self.batch_shape)
            own = [
                part.expand(*lead, *part.shape[len(self.batch_shape) :])
                for part in (constant, self.loc, self.scale_tril)
            ]
            given = [points.to(constant.dtype).expand(*lead, *points.shape[-2:]), *own]
            flat = [part.reshape(-1, *part.shape[len(lead) :]) for part in given]
            return gaussian_log_density(*flat).reshape(*lead, points.shape[-2])
        centred = (points[..., None, :, :] - self.loc[..., :, None, :]).mT
        whitened = torch.linalg.solve_triangular(self.scale_tril, centred, upper=False)
        return torch.logsumexp(constant[..., None] - 0.5 * whitened.square().sum(-2), -2)

    def along(self, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the components along directions.

        Parameters
        ----------
        directions : Tensor, shape (..., n_cases or 1, n_targets, n_projections)
            One direction per column.

        Returns
        -------
        loc : Tensor, shape (..., n_cases, n_components, n_projections)
            Means.
        scale : Tensor, shape (..., n_cases, n_components, n_projections)
            Standard deviations.
        """
        loc = self.loc @ directions
        scale = (self.scale_tril.mT @ directions[..., None, :, :]).square().sum(-2).sqrt()
        return loc, scale

    def cdf_along(self, directions: Tensor, values: Tensor) -> Tensor:
        r"""CDF of $u^\top Y$ at values.

        A linear function of a Gaussian mixture is a univariate Gaussian mixture, so this is exact and differentiable.

        Parameters
        ----------
        directions : Tensor, shape (..., n_cases or 1, n_targets, n_projections)
            Directions u, one per column.
        values : Tensor, shape (..., n_cases, n_points, n_projections)
            Where the CDF is taken.

        Returns
        -------
        Tensor, shape (..., n_cases, n_points, n_projections)
            Probabilities.
        """
        loc, scale = self.along(directions)
        weights = self.weights
        if not self._needs_gradient(directions, values):
            # component after component: a sum over an axis that is not the last rounds by position
            result = torch.zeros((), dtype=loc.dtype, device=loc.device)
            for c in range(self.n_components):
                standardised = (values - loc[..., c, None, :]) / scale[..., c, None, :]
                result = result + weights[..., c, None, None] * torch.special.ndtr(standardised)
            return result.clamp_(0.0, 1.0)
        standardised = (values[..., None, :, :] - loc[..., :, None, :]) / scale[..., :, None, :]
        # weights sum to one up to rounding, so the sum may exceed one by as much
        return (weights[..., :, None, None] * torch.special.ndtr(standardised)).sum(-3).clamp(0.0, 1.0)

    def pit_along(self, directions: Tensor, y: Tensor) -> Tensor:
        r"""PIT of observations along directions: the CDF of $u^\top Y$ at $u^\top y$.

        Parameters
        ----------
        directions : Tensor, shape (..., n_cases or 1, n_targets, n_projections)
            Directions u, one per column.
        y : Tensor, shape (..., n_cases, n_targets)
            Observations.

        Returns
        -------
        Tensor, shape (..., n_cases, n_projections)
            PIT values.
        """
        if fused := kernel_for(PIT_ALONG, self.loc, y, directions, fixed=(y, directions), targets=self.n_targets):
            return fused(y, self.loc, self.scale_tril, self.logits, directions)
        return self.cdf_along(directions, (y[..., :, None] * directions).sum(-2)[..., None, :])[..., 0, :]

    @single_threaded()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Equally weighted draws from torch's global generator, as torch has it.

        Parameters
        ----------
        sample_shape : torch.Size or tuple of int, default ()
            Axes of draws, which come first.

        Returns
        -------
        Tensor, shape (*sample_shape, ..., n_cases, n_targets)
            Draws, without gradient.
        """
        sample_shape = torch.Size(sample_shape)
        with torch.no_grad():
            shape = (*sample_shape, *self.batch_shape)
            choice = torch.distributions.Categorical(logits=self.logits).sample(sample_shape)
            noise = torch.randn(*shape, self.n_targets, dtype=self.loc.dtype, device=self.loc.device)
            count = math.prod(sample_shape)
            points = self._combine(
                choice.reshape(count, *self.batch_shape).movedim(0, -1),
                noise.reshape(count, *self.batch_shape, self.n_targets).movedim(0, -2),
            )
            return points.movedim(-2, 0).reshape(*shape, self.n_targets)

    @single_threaded()
    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws for evaluation; those of a case depend on (seed, stream, its identifier) alone.

        Parameters
        ----------
        n_draws : int
            Members per case.
        seed : int, default 0
            Seed of the draws.
        stream : str, default 'members'
            What the draws are for; another name gives independent draws.
        case_ids : Tensor, shape (n_cases,), optional
            Identifiers of the cases; positions by default.

        Returns
        -------
        Ensemble
            Members (..., n_cases, n_draws, n_targets).
        """
        n_cases = self.batch_shape[-1] if len(self.batch_shape) == 1 else 1
        some = chunks(n_cases, 4 * n_draws * self.loc[0].numel(), self.loc.device) if n_cases > 1 else []
        if len(some) < 2 or self.loc.device.type != "cpu":
            return Ensemble(self._draws(n_draws, seed, stream, case_ids))
        ids = torch.arange(n_cases) if case_ids is None else case_ids
        members = self.loc.new_empty(n_cases, n_draws, self.n_targets)

        def write(cases: slice) -> None:
            members[cases] = self.select(cases)._draws(n_draws, seed, stream, ids[cases])

        in_threads(write, some)
        return Ensemble(members)

    def draw(
        self,
        n_draws: int,
        seed: int = 0,
        stream: str = "draws",
        at_least: int = 2,
        case_ids: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Ensemble:
        r"""Weighted, differentiable draws for training: every component is drawn, in proportion to its weight.

        Component c gets n_c draws ($\sum_c n_c$ = `n_draws`, n_c >= `at_least`, proportional to the detached weights),
        each weighted by pi_c / n_c. Averages are unbiased, and gradients reach logits, means and factors. Not for
        evaluation: ranks among weighted members are not uniform. Use `ensemble` there.

        Parameters
        ----------
        n_draws : int
            Members per case, at least `at_least` times the number of components.
        seed : int, default 0
            Seed of the draws.
        stream : str, default 'draws'
            What the draws are for; another name gives independent draws.
        at_least : int, default 2
            Draws of every component.
        case_ids : Tensor, shape (n_cases,), optional
            Identifiers of the cases; positions by default.
        noise : Tensor, shape (..., n_cases, n_draws, n_targets), optional
            Standard normal numbers in the place of the keyed ones.

        Returns
        -------
        Ensemble
            Weighted members (..., n_cases, n_draws, n_targets).
        """
        if noise is None:
            _, noise = self._noise(n_draws, seed, stream, case_ids)
        return self.draws_from([noise], at_least)[0]

    def draws_from(self, noises: Sequence[Tensor], at_least: int = 2, owner: Tensor | None = None) -> list[Ensemble]:
        """Several sets of weighted, differentiable draws, as `draw` makes them: one per noise.

        Parameters
        ----------
        noises : sequence of Tensor, shape (..., n_cases, n_draws, n_targets)
            Standard normal numbers, the same number of draws in each.
        at_least : int, default 2
            Draws of every component.
        owner : Tensor, shape (n_models,), optional
            Models may share their noise: model e then has that at `owner[e]` of the noise's first axis.

        Returns
        -------
        list of Ensemble
            One for each noise.

        Raises
        ------
        ValueError
            If there are too few draws for the components.
        """
        n_draws = noises[0].shape[-2]
        if n_draws < self.n_components * at_least:
            raise ValueError(
                f"{n_draws} draws are too few for {self.n_components} components with at least {at_least} each; "
                f"ask for {self.n_components * at_least} or more"
            )
        if fused := kernel_for(ALLOCATION, self.logits, components=self.n_components, draws=n_draws):
            share, choice = fused(self.logits, n_draws, at_least)
        else:
            weights = self.weights
            counts = allocate(weights.detach(), n_draws, at_least)
            position = torch.arange(n_draws, device=counts.device)
            choice = (position[:, None] >= counts.cumsum(-1)[..., None, :-1]).sum(-1)
            share = (weights / counts).gather(-1, choice)
        return [Ensemble(self._combine(choice, noise, owner), share) for noise in noises]

    @torch.no_grad()
    def _draws(self, n_draws: int, seed: int, stream: str, case_ids: Tensor | None) -> Tensor:
        """Equally weighted draws (..., N, M, D), of all cases at once."""
        pick, noise = self._noise(n_draws, seed, stream, case_ids)
        choice = (pick[..., None] > self.weights.cumsum(-1)[..., None, :-1]).sum(-1)
        return self._combine(choice, noise)

    def _noise(self, count: int, seed: int, stream: str, case_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        # Leading axes (several models) share their noise: common random numbers, and one generation for a fleet.
        cases = self.batch_shape[-1] if self.batch_shape else 1
        device, dtype = self.loc.device, self.loc.dtype
        ids = torch.arange(cases, device=device) if case_ids is None else case_ids.to(device)
        keys = case_keys(seed, ids, stream)
        pick = uniform(case_keys(seed, ids, stream, "component"), (count,), dtype)
        noise = normal(keys, (count, self.n_targets), dtype)
        if not self.batch_shape:
            return pick[0], noise[0]
        return pick.expand(*self.batch_shape, count), noise.expand(*self.batch_shape, count, self.n_targets)

    def _combine(self, choice: Tensor, noise: Tensor, owner: Tensor | None = None) -> Tensor:
        """mu_c + L_c eps with c = choice (..., N, M), eps = noise (..., N, M, D), or that of the owner."""
        if fused := kernel_for(DRAWS, self.loc, noise, targets=self.n_targets):
            return fused(self.loc, self.scale_tril, choice, noise, owner)
        noise = noise if owner is None else noise[owner]
        parts = self.loc, self.scale_tril, choice, noise
        axes = len(self.batch_shape)
        flat = [part.reshape(self.batch_shape.numel(), *part.shape[axes:]).contiguous() for part in parts]
        return Draw.apply(*flat).reshape(noise.shape)

    def _needs_gradient(self, *parts: Tensor) -> bool:
        own = self.logits, self.loc, self.scale_tril
        return torch.is_grad_enabled() and any(part.requires_grad for part in (*own, *parts))


def allocate(weights: Tensor, total: int, at_least: int) -> Tensor:
    """Whole numbers (..., C) that sum to `total`, at least `at_least` each, in proportion to weights.

    The largest remainders are rounded up.

    >>> allocate(torch.tensor([0.7, 0.2, 0.1]), 20, 2)
    tensor([12,  5,  3])
    """
    free = total - at_least * weights.shape[-1]
    share = weights * free
    whole = share.floor()
    missing = free - whole.sum(-1, keepdim=True)
    order = (share - whole).argsort(-1, descending=True).argsort(-1)
    return (whole + (order < missing)).long() + at_least


def normal_as_mixture(forecast: Any) -> Any:
    """A multivariate normal as the mixture of one component that it is; anything else as it is."""
    return GaussianMixture.of_normal(forecast) if isinstance(forecast, MultivariateNormal) else forecast
