"""Whether the fused kernels of this package can be used."""

from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(tensor: Tensor) -> bool:
    """On a GPU, in single precision, with Triton installed; everywhere else the plain code runs, which defines them."""
    return tensor.device.type == "cuda" and tensor.dtype == torch.float32 and find_spec("triton") is not None
