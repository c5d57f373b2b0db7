"""What is wrong with the forecast: the scenarios of Simulation 1 and Simulation 2."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank_paper.simulations.covariances import (
    distorted_structure,
    exponential_covariance,
    flipped_anisotropy,
    grid_locations,
    line_locations,
    scrambled_spectrum,
    stretched_covariance,
    with_variances_of,
)


class Form(Enum):
    """How a wrong covariance is built: as the paper writes it, or rescaled so that marginal variances really stay."""

    PAPER = "paper"
    VARIANCES_KEPT = "variances kept"


@dataclass(frozen=True, eq=False)
class Scenario:
    """A Gaussian forecast with something wrong: its mean (D,) and covariance (D, D), and words for it.

    `error` names what is wrong whatever the form; scenarios that differ in form share it.
    """

    error: str
    mean: Tensor
    covariance: Tensor
    form: Form = Form.PAPER

    @property
    def name(self) -> str:
        return self.error if self.form is Form.PAPER else f"{self.error}, {self.form.value}"

    def forecast(self) -> MultivariateNormal:
        """The forecast, with one batch entry that serves every case."""
        return MultivariateNormal(self.mean[None], scale_tril=torch.linalg.cholesky(self.covariance)[None])


@dataclass(frozen=True, eq=False)
class Simulation:
    """A Gaussian truth with mean zero and the forecasts that are compared with it."""

    name: str
    title: str
    covariance: Tensor
    scenarios: tuple[Scenario, ...]

    @property
    def n_targets(self) -> int:
        return len(self.covariance)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Simulation":
        """The same simulation on a device, in a floating type (covariances are built in double precision)."""
        moved = tuple(
            Scenario(s.error, s.mean.to(device, dtype), s.covariance.to(device, dtype), s.form) for s in self.scenarios
        )
        return Simulation(self.name, self.title, self.covariance.to(device, dtype), moved)


WELL_SPECIFIED = "well specified"
MEAN_UP, MEAN_DOWN = "mean +0.5", "mean −0.5"
VARIANCE_UP, VARIANCE_DOWN = "variance ×1.75", "variance ×0.25"
RANGE_SHORT, RANGE_LONG = "range 0.3", "range 1.7"
SCRAMBLE, STRUCTURE, FLIP = "PCA scramble", "PCA structure", "PC flip"
ANISOTROPY = "anisotropy ×5"
MEANS, VARIANCES, RANGES = (MEAN_UP, MEAN_DOWN), (VARIANCE_UP, VARIANCE_DOWN), (RANGE_SHORT, RANGE_LONG)
COMPONENTS = (SCRAMBLE, STRUCTURE, FLIP)
"""Mistakes by kind: what is wrong, in every size or direction."""


def gaussian_vector(n_targets: int = 10) -> Simulation:
    """Simulation 1: targets on a line, exponential correlation of range 1 (section 5.1.1).

    >>> [scenario.name for scenario in gaussian_vector().scenarios][:4]
    ['well specified', 'mean +0.5', 'mean −0.5', 'variance ×1.75']
    """
    locations = line_locations(n_targets)
    truth = exponential_covariance(locations)
    return Simulation(
        "simulation-1",
        f"Simulation 1: Gaussian vector, D = {n_targets}",
        truth,
        (*_moments(locations, truth), *_structures(truth)),
    )


def gaussian_field(n_rows: int = 5, n_columns: int = 5) -> Simulation:
    """Simulation 2: a Gaussian random field on a grid, exponential correlation of range 1 (section 5.1.2)."""
    locations = grid_locations(n_rows, n_columns)
    truth = exponential_covariance(locations)
    anisotropic = Scenario(ANISOTROPY, truth.new_zeros(len(truth)), stretched_covariance(locations))
    return Simulation(
        "simulation-2",
        f"Simulation 2: Gaussian random field, {n_rows} × {n_columns} grid",
        truth,
        (*_moments(locations, truth), anisotropic, *_structures(truth)),
    )


def _moments(locations: Tensor, truth: Tensor) -> tuple[Scenario, ...]:
    """Wrong mean, variance and correlation range, as in the paper's table of misspecifications."""
    centre = truth.new_zeros(len(truth))
    return (
        Scenario(WELL_SPECIFIED, centre, truth),
        Scenario(MEAN_UP, centre + 0.5, truth),
        Scenario(MEAN_DOWN, centre - 0.5, truth),
        Scenario(VARIANCE_UP, centre, 1.75 * truth),
        Scenario(VARIANCE_DOWN, centre, 0.25 * truth),
        Scenario(RANGE_SHORT, centre, exponential_covariance(locations, 0.3)),
        Scenario(RANGE_LONG, centre, exponential_covariance(locations, 1.7)),
    )


def _structures(truth: Tensor) -> tuple[Scenario, ...]:
    """Wrong eigenstructure with the default parameters, in the paper's form and with the marginal variances kept."""
    constructions: dict[str, Callable[[Tensor], Tensor]] = {
        SCRAMBLE: scrambled_spectrum,
        STRUCTURE: distorted_structure,
        FLIP: flipped_anisotropy,
    }
    centre = truth.new_zeros(len(truth))
    built = {error: construction(truth) for error, construction in constructions.items()}
    return tuple(Scenario(error, centre, covariance) for error, covariance in built.items()) + tuple(
        Scenario(error, centre, with_variances_of(covariance, truth), Form.VARIANCES_KEPT)
        for error, covariance in built.items()
    )
