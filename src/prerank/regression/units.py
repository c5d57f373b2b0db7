"""From standard units, in which networks are trained, to the units of the targets."""

from prerank.datasets import Standardiser
from prerank.forecasts import GaussianMixture


def in_target_units(law: GaussianMixture, scaler: Standardiser) -> GaussianMixture:
    r"""The law of $s \odot Y + m$: means scaled and moved, the rows of the Cholesky factors scaled, weights untouched.

    >>> import numpy as np, torch
    >>> law = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None])
    >>> moved = in_target_units(law, Standardiser(np.array([10.0, 20.0]), np.array([2.0, 3.0])))
    >>> moved.mean, moved.variance
    (tensor([[10., 20.]]), tensor([[4., 9.]]))
    """
    scale = law.loc.new_tensor(scaler.scale)
    return GaussianMixture(law.logits, scaler.inverse(law.loc), law.scale_tril * scale[:, None])
