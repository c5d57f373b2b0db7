"""Some cases of any forecast, torch's own distributions among them, and draws of a case that do not depend on the others.

A distribution of torch's is made of parameters with an axis of cases, which its class names (`arg_constraints`), and of
other distributions. It is cut by making it anew from the same parameters of fewer cases. A class of someone else's may
hold more than it says, so it is cut only if it has a `select` of its own.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    ComposeTransform,
    Distribution,
    Independent,
    IndependentTransform,
    PowerTransform,
    Transform,
    TransformedDistribution,
    constraints,
)

from prerank.arrays.conversion import described
from prerank.forecasts.ensemble import Ensemble
from prerank.randomness import case_keys

Cases = Tensor | slice
_SAME_LAW = (("logits", "probs"), ("scale_tril", "covariance_matrix", "precision_matrix"))  # one of each says it all
_WITHOUT_PARAMETERS = ("ExpTransform", "SigmoidTransform", "TanhTransform", "SoftplusTransform", "AbsTransform")
_ACROSS_TARGETS = ("StickBreakingTransform", "SoftmaxTransform", "LowerCholeskyTransform", "CorrCholeskyTransform")


class CannotBeCut(TypeError):
    """A distribution of which some cases cannot be had by themselves."""

    def __init__(self, what: object) -> None:
        super().__init__(
            f"{described(what)} cannot be cut into cases; give its class a select(cases), or pass draws as an Ensemble"
        )


def select_cases(forecast: Any, cases: Cases) -> Any:
    """Some cases, the last axis of the batch, of any forecast.

    Parameters
    ----------
    forecast : Ensemble or Distribution
        One with a method `select`, or a distribution of torch's own.
    cases : Tensor or slice
        Positions of the cases.

    Returns
    -------
    Ensemble or Distribution
        A forecast of the same kind.

    Raises
    ------
    TypeError
        `CannotBeCut`, where that cannot be had.

    See Also
    --------
    can_be_cut : whether it works

    Examples
    --------
    >>> from torch.distributions import Independent, LogNormal
    >>> law = Independent(LogNormal(torch.zeros(5, 2), torch.ones(5, 2)), 1)
    >>> select_cases(law, slice(1, 3)).batch_shape
    torch.Size([2])
    """
    if hasattr(forecast, "select"):
        return forecast.select(cases)
    if not isinstance(forecast, Distribution) or not forecast.batch_shape:
        raise CannotBeCut(forecast)
    return _cut(forecast, cases, len(forecast.batch_shape) - 1)


def can_be_cut(forecast: Any) -> bool:
    """Whether `select_cases` works. One case is taken out to see it, which costs little.

    Parameters
    ----------
    forecast : object
        Any forecast.

    Returns
    -------
    bool
        True if some of its cases can be had by themselves.

    Examples
    --------
    >>> from torch.distributions import Dirichlet
    >>> can_be_cut(Dirichlet(torch.ones(5, 3)))
    True
    """
    if isinstance(forecast, CaseByCase):
        return True
    try:
        select_cases(forecast, slice(0, 1))
    except CannotBeCut:
        return False
    return True


def _cut(law: Distribution, cases: Cases, axis: int) -> Distribution:
    """A distribution of torch's with fewer cases, which lie along an axis of its batch counted from the front."""
    kind = type(law)
    if hasattr(law, "select") and axis == len(law.batch_shape) - 1:
        return law.select(cases)
    if not kind.__module__.startswith("torch.distributions"):
        raise CannotBeCut(law)
    cut: Distribution
    if isinstance(law, Independent):
        cut = Independent(_cut(law.base_dist, cases, axis), law.reinterpreted_batch_ndims, validate_args=False)
    elif isinstance(law, TransformedDistribution) and kind is TransformedDistribution:
        shape = law.batch_shape + law.event_shape
        parts = [_cut_transform(each, cases, axis, shape) for each in law.transforms]
        cut = TransformedDistribution(_cut(law.base_dist, cases, axis), parts, validate_args=False)
    else:
        cut = kind(**_parameters(law, cases, axis), validate_args=False)
    n_cases = len(torch.arange(law.batch_shape[axis])[cases.cpu() if isinstance(cases, Tensor) else cases])
    expected = (*law.batch_shape[:axis], n_cases, *law.batch_shape[axis + 1 :])
    if tuple(cut.batch_shape) != expected or cut.event_shape != law.event_shape:
        raise CannotBeCut(law)
    cut._validate_args = law._validate_args
    return cut


def _parameters(law: Distribution, cases: Cases, axis: int) -> dict[str, Any]:
    """What its class is called with, each parameter cut."""
    names = [name for name in inspect.signature(type(law).__init__).parameters if name not in ("self", "validate_args")]
    known = law.arg_constraints
    for same in _SAME_LAW:
        given = [name for name in same if name in names]
        if len(given) > 1:
            kept = _given(law, given)
            names = [name for name in names if name not in given or name == kept]
    found = {}
    for name in names:
        try:
            value = getattr(law, name)
        except (AttributeError, NotImplementedError):
            raise CannotBeCut(law) from None
        if isinstance(value, Distribution):
            value = _cut(value, cases, axis)
        elif isinstance(value, Tensor) and name in known:
            value = _cut_tensor(value, cases, axis, len(law.batch_shape) + _event_dim(known[name]))
        elif isinstance(value, Tensor) and value.ndim:
            raise CannotBeCut(law)
        found[name] = value
    return found


def _given(law: Distribution, names: Sequence[str]) -> str:
    """Which of several parameters that say the same a law was made with; the others are computed from it when asked for."""
    if "scale_tril" in names:
        return "scale_tril"  # whatever was given, this is what draws and densities are computed from
    there = [name for name in names if name in vars(law)]
    own = vars(law).get("_param")
    return next((name for name in there if vars(law)[name] is own), (there or list(names))[-1])


def _event_dim(constraint: Any) -> int:
    try:
        return int(constraint.event_dim)
    except NotImplementedError:
        return 0


def _cut_tensor(value: Tensor, cases: Cases, axis: int, n_axes: int) -> Tensor:
    """The cases of a parameter that is broadcast to so many axes; one that is the same for all cases stays."""
    place = axis - (n_axes - value.ndim)
    if place < 0 or value.shape[place] == 1:
        return value
    index = cases.to(value.device) if isinstance(cases, Tensor) else cases
    return value[(slice(None),) * place + (index,)]


def _cut_transform(transform: Transform, cases: Cases, axis: int, shape: Sequence[int]) -> Transform:
    """A transform of values of a shape, for some of the cases."""
    name, n_axes = type(transform).__name__, len(shape)
    if isinstance(transform, ComposeTransform):
        return ComposeTransform([_cut_transform(part, cases, axis, shape) for part in transform.parts])
    if isinstance(transform, IndependentTransform):
        inner = _cut_transform(transform.base_transform, cases, axis, shape)
        return IndependentTransform(inner, transform.reinterpreted_batch_ndims)
    own = {key: value for key, value in vars(transform).items() if isinstance(value, Tensor)}
    if isinstance(transform, AffineTransform):
        loc, scale = (
            _cut_tensor(part, cases, axis, n_axes) if isinstance(part, Tensor) else part
            for part in (transform.loc, transform.scale)
        )
        return AffineTransform(loc, scale, event_dim=transform.event_dim)
    if isinstance(transform, PowerTransform):
        return PowerTransform(_cut_tensor(transform.exponent, cases, axis, n_axes))
    if own or name not in _WITHOUT_PARAMETERS + _ACROSS_TARGETS:
        inverse = getattr(
            transform, "_inv", None
        )  # a weak reference, but in an inverse, whose class zuko gives another name
        if isinstance(inverse, Transform):
            return _cut_transform(inverse, cases, axis, shape).inv
        raise CannotBeCut(transform)
    return transform


class CaseByCase(Distribution):
    """The same distribution with `select` and with draws of a case that depend on (seed, stream, its identifier) alone.

    Draws are made one case after another, each under a generator of its own: some tenths of a millisecond for each.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(
        self, law: Distribution, places: Tensor | None = None, singles: dict[int, Distribution] | None = None
    ) -> None:
        self.law = law
        # each case by itself, cut out once for this forecast and for all parts of it
        self._places = torch.arange(law.batch_shape[-1]) if places is None else places
        self._singles = {} if singles is None else singles
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return repr(self.law)

    @property
    def support(self) -> Any:
        return self.law.support

    @property
    def mean(self) -> Tensor:
        return self.law.mean

    @property
    def variance(self) -> Tensor:
        return self.law.variance

    def log_prob(self, value: Tensor) -> Tensor:
        return self.law.log_prob(value)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.law.sample(torch.Size(sample_shape))

    def select(self, cases: Cases) -> "CaseByCase":
        """The same forecast for some of its cases."""
        places = self._places[cases.cpu() if isinstance(cases, Tensor) else cases]
        return CaseByCase(select_cases(self.law, cases), places, self._singles)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws (N, M, D), each case's under its own key."""
        n_cases = self.batch_shape[-1]
        ids = torch.arange(n_cases) if case_ids is None else case_ids.cpu()
        keys = case_keys(seed, ids, stream, "case by case").tolist()
        # a device that was never used holds no parameters, and torch.manual_seed would note the seed for it, slowly
        cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        drawn = []
        with torch.random.fork_rng(devices=cuda), torch.no_grad():
            for case, (place, key) in enumerate(zip(self._places.tolist(), keys, strict=True)):
                if place not in self._singles:
                    self._singles[place] = select_cases(self.law, slice(case, case + 1))
                torch.default_generator.manual_seed(key & ((1 << 63) - 1))
                if cuda:
                    torch.cuda.manual_seed_all(key & ((1 << 63) - 1))
                drawn.append(self._singles[place].sample(torch.Size((n_draws,)))[:, 0])
        return Ensemble(torch.stack(drawn))


def case_by_case(forecast: Distribution) -> Distribution:
    """A forecast whose draws of a case depend on that case alone, where it can be cut; otherwise as it is.

    A distribution that is built on others says by its own method `case_by_case` how they are to be treated.

    Parameters
    ----------
    forecast : torch.distributions.Distribution
        Batch shape (n_cases,), event shape (n_targets,).

    Returns
    -------
    torch.distributions.Distribution
        The same distribution.
    """
    if hasattr(forecast, "case_by_case"):
        return forecast.case_by_case()
    if hasattr(forecast, "ensemble") or len(forecast.batch_shape) != 1 or not can_be_cut(forecast):
        return forecast
    return CaseByCase(forecast)
