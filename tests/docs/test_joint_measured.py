"""Numbers on joint forecasts from margins on their page are those of the committed record."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PAGE = re.sub(r"\s+", " ", (ROOT / "docs" / "guide" / "margins.md").read_text(encoding="utf-8"))
RECORD = pd.read_csv(ROOT / "results" / "recalibration" / "joint-from-margins.csv")
MEANS = RECORD.groupby("method").mean(numeric_only=True)
PRERANKS = ("marginal", "location", "scale", "dependency", "PCA", "HDR", "copula")


@pytest.mark.parametrize("method", sorted(MEANS.index))
def test_the_table_is_the_record(method):
    row = MEANS.loc[method]
    cells = [f"{row['energy score']:.1f}", f"{row['variogram score']:.0f}"]
    cells += [f"{row[f'{name} ratio']:.1f}" for name in PRERANKS] + [f"{row['rejected']:.1f}"]
    assert f"| {method} | {' | '.join(cells)} |" in PAGE


def test_what_the_page_says_of_the_table():
    apart, joint = MEANS.loc["independent margins"], MEANS.loc["Gaussian copula"]
    fitted = RECORD["margins"].dropna()
    assert f"{len(fitted)} fits, the largest deviation is {fitted.max():.1f} standard errors" in PAGE
    falls = [
        100 * (1 - joint[f"{name} ratio"] / apart[f"{name} ratio"]) for name in ("location", "dependency", "copula")
    ]
    assert f"fall by {min(falls):.0f} to {max(falls):.0f} % with" in PAGE
    by_cut = RECORD.groupby(["method", "judged from"])["variogram score"].mean()
    first, second = (by_cut["Gaussian copula"] / by_cut["independent margins"] - 1).tolist()
    assert f"{-100 * first:.0f} % better at the first cut and {100 * second:.0f} % worse at the second" in PAGE
    corrected = MEANS.loc["Gaussian copula, corrected"]
    assert corrected["energy score"] > joint["energy score"]
    assert corrected["variogram score"] > joint["variogram score"]
    own = MEANS.loc["the team's samples"]
    assert own["variogram score"] == MEANS["variogram score"].min()
    assert own["energy score"] == MEANS["energy score"].max()
