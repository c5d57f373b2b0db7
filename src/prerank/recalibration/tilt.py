"""The tilt: one convex fit along the PITs of all pre-ranks at once, kept only where it is supported and harmless."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast import Ensemble, Forecast, equally_weighted_draws, require_whole
from prerank.recalibration.basis import log_tilt
from prerank.recalibration.guard import Guard, Verdict
from prerank.recalibration.oldpits import OldPITs, select, some_cases
from prerank.recalibration.path import Path, ridge_path
from prerank.recalibration.steps import HeldOut, as_mixture
from prerank.recalibration.tilted import Tilted

N_BINS = 20


@dataclass(frozen=True)
class Tilt:
    r"""Multiply the forecast's density by the exponential of a smooth function of its own PITs.

    $$f^*(y \mid x) \propto f(y \mid x) \exp \sum_{k} \sum_{j=1}^{J} \theta_{jk} b_j(Z_k(y; x)),$$

    Z_k the PITs of all projections of all pre-ranks under f, b_j orthonormal Legendre polynomials up to `degree`. The
    coefficients maximise the ranking likelihood of the observation among `n_draws` draws, less a ridge that grows with j².
    The ridge is chosen from `ridges` by cross-validation, the strongest within one standard error of the best, and no change
    competes.
    A fit is kept only if pools of draws keep an effective share of at least `least_effective_share`, and if the fair energy
    score of equally weighted draws is not worse by more than its standard error, both on folds that the fit has not seen;
    otherwise a stronger ridge is tried, and no change in the end.

    Weights cannot create support: a forecast that is far too narrow has to be widened first (`Affine`, `Dressing`).
    """

    degree: int = 8
    n_draws: int = 256
    n_reference: int = 500
    pool: int = 2000
    ridges: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
    least_effective_share: float = 0.02
    errors: float = 2.0

    def __post_init__(self) -> None:
        for name in ("degree", "n_draws", "n_reference", "pool"):
            require_whole(getattr(self, name), name)
        if not self.ridges or min(self.ridges) < 0:
            raise ValueError(f"ridges={self.ridges}: at least one, each of zero or more")

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedTilt":
        law = _distribution(forecast)
        old = OldPITs(tuple(held_out.preranks), self.n_reference, held_out.seed)
        pits = self.points(law, held_out, old)
        path = ridge_path(pits, held_out.weights, held_out.folds, self.ridges, self.degree)
        return self._judged(law, held_out, old, pits, path)

    def points(self, law: Distribution, held_out: HeldOut, old: OldPITs) -> Tensor:
        """PITs (N, M + 1, K) of the observations and of draws, the observation first, in single precision."""
        parts, cases = [], torch.arange(len(held_out.y), device=held_out.y.device)
        for some in some_cases(law, (self.n_draws + 1) * 8 * law.event_shape[-1], held_out.y.device):
            part, ids = select(law, some), cases[some]
            drawn = equally_weighted_draws(part, self.n_draws, held_out.seed, "draws of the tilt", ids).members
            points = torch.cat([held_out.y[some][:, None].to(drawn), drawn], 1)
            parts.append(old(part, points, ids).float())
        return torch.cat(parts)

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
        theta = torch.zeros(self.degree, pits.shape[-1], dtype=torch.float64) if chosen is None else chosen.theta
        gain, error = (0.0, 0.0) if chosen is None else held_out.gain(chosen.gain)
        exponent = log_tilt(pits, theta)
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
        )


def _distribution(forecast: Forecast) -> Distribution:
    if isinstance(forecast, Ensemble):
        raise TypeError(
            f"Tilt() weights draws of a distribution, and the {forecast.n_members} members of an Ensemble cannot reach "
            "beyond themselves; put Dressing() before it"
        )
    law = as_mixture(forecast)
    assert isinstance(law, Distribution)
    return law


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
    itself and the draws, weighted by the tilt: above 0.02, PITs with the observation's own weight hide error.
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

    @property
    def changed(self) -> bool:
        return self.ridge is not None

    def transform(self, forecast: Forecast) -> Forecast:
        law = _distribution(forecast)
        if not self.changed:
            return forecast
        old = OldPITs(self.preranks, self.n_reference, self.seed)
        return Tilted(law, old, self.theta, self.pool, share=self.verdict.effective_share)

    def summary(self) -> str:
        names = ", ".join(name for name, _ in self.groups)
        if not self.changed:
            why = "the held-out cases support no tilt"
            if self.refused:
                why = (
                    f"a tilt fits, but would do harm (effective size {self.verdict.effective_share:.1%} of a pool, energy "
                    f"score worse by {-self.verdict.gain:.3g} ± {self.verdict.gain_error:.2g})"
                )
            return f"tilt: nothing was changed along {names}; {why}"
        share, score, gain, error, *_ = self.verdict
        return (
            f"tilt: along {names} with ridge {self.ridge:g}; gain {self.gain:.4f} ± {self.gain_error:.4f} nats per case; "
            f"energy score {score:.4g} before, gain {gain:.3g} ± {error:.2g}; effective size {share:.0%} of a pool"
        )
