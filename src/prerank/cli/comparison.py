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

    def __str__(self) -> str:
        stream = io.StringIO()
        columns = ("pre-rank", "PCE before", "after", "expected", "adjusted p before", "after")
        rows = []
        both = zip(self.before.table.iterrows(), self.after.table.iterrows(), strict=True)
        for (name, row), (_, later) in both:
            expected = max(row["expected PCE"], later["expected PCE"])
            p_values = [p_text(one["adjusted p-value"]) for one in (row, later)]
            rows.append([str(name), f"{row['PCE']:.4f}", f"{later['PCE']:.4f}", f"{expected:.4f}", *p_values])
        change = self.score_after / self.score_before - 1 if self.score_before > 0 else float("nan")
        score = f"Energy score {self.score_before:.4g} before, {self.score_after:.4g} after ({100 * change:+.1f} %)."
        head = []
        for when, one in (("Before", self.before), ("After", self.after)):
            head += [f"{when}: {one.verdict}", *bullets(one.sentences.values())]
        render(columns, rows, stream, [score], head=head)
        return stream.getvalue().rstrip("\n")

    def document(self, seed: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "before": of_check(self.before, seed),
            "after": of_check(self.after, seed),
            "energy_score": {"before": self.score_before, "after": self.score_after},
        }


def compare(y: Any, raw: Any, present: Ensemble, corrected: Ensemble, **options: Any) -> Comparison:
    """Check both against observations (N, D): members (N, M, D) as they were read, and equally weighted draws.

    `present` has the members without missing values, in which a score is defined.
    """
    before = check(y, raw, axes=("case", "member", "target"), **options)
    after = check(y, corrected, **options)
    observed = torch.tensor(y.to_numpy()).to(present.members)
    scores = (energy_score(observed, law).mean() for law in (present, corrected))
    return Comparison(before, after, *(float(score) for score in scores))
