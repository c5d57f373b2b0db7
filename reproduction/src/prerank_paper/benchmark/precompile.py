"""Kernels compiled ahead of the fleets that use them: a few steps of every penalty, by number of targets.

Triton keeps what it compiles in files (TRITON_CACHE_DIR, or a folder in the user's home), so that it is compiled once for
all processes and all runs of a machine. Kernels differ by the number of targets and by the penalty; those of a network's
first layer also by the number of features, and are left to the fleets.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from prerank.randomness import key, normal
from prerank.training import FitOptions, Run, TrainingSet, fit
from prerank_paper.benchmark.plan import NONE, TOGETHER, Fleet, Model, penalty_of, preranks_of
from prerank_paper.benchmark.processes import worker_pool
from prerank_paper.benchmark.work import Settings
from prerank_paper.datasets.sizes import dataset_size
from prerank_paper.evaluation import evaluate_both, exact_tests
from prerank_paper.protocols import AS_PUBLISHED, EXACT

_MOST = 8  # processes that compile: each has a context on the GPU, half a gigabyte there and a few on the host
_MOST_ALONE = 12  # when nothing else runs
_POLITE = 10  # they give way to what trains
# whether a size is a multiple of 16 is compiled in: minibatches are, the rows to validate and to evaluate rarely
_TRAINING_ROWS, _OTHER_ROWS = 512, 501


class Kind(NamedTuple):
    """What is compiled at a time: steps with one penalty, or, without one, plain steps and the evaluation."""

    n_targets: int
    training: str = NONE
    penalty: str = NONE
    strength: float = 0.0


def kinds_of(fleets: Sequence[Fleet]) -> list[Kind]:
    """What the fleets need, each once, in their order: strengths share kernels, and penalties together those of each."""
    found: dict[tuple[int, str, str], Kind] = {}
    for fleet in fleets:
        n_targets = dataset_size(fleet.dataset).n_targets
        wanted = [Kind(n_targets)]
        alone = [model for model in fleet.models if model.penalty not in (NONE, *TOGETHER)]
        wanted += [Kind(n_targets, model.training, model.penalty, model.strength) for model in alone]
        for kind in wanted:
            found.setdefault(kind[:3], kind)
    return list(found.values())


@contextmanager
def compiling(fleets: Sequence[Fleet], settings: Settings, n_training: int) -> Iterator[None]:
    """Compile what the fleets need, in their order, on the cores that `n_training` processes leave, while they train.

    Nobody waits for it: a fleet that comes first compiles for itself, and finds done what was done before. What cannot be
    compiled ahead is compiled, or fails, in its fleet.
    """
    if torch.device(settings.device).type != "cuda":
        yield
        return
    n_processes = max(1, min(_MOST, (os.cpu_count() or 1) - n_training))
    with worker_pool(n_processes, _POLITE) as pool:
        for kind in kinds_of(fleets):
            pool.submit(compile_kernels, kind, settings)
        try:
            yield
        finally:
            pool.shutdown(cancel_futures=True)


def compile_first(wanted: Sequence[tuple[Kind, Settings]]) -> None:
    """Compile what is to be timed on all cores, and wait for it. What cannot be compiled fails where it is timed."""
    wanted = [each for each in wanted if torch.device(each[1].device).type == "cuda"]
    if not wanted:
        return
    with worker_pool(max(1, min(_MOST_ALONE, len(wanted), os.cpu_count() or 1))) as pool:
        for task in [pool.submit(compile_kernels, *each) for each in wanted]:
            task.exception()


def compile_kernels(kind: Kind, settings: Settings) -> int:
    """Train a model on random numbers for two steps; one without a penalty is evaluated, too. Returns the steps."""

    def numbers(name: str, n_rows: int, width: int) -> torch.Tensor:
        return normal(key(0, "compiled ahead", name), (n_rows, width), torch.float32).to(settings.device)

    sizes = {"training": _TRAINING_ROWS, "other": _OTHER_ROWS}
    x, x_other = (numbers(f"{name} x", n_rows, 4) for name, n_rows in sizes.items())
    y, y_other = (numbers(f"{name} y", n_rows, kind.n_targets) for name, n_rows in sizes.items())
    model = Model(kind.training, kind.penalty, kind.strength, 0)
    run = Run(0, penalty_of(model, kind.n_targets, settings.n_draws), kind.strength)
    fitted = fit([run], TrainingSet(x, y, x_other, y_other), FitOptions(max_epochs=1))
    if kind.penalty == NONE:
        exact, published = (list(preranks_of(kind.n_targets, name).values()) for name in (EXACT, AS_PUBLISHED))
        observed, forecast = y_other[None], fitted.forecast(x_other)
        evaluate_both(observed, forecast, exact, published, n_draws=settings.n_draws, n_replicates=0)
        exact_tests(observed, forecast, exact, n_draws=settings.n_draws, n_replicates=19)
    return fitted.steps
