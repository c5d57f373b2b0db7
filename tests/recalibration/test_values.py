"""Steps are values, what they have learnt cannot be changed by accident, and nothing of it carries a gradient."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

from prerank import Ensemble, GaussianMixture, Location, Marginal, Recalibrator
from prerank.recalibration import (
    Affine,
    Dressing,
    EnsembleCopulaCoupling,
    HDRRecalibration,
    HighestDensityRegions,
    LatentRecalibration,
    PredictionRegion,
    RecalibratedMargins,
    SchaakeShuffle,
    Tilt,
    Tilted,
)
from prerank.recalibration.affine import FittedAffine
from prerank.recalibration.densities import DensityScale
from prerank.recalibration.dressing import FittedDressing
from prerank.recalibration.features import Features, standardised
from prerank.recalibration.guard import Verdict
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.quantiles import QuantileMap
from prerank.recalibration.tilt import FittedTilt

TWO = torch.ones(2)
OLD = OldPITs((Marginal(),), 10, 0)
# what was learnt, and something that it is for
LEARNT = [
    (FittedAffine(TWO, TWO, 0.1, 0.0, 0.0, 0), FittedAffine.summary),
    (FittedDressing(TWO, TWO, torch.eye(2)), FittedDressing.summary),
    (
        FittedTilt((), (), TWO, 0.1, 0.0, 0.0, Verdict(1.0, 0.0, 0.0, 0.0), False, 0.0, TWO, TWO, 10, 10, 0),
        FittedTilt.summary,
    ),
    (DensityScale(-torch.arange(3.0)[None]), lambda scale: scale.log_density(0.5)),
    (QuantileMap(torch.arange(2.0), torch.ones(2, 1)), lambda quantiles: quantiles(torch.zeros(1, 1))),
    (Features.of(torch.arange(2.0), 2, torch.device("cpu")), lambda _: standardised(TWO, TWO, TWO)),
    (PredictionRegion(None, 0.9, TWO, 0.9, 9, 9), PredictionRegion.coverage),
]


@pytest.mark.parametrize("step", [Affine(), Dressing(), Tilt()], ids=lambda step: type(step).__name__)
def test_options_are_values(step, held_out):
    with pytest.raises((TypeError, ValueError), match="members"):
        step.fit(Ensemble(torch.zeros(4, 1, 2)), held_out(torch.zeros(4, 2)))
    assert step == replace(step)
    assert len({step, replace(step)}) == 1
    with pytest.raises(FrozenInstanceError):
        setattr(step, fields(step)[0].name, None)


@pytest.mark.parametrize(("learnt", "used"), LEARNT, ids=lambda part: type(part).__name__)
def test_what_was_learnt_cannot_be_changed_and_is_nothing_but_itself(learnt, used):
    used(learnt)
    with pytest.raises(FrozenInstanceError):
        setattr(learnt, fields(learnt)[0].name, None)
    twin = replace(learnt, **{field.name: field_copy(getattr(learnt, field.name)) for field in fields(learnt)})
    assert len({learnt, twin}) == 2
    assert (learnt == twin) is False


def test_how_pits_are_computed_is_a_value(mixed):
    assert OLD.names(mixed(1)) == {"marginal": ("y1", "y2")}
    assert replace(OLD) == OLD
    with pytest.raises(FrozenInstanceError):
        OLD.seed = 1


def field_copy(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(
    "step",
    [
        RecalibratedMargins(),
        EnsembleCopulaCoupling(),
        SchaakeShuffle(),
        HDRRecalibration(),
        LatentRecalibration(),
        HighestDensityRegions(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_estimators_are_themselves_and_do_not_show_what_they_have_learnt(step):
    with pytest.raises((TypeError, ValueError)):
        step.fit(torch.zeros(3, 4, 2), Ensemble(torch.zeros(3, 4, 2)))
    assert step != type(step)()
    assert "_=" not in repr(step)
    assert "history" not in repr(step)


def trainable(forecast):
    loc = forecast.loc.clone().requires_grad_()
    return GaussianMixture(forecast.logits, loc, forecast.scale_tril), loc


def test_nothing_that_is_learnt_or_made_carries_a_gradient(mixed, observed):
    forecast, _ = trainable(mixed(12))
    y = observed(mixed(12), 1)
    members = Ensemble(forecast.loc)
    margins = RecalibratedMargins().fit(forecast, y)
    coupled = EnsembleCopulaCoupling(n_draws=3).fit(forecast, y).transform(forecast)
    hdr = HDRRecalibration(n_draws=3, n_pool=9).fit(forecast, y)
    latent = LatentRecalibration(n_draws=3).fit(forecast, y)
    regions = HighestDensityRegions(n_draws=9).fit(forecast, y)
    region = regions.region(forecast, 0.5)
    recalibrator = Recalibrator(steps=[Affine()]).fit(forecast, y + 3.0)
    tilted = Tilted(forecast, OLD, torch.ones(1, 2).double(), pool=9)
    made = {
        "margins": margins.scores_,
        "quantiles": margins.quantiles(forecast, 3),
        "coupled": coupled.members,
        "shuffled": SchaakeShuffle().fit(forecast, y).transform(forecast).members,
        "masses": hdr.masses_,
        "drawn": hdr.transform(forecast).members,
        "lengths": latent.lengths_,
        "stretched": latent.transform(forecast).members,
        "scores": regions.scores_,
        "threshold": region.threshold,
        "volume": region.volume(10).value,
        "moved": recalibrator.transform(forecast).loc,
        "shift": recalibrator.steps_[0].shift,
        "dressed": Recalibrator(steps=[Dressing()]).fit(members, y).transform(members).loc,
        "tilted": tilted.log_prob(y),
    }
    assert {name for name, value in made.items() if value.requires_grad} == set()


def test_the_global_generators_are_left_as_they_were(mixed, observed):
    forecast = mixed(20)
    state = torch.get_rng_state()
    tilt = Tilt(degree=1, n_draws=4, n_reference=5, pool=9)
    Recalibrator([Location()], [Affine(), tilt]).fit(forecast, observed(forecast, 1)).transform(forecast)
    assert torch.equal(torch.get_rng_state(), state)
