"""The paper's two simulation studies: every scenario by every pre-rank, exactly and as the paper did it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from prerank._parallel import in_threads
from prerank.calibration import ProjectedPIT, pce, pce_null, pce_test
from prerank.randomness import numpy_generator
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.simulations.diagnostics import Diagnostic, exact_diagnostics, published_diagnostics
from prerank_paper.simulations.draws import Noise, draw_noise, scenario_pits
from prerank_paper.simulations.scenarios import Scenario, Simulation


class SimulationResult(NamedTuple):
    """Tidy records: `tests`, a row per protocol, scenario and pre-rank; `histograms`, one per projection and bin."""

    tests: pd.DataFrame
    histograms: pd.DataFrame


def run_simulation(
    simulation: Simulation,
    n_cases: int = 10_000,
    n_members: int = 20,
    seed: int = 0,
    n_replicates: int = 99,
    device: torch.device | str = "cpu",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> SimulationResult:
    """Projected PIT histograms and tests of every scenario by every pre-rank, in both protocols.

    Exact: randomised ranks, projections from members pooled with the observation, HDR with the known density, and the
    test of `pce_test`. As published: unrandomised ranks of members that shaped their own projection; their p-value
    takes the PCE of each projection against its own null distribution, corrected by Bonferroni, since members cannot be
    exchanged with the observation there. `on_progress(done, total)` is told after every scenario.
    """
    require_sizes(n_cases, n_members, simulation)
    if n_replicates < 19:
        raise ValueError(f"{n_replicates} replicates cannot reject at 5 %; use 19 or more")
    simulation = simulation.to(device, torch.get_default_dtype())
    noise = draw_noise(simulation, torch.arange(n_cases), n_members, seed)

    scenarios = list(simulation.scenarios)

    def work(place: int) -> list[tuple[list[dict[str, Any]], list[pd.DataFrame]]]:
        return [
            _exact(simulation, scenarios[place], noise, seed, n_replicates),
            _as_published(simulation, scenarios[place], noise, seed),
        ]

    tests: list[dict[str, Any]] = []
    histograms: list[pd.DataFrame] = []

    def take(place: int, protocols: list[tuple[list[dict[str, Any]], list[pd.DataFrame]]]) -> None:
        for rows, counts in protocols:
            tests.extend(rows)
            histograms.extend(counts)
        on_progress(place + 1, len(scenarios))

    in_threads(work, range(len(scenarios)), take, spread=simulation.covariance.device.type == "cpu")
    frame = pd.DataFrame(tests).assign(n_cases=n_cases, n_members=n_members, n_targets=simulation.n_targets, seed=seed)
    return SimulationResult(frame, pd.concat(histograms, ignore_index=True))


def require_sizes(n_cases: int, n_members: int, simulation: Simulation) -> None:
    """Refuse sizes for which a study would fail later or say nothing."""
    if n_cases < 1:
        raise ValueError(f"{n_cases} cases: at least one is needed (the paper has 10,000)")
    if n_members < 2:
        raise ValueError(f"{n_members} members: PCA needs at least two (the paper has 20)")


def _exact(
    simulation: Simulation, scenario: Scenario, noise: Noise, seed: int, n_replicates: int
) -> tuple[list[dict[str, Any]], list[pd.DataFrame]]:
    diagnostics = exact_diagnostics(simulation.n_targets)
    pits = scenario_pits(simulation, scenario, noise, diagnostics, seed)
    tests, counts = [], []
    for diagnostic in diagnostics:
        pit = pits[diagnostic.name]
        labels = _labels(simulation, EXACT, scenario, diagnostic)
        test = pce_test(pit, n_replicates=n_replicates, seed=seed)
        tests.append(labels | _numbers(pit, float(test.statistic), float(test.expected_pce), float(test.p_value)))
        counts.append(_histogram(labels, pit, noise.members.shape[-2]))
    return tests, counts


def _as_published(
    simulation: Simulation, scenario: Scenario, noise: Noise, seed: int
) -> tuple[list[dict[str, Any]], list[pd.DataFrame]]:
    diagnostics = published_diagnostics(simulation.n_targets)
    pits = scenario_pits(simulation, scenario, noise, diagnostics, seed)
    null = pce_null(len(noise.case_ids), n_members=noise.members.shape[-2], unrandomised=True)
    tests, counts = [], []
    for diagnostic in diagnostics:
        pit = pits[diagnostic.name]
        errors = pce(pit)
        p_value = min(1.0, len(errors) * float(null.p_value(errors.cpu().numpy()).min()))
        labels = _labels(simulation, AS_PUBLISHED, scenario, diagnostic)
        tests.append(labels | _numbers(pit, float(errors.mean()), null.mean, p_value))
        counts.append(_histogram(labels, pit, noise.members.shape[-2]))
    return tests, counts


def _labels(simulation: Simulation, protocol: str, scenario: Scenario, diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "simulation": simulation.name,
        "protocol": protocol,
        "scenario": scenario.name,
        "error": scenario.error,
        "form": scenario.form.value,
        "prerank": diagnostic.name,
        "source": diagnostic.source.value,
    }


def _numbers(pit: ProjectedPIT, statistic: float, expected_pce: float, p_value: float) -> dict[str, Any]:
    return {
        "n_projections": len(pit.names),
        "pce": statistic,
        "expected_pce": expected_pce,
        "p_value": p_value,
        "tied": float(pit.tied.mean()),
    }


def _histogram(labels: dict[str, Any], pit: ProjectedPIT, n_members: int) -> pd.DataFrame:
    """Counts of each projection in M + 1 bins: randomised or not, a bin is a rank of the observation."""
    counts = rank_counts(pit.values, n_members, randomised=not pit.parts[0].unrandomised)
    n_projections, n_bins = counts.shape
    return pd.DataFrame(
        labels
        | {
            "projection": np.repeat(np.arange(1, n_projections + 1), n_bins),
            "bin": np.tile(np.arange(n_bins), n_projections),
            "count": counts.flatten(),
        }
    )


def rank_counts(pit: Tensor, n_members: int, randomised: bool = True) -> np.ndarray:
    """How often the observation has each rank 0..M: PITs (N, K) -> (K, M + 1)."""
    ranks = (pit * (n_members + 1)).floor() if randomised else (pit * n_members).round()
    ranks = ranks.long().clamp(0, n_members)
    offset = torch.arange(pit.shape[-1], device=pit.device) * (n_members + 1)
    counts = torch.bincount((ranks + offset).flatten(), minlength=pit.shape[-1] * (n_members + 1))
    return counts.reshape(pit.shape[-1], n_members + 1).cpu().numpy()


@lru_cache(maxsize=32)
def histogram_band(n_cases: int, n_bins: int, n_histograms: int = 1, coverage: float = 0.95) -> tuple[float, float]:
    """Limits, as multiples of the uniform height, that all bins of all histograms of a true forecast keep together.

    Binomial quantiles at a common tail, tuned on 20,000 simulated histograms so that all bins keep them together; for
    several histograms the remaining probability is shared equally (Bonferroni), because how they depend is not known.

    >>> lower, upper = histogram_band(10_000, 21)
    >>> round(lower, 2), round(upper, 2)
    (0.87, 1.14)
    """
    generator = numpy_generator(0, "histogram band", n_cases, n_bins)
    counts = generator.multinomial(n_cases, np.full(n_bins, 1 / n_bins), size=20_000)
    values, where = np.unique(np.stack([counts.min(1), counts.max(1)]), return_inverse=True)
    two_sided = 2 * np.minimum(
        stats.binom.cdf(values, n_cases, 1 / n_bins), stats.binom.sf(values - 1, n_cases, 1 / n_bins)
    )
    smallest = two_sided[where.reshape(2, -1)].min(0)
    tail = float(np.quantile(smallest, (1 - coverage) / n_histograms))
    lower, upper = (float(stats.binom.ppf(q, n_cases, 1 / n_bins)) for q in (tail / 2, 1 - tail / 2))
    return lower * n_bins / n_cases, upper * n_bins / n_cases
