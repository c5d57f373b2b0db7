"""Targets that are modelled on another scale: logarithms of incomes, shares of their maximum, any monotone map."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import AffineTransform, ComposeTransform, Distribution, ExpTransform, Transform, constraints
from torch.distributions.transforms import identity_transform

from prerank._parameters import require_whole
from prerank.arrays.conversion import described
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, case_by_case, equally_weighted_draws, select_cases
from prerank.regression.predictions import predict_distribution
from prerank.regression.regressor import MixtureRegressor
from prerank.regression.rows import require_targets, table_of, targets_of
from prerank.regression.scorers import LogLikelihood

_FOR_THE_MEAN = 1000  # draws, where a mean has no closed form


class Transformed(Distribution):
    """Distribution of targets $t_d(Z_d)$ with Z from another and a monotone transform for each target.

    Parameters
    ----------
    base : torch.distributions.Distribution
        The distribution of Z, batch shape (n_cases,), event shape (n_targets,).
    transforms : sequence of torch.distributions.Transform
        One for each target.

    See Also
    --------
    TransformedTargets : the estimator that forecasts it
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(self, base: Distribution, transforms: Sequence[Transform]) -> None:
        self.base, self.transforms = base, tuple(transforms)
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return f"Transformed({self.base!r})"

    @property
    def support(self) -> Any:
        """The ranges of the transforms."""
        return constraints.stack([each.codomain for each in self.transforms], -1)

    def _forth(self, values: Tensor) -> Tensor:
        return torch.stack([each(part) for each, part in zip(self.transforms, values.unbind(-1), strict=True)], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density in the units of the targets.

        Parameters
        ----------
        value : Tensor, shape (..., n_cases, n_targets)
            Points.

        Returns
        -------
        Tensor, shape (..., n_cases)
            Log densities; minus infinity outside the range of a transform.
        """
        inside = torch.stack(
            [each.codomain.check(part) for each, part in zip(self.transforms, value.unbind(-1), strict=True)], -1
        ).all(-1)
        anywhere = self._forth(torch.zeros_like(value))
        safe = torch.where(inside[..., None], value, anywhere)
        back = [each.inv(part) for each, part in zip(self.transforms, safe.unbind(-1), strict=True)]
        slopes = [
            each.log_abs_det_jacobian(z, part)
            for each, z, part in zip(self.transforms, back, safe.unbind(-1), strict=True)
        ]
        found = self.base.log_prob(torch.stack(back, -1)) - torch.stack(slopes, -1).sum(-1)
        return torch.where(inside, found, -torch.inf)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """The base's equally weighted draws, transformed.

        Parameters
        ----------
        n_draws : int
            Members per case.
        seed : int, default 0
            Seed of the draws.
        stream : str, default 'members'
            What the draws are for; another name gives independent draws.
        case_ids : Tensor, shape (n_cases,), optional
            Identifiers of the cases; positions by default.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets).
        """
        return Ensemble(self._forth(equally_weighted_draws(self.base, n_draws, seed, stream, case_ids).members))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Equally weighted draws from torch's global generator, as torch has it.

        Parameters
        ----------
        sample_shape : torch.Size or tuple of int, default ()
            Axes of draws, which come first.

        Returns
        -------
        Tensor, shape (*sample_shape, n_cases, n_targets)
            Draws, without gradient.
        """
        return self._forth(self.base.sample(torch.Size(sample_shape)))

    @property
    def mean(self) -> Tensor:
        """Mean (N, D): exact for logarithms and affine transforms of a Gaussian mixture, of 1,000 keyed draws otherwise."""
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """Variance of each target, (N, D), as exact as the mean."""
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        drawn = self.ensemble(_FOR_THE_MEAN, stream="moments").members
        mean, variance = drawn.mean(-2), drawn.var(-2)
        if not isinstance(self.base, GaussianMixture):
            return mean, variance
        law = self.base
        spread = law.scale_tril.square().sum(-1)
        for d, each in enumerate(self.transforms):
            if isinstance(each, ExpTransform):
                first = (law.weights * (law.loc[..., d] + spread[..., d] / 2).exp()).sum(-1)
                second = (law.weights * (2 * law.loc[..., d] + 2 * spread[..., d]).exp()).sum(-1)
            elif (pair := _affine(each)) is not None:
                first = pair[0] + pair[1] * law.mean[..., d]
                second = pair[1] ** 2 * law.variance[..., d] + first.square()
            else:
                continue
            mean[..., d], variance[..., d] = first, second - first.square()
        return mean, variance

    def select(self, cases: Tensor | slice) -> "Transformed":
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        Transformed
            The forecast of these cases.
        """
        return Transformed(select_cases(self.base, cases), self.transforms)

    def case_by_case(self) -> "Transformed":
        """The same forecast, with draws of a case that are independent of other cases where the base can be cut into
        cases.

        Returns
        -------
        Transformed
            The forecast.
        """
        return Transformed(case_by_case(self.base), self.transforms)


class TransformedTargets(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Fit an estimator to transformed targets; its forecasts come back in the units of y, densities and all.

    An affine transform leaves a `GaussianMixture` one; otherwise the forecast is a `Transformed`. Values of y outside
    the range of a transform are refused.

    Parameters
    ----------
    estimator : estimator, optional
        What is fitted to the transformed targets; `MixtureRegressor()` by default.
    transforms : Transform, sequence of Transform or None, optional
        Torch transforms from the scale that is modelled to the units of y, one for all targets or one for each, None
        for those that stay as they are: `ExpTransform()` for a positive target that is modelled by its logarithm,
        `AffineTransform(loc, scale)` for other units, any other that is monotone and acts on numbers.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    transforms_ : list of Transform
        One for each target.
    target_names_ : list of str or None
        Names of the targets, if y was a frame.

    Examples
    --------
    >>> from prerank.datasets import Bimodal
    >>> table = Bimodal().table(200)
    >>> incomes = np.exp(table.y)
    >>> network = MixtureRegressor(n_components=2, hidden=(8,), learning_rate=0.1, patience=2, random_state=0)
    >>> model = TransformedTargets(network, ExpTransform()).fit(table.x, incomes)
    >>> bool((model.sample(table.x[:5]) > 0).all())
    True
    """

    def __init__(self, estimator: Any = None, transforms: Transform | Sequence[Transform | None] | None = None) -> None:
        self.estimator = estimator
        self.transforms = transforms

    def fit(self, X: Any, y: Any, **parameters: Any) -> Self:
        """Fit the estimator to the transformed targets.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets, in their own units.
        **parameters : object
            Passed on to the estimator's `fit`.

        Returns
        -------
        TransformedTargets
            The fitted estimator itself.
        """
        require_targets(self, y)
        X = table_of(self, X, reset=True)
        columns, _, one_axis = targets_of(self, y, X)
        columns = columns.astype(np.float64)
        self.transforms_ = _listed(self.transforms, columns.shape[1])
        self.target_names_ = list(y.columns) if isinstance(y, pd.DataFrame) else None
        back = np.column_stack([_inverse(columns[:, d], each, d) for d, each in enumerate(self.transforms_)])
        self.estimator_ = clone(MixtureRegressor() if self.estimator is None else self.estimator)
        self.estimator_.fit(X, back[:, 0] if one_axis else back, **parameters)
        self._one_axis = one_axis
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict_distribution(self, X: Any) -> Forecast:
        """The joint forecast in the units of y.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        Ensemble or Distribution
            Batch shape (n_rows,), event shape (n_targets,).
        """
        check_is_fitted(self)
        return transformed(predict_distribution(self.estimator_, X), self.transforms_)

    def predict(self, X: Any) -> Any:
        """Mean of the forecast.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.

        Returns
        -------
        ndarray or DataFrame, shape (n_rows, n_targets), or (n_rows,) if y had one axis
            A frame if y was one.
        """
        mean = self.predict_distribution(X).mean.cpu().numpy()
        if self.target_names_ is not None:
            return pd.DataFrame(mean, index=getattr(X, "index", None), columns=self.target_names_)
        return mean[:, 0] if self._one_axis else mean

    def sample(self, X: Any, n_draws: int = 100, seed: int = 0) -> np.ndarray:
        """Equally weighted draws in the units of y.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        n_draws : int, default 100
            Members per row; unused for an ensemble, whose members are its draws.
        seed : int, default 0
            Seed of the draws.

        Returns
        -------
        ndarray, shape (n_rows, n_draws, n_targets)
            Members.
        """
        forecast = self.predict_distribution(X)
        return equally_weighted_draws(forecast, require_whole(n_draws, "n_draws"), seed).members.cpu().numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood, in the units of y: larger is better. It is not the R² of other regressors.

        Where the estimator spreads discrete targets over their cells, it is that of the cells.

        Parameters
        ----------
        X : array_like, shape (n_rows, n_features)
            Features.
        y : array_like, shape (n_rows, n_targets) or (n_rows,)
            Targets.
        sample_weight : array_like, shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            The mean.
        """
        return LogLikelihood()(self, X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def transformed(forecast: Forecast, transforms: Sequence[Transform]) -> Forecast:
    """The forecast of transformed targets: a `GaussianMixture` stays one where all transforms are affine."""
    if isinstance(forecast, Ensemble):
        parts = [each(part) for each, part in zip(transforms, forecast.members.unbind(-1), strict=True)]
        return Ensemble(torch.stack(parts, -1), forecast.weights)
    affine = [_affine(each) for each in transforms]
    if isinstance(forecast, GaussianMixture) and None not in affine:
        loc, scale = (forecast.loc.new_tensor([pair[k] for pair in affine if pair is not None]) for k in (0, 1))
        if bool((scale > 0).all()):  # a factor keeps a positive diagonal
            return GaussianMixture(forecast.logits, loc + scale * forecast.loc, scale[:, None] * forecast.scale_tril)
    return Transformed(forecast, transforms)


def _affine(transform: Transform) -> tuple[float, float] | None:
    if isinstance(transform, ComposeTransform) and not transform.parts:
        return 0.0, 1.0
    if isinstance(transform, AffineTransform):
        return float(transform.loc), float(transform.scale)
    return None


def _listed(transforms: Any, n_targets: int) -> list[Transform]:
    """One transform for each target, each acting on single numbers and invertible."""
    several = isinstance(transforms, Sequence)
    listed = list(transforms) if several else [transforms] * n_targets
    if len(listed) != n_targets:
        raise ValueError(f"{len(listed)} transforms for {n_targets} targets; give one for all, or one for each")
    found: list[Transform] = []
    for each in listed:
        if each is None:
            found.append(identity_transform)
            continue
        if not isinstance(each, Transform):
            raise TypeError(f"transforms: {described(each)} is no torch transform; pass ExpTransform(), say")
        if not each.bijective or each.domain.event_dim or each.codomain.event_dim:
            raise ValueError(f"{type(each).__name__} is no monotone map of single numbers; pass ExpTransform(), say")
        found.append(each)
    return found


def _inverse(values: np.ndarray, transform: Transform, d: int) -> np.ndarray:
    column = torch.from_numpy(np.array(values))
    outside = ~(transform.codomain.check(column) & column.isfinite())
    back = transform.inv(torch.where(outside, 1.0, column)) if bool(outside.any()) else transform.inv(column)
    bad = int((outside | ~back.isfinite()).sum())
    if bad:
        raise ValueError(
            f"{bad} of {len(values)} values of target {d + 1} are not in the range of {type(transform).__name__}, "
            f"NaN or infinite (smallest {np.nanmin(values):g}); use another transform, or drop those rows"
        )
    return back.numpy()
