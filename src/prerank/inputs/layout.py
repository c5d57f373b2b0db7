"""A forecast and its observations, whatever they came in: axes in the project's order, cases and targets aligned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays.conversion import as_observations, as_tensor, described, is_forecast
from prerank.arrays.labels import ROLES, Axes, Labels, is_xarray, labels_of, oriented, positions
from prerank.arrays.precision import precision_of
from prerank.forecasts.ensemble import Ensemble


@dataclass(frozen=True, eq=False)
class Inputs:
    """Observations (..., N, D), the forecast for them, the labels of both, and the floating type that y came in.

    `order` says where in the forecast as given each case of y was found (None: in its place), for what goes along with
    it, such as weights.
    """

    y: Tensor
    forecast: Ensemble | Distribution
    labels: Labels
    precision: torch.dtype | None
    order: Tensor | None


def observations_and_forecast(y: Any, forecast: Any, axes: Axes | None = None) -> Inputs:
    """Convert both, orient them by the names of their dimensions, align cases and targets by their labels.

    The forecast is brought into the order of y. What has no labels goes by position: arrays, tensors, an `Ensemble`, a
    distribution, a pandas `RangeIndex`.
    """
    refuse_swapped(y, forecast)
    refuse_idle_axes(y, forecast, axes)
    y, forecast, known = oriented(y, forecast, axes)
    observed = as_observations(y)
    labels = labels_of(y, observed.ndim)
    if is_forecast(forecast):
        return Inputs(observed, forecast, labels, precision_of(y), None)
    ensemble = as_ensemble(forecast, None if known else observed, None if known else axes)
    own = labels_of(forecast, 3)
    cases = positions(own.cases, labels.cases, "the forecast")
    targets = positions(own.targets, labels.targets, "the forecast", "target")
    order = None
    if cases is not None:
        order = torch.as_tensor(cases, device=ensemble.members.device)
        ensemble = ensemble.select(order)
    if targets is not None:
        ensemble = Ensemble(ensemble.members[..., torch.as_tensor(targets, device=ensemble.members.device)])
    if known:
        refuse_other_layouts(tuple(ensemble.members.shape), tuple(observed.shape), known=True)
    found = Labels(
        own.cases if labels.cases is None else labels.cases, own.targets if labels.targets is None else labels.targets
    )
    return Inputs(observed, ensemble, found, precision_of(y), order)


def refuse_swapped(y: Any, forecast: Any) -> None:
    """Refuse a forecast in the place of y, members in the place of y, and y in the place of members."""
    if is_forecast(y) or isinstance(y, type):
        as_observations(y)
    if is_forecast(forecast):
        return
    if isinstance(forecast, type):
        raise TypeError(f"the forecast is {described(forecast)}; pass a value of it")
    shape, other = (tuple(getattr(value, "shape", ())) for value in (y, forecast))
    if len(shape) == 3 and len(other) == 2 and {*other} <= {*shape}:
        raise ValueError(
            f"y has shape {shape} and the forecast {other}, so they look swapped: the observations (cases, targets) "
            "come first, then the members (cases, members, targets)"
        )
    if len(shape) == 2 and shape == other:
        raise ValueError(
            f"the forecast has shape {other}, which is y's: one value per case and target is no ensemble; pass members "
            f"({shape[0]}, M, {shape[1]}), or forecast[:, None] for an ensemble of one member"
        )


def refuse_idle_axes(y: Any, forecast: Any, axes: Axes | None) -> None:
    if axes is None:
        return
    if isinstance(axes, str) or not isinstance(axes, Sequence | Mapping):
        raise TypeError(f'axes={axes!r}: name the axes one by one, such as axes=("member", "case", "target")')
    if is_forecast(forecast) and not (isinstance(axes, Mapping) and is_xarray(y)):
        raise ValueError(
            f"axes= names the axes of an array, but the forecast is {described(forecast)}, "
            "whose layout is known; leave axes= out"
        )


def as_ensemble(values: Any, y: Any = None, axes: Axes | None = None) -> Ensemble:
    """An `Ensemble` from an array whose axes are named, in any order.

    `axes` says what each axis of `values` is, e.g. ("member", "case", "target") for the sample-first layout of PyMC, sbi
    and torch. Without it the layout is (case, member, target), and a shape that contradicts `y` (N, D), or fits it in two
    ways, is refused. xarray dimensions called case, member and target are recognised; others are named by `axes`, as a
    mapping {"time": "case", "number": "member", "station": "target"} or as a tuple of the dimensions in the order (case,
    member, target), or by y, if they are called as there.

    >>> as_ensemble(torch.zeros(100, 8, 3), axes=("member", "case", "target")).members.shape
    torch.Size([8, 100, 3])
    """
    if is_forecast(values):
        if isinstance(values, Ensemble):
            return values
        raise TypeError(
            f"a {type(values).__name__} is a forecast already; pass it as it is, or draw from it with "
            "prerank.forecasts.equally_weighted_draws(forecast, n_draws)"
        )
    if y is not None and not isinstance(y, Tensor):
        found = observations_and_forecast(y, values, axes).forecast
        assert isinstance(found, Ensemble)
        return found
    if is_xarray(values):
        _, values, known = oriented(None, values, axes)
        if known:
            ensemble = Ensemble(values)
            if y is not None:
                refuse_other_layouts(tuple(ensemble.members.shape), tuple(y.shape), known=True)
            return ensemble
    elif isinstance(axes, Mapping):
        oriented(None, values, axes)  # refuses names of dimensions where there are none
    tensor = as_tensor(values, "the forecast")
    if axes is not None:
        if isinstance(axes, str) or sorted(axes) != sorted(ROLES) or tensor.ndim != 3:
            raise ValueError(
                f"axes={axes if isinstance(axes, str) else tuple(axes)} for an array of shape {tuple(tensor.shape)}: "
                f"name each of {ROLES} exactly once"
            )
        return _of_precision(tensor.permute(*(list(axes).index(axis) for axis in ROLES)), values)
    if y is not None and tensor.ndim >= 3:
        refuse_other_layouts(tuple(tensor.shape), tuple(y.shape))
    return _of_precision(tensor, values)


def _of_precision(members: Tensor, came_as: Any) -> Ensemble:
    ensemble = Ensemble(members)
    object.__setattr__(ensemble, "precision", precision_of(came_as))
    return ensemble


def refuse_other_layouts(shape: tuple[int, ...], observed: tuple[int, ...], known: bool = False) -> None:
    *_, cases, targets = observed
    first, second, last = shape[-3:]
    fits = first == cases and last == targets
    sample_first = second == cases and last == targets and not known
    member_last = first == cases and second == targets and not known
    if fits and sample_first and cases > 1 and len(shape) == 3:
        raise ValueError(
            f"an ensemble of shape {shape} for {cases} cases is ambiguous: the first two axes have the same length; "
            'say axes=("case", "member", "target") or axes=("member", "case", "target")'
        )
    if fits and member_last and targets > 1 and len(shape) == 3:
        raise ValueError(
            f"an ensemble of shape {shape} for {targets} targets is ambiguous: the last two axes have the same length; "
            'say axes=("case", "member", "target") or axes=("case", "target", "member")'
        )
    if fits:
        return
    hint = ""
    if sample_first:
        hint = ' it looks sample-first: pass axes=("member", "case", "target")'
    elif member_last:
        hint = ' it looks member-last: pass axes=("case", "target", "member")'
    raise ValueError(
        f"an ensemble of shape {shape} does not match y of shape {observed}: "
        f"expected (..., {cases} cases, M members, {targets} targets);{hint or ' check both'}"
    )
