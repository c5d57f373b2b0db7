"""How a kernel is chosen: its fused function where it can be used, None where the plain code has to do."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

# Triton then runs its kernels on a CPU, slowly: a check for those who have no GPU. Like Triton, this asks once.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True)
class Kernel:
    """A row of the table: what is computed, where the fused and the plain code of it stand, and when it can be used.

    `fused` and `plain` are dotted names; the first is imported when it is first used, the second is the definition.
    Numbers of something above `most` or below `fewest` are left to the plain code.
    """

    name: str
    computes: str
    fused: str
    plain: str
    most: Mapping[str, int] = field(default_factory=dict)
    fewest: Mapping[str, int] = field(default_factory=dict)
    device: str = "cuda"
    dtype: torch.dtype = torch.float32
    oldest_triton: tuple[int, int] = (3, 3)  # of torch 2.7; earlier ones cannot exchange the columns of a block

    def takes(self, tensors: Iterable[Tensor | None], fixed: Iterable[Tensor | None], sizes: Mapping[str, int]) -> bool:
        """Whether the tensors are of its kind, none of the `fixed` asks for a gradient, and the sizes are within limits."""
        if sizes.keys() != self.most.keys() | self.fewest.keys():
            limited, asked = (", ".join(sorted(names)) or "nothing" for names in ({*self.most, *self.fewest}, sizes))
            raise TypeError(f"the kernel {self.name!r} has limits on {limited}, but was asked with {asked}")
        given = [part for part in tensors if part is not None]
        if any(part.dtype != self.dtype for part in given):
            return False
        if any(part.device.type != self.device for part in given) and not _INTERPRETED:
            return False
        if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in fixed):
            return False
        return all(self.fewest.get(name, 0) <= size <= self.most.get(name, size) for name, size in sizes.items())


_ROWS: dict[str, Kernel] = {}
_OFF: ContextVar[frozenset[str]] = ContextVar("_OFF", default=frozenset())


def register(kernel: Kernel) -> Kernel:
    """Put a row into the table; a layer above may bring its own."""
    if _ROWS.setdefault(kernel.name, kernel) != kernel:
        raise ValueError(
            f"the name {kernel.name!r} is that of the kernel {_ROWS[kernel.name].fused}; give yours another name"
        )
    return kernel


def rows() -> tuple[Kernel, ...]:
    """The table: the kernels of all modules that have been imported."""
    return tuple(_ROWS.values())


def kernel_for(
    kernel: Kernel, tensor: Tensor, *others: Tensor | None, fixed: Iterable[Tensor | None] = (), **sizes: int
) -> Callable[..., Any] | None:
    """The fused function for tensors of this kind, or None: then the plain code does it.

    `fixed` are the tensors for which it has no gradient, `sizes` what its row has limits on.
    """
    if tensor.is_cpu and not _INTERPRETED:  # asked in every small call on a CPU, so before all else
        return None
    if kernel.name in _OFF.get() or _switched_off() or not _has_triton(kernel.oldest_triton):
        return None
    return _function(kernel.fused) if kernel.takes((tensor, *others), fixed, sizes) else None


@contextmanager
def without(kernels: Iterable[Kernel]) -> Iterator[None]:
    """Plain code in place of these kernels; `without(rows())` in place of all. PRERANK_KERNELS=0 does so for a process."""
    token = _OFF.set(_OFF.get() | {kernel.name for kernel in kernels})
    try:
        yield
    finally:
        _OFF.reset(token)


@cache
def _switched_off() -> bool:
    said = os.environ.get("PRERANK_KERNELS", "1")
    if said not in ("0", "1"):
        raise ValueError(f"PRERANK_KERNELS is {said!r}; set it to 0 for plain code on a GPU, or to 1 for kernels")
    return said == "0"


@cache
def _has_triton(oldest: tuple[int, int]) -> bool:
    """Whether there is a Triton that is new enough; one that does not say its version is taken for new."""
    if find_spec("triton") is None:
        return False
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2]) >= oldest
    except (PackageNotFoundError, ValueError):
        return True


@cache
def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    return getattr(import_module(module), function)
