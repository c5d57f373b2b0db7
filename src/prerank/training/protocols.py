"""The terms of a loss, a score and a penalty: what `fit` asks of them, and what it assumes where they say nothing.

Both are known by what they offer, never by their class. All that is optional is looked up by the functions below.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Protocol

import torch
from torch import Tensor

from prerank.forecasts import GaussianMixture

TAKEN_STREAMS = ("score", "validation", "batches")
"""Streams of random numbers that `fit` itself uses, under a run's seed."""


class ForecastSizes(Protocol):
    """What a penalty must know of a forecast to say how many random numbers it needs."""

    @property
    def n_targets(self) -> int:
        """Number of targets D."""

    @property
    def n_components(self) -> int:
        """Components of the mixture."""


class Penalty(Protocol):
    """What `fit` asks of a penalty: a hashable value with a `name` that can be called.

    It may also offer

    * `preranks`: the pre-ranks that it calibrates, by which `tune` then chooses its strength;
    * `parts()`: penalties whose mean it is, which a GPU works on at the same time;
    * `streams(sizes, n_cases)`: the random numbers of a step, a `Stream` for each name. They are given as
      `noise={name: numbers}`;
    * `capturable = True`: its steps may be replayed as a CUDA graph. It then runs on the device alone: it reads no
      value, keeps no tensor of an earlier step and takes random numbers from its streams.

    See Also
    --------
    PreRankPenalty : the paper's
    """

    @property
    def name(self) -> str:
        """A text by which it is told from others."""

    def __call__(self, y: Tensor, forecast: GaussianMixture, *, case_weights: Tensor) -> Tensor:
        """One value per model.

        Parameters
        ----------
        y : Tensor, shape (n_models, n_cases, n_targets)
            Observations of a minibatch.
        forecast : GaussianMixture
            Batch shape (n_models, n_cases).
        case_weights : Tensor, shape (n_models, n_cases)
            Weights of the cases, zero for those that only fill up the last minibatch.

        Returns
        -------
        Tensor, shape (n_models,)
            Penalties, differentiable.
        """


class Score(Protocol):
    """What `fit` asks of a score: one value for each case.

    With `n_draws` above zero it is also given `noise`, as many standard normal numbers (E, B, n_draws, D) for its
    draws. `capturable = True` means what it does for a `Penalty`.

    See Also
    --------
    NegativeLogLikelihood : the paper's
    EnergyScore : from draws
    """

    def __call__(self, y: Tensor, forecast: GaussianMixture) -> Tensor:
        """One value per model and case.

        Parameters
        ----------
        y : Tensor, shape (n_models, n_cases, n_targets)
            Observations of a minibatch.
        forecast : GaussianMixture
            Batch shape (n_models, n_cases).

        Returns
        -------
        Tensor, shape (n_models, n_cases)
            Scores, differentiable.
        """


@dataclass(frozen=True)
class SharedNumbers:
    """Random numbers of which model e uses those of `owner[e]`: models of one seed share theirs.

    Parameters
    ----------
    values : Tensor, shape (n_seeds, ...)
        The numbers of each seed.
    owner : Tensor of int, shape (n_models,)
        Whose numbers a model uses.
    """

    values: Tensor
    owner: Tensor

    @property
    def shape(self) -> torch.Size:
        """Shape of the values."""
        return self.values.shape

    def of_models(self) -> Tensor:
        """A copy for every model.

        Returns
        -------
        Tensor, shape (n_models, ...)
            The numbers.
        """
        return self.values[self.owner]


Numbers = Tensor | SharedNumbers


@dataclass(frozen=True)
class Stream:
    """Random numbers that a penalty uses at every step, the same for all models of one seed.

    Parameters
    ----------
    shape : tuple of int
        Shape of the numbers of one model.
    transform : callable, optional
        What is made of standard normal numbers; they are passed as they are if None.
    shared : bool, default False
        Whether the penalty takes `SharedNumbers` instead of a copy for each model.
    """

    shape: tuple[int, ...]
    transform: Callable[[Tensor], Tensor] | None = None
    shared: bool = False

    def made(self, normals: Tensor) -> Tensor:
        """Transform standard normal numbers.

        Parameters
        ----------
        normals : Tensor, shape (n_seeds, *shape)
            Standard normal numbers.

        Returns
        -------
        Tensor, shape (n_seeds, *shape)
            The numbers of the stream.
        """
        return normals if self.transform is None else self.transform(normals)

    def given(self, values: Tensor, owner: Tensor) -> Numbers:
        """The numbers the way the penalty takes them.

        Parameters
        ----------
        values : Tensor, shape (n_seeds, *shape)
            The numbers of each seed.
        owner : Tensor of int, shape (n_models,)
            Whose numbers a model uses.

        Returns
        -------
        Tensor, shape (n_models, *shape), or SharedNumbers
            What is passed as `noise`.
        """
        return SharedNumbers(values, owner) if self.shared else values[owner]


Streams = Mapping[str, Stream]


def parts_of(penalty: Penalty) -> Sequence[Penalty]:
    """What a penalty is the mean of: itself, unless it says otherwise."""
    parts = getattr(penalty, "parts", None)
    return [penalty] if parts is None else list(parts())


def streams_of(penalty: Penalty, sizes: ForecastSizes, n_cases: int) -> Streams:
    """The random numbers that a penalty uses: none, unless it says otherwise."""
    offered = getattr(penalty, "streams", None)
    streams: Streams = {} if offered is None else offered(sizes, n_cases)
    taken = [name for name in streams if name in TAKEN_STREAMS]
    if taken:
        raise ValueError(
            f"the penalty {penalty.name!r} has a stream called {taken[0]!r}, whose random numbers fit uses itself "
            f"({', '.join(TAKEN_STREAMS)}); give it another name"
        )
    return streams


def draws_of(score: Score) -> int:
    """How many draws a score uses: none, unless it says otherwise."""
    return int(getattr(score, "n_draws", 0))


def declares_capture(value: object, code: str = "__call__") -> bool:
    """Whether a value declares that it can be replayed as a CUDA graph; nobody else can know.

    The declaration counts for the code (the method of that name) that it was written with: a subclass that brings code
    of its own declares for itself.

    Parameters
    ----------
    value : object
        A penalty, a score or a pre-rank.
    code : str, default '__call__'
        The method that would be replayed.

    Returns
    -------
    bool
        Whether it declares `capturable = True` for this code.
    """
    kinds = type(value).__mro__
    declared = next((kind for kind in kinds if "capturable" in vars(kind)), None)
    written = next((kind for kind in kinds if code in vars(kind)), object)
    return declared is not None and issubclass(declared, written) and bool(value.capturable)  # type: ignore[attr-defined]


def values_of_score(score: Score, y: Tensor, forecast: GaussianMixture, noise: Tensor | None) -> Tensor:
    """Score of each case, (E, B)."""
    call: Any = score
    values = call(y, forecast) if noise is None else call(y, forecast, noise=noise)
    _require_shape(values, y.shape[:-1], f"the score {type(score).__name__}", "one value for each model and case")
    return values


def values_of_penalty(
    penalty: Penalty, y: Tensor, forecast: GaussianMixture, case_weights: Tensor, noise: Mapping[str, Numbers]
) -> Tensor:
    """Penalty of each model, (E,)."""
    call: Any = penalty
    more = {"noise": noise} if noise else {}
    values = call(y, forecast, case_weights=case_weights, **more)
    _require_shape(values, y.shape[:-2], f"the penalty {penalty.name!r}", "one value for each model")
    return values


def _require_shape(values: object, shape: torch.Size, whose: str, wanted: str) -> None:
    if not isinstance(values, Tensor) or values.shape != shape:
        found = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        raise ValueError(f"{whose} gave {found}; fit needs {wanted}, shape {tuple(shape)}")


def require_penalty(penalty: object) -> None:
    """Refuse what cannot be a penalty, before anything is trained."""
    if isinstance(penalty, type):
        raise TypeError(f"{penalty.__name__} is a class; pass a value, such as PreRankPenalty(Location())")
    if not callable(penalty):
        raise TypeError(f"{penalty!r} is not a penalty; pass PreRankPenalty(Location()), say")
    if not isinstance(getattr(penalty, "name", None), str):
        raise TypeError(f"{penalty!r} has no name; a penalty has a `name`, a text, by which it is told from others")
    try:
        hash(penalty)
    except TypeError:
        raise TypeError(
            f"the penalty {penalty.name!r} cannot be hashed, so runs that share it cannot be found; "  # type: ignore[attr-defined]
            "make it a frozen dataclass"
        ) from None
    if not _takes(penalty, "case_weights"):
        raise TypeError(
            f"the penalty {penalty.name!r} takes no case_weights, but the last minibatch is filled up with rows "  # type: ignore[attr-defined]
            "of weight zero; write __call__(self, y, forecast, case_weights) and weigh the cases by them"
        )


def require_score(score: object, what: str) -> None:
    """Refuse what cannot be a score, before anything is trained."""
    if isinstance(score, type):
        raise TypeError(f"{what}={score.__name__} is a class; pass a value, such as EnergyScore()")
    if not callable(score):
        raise TypeError(f"{what}={score!r} is not a score; pass NegativeLogLikelihood() or EnergyScore(), say")


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument of that name; where Python cannot tell, it is believed to."""
    try:
        known = signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in known or any(item.kind is Parameter.VAR_KEYWORD for item in known.values())
