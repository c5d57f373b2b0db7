"""Choosing the strength of a penalty: the paper's rule, and a fit of all strengths at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import stats

from prerank.calibration import pce, projected_pit
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, paper_preranks
from prerank.scores import energy_score
from prerank.training.batches import TrainingSet
from prerank.training.fitted import FittedFleet
from prerank.training.fleet import Run
from prerank.training.loop import fit
from prerank.training.options import FitOptions
from prerank.training.penalty import listed, preranks_in
from prerank.training.progress import Progress
from prerank.training.protocols import Penalty

PAPER_STRENGTHS = (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)


def choose_strength(
    table: pd.DataFrame,
    *,
    tolerance: float = 0.1,
    absolute_tolerance: float | None = None,
    parsimonious: bool = False,
) -> float:
    """The paper's rule: the smallest PCE among strengths whose score is not much worse than without a penalty.

    A strength is admitted if its score is at most (1 + `tolerance`) times that of strength 0, or, with
    `absolute_tolerance`, at most that much above it. Means are taken over seeds; ties go to the smaller strength.

    Parameters
    ----------
    table : pandas.DataFrame
        Validation values in columns strength, seed, pce and score; strength 0 must be there.
    tolerance : float, default 0.1
        Relative loss of score that is accepted.
    absolute_tolerance : float, optional
        Absolute loss of score that is accepted instead; a score that can be negative needs it.
    parsimonious : bool, default False
        Whether to take the smallest admitted strength whose PCE cannot be told from the best one's (paired t-test over
        seeds, one-sided 5 %).

    Returns
    -------
    float
        The chosen strength.

    Raises
    ------
    ValueError
        If columns, values or strength 0 are missing, or scores are negative and `absolute_tolerance` is not given.

    Examples
    --------
    >>> table = pd.DataFrame({"strength": [0.0, 1.0, 10.0], "seed": 0, "pce": [0.05, 0.02, 0.01], "score": [1.0, 1.05, 1.2]})
    >>> choose_strength(table)
    1.0
    """
    missing = {"strength", "seed", "pce", "score"} - set(table.columns)
    if missing:
        raise ValueError(f"the table lacks the columns {sorted(missing)}; it has {list(table.columns)}")
    if table[["pce", "score"]].isna().any().any():
        bad = table[table[["pce", "score"]].isna().any(axis=1)]["strength"].unique().tolist()
        raise ValueError(f"PCE or score is missing for strengths {sorted(bad)}; leave diverged models out of the table")
    if min(tolerance, absolute_tolerance or 0.0) < 0:
        raise ValueError(
            f"tolerance={tolerance}, absolute_tolerance={absolute_tolerance}: below zero they would refuse strength 0"
        )
    means = table.groupby("strength")[["pce", "score"]].mean().sort_index()
    if 0.0 not in means.index:
        raise ValueError(f"strength 0 must be a candidate; the table has {means.index.tolist()}")
    base = float(means["score"].to_numpy()[means.index.to_numpy() == 0.0][0])
    if absolute_tolerance is None:
        if float(table["score"].min()) < 0:
            raise ValueError(
                f"scores are negative (down to {table['score'].min():.3g}), so a relative tolerance has no meaning; "
                "give absolute_tolerance, or tune by the energy score"
            )
        limit = (1 + tolerance) * base
    else:
        limit = base + absolute_tolerance
    admitted = means[means["score"] <= limit]
    best = float(admitted.index.to_numpy()[admitted["pce"].to_numpy().argmin()])  # the first of equals: the smaller
    if not parsimonious:
        return best
    wide = table.pivot_table(index="seed", columns="strength", values="pce")
    for strength in admitted.index:
        if strength == best or not _worse(wide[strength] - wide[best]):
            return float(strength)
    return best


def _worse(difference: pd.Series) -> bool:
    """Whether paired differences are positive beyond chance; with a single seed nothing can be told, so any is."""
    values = difference.dropna().to_numpy()
    if len(values) < 2 or np.ptp(values) == 0:
        return bool(values.mean() > 0)
    return bool(stats.ttest_1samp(values, 0.0, alternative="greater").pvalue < 0.05)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    strength : float
        The chosen strength.
    table : pandas.DataFrame
        Validation PCE and score of every strength and seed.
    fleet : FittedFleet
        All fitted models, strength by strength, seed by seed.
    """

    strength: float
    table: pd.DataFrame
    fleet: FittedFleet

    def models(self) -> list[int]:
        """Places in the fleet of the models that were trained with the chosen strength.

        Returns
        -------
        list of int
            One for each seed.
        """
        return [i for i, run in enumerate(self.fleet.runs) if run.strength == self.strength]


def tune(
    penalty: Penalty,
    data: TrainingSet | Mapping[int, TrainingSet],
    strengths: Sequence[float] = PAPER_STRENGTHS,
    seeds: Sequence[int] = (0,),
    options: FitOptions | None = None,
    *,
    preranks: PreRank | Sequence[PreRank] | None = None,
    tolerance: float = 0.1,
    parsimonious: bool = False,
    n_draws: int = 100,
    progress: Progress | None = None,
) -> Tuned:
    """Train all strengths and seeds as one fleet, and choose the strength on the validation rows.

    The validation PCE is exact (`projected_pit`), averaged over pre-ranks and their projections: a penalty's own value
    would not do, since only a PCE is the same quantity for all penalties. The score is the fair energy score, which is
    never negative in expectation. A model that diverged counts with its best weights; if it had no finite validation
    score before, it is left out.

    Parameters
    ----------
    penalty : Penalty
        What is added to the score.
    data : TrainingSet or dict of int to TrainingSet
        One set for all seeds, or one for each.
    strengths : sequence of float, default (0, 0.01, 0.1, 1, 5, 10)
        Candidates; strength 0 is added if it is missing.
    seeds : sequence of int, default (0,)
        Seeds of the runs of each strength.
    options : FitOptions, optional
        How models are trained.
    preranks : PreRank or sequence of PreRank, optional
        What the PCE is taken of: by default the pre-ranks of the penalty, or the paper's for a penalty without any.
    tolerance : float, default 0.1
        Relative loss of score that is accepted.
    parsimonious : bool, default False
        As in `choose_strength`.
    n_draws : int, default 100
        Draws of the energy score.
    progress : Progress, optional
        What is told of every epoch.

    Returns
    -------
    Tuned
        Strength, table and models.

    Raises
    ------
    ValueError
        If training diverged in its first epoch with strength 0.

    See Also
    --------
    choose_strength : the rule by itself
    """
    if 0.0 not in strengths:
        strengths = (0.0, *strengths)
    runs = [Run(seed, penalty, float(strength)) for strength in strengths for seed in seeds]
    sets = [data] if isinstance(data, TrainingSet) else list(data.values())
    judges = listed(preranks) if preranks is not None else preranks_in(penalty)
    judges = judges or paper_preranks(sets[0].y.shape[-1])
    fleet = fit(runs, data, options, progress)
    rows = []
    for place, run in enumerate(runs):
        if bool(fleet.diverged[place]) and not bool(torch.isfinite(fleet.best_score[place])):
            continue
        part = data if isinstance(data, TrainingSet) else data[run.seed]
        pce_value, score = _validation_record(judges, fleet, place, part, n_draws)
        rows.append({"strength": run.strength, "seed": run.seed, "pce": pce_value, "score": score})
    table = pd.DataFrame(rows, columns=["strength", "seed", "pce", "score"])
    if not (table["strength"] == 0.0).any():
        raise ValueError(
            "training diverged in its first epoch with strength 0, by which the others are judged; lower the learning rate, "
            "and look for extreme values in the data"
        )
    return Tuned(choose_strength(table, tolerance=tolerance, parsimonious=parsimonious), table, fleet)


def _validation_record(
    preranks: Sequence[PreRank], fleet: FittedFleet, place: int, part: TrainingSet, n_draws: int
) -> tuple[float, float]:
    """Exact validation PCE (mean over pre-ranks and projections) and energy score of one model."""
    laws = fleet.forecast(part.x_validation, [place])
    law = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0])
    y = part.y_validation
    errors = [float(pce(projected_pit(y, law, item, n_draws=n_draws)).mean()) for item in preranks]
    return sum(errors) / len(errors), float(energy_score(y, law.ensemble(n_draws)).mean())
