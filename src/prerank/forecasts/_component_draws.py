"""Draws of a mixture whose components are chosen: means plus factors times noise, and the gradient of both."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from prerank._chunks import chunks
from prerank._parallel import in_threads


class Draw(torch.autograd.Function):
    """mu_c + L_c eps for chosen components: loc (n, C, D), tril (n, C, D, D), choice (n, S), noise (n, S, D).

    All components of a few cases are drawn from in one product and the chosen ones picked; on the way back a gradient is
    put at its component's place among zeros, and one product gives those of all factors. That is C times the arithmetic,
    and a quarter of the time of going through the components one by one.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
        sizes = loc.shape[1:]
        points = torch.empty_like(noise)
        factors = tril.permute(0, 3, 1, 2).flatten(2)

        def write(cases: slice) -> None:
            drawn = (noise[cases] @ factors[cases]).unflatten(-1, sizes).add_(loc[cases, None])
            points[cases] = drawn.gather(2, _place(choice[cases], sizes))[:, :, 0]

        in_threads(write, _a_few(noise, sizes), spread=noise.device.type == "cpu")
        ctx.save_for_backward(choice, noise)
        ctx.sizes = sizes  # type: ignore[attr-defined]
        return points

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (choice, noise), sizes = ctx.saved_tensors, ctx.sizes
        for_loc = noise.new_empty(len(noise), *sizes)
        for_tril = noise.new_empty(*for_loc.shape, sizes[1])

        def write(cases: slice) -> None:
            every = noise.new_zeros(*choice[cases].shape, *sizes)
            every.scatter_(2, _place(choice[cases], sizes), gradient[cases, :, None])
            for_loc[cases] = every.sum(1)
            for_tril[cases] = (every.flatten(2).mT @ noise[cases]).unflatten(1, sizes)

        in_threads(write, _a_few(noise, sizes), spread=noise.device.type == "cpu")
        return for_loc, for_tril, None, None


def _a_few(noise: Tensor, sizes: torch.Size) -> list[slice]:
    return chunks(len(noise), 4 * noise.shape[1] * sizes.numel(), noise.device)


def _place(choice: Tensor, sizes: torch.Size) -> Tensor:
    """Index (n, S, 1, D) of the chosen components among all (n, S, C, D)."""
    return choice.long()[..., None, None].expand(*choice.shape, 1, sizes[1])
