"""Units: targets brought to comparable spreads, and numbers so large or small that their squares would not be numbers."""

import math

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, MultivariateNormal, TransformedDistribution

from prerank.forecast import Ensemble, Forecast, GaussianMixture, equally_weighted_draws

_TENFOLD = 10.0
_SOME = 10_000  # values that the typical size of a target is taken from


def rescale(
    y: Tensor, forecast: Forecast, present: Tensor | None, scale: str, names: list[str]
) -> tuple[Tensor, Forecast, list[str]]:
    """Divide each target by its pooled spread, so that no unit drowns the others; ranks stay exact.

    Where squares would overflow or vanish, values are divided by a power of two first, which is exact: equal values stay
    equal, and the result is that of the same numbers in moderate units.
    """
    members = (
        forecast.members
        if isinstance(forecast, Ensemble)
        else equally_weighted_draws(forecast, 16, 0, "spread").members
    )
    if present is None:
        missing = members.isnan().any(-1)
        points = members[~missing] if missing.any() else members.flatten(0, -2)
    else:
        points = members[present]
    _refuse_lost(y, points, names)
    exponents = _exponents(torch.maximum(_largest(points), _largest(y).to(points)))
    limit = math.log2(torch.finfo(points.dtype).max) * 0.3
    extreme = bool((exponents.abs() > limit).any())
    powers = torch.exp2(exponents if extreme else torch.zeros_like(exponents)).to(points)
    # members and observations together: a symmetric function of the points, so exchanging them changes nothing
    pooled = [points, y.to(points)] if isinstance(forecast, Ensemble) else [points]
    spread = torch.stack(  # target by target, so that a large ensemble is not copied as a whole
        [(torch.cat([part[:, d] for part in pooled]) / power).std(correction=0) for d, power in enumerate(powers)]
    )
    varies = spread > 0
    spread = torch.where(varies, spread, 1.0)
    logs = (spread.double().log2() + powers.double().log2())[varies]
    ratio = float(torch.exp2(logs.max() - logs.min())) if len(logs) else 1.0
    if scale == "none" or y.shape[-1] == 1 or (scale == "auto" and ratio <= _TENFOLD):
        if not extreme:
            return y, forecast, []
        return _by_common_power(y, forecast, exponents, ratio)
    why = "asked for" if scale == "pooled" else f'spreads differ {_fold(ratio)}-fold; scale="none" keeps the units'
    if extreme:
        y, forecast = y / powers.to(y), divided(forecast, powers)
    return y / spread.to(y), divided(forecast, spread), [f"targets divided by their pooled spread ({why})"]


def _by_common_power(
    y: Tensor, forecast: Forecast, exponents: Tensor, ratio: float
) -> tuple[Tensor, Forecast, list[str]]:
    common = float(exponents.max())
    if ratio > 2.0 ** _widest(y):
        raise ValueError(
            f'spreads of targets differ {_fold(ratio)}-fold, too much for scale="none" in {_type_name(y)}: the squares '
            'of the smaller ones vanish; use scale="pooled"'
        )
    power = torch.full_like(exponents, 2.0**common)
    what = "overflow" if common > 0 else "vanish"
    note = f"values divided by 2^{common:.0f} = {2.0**common:.3g}, which moves no rank: their squares would {what}"
    return y / power.to(y), divided(forecast, power), [note]


def _largest(values: Tensor) -> Tensor:
    low, high = values.amin(0), values.amax(0)  # aminmax along the first axis would copy
    return torch.maximum(-low, high)


def _exponents(largest: Tensor) -> Tensor:
    """Exponents of powers of two near the largest values (D,), zero where all values are zero."""
    largest = largest.double()
    return torch.where(largest > 0, torch.frexp(largest).exponent - 1, 0).double()


def _widest(values: Tensor) -> float:
    """How many powers of two the values of a target may span: a third of the type's range, so that squares have room."""
    return math.log2(torch.finfo(values.dtype).max) / 3


def _refuse_lost(y: Tensor, points: Tensor, names: list[str]) -> None:
    """Refuse a number so far from the others of its target that no scale suits both: one square would not be a number."""
    some = torch.cat([points[:: max(1, len(points) // _SOME)], y[:: max(1, len(y) // _SOME)].to(points)])
    middle = some.median(0).values
    distance = (some - middle).abs()
    typical = torch.where(distance > 0, distance, torch.nan).nanmedian(0).values.nan_to_num(torch.inf)
    bound = typical * 2.0 ** _widest(points)
    for values, what in ((y.to(points), "y"), (points, "the members")):
        low, high = values.amin(0), values.amax(0)  # aminmax along the first axis would copy
        far = torch.maximum(middle - low, high - middle) > bound
        if far.any():
            d = int(far.nonzero()[0])
            lost = (values[:, d] - middle[d]).abs() > bound[d]
            worst = float(values[:, d][lost].abs().max())
            raise ValueError(
                f"{int(lost.sum())} of {len(lost)} values of {what} for {names[d]} are as large as {worst:.3g} where others "
                f"differ by {float(typical[d]):.3g}, too far apart to be squared in {_type_name(points)}; correct them, or "
                "mark them as missing by NaN"
            )


def _type_name(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _fold(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio < 1e6 else f"{ratio:.1g}"


def divided(forecast: Forecast, spread: Tensor) -> Forecast:
    """The same forecast with each target divided by a number."""
    if isinstance(forecast, Ensemble):
        reference = forecast.reference
        if reference is not None:
            reference = divided(reference, spread)  # type: ignore[arg-type]
        return Ensemble(forecast.members / spread.to(forecast.members), forecast.weights, reference)
    if isinstance(forecast, GaussianMixture):
        spread = spread.to(forecast.loc)
        return GaussianMixture(forecast.logits, forecast.loc / spread, forecast.scale_tril / spread[:, None])
    if isinstance(forecast, MultivariateNormal):
        spread = spread.to(forecast.loc)
        return MultivariateNormal(forecast.loc / spread, scale_tril=forecast.scale_tril / spread[:, None])
    assert isinstance(forecast, Distribution)
    return TransformedDistribution(forecast, AffineTransform(torch.zeros_like(spread), 1 / spread, event_dim=1))
