"""The equal mixture of several forecasts of the same cases."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.arrays.conversion import described, is_forecast
from prerank.forecasts.batching import case_by_case, select_cases
from prerank.forecasts.ensemble import Ensemble
from prerank.forecasts.mixture import GaussianMixture, normal_as_mixture
from prerank.forecasts.sampling import Forecast, equally_weighted_draws
from prerank.forecasts.support import inside_support
from prerank.randomness import case_keys, uniform

_Kind = TypeVar("_Kind")
_NEVER = -1e4  # a log weight whose exponential is zero, and which can be computed with


def equal_mixture(forecasts: Sequence[Forecast]) -> Forecast:
    """The equal mixture of forecasts of the same cases.

    Gaussian mixtures and normal distributions give a `GaussianMixture` of all their components, ensembles one of all
    their members, other distributions a `Mixed`.

    Parameters
    ----------
    forecasts : sequence of Ensemble or Distribution
        Forecasts of one kind, for the same cases and targets.

    Returns
    -------
    GaussianMixture, Ensemble or Mixed
        A draw from it is a draw from one of the forecasts, each as likely.

    Raises
    ------
    ValueError
        If there is no forecast, or cases or targets differ.
    TypeError
        If ensembles and distributions are mixed.

    Examples
    --------
    >>> one = GaussianMixture(torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.eye(3).expand(4, 2, 3, 3))
    >>> equal_mixture([one, one])
    GaussianMixture(4 cases, 4 components, 3 targets)
    """
    forecasts = list(forecasts) if isinstance(forecasts, Sequence) else [forecasts]
    if not forecasts:
        raise ValueError("no forecast to mix; give at least one")
    for each in forecasts:
        if not is_forecast(each):
            raise TypeError(f"{described(each)} is no forecast; mix Ensembles or torch distributions")
    ensembles = _all_of(Ensemble, forecasts)
    if ensembles is None and _all_of(Distribution, forecasts) is None:
        raise TypeError("some forecasts are ensembles and others distributions, which cannot be mixed; give one kind")
    sizes = [_sizes(each) for each in forecasts]
    if len(set(sizes)) > 1:
        found = ", ".join(f"{cases} cases and {targets} targets" for cases, targets in dict.fromkeys(sizes))
        raise ValueError(f"forecasts that are mixed are for the same cases and targets, got {found}")
    if len(forecasts) == 1:
        return forecasts[0]
    if ensembles is not None:
        return _of_ensembles(ensembles)
    laws: list[Distribution] = [normal_as_mixture(each) for each in forecasts]
    mixtures = _all_of(GaussianMixture, laws)
    if mixtures is not None:
        # log weights of every mixture sum to one, so side by side each counts the same
        return GaussianMixture(
            torch.cat([each.log_weights for each in mixtures], -1),
            torch.cat([each.loc for each in mixtures], -2),
            torch.cat([each.scale_tril for each in mixtures], -3),
        )
    return Mixed(laws)


def _all_of(kind: type[_Kind], forecasts: Sequence[Any]) -> list[_Kind] | None:
    """The forecasts if all are of a kind."""
    return list(forecasts) if all(isinstance(each, kind) for each in forecasts) else None


def _sizes(forecast: Forecast) -> tuple[Any, Any]:
    """Cases and targets, one number each, or several with other axes."""
    lead, targets = tuple(forecast.batch_shape), tuple(forecast.event_shape)
    return lead[0] if len(lead) == 1 else lead, targets[0] if len(targets) == 1 else targets


def _of_ensembles(ensembles: Sequence[Ensemble]) -> Ensemble:
    members = torch.cat([each.members for each in ensembles], -2)
    if all(each.weights is None for each in ensembles) and len({each.n_members for each in ensembles}) == 1:
        return Ensemble(members)
    return Ensemble(members, torch.cat([each.probabilities for each in ensembles], -1))


class _Supports(constraints.Constraint):
    """Where any of the parts of a mixture may lie, or with `sizes` each part in the rows that are its own."""

    event_dim = 1

    def __init__(self, parts: Sequence[Distribution], sizes: Sequence[int] | None = None) -> None:
        self.parts, self.sizes = parts, sizes

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return all(bool(each.support is not None and each.support.is_discrete) for each in self.parts)

    def check(self, value: Tensor) -> Tensor:
        values = [value] * len(self.parts) if self.sizes is None else value.split(list(self.sizes), -2)
        found = []
        for each, own in zip(self.parts, values, strict=True):
            inside = inside_support(own, each)
            found.append(torch.ones_like(own[..., 0]).bool() if inside is None else inside)
        return torch.stack(found).any(0) if self.sizes is None else torch.cat(found, -1)


class Mixed(Distribution):
    """The equal mixture of distributions of the same cases: a draw comes from each with the same probability.

    Parameters
    ----------
    parts : sequence of torch.distributions.Distribution
        The same batch shape (n_cases,) and event shape (n_targets,).

    Raises
    ------
    ValueError
        If the shapes differ.

    See Also
    --------
    equal_mixture : makes one, or what is simpler
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(self, parts: Sequence[Distribution]) -> None:
        shapes = {(each.batch_shape, each.event_shape) for each in parts}
        if len(shapes) != 1:
            found = ", ".join(f"{tuple(batch)} and {tuple(event)}" for batch, event in sorted(shapes))
            raise ValueError(f"forecasts that are mixed have one batch and event shape, got {found}")
        self.parts = tuple(parts)
        super().__init__(parts[0].batch_shape, parts[0].event_shape, validate_args=False)

    def __repr__(self) -> str:
        return f"Mixed({len(self.parts)} of {type(self.parts[0]).__name__}, {self.batch_shape[-1]} cases)"

    @property
    def support(self) -> Any:
        """Where any of the parts may lie."""
        return _Supports(self.parts)

    @property
    def mean(self) -> Tensor:
        """Mean, (N, D)."""
        return torch.stack([each.mean for each in self.parts]).mean(0)

    @property
    def variance(self) -> Tensor:
        """Variance of each target, (N, D)."""
        within = torch.stack([each.variance for each in self.parts]).mean(0)
        return within + torch.stack([each.mean for each in self.parts]).var(0, correction=0)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of one point per case, as torch has it.

        Parameters
        ----------
        value : Tensor, shape (..., n_cases, n_targets)
            Points.

        Returns
        -------
        Tensor, shape (..., n_cases)
            Log densities; minus infinity outside the support.
        """
        return torch.logsumexp(torch.stack([each.log_prob(value) for each in self.parts]), 0) - math.log(
            len(self.parts)
        )

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws; those of a case depend on (seed, stream, its identifier) where the parts allow it.

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
            Members (n_cases, n_draws, n_targets).
        """
        drawn = [
            equally_weighted_draws(each, n_draws, seed, f"{stream}, part {k}", case_ids).members
            for k, each in enumerate(self.parts)
        ]
        ids = torch.arange(self.batch_shape[-1]) if case_ids is None else case_ids
        keys = case_keys(seed, ids.to(drawn[0].device), stream, "part")
        pick = (uniform(keys, (n_draws,)) * len(drawn)).long().clamp_max(len(drawn) - 1)
        places = pick[None, ..., None].expand(1, *drawn[0].shape)
        return Ensemble(torch.stack(drawn).gather(0, places)[0])

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
        drawn = torch.stack([each.sample(sample_shape) for each in self.parts])
        pick = torch.randint(len(self.parts), drawn.shape[1:-1], device=drawn.device)
        return drawn.gather(0, pick[None, ..., None].expand(1, *drawn.shape[1:]))[0]

    def select(self, cases: Tensor | slice) -> "Mixed":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        Mixed
            The forecast of these cases.
        """
        return Mixed([select_cases(each, cases) for each in self.parts])

    def case_by_case(self) -> "Mixed":
        """The same forecast, with draws of a case that are independent of other cases where its parts can be cut into
        cases.

        Returns
        -------
        Mixed
            The forecast.
        """
        return Mixed([case_by_case(each) for each in self.parts])


def side_by_side(forecasts: Sequence[Forecast]) -> Forecast:
    """Forecasts of different cases as one forecast of all of them, in their order.

    >>> one = GaussianMixture(torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.eye(3).expand(4, 2, 3, 3))
    >>> side_by_side([one, one])
    GaussianMixture(8 cases, 2 components, 3 targets)
    """
    laws = [normal_as_mixture(each) for each in forecasts]
    mixtures = _all_of(GaussianMixture, laws)
    if mixtures is not None:
        count = max(each.n_components for each in mixtures)
        mixtures = [_with_components(each, count) for each in mixtures]
        return GaussianMixture(
            torch.cat([each.logits for each in mixtures]),
            torch.cat([each.loc for each in mixtures]),
            torch.cat([each.scale_tril for each in mixtures]),
        )
    ensembles = _all_of(Ensemble, laws)
    if ensembles is not None:
        members = torch.cat([each.members for each in ensembles])
        if all(each.weights is None for each in ensembles):
            return Ensemble(members)
        return Ensemble(members, torch.cat([each.probabilities for each in ensembles]))
    distributions = _all_of(Distribution, laws)
    if distributions is None:
        raise TypeError("some forecasts are ensembles and others distributions; give one kind")
    return SideBySide(distributions)


def _with_components(law: GaussianMixture, count: int) -> GaussianMixture:
    """The same law with more components, copies of the first whose weight is zero."""
    more = count - law.n_components
    if not more:
        return law
    return GaussianMixture(
        torch.cat([law.log_weights, law.logits.new_full((*law.batch_shape, more), _NEVER)], -1),
        torch.cat([law.loc, law.loc[..., :1, :].expand(*law.batch_shape, more, -1)], -2),
        torch.cat([law.scale_tril, law.scale_tril[..., :1, :, :].expand(*law.batch_shape, more, -1, -1)], -3),
    )


class SideBySide(Distribution):
    """Distributions of different cases, as one of all of them."""

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(self, parts: Sequence[Distribution]) -> None:
        self.parts = tuple(parts)
        self.sizes = [each.batch_shape[-1] for each in parts]
        super().__init__(torch.Size([sum(self.sizes)]), parts[0].event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return _Supports(self.parts, self.sizes)

    @property
    def mean(self) -> Tensor:
        return torch.cat([each.mean for each in self.parts])

    @property
    def variance(self) -> Tensor:
        return torch.cat([each.variance for each in self.parts])

    def log_prob(self, value: Tensor) -> Tensor:
        cut = value.split(self.sizes, -2)
        return torch.cat([each.log_prob(part) for each, part in zip(self.parts, cut, strict=True)], -1)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws (N, M, D), those of every part by names of its own."""
        ids = torch.arange(sum(self.sizes)) if case_ids is None else case_ids
        drawn = [
            equally_weighted_draws(each, n_draws, seed, f"{stream}, part {k}", own).members
            for k, (each, own) in enumerate(zip(self.parts, ids.split(self.sizes), strict=True))
        ]
        return Ensemble(torch.cat(drawn))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return torch.cat([each.sample(torch.Size(sample_shape)) for each in self.parts], -2)

    def select(self, cases: Tensor | slice) -> "SideBySide":
        """The same forecast for some of its cases: runs of cases of one part, side by side."""
        places = torch.arange(sum(self.sizes))[cases.cpu() if isinstance(cases, Tensor) else cases]
        ends = torch.tensor(self.sizes).cumsum(0)
        part = torch.searchsorted(ends, places, right=True)
        within = places - (ends - torch.tensor(self.sizes))[part]
        runs = torch.tensor_split(torch.arange(len(places)), (part.diff() != 0).nonzero()[:, 0] + 1)
        return SideBySide([select_cases(self.parts[int(part[run[0]])], within[run]) for run in runs if len(run)])

    def case_by_case(self) -> "SideBySide":
        """The same forecast, its draws of a case independent of the cases beside it where its parts can be cut."""
        return SideBySide([case_by_case(each) for each in self.parts])
