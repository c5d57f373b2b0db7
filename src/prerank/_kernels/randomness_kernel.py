"""The Triton kernel behind `normals_of_step` on a GPU.

The same hash and the same uniform numbers as in `prerank.randomness`, bit by bit, and then the inverse normal CDF.
"""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024  # numbers of a program


@triton.jit
def _mix(x):
    # shifts of int64 are arithmetic; the masks make them logical
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def _inverse_normal(u):
    """Quantiles of the standard normal law, relative error below 1e-6 for u from 2^-24 to 1 - 2^-24.

    The single precision polynomials of Giles (2010), "Approximating the erfinv function", for erfinv(2u - 1).
    """
    w = -tl.log(4.0 * u * (1.0 - u))
    a = w - 2.5
    centre = 3.43273939e-07 + 2.81022636e-08 * a
    centre = -3.5233877e-06 + centre * a
    centre = -4.39150654e-06 + centre * a
    centre = 0.00021858087 + centre * a
    centre = -0.00125372503 + centre * a
    centre = -0.00417768164 + centre * a
    centre = 0.246640727 + centre * a
    centre = 1.50140941 + centre * a
    b = tl.sqrt(tl.maximum(w, 0.0)) - 3.0  # a rounded logarithm near zero may have either sign
    tail = 0.000100950558 - 0.000200214257 * b
    tail = 0.00134934322 + tail * b
    tail = -0.00367342844 + tail * b
    tail = 0.00573950773 + tail * b
    tail = -0.0076224613 + tail * b
    tail = 0.00943887047 + tail * b
    tail = 1.00167406 + tail * b
    tail = 2.83297682 + tail * b
    return 1.4142135623730951 * tl.where(w < 5.0, centre, tail) * (2.0 * u - 1.0)


@triton.jit
def _normals(keys, step, result, COUNT, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = _mix(tl.load(keys + row) + tl.load(step))
    bits = _mix(_mix(key + (position + 1) * -7046029254386353131) + key)
    # the 23 leading bits and half a step: never 0, never 1
    u = (((bits >> 41) & 0x7FFFFF).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    tl.store(result + row * COUNT + position, _inverse_normal(u), mask=position < COUNT)


def normals(keys: Tensor, step: Tensor, result: Tensor) -> Tensor:
    """Standard normal numbers of a step, one row (or more axes) of `result` per key; keys (seeds,), step a scalar."""
    count = result.numel() // len(keys)
    _normals[(triton.cdiv(count, _BLOCK), len(keys))](
        keys.contiguous(), step.to(keys.device), result, count, _BLOCK
    )  # fmt: skip
    return result
