"""Which axis of an array is which, and refusals of arrays in the place of others."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from prerank.arrays.conversion import as_observations, as_tensor, described, is_forecast
from prerank.arrays.labels import ROLES, Axes, is_xarray
from prerank.arrays.precision import precision_of
from prerank.forecasts.ensemble import Ensemble


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


def in_layout(values: Any, y: Tensor | None, axes: Axes | None) -> Ensemble:
    """An `Ensemble` from an array whose axes are named; without names they are (case, member, target).

    A shape that contradicts `y` (..., N, D), or fits it in two ways, is refused.
    """
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
