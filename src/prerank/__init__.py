"""Is a joint forecast calibrated, and if not, how? Calibration through pre-ranks."""

from prerank.calibration import *  # noqa: F403 - the public names of the layer, listed there
from prerank.calibration import __all__ as _calibration
from prerank.diagnosis import Check, check, check_pits
from prerank.forecast import Ensemble, GaussianMixture, as_ensemble

__version__ = "0.1.0"

__all__ = ["Check", "Ensemble", "GaussianMixture", "as_ensemble", "check", "check_pits", *_calibration]
