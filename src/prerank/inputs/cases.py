"""`Cases`: observations, the forecast for them and what belongs to every case, whatever they came in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays.conversion import as_observations, described, is_forecast
from prerank.arrays.labels import (
    Axes,
    Labels,
    declared_names,
    is_xarray,
    labels_of,
    member_names,
    orient_dimensions,
    positions,
    target_names,
)
from prerank.arrays.precision import Precisions, precision_of
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws, select_cases
from prerank.forecasts.batching import CannotBeCut
from prerank.forecasts.sampling import require_vector_distribution
from prerank.inputs.checks import (
    require_fitting,
    require_observations,
    require_parameters,
    require_some,
    require_sound,
)
from prerank.inputs.layout import in_layout, refuse_idle_axes, refuse_other_layouts, refuse_swapped
from prerank.inputs.lazy_members import LazyMembers, is_lazy, survey_in_chunks
from prerank.inputs.per_case import CaseIndex
from prerank.inputs.rescaling import Magnitudes, Units, chosen_units
from prerank.inputs.survey import Survey, cases_with_members, observed_cases, survey, without_gaps


@dataclass(frozen=True, eq=False)
class Cases:
    """Observations (..., N, D) and the forecast for the same cases, in one layout and order.

    Every method that changes something returns other `Cases`, and says in `notes` what it did.

    Attributes
    ----------
    y : Tensor or None
        Observations; None for what has not been observed.
    forecast : Ensemble, Distribution or LazyMembers
        The forecast; members in Dask chunks are those of all the cases that were given.
    index : CaseIndex
        Which cases were given, what they are called, and which are left.
    labels : Labels
        Labels of the cases that were given, of the targets and of the members; None where position counts.
    precisions : Precisions
        The floating types that both came in.
    order : Tensor or None
        Where in the forecast as given each case was found; None: in its place.
    present : Tensor, shape (N, M), or None
        Which members are there; None: all.
    survey : Survey or None
        What was seen of the members.
    units : Units
        What targets have been divided by.
    notes : tuple of str
        What was done, a sentence each.
    ids : Tensor, shape (N,), or None
        Names of the cases for everything that is keyed by a seed. These and the next four are what `along` was given.
    weights : Tensor, shape (N,), or None
        How much each case counts.
    observation_weights : Tensor, shape (N,), or None
        The observation's own weight among weighted members.
    blocks : Tensor of int, shape (N,), or None
        Blocks of dependent cases, numbered from 0.
    groups : Tensor of int, shape (N,), or None
        Groups of cases, numbered from 0.
    group_names : tuple
        Labels of the groups.
    member_names : tuple of str or None
        What members are called that are models of their own; None where they are exchangeable.
    """

    y: Tensor | None
    forecast: Forecast | LazyMembers
    index: CaseIndex
    labels: Labels
    precisions: Precisions = field(default_factory=Precisions)
    order: Tensor | None = None
    present: Tensor | None = None
    survey: Survey | None = None
    units: Units = field(default_factory=Units)
    notes: tuple[str, ...] = ()
    ids: Tensor | None = None
    weights: Tensor | None = None
    observation_weights: Tensor | None = None
    blocks: Tensor | None = None
    groups: Tensor | None = None
    group_names: tuple[Any, ...] = ()
    member_names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        y: Any,
        forecast: Any,
        axes: Axes | None = None,
        *,
        joint: str | Sequence[str] | None = None,
        lazy: bool = False,
    ) -> "Cases":
        """Convert both, orient them by the names of their dimensions, align cases and targets by their labels.

        The forecast is brought into the order of y. What has no labels goes by position: arrays, tensors, an `Ensemble`, a
        distribution, a pandas `RangeIndex`.

        Parameters
        ----------
        y : array_like, shape (..., n_cases, n_targets)
            Observations.
        forecast : Ensemble, Distribution or array_like of shape (..., n_cases, n_members, n_targets)
            The forecast.
        axes : sequence or dict of str, optional
            What the axes are, as for `as_ensemble`.
        joint : str or sequence of str, optional
            The dimensions of xarray objects that are targets, in this order; all others but that of the members are cases.
        lazy : bool, default False
            Leave members that are Dask chunks where they are.

        Returns
        -------
        Cases
            Of all cases; nothing has been looked at yet but shapes and labels.
        """
        if y is None:
            as_observations(y)  # refuses it
        return cls._of(y, forecast, axes, joint, lazy)

    @classmethod
    def unobserved(
        cls, forecast: Any, axes: Axes | None = None, *, joint: str | Sequence[str] | None = None
    ) -> "Cases":
        """The same of a forecast of what has not been observed.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (..., n_cases, n_members, n_targets)
            The forecast.
        axes : sequence or dict of str, optional
            What the axes are, as for `as_ensemble`.
        joint : str or sequence of str, optional
            The dimensions of an xarray object that are targets.

        Returns
        -------
        Cases
            Without `y`.
        """
        return cls._of(None, forecast, axes, joint, False)

    @classmethod
    def _of(cls, y: Any, forecast: Any, axes: Axes | None, joint: str | Sequence[str] | None, lazy: bool) -> "Cases":
        refuse_swapped(y, forecast)
        refuse_idle_axes(y, forecast, axes)
        y, forecast, known = orient_dimensions(y, forecast, axes, joint)
        observed = None if y is None else as_observations(y)
        labels = Labels() if observed is None else labels_of(y, observed.ndim)
        precision, order = None if y is None else precision_of(y), None
        made: Forecast | LazyMembers
        if is_forecast(forecast):
            made = forecast
        else:
            own = labels_of(forecast, 3)
            if lazy and is_lazy(forecast):
                assert observed is not None
                made = LazyMembers.of(forecast, own, labels)
                refuse_other_layouts(made.shape, tuple(observed.shape), known=known)
            else:
                made = in_layout(forecast, None if known else observed, None if known else axes)
                made, order = _in_order_of(labels, made, own)
                if known and observed is not None:
                    refuse_other_layouts(tuple(made.members.shape), tuple(observed.shape), known=True)
            labels = labels.or_else(own)
        n_given = _length(made.batch_shape) if observed is None else observed.shape[-2]
        coordinates = {**(_coordinates(forecast, order) if known else {}), **_coordinates(y, None)}
        whose = "the forecast" if y is None or labels_of(y, 2).cases is None else "y"
        place = torch.device("cpu") if observed is None else observed.device
        index = CaseIndex(n_given, labels.cases, torch.arange(n_given, device=place), coordinates, whose)
        of_members = getattr(made, "precision", None)
        named = member_names(labels.members)
        return cls(observed, made, index, labels, Precisions(precision, of_members), order, member_names=named)

    @property
    def n_targets(self) -> int:
        """Number of targets D."""
        return _length(self.forecast.event_shape) if self.y is None else self.y.shape[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """What the targets are called by their labels; y1, y2, ... where they have none."""
        return target_names(self.labels, self.n_targets)

    def with_member_names(self, names: Sequence[str] | None) -> "Cases":
        """The same with members that are said to be models of their own; None leaves it to their labels.

        Parameters
        ----------
        names : sequence of str, optional
            A name for each member.

        Returns
        -------
        Cases
            With `member_names`.
        """
        if names is None:
            return self
        forecast = self.forecast
        if isinstance(forecast, Distribution):
            raise TypeError(f"member_names are for members, and the forecast is {described(forecast)}; leave them out")
        n_members = forecast.n_members if isinstance(forecast, Ensemble) else forecast.shape[1]
        return replace(self, member_names=declared_names(names, n_members))

    @property
    def law(self) -> Forecast:
        """The forecast in memory."""
        assert not isinstance(self.forecast, LazyMembers)
        return self.forecast

    def observed(self) -> Tensor:
        """The observations, which there are.

        Returns
        -------
        Tensor, shape (..., n_cases, n_targets)
            `y`.
        """
        assert self.y is not None
        return self.y

    def of_one_model(self) -> "Cases":
        """The same, y (N, D), after several models together have been refused; a fleet of one is a model.

        Returns
        -------
        Cases
            With one axis of cases.
        """
        y, forecast = self.y, self.forecast
        if y is not None and y.ndim != 2:
            raise ValueError(f"y has shape {tuple(y.shape)}; give one model at a time, y (cases, targets)")
        if isinstance(forecast, LazyMembers):
            return self
        if isinstance(forecast, GaussianMixture) and len(forecast.batch_shape) == 2 and forecast.batch_shape[0] == 1:
            forecast = GaussianMixture(forecast.logits[0], forecast.loc[0], forecast.scale_tril[0])
        if isinstance(forecast, Distribution):
            require_vector_distribution(forecast, None if y is None else len(y))
        lead = tuple(forecast.batch_shape[:-1])
        if lead:
            raise ValueError(f"the forecast has leading axes {lead} before its cases; give one model at a time")
        if y is not None:
            if isinstance(forecast, Distribution) and forecast.batch_shape == (1,) != y.shape[:1]:
                raise ValueError(
                    f"the forecast has batch shape (1,), but y has {len(y)} cases: ({len(y)},) is needed; "
                    f"forecast.expand(({len(y)},)) repeats it"
                )
            require_fitting(y, forecast)
        else:
            require_some(forecast)
        require_parameters(forecast)
        return replace(self, forecast=forecast)

    def in_one_precision(self) -> "Cases":
        """y and members with the values of the coarser of their types, so that equal values stay equal.

        Returns
        -------
        Cases
            In the wider of the two types.
        """
        y, forecast = self.observed(), self.forecast
        if isinstance(forecast, Ensemble):
            y, members, moved = self.precisions.together(y.to(forecast.members.device), forecast.members)
            forecast = replace(forecast, members=members)
        elif isinstance(forecast, LazyMembers):
            y, _, moved = self.precisions.together(y, np.empty(0, dtype=forecast.array.dtype))
        else:
            return self
        index = replace(self.index, kept=self.index.kept.to(y.device))
        notes = self.notes if moved is None else (*self.notes, moved)
        return replace(self, y=y, forecast=forecast, index=index, notes=notes)

    def complete(self, fewest: int = 1, done: Callable[[int], None] | None = None) -> "Cases":
        """Without cases whose observation is missing, or of which fewer than `fewest` members are there.

        Which members are missing in the other cases is kept in `present`. Infinite numbers and fill values are refused.

        Parameters
        ----------
        fewest : int, default 1
            Members that a case needs, if the ensemble has as many.
        done : callable, optional
            Told how many cases of a forecast in chunks have been looked at.

        Returns
        -------
        Cases
            Those that are left.
        """
        y, forecast, notes = self.y, self.forecast, [*self.notes]
        complete = torch.ones(self.index.n_given, dtype=torch.bool)
        if y is not None:
            complete, more = observed_cases(y)
            notes += more
        if isinstance(forecast, Distribution):
            return replace(self, notes=tuple(notes))._left(complete)
        present = None
        if isinstance(forecast, LazyMembers):
            found = survey_in_chunks(forecast, self.observed(), complete, self.precisions, done)
        else:
            members = forecast.members
            places = torch.arange(len(members), device=members.device)
            found, present = survey(members, places, complete.to(members.device)), ~members.isnan().any(-1)
        left = cases_with_members(found, present, complete, forecast.n_members, fewest)
        if found.moved is not None and not self.notes:
            notes.insert(0, found.moved)
        return replace(self, present=left.present, survey=found, notes=(*notes, *left.notes))._left(left.cases)

    def _left(self, complete: Tensor) -> "Cases":
        """The cases that are left, the same object where that is all."""
        return self if bool(complete.all()) else self.select(complete.nonzero()[:, 0])

    def select(self, cases: Tensor) -> "Cases":
        """Some of the cases, by their positions.

        Members in Dask chunks stay those of all cases that were given.

        Parameters
        ----------
        cases : Tensor
            Positions among these cases.

        Returns
        -------
        Cases
            Of these alone.
        """
        cut: dict[str, Any] = {}
        for name in ("y", "present", "ids", "weights", "observation_weights", "blocks", "groups"):
            value = getattr(self, name)
            cut[name] = None if value is None else value[cases.to(value.device)]
        forecast = self.forecast if isinstance(self.forecast, LazyMembers) else _selected(self.forecast, cases)
        index = self.index.select(cases.to(self.index.kept.device))
        return replace(self, forecast=forecast, index=index, **cut)

    def rescaled(self, scale: str) -> "Cases":
        """Each target divided by its pooled spread where that is asked for or needed; ranks stay exact.

        Members in Dask chunks, and y with them, keep their units until they are read; then `units` apply.

        Parameters
        ----------
        scale : str
            "auto" where spreads differ more than tenfold, "pooled" always, "none" never.

        Returns
        -------
        Cases
            In units of their own.
        """
        y, forecast = self.observed(), self.forecast
        if self.survey is None:
            assert isinstance(forecast, Distribution)
            # draws of what a tilt weighs are as large as its own, and cost no weights
            points = equally_weighted_draws(getattr(forecast, "root", forecast), 16, 0, "spread").members.flatten(0, -2)
            ranked, dtype = Magnitudes.of(points), points.dtype
        else:
            assert self.survey.sizes is not None
            ranked, dtype = self.survey.sizes, y.dtype
        observed = Magnitudes.of(y.to(ranked.some))
        units = chosen_units(observed, ranked, self.survey is not None, scale, list(self.names), dtype)
        notes = (*self.notes, *units.notes)
        if isinstance(forecast, LazyMembers):
            return replace(self, units=units, notes=notes)
        return replace(self, y=units.apply(y), forecast=units.of_forecast(forecast), units=units, notes=notes)

    def along(
        self,
        *,
        case_ids: Any = None,
        case_weights: Any = None,
        observation_weights: Any = None,
        blocks: Any = None,
        by: Any = None,
    ) -> "Cases":
        """With what comes one per case of those that were given, aligned by labels and cut to the cases that are left.

        Each is an array, a series, or the name of a coordinate of the cases.

        Parameters
        ----------
        case_ids : array_like or str, optional
            Whole numbers or labels that name the cases.
        case_weights : array_like or str, optional
            How much each case counts.
        observation_weights : array_like or str, optional
            The observation's own weight among weighted members.
        blocks : array_like or str, optional
            Labels of dependent cases.
        by : array_like or str, optional
            Labels of groups.

        Returns
        -------
        Cases
            With `ids`, `weights`, `observation_weights`, `blocks`, `groups`.
        """
        index, device = self.index, _device(self)
        groups, names = (None, []) if by is None else index.groups(by, "by", device)
        return replace(
            self,
            observation_weights=index.weights(observation_weights, "observation_weights", device),
            ids=index.identifiers(case_ids, device),
            weights=index.weights(case_weights, "case_weights", device),
            blocks=index.numbers(blocks, "blocks", device),
            groups=groups,
            group_names=tuple(names),
        )

    def without_gaps(self) -> "Cases":
        """The same with numbers in the place of missing members, which then have no weight.

        Returns
        -------
        Cases
            With a weighted `Ensemble`, where a member is missing.
        """
        forecast = self.forecast
        if self.present is None or not isinstance(forecast, Ensemble):
            return self
        return replace(self, forecast=without_gaps(forecast, self.present))

    def require_complete(self) -> "Cases":
        """The same after everything that is missing, infinite or does not fit has been refused.

        Returns
        -------
        Cases
            This object.
        """
        y, forecast = self.observed(), self.law
        require_fitting(y, forecast)
        require_sound(forecast)
        require_observations(y)
        return self


def as_ensemble(values: Any, y: Any = None, axes: Axes | None = None) -> Ensemble:
    """An `Ensemble` from an array whose axes are named, in any order.

    Parameters
    ----------
    values : array_like
        Members along cases, members and targets.
    y : array_like, shape (n_cases, n_targets), optional
        Observations: a shape that contradicts them, or fits them in two ways, is refused, and dimensions that are called as
        theirs mean the same.
    axes : sequence or dict of str, optional
        What each axis of `values` is, such as ("member", "case", "target") for the sample-first layout of PyMC, sbi and
        torch; (case, member, target) by default. xarray dimensions called so are recognised; others are named as a mapping
        {"time": "case", "number": "member", "station": "target"} or as a tuple of the dimensions in the order (case, member,
        target).

    Returns
    -------
    Ensemble
        Members (n_cases, n_members, n_targets).

    Examples
    --------
    >>> as_ensemble(torch.zeros(100, 8, 3), axes=("member", "case", "target")).members.shape
    torch.Size([8, 100, 3])
    """
    if isinstance(values, Ensemble):
        return values
    if is_forecast(values):
        raise TypeError(
            f"a {type(values).__name__} is a forecast already; pass it as it is, or draw from it with "
            "prerank.forecasts.equally_weighted_draws(forecast, n_draws)"
        )
    found = (Cases.unobserved(values, axes) if y is None else Cases.of(y, values, axes)).law
    assert isinstance(found, Ensemble)
    return found


def _in_order_of(wanted: Labels, ensemble: Ensemble, own: Labels) -> tuple[Ensemble, Tensor | None]:
    """An ensemble with cases and targets where labels want them, and where each case was."""
    cases = positions(own.cases, wanted.cases, "the forecast")
    targets = positions(own.targets, wanted.targets, "the forecast", "target")
    order = None if cases is None else torch.as_tensor(cases, device=ensemble.members.device)
    if order is not None:
        ensemble = ensemble.select(order)
    if targets is not None:
        ensemble = Ensemble(ensemble.members[..., torch.as_tensor(targets, device=ensemble.members.device)])
    return ensemble, order


def _coordinates(value: Any, order: Tensor | None) -> dict[str, Any]:
    """Coordinates of an xarray object that have one value per case, and where in them each case stands."""
    if not is_xarray(value) or len(value.dims) < 2:
        return {}
    return {str(name): (item, order) for name, item in value.coords.items() if item.dims == (value.dims[0],)}


def _selected(forecast: Forecast, cases: Tensor) -> Forecast:
    try:
        return select_cases(forecast, cases)
    except CannotBeCut:
        raise ValueError(
            f"cases with a missing observation cannot be cut out of {described(forecast)}; drop them from y and the "
            "forecast before, or pass draws as an Ensemble"
        ) from None


def _length(shape: Sequence[int]) -> int:
    """The length of the last axis, zero where there is none."""
    return shape[-1] if shape else 0


def _device(cases: Cases) -> torch.device:
    return cases.index.kept.device if cases.y is None else cases.y.device
