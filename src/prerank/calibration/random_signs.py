r"""Replicates of a test by random signs of whole cases.

Under calibration the share of a case below level $\alpha$, $I_{ik}(\alpha)$, has mean $\alpha$ for every projection k. A
replicate gives every case a sign, +1 or -1 with equal probability, the same for all projections and levels,

$$W_k(\alpha) = \frac1N \sum_i s_i \, (I_{ik}(\alpha) - \alpha),$$

so the dependence between projections is the observed one and nothing is assumed about it. Dependent cases share the sign of
their block. Contributions are rounded to whole numbers of a small unit: their sums are exact in double precision, so that
neither the order of the cases, nor chunks, nor the processor changes a replicate.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import at_once, chunks
from prerank._parallel import in_threads
from prerank.calibration.curve_table import Coded, whole
from prerank.calibration.exchange import known_spread, points_of
from prerank.calibration.null import null_cells
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT
from prerank.randomness import bits_of_steps, case_keys

UNITS = 1024  # cases, or blocks, from which on several share a sign
_WHOLE = 1 << 30  # what the weights of all cases sum to, as whole numbers
_DIGITS = 52  # binary digits of a sum that is exact in double precision
_MOST_DIGITS = 40
_BITS = 31  # of a hash
_STEPS = 1 << 20  # in which the scale of replicates is measured


@dataclass(frozen=True, eq=False)
class Setting:
    """What all cases of a test share: their number, the levels (J,), the seed, the number of blocks (None: no blocks).

    `square_of_shares` is the sum of the squared weights of the cases, None where they have none.
    """

    n_cases: int
    levels: Tensor
    seed: int
    n_blocks: int | None = None
    square_of_shares: float | None = None

    @property
    def weighted(self) -> bool:
        return self.square_of_shares is not None

    @property
    def n_effective(self) -> float:
        """How many equally weighted cases know as much as these."""
        return float(self.n_cases) if self.square_of_shares is None else 1.0 / self.square_of_shares

    def is_small(self, fewest: int) -> bool:
        """Whether fewer independent cases than this have too few patterns of signs."""
        return self.n_blocks is None and self.n_effective < fewest

    @property
    def n_units(self) -> int:
        """How many cases, blocks, or sets of them have a sign of their own."""
        return min(UNITS, self.n_cases if self.n_blocks is None else self.n_blocks)

    @property
    def total(self) -> float:
        """What the whole weights of all cases sum to."""
        return float(_WHOLE) if self.weighted else float(self.n_cases)

    @property
    def digits(self) -> int:
        """Binary digits after the point that contributions keep, so that no sum over the cases is rounded."""
        return min(_MOST_DIGITS, _DIGITS - math.ceil(math.log2(max(2.0, self.total))))

    def units(self, places: Tensor, case_ids: Tensor, blocks: Tensor | None) -> Tensor:
        """The numbers of the units of some cases, by their places among all or the numbers of their blocks.

        Where there are more than 1,024 they are dealt to 1,024 sets by their names.
        """
        many = (self.n_cases if blocks is None else self.n_blocks or 0) > UNITS
        if not many:
            return places if blocks is None else blocks
        names = case_ids if blocks is None else blocks
        return case_keys(0, names, "set of cases with one sign") & (UNITS - 1)

    def keys(self, case_ids: Tensor) -> Tensor:
        """The key of each unit's signs, from the identifiers of all cases."""
        if self.n_blocks is None and self.n_cases <= UNITS:
            return case_keys(self.seed, case_ids, "sign")
        return case_keys(self.seed, torch.arange(self.n_units, device=case_ids.device), "sign of several cases")


class UnitSums(NamedTuple):
    """Sums over the cases of each unit for some projections (columns), whole numbers: (S, units, k, U).

    Without `curves` they are contributions to the curve at U = J levels, less their expectation under calibration, in units
    of 2^-digits. With `curves` (k, U, J) they count intervals of U different kinds, and a curve is what each of them adds.
    """

    columns: Tensor
    sums: Tensor
    curves: Tensor | None = None

    def at_levels(self) -> Tensor:
        """Contributions at the levels, (S, units, k, J)."""
        if self.curves is None:
            return self.sums
        return torch.einsum("supc,pcj->supj", self.sums.double(), self.curves)


def sign_sums(
    pit: ProjectedPIT, places: Tensor, setting: Setting, blocks: Tensor | None, shares: Tensor | None
) -> list[UnitSums]:
    """What some cases add to the sums over the cases of each unit.

    `shares` (N,) are weights that sum to one over all cases, `blocks` (N,) numbers, `places` (N,) those of the cases.
    """
    n_sets, n_units, digits = pit.lead.numel(), setting.n_units, setting.digits
    centre = whole(_centre(pit, setting.levels), digits).mT  # (K, J)
    offset = torch.arange(n_sets, device=centre.device)[:, None] * n_units
    numbers = (offset + setting.units(places, pit.case_ids, blocks)).flatten()
    weights = None if shares is None else (shares.double() * _WHOLE).round().repeat(n_sets)
    size = torch.bincount(numbers, weights, n_sets * n_units).double()
    found = []
    for columns, table in points_of(pit, setting.levels, observed_only=True).tables:
        curves = None
        if isinstance(table, Coded) and len(table.curves) <= 2 * len(setting.levels):
            sums = table.counts_of_sets(numbers, n_sets * n_units, weights)
            curves = whole(table.curves, digits) - centre[columns][:, None]
        else:
            sums = table.sums_of_sets(numbers, n_sets * n_units, weights, digits)
            sums -= size[:, None, None] * centre[columns]
        found.append(UnitSums(columns, sums.unflatten(0, (n_sets, n_units)), curves))
    return found


def at_levels(sums: list[UnitSums], n_projections: int) -> Tensor:
    """Sums of all projections in their order, (S, units, K, J): those of chunks of cases may be added."""
    parts = [part.at_levels() for part in sums]
    found = parts[0].new_empty(*parts[0].shape[:2], n_projections, parts[0].shape[-1])
    for part, values in zip(sums, parts, strict=True):
        found[:, :, part.columns] = values
    return found


def _centre(pit: ProjectedPIT, levels: Tensor) -> Tensor:
    """The curve expected of calibrated PITs, (J, K): the diagonal, but for unrandomised ranks."""
    return torch.stack([_expected_curve(part, levels) for part in pit.parts for _ in part.names], 1)


def _expected_curve(part: PreRankPIT, levels: Tensor) -> Tensor:
    if not part.unrandomised or part.n_members is None:
        return levels
    probability, adds = null_cells(levels.cpu().numpy(), part.n_members, True)
    return torch.from_numpy(probability @ adds).to(levels)


def calibrated_spread(pit: ProjectedPIT, setting: Setting, shares: Tensor | None) -> Tensor:
    """Standard deviation of a calibrated curve, cases being independent, (S, J, K); NaN where it is not known."""
    spread = known_spread(pit, setting.levels).repeat(pit.lead.numel(), 1, 1) / setting.n_effective**0.5
    start = 0
    for part in pit.parts:
        columns = slice(start, start + len(part.names))
        start = columns.stop
        if has_known_spread(part, pit):
            continue
        spread[..., columns] = torch.nan
        if part.points is not None:
            spread[..., columns] = spread_from(expected_squares(pit.of(part.prerank), setting, shares), setting)
    return spread


def expected_squares(pit: ProjectedPIT, setting: Setting, shares: Tensor | None) -> Tensor:
    """Squared contributions of picked points summed over some cases, with squared shares, (S, J, K)."""
    factor = setting.levels.new_full((pit.n_cases,), 1 / setting.n_cases) if shares is None else shares
    return points_of(pit, setting.levels).moments(factor.square(), 2)


def has_known_spread(part: PreRankPIT, pit: ProjectedPIT) -> bool:
    """Whether all projections have untied ranks or continuous PITs, whose spread depends on M alone."""
    return bool(part.law_is_known.all()) and pit.pick is None and not part.unrandomised


def spread_from(squares: Tensor, setting: Setting) -> Tensor:
    """The standard deviation of a curve from its expected squared contributions (..., J, K)."""
    return (squares - (setting.levels.square() / setting.n_effective)[:, None]).clamp_min(0.0).sqrt()


def signs_of(pit: ProjectedPIT, sums: list[UnitSums], setting: Setting, spread: Tensor) -> "SignTest":
    """The sums of all cases, ready for replicates; where `spread` (S, J, K) is not known (NaN) it is that of the sums."""
    ends = list(accumulate(len(part.names) for part in pit.parts))
    several = {
        part.prerank: slice(end - len(part.names), end)
        for part, end in zip(pit.parts, ends, strict=True)
        if len(part.names) > 1
    }
    total = setting.total * 2.0**setting.digits
    unknown, scale = spread.isnan(), torch.ones_like(spread[:, 0])
    if several or unknown.any():
        seen = _seen_spread(sums, spread) / total
        spread = torch.where(unknown, seen, spread)
        if setting.n_blocks is None:
            scale = _scale(pit, spread, seen)
    keys, centre = setting.keys(pit.case_ids), _centre(pit, setting.levels)
    return SignTest(sums, several, keys, total, setting.levels, centre, spread, unknown, scale)


def _seen_spread(sums: list[UnitSums], like: Tensor) -> Tensor:
    """Standard deviation of a replicate before it is scaled, in the unit of the sums, (S, J, K)."""
    found = torch.empty_like(like.mT)
    for piece in _pieces(sums, sums[0].sums.shape[1], like.shape[1]):
        found[piece.sets, piece.columns] = piece.at_levels().square().sum(1).sqrt()
    return found.mT


def _scale(pit: ProjectedPIT, spread: Tensor, seen: Tensor) -> Tensor:
    """What a projection's replicates are multiplied by, (S, K), so that they vary as calibrated curves do.

    Ranks at both ends, those of a forecast with too small a spread, make signed sums too large, and ranks in the middle
    too small. Under calibration this factor tends to one.
    """
    randomised = torch.tensor([not part.unrandomised for part in pit.parts for _ in part.names], device=seen.device)
    expected, found = spread.sum(1), seen.sum(1)
    scale = torch.where(randomised & (found > 0), expected / found, 1.0)
    return (scale * _STEPS).round() / _STEPS  # so that rounding errors of the spread change no replicate


class _Piece(NamedTuple):
    """The sums of some models (sets) and some projections."""

    part: UnitSums
    sets: slice
    some: slice

    @property
    def columns(self) -> Tensor:
        """Which projections these are."""
        return self.part.columns[self.some]

    def at_levels(self) -> Tensor:
        """Contributions at the levels, (s, units, k, J)."""
        curves = None if self.part.curves is None else self.part.curves[self.some]
        return UnitSums(self.columns, self.part.sums[self.sets][:, :, self.some], curves).at_levels()

    def curves(self, signs: Tensor) -> Tensor:
        """Curves less their expectation for signs (B, units), in the unit of the sums: (s, k, B, J)."""
        sums = self.part.sums[self.sets][:, :, self.some].movedim(1, 0)  # (units, s, k, U)
        found = (signs.to(sums.dtype) @ sums.flatten(1)).unflatten(1, sums.shape[1:]).movedim(0, -2)
        return found if self.part.curves is None else found.double() @ self.part.curves[self.some]


def _pieces(sums: list[UnitSums], n_rows: int, n_levels: int) -> Iterator[_Piece]:
    """Pieces so small that `n_rows` curves of each of their projections may be held together."""
    for part in sums:
        device, values = part.sums.device, n_rows * max(part.sums.shape[-1], n_levels)
        for some in chunks(part.sums.shape[2], values, device):
            for sets in chunks(len(part.sums), values * (some.stop - some.start), device):
                yield _Piece(part, sets, some)


class SignReplicates(NamedTuple):
    """Statistics of the data, in row 0, and of every set of signs.

    The PCE and the largest standardised deviation of each projection, (B + 1, S, K), and for pre-ranks with several the PCE
    of their mean curve, (B + 1, S).
    """

    pce: Tensor
    maximum: Tensor
    pooled: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class SignTest:
    """Sums of all cases, ready for replicates; `total` is the weight of all, in the unit of the sums.

    `several` names the pre-ranks with several projections. Curves are measured from `levels` (J,), contributions from their
    expectation `centre` (J, K) under calibration, which differs from the levels for unrandomised ranks alone; `spread`
    (S, J, K) is that of a calibrated curve, `is_guess` says where it comes from the sums themselves, and `scale` (S, K)
    multiplies replicates.
    """

    sums: list[UnitSums]
    several: dict[str, slice]
    keys: Tensor
    total: float
    levels: Tensor
    centre: Tensor
    spread: Tensor
    is_guess: Tensor
    scale: Tensor

    @cached_property
    def n_told(self) -> int:
        """How many units have a say: cases without weight have none."""
        told = [(part.sums != 0).any(-1).any(-1).any(0) for part in self.sums]
        return int(torch.stack(told).any(0).sum())

    def excess_variance(self, setting: Setting) -> Tensor | None:
        """How much more the mean PIT varies than that of independent cases, (S, K); None without blocks."""
        if setting.n_blocks is None:
            return None
        # the mean over the levels of a case's contribution is one less its PIT
        pits = at_levels(self.sums, self.spread.shape[-1]).mean(-1) / self.total
        return (pits - pits.mean(1, keepdim=True)).square().sum(1) * setting.n_effective

    def statistics(self, n_replicates: int, exponent: float) -> SignReplicates:
        """Those of the data, in row 0, and of `n_replicates` sets of signs."""
        spread = self.spread
        n_sets, n_projections = len(spread), spread.shape[-1]
        shape = (n_replicates + 1, n_sets, n_projections)
        errors, maxima = (torch.empty(shape, dtype=torch.float64, device=spread.device) for _ in range(2))
        offset = (self.centre - self.levels[:, None]).mT  # (K, J)
        inside = ((self.levels > 0) & (self.levels < 1))[:, None] & (spread > 1e-12)
        standardise = (inside / torch.where(inside, spread, 1.0)).mT  # (S, K, J)

        def pce_of(curves: Tensor) -> Tensor:
            return curves.abs().pow(exponent).mean(-1)

        # levels last in memory, so that sums over them do not depend on how many projections there are
        data = standardise.new_empty(standardise.shape)
        for part in self.sums:
            curves = part.sums.sum(1, keepdim=True)
            data[:, part.columns] = UnitSums(part.columns, curves, part.curves).at_levels()[:, 0].double() / self.total
        data += offset
        errors[0], maxima[0] = pce_of(data), (data.abs() * standardise).amax(-1)
        pooled = {name: errors.new_empty(shape[:2]) for name in self.several}
        for name, columns in self.several.items():
            pooled[name][0] = pce_of(data[:, columns].mean(1))

        sums = {name: self._pooled_sums(columns) for name, columns in self.several.items() if n_replicates}
        n_rows = max(1, min(n_replicates, at_once(len(self.keys), spread.device)))
        for start in range(0, n_replicates, n_rows):
            signs = self._signs(start, min(start + n_rows, n_replicates))
            rows = slice(start + 1, start + 1 + len(signs))

            def write(piece: _Piece, rows: slice = rows, signs: Tensor = signs) -> None:
                own = piece.columns
                curves = piece.curves(signs) / self.total
                curves *= self.scale[piece.sets][:, own, None, None]
                if offset.any():
                    curves += offset[own][:, None]
                curves.abs_()  # (s, k, B, J)
                cells = (rows, piece.sets, own)
                maxima[cells] = (curves * standardise[piece.sets][:, own, None]).amax(-1).movedim(-1, 0)
                errors[cells] = (curves if exponent == 1 else curves.pow_(exponent)).mean(-1).movedim(-1, 0)

            def write_pooled(name: str, rows: slice = rows, signs: Tensor = signs) -> None:
                mean = offset[self.several[name]].mean(0)
                for sets in chunks(n_sets, len(signs) * len(self.levels), spread.device):
                    curves = signs @ sums[name][sets] / self.total  # (s, B, J)
                    pooled[name][rows, sets] = pce_of(curves + mean).T

            on_cpu = spread.device.type == "cpu"
            in_threads(write, list(_pieces(self.sums, len(signs), len(self.levels))), spread=on_cpu)
            in_threads(write_pooled, list(sums), spread=on_cpu)
        return SignReplicates(errors, maxima, pooled)

    def _pooled_sums(self, columns: slice) -> Tensor:
        """Scaled contributions averaged over the projections of a pre-rank, rounded to whole numbers, (S, units, J)."""
        n_sets, n_units = self.sums[0].sums.shape[:2]
        found = self.scale.new_zeros(n_sets, n_units, len(self.levels))
        for part in self.sums:
            own = ((part.columns >= columns.start) & (part.columns < columns.stop)).nonzero()[:, 0]
            curves = None if part.curves is None else part.curves[own]
            scale = self.scale[:, part.columns[own]]
            for sets in chunks(n_sets, n_units * len(own) * len(self.levels), found.device):
                several = UnitSums(own, part.sums[sets][:, :, own], curves).at_levels().double()
                found[sets] += torch.einsum("sukj,sk->suj", several, scale[sets])
        return (found / (columns.stop - columns.start)).round()

    def _signs(self, start: int, stop: int) -> Tensor:
        """Those of some replicates, (B, units): a sign depends on the key of its unit and the replicate alone."""
        first = start // _BITS
        words = bits_of_steps(self.keys, first, -(-stop // _BITS))  # every word has the signs of 31 replicates
        bits = (words[..., None] >> torch.arange(_BITS, device=words.device)) & 1
        return (2 * bits - 1).flatten(1)[:, start - first * _BITS : stop - first * _BITS].double().T
