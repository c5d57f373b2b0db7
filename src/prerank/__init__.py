"""Is a joint forecast calibrated, and if not, how? Calibration through pre-ranks.

The names below are imported from their packages when they are first used, so that `import prerank` and the command line
start at once and nobody pays for plotting who does not plot. More is public in the packages themselves.
"""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank.calibration import (
        ProjectedPIT,
        corrected_pce,
        pce,
        pce_interval,
        pce_null,
        pce_test,
        projected_pit,
        reliability_band,
        reliability_curve,
    )
    from prerank.diagnosis import Check, check, check_pits
    from prerank.forecasts import Ensemble, GaussianMixture
    from prerank.inputs import as_ensemble
    from prerank.io import from_long
    from prerank.preranks import (
        HDR,
        PCA,
        Contrast,
        Copula,
        Custom,
        Dependency,
        Location,
        Marginal,
        PreRank,
        Scale,
        paper_preranks,
    )
    from prerank.recalibration import HighestDensityRegions, Recalibrator
    from prerank.regression import CalibratedRegressorCV, MixtureRegressor
    from prerank.scores import crps, energy_score, nll, variogram_score
    from prerank.training import PreRankPenalty

__version__ = "0.1.0"

_HOMES = {
    "CalibratedRegressorCV": "regression",
    "Check": "diagnosis",
    "Contrast": "preranks",
    "Copula": "preranks",
    "Custom": "preranks",
    "Dependency": "preranks",
    "Ensemble": "forecasts",
    "GaussianMixture": "forecasts",
    "HDR": "preranks",
    "HighestDensityRegions": "recalibration",
    "Location": "preranks",
    "Marginal": "preranks",
    "MixtureRegressor": "regression",
    "PCA": "preranks",
    "PreRank": "preranks",
    "PreRankPenalty": "training",
    "ProjectedPIT": "calibration",
    "Recalibrator": "recalibration",
    "Scale": "preranks",
    "as_ensemble": "inputs",
    "check": "diagnosis",
    "check_pits": "diagnosis",
    "corrected_pce": "calibration",
    "crps": "scores",
    "energy_score": "scores",
    "from_long": "io",
    "nll": "scores",
    "paper_preranks": "preranks",
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
