"""An ensemble: members, their weights, and what the pre-ranks may learn from instead of them."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, MultivariateNormal, TransformedDistribution

from prerank._wording import shape_in_words
from prerank.arrays.conversion import as_tensor
from prerank.arrays.labels import ROLES, is_xarray
from prerank.arrays.precision import precision_of


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Samples of a forecast, cases before members before targets.

    NumPy, pandas and xarray become torch; an xarray array whose dimensions are called case, member and target may have
    them in any order.

    Parameters
    ----------
    members : array_like, shape (..., n_cases, n_members, n_targets)
        The samples; leading axes are free.
    weights : array_like, shape (..., n_cases, n_members), optional
        Weights of members, which need not sum to one; None means equal.
    reference : Ensemble, Distribution or array_like of shape (..., n_cases, n_draws, n_targets), optional
        What a pre-rank may learn from (principal directions, a density, a joint CDF) instead of the members it ranks:
        independent draws or a distribution. Without it the members are pooled with the observation.

    Attributes
    ----------
    precision : torch.dtype or None
        The floating type that the members came in (None: whole numbers); half precision is kept in single.

    Raises
    ------
    ValueError
        If members have fewer than three axes, or weights or reference do not fit them.

    See Also
    --------
    as_ensemble : from an array whose axes stand in another order
    from_long : from a table with a row per value

    Examples
    --------
    >>> Ensemble(torch.zeros(7, 20, 3))
    Ensemble(7 cases, 20 members, 3 targets)
    """

    members: Tensor
    weights: Tensor | None = None
    reference: "Ensemble | Distribution | Tensor | None" = None
    precision: torch.dtype | None = field(init=False)

    def __post_init__(self) -> None:
        given: Any = self.members
        if is_xarray(given) and sorted(map(str, given.dims)) == sorted(ROLES):
            given = given.transpose(*ROLES)
        object.__setattr__(self, "members", as_tensor(given, "members"))
        object.__setattr__(self, "precision", precision_of(given))
        if self.members.ndim < 3:
            raise ValueError(
                f"members need three axes (cases, members, targets), got shape {tuple(self.members.shape)}; "
                "for one target use members[..., None], for one case members[None]"
            )
        if self.weights is not None:
            object.__setattr__(self, "weights", as_tensor(self.weights, "weights"))
            if self.weights.shape != self.members.shape[:-1]:
                raise ValueError(
                    f"weights have shape {tuple(self.weights.shape)} but members have {tuple(self.members.shape)}; "
                    f"one weight per case and member is {tuple(self.members.shape[:-1])}"
                )
        if self.reference is not None:
            object.__setattr__(self, "reference", self._fitting(self.reference))

    def _fitting(self, reference: Any) -> "Ensemble | Distribution":
        """The reference as a forecast of the same cases and targets."""
        if isinstance(reference, type):
            raise TypeError(f"reference is the class {reference.__name__}; pass a value of it")
        if isinstance(reference, Distribution):
            if len(reference.event_shape) != 1 or not reference.batch_shape:
                raise ValueError(
                    f"the reference has event shape {tuple(reference.event_shape)} and batch shape "
                    f"{tuple(reference.batch_shape)}; ({self.n_targets},) and ({self.n_cases},) are needed: wrap "
                    "independent targets as torch.distributions.Independent(forecast, 1), and repeat one distribution for "
                    "all cases with forecast.expand"
                )
            cases, targets = reference.batch_shape[-1], reference.event_shape[0]
        else:
            reference = reference if isinstance(reference, Ensemble) else Ensemble(reference)
            cases, targets = reference.n_cases, reference.n_targets
        # one distribution for all cases will do
        if targets != self.n_targets or not (
            cases == self.n_cases or (cases == 1 and isinstance(reference, Distribution))
        ):
            raise ValueError(
                f"reference draws are for {cases} cases and {targets} targets, "
                f"the members for {self.n_cases} and {self.n_targets}"
            )
        return reference

    def __repr__(self) -> str:
        lead, kind = tuple(self.members.shape[:-3]), "member" if self.weights is None else "weighted_member"
        sizes = shape_in_words(lead, **{"case": self.n_cases, kind: self.n_members, "target": self.n_targets})
        return f"Ensemble({sizes}{'' if self.reference is None else f', reference={self.reference!r}'})"

    @property
    def batch_shape(self) -> torch.Size:
        """Leading axes and cases (..., N), as distributions have it."""
        return self.members.shape[:-2]

    @property
    def event_shape(self) -> torch.Size:
        """The axis of targets (D,), as distributions have it."""
        return self.members.shape[-1:]

    @property
    def n_cases(self) -> int:
        """Number of cases N."""
        return self.members.shape[-3]

    @property
    def n_members(self) -> int:
        """Number of members M."""
        return self.members.shape[-2]

    @property
    def n_targets(self) -> int:
        """Number of targets D."""
        return self.members.shape[-1]

    @property
    def probabilities(self) -> Tensor:
        """Member weights that sum to one, (..., N, M)."""
        if self.weights is None:
            return torch.full_like(self.members[..., 0], 1.0 / self.n_members)
        return self.weights / self.weights.sum(-1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        """Mean of the members, (..., N, D)."""
        if self.weights is None:
            return self.members.mean(-2)
        return (self.probabilities[..., None] * self.members).sum(-2)

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance of the members (divisor one: the weights), (..., N, D, D)."""
        centred = self.members - self.mean[..., None, :]
        return (self.probabilities[..., None] * centred).mT @ centred

    @property
    def effective_size(self) -> Tensor:
        """Kish's effective number of members, 1 / sum w^2, (..., N)."""
        return 1.0 / self.probabilities.square().sum(-1)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> "Ensemble":
        """The ensemble itself: its members, with their weights, are its draws.

        Parameters
        ----------
        n_draws, seed, stream, case_ids : object
            What distributions draw by; members need none of it.

        Returns
        -------
        Ensemble
            This object.
        """
        return self

    def in_units(self, units: Tensor) -> "Ensemble":
        """The same forecast in other units.

        Parameters
        ----------
        units : Tensor, shape (n_targets,)
            What each target is divided by.

        Returns
        -------
        Ensemble
            The forecast, and its reference, in these units.
        """
        reference = None if self.reference is None else in_units(self.reference, units)
        return Ensemble(self.members / units.to(self.members), self.weights, reference)

    def select(self, cases: Tensor | slice) -> "Ensemble":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        Ensemble
            The forecast of these cases.
        """
        reference: Any = self.reference
        if reference is not None:
            if not hasattr(reference, "select"):
                raise TypeError(
                    f"an ensemble whose reference is a {type(reference).__name__} cannot be cut into cases; "
                    "use a GaussianMixture or draws as the reference"
                )
            reference = reference.select(cases)
        weights = None if self.weights is None else self.weights[..., cases, :]
        return Ensemble(self.members[..., cases, :, :], weights, reference)

    def to_xarray(self, like: Any = None) -> Any:
        """The members as an `xarray.DataArray` along case, member and target, or the dimensions of an array of observations.

        Parameters
        ----------
        like : DataFrame or DataArray, shape (n_cases, n_targets), optional
            Whose labels of cases and targets are taken, such as the observations.

        Returns
        -------
        xarray.DataArray
            The members; weights, if there are any, as the coordinate "weight".

        Examples
        --------
        >>> import pandas as pd
        >>> y = pd.DataFrame([[1.0, 2.0]], columns=["Oslo", "Voss"])
        >>> Ensemble(torch.zeros(1, 5, 2)).to_xarray(y)["target"].values.tolist()
        ['Oslo', 'Voss']
        """
        from prerank.forecasts.labelled import as_data_array

        array = as_data_array(self.members.detach().cpu().numpy(), like)
        if self.weights is not None:
            array = array.assign_coords(weight=(array.dims[:2], self.weights.detach().cpu().numpy()))
        return array

    def to_frame(self, like: Any = None) -> Any:
        """The members as a `pandas.DataFrame` with a row per case, member and target, which `from_long` reads.

        Parameters
        ----------
        like : DataFrame or DataArray, shape (n_cases, n_targets), optional
            Whose labels of cases and targets are taken, such as the observations.

        Returns
        -------
        pandas.DataFrame
            Columns of the cases, "member", "target" and "value"; weights, if there are any, in "weight".

        Examples
        --------
        >>> Ensemble(torch.zeros(1, 2, 2)).to_frame().columns.tolist()
        ['case', 'member', 'target', 'value']
        """
        from prerank.forecasts.labelled import as_long_frame

        frame = as_long_frame(self.members.detach().cpu().numpy(), like)
        if self.weights is not None:
            frame["weight"] = self.weights.detach().cpu().numpy().repeat(self.n_targets)
        return frame


def in_units(forecast: Any, units: Tensor) -> Any:
    """Any forecast in other units, each target divided by a number.

    Parameters
    ----------
    forecast : Ensemble or Distribution
        One with a method `in_units`, or any distribution.
    units : Tensor, shape (n_targets,)
        What each target is divided by.

    Returns
    -------
    Ensemble or Distribution
        The forecast in these units.
    """
    if hasattr(forecast, "in_units"):
        return forecast.in_units(units)
    if isinstance(forecast, MultivariateNormal):
        units = units.to(forecast.loc)
        return MultivariateNormal(forecast.loc / units, scale_tril=forecast.scale_tril / units[:, None])
    return TransformedDistribution(forecast, AffineTransform(torch.zeros_like(units), 1 / units, event_dim=1))
