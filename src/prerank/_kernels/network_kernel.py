"""The Triton kernels behind the mixture network on a GPU: its layers, and its output's split.

A layer is one launch forward and two backward. The tiles follow from a layer's widths alone and every sum is taken by
one program in one order, so that a model's bits do not depend on how many others are in its fleet.
"""

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

_PRECISION = "ieee"
_ROWS = 64  # cases of a tile
_DEPTH, _DEPTH_OF_CASES = 16, 32  # terms of a sum that are loaded at once: a hundred is near seven times sixteen
_ELEMENTS = 1024  # of a block of the split


@triton.jit
def _product(
    a, b, rows, columns, n_rows, K: tl.constexpr, M: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile (BN, BM) of a (n_rows, K) times b (K, M)."""
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows < n_rows)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(
            b + k[:, None] * M + columns[None, :], mask=(k < K)[:, None] & (columns < M)[None, :], other=0.0
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit
def _layer(
    x, weight, bias, result, N, step, K: tl.constexpr, M: tl.constexpr, RELU: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * BN
    rows = tl.arange(0, BN)
    columns = tl.program_id(1) * BM + tl.arange(0, BM)
    x += model * step + first * K
    value = _product(x, weight + model * K * M, rows, columns, N - first, K, M, BN, BM, BK, PRECISION)
    value += tl.load(bias + model * M + columns, mask=columns < M, other=0.0)[None, :]
    if RELU:
        value = tl.where(value <= 0, 0.0, value)  # not a maximum, which would hide what is not a number
    place = result + (model * N + first) * M + rows[:, None] * M + columns[None, :]
    tl.store(place, value, mask=(rows < N - first)[:, None] & (columns < M)[None, :])


@triton.jit
def _for_inputs(
    gradient, transposed, x, result, N, K: tl.constexpr, M: tl.constexpr, RELU: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # here K are the layer's outputs, which are summed over, and M its inputs
    model = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * BN
    rows = tl.arange(0, BN)
    columns = tl.program_id(1) * BM + tl.arange(0, BM)
    gradient += (model * N + first) * K
    value = _product(gradient, transposed + model * K * M, rows, columns, N - first, K, M, BN, BM, BK, PRECISION)
    inside = (rows < N - first)[:, None] & (columns < M)[None, :]
    place = (model * N + first) * M + rows[:, None] * M + columns[None, :]
    if RELU:
        value = tl.where(tl.load(x + place, mask=inside, other=0.0) <= 0, 0.0, value)
    tl.store(result + place, value, mask=inside)


@triton.jit
def _for_weights(
    x, gradient, weight, for_weight, for_bias, transposed, N, step,
    K: tl.constexpr, M: tl.constexpr, TRANSPOSE: tl.constexpr,
    BI: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (i < K)[:, None] & (j < M)[None, :]
    if TRANSPOSE:
        # the next launch needs its tiles with the other axis contiguous, and each is in the hands of one program here
        own = tl.load(weight + model * K * M + i[:, None] * M + j[None, :], mask=inside, other=0.0)
        tl.store(transposed + model * K * M + j[None, :] * K + i[:, None], own, mask=inside)
    x += model * step
    gradient += model * N * M
    total = tl.zeros((BI, BM), dtype=tl.float32)
    for start in range(0, N, BK):
        n = start + tl.arange(0, BK)
        left = tl.load(x + n[None, :] * K + i[:, None], mask=(n < N)[None, :] & (i < K)[:, None], other=0.0)
        right = tl.load(gradient + n[:, None] * M + j[None, :], mask=(n < N)[:, None] & (j < M)[None, :], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(for_weight + model * K * M + i[:, None] * M + j[None, :], total, mask=inside)
    if tl.program_id(0) == 0:  # the bias is nobody's tile: the first in each column of tiles takes it
        rows = tl.zeros((BN, BM), dtype=tl.float32)
        for start in range(0, N, BN):
            n = start + tl.arange(0, BN)
            rows += tl.load(gradient + n[:, None] * M + j[None, :], mask=(n < N)[:, None] & (j < M)[None, :], other=0.0)
        tl.store(for_bias + model * M + j, tl.sum(rows, 0), mask=j < M)


@triton.jit
def _places(C: tl.constexpr, D: tl.constexpr, BR: tl.constexpr, BT: tl.constexpr):
    """Which row of the whole batch and which of its numbers (logits, means, factors) an element of the block is.

    For the factors also the entry (i, j), and for all of them where the network's output has the number.
    """
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)[:, None]
    t = tl.program_id(1) * BT + tl.arange(0, BT)[None, :]
    entry = t - C - C * D
    c = entry // (D * D)
    i = entry // D % D
    j = entry % D
    source = tl.where(entry < 0, t, C + C * D + c * (D * (D + 1) // 2) + i * (i + 1) // 2 + j)
    return row, t, entry, i, j, source


@triton.jit
def _unpack(output, logits, loc, tril, R, FLOOR, C: tl.constexpr, D: tl.constexpr, BR: tl.constexpr, BT: tl.constexpr):
    row, t, entry, i, j, source = _places(C, D, BR, BT)
    WIDTH: tl.constexpr = C + C * D + C * (D * (D + 1) // 2)
    inside = (row < R) & (t < C + C * D + C * D * D)
    known = inside & ((entry < 0) | (j <= i))
    value = tl.load(output + row * WIDTH + source, mask=known, other=0.0)
    tl.store(logits + row * C + t, value, mask=inside & (t < C))
    tl.store(loc + row * (C * D) + t - C, value, mask=inside & (t >= C) & (entry < 0))
    # softplus is max(x, 0) + log(1 + e) with e = exp(-|x|); its logarithm is 2 artanh(s), a short series of s <= 1/3
    e = tl.exp(-tl.abs(value))
    s = e / (2.0 + e)
    series = tl.zeros((BR, BT), dtype=tl.float32)
    for k in tl.static_range(8):
        series = series * (s * s) + 1.0 / (15 - 2 * k)
    positive = tl.where(value > 0, value, 0.0) + 2.0 * s * series + FLOOR
    tl.store(tril + row * (C * D * D) + entry, tl.where(i == j, positive, value), mask=inside & (entry >= 0))


@triton.jit
def _unpack_backward(
    output, for_logits, for_loc, for_tril, result, R,
    C: tl.constexpr, D: tl.constexpr, BR: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    row, t, entry, i, j, source = _places(C, D, BR, BT)
    WIDTH: tl.constexpr = C + C * D + C * (D * (D + 1) // 2)
    inside = (row < R) & (t < C + C * D + C * D * D)
    factor = inside & (entry >= 0) & (j <= i)
    raw = tl.load(output + row * WIDTH + source, mask=factor & (i == j), other=0.0)
    of_tril = tl.load(for_tril + row * (C * D * D) + entry, mask=factor, other=0.0)
    of_loc = tl.load(for_loc + row * (C * D) + t - C, mask=inside & (t >= C) & (entry < 0), other=0.0)
    of_logits = tl.load(for_logits + row * C + t, mask=inside & (t < C), other=0.0)
    of_tril = tl.where(i == j, of_tril / (1.0 + tl.exp(-raw)), of_tril)
    value = tl.where(entry >= 0, of_tril, tl.where(t < C, of_logits, of_loc))
    tl.store(result + row * WIDTH + source, value, mask=inside & ((entry < 0) | (j <= i)))


def _tile(width: int, largest: int = 64) -> int:
    """Of a layer's inputs or outputs."""
    return min(largest, max(16, triton.next_power_of_2(width)))


def _warps(rows: int, columns: int) -> int:
    """So many that each thread has sixteen sums or more, in a square of four by four."""
    return max(1, min(4, rows * columns // 512))


def _grid(rows: int, columns: int, tile: tuple[int, int], size: int) -> tuple[int, int, int]:
    return triton.cdiv(rows, tile[0]), triton.cdiv(columns, tile[1]), size


class _Perceptron(torch.autograd.Function):
    """Layers with ReLU between them: x (E, N, L), and for each layer a weight (E, in, out) and a bias (E, 1, out).

    Models may share their x by a step of zero along the first axis.
    """

    @staticmethod
    def forward(ctx, x: Tensor, *layers: Tensor) -> Tensor:
        if x.stride()[1:] != (x.shape[2], 1):
            x = x.contiguous()
        layers = tuple(tensor.contiguous() for tensor in layers)
        inputs = [x]
        for number in range(0, len(layers), 2):
            weight, bias, x = layers[number], layers[number + 1], inputs[-1]
            (size, n_inputs, n_outputs), n_cases = weight.shape, x.shape[1]
            tile = _ROWS, _tile(n_outputs)
            result = x.new_empty(size, n_cases, n_outputs)
            _layer[_grid(n_cases, n_outputs, tile, size)](
                x, weight, bias, result, n_cases, x.stride(0), n_inputs, n_outputs, number + 2 < len(layers),
                *tile, _DEPTH, _PRECISION, num_warps=_warps(*tile),
            )  # fmt: skip
            inputs.append(result)
        ctx.save_for_backward(*layers[0::2], *inputs[:-1])
        return inputs[-1]

    @staticmethod
    def backward(ctx, gradient: Tensor):
        count = len(ctx.saved_tensors) // 2
        weights, inputs = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        found: list[Tensor | None] = []
        gradient = gradient.contiguous()
        for layer in reversed(range(count)):
            weight, x = weights[layer], inputs[layer]
            (size, n_inputs, n_outputs), n_cases = weight.shape, x.shape[1]
            go_on = layer > 0 or ctx.needs_input_grad[0]
            for_weight, for_bias = torch.empty_like(weight), weight.new_empty(size, 1, n_outputs)
            transposed = weight.new_empty(size, n_outputs, n_inputs) if go_on else weight
            # a hundred by a hundred: more and smaller tiles than in the other direction, for there are few of them
            tile = _tile(n_inputs), _tile(n_outputs, 32 if n_outputs <= 128 else 64)
            _for_weights[_grid(n_inputs, n_outputs, tile, size)](
                x, gradient, weight, for_weight, for_bias, transposed, n_cases, x.stride(0), n_inputs, n_outputs, go_on,
                *tile, _DEPTH_OF_CASES, _ROWS, _PRECISION, num_warps=_warps(*tile),
            )  # fmt: skip
            found = [for_weight, for_bias, *found]
            if go_on:
                tile = _ROWS, _tile(n_inputs)
                below = x.new_empty(size, n_cases, n_inputs)
                _for_inputs[_grid(n_cases, n_inputs, tile, size)](
                    gradient, transposed, x, below, n_cases, n_outputs, n_inputs, layer > 0,
                    *tile, _DEPTH, _PRECISION, num_warps=_warps(*tile),
                )  # fmt: skip
                gradient = below
        return (gradient if ctx.needs_input_grad[0] else None), *found


def perceptron(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The layers of all models: x (E, N, L) or (N, L), weights (E, in, out), biases (E, 1, out)."""
    lead = np.broadcast_shapes(x.shape[:-2], weights[0].shape[:-2])
    layers = [tensor.expand(*lead, *tensor.shape[-2:]) for pair in zip(weights, biases, strict=True) for tensor in pair]
    return _Perceptron.apply(x.expand(*lead, *x.shape[-2:]), *layers)


def _blocks(n_rows: int, n_components: int, n_targets: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid, and rows and numbers of a row in a block."""
    count = n_components * (1 + n_targets + n_targets**2)
    columns = min(256, triton.next_power_of_2(count))
    rows = _ELEMENTS // columns
    return (triton.cdiv(n_rows, rows), triton.cdiv(count, columns)), (rows, columns)


class _Unpack(torch.autograd.Function):
    """The network's output (..., O) as logits (..., C), means (..., C, D) and Cholesky factors (..., C, D, D)."""

    @staticmethod
    def forward(ctx, output: Tensor, n_targets: int, n_components: int, floor: float) -> tuple[Tensor, Tensor, Tensor]:
        output, lead = output.contiguous(), output.shape[:-1]
        logits = output.new_empty(*lead, n_components)
        loc = output.new_empty(*lead, n_components, n_targets)
        tril = output.new_empty(*lead, n_components, n_targets, n_targets)
        n_rows = lead.numel()
        grid, block = _blocks(n_rows, n_components, n_targets)
        _unpack[grid](output, logits, loc, tril, n_rows, floor, n_components, n_targets, *block, num_warps=4)
        ctx.save_for_backward(output)
        ctx.sizes = n_rows, n_components, n_targets
        return logits, loc, tril

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        (output,) = ctx.saved_tensors
        result = torch.empty_like(output)
        grid, block = _blocks(*ctx.sizes)
        _unpack_backward[grid](
            output, *(gradient.contiguous() for gradient in gradients), result, *ctx.sizes, *block, num_warps=4
        )
        return result, None, None, None


def unpacked(output: Tensor, n_targets: int, n_components: int, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, means and Cholesky factors from the network's output (..., O)."""
    return _Unpack.apply(output, n_targets, n_components, floor)
