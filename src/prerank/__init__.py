"""Is a joint forecast calibrated, and if not, how? Calibration through pre-ranks.

The names below are imported from their packages when they are first used, so that `import prerank` and the command line
start at once and nobody pays for plotting who does not plot. More is public in the packages themselves.
"""

from typing import TYPE_CHECKING

from prerank.lazy import public_names

if TYPE_CHECKING:
    from prerank.calibration import (
        HDR,
        PCA,
        Contrast,
        Copula,
        Custom,
        Dependency,
        Location,
        Marginal,
        PreRank,
        ProjectedPIT,
        Scale,
        corrected_pce,
        paper_preranks,
        pce,
        pce_interval,
        pce_null,
        pce_test,
        projected_pit,
        reliability_band,
        reliability_curve,
    )
    from prerank.data import from_long
    from prerank.diagnosis import Check, check, check_pits
    from prerank.estimator import MixtureRegressor
    from prerank.forecast import Ensemble, GaussianMixture, as_ensemble
    from prerank.recalibration import Recalibrator
    from prerank.scores import crps, energy_score, nll, variogram_score
    from prerank.training import PreRankPenalty

__version__ = "0.1.0"

_HOMES = {
    "HDR": "calibration",
    "PCA": "calibration",
    "Check": "diagnosis",
    "Contrast": "calibration",
    "Copula": "calibration",
    "Custom": "calibration",
    "Dependency": "calibration",
    "Ensemble": "forecast",
    "GaussianMixture": "forecast",
    "Location": "calibration",
    "Marginal": "calibration",
    "MixtureRegressor": "estimator",
    "PreRank": "calibration",
    "PreRankPenalty": "training",
    "ProjectedPIT": "calibration",
    "Recalibrator": "recalibration",
    "Scale": "calibration",
    "as_ensemble": "forecast",
    "check": "diagnosis",
    "check_pits": "diagnosis",
    "corrected_pce": "calibration",
    "crps": "scores",
    "energy_score": "scores",
    "from_long": "data",
    "nll": "scores",
    "paper_preranks": "calibration",
    "pce": "calibration",
    "pce_interval": "calibration",
    "pce_null": "calibration",
    "pce_test": "calibration",
    "projected_pit": "calibration",
    "reliability_band": "calibration",
    "reliability_curve": "calibration",
    "variogram_score": "scores",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = public_names("prerank", _HOMES)
