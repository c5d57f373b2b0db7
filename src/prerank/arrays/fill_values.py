"""Numbers that stand for "no number": the fill values of data formats, which a mask should have hidden."""

from typing import NamedTuple

import torch
from torch import Tensor

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
