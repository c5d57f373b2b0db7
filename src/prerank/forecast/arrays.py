"""The door: NumPy, pandas and xarray become torch here, once, and go back as what came in."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from prerank.forecast.ensemble import Ensemble

_F = TypeVar("_F", bound=Callable[..., Any])
_AXES = ("case", "member", "target")


def _is_foreign_array(value: object) -> bool:
    # pandas and xarray objects are recognised by what they can do, so neither needs importing
    return isinstance(value, np.ndarray) or (hasattr(value, "to_numpy") and not isinstance(value, Tensor))


def as_tensor(value: Any, what: str = "input") -> Tensor:
    """A floating-point tensor from a tensor, an array, a DataFrame, a DataArray or nested lists.

    Shares memory where it can; whole numbers become the default floating type of their world.
    """
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.to(torch.get_default_dtype())
    array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USMm":
        raise TypeError(f"{what} has dtype {array.dtype}; prerank needs numbers (convert text and dates first)")
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    if not array.flags.writeable:  # torch cannot share read-only memory safely
        array = array.copy()
    return torch.from_numpy(array)


def as_observations(y: Any) -> Tensor:
    """Observations (..., N, D); one axis alone is refused because it could be cases or targets.

    >>> as_observations([[1.0, 2.0], [3.0, 4.0]]).shape
    torch.Size([2, 2])
    """
    tensor = as_tensor(y, "y")
    if tensor.ndim < 2:
        raise ValueError(
            f"y has shape {tuple(tensor.shape)}; it needs two axes (cases, targets): "
            "y[:, None] for one target, y[None, :] for one case"
        )
    return tensor


def as_ensemble(values: Any, y: Tensor | None = None, axes: Sequence[str] | None = None) -> Ensemble:
    """An `Ensemble` from an array whose axes are named, in any order.

    `axes` names the axes of `values`, e.g. ("member", "case", "target") for the sample-first layout of PyMC, sbi and
    torch. Without it the layout is (case, member, target), xarray dimensions with those names are honoured, and a
    shape that contradicts `y` (N, D), or fits it in two ways, is refused.

    >>> as_ensemble(torch.zeros(100, 8, 3), axes=("member", "case", "target")).members.shape
    torch.Size([8, 100, 3])
    """
    if axes is None and hasattr(values, "dims") and set(_AXES) <= set(values.dims):
        axes = tuple(values.dims)
    tensor = as_tensor(values, "the ensemble")
    if axes is not None:
        if sorted(axes) != sorted(_AXES) or tensor.ndim != 3:
            raise ValueError(
                f"axes={tuple(axes)} for an array of shape {tuple(tensor.shape)}: name each of {_AXES} exactly once"
            )
        return Ensemble(tensor.permute(*(list(axes).index(axis) for axis in _AXES)))
    if y is not None and tensor.ndim >= 3:
        _refuse_other_layouts(tuple(tensor.shape), tuple(y.shape))
    return Ensemble(tensor)


def _refuse_other_layouts(shape: tuple[int, ...], observed: tuple[int, ...]) -> None:
    *_, cases, targets = observed
    first, second, last = shape[-3:]
    fits = first == cases and last == targets
    sample_first = second == cases and last == targets
    member_last = first == cases and second == targets
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


def _back(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, tuple):
        items = [_back(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def accepts_arrays(*names: str) -> Callable[[_F], _F]:
    """Let the named arguments of a torch function be NumPy, pandas or xarray; tensors go back as NumPy then."""

    def decorate(function: _F) -> _F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            foreign = False
            for name in names:
                value = bound.arguments.get(name)
                if _is_foreign_array(value) or isinstance(value, list):
                    bound.arguments[name] = as_tensor(value, name)
                    foreign = True
            result = function(*bound.args, **bound.kwargs)
            return _back(result) if foreign else result

        return wrapper  # type: ignore[return-value]

    return decorate
