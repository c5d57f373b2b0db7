"""Eigenvectors of many small symmetric matrices on a GPU, by Jacobi's method, one matrix per program.

The library routine checks for errors on the host after every call, so it cannot be part of a captured graph, and its
batched version is slow for the thousands of small matrices that a fleet asks for. A cyclic Jacobi sweep rotates D/2
disjoint pairs of axes at once (a round-robin schedule): every column meets one other, and the two are mixed.
"""

import torch
from torch import Tensor

from prerank.gpu import has_kernels

LARGEST = 16  # beyond, the library routine is faster


def available(matrix: Tensor) -> bool:
    """Whether the kernel can take this matrix: on a GPU, single precision, small, and Triton installed."""
    return has_kernels(matrix) and matrix.shape[-1] <= LARGEST


def eigenvectors(matrix: Tensor) -> Tensor:
    """Eigenvectors in columns, smallest eigenvalue first as `torch.linalg.eigh` has them; no gradient."""
    from prerank.calibration.jacobi_kernel import launch

    size = matrix.shape[-1]
    flat = matrix.detach().reshape(-1, size, size).contiguous()
    vectors, values = torch.empty_like(flat), torch.empty_like(flat[..., 0])
    launch(flat, vectors, values)
    order = values.argsort(-1)
    return vectors.gather(-1, order[:, None, :].expand_as(vectors)).reshape(matrix.shape)
