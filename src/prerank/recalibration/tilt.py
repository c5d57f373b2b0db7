"""The tilt: one convex fit along the PITs of all pre-ranks at once, kept only where it is supported and harmless."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._parameters import require_number, require_ridges, require_whole, require_yes_or_no
from prerank._wording import counted
from prerank.forecasts import Ensemble, Forecast, case_by_case, equally_weighted_draws
from prerank.forecasts.mixture import normal_as_mixture
from prerank.recalibration.basis import by_case, log_tilt
from prerank.recalibration.batching import over_parts
from prerank.recalibration.features import standardised
from prerank.recalibration.guard import Guard, Verdict
from prerank.recalibration.path import Candidate, Path, ridge_path
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.steps import NOT_SAVED, HeldOut
from prerank.recalibration.tilted import Tilted

N_BINS = 20
_FIRST_LOOK = 600  # draws of a pool
_WORTH = 400  # independent draws that a pool must be worth: with fewer a density is optimistic


@dataclass(frozen=True)
class Tilt:
    r"""Multiply the forecast's density by the exponential of a smooth function of its own PITs.

    $$f^*(y \mid x) \propto f(y \mid x) \exp \sum_{k} \sum_{j=1}^{J} \theta_{jk} b_j(Z_k(y; x)),$$

    Z_k the PITs of all projections of all pre-ranks under f, b_j orthonormal Legendre polynomials up to `degree`. The
    coefficients maximise the ranking likelihood of the observation among `n_draws` draws, less a ridge that grows with j².
    The ridge is chosen from `ridges` by cross-validation, the strongest within one standard error of the best, and no change
    competes.
    A fit is kept only if pools of draws keep an effective share of at least `least_effective_share`, if the energy score
    is and the log score are not worse by more than `errors` standard errors, and if the density's own calibration (HDR)
    is not clearly worse, all on folds that the fit has not seen; otherwise a stronger ridge is tried, and no change in
    the end. The corrected forecast is computed from `pool` draws of a case, or more where few of them count: as many as
    are worth 400, but at most ten times `pool`.

    With `by_features=True` coefficients are linear in the features that `fit` is given, and zero on their average: what is
    learnt is how the error depends on them. A low `degree` will do; a tilt without features comes after it.

    Weights cannot create support: a forecast that is far too narrow has to be widened first (`Affine`, `Dressing`).

    Parameters
    ----------
    degree : int, default 8
        The highest degree J of the polynomials, at most 50.
    n_draws : int, default 256
        Draws of a case that its observation is told apart from in the fit.
    n_reference : int, default 500
        Draws of a case that a point is ranked among where its PIT has no closed form.
    pool : int, default 2000
        Draws of a case that the corrected forecast is computed from, at least.
    ridges : tuple of float, default (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
        Strengths of the ridge to choose from, each of zero or more.
    least_effective_share : float, default 0.02
        The least effective share of a pool of draws, between 0 and 1.
    errors : float, default 2.0
        Standard errors by which a score may be worse.
    by_features : bool, default False
        Whether coefficients depend on the features.
    """

    degree: int = 8
    n_draws: int = 256
    n_reference: int = 500
    pool: int = 2000
    ridges: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
    least_effective_share: float = 0.02
    errors: float = 2.0
    by_features: bool = False

    def __post_init__(self) -> None:
        for name, most in (("degree", 50), ("n_draws", 100_000), ("n_reference", 100_000), ("pool", 1_000_000)):
            require_whole(getattr(self, name), name, at_most=most)
        require_ridges(self.ridges)
        require_number(self.least_effective_share, "least_effective_share", 0, 1)
        require_number(self.errors, "errors", at_least=0)
        require_yes_or_no(self.by_features, "by_features")

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedTilt":
        """Learn the coefficients from a forecast of held-out cases and their observations.

        Parameters
        ----------
        forecast : Distribution
            The forecast of the held-out cases.
        held_out : HeldOut
            Observations, weights, folds, pre-ranks and, with `by_features=True`, features.

        Returns
        -------
        FittedTilt
            What was learnt; if there is a tilt, with the tilted forecasts of the held-out cases by fits without their fold.

        Raises
        ------
        TypeError
            If the forecast is an `Ensemble`.
        ValueError
            If coefficients are to depend on features, and there are none.
        """
        law = _distribution(forecast)
        old = OldPITs(tuple(held_out.preranks), self.n_reference, held_out.seed)
        if self.by_features and held_out.features is None:
            raise ValueError("Tilt(by_features=True) needs features; pass fit(forecast, y, features=...)")
        if isinstance(law, Tilted):
            # most forecasts need no second tilt, and to see that takes smaller pools than to fit it
            pits = self.points(law.with_pool(min(_FIRST_LOOK, law.pool)), held_out, old)
            path = self._path(pits, held_out)
            if path.choice is None:
                return self._judged(law, held_out, old, pits, path)
            law.keep_pool()  # which the guard needs again
        pits = self.points(law, held_out, old)
        return self._judged(law, held_out, old, pits, self._path(pits, held_out))

    def _path(self, pits: Tensor, held_out: HeldOut) -> Path:
        features = held_out.features if self.by_features else None
        return ridge_path(pits, held_out.weights, held_out.folds, self.ridges, self.degree, features)

    def points(self, law: Distribution, held_out: HeldOut, old: OldPITs) -> Tensor:
        """PITs (N, M + 1, K) of the observations and of draws, the observation first, in single precision.

        Parameters
        ----------
        law : Distribution
            The forecast of the held-out cases.
        held_out : HeldOut
            Their observations, and the seed of the draws.
        old : OldPITs
            How PITs are computed.

        Returns
        -------
        Tensor, shape (n_cases, n_draws + 1, n_projections)
            PITs along the projections of all pre-ranks.
        """
        cases = torch.arange(len(held_out.y), device=held_out.y.device)
        values = (self.n_draws + 1) * 8 * law.event_shape[-1]
        if isinstance(law, Tilted):
            values = max(values, law.values_for_pits(self.n_draws + 1))

        def pits(some: slice, part: Distribution) -> Tensor:
            ids = cases[some]
            if isinstance(part, Tilted):
                drawn = part.draws_to_rank(held_out.y[some], self.n_draws, "draws of the tilt").members
            else:
                drawn = equally_weighted_draws(part, self.n_draws, held_out.seed, "draws of the tilt", ids).members
            points = torch.cat([held_out.y[some][:, None].to(drawn), drawn], 1)
            return old(part, points, ids).float()

        return torch.cat(over_parts(pits, law, values, held_out.y.device, spread=old.may_be_spread))

    def _judged(self, law: Distribution, held_out: HeldOut, old: OldPITs, pits: Tensor, path: Path) -> "FittedTilt":
        """The preferred candidate if it is harmless, or else the next more cautious one that is."""
        verdict, refused, chosen = Verdict(1.0, 0.0, 0.0, 0.0), False, None
        if path.choice is not None:
            guard = Guard.of(law, held_out, old)
            for place in range(path.choice, -1, -1):
                verdict = guard.verdict(path.candidates[place])
                if verdict.harmless(self.least_effective_share, self.errors):
                    chosen = path.candidates[place]
                    break
                refused = True
        gain, error, theta = 0.0, 0.0, torch.zeros(self.degree, pits.shape[-1], dtype=torch.float64)
        features = held_out.features if self.by_features else None
        if features is not None:
            theta = theta.expand(features.values.shape[1], *theta.shape).clone()
        if chosen is not None:
            (gain, error), theta = held_out.gain(chosen.gain), chosen.theta
        by = theta if features is None else by_case(theta.to(pits.device), features.values)
        out_of_fold = None
        if chosen is not None:
            out_of_fold = self._out_of_fold(law, held_out, old, chosen, verdict)
        exponent = log_tilt(pits, by)
        own = float((held_out.weights * torch.softmax(exponent, -1)[:, 0]).mean())
        shares = torch.softmax(exponent[:, 1:], -1)
        names = old.names(law)
        return FittedTilt(
            old.preranks,
            tuple((name, len(parts)) for name, parts in names.items()),
            theta,
            None if chosen is None else chosen.ridge,
            gain,
            error,
            verdict,
            refused,
            own,
            _density(pits[:, 0], held_out.weights),
            _density(pits[:, 1:].flatten(0, 1), (held_out.weights[:, None] * shares).flatten()),
            self.n_reference,
            self.pool,
            held_out.seed,
            None if features is None else features.centre,
            None if features is None else features.spread,
            out_of_fold,
        )

    def _out_of_fold(
        self, law: Distribution, held_out: HeldOut, old: OldPITs, chosen: Candidate, verdict: Verdict
    ) -> Tilted:
        """The tilted forecast of every case by coefficients that were fitted without its fold."""
        fold, without = held_out.folds.fold, chosen.without.to(held_out.y.device)
        if chosen.features is None:
            own = without[fold]
        else:
            own = torch.empty(len(fold), *without.shape[-2:]).to(without)
            for f, theta in enumerate(without):
                own[fold == f] = by_case(theta, chosen.features.values[fold == f])
        tilted = Tilted(law, old, own, self.pool, share=verdict.effective_share)
        return tilted.with_pool(tilted.pool_worth(_WORTH))


def _distribution(forecast: Forecast) -> Distribution:
    if isinstance(forecast, Ensemble):
        raise TypeError(
            f"Tilt() weights draws of a distribution, and the {forecast.n_members} members of an Ensemble cannot reach "
            "beyond themselves; put ErrorLaw() before it"
        )
    law = normal_as_mixture(forecast)
    assert isinstance(law, Distribution)
    return case_by_case(law)


def _density(pits: Tensor, weights: Tensor) -> Tensor:
    """Histogram density of PITs (n, K) with weights (n,): (K, bins)."""
    bins = (pits * N_BINS).long().clamp_(0, N_BINS - 1).mT
    result = torch.zeros(len(bins), N_BINS, dtype=torch.float64, device=pits.device)
    result.scatter_add_(1, bins, weights.double().expand(bins.shape))
    return result * N_BINS / weights.double().sum()


@dataclass(frozen=True, eq=False)
class FittedTilt:
    """Coefficients (J, K), the ridge (None: no change), the gain in nats per held-out case, and the guard's verdict.

    `groups` are the pre-ranks' names and numbers of projections; `observed` and `corrected` (K, bins) are densities of the
    old PITs, of the observations and under the corrected forecast. `own_weight` is the mean share of the observation among
    itself and the draws, weighted by the tilt: above 0.02, PITs with the observation's own weight hide error. A tilt by
    features has coefficients (L, J, K), and the `centre` and `spread` (L,) of the features.
    """

    preranks: tuple
    groups: tuple[tuple[str, int], ...]
    theta: Tensor
    ridge: float | None
    gain: float
    gain_error: float
    verdict: Verdict
    refused: bool
    own_weight: float
    observed: Tensor
    corrected: Tensor
    n_reference: int
    pool: int
    seed: int
    centre: Tensor | None = None
    spread: Tensor | None = None
    out_of_fold: Tilted | None = field(default=None, repr=False, metadata=NOT_SAVED)

    @property
    def changed(self) -> bool:
        return self.ridge is not None

    @property
    def n_features(self) -> int:
        """How many features it needs, 0 for none."""
        return 0 if self.centre is None else len(self.centre)

    def transform(self, forecast: Forecast, features: Tensor | None = None) -> Forecast:
        """The tilted forecast; `features` (N, L) as they were given to `fit`, in the same order."""
        law = _distribution(forecast)
        if not self.changed:
            return forecast
        old, theta = OldPITs(self.preranks, self.n_reference, self.seed), self.theta
        if self.centre is not None and self.spread is not None:
            assert features is not None
            theta = by_case(theta.to(features.device), standardised(features, self.centre, self.spread))
        tilted = Tilted(law, old, theta, self.pool, share=self.verdict.effective_share)
        return tilted.with_pool(tilted.pool_worth(_WORTH))

    def summary(self) -> str:
        names = ", ".join(name for name, _ in self.groups)
        tilt = f"tilt by {counted(self.n_features, 'feature')}" if self.n_features else "tilt"
        if not self.changed:
            why = "the held-out cases support no tilt"
            if self.refused:
                why = (
                    f"a tilt fits, but would do harm (effective size {self.verdict.effective_share:.1%} of a pool, energy "
                    f"score worse by {-self.verdict.gain:.3g} ± {self.verdict.gain_error:.2g}, log score better by "
                    f"{self.verdict.log_gain:.3g} ± {self.verdict.log_gain_error:.2g} nats)"
                )
            return f"{tilt}: nothing was changed along {names}; {why}"
        share, score, gain, error, *_ = self.verdict
        nats = f"{self.verdict.log_gain:.3g} ± {self.verdict.log_gain_error:.2g}"
        return (
            f"{tilt}: along {names} with ridge {self.ridge:g}; gain {self.gain:.4f} ± {self.gain_error:.4f} in the log "
            f"probability of picking the observation out of draws; log score better by {nats} nats per case; energy score "
            f"{score:.4g} before, gain {gain:.3g} ± {error:.2g}; effective size {share:.0%} of a pool"
        )
