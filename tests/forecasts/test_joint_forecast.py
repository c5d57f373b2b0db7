"""Whatever forecasts keeps the one protocol: its cases can be taken by themselves, and a case's draws are its own."""

import pytest
import torch
from torch.distributions import AffineTransform, Distribution, ExpTransform, Independent, LogNormal, MultivariateNormal

from prerank.forecasts import Ensemble, GaussianMixture, JointForecast, Moved, case_by_case, equal_mixture
from prerank.preranks import Location
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.tilted import Tilted
from prerank.regression.transformed import Transformed

N, D = 12, 2
GENERATOR = torch.Generator().manual_seed(3)
LOC = torch.randn(N, D, generator=GENERATOR).double()
MIXTURE = GaussianMixture(torch.zeros(N, 2), torch.stack([LOC, LOC + 1], 1), torch.eye(D).double().expand(N, 2, D, D))
TORCH = Independent(LogNormal(LOC, torch.ones(N, D).double()), 1)


class Shifted(Distribution):
    """A user's class: a point and a shift that depends on the name of a case."""

    arg_constraints = {}  # noqa: RUF012 - torch's protocol

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def mean(self):
        return self.loc

    def select(self, cases):
        return Shifted(self.loc[cases])

    def ensemble(self, n_draws, seed=0, stream="members", case_ids=None):
        ids = torch.arange(len(self.loc)) if case_ids is None else case_ids
        steps = torch.arange(n_draws) - (n_draws - 1) / 2
        return Ensemble(self.loc[:, None] + (ids[:, None] % 3 + 1)[..., None] * steps[:, None])


FORECASTS = {
    "members": Ensemble(LOC[:, None].expand(N, 7, D)),
    "mixture": MIXTURE,
    "distribution of torch": case_by_case(TORCH),
    "moved": Moved(case_by_case(TORCH), LOC, torch.ones(D).double(), torch.full((D,), 2.0).double()).case_by_case(),
    "mixed": equal_mixture([TORCH, MultivariateNormal(LOC, torch.eye(D).double())]).case_by_case(),
    "transformed": Transformed(MIXTURE, [ExpTransform(), AffineTransform(1.0, 2.0)]),
    "tilted": Tilted(MIXTURE, OldPITs((Location(),), 40, 0), torch.tensor([[0.3], [0.1]]).double(), 50),
    "user's": Shifted(LOC),
}


@pytest.mark.parametrize("name", FORECASTS)
def test_some_cases_of_a_forecast_are_drawn_as_among_all(name):
    forecast = FORECASTS[name]
    assert isinstance(forecast, JointForecast)
    assert (tuple(forecast.batch_shape), tuple(forecast.event_shape)) == ((N,), (D,))
    some, ids = torch.tensor([7, 2, 5]), torch.arange(N) * 3 + 1
    own = forecast.select(some)
    assert isinstance(own, JointForecast)
    whole = forecast.ensemble(7, 5, "draws", ids).members
    assert torch.equal(own.ensemble(7, 5, "draws", ids[some]).members, whole[some])
    torch.testing.assert_close(own.mean, forecast.mean[some])


def test_what_a_class_of_torch_lacks_is_added():
    assert not isinstance(TORCH, JointForecast)
    assert isinstance(case_by_case(TORCH), JointForecast)
