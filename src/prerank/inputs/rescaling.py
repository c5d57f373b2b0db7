"""Units: targets brought to comparable spreads, and numbers so large or small that their squares would not be numbers."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.forecasts.ensemble import in_units
from prerank.forecasts.sampling import Forecast

_TENFOLD = 10.0
_SOME = 10_000  # values that the typical size of a target is taken from
_DIGITS = 32  # binary digits of a spread: the same then, whatever the order of its sums


class Magnitudes(NamedTuple):
    """How large and how different points (n, D) are, target by target (D,); those of two sets of points can be joined.

    `mean` and `deviation` (the sum of squared deviations) are in units of 2^`exponents`, so that squares are numbers; `some`
    has about 10,000 of the points.
    """

    n_points: int
    low: Tensor
    high: Tensor
    exponents: Tensor
    mean: Tensor
    deviation: Tensor
    some: Tensor

    @staticmethod
    def of(points: Tensor) -> "Magnitudes":
        """Of points (n, D), at least one."""
        low, high = points.amin(0).double(), points.amax(0).double()  # aminmax along the first axis would copy
        exponents = _exponents(torch.maximum(-low, high))
        means, deviations = [], []
        for d, exponent in enumerate(exponents):  # target by target, so that a large ensemble is not copied as a whole
            column = points[:, d].double() / torch.exp2(exponent)
            means.append(column.mean())
            deviations.append((column - means[-1]).square_().sum())
        some = points[:: max(1, len(points) // _SOME)]
        return Magnitudes(len(points), low, high, exponents, torch.stack(means), torch.stack(deviations), some)

    def joined(self, more: "Magnitudes") -> "Magnitudes":
        """Those of both sets of points together."""
        exponents = torch.maximum(self.exponents, more.exponents)
        first, second = torch.exp2(self.exponents - exponents), torch.exp2(more.exponents - exponents)
        count = self.n_points + more.n_points
        apart = more.mean * second - self.mean * first
        some = torch.cat([self.some, more.some.to(self.some)])
        return Magnitudes(
            count,
            torch.minimum(self.low, more.low),
            torch.maximum(self.high, more.high),
            exponents,
            self.mean * first + apart * (more.n_points / count),
            self.deviation * first.square()
            + more.deviation * second.square()
            + apart.square() * (self.n_points * more.n_points / count),
            some[:: max(1, len(some) // _SOME)],
        )

    @property
    def spread(self) -> Tensor:
        """Standard deviations in units of 2^`exponents`, (D,), rounded."""
        mantissa, exponent = torch.frexp((self.deviation / self.n_points).sqrt())
        return torch.ldexp(torch.round(mantissa * 2.0**_DIGITS), exponent - _DIGITS)


class Units(NamedTuple):
    """What every target is divided by, one after the other (D,) each, and what is said about it."""

    divisors: tuple[Tensor, ...] = ()
    notes: tuple[str, ...] = ()

    def apply(self, values: Tensor) -> Tensor:
        """Values (..., D) in these units."""
        for divisor in self.divisors:
            values = values / divisor.to(values)
        return values

    def undo(self, values: Tensor) -> Tensor:
        """Values (..., D) as they were before they were divided."""
        for divisor in reversed(self.divisors):
            values = values * divisor.to(values)
        return values

    def of_forecast(self, forecast: Forecast) -> Forecast:
        """The same forecast in these units."""
        for divisor in self.divisors:
            forecast = in_units(forecast, divisor)
        return forecast


def chosen_units(
    observed: Magnitudes, ranked: Magnitudes, pooled: bool, scale: str, names: list[str], dtype: torch.dtype
) -> Units:
    """The units for observations and points that are ranked, of so large sizes, in a floating type.

    Where squares would overflow or vanish, values are divided by a power of two first, which is exact: equal values stay
    equal, and the result is that of the same numbers in moderate units.
    """
    _refuse_lost(observed, ranked, names, dtype)
    # members and observations together: a symmetric function of the points, so exchanging them changes nothing
    sizes = ranked.joined(observed) if pooled else ranked
    exponents = torch.maximum(ranked.exponents, observed.exponents)
    extreme = bool((exponents.abs() > math.log2(torch.finfo(dtype).max) * 0.3).any())
    spread, unit = sizes.spread, sizes.exponents - (exponents if extreme else torch.zeros_like(exponents))
    varies = spread > 0
    logs = (spread.log2() + sizes.exponents)[varies]
    ratio = float(torch.exp2(logs.max() - logs.min())) if len(logs) else 1.0
    if scale == "none" or len(spread) == 1 or (scale == "auto" and ratio <= _TENFOLD):
        return _common_power(exponents, ratio, dtype) if extreme else Units()
    spread = torch.where(varies, spread * torch.exp2(unit), 1.0)
    why = "asked for" if scale == "pooled" else f'spreads differ {_fold(ratio)}-fold; scale="none" keeps the units'
    note = f"targets divided by their pooled spread ({why})"
    return Units((torch.exp2(exponents), spread) if extreme else (spread,), (note,))


def _common_power(exponents: Tensor, ratio: float, dtype: torch.dtype) -> Units:
    common = float(exponents.max())
    if ratio > 2.0 ** _widest(dtype):
        raise ValueError(
            f'spreads of targets differ {_fold(ratio)}-fold, too much for scale="none" in {_type_name(dtype)}: the squares '
            'of the smaller ones vanish; use scale="pooled"'
        )
    what = "overflow" if common > 0 else "vanish"
    note = f"values divided by 2^{common:.0f} = {2.0**common:.3g}, which moves no rank: their squares would {what}"
    return Units((torch.full_like(exponents, 2.0**common),), (note,))


def _exponents(largest: Tensor) -> Tensor:
    """Exponents of powers of two near the largest values (D,), zero where all values are zero."""
    return torch.where(largest > 0, torch.frexp(largest).exponent - 1, 0).double()


def _widest(dtype: torch.dtype) -> float:
    """How many powers of two the values of a target may span: a third of the type's range, so that squares have room."""
    return math.log2(torch.finfo(dtype).max) / 3


def _refuse_lost(observed: Magnitudes, ranked: Magnitudes, names: list[str], dtype: torch.dtype) -> None:
    """Refuse a number so far from the others of its target that no scale suits both: one square would not be a number."""
    some = torch.cat([ranked.some, observed.some.to(ranked.some)])
    middle = some.median(0).values
    distance = (some - middle).abs()
    typical = torch.where(distance > 0, distance, torch.nan).nanmedian(0).values.nan_to_num(torch.inf).double()
    bound = typical * 2.0 ** _widest(dtype)
    middle = middle.double()
    for sizes, what in ((observed, "y"), (ranked, "the members")):
        far = torch.maximum(middle - sizes.low, sizes.high - middle) > bound
        if far.any():
            d = int(far.nonzero()[0])
            worst = max(float(sizes.low[d]), float(sizes.high[d]), key=abs)
            raise ValueError(
                f"values of {what} for {names[d]} are as large as {abs(worst):.3g} where others differ by "
                f"{float(typical[d]):.3g}, too far apart to be squared in {_type_name(dtype)}; correct them, or mark them "
                "as missing by NaN"
            )


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _fold(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio < 1e6 else f"{ratio:.1g}"
