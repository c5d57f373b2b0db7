"""The door: NumPy, pandas and xarray become torch here, once, and go back as what came in."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution


def is_arrow(value: object) -> bool:
    """Whether a value is a table that hands over Arrow more than once and is no array or data frame by itself.

    >>> import pyarrow as pa
    >>> is_arrow(pa.table({"a": [1.0]})), is_arrow([1.0])
    (True, False)
    """
    kind = type(value)
    streams = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "read_next_batch")
    is_column = not hasattr(kind, "columns") and (hasattr(kind, "type") or hasattr(kind, "dtype"))
    return streams and not is_column and not hasattr(kind, "iloc")


def from_arrow(value: Any) -> Any:
    """A table that hands over Arrow as a pandas DataFrame; anything else as it is."""
    if not is_arrow(value):
        return value
    import pyarrow as pa

    return pa.table(value).to_pandas(date_as_object=False)


_F = TypeVar("_F", bound=Callable[..., Any])
_EXACT_IN_SINGLE = 1 << 24  # whole numbers up to here are float32 numbers


def as_tensor(value: Any, what: str = "input") -> Tensor:
    """A floating-point tensor from a tensor, an array, a DataFrame, a DataArray or nested lists.

    Shares memory where it can. Whole numbers and booleans become the default floating type of their world, half
    precision becomes single. What a NumPy mask hides and pandas calls NA is missing, so NaN. Everything else (complex
    numbers, text, dates, sparse matrices, distributions) is refused by name.

    Parameters
    ----------
    value : array_like
        Numbers.
    what : str, default 'input'
        What messages call it.

    Returns
    -------
    Tensor
        Single or double precision.

    Raises
    ------
    TypeError
        If it holds no real numbers.
    ValueError
        If rows have different lengths.

    Examples
    --------
    >>> as_tensor(np.ma.masked_equal([1.0, -999.0], -999.0))
    tensor([1., nan], dtype=torch.float64)
    """
    if isinstance(value, Tensor):
        return _plain_tensor(value, what)
    if isinstance(value, list | tuple) and len(value) and all(isinstance(item, Tensor) for item in value):
        value = _stacked(value, what)
        return _plain_tensor(value, what)
    array = _as_array(value, what)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what} has dtype {array.dtype}{_first_of(array)}; {_remedy(array.dtype.kind)}")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    elif array.dtype.itemsize < 4:
        array = array.astype(np.float32)
    array = np.asarray(array.astype(array.dtype.newbyteorder("="), copy=False), order="C")
    if not array.flags.writeable:  # torch cannot share read-only memory safely
        array = array.copy()
    return torch.from_numpy(array)


def _plain_tensor(value: Tensor, what: str) -> Tensor:
    if value.layout is not torch.strided:
        raise TypeError(f"{what} is a sparse tensor ({value.layout}); pass {_variable(what)}.to_dense()")
    if value.is_floating_point():
        return value.float() if value.element_size() < 4 else value
    if value.is_complex():
        raise TypeError(f"{what} has dtype {value.dtype}; {_remedy('c')}")
    dtype = torch.get_default_dtype()
    if value.dtype in (torch.int32, torch.int64) and value.numel() and dtype == torch.float32:
        low, high = value.aminmax()
        if max(-int(low), int(high)) > _EXACT_IN_SINGLE:  # different numbers would become equal
            dtype = torch.float64
    return value.to(dtype)


def _stacked(items: "list[Tensor] | tuple[Tensor, ...]", what: str) -> Tensor:
    if len({item.shape for item in items}) > 1:
        shapes = ", ".join(str(tuple(item.shape)) for item in items[:3])
        raise ValueError(f"{what} is a list of tensors of different shapes ({shapes}, ...); give all the same shape")
    return torch.stack(tuple(items))


def _as_array(value: Any, what: str) -> np.ndarray:
    """An array of what can be one; masks and NA become NaN."""
    if isinstance(value, type):
        raise TypeError(f"{what} is {described(value)}; pass a value of it, or an array")
    if isinstance(value, np.ma.MaskedArray):
        return _filled(value)
    value = from_arrow(value)
    if isinstance(value, list | tuple) and any(isinstance(item, np.ma.MaskedArray) for item in value):
        return _filled(np.ma.stack(value))
    # asked of the type: a table answers for its columns too, and one of them may be called "members"
    kind, sort = described(value), type(value)
    if hasattr(sort, "toarray"):
        raise TypeError(f"{what} is a sparse {sort.__name__}; pass {_variable(what)}.toarray()")
    if hasattr(sort, "data_vars"):
        raise TypeError(
            f"{what} is a Dataset of several variables; pass one DataArray, such as {_variable(what)}.to_dataarray()"
        )
    if is_forecast(value):
        raise TypeError(f"{what} is {kind}, which is a forecast already; an array of numbers is needed here")
    if hasattr(sort, "rvs") or hasattr(sort, "pdf"):
        raise TypeError(
            f"{what} is a distribution of another library ({sort.__name__}); pass draws from it as members "
            "(cases, members, targets), or a torch distribution"
        )
    if isinstance(getattr(value, "values", None), Tensor):
        raise TypeError(f"{what} is {kind}; pass the numbers in it, {_variable(what)}.values")
    if hasattr(sort, "to_numpy"):
        return _from_table(value)
    if value is None or isinstance(value, str | bytes | dict | set) or callable(value):
        raise TypeError(f"{what} is {kind}; pass an array of numbers (NumPy, torch, pandas, xarray or nested lists)")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):
            raise ValueError(f"{what} has rows of different lengths; give every row the same length") from None
        raise TypeError(f"{what} is {kind} that makes no array ({str(error).splitlines()[0]})") from None
    if array.ndim == 0 and array.dtype == object:
        raise TypeError(f"{what} is {kind}; pass an array of numbers (NumPy, torch, pandas, xarray or nested lists)")
    return array


def without_mask(value: Any) -> Any:
    """The value itself, or a plain array in which NaN stands for what a NumPy mask hides.

    >>> without_mask(np.ma.masked_equal([1, 7], 7))
    array([ 1., nan])
    """
    return _filled(value) if isinstance(value, np.ma.MaskedArray) else value


def _filled(masked: "np.ma.MaskedArray") -> np.ndarray:
    if masked.dtype.kind not in "fiub":
        return masked.data
    dtype = masked.dtype if masked.dtype.kind == "f" else np.dtype(np.float64)
    return np.ma.filled(masked.astype(dtype), np.nan)


def _from_table(value: Any) -> np.ndarray:
    """The numbers of a pandas or xarray object, NA as NaN; recognised by what it can do, so neither needs importing."""
    dtypes: Any = getattr(value, "dtypes", getattr(value, "dtype", None))
    several: list[Any] = list(dtypes) if hasattr(type(value), "columns") else [dtypes]
    shared = len(set(several)) == 1 and isinstance(several[0], np.dtype)
    if not several or shared or any(getattr(dtype, "kind", "O") not in "fiub" for dtype in several):
        return np.asarray(value.to_numpy())
    single = all(dtype.kind == "f" and dtype.itemsize <= 4 for dtype in several)
    return np.asarray(value.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan))


def _first_of(array: np.ndarray) -> str:
    if array.dtype != object or array.size == 0:
        return ""
    flat = array.ravel()
    other = next((item for item in flat if not isinstance(item, int | float | np.number)), flat[0])
    return f" (it holds {other!r}, a {type(other).__name__})"


def _remedy(kind: str) -> str:
    if kind == "c":
        return "prerank needs real numbers (pass real and imaginary parts as two targets)"
    if kind == "O":
        return (
            "prerank needs numbers (convert text and dates first, mark what is missing by NaN, and turn objects that "
            "are numbers into floats with .astype(float))"
        )
    return "prerank needs numbers (convert text and dates first)"


def as_observations(y: Any) -> Tensor:
    """Observations (..., N, D); one axis alone is refused because it could be cases or targets.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations.

    Returns
    -------
    Tensor, shape (..., n_cases, n_targets)
        Single or double precision.

    Examples
    --------
    >>> as_observations([[1.0, 2.0], [3.0, 4.0]]).shape
    torch.Size([2, 2])
    """
    if is_forecast(y):
        raise TypeError(
            f"y is {described(y)}, which is a forecast: y and the forecast look swapped; the order is (y, forecast), "
            "observations first"
        )
    if any(hasattr(item, "given") for item in (y if isinstance(y, list | tuple) else (y,))):
        raise TypeError(f"y is {described(y)}, where a pre-rank stands; the order is (y, forecast, preranks)")
    tensor = as_tensor(y, "y")
    if tensor.ndim < 2:
        raise ValueError(
            f"y has shape {tuple(tensor.shape)}; it needs two axes (cases, targets): "
            "y[:, None] for one target, y[None, :] for one case"
        )
    return tensor


def _variable(what: str) -> str:
    return what.removeprefix("the ")


def described(value: object) -> str:
    """What a value is, for an error: "an Ensemble", "the class PCA", "None"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' or name == 'ndarray' else 'a'} {name}"


def is_forecast(value: object) -> bool:
    """Whether a value is a forecast already: an `Ensemble` or a torch distribution."""
    return isinstance(value, Distribution) or (
        type(value).__name__ == "Ensemble" and type(value).__module__.startswith("prerank.")
    )


def is_foreign(value: object) -> bool:
    """Whether a value is for the door: neither a tensor nor nothing nor an object of this library."""
    return not (value is None or isinstance(value, Tensor) or type(value).__module__.startswith("prerank."))


def _back(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, tuple):
        items = [_back(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def accepts_arrays(*names: str, labelled: tuple[str, ...] = ()) -> Callable[[_F], _F]:
    """Let the named arguments of a torch function be NumPy, pandas or xarray; tensors go back as NumPy then.

    `labelled` arguments are passed on as they are, for a function that looks at their labels before it converts them.
    """

    def decorate(function: _F) -> _F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            foreign = any(is_foreign(bound.arguments.get(name)) for name in (*names, *labelled))
            for name in names:
                if is_foreign(bound.arguments.get(name)):
                    bound.arguments[name] = as_tensor(bound.arguments[name], name)
            result = function(*bound.args, **bound.kwargs)
            return _back(result) if foreign else result

        return wrapper  # type: ignore[return-value]

    return decorate
