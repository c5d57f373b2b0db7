"""The linear-Gaussian reference: ridge regression with one shrunk covariance, for any number of rows and targets."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.forecasts import GaussianMixture

_RIDGES = torch.logspace(-4, 3, 15, dtype=torch.float64).tolist()
_LEAST_SPREAD = 1e-3  # standard deviation, in units of the targets' own, below which none is believed


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    r"""Linear-Gaussian reference, $Y \mid x \sim N(a + B^\top x, L L^\top)$.

    `fit` chooses one ridge for all targets by leave-one-out errors, which are closed form, and takes the covariance of
    those errors. Their correlations are shrunk towards zero [1]_, so that the factor exists for fewer rows than
    targets, for duplicated and for constant columns.

    Parameters
    ----------
    slope : Tensor, shape (n_features, n_targets)
        Coefficients B.
    level : Tensor, shape (n_targets,)
        Intercept a.
    scale_tril : Tensor, shape (n_targets, n_targets)
        Cholesky factor L of the covariance.

    References
    ----------
    .. [1] Schäfer, J. and Strimmer, K. (2005). A shrinkage approach to large-scale covariance matrix estimation and
       implications for functional genomics. Statistical Applications in Genetics and Molecular Biology 4, 32.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> reference = LinearGaussian.fit(x, torch.cat([1 + 2 * x, x.square()], -1))
    >>> reference.forecast(x[-1:]).mean.round(decimals=2)
    tensor([[3.0000, 0.3500]], dtype=torch.float64)
    """

    slope: Tensor
    level: Tensor
    scale_tril: Tensor

    @staticmethod
    def fit(x: Tensor, y: Tensor, weights: Tensor | None = None) -> "LinearGaussian":
        """Fit the reference, in double precision on the CPU.

        Parameters
        ----------
        x : Tensor, shape (n_cases, n_features)
            Features.
        y : Tensor, shape (n_cases, n_targets)
            Targets.
        weights : Tensor, shape (n_cases,), optional
            Weights of the rows; None means equal.

        Returns
        -------
        LinearGaussian
            The fitted reference.
        """
        x, y = x.detach().double().cpu(), y.detach().double().cpu()
        share = torch.ones(len(x), dtype=torch.float64) if weights is None else weights.detach().double().cpu()
        share = (share / share.sum())[:, None]
        x_mean, y_mean = (share * x).sum(0), (share * y).sum(0)
        x_centred, y_centred = x - x_mean, y - y_mean
        values, vectors = torch.linalg.eigh(x_centred.T @ (share * x_centred))
        values, scores = values.clamp_min(0.0), x_centred @ vectors
        target = scores.T @ (share * y_centred)
        best, errors, coefficients = torch.inf, y_centred, torch.zeros_like(target)
        for ridge in _RIDGES:
            found = target / (values + ridge)[:, None]
            leverage = share[:, 0] * (1 + scores.square() @ (1 / (values + ridge)))
            left_out = (y_centred - scores @ found) / (1 - leverage).clamp_min(1e-6)[:, None]
            score = float((share * left_out.square()).sum(0).clamp_min(_LEAST_SPREAD**2).log().sum())
            if score < best:
                best, errors, coefficients = score, left_out, found
        slope = vectors @ coefficients
        return LinearGaussian(slope, y_mean - x_mean @ slope, _shrunk_factor(errors, share))

    def forecast(self, x: Tensor) -> GaussianMixture:
        """Forecasts of features.

        Parameters
        ----------
        x : Tensor, shape (n_cases, n_features)
            Features.

        Returns
        -------
        GaussianMixture
            A mixture of one component.
        """
        loc = x @ self.slope.to(x) + self.level.to(x)
        factor = self.scale_tril.to(x).expand(len(x), 1, -1, -1)
        return GaussianMixture(x.new_zeros(len(x), 1), loc[:, None], factor)


def _shrunk_factor(errors: Tensor, share: Tensor) -> Tensor:
    """Cholesky factor (D, D) of the covariance of errors (n, D) of weights `share` (n, 1), correlations shrunk."""
    spread = (share * errors.square()).sum(0).sqrt().clamp_min(_LEAST_SPREAD)
    standard = errors / spread
    correlation = standard.T @ (share * standard)
    # the variance of a correlation, from the products that it is the mean of
    squares = standard.square().T @ (share * standard.square())
    noise = (squares - correlation.square()) * share.square().sum()
    off = ~torch.eye(len(correlation), dtype=torch.bool)
    signal = correlation[off].square().sum()
    shrinkage = float((noise[off].sum() / signal).clamp(0.0, 1.0)) if signal > 0 else 1.0
    shrinkage = max(shrinkage, _LEAST_SPREAD**2)
    shrunk = torch.where(off, (1 - shrinkage) * correlation, 1.0)
    return spread[:, None] * torch.linalg.cholesky(shrunk)
