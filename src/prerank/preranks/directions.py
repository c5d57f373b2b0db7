"""Principal directions of a covariance."""

import torch
from torch import Tensor

from prerank._kernels import EIGENVECTORS, kernel_for
from prerank.preranks.rounding import power_of_two_above


def principal_directions(covariance: Tensor) -> Tensor:
    """Eigenvectors of a covariance, largest eigenvalue first, signs fixed.

    An eigenvector's sign is arbitrary and flips the PIT, so its largest entry is made positive: the first of those
    that are as large up to rounding, or rounding would choose the sign of (1, -1) afresh for every case.

    Parameters
    ----------
    covariance : Tensor, shape (..., n_targets, n_targets)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., n_targets, n_targets)
        Eigenvectors in columns.

    Raises
    ------
    ValueError
        If the covariance is not finite.

    Examples
    --------
    >>> principal_directions(torch.tensor([[1.0, 0.0], [0.0, 4.0]])).abs()
    tensor([[0., 1.],
            [1., 0.]])
    """
    if fused := kernel_for(EIGENVECTORS, covariance, fixed=(covariance,), targets=covariance.shape[-1]):
        return fused(covariance)
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
