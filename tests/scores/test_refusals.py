"""Bad input gets the promised message: what is wrong, with the numbers, and what to do."""

import numpy as np
import pytest
import torch

from prerank.forecasts import Ensemble
from prerank.scores import Fair, TwoSets, crps, energy_score, nll, variogram_score

SCORES = [energy_score, variogram_score, crps]
every_score = pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)


def members_with(value):
    members = torch.zeros(4, 5, 3)
    members[2, 1, 0] = value
    return members


@every_score
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_no_numbers(score, value):
    with pytest.raises(ValueError, match=r"1 of 60 values of the forecast .* index \(2, 1, 0\).*drop those cases"):
        score(torch.zeros(4, 3), members_with(value))
    y = torch.zeros(4, 3)
    y[1, 2] = value
    with pytest.raises(ValueError, match=r"1 of 12 values of y .* index \(1, 2\).*drop those cases"):
        score(y, torch.zeros(4, 5, 3))


def test_opposite_infinities_do_not_cancel_and_large_numbers_are_numbers():
    members = members_with(float("inf"))
    members[0, 0, 0] = -float("inf")
    with pytest.raises(ValueError, match="2 of 60"):
        energy_score(torch.zeros(4, 3), members)
    huge = torch.full((4, 5, 3), 1e38)  # their sum overflows, they do not
    assert torch.equal(crps(torch.full((4, 3), 1e38), huge), torch.zeros(4, 3))


@every_score
def test_shapes_that_do_not_fit(score):
    with pytest.raises(ValueError, match="two axes"):
        score(torch.zeros(4), torch.zeros(4, 5, 3))
    with pytest.raises(ValueError, match=r"y has shape \(4, 3\), .* 3 cases and 3 targets"):
        score(torch.zeros(4, 3), Ensemble(torch.zeros(3, 5, 3)))
    with pytest.raises(ValueError, match=r"y has shape \(4, 3\), .* 4 cases and 2 targets"):
        score(torch.zeros(4, 3), Ensemble(torch.zeros(4, 5, 2)))
    with pytest.raises(ValueError, match=r"leading axes \(2,\) .* \(3,\) of y"):
        score(torch.zeros(3, 4, 3), Ensemble(torch.zeros(2, 4, 5, 3)))


@pytest.mark.parametrize("score", [energy_score, variogram_score])
@pytest.mark.parametrize(
    ("members", "found"), [((5, 4, 3), "sample-first"), ((4, 4, 3), "ambiguous"), ((4, 3, 3), "ambiguous")]
)
def test_layouts_that_are_another_or_could_be(score, members, found):
    with pytest.raises(ValueError, match=found) as refused:
        score(np.zeros((4, 3)), np.zeros(members))
    assert "as_ensemble" in refused.value.__notes__[0]


@every_score
@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0)])
def test_empty_input(score, shape):
    with pytest.raises(ValueError, match=r"at least one (of each )?is needed"):
        score(torch.zeros(shape[0], shape[2]), Ensemble(torch.zeros(shape)))


@every_score
def test_one_member(score):
    one = torch.zeros(4, 1, 3)
    with pytest.raises(ValueError, match=r"M = 1 member.*at least two.*Paper\(\)"):
        score(torch.zeros(4, 3), one)
    with pytest.raises(ValueError, match=r"cannot halve M = 1"):
        score(torch.zeros(4, 3), one, estimator=TwoSets())
    alone = torch.tensor([[1.0, 1.0], [0.0, 3.0], [2.0, 1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="in 2 of 4 cases one member carries all"):
        score(torch.zeros(4, 3), torch.zeros(4, 2, 3), weights=alone)


@every_score
def test_weights_that_are_no_weights(score):
    y, members = torch.zeros(2, 3), torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match=r"one weight per case and member is \(2, 4\)"):
        score(y, members, weights=torch.ones(4))
    with pytest.raises(ValueError, match=r"1 weights .* negative .*-0.5"):
        score(y, members, weights=torch.tensor([[1.0, 1, 1, -0.5], [1, 1, 1, 1]]))
    with pytest.raises(ValueError, match="zero in 1 of 2 cases"):
        score(y, members, weights=torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]]))
    with pytest.raises(ValueError, match="1 of 8 values of the weights"):
        score(y, members, weights=torch.tensor([[1.0, 1, 1, float("nan")], [1, 1, 1, 1]]))
    with pytest.raises(ValueError, match="not both"):
        score(y, Ensemble(members, torch.ones(2, 4)), weights=torch.ones(2, 4))


@every_score
@pytest.mark.parametrize("estimator", ["fair", Fair, None])
def test_an_estimator_is_a_value(score, estimator):
    with pytest.raises(TypeError, match=r"Fair\(\), Paper\(\) and TwoSets\(\)"):
        score(torch.zeros(2, 3), torch.zeros(2, 4, 3), estimator=estimator)


def test_two_sets_that_are_not_two_independent_sets():
    y, members = torch.zeros(2, 3), torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match=r"4 weighted members in halves.*other="):
        energy_score(y, Ensemble(members, torch.ones(2, 4)), TwoSets())
    with pytest.raises(ValueError, match="only the number of members may differ"):
        energy_score(y, members, TwoSets(Ensemble(torch.zeros(2, 4, 2))))
    with pytest.raises(ValueError, match=r"TwoSets\(other=\) are NaN"):
        energy_score(y, members, TwoSets(Ensemble(torch.full((2, 4, 3), float("nan")))))


def test_what_the_variogram_score_cannot_use():
    y, members = torch.zeros(2, 3), torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match=r"D = 1 target.*crps"):
        variogram_score(y[:, :1], members[..., :1])
    for exponent in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="above zero"):
            variogram_score(y, members, exponent)
    with pytest.raises(ValueError, match=r"D = 3 targets need \(3, 3\)"):
        variogram_score(y, members, pair_weights=torch.ones(2, 2))
    with pytest.raises(ValueError, match="-1 to 1"):
        variogram_score(y, members, pair_weights=torch.tensor([[0.0, 1, 1], [1, 0, -1], [1, 1, 0]]))


def test_what_has_no_density_or_no_members():
    with pytest.raises(TypeError, match=r"an Ensemble has no density.*energy_score"):
        nll(torch.zeros(2, 3), Ensemble(torch.zeros(2, 4, 3)))
    with pytest.raises(ValueError, match="event shape"):
        nll(torch.zeros(2, 3), torch.distributions.Normal(torch.zeros(2, 3), 1.0))
    law = torch.distributions.MultivariateNormal(torch.zeros(2, 3), torch.eye(3))
    with pytest.raises(ValueError, match=r"y has shape \(2, 2\), .* 2 cases and 3 targets"):
        nll(torch.zeros(2, 2), law)
    with pytest.raises(ValueError, match="1 of 6 values of y"):
        nll(torch.tensor([[0.0, 0.0, float("nan")], [0.0, 0.0, 0.0]]), law)
    with pytest.raises(ValueError, match="MultivariateNormal weigh the same"):
        energy_score(torch.zeros(2, 3), law, weights=torch.ones(2, 4))
    with pytest.raises(TypeError, match="equally_weighted_draws"):
        crps(torch.zeros(2, 3), law)
