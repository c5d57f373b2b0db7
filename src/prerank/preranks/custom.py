"""A pre-rank from any function of a point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays import as_tensor
from prerank.arrays.conversion import described
from prerank.forecasts import Forecast
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.selection import ComparedByContent
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of


@dataclass(frozen=True, eq=False)
class Custom(ComparedByContent, PreRank):
    """A pre-rank from any function of a point: (..., D) to (...) or (..., K). It sees what the function sees.

    The function is given torch tensors; one that can only work with NumPy arrays is given those, and cannot be trained
    with. It must treat every point alike, whatever stands beside it. With `per_case` it also sees the case: it is called
    with points (N, P, D) and the values of their cases, (N, 1) or (N, 1, L), which must not depend on the observations.

    Parameters
    ----------
    function : callable
        Takes points (..., n_targets) and gives one number (...) or several (..., n_projections) for each.
    name : str, default 'custom'
        What results call it.
    words : mapping of str to str, optional
        What a word of a reading says of the targets, such as {"biased high": "the highest of {targets} is overdone"}.
    per_case : array_like, shape (n_cases,) or (n_cases, n_features), optional
        What the function may know of each case: features, or the position by `numpy.arange(n_cases)`. `check` cuts it with
        the cases; nothing can be trained with it.

    Raises
    ------
    TypeError
        If `function` is a pre-rank already or no function.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> maximum = Custom(lambda y: y.amax(-1), name="maximum")
    >>> maximum.given(Ensemble(torch.zeros(4, 10, 3)))(torch.rand(4, 11, 3)).shape
    torch.Size([4, 11, 1])
    >>> import numpy as np
    >>> Custom(lambda y: np.median(y, axis=-1)).given(Ensemble(torch.zeros(4, 10, 3)))(torch.ones(4, 11, 3)).unique()
    tensor([1.])
    >>> early = Custom(lambda y, hour: torch.where(hour < 12, y[..., 0], y[..., 1]), per_case=[3, 15])
    >>> early.given(Ensemble(torch.zeros(2, 10, 2)))(torch.tensor([[[1.0, 2.0]], [[1.0, 2.0]]])).squeeze()
    tensor([1., 2.])
    """

    function: Callable[..., Any]
    name: str = "custom"
    words: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    per_case: Any = None

    def __post_init__(self) -> None:
        if hasattr(self.function, "given"):
            raise TypeError(f"Custom({self.function!r}): that is a pre-rank already; pass it as it is")
        if not callable(self.function):
            raise TypeError(
                f"Custom takes a function of a point, (..., D) -> (...), not {described(self.function)}; "
                "such as Custom(lambda y: y.amax(-1))"
            )
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"Custom(name={self.name!r}): the name in the table is a text, such as name='maximum'")
        if self.per_case is not None:
            values = as_tensor(self.per_case, "per_case")
            if values.ndim not in (1, 2) or not bool(values.isfinite().all()):
                raise ValueError(
                    f"{self.name}: per_case has shape {tuple(values.shape)}; finite numbers, (cases,) or (cases, features)"
                )
            object.__setattr__(self, "per_case", values)

    @property
    def trainable(self) -> bool:
        """Whether it can be trained with: what belongs to the cases would have to follow the minibatches."""
        return self.per_case is None

    def select(self, cases: Tensor | slice) -> "Custom":
        """The same for some of the cases.

        Parameters
        ----------
        cases : Tensor or slice
            Which of them.

        Returns
        -------
        Custom
            With what belongs to these cases.
        """
        if self.per_case is None:
            return self
        return replace(
            self, per_case=self.per_case[cases.to(self.per_case.device) if isinstance(cases, Tensor) else cases]
        )

    def given(self, view: View | Forecast) -> PointwiseProjection:
        view = view_of(view)
        n_cases = 1 if self.per_case is None else len(self.per_case)
        point = torch.zeros(n_cases, 1, view.n_targets, dtype=view.dtype, device=view.device)
        failed = []
        for by_numpy in (False, True):
            try:
                values = self._values(point, by_numpy)
                break
            except Exception as error:  # whatever a function written for NumPy raises when it meets a tensor
                failed.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no text'}")
        else:
            raise TypeError(
                f"{self.name}: the function takes neither a tensor ({failed[0]}) nor a NumPy array ({failed[1]}); "
                "it must map (..., D) to (...) or (..., K)"
            )
        width = self._per_point(values, point).shape[-1]
        names = (self.name,) if width == 1 else tuple(f"{self.name} {k + 1}" for k in range(width))
        return PointwiseProjection(lambda points: self._per_point(self._values(points, by_numpy), points), names)

    def _values(self, points: Tensor, by_numpy: bool) -> Tensor:
        if by_numpy and points.requires_grad:
            raise TypeError(
                f"{self.name}: the function works on NumPy arrays, which carry no gradient; "
                "write it with torch to train with it"
            )
        given = [points]
        if self.per_case is not None:
            if len(self.per_case) != points.shape[-3]:
                raise ValueError(
                    f"{self.name}: per_case of {len(self.per_case)} cases, got points of {points.shape[-3]}"
                )
            given.append(self.per_case[:, None].to(points.device))
        values = self.function(*(part.detach().cpu().numpy() if by_numpy else part for part in given))
        if not isinstance(values, Tensor | np.ndarray | np.generic):
            raise TypeError(f"it gave {described(values)} instead of an array")
        values = torch.as_tensor(values)
        # counts and truth values are ranked like numbers
        return values.to(points.device) if values.is_floating_point() else values.to(points)

    def _per_point(self, values: Tensor, points: Tensor) -> Tensor:
        if values.shape == points.shape[:-1]:
            return values[..., None]
        if values.shape[:-1] != points.shape[:-1]:
            raise ValueError(
                f"{self.name}: the function turned points of shape {tuple(points.shape)} into {tuple(values.shape)}; "
                f"it must map (..., D) to (...) or (..., K)"
            )
        return values


def call_only_ours(preranks: Sequence[object]) -> bool:
    """Whether pre-ranks call no code but this library's: that of others may not bear to be called by several threads.

    >>> call_only_ours([Custom(lambda y: y.amax(-1))])
    False
    """
    return all(
        type(item).__module__.partition(".")[0] == "prerank" and not isinstance(item, Custom) for item in preranks
    )
