"""The guide's table of times is the committed record, and so is the page of corrections as time goes on."""

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "recalibration.md").read_text(encoding="utf-8")
TIMES = pd.read_csv(ROOT / "results" / "recalibration" / "times.csv")


def rows():
    """The table's rows: sizes, fit and transform."""
    for row in TIMES.itertuples():
        members = row.members if row.forecast == "ensemble" else "–"
        fast = "below 0.1" if row.transform < 0.1 else f"{row.transform:.1f}"
        yield f"| {row.forecast} | {row.cases:,} | {members} | {row.targets} | {row.fit:.1f} | {fast} |"


@pytest.mark.parametrize("row", list(rows()))
def test_a_row_of_the_guide_is_the_record(row):
    assert row in GUIDE


def test_the_guide_has_no_other_rows():
    shown = [line for line in GUIDE.splitlines() if line.startswith(("| ensemble |", "| distribution |"))]
    assert shown == list(rows())
