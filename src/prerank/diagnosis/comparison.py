"""A forecast before and after its correction, on cases that nothing was fitted on."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prerank._parameters import require_whole
from prerank._wording import counted
from prerank.arrays.conversion import is_forecast
from prerank.diagnosis.checking import check
from prerank.diagnosis.result import LEVEL, Check
from prerank.forecasts import Ensemble
from prerank.inputs import Cases
from prerank.plotting import render
from prerank.plotting.tables import bullets, p_text
from prerank.preranks import PreRank
from prerank.scores import energy_score

if TYPE_CHECKING:
    import pandas as pd


class Comparison(NamedTuple):
    """Checks of the same cases before and after, and their mean energy scores, as `compare` returns them.

    Attributes
    ----------
    before : Check
        The check of the forecast as it was.
    after : Check
        The check of the corrected forecast.
    score_before : float
        Mean energy score (fair for members) of the forecast as it was; smaller is better.
    score_after : float
        That of the corrected forecast.
    names : tuple of str
        What the two forecasts are called.
    variogram : tuple of float, optional
        Mean variogram scores of the two.
    n_points : tuple of int, optional
        Members or draws that the two were checked and scored by.
    """

    before: Check
    after: Check
    score_before: float
    score_after: float
    names: tuple[str, str] = ("before", "after")
    variogram: tuple[float, float] | None = None
    n_points: tuple[int, int] | None = None

    def __str__(self) -> str:
        stream = io.StringIO()
        first, second = self.names
        columns = ("pre-rank", f"PCE {first}", second, "expected", f"adjusted p {first}", second)
        rows = []
        both = zip(self.before.table.iterrows(), self.after.table.iterrows(), strict=True)
        for (name, row), (_, later) in both:
            expected = max(row["expected PCE"], later["expected PCE"])
            p_values = [p_text(one["adjusted p-value"]) for one in (row, later)]
            rows.append([str(name), f"{row['PCE']:.4f}", f"{later['PCE']:.4f}", f"{expected:.4f}", *p_values])
        scores = [self._change("Energy", self.score_before, self.score_after)]
        if self.variogram is not None:
            scores.append(self._change("Variogram", *self.variogram))
        if self.n_points is not None:
            few, many = sorted(self.n_points)
            of = f"{few}" if few == many else f"{self.n_points[0]} {first} and {self.n_points[1]} {second}"
            scores.append(f"Checks and fair scores by {of} members or draws of each case.")
        head = []
        for when, one in ((first, self.before), (second, self.after)):
            head += [f"{when.capitalize()}: {one.verdict}", *bullets(one.sentences.values())]
        render(columns, rows, stream, scores, head=head)
        return stream.getvalue().rstrip("\n")

    def _change(self, what: str, before: float, after: float) -> str:
        change = after / before - 1 if before > 0 else float("nan")
        first, second = self.names
        return f"{what} score {before:.4g} {first}, {after:.4g} {second} ({100 * change:+.1f} %)."


def compare(
    y: Any,
    before: Any,
    after: Any,
    preranks: Sequence[PreRank] | PreRank | None = None,
    *,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    joint: str | Sequence[str] | None = None,
    case_weights: Any = None,
    blocks: Any = None,
    n_draws: int | None = None,
    n_replicates: int = 999,
    seed: int = 0,
) -> Comparison:
    """Check two forecasts of the same cases, one before and one after a correction, and score both.

    Nothing should have been fitted on these cases: `split_by_time` keeps later ones back.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets)
        Observations.
    before : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        The forecast as it was. What `check` says of missing values holds here, too.
    after : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        The corrected forecast of the same cases.
    preranks : PreRank or sequence of PreRank, optional
        The paper's by default.
    axes, joint : sequence or dict of str, optional
        What the axes of arrays, and the dimensions of xarray objects, are; as for `check`.
    case_weights, blocks : array_like, shape (n_cases,), optional
        As for `check`; scores are not weighted.
    n_draws : int, optional
        Draws of a distribution: by default as many as the other forecast has members, so that a test sees as much of the
        one as of the other, and 100 where neither has members.
    n_replicates : int, default 999
        Replicates of the tests.
    seed : int, default 0
        Of everything random.

    Returns
    -------
    Comparison
        Both checks and both scores.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(300, 21, 2))
    >>> found = compare(truth[:, 0], 0.5 * truth[:, 1:], truth[:, 1:])
    >>> found.before.rejected, found.after.rejected, found.score_after < found.score_before
    (True, False, True)
    """
    options: dict[str, Any] = {"case_weights": case_weights, "blocks": blocks, "n_replicates": n_replicates}
    axes_of = [None if is_forecast(one) and not isinstance(axes, Mapping) else axes for one in (before, after)]
    both = [_scored(y, one, own, joint) for one, own in zip((before, after), axes_of, strict=True)]
    n_points = _points(both, n_draws)
    options |= {"joint": joint, "seed": seed}
    results, scores = [], []
    for forecast, own, cases, count in zip((before, after), axes_of, both, n_points, strict=True):
        results.append(check(y, forecast, preranks, axes=own, n_draws=count, **options))
        scores.append(float(energy_score(cases.observed(), cases.law, n_draws=count, seed=seed).mean()))
    return Comparison(results[0], results[1], scores[0], scores[1], n_points=n_points)


def _scored(y: Any, forecast: Any, axes: Any, joint: Any) -> Cases:
    """Cases with nothing missing, which scores take."""
    return Cases.of(y, forecast, axes, joint=joint).of_one_model().complete().without_gaps()


def _points(both: Sequence[Cases], n_draws: int | None) -> tuple[int, int]:
    """Members of two forecasts; of a distribution as many draws as the other has members, if nothing is said."""
    members = [cases.law.n_members if isinstance(cases.law, Ensemble) else None for cases in both]
    usual = next((count for count in members if count is not None), 100) if n_draws is None else n_draws
    first, second = (usual if count is None else count for count in members)
    return first, second


def compare_over_time(
    y: Any,
    before: Any,
    after: Any,
    times: Any,
    preranks: Sequence[PreRank] | PreRank | None = None,
    *,
    n_periods: int = 12,
    axes: Sequence[str] | Mapping[str, str] | None = None,
    blocks: Any = None,
    n_draws: int | None = None,
    n_replicates: int = 199,
    seed: int = 0,
) -> "pd.DataFrame":
    """Calibration and scores of two forecasts of the same cases, period by period.

    Whether a correction lasts, or errors that drift come back.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets)
        Observations.
    before : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        The forecast as it was.
    after : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
        The corrected forecast of the same cases, such as `IssuedForecasts.ensemble()`.
    times : array_like, shape (n_cases,)
        When each case was: numbers, dates, or text with an order. Cases of one time stay together.
    preranks : PreRank or sequence of PreRank, optional
        The paper's by default.
    n_periods : int, default 12
        Periods of about as many cases each; fewer where there are fewer times.
    axes : sequence or dict of str, optional
        What the axes of arrays are, as for `check`.
    blocks : array_like, shape (n_cases,), optional
        Cases that depend on each other, as for `check`.
    n_draws : int, optional
        Draws of a distribution: as many as the other forecast has members, or 100.
    n_replicates : int, default 199
        Replicates of the tests.
    seed : int, default 0
        Of everything random.

    Returns
    -------
    pandas.DataFrame
        A row for each period: "first" and "last" time and "cases"; and of both forecasts, with "before" or "after" at the
        end of the name, the mean "energy score" (fair for members), the mean over pre-ranks of "PCE over expected",
        which is 1 on average for a calibrated forecast, and how many pre-ranks are "rejected" (adjusted for pre-ranks, not
        for periods).

    See Also
    --------
    prerank.plotting.recalibration.over_time_figure : draws it
    prerank.recalibration.recalibrate_over_time : corrections as time goes on

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=(300, 21, 2))
    >>> drift = np.linspace(0, 2, 300)[:, None, None]
    >>> found = compare_over_time(truth[:, 0], truth[:, 1:] - drift, truth[:, 1:], np.arange(300), n_periods=3)
    >>> found[["first", "last", "cases"]].to_numpy().tolist()
    [[0, 99, 100], [100, 199, 100], [200, 299, 100]]
    >>> found["energy score before"].is_monotonic_increasing, bool((found["rejected before"] > 0).all())
    (True, True)
    """
    import pandas as pd  # which loads slowly, as corrections do

    from prerank.recalibration.time_split import in_order_of_time

    numbers, names = in_order_of_time(times)
    if len(numbers) != len(y):
        raise ValueError(
            f"times has {counted(len(numbers), 'value')} for {counted(len(y), 'case')}; give each case one"
        )
    so_far = np.cumsum(np.bincount(numbers))
    middle = so_far - 0.5 * np.diff(so_far, prepend=0)
    period = (middle * require_whole(n_periods, "n_periods") / so_far[-1]).astype(int)[numbers]
    own = [numbers[period == each] for each in np.unique(period)]
    found: dict[str, Any] = {
        "first": [names[part.min()] for part in own],
        "last": [names[part.max()] for part in own],
        "cases": [len(part) for part in own],
    }
    options: dict[str, Any] = {"blocks": blocks, "n_replicates": n_replicates, "seed": seed, "by": period}
    axes_of = [None if is_forecast(one) and not isinstance(axes, Mapping) else axes for one in (before, after)]
    both = [_scored(y, one, own, None) for one, own in zip((before, after), axes_of, strict=True)]
    n_points = dict(zip(("before", "after"), _points(both, n_draws), strict=True))
    scored, tables = {}, {}
    for when, forecast, own_axes, cases in zip(n_points, (before, after), axes_of, both, strict=True):
        checks = check(y, forecast, preranks, axes=own_axes, n_draws=n_points[when], **options).checks
        tables[when] = [one.table for one in checks.values()]
        cases = cases.along(by=period)
        values = energy_score(cases.observed(), cases.law, n_draws=n_points[when], seed=seed)
        groups = cases.groups
        assert groups is not None
        scored[when] = [float(values[groups == place].mean()) for place in range(len(own))]
    for when in tables:
        found[f"energy score {when}"] = scored[when]
        found[f"PCE over expected {when}"] = [float((one["PCE"] / one["expected PCE"]).mean()) for one in tables[when]]
        found[f"rejected {when}"] = [int((one["adjusted p-value"] <= LEVEL).sum()) for one in tables[when]]
    return pd.DataFrame(found)
