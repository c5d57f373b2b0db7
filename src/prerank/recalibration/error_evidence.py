"""Whether an ensemble needs a law of errors at all: its calibration and its score on cases that the law has not seen."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration import pce_test, projected_pit
from prerank.calibration.evidence import LEVEL
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.recalibration.affine import Affine
from prerank.recalibration.steps import HeldOut
from prerank.scores import energy_score

_CLEARLY = 2.0  # standard errors of a gain that needs no failed test
_CERTAIN = 0.01  # p-value of members that are wrong beyond doubt
_STRETCHED = 1.1
_REPLICATES = 199


class Evidence(NamedTuple):
    """The smallest adjusted p-value of the members' calibration, their energy score, the law's gain, and the verdict."""

    p_value: float | None
    score: float
    gain: float
    gain_error: float
    changed: bool


def evidence(ensemble: Ensemble, law: GaussianMixture, held_out: HeldOut) -> Evidence:
    """Compare members with the law of every case by a fit without its fold.

    Scores are fair energy scores, of the members and of 100 independent draws of the law. The law is taken where it clearly
    scores better; where the members fail a test of calibration and it scores no worse; and where they fail beyond doubt
    and as many draws of the law are nearer to calibration, since members that are wrong may score well.
    """
    if ensemble.n_members == 1:
        return Evidence(None, 0.0, 0.0, 0.0, True)  # a single member is no law
    plain = Ensemble(ensemble.members, ensemble.weights)
    before = energy_score(held_out.y, plain).double()
    after = energy_score(held_out.y, law, n_draws=100, seed=held_out.seed).double()
    gain, error = held_out.gain(before - after)
    p_value, distance = _calibration(plain, held_out)
    changed = gain > _CLEARLY * error or (p_value <= LEVEL and gain > -error)
    if not changed and p_value <= _CERTAIN:
        drawn = law.ensemble(ensemble.n_members, held_out.seed, "members of the law")
        changed = _calibration(drawn, held_out)[1] < distance
    return Evidence(p_value, held_out.gain(before)[0], gain, error, changed)


def moved_members(ensemble: Ensemble, law: GaussianMixture, held_out: HeldOut) -> Tensor | None:
    """Shift and scale (2, D) of the members, if that is all it takes: moved ones pass the tests and score as well as a law.

    Members know more of a case than a mean and a spread, and keep it so. Those that have to be stretched are not looked at:
    about their own mean they are no independent draws any more, and a fair score of them is too low.
    """
    if ensemble.n_members == 1 or bool((ensemble.members == ensemble.members[:, :1]).all(1).all(0).any()):
        return None
    step = Affine().fit(ensemble, held_out)
    if not step.changed or float(step.scale.max()) > _STRETCHED:
        return None
    assert isinstance(step.out_of_fold, Ensemble)
    found = evidence(step.out_of_fold, law, held_out)
    if found.changed or found.p_value is None or found.p_value <= LEVEL:
        return None
    return torch.stack([step.shift, step.scale])


def _calibration(ensemble: Ensemble, held_out: HeldOut) -> tuple[float, float]:
    """The smallest adjusted p-value of the pre-ranks, and the mean of their PCEs over what is expected."""
    if not held_out.preranks:
        return 1.0, 1.0
    pit = projected_pit(held_out.y, ensemble, list(held_out.preranks), seed=held_out.seed, exchangeable=True)
    weights = held_out.weights if bool((held_out.weights != 1).any()) else None
    test = pce_test(
        pit, n_replicates=_REPLICATES, seed=held_out.seed, blocks=held_out.folds.block, case_weights=weights
    )
    return float(test.adjusted_p_value.min()), float((test.statistic / test.expected_pce).mean())
