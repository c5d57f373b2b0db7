"""Kernels compiled ahead of the fleets that use them: a few steps of every penalty, by number of targets.

Triton keeps what it compiles in files (TRITON_CACHE_DIR, or a folder in the user's home), so that it is compiled once for
all processes and all runs of a machine. Kernels differ by the number of targets and the protocol, not by the data.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from prerank.randomness import key, normal
from prerank.studies.benchmark.plan import NONE, Fleet, Model, penalty_of, preranks_of
from prerank.studies.benchmark.shapes import shape_of
from prerank.studies.benchmark.work import Settings
from prerank.studies.evaluation import evaluate_both, exact_tests
from prerank.studies.protocols import AS_PUBLISHED, EXACT
from prerank.training import FitOptions, Run, TrainingSet, fit

_ROWS = 512


class Kind(NamedTuple):
    """Models that need the same kernels: their number of targets, and the penalties among them."""

    n_targets: int
    penalties: tuple[tuple[str, str, float], ...]


def kinds_of(fleets: Sequence[Fleet]) -> list[Kind]:
    """What the fleets need, each once, the most targets first: those take longest."""
    found: dict[Kind, None] = {}
    for fleet in fleets:
        penalties = {(m.training, m.penalty, m.strength) for m in fleet.models if m.penalty != NONE}
        one_strength = {item[:2]: item for item in sorted(penalties)}
        found[Kind(shape_of(fleet.dataset).n_targets, tuple(sorted(one_strength.values())))] = None
    return sorted(found, key=lambda kind: -kind.n_targets)


def compile_kernels(kind: Kind, settings: Settings) -> int:
    """Train and evaluate a model of every penalty for two steps on random numbers; returns how many."""
    rows = [
        normal(key(0, "compiled ahead", name), (_ROWS, width), torch.float32).to(settings.device)
        for name, width in (("x", 4), ("y", kind.n_targets))
    ]
    runs = [Run(0)] + [
        Run(0, penalty_of(Model(training, penalty, strength, 0), kind.n_targets, settings.n_draws), strength)
        for training, penalty, strength in kind.penalties
    ]
    fitted = fit(runs, TrainingSet(*rows, *rows), FitOptions(max_epochs=1, max_steps=2))
    exact, published = (list(preranks_of(kind.n_targets, name).values()) for name in (EXACT, AS_PUBLISHED))
    y = rows[1].expand(len(runs), -1, -1)
    forecast = fitted.forecast(rows[0])
    evaluate_both(y, forecast, exact, published, n_draws=settings.n_draws, n_replicates=0)
    exact_tests(y[:1], fitted.forecast(rows[0], [0]), exact, n_draws=settings.n_draws, n_replicates=19)
    return len(runs)
