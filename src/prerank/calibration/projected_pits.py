"""PITs as a value: what `projected_pit` gives, and all that an error or a test needs to know about them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prerank._wording import shape_in_words
from prerank.calibration.rank_intervals import Intervals

SAMPLE = 1000  # cases that say enough about how the points of a case vary
FEW_TIES = (
    1e-3  # share of tied points up to which the null distribution is that of ranks without ties: rounding makes some
)


@dataclass(frozen=True, eq=False)
class PreRankPIT:
    """PITs of one pre-rank with K projections: what was observed, how, and the same of all exchangeable points.

    `observed` holds intervals (..., N, K), `points` (..., N, P, K) those of all points that could have been the
    observation, the observation first (only if asked for). `tied` (..., K) is the share of cases in which the observation
    ties with a member, `ties` (K,) the share of points that tie with another of their case. `n_members` is the number of
    members M that every case was ranked among, None for PITs in closed form or where it varies; `unrandomised` marks
    ranks k / M. `sample` holds points of a thousand cases or so where the others were too many to keep.
    """

    prerank: str
    names: tuple[str, ...]
    observed: Intervals
    method: str
    exact: bool
    tied: Tensor
    ties: Tensor
    note: str = ""
    n_members: int | None = None
    unrandomised: bool = False
    points: Intervals | None = None
    sample: Intervals | None = None

    def some_points(self) -> Intervals | None:
        """Points of about a thousand cases, evenly spaced, (..., n, P, K); None where none were kept."""
        return self.sample if self.points is None else self.points.select(sampled(self.points.lower.shape[-3]), -3)

    @property
    def law_is_known(self) -> Tensor:
        """Whether the law of a calibrated PIT depends on M alone, (K,): continuous, or a rank that hardly ever ties."""
        if self.observed.are_values and not self.unrandomised:
            return torch.ones_like(self.ties, dtype=torch.bool)
        return (self.ties <= FEW_TIES) & (self.n_members is not None)

    def as_single_points(self) -> Intervals:
        """The observation as the only point of its case, (..., N, 1, K), in whole ranks where they are known."""
        observed = self.observed
        lower = observed.lower[..., None, :]
        if observed.are_values:
            return Intervals(lower, lower)
        upper = observed.upper[..., None, :]
        if not lower.is_floating_point():
            return Intervals(lower, upper, observed.unit)
        if self.n_members is None:
            return Intervals(lower, upper)
        unit = self.n_members + 1
        return Intervals((lower * unit).round().int(), (upper * unit).round().int(), unit)

    def of_equal_cases(self) -> "PreRankPIT":
        """Whole ranks of cases with equally many points, each with its own unit, as `rank_pit` would give them."""
        unit = _common_unit(self.points.unit if self.points is not None else self.observed.unit)
        if unit is None:
            return self
        observed = self.observed
        if isinstance(observed.unit, Tensor):
            observed = Intervals(observed.lower, observed.upper, unit)
        return replace(
            self,
            observed=observed,
            method=re.sub(r"\d+ to \d+ members", f"{unit - 1} members", self.method),
            n_members=unit - 1,
            points=_without_padding(self.points, unit),
            sample=_without_padding(self.sample, unit),
        )

    def select(self, cases: Tensor | slice) -> "PreRankPIT":
        points = None if self.points is None else self.points.select(cases, -3)
        return replace(self, observed=self.observed.select(cases, -2), points=points)


def _common_unit(unit: int | Tensor) -> int | None:
    """The unit that all cases have though each has its own; None where they differ, or none has its own."""
    if isinstance(unit, int) or not bool((unit == unit[0]).all()):
        return None
    return int(unit[0])


def _without_padding(points: Intervals | None, unit: int) -> Intervals | None:
    """Points (..., P, K) of cases that all have `unit` of them."""
    if points is None:
        return None
    return Intervals(points.lower[..., :unit, :], points.upper[..., :unit, :], unit)


def sampled(n_cases: int) -> slice:
    """Which of many cases are a sample of about a thousand."""
    return slice(None, None, max(1, n_cases // SAMPLE))


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedPIT:
    """PITs of one or several pre-ranks, and all that a test needs to know about them.

    `lower` and `upper` (..., N, K) are the ends of the interval in which the PIT of each projection lies: a rank among M
    members is an interval, a PIT in closed form a number. Errors, tests and figures take the mean over a uniform number in
    the interval in closed form: pass them the `ProjectedPIT` itself. `values` are the midpoints. `projected_pit` makes it;
    `ProjectedPIT.of_values` makes it of PITs that were computed elsewhere.

    Attributes
    ----------
    parts : tuple of PreRankPIT
        PITs of each pre-rank.
    case_ids : Tensor of int, shape (n_cases,)
        Names of the cases for everything that is keyed by a seed.
    pick : Tensor, shape (..., n_cases, n_points), or None
        Probability with which each point of a case could have been the observation; None means equal.
    """

    parts: tuple[PreRankPIT, ...]
    case_ids: Tensor
    pick: Tensor | None = None

    def __repr__(self) -> str:
        said = [part.prerank if len(part.names) == 1 else f"{part.prerank} ({len(part.names)})" for part in self.parts]
        axes = shape_in_words(tuple(self.lead), case=self.n_cases, projection=len(self.names))
        return f"ProjectedPIT({axes}: {', '.join(said)})"

    @staticmethod
    def of_values(
        values: Tensor, names: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> "ProjectedPIT":
        """PITs (..., N, K) that were computed elsewhere and are numbers, such as those of a continuous forecast.

        Parameters
        ----------
        values : Tensor, shape (..., n_cases, n_projections)
            PITs.
        names : sequence of str, optional
            Names of the projections; "pit", or "pit 1", "pit 2" and so on, by default.
        groups : sequence of str, optional
            The pre-rank that each projection belongs to; by default all belong to one, "pit".

        Returns
        -------
        ProjectedPIT
            The same PITs, which have no ties; cases are numbered from 0.
        """
        if values.ndim < 2:
            raise ValueError(f"PITs have axes (cases, projections), got shape {tuple(values.shape)}; use pit[:, None]")
        count = values.shape[-1]
        names = tuple(names or (("pit",) if count == 1 else [f"pit {k + 1}" for k in range(count)]))
        groups = tuple(groups or ("pit",) * count)
        parts = []
        for group in dict.fromkeys(groups):
            columns = [k for k, name in enumerate(groups) if name == group]
            own = values if len(columns) == count else values[..., columns]
            zeros = torch.zeros(*values.shape[:-2], len(columns), dtype=torch.float64, device=values.device)
            none = torch.zeros(len(columns), dtype=torch.float64, device=values.device)
            parts.append(
                PreRankPIT(group, tuple(names[k] for k in columns), Intervals(own, own), "given", True, zeros, none)
            )
        return ProjectedPIT(tuple(parts), torch.arange(values.shape[-2], device=values.device))

    @staticmethod
    def end_to_end(pits: Iterable[tuple[slice, "ProjectedPIT"]], case_ids: Tensor) -> "ProjectedPIT":
        """One result from those of chunks of cases, in their order.

        Parameters
        ----------
        pits : iterable of (slice, ProjectedPIT)
            The cases of each chunk and their PITs.
        case_ids : Tensor of int, shape (n_cases,)
            Names of all cases.

        Returns
        -------
        ProjectedPIT
            PITs of all cases; shares of ties are means over the chunks, weighted by their sizes.
        """
        joined = PITsEndToEnd(case_ids)
        for cases, pit in pits:
            joined.add(cases, pit)
        return joined.whole()

    @staticmethod
    def of_unequal_cases(pits: "Sequence[tuple[Tensor, ProjectedPIT]]", case_ids: Tensor) -> "ProjectedPIT":
        """One result from those of sets of cases (numbers of cases) with points, more in some sets than in others.

        Points that a case lacks have rank 0 and are never picked.

        Parameters
        ----------
        pits : sequence of (Tensor, ProjectedPIT)
            Numbers of the cases of each set and their PITs, which have points.
        case_ids : Tensor of int, shape (n_cases,)
            Names of all cases.

        Returns
        -------
        ProjectedPIT
            PITs of all cases.
        """
        n_cases = len(case_ids)
        groups = range(len(pits[0][1].parts))
        parts = tuple(_unequal([(cases, pit.parts[g]) for cases, pit in pits], n_cases) for g in groups)
        pick = torch.zeros(n_cases, _most_points([pit.parts[0] for _, pit in pits]), dtype=torch.float64)
        pick = pick.to(case_ids.device)
        for cases, pit in pits:
            count = _most_points([pit.parts[0]])
            pick[cases, :count] = 1.0 / count if pit.pick is None else pit.pick.double()
        return ProjectedPIT(parts, case_ids, pick)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K projections."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def groups(self) -> tuple[str, ...]:
        """The pre-rank that each projection belongs to."""
        return tuple(part.prerank for part in self.parts for _ in part.names)

    @property
    def method(self) -> str:
        """How PITs were computed, in words, such as "rank among 9 members"."""
        return "; ".join(dict.fromkeys(part.method for part in self.parts))

    @property
    def exact(self) -> bool:
        """Whether a uniform number in the interval is uniform under calibration."""
        return all(part.exact for part in self.parts)

    @property
    def own_weight(self) -> float | None:
        """Mean share of the observation among itself and weighted members; None where they are equal or it is unknown."""
        return None if self.pick is None or not self.exact else float(self.pick[..., 0].double().mean())

    @property
    def notes(self) -> dict[str, str]:
        """What pre-ranks took from the forecast and how, by their names; those that took nothing are left out."""
        return {part.prerank: part.note for part in self.parts if part.note}

    @property
    def tied(self) -> Tensor:
        """Share of cases in which the observation ties with a member, (..., K)."""
        return _cat([part.tied for part in self.parts])

    @property
    def lower(self) -> Tensor:
        """Lower ends of the intervals in which the PITs lie, (..., N, K)."""
        return _cat([part.observed.bounds()[0] for part in self.parts])

    @property
    def upper(self) -> Tensor:
        """Upper ends of the intervals, (..., N, K); the lower ones where PITs are numbers."""
        return _cat([part.observed.bounds()[1] for part in self.parts])

    @property
    def values(self) -> Tensor:
        """Midpoints of the intervals, (..., N, K): the PITs themselves where these are numbers."""
        return _cat([_middle(part.observed) for part in self.parts])

    @property
    def points(self) -> Intervals | None:
        """Intervals (..., N, P, K) of all points that could have been the observation, the observation first."""
        if not self.has_points:
            return None
        bounds = [part.points.bounds() for part in self.parts if part.points is not None]
        return Intervals(_cat([lower for lower, _ in bounds]), _cat([upper for _, upper in bounds]))

    @property
    def are_values(self) -> bool:
        """Whether every PIT is a number."""
        return all(part.observed.are_values for part in self.parts)

    @property
    def has_points(self) -> bool:
        """Whether the points that are exchangeable with the observation were kept."""
        return all(part.points is not None for part in self.parts)

    @property
    def n_cases(self) -> int:
        """Number of cases N."""
        return len(self.case_ids)

    @property
    def lead(self) -> torch.Size:
        """Leading axes: several models at once."""
        return self.parts[0].observed.lower.shape[:-2]

    @property
    def device(self) -> torch.device:
        """Where the PITs are kept."""
        return self.parts[0].observed.lower.device

    def select(self, cases: Tensor | slice) -> "ProjectedPIT":
        """The PITs of some cases.

        Parameters
        ----------
        cases : Tensor of int or slice
            Positions of the cases.

        Returns
        -------
        ProjectedPIT
            With the shares of ties of all cases.
        """
        pick = None if self.pick is None else self.pick[..., cases, :]
        return ProjectedPIT(tuple(part.select(cases) for part in self.parts), self.case_ids[cases], pick)

    def of_cases(self, cases: Tensor) -> "ProjectedPIT":
        """The PITs of some cases as a data set of their own, with its own shares of ties: what these cases give alone.

        Parameters
        ----------
        cases : Tensor of int
            Positions of the cases.

        Returns
        -------
        ProjectedPIT
            With shares of ties counted from these cases, where their points were kept.
        """
        some = self.select(cases)
        return replace(some, parts=tuple(_with_own_ties(part) for part in some.parts)).as_equal_cases()

    def as_equal_cases(self) -> "ProjectedPIT":
        """The same without the points that every case lacks, if all cases have equally many; otherwise as it is.

        Returns
        -------
        ProjectedPIT
            Without `pick` where cases have turned out equal.
        """
        if not self.has_points:
            return self
        units = [_common_unit(part.points.unit) for part in self.parts if part.points is not None]
        if self.pick is None or None in units:
            return self
        return ProjectedPIT(tuple(part.of_equal_cases() for part in self.parts), self.case_ids)

    def model(self, number: int) -> "ProjectedPIT":
        """The PITs of one of several models, which lie on a leading axis.

        Parameters
        ----------
        number : int
            Position of the model on the first axis.

        Returns
        -------
        ProjectedPIT
            Without that axis.
        """

        def cut(intervals: Intervals) -> Intervals:
            lower = intervals.lower[number]
            return Intervals(lower, lower if intervals.are_values else intervals.upper[number], intervals.unit)

        parts = tuple(
            replace(
                part,
                observed=cut(part.observed),
                points=None if part.points is None else cut(part.points),
                tied=part.tied[number],
            )
            for part in self.parts
        )
        return ProjectedPIT(parts, self.case_ids, None if self.pick is None else self.pick[number])

    def of(self, group: str) -> "ProjectedPIT":
        """The PITs of one pre-rank.

        Parameters
        ----------
        group : str
            Name of the pre-rank.

        Returns
        -------
        ProjectedPIT
            Its projections.
        """
        return replace(self, parts=tuple(part for part in self.parts if part.prerank == group))

    def in_sets(self, n_sets: int) -> "ProjectedPIT":
        """N cases as `n_sets` data sets of equal size on an axis before them; the cases of each are numbered anew.

        Parameters
        ----------
        n_sets : int
            Number of sets; cases at the end that do not fill a set are left out.

        Returns
        -------
        ProjectedPIT
            PITs of shape (..., n_sets, n_cases // n_sets, n_projections).

        Raises
        ------
        ValueError
            If cases have different numbers of members.
        """
        size = self.n_cases // n_sets
        whole = self.select(slice(0, n_sets * size))
        parts = tuple(
            replace(
                part,
                observed=part.observed.in_sets(n_sets, -2),
                points=None if part.points is None else part.points.in_sets(n_sets, -3),
                tied=part.tied[..., None, :].expand(*part.tied.shape[:-1], n_sets, -1),
            )
            for part in whole.parts
        )
        pick = None if whole.pick is None else whole.pick.unflatten(-2, (n_sets, size))
        return ProjectedPIT(parts, torch.arange(size, device=self.device), pick)

    def renamed(self, group: str, names: Sequence[str]) -> "ProjectedPIT":
        """The same PITs with other names for the projections of a pre-rank.

        Parameters
        ----------
        group : str
            Name of the pre-rank.
        names : sequence of str
            Names of its projections.

        Returns
        -------
        ProjectedPIT
            With these names.
        """
        return replace(
            self,
            parts=tuple(replace(part, names=tuple(names)) if part.prerank == group else part for part in self.parts),
        )


def _with_own_ties(part: PreRankPIT) -> PreRankPIT:
    """Shares of ties counted from whole ranks; weighted ranks keep theirs."""
    points = part.points
    if points is None or points.are_values or points.lower.is_floating_point():
        return part
    width = points.upper - points.lower
    there = (width > 0).double().sum((-3, -2))
    return replace(part, tied=(width[..., 0, :] > 1).double().mean(-2), ties=(width > 1).double().sum((-3, -2)) / there)


class PITsEndToEnd:
    """PITs of all cases, written in place chunk by chunk: the points of all cases exist only once."""

    def __init__(self, case_ids: Tensor) -> None:
        self.case_ids = case_ids
        self.parts: list[_Joined] = []
        self.pick: Tensor | None = None

    def add(self, cases: slice, pit: ProjectedPIT) -> None:
        n_cases = len(self.case_ids)
        self.parts = self.parts or [_Joined(part, n_cases) for part in pit.parts]
        for whole, part in zip(self.parts, pit.parts, strict=True):
            whole.add(cases, part)
        if pit.pick is not None:
            if self.pick is None:
                self.pick = pit.pick.new_empty(*pit.pick.shape[:-2], n_cases, pit.pick.shape[-1])
            self.pick[..., cases, :] = pit.pick

    def whole(self) -> ProjectedPIT:
        return ProjectedPIT(tuple(whole.part() for whole in self.parts), self.case_ids, self.pick)


class _Joined:
    """Space for the PITs of a pre-rank over all cases, filled chunk by chunk."""

    def __init__(self, first: PreRankPIT, n_cases: int) -> None:
        self.first, self.n_cases = first, n_cases
        self.tied = torch.zeros_like(first.tied)
        self.ties = torch.zeros_like(first.ties)
        self.observed = _space(first.observed, -2, n_cases)
        self.points = None if first.points is None else _space(first.points, -3, n_cases)

    def add(self, cases: slice, part: PreRankPIT) -> None:
        share = (cases.stop - cases.start) / self.n_cases
        self.tied += part.tied * share
        self.ties += part.ties * share
        _fill(self.observed, part.observed, -2, cases)
        if self.points is not None and part.points is not None:
            _fill(self.points, part.points, -3, cases)

    def part(self) -> PreRankPIT:
        return replace(self.first, observed=self.observed, points=self.points, tied=self.tied, ties=self.ties)


def _most_points(parts: Sequence[PreRankPIT]) -> int:
    return max(part.points.lower.shape[-2] for part in parts if part.points is not None)


def _unequal(found: list[tuple[Tensor, PreRankPIT]], n_cases: int) -> PreRankPIT:
    """One pre-rank's PITs of all cases, from sets of cases with more or fewer points."""
    parts = [part for _, part in found]
    first = max(parts, key=lambda part: _most_points([part]))  # its notes speak for complete cases
    assert first.points is not None
    shape = (n_cases, _most_points(parts), len(first.names))
    lower = torch.zeros(shape, dtype=first.points.lower.dtype, device=first.points.lower.device)
    upper = torch.zeros_like(lower)
    ends = torch.zeros(2, n_cases, len(first.names), dtype=torch.float64, device=lower.device)
    unit = torch.ones(n_cases, dtype=torch.long, device=lower.device)
    tied, ties = torch.zeros_like(first.tied), torch.zeros_like(first.ties)
    for cases, part in found:
        assert part.points is not None
        size = part.points.lower.shape[-2]
        lower[cases, :size], upper[cases, :size] = part.points.lower, part.points.upper
        ends[0, cases], ends[1, cases] = part.observed.bounds()
        unit[cases] = part.points.unit if isinstance(part.points.unit, int) else part.points.unit.to(unit)
        tied += part.tied * (len(cases) / n_cases)
        ties += part.ties * (len(cases) / n_cases)
    counts = [_most_points([part]) - 1 for part in parts]
    return replace(
        first,
        observed=Intervals(ends[0], ends[1]),
        method=first.method.replace(f"{first.n_members} members", f"{min(counts)} to {max(counts)} members"),
        tied=tied,
        ties=ties,
        n_members=None,
        points=Intervals(lower, upper, 1 if bool((unit == 1).all()) else unit),
    )


def _space(intervals: Intervals, axis: int, n_cases: int) -> Intervals:
    shape = list(intervals.lower.shape)
    shape[axis] = n_cases
    lower = intervals.lower.new_empty(shape)
    return Intervals(lower, lower if intervals.are_values else torch.empty_like(lower), intervals.unit)


def _fill(space: Intervals, intervals: Intervals, axis: int, cases: slice) -> None:
    size = cases.stop - cases.start
    space.lower.narrow(axis, cases.start, size).copy_(intervals.lower)
    if not space.are_values:
        space.upper.narrow(axis, cases.start, size).copy_(intervals.upper)


def _middle(intervals: Intervals) -> Tensor:
    lower, upper = intervals.bounds()
    return lower if intervals.are_values else 0.5 * (lower + upper)


def _cat(tensors: list[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return torch.cat([tensor.to(dtype) for tensor in tensors], -1)
