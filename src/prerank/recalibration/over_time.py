"""Recalibration as time goes on: each forecast is corrected by what had been observed when it was issued."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from prerank._parallel import single_threaded
from prerank._parameters import require_whole
from prerank._progress import shown_if_slow
from prerank._wording import counted
from prerank.arrays import as_tensor
from prerank.arrays.labels import Axes, label_text
from prerank.forecasts import Ensemble, Forecast, can_be_cut, equally_weighted_draws
from prerank.forecasts.batching import CannotBeCut
from prerank.inputs import Cases
from prerank.recalibration.held_out import correctable, usable
from prerank.recalibration.order import Order
from prerank.recalibration.recalibrator import Recalibrator
from prerank.recalibration.time_split import as_dates, in_order_of_time

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 100  # of a corrected distribution, where nothing says how many members there should be


class Issue(NamedTuple):
    """Forecasts that one fit has corrected, as `recalibrate_over_time` returns them.

    Attributes
    ----------
    first : object
        The first of their times.
    last : object
        The last of their times.
    cases : ndarray of int, shape (n_cases,)
        Their positions among the cases that were given, in the order of time.
    n_learnt : int
        Cases that the fit learnt from.
    recalibrator : Recalibrator
        The fit.
    forecast : Ensemble or Distribution
        The corrected forecasts.
    """

    first: Any
    last: Any
    cases: np.ndarray
    n_learnt: int
    recalibrator: Recalibrator
    forecast: Forecast


@dataclass(frozen=True, eq=False, repr=False)
class IssuedForecasts:
    """Forecasts corrected one period after the other, each by a fit on what was known before it.

    Attributes
    ----------
    issues : tuple of Issue
        One for each period, in the order of time.
    notes : tuple of str
        What was left out.
    """

    issues: tuple[Issue, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first, last = (label_text(label) for label in (self.issues[0].first, self.issues[-1].last))
        return (
            f"IssuedForecasts({counted(len(self.cases), 'case')} from {first} to {last}, "
            f"{counted(len(self.issues), 'fit')})"
        )

    @property
    def cases(self) -> np.ndarray:
        """Positions (n_issued,) of the corrected cases among those that were given, in the order of time."""
        return np.concatenate([issue.cases for issue in self.issues])

    def ensemble(self, n_draws: int | None = None, seed: int = 0) -> Ensemble:
        """Draws of all corrected forecasts, one case after another as in `cases`.

        Parameters
        ----------
        n_draws : int, optional
            Independent draws of each case. By default as many as the members that were given, or 100. Forecasts that stayed
            members, because they were right or needed but a move, are as many as they are.
        seed : int, default 0
            Seed of the draws.

        Returns
        -------
        Ensemble
            Members (n_issued, n_draws, n_targets).

        Raises
        ------
        ValueError
            If some forecasts stayed members and another number is asked for.
        """
        stayed = [issue.forecast for issue in self.issues if isinstance(issue.forecast, Ensemble)]
        usual = self.issues[0].recalibrator.fitted_on_.n_members or _DRAWS
        count = usual if n_draws is None else require_whole(n_draws, "n_draws")
        if stayed and stayed[0].n_members != count:
            raise ValueError(
                f"n_draws={count}: {len(stayed)} of {counted(len(self.issues), 'issue')} stayed ensembles of "
                f"{counted(stayed[0].n_members, 'member')}, which are no draws; leave n_draws out, or make a law of every "
                "forecast with Recalibrator(steps=[ErrorLaw(always=True)])"
            )
        parts = [
            equally_weighted_draws(issue.forecast, count, seed, "issued", torch.as_tensor(issue.cases))
            for issue in self.issues
        ]
        weights = None
        if any(part.weights is not None for part in parts):
            weights = torch.cat([part.probabilities for part in parts])
        return Ensemble(torch.cat([part.members for part in parts]), weights)

    def log_prob(self, y: Any) -> Tensor:
        """Log densities (n_issued,) of observations (n_issued, n_targets), which stand as in `cases`.

        Parameters
        ----------
        y : array_like, shape (n_issued, n_targets)
            Observations of the corrected cases.

        Returns
        -------
        Tensor, shape (n_issued,)
            NaN for forecasts that stayed members, which have no density.
        """
        observed, found, place = as_tensor(y, "y"), [], 0
        if len(observed) != len(self.cases):
            raise ValueError(f"y has {len(observed)} cases, and {len(self.cases)} were issued; pass y[issued.cases]")
        for issue in self.issues:
            part = observed[place : place + len(issue.cases)]
            place += len(part)
            if isinstance(issue.forecast, Ensemble):
                found.append(torch.full((len(part),), torch.nan, dtype=torch.float64))
            else:
                found.append(issue.forecast.log_prob(part).double())
        return torch.cat(found)

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each fit: times and number of the cases it corrected, cases it learnt from, whether it changes them."""
        import pandas as pd  # which loads slowly

        return pd.DataFrame(
            {
                "first": [issue.first for issue in self.issues],
                "last": [issue.last for issue in self.issues],
                "cases": [len(issue.cases) for issue in self.issues],
                "learnt from": [issue.n_learnt for issue in self.issues],
                "changed": [issue.recalibrator.changed_ for issue in self.issues],
            }
        )


@single_threaded()
def recalibrate_over_time(
    y: Any,
    forecast: Any,
    times: Any,
    *,
    recalibrator: Recalibrator | None = None,
    every: int = 1,
    delay: Any = 0,
    window: Any = None,
    first: int | None = None,
    blocks: Any = None,
    features: Any = None,
    case_weights: Any = None,
    axes: Axes | None = None,
    joint: str | Sequence[str] | None = None,
    member_names: Sequence[str] | None = None,
    folder: Path | str | None = None,
) -> IssuedForecasts:
    """Correct forecasts in the order of time, each by a fit on what had been observed before.

    The cases of the first times are learnt from alone. From then on there is a fit every few times, on all that is known
    by then or on a window of it, and it corrects the forecasts up to the next fit. No correction depends on an
    observation that was not known when the forecast was issued. Cases without an observation, such as those of today, are
    corrected like others.

    With a `folder` every fit is kept there, under a name made of all that it has learnt from. The same call goes on where
    it was interrupted, with the same numbers; and a later call with further cases makes the fits that are new.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets)
        Observations; NaN where there is none (yet).
    forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        Raw forecasts of all cases.
    times : array_like, shape (n_cases,), or str
        When each forecast was issued: numbers, dates, or text with an order. Cases of one time are corrected together.
    recalibrator : Recalibrator, optional
        How to learn; it stays as it is. `Recalibrator()` by default.
    every : int, default 1
        Distinct times from one fit to the next.
    delay : int or timedelta, default 0
        How many of the distinct times before a fit have no observation yet, or how long after its time a forecast has been
        observed. For targets that lie ahead, such as a path of 20 days, the delay is that of the last one.
    window : int or timedelta, optional
        How many of the times that are known, the last ones, are learnt from, or those of how long; all by default.
    first : int, optional
        How many of the distinct times are learnt from alone. By default as few as a fit can do with.
    blocks : array_like, shape (n_cases,), or str, optional
        Cases that depend on each other, as in `Recalibrator.fit`; by default those of one time.
    features : array_like, shape (n_cases, n_features), optional
        What corrections may depend on.
    case_weights : array_like, shape (n_cases,), optional
        How much each case counts.
    axes, joint : sequence or dict of str, optional
        What the axes of arrays, and the dimensions of xarray objects, are; as for `check`.
    member_names : sequence of str, optional
        Names of members that are models of their own, as in `Recalibrator.fit`.
    folder : str or path-like, optional
        Where fits are kept, in files that `Recalibrator.load` reads.

    Returns
    -------
    IssuedForecasts
        The corrected forecasts and the fits.

    Raises
    ------
    ValueError
        If there are never enough cases for a fit, or no times are left to correct.

    See Also
    --------
    split_by_time : one fit on earlier cases, judged by later ones
    prerank.diagnosis.compare_over_time : calibration and scores before and after, period by period

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(120, 11, 2))
    >>> y, members = truth[:, 0] + np.linspace(0, 3, 120)[:, None], truth[:, 1:]
    >>> issued = recalibrate_over_time(y, members, np.arange(120), every=20, first=40, window=30)
    >>> issued
    IssuedForecasts(80 cases from 40 to 119, 4 fits)
    >>> errors = y[issued.cases] - issued.ensemble().mean.numpy()
    >>> bool(abs(errors.mean()) < 0.5 * abs((y - members.mean(1))[40:].mean()))
    True
    """
    recalibrator = Recalibrator() if recalibrator is None else recalibrator
    if not isinstance(recalibrator, Recalibrator):
        raise TypeError(f"recalibrator is a {type(recalibrator).__name__}; pass a Recalibrator()")
    every = require_whole(every, "every")
    cases = Cases.of(y, forecast, axes, joint=joint).with_member_names(member_names).of_one_model()
    if not can_be_cut(cases.law):
        raise CannotBeCut(cases.law)
    numbers, names = in_order_of_time(cases.index.label_values(times, "times"))
    known, raw = usable(cases), correctable(cases)
    past = _Past(
        recalibrator,
        known,
        numbers,
        names,
        delay,
        window,
        features,
        case_weights,
        numbers if blocks is None else blocks,
    )
    places = numbers[raw.index.kept.cpu().numpy()]
    starts = past.starts(first, every)
    issues: list[Issue] = []
    with shown_if_slow("recalibrating over time", "fits") as tell:
        for place, (start, stop) in enumerate(zip(starts, [*starts[1:], len(names)], strict=True)):
            tell(place, len(starts))
            inside = np.flatnonzero((places >= start) & (places < stop))
            learnt, some = issues[-1].recalibrator if issues else None, past.before(start)
            n_learnt = len(some)
            if past.enough(some):
                learnt = past.fitted(some, None if folder is None else Path(folder))
            elif issues:
                n_learnt = issues[-1].n_learnt  # too little is known now, so the last fit stays in use
            if learnt is None or not len(inside):
                continue
            inside = inside[np.argsort(places[inside], kind="stable")]
            part = _plain(raw.select(torch.as_tensor(inside)))
            with torch.no_grad():
                corrected = learnt._correct(part, features)
            ends = names[places[inside[0]]], names[places[inside[-1]]]
            issues.append(Issue(*ends, part.index.kept.cpu().numpy(), n_learnt, learnt, corrected))
    return IssuedForecasts(tuple(issues), tuple(dict.fromkeys((*known.notes, *raw.notes))))


class _Past(NamedTuple):
    """Cases that have been observed, the places of all cases in time, and what may be learnt from at a time."""

    recalibrator: Recalibrator
    cases: Cases
    numbers: np.ndarray
    names: Any
    delay: Any
    window: Any
    features: Any
    case_weights: Any
    blocks: Any

    @property
    def fewest(self) -> int:
        return 2 * require_whole(self.recalibrator.n_folds, "n_folds", at_least=2)

    def starts(self, first: int | None, every: int) -> list[int]:
        """Places of the times at which there is a fit."""
        n_times = len(self.names)
        counted_times = counted(n_times, "time")
        if first is None:
            first = next((start for start in range(1, n_times) if self.enough(self.before(start))), n_times)
            if first == n_times:
                raise ValueError(
                    f"a fit needs {self.fewest} blocks that have been observed, which there never are before the last of "
                    f"{counted_times}; give more of the past, a shorter delay or a longer window"
                )
        elif require_whole(first, "first") >= n_times:
            raise ValueError(f"first={first} of {counted_times} leaves none to correct; learn from fewer")
        elif not self.enough(self.before(first)):
            n_blocks = self._n_blocks(self.before(first))
            raise ValueError(
                f"first={first}: {counted(n_blocks, 'block')} observed by then, and a fit needs {self.fewest}; learn from "
                "more times first, or take a shorter delay or a longer window"
            )
        return list(range(first, n_times, every))

    def before(self, start: int) -> Tensor:
        """Observed cases that may be learnt from at a time, in the order of time."""
        end = self._known_by(start)
        begin = 0
        if self.window is not None and end:
            if isinstance(self.window, int | np.integer):
                begin = max(0, end - require_whole(self.window, "window"))
            else:
                times = as_dates(self.names, self.window, "window")
                begin = int((times <= times[end - 1] - self.window).sum())
        places = self.numbers[self.cases.index.kept.cpu().numpy()]
        inside = np.flatnonzero((places >= begin) & (places < end))
        return torch.as_tensor(inside[np.argsort(places[inside], kind="stable")])

    def _known_by(self, start: int) -> int:
        """How many of the times, the first ones, have been observed."""
        if isinstance(self.delay, int | np.integer):
            return max(0, start - require_whole(self.delay, "delay", at_least=0))
        times = as_dates(self.names, self.delay, "delay")
        return min(start, int((times + self.delay <= times[start]).sum()))

    def enough(self, some: Tensor) -> bool:
        """Whether there are blocks enough for a fit."""
        return self._n_blocks(some) >= self.fewest

    def _n_blocks(self, some: Tensor) -> int:
        return len(set(self.cases.index.label_values(self.blocks, "blocks")[some.numpy()].tolist()))

    def fitted(self, some: Tensor, folder: Path | None) -> Recalibrator:
        """A fit on some of the observed cases, or the one that was kept."""
        cases = _plain(self.cases.select(some))
        path = None if folder is None else folder / f"{self._name(cases)}.safetensors"
        if path is not None and path.exists():
            return Recalibrator.load(path)
        learnt = clone(self.recalibrator)._learn(cases, self.features, self.case_weights, self.blocks)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            learnt.save(path)
        return learnt

    def _name(self, cases: Cases) -> str:
        """A digest of all that a fit on some cases depends on."""
        along = cases.along(case_weights=self.case_weights)
        blocks = cases.index.label_values(self.blocks, "blocks")
        options = sorted(self.recalibrator.get_params(deep=False).items())
        labels = (blocks.tolist(), Order.of(cases), cases.labels.targets is None, cases.names, cases.member_names)
        said = (version("prerank"), options, *labels)
        digest = hashlib.blake2b(repr(said).encode(), digest_size=12)
        features = None if self.features is None else cases.index.table(self.features, "features")
        for part in (cases.observed(), along.weights, features, *_numbers_of(cases.law)):
            digest.update(b"-" if part is None else f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(b"" if part is None else part.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def _plain(cases: Cases) -> Cases:
    """The same without weights of members where they are all there, and without notes, which are of all cases."""
    law = cases.law
    if isinstance(law, Ensemble) and law.weights is not None and bool((law.weights == law.weights.max()).all()):
        law = replace(law, weights=None)
    return replace(cases, forecast=law, notes=())


def _numbers_of(forecast: Forecast) -> list[Tensor | None]:
    """What tells a forecast from others: its members, or draws."""
    if isinstance(forecast, Ensemble):
        return [forecast.members, forecast.weights]
    return [equally_weighted_draws(forecast, 8, 0, "fingerprint").members]
