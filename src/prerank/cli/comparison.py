"""A forecast before and after its correction, on cases that nothing was fitted on."""

import io
from typing import Any, NamedTuple

import torch

from prerank.cli.document import of_check
from prerank.diagnosis import Check, check
from prerank.forecasts import Ensemble
from prerank.plotting import render
from prerank.plotting.tables import bullets, p_text
from prerank.scores import energy_score


class Comparison(NamedTuple):
    """Checks of the same cases before and after, and their mean energy scores (fair)."""

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

    def document(self, seed: int) -> dict[str, Any]:
        """For JSON."""
        first, second = self.names
        found: dict[str, Any] = {
            first: of_check(self.before, seed),
            second: of_check(self.after, seed),
            "energy_score": {first: self.score_before, second: self.score_after},
        }
        if self.variogram is not None:
            found["variogram_score"] = dict(zip(self.names, self.variogram, strict=True))
        return found


def compare(y: Any, raw: Any, present: Ensemble, corrected: Ensemble, **options: Any) -> Comparison:
    """Check both against observations (N, D): members (N, M, D) as they were read, and equally weighted draws.

    `present` has the members without missing values, in which a score is defined.
    """
    before = check(y, raw, axes=("case", "member", "target"), **options)
    after = check(y, corrected, **options)
    observed = torch.tensor(y.to_numpy()).to(present.members)
    scores = [float(energy_score(observed, law).mean()) for law in (present, corrected)]
    return Comparison(before, after, scores[0], scores[1])
