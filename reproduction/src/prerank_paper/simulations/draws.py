"""Observations and members of a simulation, the same noise for every scenario, some cases at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration import ProjectedPIT
from prerank.randomness import case_keys, normal
from prerank_paper.simulations.diagnostics import Diagnostic, join_cases
from prerank_paper.simulations.scenarios import Scenario, Simulation

CASES_AT_A_TIME = 1000  # small enough that temporaries stay in a core's cache, which is twice as fast


class Noise(NamedTuple):
    """Standard normal numbers of some cases: their ids (N,), for the observation (N, D), for the members (N, M, D)."""

    case_ids: Tensor
    observation: Tensor
    members: Tensor


def draw_noise(simulation: Simulation, case_ids: Tensor, n_members: int, seed: int) -> Noise:
    """Noise that depends on (seed, case) alone: scenarios differ in nothing but their mistake."""
    like, targets = simulation.covariance, simulation.n_targets
    ids = case_ids.to(like.device)
    observation = normal(case_keys(seed, ids, simulation.name, "observation"), (targets,), like.dtype)
    members = normal(case_keys(seed, ids, simulation.name, "members"), (n_members, targets), like.dtype)
    return Noise(ids, observation, members)


def scenario_pits(
    simulation: Simulation,
    scenario: Scenario,
    noise: Noise,
    diagnostics: Sequence[Diagnostic],
    seed: int,
) -> dict[str, ProjectedPIT]:
    """PITs of every diagnostic, by name."""
    forecast = scenario.forecast()
    true_factor = torch.linalg.cholesky(simulation.covariance)
    factor = torch.linalg.cholesky(scenario.covariance)
    parts: dict[str, list[ProjectedPIT]] = {diagnostic.name: [] for diagnostic in diagnostics}
    step = CASES_AT_A_TIME if noise.members.device.type == "cpu" else len(noise.case_ids)
    for start in range(0, len(noise.case_ids), step):
        cases = slice(start, start + step)
        y = noise.observation[cases] @ true_factor.mT
        members = scenario.mean + noise.members[cases] @ factor.mT
        for diagnostic in diagnostics:
            parts[diagnostic.name].append(diagnostic.pit(members, forecast, y, seed, noise.case_ids[cases]))
    return {name: join_cases(part) for name, part in parts.items()}
