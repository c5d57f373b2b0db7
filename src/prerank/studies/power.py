r"""How many cases a pre-rank needs to see a mistake: the rejection rate of the 5 % test against N.

The cases of a scenario are cut into repetitions of N; each repetition is one test. The null distribution of a single
projection is known. For several projections it comes from exchanging the observation with a member, as in `pce_test`;
since all cases of a scenario share one forecast, all its repetitions share one null sample, made from a few data sets
of the first cases. That costs a hundredth of a null sample for every repetition and gives the same test.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import ProjectedPIT, centred_levels, exchange_replicates, pce, pce_null
from prerank.parallel import in_threads
from prerank.studies.diagnostics import Diagnostic, has_several_projections, power_diagnostics
from prerank.studies.draws import Noise, draw_noise, scenario_pits
from prerank.studies.scenarios import Scenario, Simulation
from prerank.studies.simulation import require_sizes

LEVEL = 0.05
_ASYMPTOTIC = 800  # from here on the null distribution of sqrt(N) PCE no longer depends on N (see `_null_of_size`)
_NULL_SETS = 4  # data sets of the largest size that the null sample is made from


class PowerDesign(NamedTuple):
    """How large a power study is.

    `sizes` are the numbers of cases N, `n_cases` all cases of a scenario (so a size gets n_cases / N repetitions, at
    most `repetitions`), `n_null` the null sample of several projections, `block` the cases computed together.
    """

    sizes: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 2500, 10_000)
    n_cases: int = 100_000
    repetitions: int = 400
    n_null: int = 999
    block: int = 20_000


FULL_POWER = PowerDesign()
QUICK_POWER = PowerDesign(sizes=(50, 100, 200, 400), n_cases=4_000, repetitions=40, n_null=199, block=4_000)


class _Block(NamedTuple):
    """What one block of cases of one scenario gives: statistics per pre-rank and size, and null ones where needed."""

    statistics: dict[tuple[str, int], Tensor]
    null: dict[tuple[str, int], Tensor]
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

        def work(place: int, noise: Noise = noise, first: bool = index == 0, wanted: int = wanted) -> _Block:
            return _block(simulation, scenarios[place], diagnostics, noise, design, wanted, seed, with_null=first)

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
    with_null: bool,
) -> _Block:
    statistics, null, n_projections = {}, {}, {}
    pits = scenario_pits(simulation, scenario, noise, diagnostics, seed)
    for (name, pit), size in product(pits.items(), design.sizes):
        n_projections[name] = len(pit.names)
        sets = repetitions_of(pit, size, wanted)
        if sets is not None:
            statistics[name, size] = pce(sets).mean(-1).cpu()
    if with_null:
        several = [diagnostic for diagnostic in diagnostics if has_several_projections(diagnostic)]
        first = Noise(*(part[: _NULL_SETS * min(max(design.sizes), _ASYMPTOTIC)] for part in noise))
        pits = scenario_pits(simulation, scenario, first, several, seed, exchangeable=True)
        cells = product(pits.items(), design.sizes)
        null = {(name, size): _null_of_size(pit, size, design, seed) for (name, pit), size in cells}
    return _Block(statistics, null, n_projections)


def repetitions_of(pit: ProjectedPIT, size: int, at_most: int) -> ProjectedPIT | None:
    """The PITs of consecutive cases as repetitions of `size` cases, (N, K) -> (R, size, K); None where there are too few."""
    n_sets = min(pit.n_cases // size, at_most)
    return pit.select(slice(0, n_sets * size)).in_sets(n_sets) if n_sets else None


def _null_of_size(pit: ProjectedPIT, size: int, design: PowerDesign, seed: int) -> Tensor:
    """Statistics of data sets of `size` cases in which another point of each case plays the observation, sorted."""
    # sqrt(N) PCE has a limit law that it reaches to a tenth of a percent by N = 800: larger nulls are its, rescaled
    drawn = min(size, _ASYMPTOTIC)
    sets = repetitions_of(pit, drawn, 4 * _NULL_SETS)
    assert sets is not None
    replicates = math.ceil(design.n_null / sets.lead.numel())
    levels = centred_levels().to(pit.device)
    sample = exchange_replicates(sets, levels, replicates, seed=seed).pce.mean(-1).flatten()[: design.n_null]
    return sample.sort().values.cpu() * math.sqrt(drawn / size)


def _rate(parts: Sequence[_Block], prerank: str, size: int) -> dict[str, Any]:
    """Rejection rate over all repetitions of a size, and the mean statistic."""
    cell = (prerank, size)
    statistic = torch.cat([part.statistics[cell] for part in parts if cell in part.statistics]).numpy()
    null = parts[0].null.get(cell)
    if null is None:
        p_values = pce_null(size).p_value(statistic)
    else:
        above = len(null) - np.searchsorted(null.numpy(), statistic * (1 - 1e-9))
        p_values = (1.0 + above) / (len(null) + 1.0)
    rate = float((p_values <= LEVEL).mean())
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
