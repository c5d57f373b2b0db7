"""Whether the fused kernels of this package can be used."""

import os
from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(tensor: Tensor) -> bool:
    """On a GPU, in single precision, with Triton installed; everywhere else the plain code runs, which defines them.

    With TRITON_INTERPRET=1 Triton runs its kernels on a CPU, slowly: a check for those who have no GPU.
    """
    on_gpu = tensor.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return on_gpu and tensor.dtype == torch.float32 and find_spec("triton") is not None
