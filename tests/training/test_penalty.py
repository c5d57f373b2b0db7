"""The penalty: calibrated at the truth, correct gradients, at home in anybody's loop, and clear about what it refuses."""

import re
from dataclasses import FrozenInstanceError, dataclass, field

import pytest
import torch
from torch import nn

from prerank.calibration import SmoothRank, pce_kde, smooth_pit
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.models import MixtureNetwork
from prerank.preranks import HDR, PCA, Contrast, Copula, Dependency, Location, Marginal, Scale, needs_of, paper_preranks
from prerank.preranks.projection import PointwiseProjection
from prerank.training import PreRankPenalty, SharedNumbers, Stream

SMOOTH = SmoothRank(temperature=3.0)  # gentle sigmoids, so that finite differences see the same slope as the gradient
SEVEN = [Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula()]


def parameters(cases=4, components=2, targets=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    raw = 0.4 * draw(cases, components, targets, targets).tril(-1)
    raw = raw + torch.diag_embed(0.5 + draw(cases, components, targets).abs())
    return draw(cases, components), draw(cases, components, targets), raw, draw(cases, targets)


def noise_for(penalty, law, cases, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(stream.shape, generator=generator, dtype=torch.float64)
        for name, stream in penalty.streams(law, cases).items()
    }


@pytest.mark.parametrize("prerank", [*SEVEN, Contrast()], ids=lambda prerank: prerank.name)
def test_gradients_reach_weights_means_and_factors_and_are_right(prerank, monkeypatch):
    """gradcheck with fixed noise. Spreads, bandwidths and directions are constants of a step by design (detached), so they
    are computed once and held while the parameters are moved; the allocation of draws is piecewise constant."""
    penalty = PreRankPenalty(prerank, temperature=10.0, n_levels=10, exponent=2, n_draws=8, rank=SMOOTH)
    logits, loc, factor, y = parameters()
    law = GaussianMixture(logits, loc, factor)
    noise = noise_for(penalty, law, 4)
    hold_constants(prerank, penalty, law, y, noise, monkeypatch)
    inputs = [tensor.clone().requires_grad_() for tensor in (logits, loc, factor)]

    def value(logits, loc, factor):
        return penalty(y, GaussianMixture(logits, loc, factor.tril()), noise=noise)

    gradients = torch.autograd.grad(value(*inputs), inputs)
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    assert torch.autograd.gradcheck(value, inputs, eps=1e-6, atol=1e-6, rtol=1e-4)


def hold_constants(prerank, penalty, law, y, noise, monkeypatch):
    """Whatever a step detaches keeps the value that it has at the starting point."""
    from prerank.calibration import smooth_rank as smoothrank
    from prerank.preranks import table1 as preranks
    from prerank.preranks import view as views

    def frozen(function):
        kept = []

        def held(*arguments, **more):
            if not kept:
                kept.append(function(*arguments, **more).detach())
            return kept[0]

        return held

    for module, name in ((smoothrank, "spread"), (views, "bandwidths"), (preranks, "principal_directions")):
        monkeypatch.setattr(module, name, frozen(getattr(module, name)))
    penalty(y, law, noise=noise)


@pytest.mark.parametrize("weights", [(0.2, 0.2, 0.2, 0.2, 0.2), (0.96, 0.01, 0.01, 0.01, 0.01)], ids=["even", "uneven"])
@pytest.mark.parametrize("n_targets", [2, 4])
def test_training_sees_a_true_forecast_as_calibrated(n_targets, weights, benchmark_script):
    """Below half the null level of a batch of 256, plus what 2,000 uniform PITs show by chance (99.9 % quantile)."""
    script = benchmark_script("calibration_of_training")
    law = script.mixtures(2000, n_targets, weights, distance=1.5)
    y = law.ensemble(1, seed=1, stream="truth").members[:, 0]
    chance = 1.1 / 2000**0.5  # the mean absolute Brownian bridge exceeds 1.1 with probability below 0.001
    for prerank in paper_preranks(n_targets):
        assert script.training_pce(prerank, law, y) < script.limit() + chance, prerank


@pytest.mark.parametrize("prerank", SEVEN, ids=lambda prerank: prerank.name)
def test_training_on_the_penalty_in_ones_own_loop_lowers_it(prerank):
    """A model that is too narrow by half is calibrated in three lines: forecast, penalty, backward."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 2, generator=generator)
    y = torch.randn(256, 3, generator=generator)

    class Spread(nn.Module):
        def __init__(self):
            super().__init__()
            self.raw = nn.Parameter(torch.full((3,), -0.7))
            self.mix = nn.Parameter(torch.tensor(0.0))

        def forward(self, x):
            factor = torch.diag_embed(self.raw.exp()) + self.mix * torch.ones(3, 3).tril(-1)
            return GaussianMixture(torch.zeros(len(x), 1), torch.zeros(len(x), 1, 3), factor.expand(len(x), 1, 3, 3))

    network, penalty = Spread(), PreRankPenalty(prerank, n_draws=30)
    with torch.no_grad():
        network.mix.fill_(0.3)
        before = float(penalty(y, network(x)))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    for step in range(60):
        optimiser.zero_grad()
        penalty(y, network(x), step=step).backward()
        optimiser.step()
    with torch.no_grad():
        after = float(penalty(y, network(x)))
    assert after < 0.5 * before


def test_it_takes_any_distribution_with_reparameterised_draws_and_members_with_gradients():
    loc = torch.zeros(50, 3, requires_grad=True)
    law = torch.distributions.MultivariateNormal(loc, torch.eye(3))
    # not all targets alike: such a vector is as dependent as can be, and no small change of the forecast outranks it
    y = 0.5 + torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    for prerank in SEVEN:
        (gradient,) = torch.autograd.grad(PreRankPenalty(prerank, n_draws=20)(y, law), loc)
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0, prerank
        members = Ensemble(law.rsample((20,)).movedim(0, -2))
        (gradient,) = torch.autograd.grad(PreRankPenalty(prerank)(y, members), loc)
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0, prerank


def test_silent_zero_gradients_are_refused():
    y = torch.zeros(10, 2)
    parts = torch.distributions.MultivariateNormal(torch.zeros(10, 2, 2, requires_grad=True), torch.eye(2))
    mixture = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=torch.zeros(10, 2)), parts)
    with pytest.raises(TypeError, match=r"MixtureSameFamily has no reparameterised draws .*use GaussianMixture"):
        PreRankPenalty(Location())(y, mixture)
    members = torch.randn(10, 8, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(TypeError, match=r"members carry no gradient.*draw them with rsample"):
        PreRankPenalty(Location())(y, Ensemble(members))
    with torch.no_grad():  # where nobody asked for a gradient, none is missing
        assert PreRankPenalty(Location())(y, Ensemble(members)) >= 0
    with pytest.raises(ValueError, match=r"3 members are too few to rank some and learn from others; draw 4 or more"):
        PreRankPenalty(Location())(y, Ensemble(members[:, :3].clone().requires_grad_()))


@pytest.mark.parametrize(
    ("preranks", "ranks", "learns"),
    [
        ((Marginal(), Location(), PCA(), Contrast()), False, False),  # closed forms
        (Scale(), True, False),
        ((Location(), Dependency()), True, False),
        (HDR(), True, False),
        (Copula(), True, True),
        ((Copula(), Location()), True, True),
    ],
)
def test_random_numbers_are_asked_for_only_where_they_are_used(preranks, ranks, learns):
    penalty = PreRankPenalty(preranks, n_draws=12)
    law = GaussianMixture(*parameters(cases=5)[:3])
    wanted = [name for name, needed in (("ranked", ranks), ("learnt", learns)) if needed]
    assert penalty.streams(law, 5) == dict.fromkeys(wanted, Stream((5, 12, 3), shared=True))
    # what is asked for is enough, and given in place of the keyed numbers it decides the value
    y = parameters(cases=5)[3]
    noise, others = noise_for(penalty, law, 5), noise_for(penalty, law, 5, seed=2)
    value = penalty(y, law, seed=1, noise=noise)
    assert penalty(y, law, seed=2, noise=noise) == value
    assert (penalty(y, law, noise=others) != value) == ranks
    if learns:
        assert penalty(y, law, noise={"ranked": noise["ranked"], "learnt": others["learnt"]}) != value


@pytest.mark.parametrize("shared", [("ranked", "learnt"), ("learnt",)], ids="+".join)
def test_numbers_that_models_share_are_those_of_a_copy_for_each(shared):
    penalty = PreRankPenalty(Copula(), n_draws=12)
    laws = [parameters(cases=5, seed=seed) for seed in range(3)]
    law, y = GaussianMixture(*(torch.stack(parts) for parts in list(zip(*laws, strict=True))[:3])), laws[0][3]
    sets = [noise_for(penalty, law, 5, seed) for seed in (1, 2)]
    owner = torch.tensor([1, 0, 1])
    common = {name: SharedNumbers(torch.stack([each[name] for each in sets]), owner) for name in ("ranked", "learnt")}
    given = {name: part if name in shared else part.of_models() for name, part in common.items()}
    found = penalty(y.expand(3, 5, 3), law, noise=given)
    alone = [penalty(y, GaussianMixture(*laws[e][:3]), noise=sets[owner[e]]) for e in range(3)]
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-12, atol=0)


def test_a_penalty_in_single_precision_stays_there_whatever_torchs_default():
    logits, loc, factor, y = (part.float() for part in parameters(cases=5))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        value = PreRankPenalty(tuple(SEVEN), n_draws=12)(y, GaussianMixture(logits, loc, factor))
    finally:
        torch.set_default_dtype(before)
    assert value.dtype == torch.float32


def test_without_a_seed_or_step_both_are_zero():
    *parts, y = parameters(cases=5)
    law, penalty = GaussianMixture(*parts), PreRankPenalty((Scale(), Copula()), n_draws=12)
    assert penalty(y, law) == penalty(y, law, seed=0, step=0)
    for ours, theirs in zip(penalty.pits(y, law), penalty.pits(y, law, seed=0, step=0), strict=True):
        assert torch.equal(ours, theirs)


def test_settings_are_the_papers_unless_said_otherwise():
    penalty = PreRankPenalty(Location())
    assert (penalty.temperature, penalty.n_levels, penalty.exponent, penalty.n_draws) == (100.0, 100, 1, 100)
    assert (penalty.rank.temperature, penalty.rank.relative) == (100.0, True)
    smallest = PreRankPenalty(Location(), temperature=1e-3, n_levels=2, exponent=1, n_draws=2)
    assert (smallest.n_levels, smallest.n_draws) == (2, 2)


@dataclass(frozen=True)
class Watched(Copula):
    """A copula that tells which points it learnt from and which it was asked to project."""

    learnt: list = field(default_factory=list, compare=False)
    ranked: list = field(default_factory=list, compare=False)

    def given(self, view):
        projection = super().given(view)
        self.learnt.append(view.draws("any", 10).members.detach())

        def watched(points):
            self.ranked.append(points[..., 1:, :].detach())  # the observation comes first
            return projection(points)

        return PointwiseProjection(watched, projection.names)


def forecasts_to_learn_from():
    logits, loc, factor, _ = parameters(cases=6)
    normals = torch.distributions.MultivariateNormal(loc[:, 0].clone().requires_grad_(), scale_tril=factor[:, 0])
    members = torch.randn(6, 21, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    return {"mixture": GaussianMixture(logits, loc, factor), "another law": normals, "members": Ensemble(members)}


@pytest.mark.parametrize("kind", ["mixture", "members"])
def test_a_prerank_never_learns_from_the_draws_that_it_ranks(kind):
    """Decision 2, in training: a draw that shaped its own projection is not exchangeable with the observation."""
    forecast, y = forecasts_to_learn_from()[kind], parameters(cases=6)[3]
    watched = Watched()
    needs_of(watched, 3)  # which looks at a forecast of its own
    watched.learnt.clear(), watched.ranked.clear()
    PreRankPenalty((Scale(), watched), n_draws=10)(y, forecast, seed=1, step=2)
    (learnt,), (ranked,) = watched.learnt, watched.ranked
    assert (ranked.shape, learnt.shape) == ((6, 10, 3), (6, 11 if kind == "members" else 10, 3))
    # points of continuous laws: a coordinate that occurs on both sides is the same draw
    assert not torch.isin(learnt, ranked).any()
    if kind == "members":  # between them the two halves are everybody
        together = torch.cat([ranked, learnt], -2)
        torch.testing.assert_close(together, forecast.members.detach(), rtol=0, atol=0)


def test_of_another_law_a_prerank_learns_from_the_draws_pooled_with_the_observation():
    """Decision 40: the observation is one of the points, so under calibration it is exchangeable with the others."""
    forecast, y = forecasts_to_learn_from()["another law"], parameters(cases=6)[3]
    watched = Watched()
    needs_of(watched, 3)
    watched.learnt.clear(), watched.ranked.clear()
    PreRankPenalty((Scale(), watched), n_draws=10)(y, forecast, seed=1, step=2)
    (learnt,), (ranked,) = watched.learnt, watched.ranked
    torch.testing.assert_close(learnt, torch.cat([y[:, None], ranked], -2), rtol=0, atol=0)


class Flow(torch.distributions.Distribution):
    """A law as flows are: it has `rsample` and `log_prob`, says nothing of its moments, and counts how often it is drawn."""

    arg_constraints = {}  # noqa: RUF012
    has_rsample = True

    def __init__(self, loc):
        self.base, self.calls = torch.distributions.Independent(torch.distributions.Normal(loc, 1.0), 1), []
        super().__init__(self.base.batch_shape, self.base.event_shape, validate_args=False)

    def rsample(self, sample_shape=()):
        self.calls.append(tuple(sample_shape))
        return self.base.rsample(sample_shape).sinh()

    def log_prob(self, value):
        back = value.asinh()
        return self.base.log_prob(back) - 0.5 * (1 + value.square()).log().sum(-1)


@pytest.mark.parametrize("preranks", [(PCA(),), (PCA(), Marginal(), Copula(), Scale(), HDR())], ids=["PCA", "several"])
def test_a_flow_is_drawn_once_in_a_step_and_every_pre_rank_has_a_gradient(preranks):
    loc = torch.zeros(40, 3, requires_grad=True)
    law, y = Flow(loc), torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(PreRankPenalty(preranks, n_draws=16)(y, law), loc)
    assert law.calls == [(16,)]
    assert gradient.abs().max() > 0
    with torch.no_grad():
        assert not PreRankPenalty(preranks, n_draws=16)(y, Flow(loc)).requires_grad


def test_a_true_flow_is_calibrated_in_training_along_directions_of_the_pooled_draws():
    """Mean and variance are those of ranks among 20 draws: directions that are learnt with them do not favour the draws."""
    loc = torch.zeros(4000, 3)
    law = Flow(loc)
    y = law.rsample().detach()
    for pit in PreRankPenalty((PCA(), Copula()), n_draws=20).pits(y, law):
        deviation = pit.double() - 0.5
        assert deviation.mean(0).abs().max() < 4.5 * (1 / 12 / 4000) ** 0.5
        # k / 20 with k uniform on 0, ..., 20 has the variance of a uniform number times 22 / 20
        error = 12 * (1 / 180 / 4000) ** 0.5
        assert (12 * deviation.square().mean(0) - 22 / 20).abs().max() < 4.5 * error


def test_members_are_halved_with_their_weights():
    """The first half is ranked: a member without weight there counts for nothing."""
    generator = torch.Generator().manual_seed(2)
    members = torch.randn(6, 8, 3, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.rand(6, 8, generator=generator, dtype=torch.float64)
    weights[:, 3] = 0.0
    y = torch.zeros(6, 3, dtype=torch.float64)
    (pit,) = PreRankPenalty(Scale()).pits(y, Ensemble(members, weights))
    few = Ensemble(members[:, :3], weights[:, :3])
    torch.testing.assert_close(pit, smooth_pit(y, few, Scale().given(few), SmoothRank()), rtol=0, atol=1e-12)


def test_what_is_not_a_prerank_or_a_sound_setting_is_refused():
    with pytest.raises(TypeError, match=r"^'marginal' is not a pre-rank; pass a value such as Location\(\)"):
        PreRankPenalty("marginal")
    with pytest.raises(TypeError, match=r"Location is a class; pass Location\(\)"):
        PreRankPenalty(Location)
    with pytest.raises(TypeError, match=r"3 is not a pre-rank"):
        PreRankPenalty((Location(), 3))
    with pytest.raises(ValueError, match=r"at least one pre-rank"):
        PreRankPenalty(())
    with pytest.raises(ValueError, match=r"temperature=0"):
        PreRankPenalty(Location(), temperature=0)
    with pytest.raises(ValueError, match=r"exponent=0"):
        PreRankPenalty(Location(), exponent=0)
    with pytest.raises(ValueError, match=r"n_levels=1, n_draws=100"):
        PreRankPenalty(Location(), n_levels=1)


def test_random_numbers_under_names_that_nobody_reads_are_refused():
    """Keyed ones would be used in their place, without a word."""
    *parts, y = parameters(cases=5)
    law, numbers = GaussianMixture(*parts), torch.zeros(5, 12, 3, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"noise is \['draws'\]; pass numbers by name, noise=\{\"ranked\": "):
        PreRankPenalty(Scale(), n_draws=12)(y, law, noise={"draws": numbers})
    with pytest.raises(TypeError, match=r"noise is a tuple; pass numbers by name"):
        PreRankPenalty(Scale(), n_draws=12)(y, law, noise=(numbers, None))


def test_several_models_at_once_are_those_models_one_by_one():
    network = MixtureNetwork(2, 3, 2, (8,), seeds=[0, 1, 2], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(20, size, generator=generator, dtype=torch.float64) for size in (2, 3))
    laws, penalty = network(x), PreRankPenalty(tuple(SEVEN), n_draws=20)
    together = penalty(y.expand(3, -1, -1), laws)
    alone = [penalty(y, GaussianMixture(laws.logits[e], laws.loc[e], laws.scale_tril[e])) for e in range(3)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-12)


def test_several_preranks_are_averaged():
    logits, loc, factor, y = parameters(cases=20)
    law = GaussianMixture(logits, loc, factor)
    noise = noise_for(PreRankPenalty(tuple(SEVEN), n_draws=20), law, 20)
    each = [PreRankPenalty(item, n_draws=20)(y, law, noise=noise) for item in SEVEN]
    together = PreRankPenalty(tuple(SEVEN), n_draws=20)(y, law, noise=noise)
    torch.testing.assert_close(together, torch.stack(each).mean(), rtol=0, atol=1e-12)
    assert PreRankPenalty((Location(), Copula())).name == "location + copula"


def test_draws_of_a_step_depend_on_seed_and_step_and_leave_the_global_generator_alone():
    logits, loc, factor, y = parameters(cases=20)
    law = GaussianMixture(logits, loc, factor)
    penalty = PreRankPenalty((Scale(), Copula()), n_draws=20)
    before = torch.random.get_rng_state()
    first = penalty(y, law, seed=3, step=7)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert penalty(y, law, seed=3, step=7) == first
    assert penalty(y, law, seed=3, step=8) != first
    assert penalty(y, law, seed=4, step=7) != first


@pytest.mark.parametrize("logit", [-60.0, -100.0, -1000.0])
def test_the_copula_penalty_survives_a_component_that_hardly_weighs_anything(logit):
    # its draws lie below the observations and everybody else's far above: F is tiny and dlogF/dw has no float
    logits = torch.tensor([[0.0, logit]]).repeat(64, 1).requires_grad_()
    loc = torch.tensor([[[20.0, 20.0], [-1.0, -1.0]]]).repeat(64, 1, 1).requires_grad_()
    law = GaussianMixture(logits, loc, torch.eye(2).expand(64, 2, 2, 2))
    y = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad(PreRankPenalty(Copula())(y, law), (logits, loc))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_missing_observations_are_counted_in_all_models():
    logits, loc, factor, y = parameters(cases=5)
    several = GaussianMixture(*(part.expand(2, 3, *part.shape) for part in (logits, loc, factor)))
    y = y.expand(2, 3, 5, 3).clone()
    y[0, 0, 1] = torch.nan
    y[1, 2, 4, 0] = torch.inf
    y[1, 2, 0, 1:] = torch.nan
    with pytest.raises(ValueError, match=r"6 of 90 values of y are NaN or infinite, the first at index \(0, 0, 1, 0\)"):
        PreRankPenalty(Location())(y, several)


def test_a_penalty_is_a_value():
    penalty = PreRankPenalty(Location())
    with pytest.raises(FrozenInstanceError):
        penalty.n_draws = 5
    assert penalty == PreRankPenalty(
        (Location(),), temperature=100.0, n_levels=100, exponent=1, n_draws=100, rank=SmoothRank(100.0, relative=True)
    )
    assert penalty != PreRankPenalty(Location(), n_draws=99)
    assert len({penalty, PreRankPenalty(Location())}) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0: .*positive and finite"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"n_levels": 1}, "n_levels=1, n_draws=100: at least two of each"),
        ({"n_draws": 1}, "n_levels=100, n_draws=1: at least two of each"),
        ({"exponent": 0.99}, "exponent=0.99: .*1 or more"),
        ({"exponent": float("inf")}, "exponent=inf"),
        ({"exponent": float("nan")}, "exponent=nan"),
    ],
)
def test_settings_without_a_meaning_are_refused_and_the_smallest_with_one_are_not(setting, message):
    with pytest.raises(ValueError, match=message):
        PreRankPenalty(Location(), **setting)
    PreRankPenalty(Location(), temperature=1e-3, n_levels=2, exponent=1, n_draws=2)


@pytest.mark.parametrize(("shape", "found"), [((5, 2), "(5, 2)"), ((4, 3), "(4, 3)"), ((2, 5, 2), "(2, 5, 2)")])
def test_observations_of_other_cases_or_targets_are_refused(shape, found):
    logits, loc, factor, _ = parameters(cases=5)
    law = GaussianMixture(logits, loc, factor)
    members = torch.zeros(5, 8, 3, dtype=torch.float64, requires_grad=True)
    for forecast in (law, Ensemble(members)):
        with pytest.raises(ValueError, match=rf"y has shape {re.escape(found)}.*for 5 cases and 3 targets"):
            PreRankPenalty(Location())(torch.zeros(shape, dtype=torch.float64), forecast)


def test_four_members_are_enough_and_three_are_not():
    y = torch.zeros(5, 3, dtype=torch.float64)
    members = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert PreRankPenalty(Location())(y, Ensemble(members)).isfinite()
    with pytest.raises(ValueError, match="3 members are too few to rank some and learn from others; draw 4 or more"):
        PreRankPenalty(Location())(y, Ensemble(members[:, :3]))
    with pytest.raises(TypeError, match="carry no gradient"):
        PreRankPenalty(Location())(y, Ensemble(members.detach()))
    with torch.no_grad():  # where nothing is trained, nothing is missing
        assert PreRankPenalty(Location())(y, Ensemble(members.detach())).isfinite()


def test_weights_of_cases_may_be_those_of_each_model():
    logits, loc, factor, y = parameters(cases=6)
    law = GaussianMixture(*(torch.stack([part, part.flip(0)]) for part in (logits, loc, factor)))
    weights = torch.rand(2, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    penalty = PreRankPenalty((Location(), Scale()), n_draws=10)
    together = penalty(y.expand(2, 6, 3), law, case_weights=weights)
    for e in range(2):
        one = GaussianMixture(law.logits[e], law.loc[e], law.scale_tril[e])
        torch.testing.assert_close(together[e], penalty(y, one, case_weights=weights[e]))


@pytest.mark.parametrize("setting", [{}, {"n_levels": 7}, {"temperature": 20.0}, {"exponent": 2}])
def test_the_penalty_is_the_smooth_error_of_its_pits(setting):
    logits, loc, factor, y = parameters(cases=9)
    law = GaussianMixture(logits, loc, factor)
    penalty = PreRankPenalty((Marginal(), Scale()), n_draws=10, **setting)
    errors = [pce_kde(pit, **{"temperature": 100.0, **setting}).mean() for pit in penalty.pits(y, law)]
    torch.testing.assert_close(penalty(y, law), torch.stack(errors).mean())
