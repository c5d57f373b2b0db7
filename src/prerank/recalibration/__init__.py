"""From a joint forecast to one that is calibrated: transport, then a tilt along all pre-ranks, learnt on held-out cases."""

from prerank.recalibration.affine import Affine
from prerank.recalibration.dressing import Dressing
from prerank.recalibration.moved import Moved
from prerank.recalibration.recalibrator import PITDensities, Recalibrator
from prerank.recalibration.steps import Fitted, HeldOut, Step
from prerank.recalibration.tilt import Tilt
from prerank.recalibration.tilted import Tilted

__all__ = ["Affine", "Dressing", "Fitted", "HeldOut", "Moved", "PITDensities", "Recalibrator", "Step", "Tilt", "Tilted"]
