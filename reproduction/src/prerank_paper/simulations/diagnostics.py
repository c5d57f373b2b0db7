"""How a scenario is looked at: a pre-rank, what it learns the forecast from, and how its PIT is computed."""

from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank.calibration import EmpiricalRank, ProjectedPIT, RandomisedRank, projected_pit
from prerank.forecasts import Ensemble
from prerank.preranks import HDR, PCA, LinearProjection, PreRank, View, paper_preranks
from prerank.randomness import key, normal


class Source(Enum):
    """What the pre-rank takes directions, a density or a joint CDF from."""

    POOLED = "members pooled with the observation"
    KNOWN = "the forecast's known law"  # as it stands in the records
    OWN_MEMBERS = "the members that it ranks"


@dataclass(frozen=True)
class Diagnostic:
    """A pre-rank, its source, and the ranks it uses."""

    prerank: PreRank
    source: Source = Source.POOLED
    how: RandomisedRank | EmpiricalRank = field(default_factory=RandomisedRank)

    @property
    def name(self) -> str:
        return self.prerank.name

    def pit(
        self,
        members: Tensor,
        forecast: MultivariateNormal,
        y: Tensor,
        seed: int = 0,
        case_ids: Tensor | None = None,
    ) -> ProjectedPIT:
        """PITs of y (N, D) among members (N, M, D); `forecast` is the distribution that the members were drawn from."""
        reference = {Source.POOLED: None, Source.KNOWN: forecast, Source.OWN_MEMBERS: members}[self.source]
        return projected_pit(
            y,
            Ensemble(members, reference=reference),
            self.prerank,
            self.how,
            seed=seed,
            case_ids=case_ids,
        )


@dataclass(frozen=True)
class RandomDirections:
    r"""Fixed unit directions drawn uniformly at random, $\rho_k(y) = u_k^\top y$, as many as targets.

    The yardstick for PCA: the paper holds that principal directions see more than random ones. The directions depend on
    (`direction_seed`, D) alone and are common to all cases.
    """

    direction_seed: int = 0
    name: str = "random directions"

    def given(self, view: View) -> LinearProjection:
        targets = view.n_targets
        drawn = normal(key(self.direction_seed, "random directions", targets), (1, targets, targets))
        directions = drawn / drawn.square().sum(-2, keepdim=True).sqrt()
        names = tuple(f"direction {k + 1}" for k in range(targets))
        return LinearProjection(directions, names, "directions drawn uniformly from the sphere")


def exact_diagnostics(n_targets: int) -> tuple[Diagnostic, ...]:
    """The paper's seven pre-ranks with ranks that are exactly uniform for a true forecast.

    PCA and the copula learn from the members pooled with the observation, as for any bare ensemble; HDR knows the
    density; the other four need nothing of the forecast.
    """
    return tuple(
        Diagnostic(prerank, Source.KNOWN if isinstance(prerank, HDR) else Source.POOLED)
        for prerank in paper_preranks(n_targets)
    )


def published_diagnostics(n_targets: int) -> tuple[Diagnostic, ...]:
    """The same pre-ranks as the paper did it: members rank the projection that they shaped, not randomised."""
    return tuple(
        Diagnostic(prerank, Source.KNOWN if isinstance(prerank, HDR) else Source.OWN_MEMBERS, EmpiricalRank())
        for prerank in paper_preranks(n_targets)
    )


def power_diagnostics(n_targets: int) -> tuple[Diagnostic, ...]:
    """The exact seven, and two yardsticks for PCA: the principal directions of the known forecast, and random directions."""
    return (
        *exact_diagnostics(n_targets),
        Diagnostic(PCA(name="PCA, known law"), Source.KNOWN),
        Diagnostic(RandomDirections()),
    )


def join_cases(parts: list[ProjectedPIT]) -> ProjectedPIT:
    """PITs computed some cases at a time, put together again."""
    ends = list(accumulate(part.n_cases for part in parts))
    slices = [slice(end - part.n_cases, end) for part, end in zip(parts, ends, strict=True)]
    return ProjectedPIT.end_to_end(zip(slices, parts, strict=True), torch.cat([part.case_ids for part in parts]))
