"""A Gaussian mixture whose components differ between cases in scale, not in correlation: cheap for many targets."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecasts import GaussianMixture


class ScaledMixture(GaussianMixture):
    r"""Component c of a case has factor $\mathrm{diag}(s_c) R_c$, with one R for all cases.

    `logits` (..., N, C), `loc` and `scale` (..., N, C, D), `root` (..., C, D, D), lower triangular. The likelihood of a
    batch solves with C matrices and not with N times C, which are made only where they are asked for.

    >>> parts = torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.ones(4, 2, 3), torch.eye(3).expand(2, 3, 3)
    >>> ScaledMixture(*parts).log_prob(torch.zeros(4, 3))
    tensor([-2.7568, -2.7568, -2.7568, -2.7568])
    """

    def __init__(self, logits: Tensor, loc: Tensor, scale: Tensor, root: Tensor) -> None:
        self.logits, self.loc, self.scale, self.root = logits, loc, scale, root
        Distribution.__init__(self, logits.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def scale_tril(self) -> Tensor:  # type: ignore[override]
        return self.scale[..., None] * self.root[..., None, :, :, :]

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of `value` (..., N, D), one for each case."""
        if value.ndim > len(self.batch_shape) + 1 or value.shape[-1:] != self.event_shape:
            return super().log_prob(value)
        standardised = (value[..., None, :] - self.loc) / self.scale
        whitened = torch.linalg.solve_triangular(self.root, standardised.movedim(-3, -1), upper=False)
        log_det = self.scale.log().sum(-1) + self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None, :]
        constant = self.log_weights - log_det - 0.5 * self.n_targets * math.log(2 * math.pi)
        return torch.logsumexp(constant - 0.5 * whitened.square().sum(-2).mT, -1)
