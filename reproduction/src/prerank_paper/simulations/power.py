r"""How many cases a pre-rank needs to see a mistake: the rejection rate of the 5 % test against N.

The cases of a scenario are cut into repetitions of N, and `pce_test` is applied to each of them.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._parallel import in_threads
from prerank.calibration import ProjectedPIT, centred_levels, pce_test
from prerank_paper.simulations.diagnostics import Diagnostic, power_diagnostics
from prerank_paper.simulations.draws import Noise, draw_noise, scenario_pits
from prerank_paper.simulations.scenarios import Scenario, Simulation
from prerank_paper.simulations.simulation import require_sizes

LEVEL = 0.05


class PowerDesign(NamedTuple):
    """How large a power study is.

    `sizes` are the numbers of cases N, `n_cases` all cases of a scenario (so a size gets n_cases / N repetitions, at
    most `repetitions`), `n_null` the replicates of a test of several projections, `block` the cases computed together.
    """

    sizes: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 2500, 10_000)
    n_cases: int = 100_000
    repetitions: int = 400
    n_null: int = 999
    block: int = 20_000


FULL_POWER = PowerDesign()
QUICK_POWER = PowerDesign(sizes=(50, 100, 200, 400), n_cases=4_000, repetitions=40, n_null=199, block=4_000)


class _Block(NamedTuple):
    """What one block of cases of one scenario gives: statistics and p-values (R,) per pre-rank and size."""

    statistics: dict[tuple[str, int], Tensor]
    p_values: dict[tuple[str, int], Tensor]
    n_projections: dict[str, int]


def run_power(
    simulation: Simulation,
    design: PowerDesign = FULL_POWER,
    n_members: int = 20,
    seed: int = 0,
    device: torch.device | str = "cpu",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Rejection rates, one row per scenario, pre-rank and N, with their standard errors.

    The cases are those of `run_simulation` with the same seed, and more. `on_progress(done, total)` is told after every
    block of every scenario.
    """
    _require_design(design, n_members, simulation)
    simulation = simulation.to(device, torch.get_default_dtype())
    diagnostics = power_diagnostics(simulation.n_targets)
    scenarios = list(simulation.scenarios)
    blocks = torch.arange(design.n_cases).split(design.block)
    found: list[list[_Block]] = [[] for _ in scenarios]
    for index, block in enumerate(blocks):
        noise = draw_noise(simulation, block, n_members, seed)
        wanted = math.ceil(design.repetitions / len(blocks))

        def work(place: int, noise: Noise = noise, wanted: int = wanted) -> _Block:
            return _block(simulation, scenarios[place], diagnostics, noise, design, wanted, seed)

        def take(place: int, result: _Block, index: int = index) -> None:
            found[place].append(result)
            on_progress(index * len(scenarios) + place + 1, len(blocks) * len(scenarios))

        in_threads(work, range(len(scenarios)), take, spread=simulation.covariance.device.type == "cpu")
    rows: list[dict[str, Any]] = []
    for scenario, parts in zip(scenarios, found, strict=True):
        for diagnostic in diagnostics:
            for size in design.sizes:
                labels = {
                    "simulation": simulation.name,
                    "scenario": scenario.name,
                    "error": scenario.error,
                    "form": scenario.form.value,
                    "prerank": diagnostic.name,
                    "source": diagnostic.source.value,
                }
                rows.append(labels | _rate(parts, diagnostic.name, size))
    return pd.DataFrame(rows).assign(level=LEVEL, n_members=n_members, n_targets=simulation.n_targets, seed=seed)


def _require_design(design: PowerDesign, n_members: int, simulation: Simulation) -> None:
    require_sizes(min(design.sizes), n_members, simulation)
    if max(design.sizes) > min(design.block, design.n_cases):
        raise ValueError(
            f"N = {max(design.sizes)} is larger than the {design.n_cases} cases in blocks of {design.block}; "
            "use smaller sizes, or more cases"
        )
    if design.repetitions < 1 or design.n_null < 19:
        raise ValueError(
            f"{design.repetitions} repetitions with {design.n_null} null replicates: at least 1 and 19 are needed"
        )


def _block(
    simulation: Simulation,
    scenario: Scenario,
    diagnostics: Sequence[Diagnostic],
    noise: Noise,
    design: PowerDesign,
    wanted: int,
    seed: int,
) -> _Block:
    statistics, p_values = {}, {}
    pits = scenario_pits(simulation, scenario, noise, diagnostics, seed)
    for (name, pit), size in product(pits.items(), design.sizes):
        n_sets = min(pit.n_cases // size, wanted)
        if n_sets:
            statistics[name, size], p_values[name, size] = _tests(pit, size, n_sets, design.n_null, seed)
    return _Block(statistics, p_values, {name: len(pit.names) for name, pit in pits.items()})


def _tests(pit: ProjectedPIT, size: int, n_sets: int, n_replicates: int, seed: int) -> tuple[Tensor, Tensor]:
    """Statistics and p-values of repetitions of `size` cases, (R,) each, a few repetitions at a time."""
    numbers = size * len(pit.names) * len(centred_levels())  # that the test of a repetition is made of
    tests = [
        pce_test(repetitions_of(pit, size, some), n_replicates=n_replicates, seed=seed)
        for some in chunks(n_sets, numbers, pit.device)
    ]
    return torch.cat([test.statistic[:, 0] for test in tests]).cpu(), torch.cat(
        [test.p_value[:, 0] for test in tests]
    ).cpu()


def repetitions_of(pit: ProjectedPIT, size: int, numbers: slice) -> ProjectedPIT:
    """The PITs of consecutive cases as repetitions of `size` cases, some of them, (N, K) -> (R, size, K)."""
    some = pit.select(slice(numbers.start * size, numbers.stop * size))
    return some.in_sets(numbers.stop - numbers.start)


def _rate(parts: Sequence[_Block], prerank: str, size: int) -> dict[str, Any]:
    """Rejection rate over all repetitions of a size, and the mean statistic."""
    cell = (prerank, size)
    found = [part for part in parts if cell in part.p_values]
    statistic, p_values = (
        torch.cat([values[cell] for values in several]).double()
        for several in ([part.statistics for part in found], [part.p_values for part in found])
    )
    rate = float((p_values <= LEVEL).double().mean())
    return {
        "n_projections": parts[0].n_projections[prerank],
        "n_cases": size,
        "repetitions": len(statistic),
        "rejection_rate": rate,
        "standard_error": math.sqrt(rate * (1 - rate) / len(statistic)),
        "mean_pce": float(statistic.mean()),
    }


def cases_needed(power: pd.DataFrame, wanted: float = 0.8) -> pd.DataFrame:
    """The smallest N at which the rejection rate reaches `wanted` and stays there, per scenario and pre-rank.

    Scenarios in rows, pre-ranks in columns, in the order of the records; NaN where no N of the study is enough.
    """

    def smallest(cell: pd.DataFrame) -> float:
        cell = cell.sort_values("n_cases")
        enough = (cell["rejection_rate"] >= wanted)[::-1].cummin()[::-1]
        return float(cell["n_cases"][enough].min()) if enough.any() else math.nan

    rows = power["scenario"].drop_duplicates()
    columns = power["prerank"].drop_duplicates()
    cells = {key: smallest(cell) for key, cell in power.groupby(["scenario", "prerank"])}
    return pd.DataFrame([[cells[row, column] for column in columns] for row in rows], index=rows, columns=columns)
