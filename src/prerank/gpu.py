"""Whether the fused kernels of this package can be used."""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from torch import Tensor

OLDEST_TRITON = (3, 3)  # that torch 2.7 brings; earlier ones cannot exchange the columns of a block


def has_kernels(tensor: Tensor) -> bool:
    """On a GPU, in single precision, with Triton installed; everywhere else the plain code runs, which defines them.

    With TRITON_INTERPRET=1 Triton runs its kernels on a CPU, slowly: a check for those who have no GPU.
    """
    on_gpu = tensor.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return on_gpu and tensor.dtype == torch.float32 and _has_triton()


@cache
def _has_triton() -> bool:
    """Whether there is a Triton that is new enough; one that does not say its version is taken for new."""
    if find_spec("triton") is None:
        return False
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2]) >= OLDEST_TRITON
    except (PackageNotFoundError, ValueError):
        return True
