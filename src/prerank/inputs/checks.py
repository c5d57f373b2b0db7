"""What observations and a forecast must be before anything is computed from them: one text for each fault."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.conversion import described, is_forecast
from prerank.forecasts.ensemble import Ensemble
from prerank.forecasts.mixture import GaussianMixture
from prerank.forecasts.sampling import Forecast, require_vector_distribution

DROP = "drop those cases from y and from the forecast"
DROP_MEMBERS = "drop those cases, or give a missing member weight 0 and any finite values"


def require_fitting(y: Tensor, forecast: Forecast, what: str = "the forecast", follows: bool = False) -> None:
    """Refuse what is no forecast, one for other cases or targets than y's, and empty ones.

    Leading axes need only broadcast; with `follows` those of y are the forecast's, or left out.
    """
    if not is_forecast(forecast):
        raise TypeError(f"{what} is {described(forecast)}; pass an Ensemble, a GaussianMixture or a torch distribution")
    require_vector_distribution(forecast, y.shape[-2])
    batch, targets = forecast.batch_shape, forecast.event_shape[-1]
    if 0 in y.shape[-2:]:
        raise ValueError(f"y of shape {tuple(y.shape)} holds no case or no target; at least one of each is needed")
    require_some(forecast, what)
    if (batch[-1], targets) != tuple(y.shape[-2:]):
        raise ValueError(
            f"y has shape {tuple(y.shape)}, but {what} is for {batch[-1]} cases and {targets} targets; "
            "both must be the same"
        )
    try:
        together = np.broadcast_shapes(y.shape[:-1], batch)  # that of torch imports its compiler
    except ValueError:
        together = ()
    if together != batch and (follows or not together):
        raise ValueError(
            f"the leading axes {tuple(batch[:-1])} of {what} and {tuple(y.shape[:-2])} of y do not go together; "
            f"give both the same, or leave them out of {'y' if follows else 'one'}"
        )


def require_some(forecast: Forecast, what: str = "the forecast") -> None:
    """Refuse a forecast without cases, members or targets."""
    sizes = {"cases": forecast.batch_shape[-1], "targets": forecast.event_shape[-1]}
    if isinstance(forecast, Ensemble):
        sizes = {"cases": sizes["cases"], "members": forecast.n_members, "targets": sizes["targets"]}
    none = [name for name, size in sizes.items() if not size]
    if none:
        raise ValueError(
            f"{what} has shape {tuple(sizes.values())} ({', '.join(sizes)}): no {none[0]}; at least one of each is needed"
        )


def require_numbers(values: Tensor, what: str, axes: str, remedy: str) -> None:
    """Refuse NaN, infinities and fill values of data formats, with their number and the place of the first."""
    # one sum instead of a mask as large as the input: NaN, infinity and fill values survive it. A moderate sum settles
    # the matter; any other is looked at closely.
    values = values.detach()
    if abs(float(values.sum())) < SMALLEST_FILL:
        return
    refuse_fill_values(values, what)
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{int(bad.sum())} of {bad.numel()} values of {what} are NaN or infinite, "
            f"the first at index {first} (..., {axes}); {remedy}"
        )


def require_observations(y: Tensor, remedy: str = DROP) -> None:
    """Refuse observations that are no numbers."""
    require_numbers(y, "y", "case, target", remedy)


def require_members(ensemble: Ensemble, what: str = "the forecast", remedy: str = DROP_MEMBERS) -> None:
    """Refuse members that are no numbers, and weights that are no weights."""
    require_numbers(ensemble.members, what, "case, member, target", remedy)
    weights = ensemble.weights
    if weights is None:
        return
    require_numbers(weights, f"the weights of {what}", "case, member", "a member left out has weight 0")
    if bool((weights < 0).any()):
        raise ValueError(
            f"{int((weights < 0).sum())} weights of {what} are negative (the smallest is {float(weights.min()):.3g}); "
            "weights are shares of the forecast's probability: pass zero or more"
        )
    empty = weights.sum(-1) == 0
    if bool(empty.any()):
        raise ValueError(
            f"all weights of {what} are zero in {int(empty.sum())} of {empty.numel()} cases; drop those cases"
        )


def require_sound(forecast: Forecast, remedy: str = DROP_MEMBERS) -> None:
    """Refuse members or parameters that are no numbers."""
    if isinstance(forecast, Ensemble):
        require_members(forecast, remedy=remedy)
    else:
        require_parameters(forecast)


def require_parameters(forecast: Forecast) -> None:
    """Refuse a `GaussianMixture` with parameters that are no numbers, or factors that are no Cholesky factors."""
    if not isinstance(forecast, GaussianMixture) or forecast.loc.requires_grad or forecast.scale_tril.requires_grad:
        return  # in training a look on every step would wait for the device
    for name, part in (("logits", forecast.weights), ("loc", forecast.loc), ("scale_tril", forecast.scale_tril)):
        if not part.isfinite().all():
            axes = tuple(range(len(forecast.batch_shape), part.ndim))
            bad = int((~part.isfinite()).any(axes).sum()) if axes else 1
            raise ValueError(
                f"{name} of the GaussianMixture are NaN or infinite in {bad} of {forecast.batch_shape.numel()} cases; "
                "a forecast's parameters must be numbers"
            )
    if forecast.scale_tril.requires_grad:
        return  # a derivative may be asked for in any direction, also out of the triangle
    diagonal = forecast.scale_tril.diagonal(dim1=-2, dim2=-1)
    if not (diagonal > 0).all() or bool(forecast.scale_tril.triu(1).any()):
        raise ValueError(
            f"scale_tril of the GaussianMixture has diagonal entries down to {float(diagonal.min()):.3g} or entries above "
            "the diagonal; it holds Cholesky factors, lower triangular with a positive diagonal: torch.linalg.cholesky "
            "of the covariances"
        )


def require_case_weights(
    weights: Tensor, what: str, shape: tuple[int, ...], cases: Tensor | None = None, *, some: bool = True
) -> Tensor:
    """The weights, one per case, after those have been refused that are none.

    `cases` are the numbers by which a message names cases, without them their positions; with `some` not all may be zero.
    """
    if tuple(weights.shape) != tuple(shape):
        raise ValueError(f"{what} has shape {tuple(weights.shape)}; one number per case is {tuple(shape)}")
    bad = ~weights.isfinite() | (weights < 0)
    if bool(bad.any()):
        place = bad.nonzero()[0]
        first = [int(i) for i in (place if cases is None else cases[place])]
        raise ValueError(
            f"{int(bad.sum())} of {weights.numel()} {what} are negative, NaN or infinite, the first "
            f"({float(weights[tuple(place)]):g}) for case {first[0] if len(first) == 1 else tuple(first)}; a weight is a "
            "finite number of zero or more"
        )
    total = float(weights.double().sum())
    if some and not total > 0:
        raise ValueError(f"all {weights.numel()} {what} are zero; at least one must be positive")
    if total == math.inf:
        raise ValueError(f"{what} sum to more than the largest number; divide them by their largest")
    return weights


NETCDF_FILL = 9.969209968386869e36  # NC_FILL_FLOAT and NC_FILL_DOUBLE: the same number
# others that climate and GIS software writes: CMIP's 1e20, NCEP's 9.999e20, Ferret's 1e34, GDAL's largest float32
_FILLS = (NETCDF_FILL, 1e20, 9.999e20, 1e30, 1e34, 1e35, 1e36, 3.4028234663852886e38)
SMALLEST_FILL = 1e19  # no fill value is smaller than this
_NEAR = 1e-6  # it may have been written as 9.96921e36, or in single precision
_APART = 1e3  # a fill value is this many times larger than everything else, or it may be a measurement


def refuse_fill_values(values: Tensor, what: str) -> None:
    """Refuse a fill value (of either sign) that stands a thousandfold apart from every other number; NaN is passed over.

    >>> refuse_fill_values(torch.tensor([1.0, 9.96921e36]), "y")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: 1 of 2 values of y are 9.96921e+36, netCDF's fill value for missing data; ...
    """
    fills_of(values).refuse(what)


class Fills(NamedTuple):
    """How many values there are, how many of them fill values, the first of these, and the largest of the others."""

    n_values: int = 0
    n_fills: int = 0
    first: float = 0.0
    largest: float = 0.0

    def joined(self, more: "Fills") -> "Fills":
        """Those of two arrays together."""
        return Fills(
            self.n_values + more.n_values,
            self.n_fills + more.n_fills,
            self.first if self.n_fills else more.first,
            max(self.largest, more.largest),
        )

    def refuse(self, what: str) -> None:
        """Refuse fill values that stand apart from every other number."""
        if not self.n_fills or (self.n_fills < self.n_values and self.largest * _APART > abs(self.first)):
            return
        of_netcdf = abs(abs(self.first) / NETCDF_FILL - 1) < _NEAR
        named = "netCDF's fill value" if of_netcdf else "a fill value of data formats"
        raise ValueError(
            f"{self.n_fills} of {self.n_values} values of {what} are {self.first:.6g}, {named} for missing data; mask them "
            "(a NumPy masked array) or replace them by NaN"
        )


def fills_of(values: Tensor) -> Fills:
    """The fill values in an array."""
    if values.numel() == 0:
        return Fills()
    values = values.detach()
    low, high = (float(limit) for limit in values.aminmax())
    if -low < SMALLEST_FILL and high < SMALLEST_FILL:  # NaN compares false and is looked at closely
        return Fills(values.numel(), largest=max(-low, high))
    size = values.abs().nan_to_num(posinf=0.0)
    fill = torch.zeros_like(size, dtype=torch.bool)
    for number in _FILLS:
        fill |= (size / number - 1).abs() < _NEAR
    n_fills = int(fill.sum())
    others = size[~fill]
    largest = float(others.amax()) if others.numel() else 0.0
    return Fills(values.numel(), n_fills, float(values[fill][0]) if n_fills else 0.0, largest)
