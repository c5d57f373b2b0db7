"""Fused code for a GPU, chosen in one place; the plain code is the definition, and all that a CPU runs.

`table` has a row for every kernel, `kernel_for` gives a row's function where it can be used and None elsewhere. A module
`x_kernel` is written in Triton, and imported only when it is used.
"""

from prerank._kernels.choosing import Kernel, kernel_for, register, rows, without
from prerank._kernels.table import (
    ADAM,
    ALLOCATION,
    BANDWIDTHS,
    COVARIANCE,
    DRAWS,
    EIGENVECTORS,
    FINITE,
    JOINT_CDF,
    LOG_DENSITY,
    LOG_LIKELIHOOD,
    MINIBATCH,
    NORMALS,
    PERCEPTRON,
    PIT_ALONG,
    PROJECTIONS,
    SMOOTH_PCE,
    SMOOTH_RANK,
    SPREAD,
    UNPACKING,
)

__all__ = [
    "ADAM",
    "ALLOCATION",
    "BANDWIDTHS",
    "COVARIANCE",
    "DRAWS",
    "EIGENVECTORS",
    "FINITE",
    "JOINT_CDF",
    "LOG_DENSITY",
    "LOG_LIKELIHOOD",
    "MINIBATCH",
    "NORMALS",
    "PERCEPTRON",
    "PIT_ALONG",
    "PROJECTIONS",
    "SMOOTH_PCE",
    "SMOOTH_RANK",
    "SPREAD",
    "UNPACKING",
    "Kernel",
    "kernel_for",
    "register",
    "rows",
    "without",
]
