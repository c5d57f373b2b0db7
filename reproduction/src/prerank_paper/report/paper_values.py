"""The numbers that the paper prints, as facts to compare with.

Laajil, Zhalieva, Desobry and Ben Taieb, *Calibrated Multivariate Distributional Regression with Pre-Rank
Regularization* (2026, preprint): the baseline PCE; PCE, NLL and energy score with the penalty; the two "+ALL" tables;
the strengths after tuning; and the "None" row of the table of six datasets (`pce_none`). `minutes_100` and
`minutes_1000` are training times of one model on the authors' GPU with 100 and 1,000 draws, from the result files of
their public repository (`ayalaajil/Multivariate-Calibration-with-Prerank-Regularization`, commit 4e64e9c).
"""

from functools import lru_cache
from importlib.resources import files

import pandas as pd

_SPELLING = {"pca": "PCA", "hdr": "HDR"}


def paper_table(name: str) -> pd.DataFrame:
    """A table of the paper: dataset, prerank, value, standard_error (missing where the paper gives none).

    >>> float(paper_table("pce_baseline").query("dataset == 'wq' and prerank == 'HDR'")["value"].iloc[0])
    0.405
    """
    values = _all_tables()
    if name not in set(values["table"]):
        raise KeyError(f"the paper has no table {name!r}; its tables are {', '.join(values['table'].unique())}")
    return values[values["table"] == name].drop(columns="table").reset_index(drop=True)


def paper_minutes() -> pd.DataFrame:
    """The authors' training times: dataset, prerank, n_draws, minutes (one model)."""
    parts = [paper_table(f"minutes_{n_draws}").assign(n_draws=n_draws) for n_draws in (100, 1000)]
    return pd.concat(parts, ignore_index=True).rename(columns={"value": "minutes"}).drop(columns="standard_error")


@lru_cache(maxsize=1)
def _all_tables() -> pd.DataFrame:
    with (files("prerank_paper.report") / "paper_values.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file).replace({"prerank": _SPELLING})
