"""A `Recalibrator` at its defaults corrects every distribution of torch's, and flows that cannot be cut into cases."""

import pandas as pd
import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Categorical,
    Cauchy,
    Dirichlet,
    ExpTransform,
    Independent,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
    TransformedDistribution,
)

from prerank import HDR, Location, Marginal, Recalibrator, check, energy_score, nll
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import Affine, Tilt, Tilted
from prerank.recalibration.pit_coordinates import OldPITs

PRERANKS = [Marginal(), Location()]
SMALL = Tilt(n_draws=64, n_reference=100, pool=300)


def means(n_cases, seed):
    return 0.3 * torch.randn(n_cases, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_humps(n_cases, seed):
    loc = means(n_cases, seed)
    hump = Independent(Normal(torch.stack([loc - 1, loc + 1], 1), 0.5), 1)
    return MixtureSameFamily(Categorical(torch.ones(n_cases, 2).double()), hump)


def in_between(n_cases, seed):
    """A distribution that is transformed twice, the first time by numbers that differ from case to case."""
    base = Independent(Normal(torch.zeros(n_cases, 2).double(), 0.5), 1)
    return TransformedDistribution(base, [AffineTransform(means(n_cases, seed), 1.0), ExpTransform()])


LAWS = {
    "LogNormal": lambda n, seed: Independent(LogNormal(means(n, seed), 0.5), 1),
    "StudentT": lambda n, seed: Independent(StudentT(5.0, means(n, seed), 1.0), 1),
    "Poisson": lambda n, seed: Independent(Poisson(3 * means(n, seed).exp()), 1),
    "Cauchy": lambda n, seed: Independent(Cauchy(means(n, seed), 1.0), 1),
    "Dirichlet": lambda n, seed: Dirichlet(3 * torch.cat([means(n, seed).exp(), torch.ones(n, 1).double()], 1)),
    "MixtureSameFamily": two_humps,
    "TransformedDistribution": in_between,
    "MultivariateNormal": lambda n, seed: MultivariateNormal(means(n, seed), torch.eye(2).double()),
}
MULTIPLIED = ("LogNormal", "Poisson", "TransformedDistribution")


def observed(law, name):
    """Observations that are further out than the forecast says, and counts where it has counts."""
    y = law.sample()
    if name == "Dirichlet":
        raised = y * torch.tensor([2.0, 1.0, 1.0])
        return raised / raised.sum(-1, keepdim=True)
    if name == "Poisson":
        return torch.poisson(1.5 * law.base_dist.rate)
    return 1.4 * y if name in MULTIPLIED else y + 0.5


@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_corrected_checked_drawn_from_and_kept(name, tmp_path):
    torch.manual_seed(3)
    held_out, fresh = (LAWS[name](n, seed) for n, seed in ((200, 1), (100, 2)))
    y, later = observed(held_out, name), observed(fresh, name)
    recalibrator = Recalibrator(PRERANKS, steps=[Affine(), SMALL, SMALL]).fit(held_out, y)
    assert recalibrator.changed_
    corrected = recalibrator.transform(fresh)
    assert check(later, corrected, PRERANKS).n_cases == 100
    drawn = equally_weighted_draws(corrected, 30).members
    assert drawn.shape == (100, 30, later.shape[1])
    if hasattr(fresh, "support"):
        assert bool(fresh.support.check(drawn.movedim(1, 0)).all())
    before, after = (float(energy_score(later, law).mean()) for law in (fresh, corrected))
    if name != "Cauchy":  # whose draws have no mean distance
        assert after < before
    assert float(nll(later, corrected).mean()) < float(nll(later, fresh).mean())
    recalibrator.save(tmp_path / "file")
    again = Recalibrator.load(tmp_path / "file").transform(fresh)
    assert torch.equal(equally_weighted_draws(again, 5).members, equally_weighted_draws(corrected, 5).members)


THETA = torch.tensor([[0.5, -0.2, 0.3], [0.1, 0.1, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("name", LAWS)
def test_a_tilted_law_is_the_same_whatever_it_is_cut_into(name, monkeypatch):
    law = LAWS[name](6, 1)
    y = law.sample()
    theta = THETA if y.shape[1] == 2 else torch.cat([THETA, THETA[:, :1]], 1)
    tilted = Tilted(law, OldPITs((Marginal(), Location()), 40, 0), theta, pool=100)
    whole, drawn = tilted.log_prob(y), tilted.ensemble(10, 3).members
    cases = torch.tensor([4, 1])
    part = Tilted(law, tilted.pits, theta, pool=100).select(cases)
    torch.testing.assert_close(part.log_prob(y[cases]), whole[cases])
    torch.testing.assert_close(part.ensemble(10, 3).members, drawn[cases])
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    torch.testing.assert_close(Tilted(law, tilted.pits, theta, pool=100).log_prob(y), whole)


def test_a_law_that_cannot_be_cut_is_corrected_as_a_whole(opaque):
    torch.manual_seed(3)
    held_out, fresh = (opaque(LAWS["StudentT"](n, seed)) for n, seed in ((150, 1), (60, 2)))
    y = held_out.sample() + 0.7
    recalibrator = Recalibrator(PRERANKS, steps=[SMALL, SMALL]).fit(held_out, y)
    corrected = recalibrator.transform(fresh)
    assert isinstance(corrected, Tilted)
    assert corrected.ensemble(10).members.shape == (60, 10, 2)
    assert check(fresh.sample() + 0.7, corrected, PRERANKS).n_cases == 60


@pytest.mark.parametrize("kind", ["MAF", "NSF"])
def test_a_flow_of_single_precision_meets_observations_of_double_precision(kind):
    zuko = pytest.importorskip("zuko")
    torch.manual_seed(0)
    flow = getattr(zuko.flows, kind)(2, 1, transforms=1, hidden_features=(8,))
    context = torch.randn(60, 1)
    with torch.no_grad():
        y = flow(context).sample()
        single, double = (check(seen, flow(context), [HDR(), Location()]).table["PCE"] for seen in (y, y.double()))
    assert single.to_numpy() == pytest.approx(double.to_numpy(), abs=1e-3)  # a tie may fall the other way
    table = pd.DataFrame(y.numpy().astype(float), columns=["rent", "area"])
    Recalibrator().fit(flow(context), table)


def test_a_normalising_flow_is_corrected():
    zuko = pytest.importorskip("zuko")
    torch.manual_seed(0)
    flow = zuko.flows.NSF(2, 1, transforms=1, hidden_features=(8,))
    context = torch.randn(120, 1)
    with torch.no_grad():
        y = 1.8 * flow(context).sample() + 0.5
        for steps in (None, [SMALL]):
            recalibrator = Recalibrator(PRERANKS, steps=steps).fit(flow(context), y)
            corrected = recalibrator.transform(flow(context))
            assert recalibrator.changed_
            assert corrected.ensemble(5).members.shape == (120, 5, 2)
            before, after = (check(y, law, PRERANKS).table["PCE"].mean() for law in (flow(context), corrected))
            assert after < before
