"""The grid of the paper's experiments as fleets: which models are trained, and which of them together."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prerank.preranks import HDR, PCA, Copula, Dependency, Location, Marginal, PreRank, Scale, SquaredDifference
from prerank.training import PAPER_STRENGTHS, Penalty
from prerank_paper.ablations import VARIANTS, trained_with, variant_penalty
from prerank_paper.protocols import AS_PUBLISHED, EXACT

PRERANKS = ("marginal", "location", "scale", "dependency", "PCA", "HDR", "copula")
"""The paper's seven, by name and in the order of its tables."""

SEVERAL = ("marginal", "PCA")
"""Those with a projection for each target."""

PROTOCOLS = (EXACT, AS_PUBLISHED)
NONE = "none"
TOGETHER = {"marginal + ALL": "marginal", "PCA + ALL": "PCA"}
"""Penalties on several pre-ranks at once: one of these two, and all that are neither of them, averaged."""

PUBLISHED_STRENGTH = 10.0
"""The strength of the paper's final tables, and of the penalties on several pre-ranks."""


@dataclass(frozen=True)
class Model:
    """One model of the grid. `training` is the protocol of its penalty, "none" for a baseline.

    Baselines of one seed may differ in the initialisation of their weights; all other models have initialisation 0.
    """

    training: str
    penalty: str
    strength: float
    seed: int
    initialisation: int = 0


@dataclass(frozen=True)
class Fleet:
    """Models of one dataset that are trained together: the unit of work, of resumption and of failure."""

    dataset: str
    trainings: tuple[str, ...]
    models: tuple[Model, ...]
    label: str = ""

    @property
    def training(self) -> str:
        return self.label or ("both" if len(self.trainings) > 1 else (*self.trainings, NONE)[0])

    @property
    def name(self) -> str:
        return f"{self.dataset}.{self.training.replace(' ', '-') if self.trainings else 'baseline'}"


@dataclass(frozen=True)
class Grid:
    """What is to be run: every pre-rank by every strength by every seed, a baseline per seed, in one or both protocols.

    Strength 0 is the baseline and is trained once for all. `together` adds the penalties on several pre-ranks. `joint`
    trains the models of both protocols in one fleet: quicker on a GPU, but its time cannot be told apart by protocol.
    Without a protocol there are baselines alone. Each seed has as many baselines as there are `initialisations`: tables
    take the first, the others show how far a result depends on where the training started.
    """

    datasets: tuple[str, ...]
    preranks: tuple[str, ...] = PRERANKS
    strengths: tuple[float, ...] = tuple(s for s in PAPER_STRENGTHS if s > 0)
    seeds: tuple[int, ...] = (0, 42, 866, 12, 4)
    protocols: tuple[str, ...] = PROTOCOLS
    together: bool = True
    joint: bool = False
    initialisations: int = 1

    def __post_init__(self) -> None:
        for what, given, known in (("pre-rank", self.preranks, PRERANKS), ("protocol", self.protocols, PROTOCOLS)):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ValueError(f"there is no {what} {unknown[0]!r}; known are {', '.join(known)}")
        named: dict[str, tuple[object, ...]] = {
            "dataset": self.datasets,
            "pre-rank": self.preranks,
            "strength": self.strengths,
            "seed": self.seeds,
            "protocol": self.protocols,
        }
        for what, values in named.items():
            if not values and what in ("dataset", "seed"):
                raise ValueError(f"no {what} to run: name at least one")
            if len(set(values)) < len(values):
                raise ValueError(f"a {what} is named twice in {', '.join(map(str, values))}")
        if self.initialisations < 1:
            raise ValueError(f"{self.initialisations} initialisations: each split has at least one baseline")
        if not all(0 < strength < math.inf for strength in self.strengths):
            raise ValueError("strengths are positive and finite; the baseline, strength 0, is always part of the grid")

    def fleets(self, n_targets: Mapping[str, int]) -> Iterator[Fleet]:
        """The fleets, dataset by dataset; `n_targets` says which pre-ranks a dataset has."""
        for dataset in self.datasets:
            numbers = range(self.initialisations)
            baselines = tuple(Model(NONE, NONE, 0.0, seed, number) for number in numbers for seed in self.seeds)
            parts = {protocol: tuple(self._penalised(protocol, n_targets[dataset])) for protocol in self.protocols}
            if self.joint or not self.protocols:
                yield Fleet(dataset, self.protocols, baselines + sum(parts.values(), ()))
                continue
            for number, (protocol, models) in enumerate(parts.items()):
                if number == 0 or models:  # a single target has few pre-ranks
                    yield Fleet(dataset, (protocol,), (baselines if number == 0 else ()) + models)

    def _penalised(self, protocol: str, n_targets: int) -> Iterator[Model]:
        known = preranks_of(n_targets, protocol)
        for prerank in self.preranks:
            if prerank in known:
                for strength in self.strengths:
                    yield from (Model(protocol, prerank, strength, seed) for seed in self.seeds)
        if self.together and set(self.preranks) == set(PRERANKS):
            for name in TOGETHER:
                yield from (Model(protocol, name, PUBLISHED_STRENGTH, seed) for seed in self.seeds)


@dataclass(frozen=True)
class Ablation:
    """Models between the protocols: every way to train of `prerank_paper.ablations` at one strength, and baselines.

    A fleet for each dataset, with all ways in it; evaluated and kept as a `Grid` is.
    """

    datasets: tuple[str, ...] = ("households", "air", "births2")
    preranks: tuple[str, ...] = PRERANKS
    seeds: tuple[int, ...] = (0, 42, 866, 12, 4)
    protocols: tuple[str, ...] = VARIANTS
    strength: float = PUBLISHED_STRENGTH

    def fleets(self, n_targets: Mapping[str, int]) -> Iterator[Fleet]:
        """One fleet for each dataset."""
        for dataset in self.datasets:
            baselines = [Model(NONE, NONE, 0.0, seed) for seed in self.seeds]
            penalised = [
                Model(variant, prerank, self.strength, seed)
                for variant in self.protocols
                for prerank in preranks_of(n_targets[dataset], variant)
                if prerank in self.preranks and trained_with(variant, prerank)
                for seed in self.seeds
            ]
            yield Fleet(dataset, self.protocols, (*baselines, *penalised), label="ablation")


def preranks_of(n_targets: int, protocol: str) -> dict[str, PreRank]:
    """The paper's pre-ranks that exist for so many targets, by name.

    The dependency of two targets is a monotone function of their scale: the exact protocol leaves it out, the published
    one has the squared difference in its place. A single target leaves marginal and HDR.

    >>> list(preranks_of(2, "exact"))
    ['marginal', 'location', 'scale', 'PCA', 'HDR', 'copula']
    """
    if n_targets == 1:
        return {"marginal": Marginal(), "HDR": HDR()}
    dependence: dict[str, PreRank] = {"dependency": Dependency()}
    if n_targets == 2:
        dependence = {} if protocol != AS_PUBLISHED else {"dependency": SquaredDifference(name="dependency")}
    found: dict[str, PreRank] = {"marginal": Marginal(), "location": Location(), "scale": Scale(), **dependence}
    return {**found, "PCA": PCA(), "HDR": HDR(), "copula": Copula()}


def penalty_of(model: Model, n_targets: int, n_draws: int = 100) -> Penalty | None:
    """The penalty that a model is trained with; None for a baseline."""
    if model.penalty == NONE:
        return None
    known = preranks_of(n_targets, model.training)
    chosen = tuple(known[name] for name in penalised_preranks(model.penalty, list(known)))
    return variant_penalty(model.training, chosen, n_draws)


def penalised_preranks(penalty: str, known: Sequence[str]) -> list[str]:
    """Names of the pre-ranks that a penalty is on, among the known ones."""
    if penalty == NONE:
        return []
    if penalty not in TOGETHER:
        return [penalty]
    left_out = set(TOGETHER.values()) - {TOGETHER[penalty]}
    return [name for name in known if name not in left_out]
