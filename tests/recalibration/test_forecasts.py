"""A corrected forecast answers everything that the library asks; what was learnt can be kept; bad input gets a sentence."""

from unittest.mock import MagicMock

import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from prerank import Custom, Ensemble, Location, Marginal, Recalibrator, check, energy_score, nll, projected_pit
from prerank.forecasts import equally_weighted_draws
from prerank.plotting import new_figure
from prerank.plotting.recalibration import recalibration_figure
from prerank.recalibration import Affine, Dressing, Tilt, Tilted
from prerank.recalibration.pit_coordinates import OldPITs

SMALL = Tilt(n_draws=64, n_reference=100, pool=500)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def tilted(standard):
    theta = torch.tensor([[0.3, -0.2, 0.1], [0.1, 0.1, 0.0]], dtype=torch.float64)
    return Tilted(standard(40), OldPITs((Marginal(), Location()), 50, 0), theta, pool=300)


@pytest.fixture
def fitted(standard, observed):
    forecast = standard(300)
    return Recalibrator(steps=[Affine(), SMALL]).fit(forecast, forecast.mean + observed(forecast, 1).exp() - 1.5)


def test_everything_can_be_asked_of_a_corrected_forecast(tilted, observed):
    y = tilted.ensemble(1, seed=4).members[:, 0]
    assert check(y, tilted).n_cases == 40
    assert projected_pit(y, tilted).lower.shape == (40, 9)
    assert energy_score(y, tilted).shape == (40,)
    torch.testing.assert_close(nll(y, tilted), -tilted.log_prob(y))
    assert tilted.log_prob(tilted.sample((7,))).shape == (7, 40)
    assert tilted.mean.shape == (40, 2)
    assert tilted.covariance_matrix.shape == (40, 2, 2)
    assert ((tilted.effective_size > 1) & (tilted.effective_size < 300)).all()
    assert repr(tilted) == "Tilted(GaussianMixture, 40 cases, 2 targets)"


def test_draws_depend_on_seed_stream_and_case_alone(tilted):
    whole = equally_weighted_draws(tilted, 20, 3, "some").members
    part = equally_weighted_draws(tilted.select(slice(10, 15)), 20, 3, "some").members
    assert torch.equal(whole[10:15], part)
    assert not torch.equal(whole, equally_weighted_draws(tilted, 20, 4, "some").members)
    assert not torch.equal(whole, equally_weighted_draws(tilted, 20, 3, "other").members)


def test_a_part_of_a_corrected_forecast_is_the_same_forecast(tilted):
    y = tilted.base.mean
    cases = torch.tensor([3, 30, 7])
    torch.testing.assert_close(tilted.select(cases).log_prob(y[cases]), tilted.log_prob(y)[cases])


def test_sample_follows_torchs_seed(tilted):
    torch.manual_seed(1)
    first = tilted.sample((3,))
    torch.manual_seed(1)
    assert torch.equal(first, tilted.sample((3,)))
    assert not torch.equal(first, tilted.sample((3,)))


def test_what_was_learnt_is_saved_and_read_again(fitted, standard, tmp_path):
    fitted.save(tmp_path / "file")
    back = Recalibrator.load(tmp_path / "file")
    assert back.summary() == fitted.summary()
    forecast = standard(20, seed=5)
    first, second = (one.transform(forecast) for one in (fitted, back))
    assert isinstance(first, Tilted)
    y = torch.zeros(20, 2, dtype=torch.float64)
    assert torch.equal(first.log_prob(y), second.log_prob(y))
    assert first.theta.equal(second.theta)
    assert {key: value[0].tolist() for key, value in back.densities_.items()} == {
        key: value[0].tolist() for key, value in fitted.densities_.items()
    }


def test_a_dressing_is_saved_and_read_again(standard, observed, tmp_path):
    forecast = standard(100)
    fitted = Recalibrator(steps=[Dressing()]).fit(forecast.ensemble(5), observed(forecast, 1))
    fitted.save(tmp_path / "file")
    members = forecast.ensemble(5, seed=2)
    loaded = Recalibrator.load(tmp_path / "file").transform(members)
    assert torch.equal(loaded.loc, fitted.transform(members).loc)


def test_code_is_never_saved(standard, observed, tmp_path):
    forecast = standard(60)
    first = Custom(lambda points: points[..., :1], name="first")
    fitted = Recalibrator(preranks=[first], steps=[SMALL]).fit(forecast, observed(forecast, 1))
    with pytest.raises(TypeError, match="cannot be saved"):
        fitted.save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "file").write_text("no recalibrator")
    with pytest.raises(ValueError, match="cannot be read as a saved Recalibrator"):
        Recalibrator.load(tmp_path / "file")


def test_densities_are_densities_and_the_correction_takes_up_what_was_observed(fitted):
    for observed_density, corrected in fitted.densities_.values():
        assert observed_density.mean(-1) == pytest.approx(1.0)
        assert corrected.mean(-1) == pytest.approx(1.0)
    observed_density, corrected = fitted.densities_["marginal"]
    assert abs(observed_density - corrected).mean() < abs(observed_density - 1).mean()


def test_the_figure_has_a_panel_for_each_prerank(fitted):
    figure = recalibration_figure(fitted.densities_)
    visible = [ax.get_title(loc="left") for ax in figure.axes if ax.get_visible()]
    assert visible == list(fitted.densities_)
    assert type(figure) is type(new_figure(1, 1))
    with pytest.raises(ValueError, match="no densities to draw"):
        recalibration_figure({})


def test_it_is_a_scikit_learn_estimator():
    recalibrator = Recalibrator(preranks=[Location()], n_folds=4)
    assert clone(recalibrator).get_params() == recalibrator.get_params()
    with pytest.raises(NotFittedError):
        recalibrator.transform(torch.zeros(3, 4, 2))


def test_the_default_steps_follow_the_forecast(standard, observed):
    forecast = standard(100)
    y = observed(forecast, 1)
    names = [type(step).__name__ for step in Recalibrator(Marginal()).fit(forecast.ensemble(5), y).steps_]
    assert names == ["FittedErrorLaw"]
    assert [type(step).__name__ for step in Recalibrator(Marginal()).fit(forecast, y).steps_] == [
        "FittedAffine",
        "FittedTilt",
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_the_device_follows_the_data(device, standard, observed):
    forecast = standard(100)
    y = (observed(forecast, 1) + 0.5).to(device)
    parts = (part.to(device) for part in (forecast.logits, forecast.loc, forecast.scale_tril))
    moved = type(forecast)(*parts)
    corrected = (
        Recalibrator(steps=[Affine(), Tilt(n_draws=32, n_reference=50, pool=100)]).fit(moved, y).transform(moved)
    )
    drawn = equally_weighted_draws(corrected, 5).members
    assert drawn.device.type == device
    assert corrected.log_prob(y).device.type == device


def refusals(forecast, y):
    members = forecast.ensemble(5).members
    bad = y.clone()
    bad[3, 1] = torch.inf
    return {
        "y has 1 infinite values": lambda: Recalibrator().fit(forecast, bad),
        "both must be the same": lambda: Recalibrator().fit(forecast, y[:30]),
        "put ErrorLaw\\(\\) before it": lambda: Recalibrator(steps=[Tilt()]).fit(members, y),
        "use Affine\\(\\) instead": lambda: Recalibrator(steps=[Dressing()]).fit(forecast, y),
        "is no step; pass values such as": lambda: Recalibrator(steps=[Tilt]).fit(forecast, y),
        "nothing would be learnt": lambda: Recalibrator(steps=[]).fit(forecast, y),
        "case_weights has shape": lambda: Recalibrator().fit(forecast, y, case_weights=[1.0, 2.0]),
        "1 of 40 case_weights are negative": lambda: Recalibrator().fit(forecast, y, case_weights=[-1.0, *[1.0] * 39]),
        "4 blocks are too few for 5-fold": lambda: Recalibrator().fit(forecast, y, blocks=[0, 1, 2, 3] * 10),
        "9 cases are too few": lambda: Recalibrator().fit(forecast.select(slice(9)), y[:9]),
        "needs at least 2 members": lambda: Recalibrator(steps=[Dressing()]).fit(members[:, :1], y),
        "agree in every case": lambda: Recalibrator(steps=[Affine()]).fit(members * torch.tensor([1.0, 0.0]), y),
        "was fitted on 2": lambda: (
            Recalibrator(steps=[Affine()]).fit(forecast, y).transform(Ensemble(members[..., :1]))
        ),
        "n_folds=1": lambda: Recalibrator(n_folds=1).fit(forecast, y),
        "degree=0": lambda: Tilt(degree=0),
        "each of zero or more": lambda: Tilt(ridges=(-1.0,)),
        "is a class": lambda: Recalibrator(Location).fit(forecast, y),
    }


CAUSES = list(refusals(MagicMock(), MagicMock()))


@pytest.mark.parametrize("cause", CAUSES)
def test_bad_input_gets_a_sentence(cause, standard, observed):
    forecast = standard(40)
    with pytest.raises((TypeError, ValueError), match=cause):
        refusals(forecast, observed(forecast, 1))[cause]()
