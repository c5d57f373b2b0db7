r"""Joint prediction regions: where an observation will lie, with a probability that holds for any forecast.

The region of a case is a highest-density region of its forecast, $\{y : \log \hat f(y \mid x) \ge t(x)\}$: the smallest set
of its probability. The forecast may be wrong, so that probability is not taken at its word: held-out cases say how far
the regions have to reach so that a share `level` of observations lies inside (split conformal prediction with the
score of Izbicki, Shimizu and Stern 2022).

Izbicki, Shimizu and Stern (2022): CD-split and HPD-split: efficient conformal regions in high dimensions. Journal of Machine
Learning Research 23.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from scipy.stats import beta, betabinom
from torch import Tensor
from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank._parameters import require_real, require_whole
from prerank._progress import shown_if_slow
from prerank._wording import shape_in_words
from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays
from prerank.arrays.labels import Axes as AxisNames
from prerank.arrays.labels import Labels, label_text, positions
from prerank.forecasts import GaussianMixture, can_be_cut, case_by_case, equally_weighted_draws, select_cases
from prerank.inputs import Cases
from prerank.inputs.checks import require_observations
from prerank.recalibration.batching import over_drawn
from prerank.recalibration.densities import MOST_DRAWS, as_density, density_scale, log_density
from prerank.recalibration.held_out import FittedOn, held_out_cases, require_fitted, to_correct
from prerank.recalibration.tilted import Tilted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_CASES = 10_000_000  # beyond it a share is that of endless cases to all digits that matter


class Coverage(NamedTuple):
    """The coverage that is promised before any new case is seen: its mean, and an interval.

    Attributes
    ----------
    expected : float
        The mean of the share of observations inside.
    lower : float
        The lower end of an interval for that share.
    upper : float
        The upper end of the interval.
    """

    expected: float
    lower: float
    upper: float


class Volume(NamedTuple):
    """Volumes (N,) in the product of the targets' units, and their Monte Carlo standard errors (N,).

    Attributes
    ----------
    value : Tensor, shape (n_cases,)
        The volumes.
    error : Tensor, shape (n_cases,)
        Their standard errors.
    """

    value: Tensor
    error: Tensor


@dataclass(eq=False)
class HighestDensityRegions:
    r"""Highest-density regions that cover as promised, fitted on held-out cases.

    `fit(forecast, y)` takes cases that nothing else was fitted on: neither the model nor a recalibration. A region at
    `level` then contains a new observation with probability at least `level`, whatever is wrong with the forecast, if
    held-out and new cases are exchangeable (those of a series are not quite). A better forecast has smaller regions, not
    more coverage. Coverage is an average over cases: too high in some, too low in others, if the forecast is wrong.

    Every region has the same mass on the scale of its own forecast: the probability that the forecast gives to more
    probable outcomes, measured among `n_draws` draws, beyond them in nats of log density. Draws are made from the same
    random numbers in every case, held out or new, so that a mass is one function of forecast and observation: the promise
    then holds for every seed, and not only on average over seeds. A `GaussianMixture` and torch
    distributions with `log_prob` have their own density; an `Ensemble` is given the Gaussian kernel density of
    its members (Scott's rule per target). Ties of masses, as atoms make them, can only raise the coverage.

    Parameters
    ----------
    n_draws : int, default 1000
        Draws of every case among which masses are measured, at least two.
    seed : int, default 0
        Seed of the draws.

    Attributes
    ----------
    scores_ : Tensor, shape (n_held_out,)
        Sorted masses of the held-out observations: uniform on (0, 1) for a calibrated forecast, up to the error of `n_draws`
        draws.
    fitted_on_ : FittedOn
        Number and names of the targets, and number of the members, that it was fitted on.

    Examples
    --------
    >>> forecast = GaussianMixture(torch.zeros(99, 1), torch.zeros(99, 1, 2), torch.eye(2).expand(99, 1, 2, 2))
    >>> y = 2 * forecast.ensemble(1, seed=1).members[:, 0]  # the forecast is too narrow by a factor of two
    >>> region = HighestDensityRegions().fit(forecast, y).region(forecast, level=0.9)
    >>> region
    PredictionRegion(99 cases, 2 targets, level 0.9: covers 83.4 to 95.0 % of all cases with probability 95 %)
    >>> region.contains(torch.zeros(99, 2)).all()
    tensor(True)
    """

    n_draws: int = 1000
    seed: int = 0
    scores_: Tensor = field(init=False, repr=False)
    fitted_on_: FittedOn = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_least=2, at_most=MOST_DRAWS)
        require_whole(self.seed, "seed", at_least=None)

    @single_threaded()
    @torch.no_grad()
    def fit(self, forecast: Any, y: Any, *, axes: AxisNames | None = None) -> "HighestDensityRegions":
        """Measure where held-out observations (N, D) lie in the forecast of each case.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of held-out cases.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        HighestDensityRegions
            Itself.
        """
        cases = held_out_cases(forecast, y, axes)
        observed = cases.observed()
        law, stream = _alike(as_density(cases.law)), "regions"
        if not _keyed(law):
            stream = f"held-out regions {_digest(observed)}"
        with shown_if_slow("fitting regions"):
            scale = density_scale(law, self.n_draws, self.seed, stream, common=True)
        self.scores_ = scale.mass(log_density(law, observed[:, None, :]))[:, 0].sort().values
        self.fitted_on_ = FittedOn.of(cases)
        return self

    @single_threaded()
    @torch.no_grad()
    def region(self, forecast: Any, level: float, *, axes: AxisNames | None = None) -> "PredictionRegion":
        """The regions of new cases; `level` is the share of observations that they are to contain.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        level : float
            The share of observations, between 0 and 1.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        PredictionRegion
            A region for each case.

        Raises
        ------
        ValueError
            If it is not fitted yet, the forecast is of other targets, or there were too few held-out cases for the level.
        """
        require_fitted(self, "scores_")
        cases = to_correct(forecast, axes, self.fitted_on_, type(self).__name__)
        law, stream = _alike(as_density(cases.law)), "regions"
        if not _keyed(law):
            stream = f"new regions {_digest(self.scores_)}"
        mass, place = self._mass(level)
        with shown_if_slow("finding regions"):
            scale = density_scale(law, self.n_draws, self.seed, stream, common=True)
        names = self.fitted_on_.names if cases.labels.targets is None else cases.names
        labels = Labels(cases.labels.cases, _index(names))
        return PredictionRegion(law, level, scale.threshold(mass), mass, len(self.scores_), place, labels)

    def _mass(self, level: float) -> tuple[float, int]:
        """The mass that regions at a level must have, and its place among the held-out ones, from 1."""
        if not 0.0 < require_real(level, "level", "the share of observations to contain, such as 0.9") < 1.0:
            raise ValueError(f"level={level}: the share of observations to contain, between 0 and 1, such as 0.9")
        n_cases = len(self.scores_)
        place = math.ceil(round((n_cases + 1) * level, 9))  # 0.9 is not quite nine tenths
        if place > n_cases:
            needed = math.ceil(round(level / (1.0 - level), 9))
            raise ValueError(
                f"{n_cases} held-out cases cannot promise a coverage of {level:g}: at least {needed} are needed; "
                f"hold out more, or ask for a level of at most {math.floor(1e4 * n_cases / (n_cases + 1)) / 1e4:g}"
            )
        mass = float(self.scores_[place - 1])
        if math.isinf(mass):
            outside = int(self.scores_.isinf().sum())
            raise ValueError(
                f"{outside} of {n_cases} held-out observations have density zero under their forecast, so no region of it "
                f"covers {level:g}; ask for a level below {1 - outside / n_cases:.3g}, or pass draws as an Ensemble"
            )
        return mass, place


def _index(names: Sequence[str] | None) -> Any:
    """Names as labels."""
    if names is None:
        return None
    import pandas as pd  # which loads slowly

    return pd.Index(names)


def _alike(law: Distribution) -> Distribution:
    """A law whose draws and densities are the same function of the forecast in every case, in double precision.

    Held-out scores and a new one are exchangeable if each is the same function of its forecast and observation. Random
    numbers keyed by the place of a case would make a function of its own of every case.
    """
    if isinstance(law, Tilted):
        return law.named(torch.zeros_like(law.case_ids))
    if isinstance(law, GaussianMixture):
        return GaussianMixture(law.logits.double(), law.loc.double(), law.scale_tril.double())
    return case_by_case(law)


def _keyed(law: Distribution) -> bool:
    """Whether draws follow the names of cases; others differ by place, and must at least not be the same every time."""
    return hasattr(law, "ensemble") and can_be_cut(law)


def _digest(values: Tensor) -> str:
    """A name for data, as good as random: draws that belong to the data, where cases cannot have the same ones."""
    return hashlib.blake2b(values.double().cpu().numpy().tobytes(), digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class PredictionRegion:
    """The set of points whose log density is at least `threshold` (N,), one set for each case.

    `mass` is where the thresholds stand among the densities of the forecast's draws: near `level` for a calibrated
    forecast, above for one that is too narrow. `n_held_out` cases decided it, of which the `place`-th counted from the
    most probable is the edge.

    Attributes
    ----------
    forecast : Distribution
        The forecasts, of batch shape (n_cases,) and event shape (n_targets,).
    level : float
        The share of observations to contain.
    threshold : Tensor, shape (n_cases,)
        The least log density inside.
    mass : float
        The forecast probability of the region: below 0 or above 1 in nats of log density beyond all draws.
    n_held_out : int
        How many cases decided.
    place : int
        Which of them is the edge, counted from 1.
    labels : Labels
        Those of cases and targets.
    """

    forecast: Distribution
    level: float
    threshold: Tensor
    mass: float
    n_held_out: int
    place: int
    labels: Labels = field(default_factory=Labels)

    def __repr__(self) -> str:
        sizes = shape_in_words((), case=len(self.threshold), target=self.forecast.event_shape[-1])
        _, lower, upper = self.coverage()
        promise = f"covers {100 * lower:.1f} to {100 * upper:.1f} % of all cases with probability 95 %"
        return f"PredictionRegion({sizes}, level {self.level:g}: {promise})"

    @single_threaded()
    @accepts_arrays(labelled=("y",))
    @torch.no_grad()
    def contains(self, y: Any) -> Tensor:
        """Whether the region of each case contains its observation: y (N, D) -> (N,), in the order of y.

        Labels of cases and targets are matched with those of the forecast, where both have some.

        Parameters
        ----------
        y : array_like, shape (n_cases, n_targets)
            Observations, complete.

        Returns
        -------
        Tensor of bool, shape (n_cases,)
            Whether each is inside; an array of NumPy if y is no tensor.

        Raises
        ------
        ValueError
            If a value is missing, or cases or targets are others than those of the forecast.
        """
        given = Cases.of(y, self.forecast).of_one_model().require_complete()
        observed, known = given.observed(), given.labels.targets is not None
        cases = positions(self.labels.cases, given.labels.cases, "the forecast")
        targets = positions(self.labels.targets, _index(given.names) if known else None, "the forecast", "target")
        if targets is not None:
            observed = observed[:, torch.as_tensor(targets).argsort()]
        if cases is not None:
            observed = observed[torch.as_tensor(cases).argsort()]
        inside = log_density(self.forecast, observed[:, None, :])[:, 0] >= self.threshold
        return inside if cases is None else inside[torch.as_tensor(cases)]

    def coverage(self, n_cases: int | None = None, confidence: float = 0.95) -> Coverage:
        """The share of observations inside that is promised, over endless cases or over `n_cases` new ones.

        Without ties the coverage over endless cases is a beta variable with parameters `place` and `n_held_out` + 1 -
        `place`, through the chance in the held-out cases; the share among finitely many is beta-binomial. With ties it is
        at least as high.

        Parameters
        ----------
        n_cases : int, optional
            How many new cases; endless ones by default.
        confidence : float, default 0.95
            Probability of the interval, between 0 and 1.

        Returns
        -------
        Coverage
            The mean of the share, and the interval.
        """
        if not 0.0 < require_real(confidence, "confidence", "a probability between 0 and 1, such as 0.95") < 1.0:
            raise ValueError(f"confidence={confidence}: a probability between 0 and 1, such as 0.95")
        a, b = self.place, self.n_held_out + 1 - self.place
        shares, unit = (
            (beta(a, b), 1)
            if n_cases is None
            else (betabinom(require_whole(n_cases, "n_cases", at_most=_MOST_CASES), a, b), n_cases)
        )
        lower, upper = (float(shares.ppf(end)) / unit for end in ((1 - confidence) / 2, (1 + confidence) / 2))
        return Coverage(a / (a + b), lower, upper)

    @single_threaded()
    @torch.no_grad()
    def volume(self, n_draws: int = 1000, seed: int = 0) -> Volume:
        r"""Volume of each region by importance sampling, unbiased, with its standard error.

        For continuous targets. Half of the draws are the forecast's own, half come from Gaussians that reach as far as the
        region does, so no draw weighs more than 2 / exp(`threshold`).

        Parameters
        ----------
        n_draws : int, default 1000
            Draws of every case, of both kinds together.
        seed : int, default 0
            Seed of the draws.

        Returns
        -------
        Volume
            Volumes and their standard errors.
        """
        half = max(2, require_whole(n_draws, "n_draws", at_most=MOST_DRAWS) // 2)
        seed = require_whole(seed, "seed", at_least=None)

        def of(cases: slice, part: Distribution, ids: Tensor) -> Volume:
            threshold = self.threshold[cases, None]
            wide = _reaching(part, threshold, half, seed)
            means, variances = [], []
            for law, stream in ((part, "volume, own"), (wide, "volume, wide")):
                points = equally_weighted_draws(law, half, seed, stream, ids).members
                own, other = log_density(part, points).double(), log_density(wide, points.double())
                weight = torch.where(own >= threshold, math.log(2.0) - torch.logaddexp(own, other), -torch.inf).exp()
                means.append(weight.mean(-1))
                variances.append(weight.var(-1) / half)
            return Volume((means[0] + means[1]) / 2, (variances[0] + variances[1]).sqrt() / 2)

        values, errors = zip(*over_drawn(of, self.forecast, n_draws), strict=True)
        return Volume(torch.cat(values), torch.cat(errors))

    @single_threaded()
    @torch.no_grad()
    def plot(
        self,
        case: int = 0,
        y: Any = None,
        targets: tuple[int, int] = (0, 1),
        n_draws: int = 500,
        seed: int = 0,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Draw the region of one case.

        A region of one target is shaded below its density. Of two targets the edge is drawn among draws of the forecast. Of
        more targets two are chosen, and draws inside and outside the joint region are told apart by colour: inside and
        outside overlap then, since a region of many targets has no edge in two of them.

        Parameters
        ----------
        case : int, default 0
            Which case, by its position.
        y : array_like, shape (n_targets,), optional
            Its observation, to be drawn too.
        targets : tuple of int, default (0, 1)
            The two targets to draw, by position.
        n_draws : int, default 500
            Draws of the forecast to show.
        seed : int, default 0
            Of the draws.
        ax : matplotlib.axes.Axes, optional
            Where to draw; an axes of a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes; `axes.figure.savefig("region.png")` writes its figure.
        """
        from prerank.plotting.regions import interval_panel, region_panel

        law, threshold = self._of_case(case)
        n_targets = law.event_shape[-1]
        names = self._target_names(n_targets)
        observed = None if y is None else _observation(y, n_targets)
        n_draws = require_whole(n_draws, "n_draws", at_least=2, at_most=MOST_DRAWS)
        drawn = equally_weighted_draws(law, n_draws, require_whole(seed, "seed", at_least=None), "region's picture")
        points = drawn.members.double()
        title = (
            f"case {case if self.labels.cases is None else label_text(self.labels.cases[case])}, level {self.level:g}"
        )
        if n_targets == 1:
            x = _axis(points[0, :, 0], observed)
            density = log_density(law, x[None, :, None])[0].double()
            beyond, height = (density - threshold).cpu().numpy(), density.exp().cpu().numpy()
            value = None if observed is None else float(observed[0])
            return interval_panel(x.cpu().numpy(), beyond, height, names[0], value, ax, title)
        i, j = _two_of(targets, n_targets)
        inside = log_density(law, points)[0] >= threshold
        grid = None
        if n_targets == 2:
            x, z = (_axis(points[0, :, k], None if observed is None else observed[k : k + 1]) for k in (i, j))
            plane = torch.empty(1, len(z), len(x), 2, dtype=points.dtype, device=points.device)
            plane[..., i], plane[..., j] = x, z[:, None]
            found = (log_density(law, plane.flatten(1, 2)).double() - threshold).unflatten(1, plane.shape[1:3])[0]
            grid = (x.cpu().numpy(), z.cpu().numpy(), found.clamp_min(-1e6).cpu().numpy())
        seen = None if observed is None else observed[[i, j]].cpu().numpy()
        return region_panel(
            points[0][:, [i, j]].cpu().numpy(), inside.cpu().numpy(), (names[i], names[j]), seen, grid, ax, title
        )

    def _of_case(self, case: int) -> tuple[Distribution, Tensor]:
        """The forecast of one case, with batch shape (1,), and its threshold."""
        n_cases = len(self.threshold)
        place = require_whole(case, "case", at_least=None)
        if not -n_cases <= place < n_cases:
            raise ValueError(f"case={case}: there are {n_cases} cases, numbered from 0 to {n_cases - 1}")
        place %= n_cases
        return select_cases(self.forecast, slice(place, place + 1)), self.threshold[place].double()

    def _target_names(self, n_targets: int) -> list[str]:
        labels = self.labels.targets
        return [f"y{d + 1}" for d in range(n_targets)] if labels is None else [str(label) for label in labels]


def _observation(y: Any, n_targets: int) -> Tensor:
    """The observation (D,) of a single case."""
    observed = as_tensor(y, "y").double().flatten()
    if observed.shape != (n_targets,):
        raise ValueError(f"y has {observed.numel()} values; the observation of one case is {n_targets} numbers")
    require_observations(observed[None])
    return observed


def _two_of(targets: Any, n_targets: int) -> tuple[int, int]:
    """Positions of two different targets."""
    chosen = tuple(targets) if isinstance(targets, tuple | list) else ()
    if len(chosen) != 2 or len(set(chosen)) != 2 or not all(d in range(n_targets) for d in chosen):
        raise ValueError(f"targets={targets!r}: two different positions from 0 to {n_targets - 1}, such as (0, 1)")
    return int(chosen[0]), int(chosen[1])


def _axis(values: Tensor, observed: Tensor | None, n_points: int = 201) -> Tensor:
    """Values along a target that reach a little beyond draws and observation."""
    low, high = values.aminmax() if observed is None else torch.cat([values, observed.to(values)]).aminmax()
    room = 0.15 * (high - low) + 1e-9
    return torch.linspace(float(low - room), float(high + room), n_points, dtype=values.dtype, device=values.device)


def _reaching(forecast: Distribution, threshold: Tensor, n_draws: int, seed: int) -> GaussianMixture:
    r"""Gaussians whose draws fill the region: components scaled so that their typical draw lies at its edge.

    A Gaussian with peak p has log density p - r^2 / 2 at distance r, and draws of D targets scaled by s have r near
    $s \sqrt D$. Components count by the volume that they reach. A forecast that is no mixture is given one Gaussian with the
    moments of its draws.
    """
    if isinstance(forecast, GaussianMixture):
        log_weights, loc, tril = (part.double() for part in (forecast.log_weights, forecast.loc, forecast.scale_tril))
    else:
        # a tilted forecast has its moments from the pool of its normaliser
        known: Any = forecast
        if not isinstance(forecast, Tilted):
            known = equally_weighted_draws(forecast, n_draws, seed, "volume, moments")
        mean, covariance = known.mean, known.covariance_matrix.double()
        tiny = torch.finfo(mean.dtype).eps * covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(mean.shape[-1], dtype=covariance.dtype, device=covariance.device)
        tril = torch.linalg.cholesky(covariance + tiny[:, None, None] * eye)[:, None]
        loc = mean.double()[:, None]
        log_weights = torch.zeros_like(loc[..., 0])
    n_targets = loc.shape[-1]
    log_det = tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    peak = log_weights - log_det - 0.5 * n_targets * math.log(2 * math.pi)
    squared = 2.0 * (peak - threshold) / n_targets
    reached = squared > 0
    scale = torch.where(reached, squared, 1.0).sqrt()
    share = torch.where(reached, log_det + n_targets * scale.log(), -torch.inf)
    share = torch.where(reached.any(-1, keepdim=True), share, log_weights)
    return GaussianMixture(share, loc, tril * scale[..., None, None])
