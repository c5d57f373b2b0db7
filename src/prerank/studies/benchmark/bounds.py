r"""Bounds on p-values that a simulation with few replicates cannot resolve, from the reliability curves that are kept.

An exchange test with B replicates has no p-value below 1 / (B + 1), which Holm's adjustment over a hundred cells may not
accept. If PITs are independent and uniform, the largest deviation $d$ of one curve of $n$ cases has
$P(d \ge t) \le 2 \exp(-2 n t^2)$ (Dvoretzky, Kiefer and Wolfowitz 1956, with the constant of Massart 1990), at a grid of
levels all the more; for several projections, however they depend on each other, the bounds add up.
"""

import numpy as np
import pandas as pd

from prerank.studies.benchmark.plan import NONE
from prerank.studies.benchmark.records import Results
from prerank.studies.benchmark.summaries import CELL, datasets_run
from prerank.studies.protocols import EXACT

MODEL = [*CELL, "strength", "seed"]


def p_value_bounds(results: Results, training: str) -> pd.DataFrame:
    """Dataset, prerank, strength, seed and `bound`, for several projections at once; baselines, and one training's models.

    Models of which no curve is kept are left out, and so are pre-ranks with one projection, whose null is fine enough.
    """
    curves = results.curves[results.curves["evaluation"] == EXACT]
    own = (curves["training"] == training) & (curves["penalty"] == curves["prerank"])
    curves = curves[own | (curves["penalty"] == NONE)]
    deviation = (curves["frequency"] - curves["level"]).abs()
    groups = curves.assign(deviation=deviation).groupby(MODEL, sort=False)
    table = groups.agg(deviation=("deviation", "max"), projections=("projection", "max")).reset_index()
    n_cases = table["dataset"].map(datasets_run(results)["n_test"])
    tail = 2 * np.exp(-2 * n_cases * table["deviation"] ** 2)
    table["bound"] = np.minimum(1.0, table["projections"] * tail)
    return table.loc[table["projections"] > 1, [*MODEL, "bound"]].reset_index(drop=True)


def refined(seeds: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """A selection whose p-values are the smaller of test and bound, twice (two tests are made), where there is a bound."""
    both = seeds.merge(bounds, on=MODEL, how="left")
    twice = (2 * both[["p_value", "bound"]].min(axis=1)).clip(upper=1.0)
    return seeds.assign(p_value=both["p_value"].where(both["bound"].isna() | both["p_value"].isna(), twice).to_numpy())
