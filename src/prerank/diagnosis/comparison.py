"""A forecast before and after its correction, on cases that nothing was fitted on."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prerank.arrays.conversion import is_forecast
from prerank.diagnosis.checking import check
from prerank.diagnosis.result import Check
from prerank.inputs import Cases
from prerank.plotting import render
from prerank.plotting.tables import bullets, p_text
from prerank.preranks import PreRank
from prerank.scores import energy_score


class Comparison(NamedTuple):
    """Checks of the same cases before and after, and their mean energy scores, as `compare` returns them.

    Attributes
    ----------
    before, after : Check
        The two checks.
    score_before, score_after : float
        Mean energy scores (fair for members); smaller is better.
    names : tuple of str
        What the two forecasts are called.
    variogram : tuple of float, optional
        Mean variogram scores of the two.
    """

    before: Check
    after: Check
    score_before: float
    score_after: float
    names: tuple[str, str] = ("before", "after")
    variogram: tuple[float, float] | None = None

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
    n_draws: int = 100,
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
    n_draws : int, default 100
        Draws of a distribution.
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
    options |= {"joint": joint, "n_draws": n_draws, "seed": seed}
    results, scores = [], []
    for forecast in (before, after):
        named = None if is_forecast(forecast) and not isinstance(axes, Mapping) else axes
        results.append(check(y, forecast, preranks, axes=named, **options))
        cases = Cases.of(y, forecast, named, joint=joint).of_one_model().complete().without_gaps()
        scores.append(float(energy_score(cases.observed(), cases.law, n_draws=n_draws, seed=seed).mean()))
    return Comparison(results[0], results[1], scores[0], scores[1])
