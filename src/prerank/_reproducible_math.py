"""Sums, products and substitutions that round the same number the same way wherever it stands.

A library's matrix product, triangular solve or sum over an axis treats the last columns of a block, or every second one,
by other instructions than the rest, so that equal points may get numbers that differ in the last place: a tie between an
observation and a member would be broken by rounding noise. IEEE arithmetic rounds a single sum, difference, product or
quotient in one way only, so whatever is made of these, element by element and in a fixed order, depends on neither
position, nor chunk, nor threads, nor processor. No fused multiply-add (`addcmul`): whether it rounds once or twice may
depend on the position.
"""

import torch
from torch import Tensor

from prerank._parallel import in_threads

# Bytes of a temporary: every step passes over it once, so it has to stay in the cache; a GPU has a cost for every step.
BYTES = 1 << 22
BYTES_ON_GPU = 1 << 28
LONG = 32  # an innermost axis at least as long as this is fast


def total(values: Tensor, dim: int, overwrite: bool = False) -> Tensor:
    """Sum over an axis, halves added to halves: as exact as a library's, and the same at every position.

    With `overwrite` the values may be destroyed on the way, which saves a temporary; the sum is then a view of them.

    >>> total(torch.arange(5.0), 0)
    tensor(10.)
    """
    values = values.movedim(dim, 0)
    if len(values) == 0:
        return values.sum(0)
    while len(values) > 1:
        half = len(values) // 2
        if overwrite:
            added = values[:half].add_(values[half : 2 * half])
        else:
            added, overwrite = values[:half] + values[half : 2 * half], True
        if len(values) % 2:
            added[0] += values[-1]
        values = added
    return values[0]


def log_sum_exp(values: Tensor, dim: int) -> Tensor:
    """Logarithm of the sum of exponentials over an axis."""
    highest = values.amax(dim, keepdim=True)
    highest = torch.where(highest.isfinite(), highest, 0.0)
    return total((values - highest).exp(), dim, overwrite=True).log() + highest.squeeze(dim)


def blocks(
    n_cases: int, n_points: int, values_per_point: int, bytes_each: int, device: torch.device
) -> list[tuple[slice, slice]]:
    """Slices of cases and of points whose temporary of `values_per_point` numbers a point stays small."""
    elements = (BYTES if device.type == "cpu" else BYTES_ON_GPU) // bytes_each
    points = max(1, min(n_points, elements // max(1, values_per_point)))
    cases = max(1, elements // max(1, values_per_point * points))
    return [
        (slice(case, min(case + cases, n_cases)), slice(point, min(point + points, n_points)))
        for case in range(0, n_cases, cases)
        for point in range(0, n_points, points)
    ]


def gaussian_log_density(points: Tensor, log_weights: Tensor, loc: Tensor, tril: Tensor) -> Tensor:
    r"""$\log \sum_c \exp(w_c - \frac12 |L_c^{-1} (y - \mu_c)|^2)$ of points (n, P, D): (n, P).

    `log_weights` (n, C), `loc` (n, C, D), `tril` (n, C, D, D). Forward substitution, a column at a time.
    """
    (n_cases, n_points, n_targets), n_components = points.shape, loc.shape[1]
    result = points.new_empty(n_cases, n_points)

    def write(block: tuple[slice, slice]) -> None:
        cases, some = block
        y, mean, factor, weight = points[cases, some], loc[cases], tril[cases], log_weights[cases]
        if y.shape[1] >= LONG:  # axes (D, C, cases, points)
            y = y.permute(2, 0, 1)[:, None]
            mean, factor = mean.permute(2, 1, 0)[..., None], factor.permute(2, 3, 1, 0)[..., None]
            squares = _squared_lengths(y, mean, factor)
            result[cases, some] = log_sum_exp(weight.mT[..., None] - 0.5 * squares, 0)
        else:  # axes (D, points, cases x C): a long innermost axis again, and factors that are transposed at once
            n = len(y)
            y = y.permute(2, 1, 0)[..., None].expand(-1, -1, -1, n_components).flatten(2)
            mean, factor = mean.reshape(-1, n_targets).t(), factor.reshape(-1, n_targets * n_targets).t().contiguous()
            squares = _squared_lengths(y, mean[:, None], factor.unflatten(0, (n_targets, n_targets))[:, :, None])
            exponent = weight - 0.5 * squares.unflatten(-1, (n, n_components))
            result[cases, some] = log_sum_exp(exponent, -1).mT

    each = blocks(n_cases, n_points, n_targets * n_components, points.element_size(), points.device)
    in_threads(write, each, spread=points.device.type == "cpu")
    return result


def _squared_lengths(y: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """|L^-1 (y - mean)|^2 with the axis of targets first, (D, ...), and two of them for the factor, (D, D, ...)."""
    rest = y - mean
    step = torch.empty_like(rest)
    for d in range(len(rest)):
        rest[d] /= factor[d, d]
        if d + 1 < len(rest):
            rest[d + 1 :] -= torch.mul(factor[d + 1 :, d], rest[d], out=step[d + 1 :])
    return total(rest.square_(), 0, overwrite=True)
