"""The test of one pre-rank with one projection or several: "every projection is calibrated"."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.calibration.adjustment import holm
from prerank.calibration.exchange import Replicates
from prerank.calibration.null import REPLICATES, PCENull, maximum_null, null_cells, pce_null
from prerank.calibration.projected_pits import PreRankPIT
from prerank.calibration.random_signs import Setting, SignReplicates, SignTest

FEWEST_SIGNS = 10  # cases from which on signs are enough; of fewer, projections are tested one by one
FEWEST_STEPS = 30  # cases from which on p-values are adjusted in steps with the same signs; of fewer by Holm's method
_STEPS = 1 << 20  # in which ties between statistics are broken
_SHARES = (2.0, 1.0, 1.0)  # of the level that mean, maximum and pooled curve have: the mean sees what the others do not

Picked = Callable[[slice, PreRankPIT, int], Replicates | None]
"""Statistics of the data (row 0) and of B replicates that pick points, for the projections (columns) of one pre-rank."""


@dataclass(frozen=True, eq=False)
class RowTest:
    """What a test says of one pre-rank, for S models: (S,), of its k projections (S, k), of its replicates (B, S).

    `strength` (B + 1, S) are p-values in units of 1 / (B + 1), of the data in row 0 and of every set of signs, for the
    adjustment over pre-ranks.
    """

    p_value: Tensor
    error_of_p: Tensor
    maximum_p_value: Tensor
    band_width: Tensor
    errors: Tensor
    expected_pce: Tensor
    projection_p_value: Tensor
    attainable: Tensor
    replicates: Tensor
    strength: Tensor
    null: str


def row_of(
    part: PreRankPIT,
    columns: slice,
    signs: SignTest,
    by_signs: SignReplicates,
    picked: Picked,
    setting: Setting,
    weighted: bool,
    n_replicates: int,
    exponent: float,
) -> RowTest:
    """The test of one pre-rank by the best null distribution there is; `by_signs` has those of all projections.

    One projection without blocks: the exact one, of (N, M), or by picking points where ranks tie or something is weighted.
    Several, or blocks: random signs. Few cases have few patterns of signs, so their projections are tested one by one.
    """
    known = bool(part.law_is_known.all()) and not weighted
    found = Replicates(by_signs.pce[..., columns], by_signs.maximum[..., columns])
    if setting.n_blocks is None and (len(part.names) == 1 or setting.is_small(FEWEST_SIGNS)):
        if known:
            return _exact(part, found, setting, n_replicates, exponent)
        replicates = picked(columns, part, n_replicates)
        if replicates is not None:
            return _by_points(replicates, found)
    if part.unrandomised and not known:
        raise ValueError(
            f"{part.prerank}: unrandomised ranks that tie or carry weights have no known law; leave EmpiricalRank() out, or "
            "test one projection, with projected_pit(..., exchangeable=True)"
        )
    calibrated = None
    if known or not signs.is_guess[..., columns].any():
        calibrated = _expected(part, signs.spread[..., columns], setting, exponent, known)
    own = None
    if known and setting.n_blocks is None:
        own = _share_above(_law(part, setting, exponent).sample, found.pce[0])
    return _by_signs(found, by_signs.pooled.get(part.prerank), calibrated, own, setting, signs.n_told)


def _exact(part: PreRankPIT, found: Replicates, setting: Setting, n_replicates: int, exponent: float) -> RowTest:
    """Each projection by the law of its PCE, which depends on N and M alone; several with Bonferroni's factor."""
    levels, law = setting.levels.cpu(), _law(part, setting, exponent)
    largest = maximum_null(setting.n_cases, levels, part.n_members, part.unrandomised)
    _, curves = null_cells(levels.numpy(), part.n_members, part.unrandomised)
    worst = (np.abs(curves - levels.numpy()) ** exponent).mean(1).max()

    errors, maxima = found.pce[0], found.maximum[0]
    n_sets, count = errors.shape
    places = ((np.arange(n_replicates) + 0.5) / n_replicates * len(law.sample)).astype(int)
    replicates = torch.as_tensor(law.sample[places]).to(errors)[:, None].expand(-1, n_sets)
    band = float(np.quantile(largest, 1 - 0.05 / count, method="higher")) * (1 + 1e-9)
    p_values = _share_above(law.sample, errors)
    return _one_by_one(
        p_values,
        _share_above(largest, maxima),
        REPLICATES,
        strength=_with_own(found, len(found.pce) * p_values).amin(-1),
        band_width=errors.new_full((n_sets,), band),
        errors=errors,
        expected_pce=torch.full_like(errors, law.mean),
        attainable=errors.new_full((n_sets,), min(1.0, count * float(law.p_value(worst)))),
        replicates=replicates,
        null="exact",
    )


def _by_points(found: Replicates, by_signs: Replicates) -> RowTest:
    """Each projection by data sets in which other points play the observations; several with Bonferroni's factor."""
    p_values = _exceedance_of(found.pce[0], found.pce)
    n_replicates, count = len(found.pce) - 1, found.pce.shape[-1]
    own = _resolved(found.pce)[0] if len(by_signs.pce) > 1 else p_values
    return _one_by_one(
        p_values,
        _exceedance_of(found.maximum[0], found.maximum),
        n_replicates,
        strength=_with_own(by_signs, own).amin(-1),
        band_width=_quantile(found.maximum[1:], 0.05 / count).amax(-1),
        errors=found.pce[0],
        expected_pce=found.pce[1:].mean(0),
        attainable=(count * _exceedance_of(found.pce.amax(0), found.pce).amin(-1)).clamp_max(1.0),
        replicates=found.pce[1:].sort(0).values.mean(-1),
        null="points",
    )


def _one_by_one(p_values: Tensor, of_maxima: Tensor, n_replicates: int, **others: Any) -> RowTest:
    adjusted = holm(p_values)
    smallest = p_values.amin(-1)
    error = (smallest * (1 - smallest) / n_replicates).sqrt() * p_values.shape[-1]
    return RowTest(
        p_value=adjusted.amin(-1),
        error_of_p=error,
        maximum_p_value=(p_values.shape[-1] * of_maxima.amin(-1)).clamp_max(1.0),
        projection_p_value=adjusted,
        **others,
    )


def _share_above(sample: np.ndarray, values: Tensor) -> Tensor:
    """p-values by a sorted sample of the null distribution."""
    above = len(sample) - np.searchsorted(sample, values.cpu().numpy() * (1 - 1e-9))
    return torch.as_tensor((1.0 + above) / (len(sample) + 1.0)).to(values)


def _with_own(by_signs: Replicates, own: Tensor) -> Tensor:
    """Strengths (B + 1, S, k) of sets of signs, with those of the data (S, k) by another null distribution in row 0."""
    return torch.cat([own[None], _resolved(by_signs.pce)[1:]])


def _by_signs(
    found: Replicates,
    pooled: Tensor | None,
    calibrated: Tensor | None,
    own: Tensor | None,
    setting: Setting,
    n_units: int,
) -> RowTest:
    """Mean and maximum of the projections' PCEs over the expected ones (S, k), against random signs of cases or blocks.

    The mean sees errors in all projections, the maximum one in a single one, and the PCE of the mean curve (`pooled`, where
    there are several) an error that all projections share. The smallest of their p-values, that of the mean halved, is
    compared with that of every replicate, so that taking it costs what it should. `own` (S, k) are the exact p-values of
    single projections, where they are known.
    """
    n_replicates = len(found.pce) - 1
    of_signs = found.pce[1:].mean(0)
    unit = of_signs if calibrated is None else calibrated
    relative = torch.where(unit > 0, found.pce / unit, 0.0)
    statistic = relative.mean(-1)
    if pooled is not None:
        several = (statistic, relative.amax(-1), pooled)
        each = [_resolved(values) / share for values, share in zip(several, _SHARES, strict=True)]
        statistic = -torch.stack(each).amin(0)
    p_values = exceedance(statistic)
    p_value = p_values[0]
    strengths = _resolved(found.pce) if own is None else _with_own(found, len(found.pce) * own)
    single = exceedance(found.pce)[0] if own is None else own
    return RowTest(
        p_value=p_value,
        error_of_p=(p_value * (1 - p_value) / n_replicates).sqrt(),
        maximum_p_value=exceedance(found.maximum.amax(-1))[0],
        band_width=_quantile(found.maximum[1:].amax(-1), 0.05),
        errors=found.pce[0],
        # dependent cases vary more, or less, than independent ones
        expected_pce=of_signs if calibrated is None or setting.n_blocks is not None else calibrated.expand_as(of_signs),
        projection_p_value=holm(single) if setting.is_small(FEWEST_STEPS) else step_down(strengths, single),
        attainable=p_values.amin(0).clamp_min(2.0 ** (1 - n_units)),  # every set of signs, and its opposite
        replicates=found.pce[1:].mean(-1),
        strength=_resolved(statistic),
        null="signs",
    )


def _law(part: PreRankPIT, setting: Setting, exponent: float) -> PCENull:
    """The law of a calibrated projection's PCE."""
    levels = setting.levels.cpu()
    return pce_null(
        setting.n_cases, levels=levels, exponent=exponent, n_members=part.n_members, unrandomised=part.unrandomised
    )


def _expected(part: PreRankPIT, spread: Tensor, setting: Setting, exponent: float, known: bool) -> Tensor:
    """The PCE expected of each calibrated projection if cases are independent, (S, k).

    Of N and M where these are all; otherwise that of a normal curve with the standard deviation that ties and weights leave.
    """
    if known:
        return torch.full_like(spread[:, 0], _law(part, setting, exponent).mean)
    moment = 2 ** (exponent / 2) * math.gamma((exponent + 1) / 2) / math.sqrt(math.pi)  # E|x|^p of a normal x
    return moment * spread.pow(exponent).mean(-2)


def step_down(strengths: Tensor, p_values: Tensor) -> Tensor:
    """p-values (..., G) adjusted for G tests by the smallest strength of every replicate, (B + 1, ..., G), row 0 the data.

    In steps (Romano and Wolf 2005): a test is compared with the replicates of those that are not more significant than it,
    so that a right one is rejected beside wrong ones no more often than promised. Never below the p-value itself.
    """
    own, null = strengths[0], strengths[1:]
    order = own.argsort(dim=-1, stable=True)
    # of every replicate the smallest strength from each place in the order on
    rest = null.gather(-1, order.expand(null.shape)).flip(-1).cummin(-1).values.flip(-1)
    below = (rest <= own.gather(-1, order) * (1 + 1e-9)).double().sum(0)
    adjusted = torch.maximum((1.0 + below) / len(strengths), p_values.gather(-1, order)).cummax(-1).values
    return torch.empty_like(adjusted).scatter_(-1, order, adjusted)


def _quantile(null: Tensor, tail: float) -> Tensor:
    """The value of B replicates (B, ...) that a share of at most `tail` exceeds."""
    return null.sort(0).values[math.ceil((1 - tail) * len(null)) - 1]


def exceedance(together: Tensor) -> Tensor:
    """For each of B + 1 rows the share of rows at or above it, ties within rounding counted: (B + 1, ...) -> same."""
    columns = together.flatten(1).T.contiguous()
    ordered = columns.sort(-1).values
    first = torch.searchsorted(ordered, columns - columns.abs() * 1e-9)
    share = (columns.shape[-1] - first).double() / columns.shape[-1]
    return share.T.reshape(together.shape)


def _exceedance_of(values: Tensor, together: Tensor) -> Tensor:
    """The exceedance of one row (...) of B + 1, (B + 1, ...), without sorting them."""
    return (together >= values - values.abs() * 1e-9).sum(0).double() / len(together)


def _resolved(together: Tensor) -> Tensor:
    """Exceedances in units of 1 / (B + 1), ties among statistics broken by how far one lies from its mean.

    Two statistics have two rows with the smallest p-value that B replicates allow. Left tied, they would share a p-value
    of twice that. The tie-break treats all rows alike, so the test stays what it is.
    """
    spread = together.std(0, correction=0, keepdim=True)
    score = (together - together.mean(0, keepdim=True)) / torch.where(spread > 0, spread, 1.0)
    between_zero_and_one = 0.5 * (1 + score / (1 + score.abs()))
    # rounded, so that equal statistics stay equal whatever the order of their sums
    return (exceedance(together) * len(together)).round() - (between_zero_and_one * _STEPS).round() / (_STEPS + 1)
