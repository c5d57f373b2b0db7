"""Equally weighted draws of any forecast, in the project's layout."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._parameters import require_whole
from prerank.forecasts.ensemble import Ensemble
from prerank.forecasts.mixture import GaussianMixture
from prerank.randomness import seeded

Forecast = Ensemble | Distribution


@runtime_checkable
class JointForecast(Protocol):
    """What the library asks of a forecast, beyond `log_prob` where a density is needed.

    `Ensemble`, `GaussianMixture` and the forecasts of a `Recalibrator` answer it themselves, a class of your own may, and
    `case_by_case` gives a distribution of torch's the methods that it lacks.

    Examples
    --------
    >>> from torch.distributions import MultivariateNormal
    >>> from prerank.forecasts import case_by_case
    >>> law = MultivariateNormal(torch.zeros(5, 2), torch.eye(2))
    >>> isinstance(law, JointForecast), isinstance(case_by_case(law), JointForecast)
    (False, True)
    """

    @property
    def batch_shape(self) -> torch.Size:
        """Leading axes and cases (..., N)."""
        ...

    @property
    def event_shape(self) -> torch.Size:
        """The axis of targets (D,)."""
        ...

    @property
    def mean(self) -> Tensor:
        """Mean of each target, (..., N, D)."""
        ...

    def select(self, cases: Tensor | slice) -> "JointForecast":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        JointForecast
            The forecast of these cases.
        """
        ...

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws; those of a case depend on (seed, stream, its identifier) alone.

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
        ...


def require_vector_distribution(forecast: Forecast, n_cases: int | None = None) -> None:
    """Refuse a distribution over scalars (its cases and targets cannot be told apart) and one without an axis of cases."""
    if len(forecast.event_shape) != 1:
        raise ValueError(
            f"the distribution has event shape {tuple(forecast.event_shape)} and batch shape {tuple(forecast.batch_shape)}; "
            "a joint forecast has event shape (D,) and batch shape (..., N): "
            "wrap independent targets as torch.distributions.Independent(forecast, 1)"
        )
    if not forecast.batch_shape:
        shape = "(N,) for N" if n_cases is None else f"({n_cases},) for {n_cases}"
        raise ValueError(
            f"the distribution has no axis of cases; if all cases share it, give it batch shape {shape} cases with "
            f"forecast.expand({'(N,)' if n_cases is None else f'({n_cases},)'})"
        )


def equally_weighted_draws(
    forecast: Forecast, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
) -> Ensemble:
    """Equally weighted draws of any distribution; the global generator is left as it was.

    An `Ensemble` stays as it is: its members, with their weights if they have some, are its draws. A distribution with an
    `ensemble` method, such as a `GaussianMixture`, is asked for draws that depend on (seed, stream, case) alone; those of
    another come from its own `sample` under a forked generator, so they also depend on how many cases are drawn together.

    Parameters
    ----------
    forecast : Ensemble or torch.distributions.Distribution
        Batch shape (..., n_cases), event shape (n_targets,).
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
        Members (..., n_cases, n_draws, n_targets), without gradient.

    Raises
    ------
    ValueError
        If the distribution is over scalars or has no axis of cases.

    See Also
    --------
    differentiable_draws : for training

    Examples
    --------
    >>> law = torch.distributions.MultivariateNormal(torch.zeros(4, 3), torch.eye(3))
    >>> equally_weighted_draws(law, n_draws=10)
    Ensemble(4 cases, 10 members, 3 targets)
    """
    n_draws, seed = require_whole(n_draws, "n_draws"), require_whole(seed, "seed", at_least=None)
    if hasattr(forecast, "ensemble"):
        return forecast.ensemble(n_draws, seed, stream, case_ids)
    require_vector_distribution(forecast)
    with seeded(seed, stream), torch.no_grad():
        drawn = forecast.sample(torch.Size((n_draws,)))
    return Ensemble(drawn.movedim(0, -2))


def differentiable_draws(
    forecast: Distribution, n_draws: int, seed: int = 0, stream: str = "draws", case_ids: Tensor | None = None
) -> Ensemble:
    """Draws that gradients flow through: weighted for a `GaussianMixture`, `rsample` otherwise.

    The global generator is left as it was.

    Parameters
    ----------
    forecast : torch.distributions.Distribution
        Batch shape (..., n_cases), event shape (n_targets,).
    n_draws : int
        Members per case.
    seed : int, default 0
        Seed of the draws.
    stream : str, default 'draws'
        What the draws are for; another name gives independent draws.
    case_ids : Tensor, shape (n_cases,), optional
        Identifiers of the cases; positions by default.

    Returns
    -------
    Ensemble
        Members (..., n_cases, n_draws, n_targets).

    Raises
    ------
    TypeError
        If the distribution has no reparameterised draws.

    See Also
    --------
    equally_weighted_draws : for evaluation
    """
    if isinstance(forecast, GaussianMixture):
        return forecast.draw(n_draws, seed, stream, case_ids=case_ids)
    require_vector_distribution(forecast)
    if not forecast.has_rsample:
        raise TypeError(
            f"{type(forecast).__name__} has no reparameterised draws (has_rsample is False), so a smooth PIT would have a "
            "silently zero gradient; use GaussianMixture, a distribution with rsample, or an Ensemble of "
            "differentiable members"
        )
    with seeded(seed, stream):
        return Ensemble(forecast.rsample(torch.Size((n_draws,))).movedim(0, -2))
