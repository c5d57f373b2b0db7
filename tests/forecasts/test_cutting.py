"""Any forecast can be cut into cases where what it is made of can be, and draws of a case do not depend on the others."""

import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Beta,
    Binomial,
    Cauchy,
    Dirichlet,
    Distribution,
    ExpTransform,
    Gamma,
    Gumbel,
    HalfNormal,
    Independent,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    Multinomial,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Pareto,
    Poisson,
    PowerTransform,
    SigmoidTransform,
    StickBreakingTransform,
    StudentT,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
)
from torch.distributions import Categorical as Choice

from prerank import GaussianMixture
from prerank.forecasts import can_be_cut, case_by_case, equally_weighted_draws, select_cases
from prerank.forecasts.batching import CannotBeCut

N, D = 7, 3
GENERATOR = torch.Generator().manual_seed(0)
LOC = torch.randn(N, D, generator=GENERATOR, dtype=torch.float64)
SCALE = 0.5 + torch.rand(N, D, generator=GENERATOR, dtype=torch.float64)
FACTOR = 0.7 * torch.eye(D, dtype=torch.float64) + 0.2 * torch.ones(D, D, dtype=torch.float64).tril(-1)
SHARES = 0.1 + torch.rand(N, 2, generator=GENERATOR, dtype=torch.float64)


def each(law):
    return Independent(law, 1)


LAWS = {
    "normal": each(Normal(LOC, SCALE)),
    "one spread for all": each(Normal(LOC, torch.ones(1, D).double())),
    "log-normal": each(LogNormal(LOC, SCALE)),
    "Student": each(StudentT(5 * SCALE, LOC, SCALE)),
    "Poisson": each(Poisson(SCALE)),
    "Cauchy": each(Cauchy(LOC, SCALE)),
    "gamma": each(Gamma(SCALE, SCALE)),
    "beta": each(Beta(SCALE, SCALE)),
    "Gumbel": each(Gumbel(LOC, SCALE)),
    "half-normal": each(HalfNormal(SCALE)),
    "Weibull": each(Weibull(SCALE, SCALE)),
    "Pareto": each(Pareto(SCALE, SCALE)),
    "Kumaraswamy": each(Kumaraswamy(SCALE, SCALE)),
    "uniform": each(Uniform(LOC, LOC + SCALE)),
    "von Mises": each(VonMises(LOC, SCALE)),
    "Bernoulli by probabilities": each(Bernoulli(SCALE / 2)),
    "Bernoulli by logits": each(Bernoulli(logits=LOC)),
    "binomial": each(Binomial(5, SCALE / 2)),
    "negative binomial": each(NegativeBinomial(4 * SCALE, logits=LOC)),
    "Dirichlet": Dirichlet(SCALE),
    "multinomial": Multinomial(5, SCALE),
    "multivariate normal, one factor": MultivariateNormal(LOC, scale_tril=FACTOR),
    "multivariate normal, as many cases as targets": MultivariateNormal(LOC[:D], scale_tril=FACTOR),
    "multivariate normal, covariances": MultivariateNormal(LOC, FACTOR @ FACTOR.mT),
    "multivariate normal, precision": MultivariateNormal(LOC, precision_matrix=FACTOR @ FACTOR.mT),
    "low rank": LowRankMultivariateNormal(LOC, LOC[..., None], SCALE),
    "mixture": MixtureSameFamily(Choice(SHARES), each(Normal(torch.stack([LOC, -LOC], 1), 1.0))),
    "transformed": TransformedDistribution(each(Normal(LOC, SCALE)), [AffineTransform(LOC, SCALE), ExpTransform()]),
    "transformed from one": TransformedDistribution(
        Normal(torch.zeros(D).double(), 1.0), [AffineTransform(LOC, SCALE)]
    ),
    "on the simplex": TransformedDistribution(Normal(LOC, SCALE), [SigmoidTransform(), StickBreakingTransform()]),
    "back": TransformedDistribution(each(Gamma(SCALE, SCALE)), [PowerTransform(torch.tensor(3.0)), ExpTransform().inv]),
    "Gaussian mixture": GaussianMixture(SHARES, torch.stack([LOC, -LOC], 1), FACTOR.expand(N, 2, D, D)),
}
LAWS["transformed from one"] = each(LAWS["transformed from one"])


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("cases", [torch.tensor([2, 0]), slice(1, 3), slice(2, 3)], ids=["places", "slice", "one"])
def test_a_part_is_the_same_law_of_fewer_cases(name, cases):
    law = LAWS[name]
    torch.manual_seed(1)
    y = law.sample((4,))
    part = select_cases(law, cases)
    assert type(part) is type(law)
    assert (part.batch_shape, part.event_shape) == (torch.Size([len(y[0, cases])]), law.event_shape)
    torch.testing.assert_close(part.log_prob(y[:, cases]), law.log_prob(y)[:, cases], equal_nan=True)


@pytest.mark.parametrize("name", LAWS)
def test_draws_of_a_case_depend_on_its_identifier_alone(name):
    law, cases = case_by_case(LAWS[name]), torch.tensor([2, 0])
    state = torch.get_rng_state()
    whole = equally_weighted_draws(law, 5, 3, "some").members
    assert torch.equal(torch.get_rng_state(), state)
    part = equally_weighted_draws(law.select(cases), 5, 3, "some", cases).members
    assert torch.equal(part, whole[cases])
    other = equally_weighted_draws(law, 200, 3, "other").members
    assert not torch.equal(other[:, :5], whole)
    same = equally_weighted_draws(law, 5, 3, "some", torch.full((len(whole),), 4)).members
    assert not torch.equal(same, whole)


def test_draws_case_by_case_are_draws_of_the_law():
    law = case_by_case(each(LogNormal(LOC, SCALE)))
    drawn = equally_weighted_draws(law, 4000).members.log()
    # five standard errors of a mean
    assert bool(((drawn.mean(1) - LOC).abs() < 5 * SCALE / 4000**0.5).all())
    assert repr(law) == repr(law.law)
    assert torch.equal(law.mean, law.law.mean)
    assert torch.equal(law.variance, law.law.variance)


def test_parameters_that_were_computed_on_the_way_are_not_given_twice():
    law = each(Bernoulli(logits=torch.tensor([[40.0], [-40.0]]).double()))
    assert law.base_dist.probs[0, 0] == 1.0  # asked for once, and kept beside the logits
    assert float(select_cases(law, slice(1)).base_dist.logits) == 40.0


class Own(Normal):
    """A class of someone else's, which holds more than its parameters say."""

    offset = 3.0


class WithSelect(Distribution):
    def __init__(self, n_cases):
        super().__init__(torch.Size((n_cases,)), torch.Size((2,)), validate_args=False)

    def select(self, cases):
        return WithSelect(len(torch.arange(self.batch_shape[0])[cases]))


def test_what_is_not_known_is_not_cut():
    for law in (each(Own(LOC, SCALE)), LogisticNormal(LOC, SCALE), Normal(0.0, 1.0), "no law"):
        assert not can_be_cut(law)
        with pytest.raises(CannotBeCut, match=r"cannot be cut into cases; give its class a select"):
            select_cases(law, slice(2))
    whole = each(Own(LOC, SCALE))
    assert case_by_case(whole) is whole
    assert select_cases(WithSelect(5), slice(2)).batch_shape == (2,)


def test_inverses_are_known_whatever_their_class_is_called():
    """zuko, once imported, gives torch's class of inverses another name."""
    inverse = type(ExpTransform().inv)
    name = inverse.__name__
    inverse.__name__ = "Inverse"
    try:
        part = select_cases(LAWS["back"], slice(1, 3))
    finally:
        inverse.__name__ = name
    assert part.batch_shape[-1] == 2
