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
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.curvetable import Coded, whole
from prerank.calibration.exchange import Replicates, known_spread, points_of
from prerank.calibration.null import null_cells
from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT
from prerank.chunks import at_once, chunks
from prerank.parallel import in_threads
from prerank.randomness import bits_of_steps, case_keys

UNITS = 1024  # cases, or blocks, from which on several share a sign
_WHOLE = 1 << 30  # what the weights of all cases sum to, as whole numbers
_DIGITS = 52  # binary digits of a sum that is exact in double precision
_MOST_DIGITS = 40
_BITS = 31  # of a hash


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
            factor = setting.levels.new_full((pit.n_cases,), 1 / pit.n_cases) if shares is None else shares
            squares = points_of(pit.of(part.prerank), setting.levels).moments(factor.square(), 2)
            spread[..., columns] = spread_from(squares, setting)
    return spread


def has_known_spread(part: PreRankPIT, pit: ProjectedPIT) -> bool:
    """Whether all projections have untied ranks or continuous PITs, whose spread depends on M alone."""
    return bool(part.law_is_known.all()) and pit.pick is None and not part.unrandomised


def spread_from(squares: Tensor, setting: Setting) -> Tensor:
    """The standard deviation of a curve from its expected squared contributions (..., J, K)."""
    return (squares - (setting.levels.square() / setting.n_effective)[:, None]).clamp_min(0.0).sqrt()


def signs_of(pit: ProjectedPIT, sums: list[UnitSums], setting: Setting, spread: Tensor) -> "SignTest":
    """The sums of all cases, ready for replicates; where `spread` (S, J, K) is not known (NaN) it is that of the sums."""
    total = setting.total * 2.0**setting.digits
    unknown = spread.isnan()
    if unknown.any():
        seen = (at_levels(sums, len(pit.names)) / total).square().sum(1).sqrt().mT
        spread = torch.where(unknown, seen, spread)
    return SignTest(
        sums, setting.keys(pit.case_ids), total, setting.levels, _centre(pit, setting.levels), spread, unknown
    )


class _Piece(NamedTuple):
    """The sums of some models (sets) and some projections."""

    part: UnitSums
    sets: slice
    some: slice

    @property
    def columns(self) -> Tensor:
        """Which projections these are."""
        return self.part.columns[self.some]

    def curves(self, signs: Tensor) -> Tensor:
        """Curves less their expectation for signs (B, units), in the unit of the sums: (s, k, B, J)."""
        sums = self.part.sums[self.sets][:, :, self.some].movedim(1, 0)  # (units, s, k, U)
        found = (signs.to(sums.dtype) @ sums.flatten(1)).unflatten(1, sums.shape[1:]).movedim(0, -2)
        return found if self.part.curves is None else found.double() @ self.part.curves[self.some]


class SignTest(NamedTuple):
    """Sums of all cases, ready for replicates; `total` is the weight of all, in the unit of the sums.

    Curves are measured from `levels` (J,), contributions from their expectation `centre` (J, K) under calibration, which
    differs from the levels for unrandomised ranks alone; `spread` (S, J, K) is that of a calibrated curve, and
    `is_guess` says where it comes from the sums themselves.
    """

    sums: list[UnitSums]
    keys: Tensor
    total: float
    levels: Tensor
    centre: Tensor
    spread: Tensor
    is_guess: Tensor

    @property
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

    def statistics(self, n_replicates: int, power: float) -> Replicates:
        """Those of the data, in row 0, and of `n_replicates` sets of signs, for all projections: (B + 1, S, K)."""
        spread = self.spread
        n_sets, n_projections = len(spread), spread.shape[-1]
        shape = (n_replicates + 1, n_sets, n_projections)
        errors, maxima = (torch.empty(shape, dtype=torch.float64, device=spread.device) for _ in range(2))
        offset = (self.centre - self.levels[:, None]).mT  # (K, J)
        inside = ((self.levels > 0) & (self.levels < 1))[:, None] & (spread > 1e-12)
        scale = (inside / torch.where(inside, spread, 1.0)).mT  # (S, K, J)
        n_rows = min(n_replicates + 1, at_once(len(self.keys), spread.device))
        for start in range(0, n_replicates + 1, n_rows):
            rows = slice(start, min(start + n_rows, n_replicates + 1))
            signs = self._signs(rows)

            def write(piece: _Piece, rows: slice = rows, signs: Tensor = signs) -> None:
                own = piece.columns
                curves = piece.curves(signs) / self.total
                if offset.any():
                    curves += offset[own][:, None]
                curves.abs_()  # (s, k, B, J)
                cells = (rows, piece.sets, own)
                maxima[cells] = (curves * scale[piece.sets][:, own, None]).amax(-1).movedim(-1, 0)
                errors[cells] = (curves if power == 1 else curves.pow_(power)).mean(-1).movedim(-1, 0)

            in_threads(write, list(self._pieces(len(signs))), spread=spread.device.type == "cpu")
        return Replicates(errors, maxima)

    def _pieces(self, n_rows: int) -> Iterator["_Piece"]:
        for part in self.sums:
            device, values = part.sums.device, n_rows * max(part.sums.shape[-1], len(self.levels))
            for some in chunks(part.sums.shape[2], values, device):
                for sets in chunks(len(part.sums), values * (some.stop - some.start), device):
                    yield _Piece(part, sets, some)

    def _signs(self, rows: slice) -> Tensor:
        """Row 0 has the data as they are; the sign of a unit in any other depends on its key and the row alone."""
        first, last = max(0, rows.start - 1), rows.stop - 1
        start = first // _BITS
        words = bits_of_steps(self.keys, start, -(-last // _BITS))  # every word has the signs of 31 rows
        bits = (words[..., None] >> torch.arange(_BITS, device=words.device)) & 1
        signs = (2 * bits - 1).flatten(1)[:, first - start * _BITS : last - start * _BITS].double().T
        return signs if rows.start else torch.cat([signs.new_ones(1, len(self.keys)), signs])
