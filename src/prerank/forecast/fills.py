"""Numbers that stand for "no number": the fill values of data formats, which a mask should have hidden."""

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
    if values.numel() == 0:
        return
    values = values.detach()
    low, high = (float(limit) for limit in values.aminmax())
    if -low < SMALLEST_FILL and high < SMALLEST_FILL:  # NaN compares false and is looked at closely
        return
    size = values.abs().nan_to_num(posinf=0.0)
    fill = torch.zeros_like(size, dtype=torch.bool)
    for number in _FILLS:
        fill |= (size / number - 1).abs() < _NEAR
    if not bool(fill.any()):
        return
    first = float(values[fill][0])
    others = size[~fill]
    if others.numel() and float(others.amax()) * _APART > abs(first):
        return
    named = "netCDF's fill value" if abs(abs(first) / NETCDF_FILL - 1) < _NEAR else "a fill value of data formats"
    raise ValueError(
        f"{int(fill.sum())} of {values.numel()} values of {what} are {first:.6g}, {named} for missing data; mask them "
        "(a NumPy masked array) or replace them by NaN"
    )
