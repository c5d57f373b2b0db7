"""What a recalibration is given: held-out cases to learn from, and forecasts of the same targets to correct."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank._wording import counted
from prerank.arrays.conversion import described, is_forecast
from prerank.arrays.labels import Axes
from prerank.forecasts import Ensemble
from prerank.inputs import Cases
from prerank.inputs.checks import require_members
from prerank.randomness import seeded

LARGEST = 1e100  # numbers whose squares are numbers still


class FittedOn(NamedTuple):
    """The targets that something was fitted on: how many, what they are called, and how many members an ensemble had.

    `members` are their names where each was learnt about by itself.
    """

    n_targets: int
    n_members: int | None = None
    names: tuple[str, ...] | None = None
    members: tuple[str, ...] | None = None

    @classmethod
    def of(cls, cases: Cases) -> "FittedOn":
        """Those of some cases; targets without labels have no names."""
        members = cases.forecast.n_members if isinstance(cases.forecast, Ensemble) else None
        return cls(cases.n_targets, members, None if cases.labels.targets is None else cases.names)

    def in_order(self, cases: Cases, who: str) -> Cases:
        """The same members in the order of the fit, by their names; others are refused. Without names position counts."""
        if self.members is None or cases.member_names is None or cases.member_names == self.members:
            return cases
        if set(cases.member_names) != set(self.members):
            raise ValueError(
                f"{who} was fitted on the members {_listed(self.members)}, each a model of its own, but the forecast has "
                f"{_listed(cases.member_names)}; give it the same members"
            )
        order = [cases.member_names.index(name) for name in self.members]
        ensemble = cases.law
        assert isinstance(ensemble, Ensemble)
        weights = None if ensemble.weights is None else ensemble.weights[:, order]
        ensemble = replace(ensemble, members=ensemble.members[:, order], weights=weights)
        return replace(cases, forecast=ensemble, member_names=self.members)

    def require(self, cases: Cases, who: str) -> None:
        """Refuse other targets than those that were fitted on, or the same in another order."""
        if cases.n_targets != self.n_targets:
            raise ValueError(
                f"{who} was fitted on {counted(self.n_targets, 'target')}, but the forecast is for {cases.n_targets}; "
                "give it a forecast of the same targets"
            )
        if self.names is None or cases.labels.targets is None or cases.names == self.names:
            return
        same = set(cases.names) == set(self.names)
        raise ValueError(
            f"{who} was fitted on the targets {_listed(self.names)}, but the forecast is for {_listed(cases.names)}; "
            + (
                "give it them in the order of the fit, for what it returns has no names"
                if same
                else "give it a forecast of the same targets"
            )
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def held_out_cases(
    forecast: Any,
    y: Any,
    axes: Axes | None = None,
    *,
    joint: str | Sequence[str] | None = None,
    member_names: Sequence[str] | None = None,
    at_least: int = 1,
) -> Cases:
    """Cases of one model with complete observations (N, D), checked; the forecast comes first, in X's place.

    Cases without an observation, or with fewer than two of several members, are left out, as notes say. Other members
    that are missing have no weight.
    """
    if is_forecast(y):
        raise TypeError(
            f"y is {described(y)}, which is a forecast: the order is fit(forecast, y), the forecast in the place of X"
        )
    cases = usable(Cases.of(y, forecast, axes, joint=joint).with_member_names(member_names).of_one_model())
    n_cases = len(cases.observed())
    if n_cases < at_least:
        raise ValueError(f"{n_cases} held-out cases; at least {at_least} are needed")
    return cases


def usable(cases: Cases) -> Cases:
    """Those of all cases that can be learnt from."""
    cases = _checked(cases.complete(fewest=2).without_gaps())
    require_sizes(cases.observed(), "y")
    return cases


def correctable(cases: Cases) -> Cases:
    """Those of all cases that can be corrected, without their observations."""
    return _checked(replace(cases, y=None, notes=()).complete().without_gaps())


def to_correct(
    forecast: Any,
    axes: Axes | None = None,
    fitted: FittedOn | None = None,
    who: str = "",
    *,
    joint: str | Sequence[str] | None = None,
    member_names: Sequence[str] | None = None,
) -> Cases:
    """Cases of one model that need no observations, checked, of the targets that `who` was fitted on.

    Members that are missing have no weight. Without observations nothing says which axis of an array is which, but for the
    members that there were in fit: an array that has as many first, and not second, is refused.
    """
    cases = Cases.unobserved(forecast, axes, joint=joint).with_member_names(member_names)
    shape = tuple(getattr(forecast, "shape", ()))
    found = getattr(cases.forecast, "members", None)
    if axes is None and fitted is not None and not is_forecast(forecast) and found is not None and found.shape == shape:
        _refuse_sample_first(shape, fitted.n_members)
    cases = cases.of_one_model().complete()
    gone = cases.index.n_given - len(cases.index.kept)
    if gone:
        raise ValueError(
            f"{gone:,} of {counted(cases.index.n_given, 'case')} have no member without a missing value; leave them out"
        )
    cases = _checked(cases.without_gaps())
    if fitted is not None:
        fitted.require(cases, who)
        cases = fitted.in_order(cases, who)
    return cases


def _checked(cases: Cases) -> Cases:
    """The same after members or draws that cannot be computed with have been refused."""
    forecast = cases.law
    if isinstance(forecast, Distribution):
        _require_draws(forecast)
        return cases
    require_members(forecast)
    require_sizes(forecast.members, "the forecast")
    return cases


def require_sizes(values: Tensor, what: str) -> None:
    """Refuse numbers whose squares are none, or are all zero."""
    largest = float(values.detach().abs().max()) if values.numel() else 0.0
    most = min(LARGEST, torch.finfo(values.dtype).max ** 0.5)
    if largest > most or 0.0 < largest < 1 / LARGEST:
        raise ValueError(
            f"the values of {what} go up to {largest:.3g}, and their squares cannot be computed with; rescale what is "
            f"forecast to between {1 / LARGEST:g} and {most:.3g}"
        )


def _require_draws(forecast: Distribution) -> None:
    """Refuse a distribution of torch's or another's whose draws are no numbers: its parameters are none."""
    if hasattr(forecast, "ensemble") or isinstance(forecast, MultivariateNormal):
        return
    try:
        with seeded(0, "one draw of each case"), torch.no_grad():
            drawn = forecast.sample()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{described(forecast)} cannot be drawn from ({str(error).splitlines()[0]}); look at its parameters"
        ) from None
    bad = ~drawn.isfinite().flatten(1).all(1) if drawn.ndim > 1 else ~drawn.isfinite()
    if bool(bad.any()):
        raise ValueError(
            f"draws of {described(forecast)} are NaN or infinite in {int(bad.sum())} of {len(bad)} cases; "
            "a forecast's parameters must be numbers"
        )


def _refuse_sample_first(shape: tuple[int, ...], n_members: int | None) -> None:
    if n_members is not None and len(shape) == 3 and shape[0] == n_members != shape[1]:
        raise ValueError(
            f"the forecast has shape {shape}, {shape[1]} members for each of {shape[0]} cases, and in fit there were "
            f'{n_members} members: it looks sample-first; pass axes=("member", "case", "target"), or '
            "Ensemble(forecast) if it is as it should be"
        )


def require_fitted(what: object, attribute: str) -> None:
    """Refuse to go on before `fit`, which sets the attribute."""
    if not hasattr(what, attribute):
        raise NotFittedError(
            f"{type(what).__name__} is not fitted yet; call fit(forecast, y) with held-out cases first"
        )
