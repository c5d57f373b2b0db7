"""Which pre-rank to look at for which mistake, read off the power study."""

import pandas as pd

from prerank_paper.simulations.power import cases_needed
from prerank_paper.simulations.scenarios import ANISOTROPY, COMPONENTS, MEANS, RANGES, VARIANCES

QUESTIONS: dict[str, tuple[str, ...]] = {
    "a biased mean": MEANS,
    "a wrong variance": VARIANCES,
    "wrong correlation": RANGES,
    "wrong anisotropy": (ANISOTROPY,),
    "wrong principal components": COMPONENTS,
}
_YARDSTICKS = (
    "PCA, known law",
    "random directions",
)  # for comparison only


def recommendations(power: pd.DataFrame, wanted: float = 0.8) -> pd.DataFrame:
    """For every kind of mistake the pre-ranks that need the fewest cases in its hardest form, and how many.

    A mistake comes in several forms and simulations; a pre-rank is as good as its worst of them. `cases` is NaN where no
    pre-rank sees all forms within the sizes of the study.
    """
    rows = []
    for question, errors in QUESTIONS.items():
        tables = []
        for _, records in power[power["error"].isin(errors)].groupby("simulation"):
            tables.append(cases_needed(records[~records["prerank"].isin(_YARDSTICKS)], wanted))
        if not tables:
            continue
        together = pd.concat(tables)
        worst = together.max().where(together.notna().all())
        best = list(worst.index[worst == worst.min()])
        rows.append({"to find": question, "use": ", ".join(best) or "none alone", "cases": worst.min()})
    return pd.DataFrame(rows)


def recommendation_sentences(table: pd.DataFrame) -> list[str]:
    """The recommendations as plain sentences."""
    return [
        f"To find {row['to find']} use {row['use']}"
        + (f" ({int(row['cases']):,} cases are enough)." if row["cases"] == row["cases"] else ".")
        for row in table.to_dict("records")
    ]
