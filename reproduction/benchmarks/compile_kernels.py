"""Compile the kernels of a training step for a GPU that is not there: registers, stack, seconds.

    python reproduction/benchmarks/compile_kernels.py [--targets 2 6 16] [--capability 90]  # Triton is needed, a GPU is not

Triton compiles for any GPU; only to start a kernel takes one. So a kernel that does not compile, or that spills registers
(STACK), is found before time on a GPU is spent. Nothing is computed: a step runs on a CPU, kernels are compiled in the
place of being started, and what they would have written is filled with halves. Kernels that were compiled before come
from Triton's cache in no time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from prerank._kernels import choosing
from prerank.preranks import paper_preranks
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit
from prerank_paper.published import PublishedPenalty

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Compiled(NamedTuple):
    """A kernel, the seconds that it took to compile, and its binary."""

    name: str
    seconds: float
    n_warps: int
    cubin: bytes

    def usage(self) -> str:
        """Registers of a thread, stack and shared memory in bytes."""
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return " ".join(word for word in text.split() if word.startswith(("REG:", "STACK:", "SHARED:")))


class _NoDriver:
    """What Triton asks a driver for when it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def _filled(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """In the place of memory that is to be written: halves, or zeros that are good as indices."""

    def filled(*arguments: Any, **options: Any) -> torch.Tensor:
        tensor = make(*arguments, **options)
        return tensor.fill_(0.5) if tensor.is_floating_point() else tensor.zero_()

    return filled


@contextmanager
def only_compiled(capability: int) -> Iterator[list[Compiled]]:
    """Kernels that are called inside are compiled and not started; the list has each of them once."""
    found: dict[int, Compiled] = {}
    run = JITFunction.run

    def compiled(function: JITFunction, *arguments: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
        start = time.perf_counter()
        kernel = run(function, *arguments, grid=grid, warmup=True, **options)
        seconds = time.perf_counter() - start
        name = f"{function.fn.__module__.rpartition('.')[2]}.{function.fn.__name__}"
        found.setdefault(id(kernel), Compiled(name, seconds, kernel.metadata.num_warps, kernel.asm["cubin"]))
        return kernel

    def called(function: JITFunction, grid: Any) -> Callable[..., Any]:
        return lambda *arguments, **options: compiled(function, *arguments, grid=grid, **options)

    made: list[Compiled] = []
    driver.set_active(_NoDriver(capability))
    with (
        patch.object(JITFunction, "run", compiled),
        patch.object(JITFunction, "__getitem__", called),
        patch.object(choosing, "_INTERPRETED", True),  # kernels are chosen on a CPU
        patch.object(torch, "empty", _filled(torch.empty)),
        patch.object(torch, "empty_like", _filled(torch.empty_like)),
        patch.object(torch.Tensor, "new_empty", _filled(torch.Tensor.new_empty)),
    ):
        yield made
    made += found.values()


def of_a_step(n_targets: int, capability: int) -> list[Compiled]:
    """Kernels of a training step and a validation, of every pre-rank and both protocols."""
    numbers = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1024, width, generator=numbers) for width in (16, n_targets))
    data = TrainingSet(x[:512], y[:512], x[512:], y[512:])
    kinds = (PreRankPenalty, PublishedPenalty)
    runs = [Run(0), *(Run(0, kind(item), 10.0) for kind in kinds for item in paper_preranks(n_targets))]
    with only_compiled(capability) as made:
        fit(runs, data, FitOptions(max_epochs=1))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", default=[2, 6, 16])
    parser.add_argument("--capability", type=int, default=90, help="of the GPU: 90 is Hopper's")
    given = parser.parse_args()
    for n_targets in given.targets:
        made = of_a_step(n_targets, given.capability)
        for kernel in sorted(made):
            print(
                f"D = {n_targets:<3} {kernel.name:<40} {kernel.seconds:5.2f} s  warps {kernel.n_warps}  {kernel.usage()}"
            )
        print(f"D = {n_targets:<3} {len(made)} kernels, {sum(kernel.seconds for kernel in made):.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
