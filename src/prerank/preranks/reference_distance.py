"""The distance from a reference point of each case, random or given (TARP)."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from prerank._reproducible_math import total
from prerank.arrays import as_tensor
from prerank.forecasts import Forecast
from prerank.preranks.columns import by_columns
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.selection import ComparedByContent
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of


@dataclass(frozen=True, eq=False)
class ReferenceDistance(ComparedByContent, PreRank):
    r"""The distance from a reference point of the case, $\rho(y) = |y - z|$ (TARP: tests of accuracy with random points).

    A posterior, or any joint forecast, is calibrated along the distance from every point z that does not depend on the
    outcome. Large means far from z. With random points, one per case, all errors are seen sooner or later; the reading
    does not say which error it is. With a point of your own (an operating point, the state of today) it asks how far the
    outcome is from there. Blind to what happens around z on spheres. Targets need comparable units.

    Without `points` each case gets one at random in the smallest box around its pooled members and observation, or around
    100 draws of a distribution, by the seed and the identifiers of the cases. It can be trained with these, or with one
    point for all cases.

    Parameters
    ----------
    points : array_like, shape (n_targets,) or (n_cases, n_targets), optional
        One reference point for all cases, or one for each; they must not depend on the observations.
    norm : {1, 2}, default 2
        Euclidean distance, or the sum of absolute differences.
    name : str, default 'reference distance'
        What results call it.

    References
    ----------
    Lemos, Coogan, Hezaveh and Perreault-Levasseur (2023), Sampling-based accuracy testing of posterior estimators for
    general inference, ICML.

    Examples
    --------
    >>> import torch
    >>> from prerank import Ensemble
    >>> ReferenceDistance(torch.tensor([3.0, 4.0])).given(Ensemble(torch.ones(1, 5, 2)))(torch.zeros(1, 1, 2))
    tensor([[[5.]]])
    """

    points: Any = None
    norm: int = 2
    name: str = "reference distance"

    def __post_init__(self) -> None:
        if self.norm not in (1, 2):
            raise ValueError(f"ReferenceDistance(norm={self.norm}): 1 or 2")
        if self.points is None:
            return
        points = as_tensor(self.points, "points")
        if points.ndim not in (1, 2) or not bool(points.isfinite().all()):
            raise ValueError(
                f"ReferenceDistance(points={tuple(points.shape)}): finite points, (targets,) or (cases, targets)"
            )
        object.__setattr__(self, "points", points)

    @property
    def trainable(self) -> bool:
        """Whether it can be trained with: a point for each case would have to follow the minibatches."""
        return self.points is None or self.points.ndim == 1

    def select(self, cases: Tensor | slice) -> "ReferenceDistance":
        """The same for some of the cases.

        Parameters
        ----------
        cases : Tensor or slice
            Which of them.

        Returns
        -------
        ReferenceDistance
            With the points of these cases.
        """
        if self.points is None or self.points.ndim == 1:
            return self
        return replace(self, points=self.points[cases.to(self.points.device) if isinstance(cases, Tensor) else cases])

    def in_units(self, divisor: Tensor) -> "ReferenceDistance":
        """The same for targets that are divided by numbers.

        Parameters
        ----------
        divisor : Tensor, shape (n_targets,)
            What each target is divided by.

        Returns
        -------
        ReferenceDistance
            With the points divided as well.
        """
        return self if self.points is None else replace(self, points=self.points / divisor.to(self.points))

    def given(self, view: View | Forecast) -> PointwiseProjection:
        view = view_of(view)
        if self.points is not None and self.points.shape[-1] != view.n_targets:
            raise ValueError(
                f"{self.name}: reference points of {self.points.shape[-1]} numbers for {view.n_targets} targets"
            )
        if self.points is None:
            box = view.draws("reference for a box", 100).members.detach()
            low, high = box.amin(-2), box.amax(-2)
            centres = low + view.uniform(self.name, low.shape[-2], view.n_targets).to(box) * (high - low)
            note = "from a random point for each case"
        else:
            centres, note = self.points, ""

        def distance(points: Tensor) -> Tensor:
            if centres.ndim == 2 and self.points is not None and len(centres) != points.shape[-3]:
                raise ValueError(
                    f"{self.name}: reference points for {len(centres)} cases, got {points.shape[-3]} cases"
                )
            from_there = points - (centres if centres.ndim == 1 else centres[..., None, :]).to(points)
            return by_columns(self._norm, from_there, points.shape[-1])[..., None]

        return PointwiseProjection(distance, ("distance",), note)

    def _norm(self, columns: Tensor) -> Tensor:
        return total(columns.abs(), 0) if self.norm == 1 else total(columns.square(), 0).sqrt()
