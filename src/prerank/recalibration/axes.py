"""The step along principal axes: how far a forecast spreads in the directions in which it varies most and least."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration import PCA
from prerank.forecast import Forecast, GaussianMixture, described
from prerank.recalibration.affine import Marginals, stretched
from prerank.recalibration.steps import HeldOut, as_mixture


@dataclass(frozen=True)
class PrincipalAxes:
    r"""Stretch a forecast about its mean along the principal axes of its own covariance.

    The k-th axis of every case is stretched by the same factor, learnt by the likelihood of the scores along the axes, with a
    shift in units of the usual spread, and shrunk as `Affine` does. A network that has learnt its training rows too
    well is too sure of the directions in which it varies least; no stretch of single targets can mend that.
    For a `GaussianMixture`, which stays one.
    """

    ridges: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    by_crps: bool = False

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedAxes":
        mixture = _mixture(forecast)
        axes = _axes(mixture)
        loc, scale = mixture.along(axes.to(mixture.loc))
        centre = along(mixture.mean.double(), axes)
        law = Marginals(mixture.log_weights.double(), loc.double(), scale.double(), centre, None)
        return FittedAxes(*stretched(law, along(held_out.y.double(), axes), held_out, self.ridges, self.by_crps))


def along(values: Tensor, axes: Tensor) -> Tensor:
    """Scores of values (N, D) along axes (N, D, D) in columns."""
    return (values[..., None, :] @ axes)[..., 0, :]


def _mixture(forecast: Forecast) -> GaussianMixture:
    mixture = as_mixture(forecast)
    if not isinstance(mixture, GaussianMixture):
        raise TypeError(
            f"PrincipalAxes() stretches a GaussianMixture, and the forecast is {described(forecast)}; use Affine() "
            "instead, or Dressing() before it for an Ensemble"
        )
    return mixture


def _axes(mixture: GaussianMixture) -> Tensor:
    return PCA().given(mixture).directions.double()


@dataclass(frozen=True, eq=False)
class FittedAxes:
    """Shift and scale (D,) along the axes, the ridge (None: no change), and the gain per case on held-out folds in nats."""

    shift: Tensor
    scale: Tensor
    ridge: float | None
    gain: float
    gain_error: float

    @property
    def changed(self) -> bool:
        return self.ridge is not None

    def transform(self, forecast: Forecast) -> Forecast:
        if not self.changed:
            return forecast
        mixture = _mixture(forecast)
        axes, like = _axes(mixture), mixture.loc
        shift, scale = self.shift.to(axes), self.scale.to(axes)
        map_ = (axes * scale[..., None, :]) @ axes.mT
        mean = mixture.mean.double()[..., None, :]
        loc = mean + (axes @ shift)[..., None, :] + (mixture.loc.double() - mean) @ map_
        # a square root of the covariance, made triangular: no product of matrices that could lose its positive sign
        root = torch.linalg.qr((map_[..., None, :, :] @ mixture.scale_tril.double()).mT, mode="r").R.mT
        tril = root * root.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
        return GaussianMixture(mixture.logits, loc.to(like), tril.to(like))

    def summary(self) -> str:
        if not self.changed:
            return "principal axes: nothing was changed; no stretch is supported by the held-out cases"
        scales = ", ".join(f"{value:.3g}" for value in self.scale.tolist())
        return (
            f"principal axes: spreads multiplied by {scales}, the widest axis first; "
            f"gain {self.gain:.4f} ± {self.gain_error:.4f} nats per case, single axes added up"
        )
