"""The largest and the smallest target, the distance between the two, and how many targets exceed a threshold."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prerank.forecasts import Forecast
from prerank.preranks.columns import by_columns
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of


@dataclass(frozen=True)
class Maximum(PreRank):
    r"""The largest target, $\rho(y) = \max_d y_d$: floods, peak loads, the hottest hour.

    Large means that some target is high. Sees how high the highest target gets, so bias and spread at the upper end, and
    dependence: independent targets have a higher maximum than dependent ones. Blind to everything below it. Targets need a
    common unit. It can be trained with.

    Parameters
    ----------
    name : str, default 'maximum'
        What results call it.

    See Also
    --------
    Minimum : the smallest
    Range : the distance between the two

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Maximum().given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[[6.]]])
    """

    name: str = "maximum"

    def given(self, view: View | Forecast) -> PointwiseProjection:
        return PointwiseProjection(lambda points: points.amax(-1, keepdim=True), ("maximum",))


@dataclass(frozen=True)
class Minimum(PreRank):
    r"""The smallest target, $\rho(y) = \min_d y_d$: droughts, the coldest hour, the weakest link.

    Large means that no target is low. Sees how low the lowest target gets, and dependence, as `Maximum` does at the other
    end. Blind to everything above it. Targets need a common unit. It can be trained with.

    Parameters
    ----------
    name : str, default 'minimum'
        What results call it.

    See Also
    --------
    Maximum : the largest

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Minimum().given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[[1.]]])
    """

    name: str = "minimum"

    def given(self, view: View | Forecast) -> PointwiseProjection:
        return PointwiseProjection(lambda points: points.amin(-1, keepdim=True), ("minimum",))


@dataclass(frozen=True)
class Range(PreRank):
    r"""The largest target minus the smallest, $\rho(y) = \max_d y_d - \min_d y_d$.

    Large means that the targets lie far apart. Sees what `Scale` sees, by the two outermost targets alone, so outliers more
    and the others not at all. Blind to a bias common to all targets and to their order. Targets need a common unit. It can
    be trained with.

    Parameters
    ----------
    name : str, default 'range'
        What results call it.

    See Also
    --------
    Scale : the variance over all targets

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Range().given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[[5.]]])
    """

    name: str = "range"

    def given(self, view: View | Forecast) -> PointwiseProjection:
        if view_of(view).n_targets == 1:
            raise ValueError("Range() is constant (zero) for D=1 target, so its ranks would be ties; use Marginal()")
        return PointwiseProjection(lambda points: (points.amax(-1) - points.amin(-1))[..., None], ("range",))


@dataclass(frozen=True)
class Exceedance(PreRank):
    r"""The share of targets above a threshold, $\rho(y) = \frac1D \sum_d 1\{y_d > t_d\}$.

    Also called the fraction of threshold exceedances (FTE). Large means that many targets exceed it. Sees whether an
    event, such as rain or frost, covers as many places or hours as forecast. Blind to how far beyond the threshold a
    target lies, and to where the event is. Takes D + 1 values, so it ties often, and has no gradient to train with.
    `check` brings the threshold into the units that it brings the targets into.

    Parameters
    ----------
    threshold : float or tuple of float, default 0.0
        In the unit of the targets; one for all of them, or one for each. A target at the threshold does not exceed it.
    name : str, default 'exceedance'
        What results call it.

    References
    ----------
    Allen, Ziegel and Ginsbourger (2024), Assessing the calibration of multivariate probabilistic forecasts, QJRMS.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Exceedance(2.0).given(Ensemble(torch.zeros(1, 10, 4)))(torch.tensor([[[1.0, 2.0, 6.0, 7.0]]]))
    tensor([[[0.5000]]])
    """

    threshold: float | tuple[float, ...] = 0.0
    name: str = "exceedance"
    trainable = False

    def in_units(self, divisor: Tensor) -> "Exceedance":
        """The same question about targets that are divided by numbers.

        Parameters
        ----------
        divisor : Tensor, shape (n_targets,)
            What each target is divided by.

        Returns
        -------
        Exceedance
            With the thresholds divided as well.
        """
        thresholds = torch.tensor(self.threshold, dtype=torch.float64, device=divisor.device).expand(len(divisor))
        return replace(self, threshold=tuple((thresholds.to(divisor) / divisor).tolist()))

    def given(self, view: View | Forecast) -> PointwiseProjection:
        n_targets = view_of(view).n_targets
        thresholds = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,) * n_targets
        if len(thresholds) != n_targets:
            raise ValueError(
                f"{self.name}: {len(thresholds)} thresholds for {n_targets} targets; give one, or {n_targets}"
            )
        if not all(abs(value) < float("inf") for value in thresholds):
            raise ValueError(f"{self.name}: threshold={self.threshold}; a threshold is a finite number")

        def share(columns: Tensor) -> Tensor:
            above = torch.zeros_like(columns[0])
            for column, threshold in zip(columns, thresholds, strict=True):
                above += column > threshold
            return above / n_targets

        return PointwiseProjection(lambda points: by_columns(share, points, n_targets)[..., None], ("share above",))
