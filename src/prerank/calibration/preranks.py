r"""The pre-ranks of the paper's Table 1 and Algorithm 2, and a few simple ones, as frozen values.

A pre-rank is given a forecast's law and becomes a `Projection`: K scalars per point. The law is a distribution,
independent draws from one, or, for a bare ensemble, its members pooled with the observation; never the members that
are ranked, because a member that shaped its own projection is not exchangeable with the observation any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.calibration.jointcdf import smooth_log_joint_cdf
from prerank.calibration.pooled import bandwidths, joint_cdf, log_kernel_density
from prerank.calibration.pooling import spread_matrix
from prerank.calibration.projection import LinearProjection, PointwiseProjection, Projection
from prerank.calibration.rounding import power_of_two_above
from prerank.forecast import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.forecast.arrays import described
from prerank.kernels import EIGENVECTORS, SPREAD, kernel_for


class PreRank(Protocol):
    """Anything with a name that can be given a forecast's law.

    `temperature` asks for a smooth projection. `case_ids` (N,) name the cases: what a pre-rank draws for a case depends
    on the seed and that name, so that chunks of cases give the numbers of the whole.
    """

    @property
    def name(self) -> str: ...

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> Projection: ...


def _n_targets(law: Forecast) -> int:
    return law.n_targets if isinstance(law, Ensemble | GaussianMixture) else law.event_shape[-1]


def _like(law: Forecast) -> Tensor:
    """A tensor with the law's dtype and device; a projection of another distribution follows its points instead."""
    if isinstance(law, Ensemble):
        return law.members
    return law.loc if isinstance(law, GaussianMixture) else torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class Marginal:
    r"""Each target by itself, $\rho_d(y) = y_d$: D projections.

    Sees bias, spread and shape of every target. Blind to all dependence between targets: independent forecasts of
    dependent targets look perfect.
    """

    name: str = "marginal"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> LinearProjection:
        like = _like(law)
        targets = _n_targets(law)
        return LinearProjection(
            torch.eye(targets, dtype=like.dtype, device=like.device)[None],
            tuple(f"y{d + 1}" for d in range(targets)),
            identity=True,
        )


@dataclass(frozen=True)
class Location:
    r"""The mean over targets, $\rho(y) = \frac1D \sum_d y_d$.

    Sees a common bias and the variance of the sum, so also a common sign of wrong correlation. Blind to errors that
    cancel in the mean, such as biases of opposite sign.
    """

    name: str = "location"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> LinearProjection:
        like, targets = _like(law), _n_targets(law)
        return LinearProjection(
            torch.full((1, targets, 1), 1.0 / targets, dtype=like.dtype, device=like.device), ("mean",)
        )


@dataclass(frozen=True)
class Scale:
    r"""The variance over targets, $\rho(y) = \frac1D \sum_d (y_d - \bar y)^2$.

    Sees how far the targets lie apart: wrong variances, and wrong correlation through the spread. Blind to a bias
    common to all targets and to the order of the targets.
    """

    name: str = "scale"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        if _n_targets(law) == 1:
            raise ValueError("Scale() is constant (zero) for D=1 target, so its ranks would be ties; use Marginal()")
        return PointwiseProjection(_variance, ("variance",))


@dataclass(frozen=True)
class Dependency:
    r"""Minus the variogram at a lag over the variance, $\rho(y) = -\gamma_y(h) / s_y^2$.

    Sees how alike neighbouring targets are, whatever their level and spread: wrong correlation, wrong order. Blind to
    common bias and common scale. A vector whose entries are all equal counts as perfectly dependent (T = 0).
    """

    lag: int = 1
    name: str = "dependency"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        targets = _n_targets(law)
        if self.lag < 1:
            raise ValueError(f"Dependency(lag={self.lag}): the lag is a distance between targets, 1 or more")
        if targets <= 2:
            raise ValueError(
                f"Dependency(lag={self.lag}) is constant for D={targets} targets, "
                "so its ranks would be rounding noise; "
                + ("use Scale() or Contrast()" if targets == 2 else "use Marginal()")
            )
        if self.lag >= targets:
            raise ValueError(
                f"Dependency(lag={self.lag}) needs more than {self.lag} targets, got D={targets}; "
                f"use a lag of at most {targets - 1}"
            )
        return PointwiseProjection(self._ratio, (f"variogram lag {self.lag}",))

    def _ratio(self, points: Tensor) -> Tensor:
        if fused := kernel_for(SPREAD, points):
            return fused(points, self.lag)
        difference = points[..., self.lag :] - points[..., : -self.lag]
        variogram = difference.square().sum(-1, keepdim=True) / (2 * difference.shape[-1])
        variance = _variance(points)
        constant = variance == 0
        return torch.where(constant, 0.0, -variogram / torch.where(constant, 1.0, variance))


@dataclass(frozen=True)
class PCA:
    r"""Principal components of the forecast, $\rho_k(x, y) = v_k(x)^\top y$ (Algorithm 2): up to D projections.

    Sees errors along the directions in which the forecast itself varies most and least, so wrong correlation as well
    as wrong variance and bias. Blind to dependence that second moments do not show. Keeps at most D components, M for
    M members pooled with the observation, R - 1 for R reference draws. Signs are fixed (the largest entry of a
    direction is positive); `attached=True` lets gradients reach the directions.
    """

    n_components: int | None = None
    attached: bool = False
    name: str = "PCA"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> LinearProjection:
        if self.n_components is not None and self.n_components < 1:
            raise ValueError(f"PCA(n_components={self.n_components}): at least one component is needed")
        if not isinstance(law, Ensemble) and not hasattr(type(law), "covariance_matrix"):
            law = equally_weighted_draws(law, 1000, seed, "reference for PCA", case_ids)
        targets = _n_targets(law)
        at_most = min(targets, law.n_members - 1) if isinstance(law, Ensemble) else targets
        if at_most < 1:
            raise ValueError("PCA() needs at least two points per case to find a direction, got one; use Marginal()")
        kept = min(self.n_components or targets, at_most)
        with torch.set_grad_enabled(self.attached and torch.is_grad_enabled()):
            if isinstance(law, Ensemble) and temperature is None and not law.members.requires_grad:
                covariance = spread_matrix(law.members, law.weights)
            else:
                covariance = law.covariance_matrix  # type: ignore[union-attr]
            directions = principal_directions(covariance)[..., :kept]
        note = "" if kept == targets else f"{kept} of {targets} components"
        return LinearProjection(directions, tuple(f"component {k + 1}" for k in range(kept)), note)


@dataclass(frozen=True)
class HDR:
    r"""The forecast's log density, $\rho(x, y) = \log \hat f(y \mid x)$ (same ranks as the density itself).

    Sees outcomes that are too often improbable (over-confidence) or too rarely so, in any direction. Blind to which
    direction: errors that exchange equally probable outcomes stay hidden. An ensemble without a reference density is
    given the kernel density of its members pooled with the observation (Scott's rule per target).
    """

    name: str = "HDR"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        if isinstance(law, Ensemble):
            centres, weights = law.members, law.weights
            note = f"kernel density of {law.n_members} points, Scott's rule per target"
            return PointwiseProjection(
                lambda points: log_kernel_density(points, centres, weights)[..., None], ("log density",), note
            )
        note = f"log_prob of {type(law).__name__}"
        return PointwiseProjection(lambda points: log_density(law, points)[..., None], ("log density",), note)


@dataclass(frozen=True)
class Copula:
    r"""The forecast's joint CDF, $\rho(x, y) = \hat F(y \mid x)$.

    Sees dependence and joint bias at once: how often all targets are low together. Sees less in high dimensions, where
    almost no point lies below another in every target and ranks tie. The CDF is that of the members pooled
    with the observation, or of `n_reference` independent draws of a distribution.
    """

    n_reference: int = 1000
    name: str = "copula"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        if not isinstance(law, Ensemble):
            law = equally_weighted_draws(law, self.n_reference, seed, "reference for the copula", case_ids)
        note = f"joint CDF of {law.n_members} points"
        centres, weights, probabilities = law.members, law.weights, law.probabilities
        if temperature is None:
            return PointwiseProjection(
                lambda points: joint_cdf(points, centres, weights)[..., None], ("joint CDF",), note
            )
        bandwidth = bandwidths(centres.detach(), None if weights is None else weights.detach())
        return PointwiseProjection(
            lambda points: smooth_log_joint_cdf(points, centres, probabilities, bandwidth)[..., None],
            ("log joint CDF",),
            f"smooth {note}",
        )


@dataclass(frozen=True)
class Contrast:
    r"""The signed difference of two targets, $\rho(y) = y_i - y_j$: the pre-rank for dependence in two dimensions.

    Sees a wrong correlation of the pair (too wide if correlation is underestimated) and a bias of one against the
    other. Blind to anything the two have in common. Linear, so closed form for mixtures.
    """

    i: int = 0
    j: int = 1
    name: str = "contrast"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> LinearProjection:
        _require_pair(self, self.i, self.j, _n_targets(law))
        like = _like(law)
        direction = torch.zeros(1, _n_targets(law), 1, dtype=like.dtype, device=like.device)
        direction[0, self.i], direction[0, self.j] = 1.0, -1.0
        return LinearProjection(direction, (f"y{self.i + 1} - y{self.j + 1}",))


@dataclass(frozen=True)
class SquaredDifference:
    r"""$\rho(y) = (y_i - y_j)^2$: what the paper's tables call dependency when D = 2.

    For D = 2 it is four times Scale and ranks identically. It exists to reproduce those tables; `Contrast` keeps the
    sign and sees more.
    """

    i: int = 0
    j: int = 1
    name: str = "squared difference"

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        _require_pair(self, self.i, self.j, _n_targets(law))
        return PointwiseProjection(
            lambda points: (points[..., self.i, None] - points[..., self.j, None]).square(),
            (f"(y{self.i + 1} - y{self.j + 1})²",),
        )


@dataclass(frozen=True)
class Custom:
    """Any function of a point: (..., D) -> (...) or (..., K). It sees what you make it see.

    The function is given torch tensors; one that can only work with NumPy arrays is given those, and cannot be trained
    with. It must treat every point alike, whatever stands beside it.

    >>> maximum = Custom(lambda y: y.amax(-1), name="maximum")
    >>> maximum.given(Ensemble(torch.zeros(4, 10, 3)))(torch.rand(4, 11, 3)).shape
    torch.Size([4, 11, 1])
    >>> import numpy as np
    >>> Custom(lambda y: np.median(y, axis=-1)).given(Ensemble(torch.zeros(4, 10, 3)))(torch.ones(4, 11, 3)).unique()
    tensor([1.])
    """

    function: Callable[[Any], Any]
    name: str = "custom"

    def __post_init__(self) -> None:
        if hasattr(self.function, "given"):
            raise TypeError(f"Custom({self.function!r}): that is a pre-rank already; pass it as it is")
        if not callable(self.function):
            raise TypeError(
                f"Custom takes a function of a point, (..., D) -> (...), not {described(self.function)}; "
                "such as Custom(lambda y: y.amax(-1))"
            )
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"Custom(name={self.name!r}): the name in the table is a text, such as name='maximum'")

    def given(
        self, law: Forecast, seed: int = 0, temperature: float | None = None, case_ids: Tensor | None = None
    ) -> PointwiseProjection:
        like = _like(law)
        point = torch.zeros(1, 1, _n_targets(law), dtype=like.dtype, device=like.device)
        failed = []
        for by_numpy in (False, True):
            try:
                values = self._values(point, by_numpy)
                break
            except Exception as error:  # whatever a function written for NumPy raises when it meets a tensor
                failed.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no text'}")
        else:
            raise TypeError(
                f"{self.name}: the function takes neither a tensor ({failed[0]}) nor a NumPy array ({failed[1]}); "
                "it must map (..., D) to (...) or (..., K)"
            )
        width = self._per_point(values, point).shape[-1]
        names = (self.name,) if width == 1 else tuple(f"{self.name} {k + 1}" for k in range(width))
        return PointwiseProjection(lambda points: self._per_point(self._values(points, by_numpy), points), names)

    def _values(self, points: Tensor, by_numpy: bool) -> Tensor:
        if by_numpy and points.requires_grad:
            raise TypeError(
                f"{self.name}: the function works on NumPy arrays, which carry no gradient; "
                "write it with torch to train with it"
            )
        values = self.function(points.detach().cpu().numpy() if by_numpy else points)
        if not isinstance(values, Tensor | np.ndarray | np.generic):
            raise TypeError(f"it gave {described(values)} instead of an array")
        values = torch.as_tensor(values)
        # counts and truth values are ranked like numbers
        return values.to(points.device) if values.is_floating_point() else values.to(points)

    def _per_point(self, values: Tensor, points: Tensor) -> Tensor:
        if values.shape == points.shape[:-1]:
            return values[..., None]
        if values.shape[:-1] != points.shape[:-1]:
            raise ValueError(
                f"{self.name}: the function turned points of shape {tuple(points.shape)} into {tuple(values.shape)}; "
                f"it must map (..., D) to (...) or (..., K)"
            )
        return values


def _require_pair(prerank: object, i: int, j: int, targets: int) -> None:
    if i == j or not (0 <= i < targets and 0 <= j < targets):
        raise ValueError(f"{prerank}: i and j are two different targets between 0 and {targets - 1} for D={targets}")


def _variance(points: Tensor) -> Tensor:
    """Variance over targets, divisor D, exactly zero where all targets are equal."""
    if fused := kernel_for(SPREAD, points):
        return fused(points, 0)
    # Centred on the first target first, so that a constant vector has variance zero and not rounding noise.
    shifted = points - points[..., :1]
    return (shifted - shifted.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)


def principal_directions(covariance: Tensor) -> Tensor:
    """Eigenvectors in columns, largest eigenvalue first, signs fixed: (..., D, D) -> (..., D, D).

    An eigenvector's sign is arbitrary and flips the PIT, so its largest entry is made positive: the first of those that
    are as large up to rounding, or rounding would choose the sign of (1, -1) afresh for every case.
    """
    if fused := kernel_for(EIGENVECTORS, covariance, fixed=(covariance,), targets=covariance.shape[-1]):
        vectors = fused(covariance).flip(-1)
    else:
        wide = covariance.double()
        unit = power_of_two_above(wide.detach().abs().amax((-2, -1), keepdim=True))
        if not unit.isfinite().all():
            bad = int((~unit.isfinite()).sum())
            raise ValueError(
                f"the covariance is not finite in {bad} of {unit.numel()} cases, so it has no principal directions; "
                "leave PCA() out, or take out values that are too large to be squared"
            )
        # in a unit that neither overflows nor vanishes, and in parts: the GPU's library fails on a hundred thousand
        parts = (wide / unit).reshape(-1, *covariance.shape[-2:]).split(1 << 14)
        vectors = torch.cat([torch.linalg.eigh(part).eigenvectors for part in parts])
        vectors = vectors.reshape(covariance.shape).flip(-1).to(covariance.dtype)
    size = vectors.abs()
    largest = (size >= (1 - 1e-5) * size.amax(-2, keepdim=True)).to(torch.uint8).argmax(-2, keepdim=True)
    return vectors * torch.where(vectors.gather(-2, largest) < 0, -1.0, 1.0)


def log_density(law: Distribution, points: Tensor) -> Tensor:
    """Log density of points (..., N, P, D) under any distribution with batch shape (..., N)."""
    if isinstance(law, MultivariateNormal):  # torch's own triangular solve rounds equal points by their position
        one = law.loc.new_zeros(*law.batch_shape, 1)
        law = GaussianMixture(one, law.loc[..., None, :], law.scale_tril[..., None, :, :])
    if isinstance(law, GaussianMixture):
        return law.log_density(points)
    try:
        return law.log_prob(points.movedim(-2, 0)).movedim(0, -1)
    except NotImplementedError:
        raise TypeError(
            f"HDR() needs log_prob, which {type(law).__name__} does not have; pass its draws as an Ensemble instead"
        ) from None


def paper_preranks(n_targets: int) -> tuple[PreRank, ...]:
    """The pre-ranks of the paper that are defined for this many targets, in the order of its tables.

    >>> [prerank.name for prerank in paper_preranks(2)]
    ['marginal', 'location', 'scale', 'contrast', 'PCA', 'HDR', 'copula']
    """
    if n_targets == 1:
        return (Marginal(), HDR())
    dependence: PreRank = Dependency() if n_targets > 2 else Contrast()
    return (Marginal(), Location(), Scale(), dependence, PCA(), HDR(), Copula())
