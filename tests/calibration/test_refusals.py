"""Bad input gets the message we promised, with numbers and a remedy; the smallest good input works."""

import pytest
import torch
from torch.distributions import Normal, StudentT

from builders import standard_mixture
from prerank import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Custom,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Scale,
    paper_preranks,
    projected_pit,
)
from prerank.calibration import ClosedForm, SmoothRank
from prerank.preranks import SquaredDifference

NAN, INF = float("nan"), float("inf")


def members(n_cases=4, n_members=5, n_targets=3):
    return torch.randn(n_cases, n_members, n_targets, generator=torch.Generator().manual_seed(0))


def with_value(tensor, value):
    tensor = tensor.clone()
    tensor.view(-1)[0] = value
    return tensor


@pytest.mark.parametrize(
    ("prerank", "forecast", "y", "options", "message"),
    [
        (
            Location(),
            Ensemble(members()),
            with_value(torch.zeros(4, 3), NAN),
            {},
            "1 of 12 values of y are NaN or infinite, the first",
        ),
        (
            Location(),
            Ensemble(members()),
            with_value(torch.zeros(4, 3), INF),
            {},
            "1 of 12 values of y are NaN or infinite, the first",
        ),
        (
            Location(),
            Ensemble(with_value(members(), NAN)),
            torch.zeros(4, 3),
            {},
            "1 of 60 values of the forecast are NaN or infinite",
        ),
        (
            Location(),
            Ensemble(with_value(members(), -INF)),
            torch.zeros(4, 3),
            {},
            "1 of 60 values of the forecast are NaN or infinite",
        ),
        (Location(), Ensemble(members()), torch.zeros(5, 3), {}, "forecast is for 4 cases and 3 targets"),
        (Location(), Ensemble(members()), torch.zeros(4, 2), {}, "forecast is for 4 cases and 3 targets"),
        (Location(), standard_mixture(4), torch.zeros(4, 2), {}, "forecast is for 4 cases and 3 targets"),
        (Location(), Ensemble(members()), torch.zeros(2, 4, 3), {}, "leading axes"),
        (Location(), Ensemble(members()), torch.zeros(4), {}, "needs two axes"),
        (Location(), Ensemble(members(n_members=0)), torch.zeros(4, 3), {}, "no members"),
        (Location(), Ensemble(members(n_cases=0)), torch.zeros(0, 3), {}, "holds no case"),
        (Location(), Ensemble(members(n_targets=0)), torch.zeros(4, 0), {}, "no target"),
        ([], Ensemble(members()), torch.zeros(4, 3), {}, "no pre-rank given"),
        ([Dependency(1), Dependency(2)], Ensemble(members()), torch.zeros(4, 3), {}, "two pre-ranks are called"),
        (
            Location(),
            Ensemble(members(), -torch.ones(4, 5)),
            torch.zeros(4, 3),
            {},
            "20 weights of the forecast are negative",
        ),
        (
            Location(),
            Ensemble(members(), torch.zeros(4, 5)),
            torch.zeros(4, 3),
            {},
            "all weights of the forecast are zero in 4 of 4",
        ),
        (
            Location(),
            Ensemble(members()),
            torch.zeros(4, 3),
            {"observation_weights": torch.ones(4)},
            "go with member weights",
        ),
        (
            Location(),
            Ensemble(members(), torch.ones(4, 5)),
            torch.zeros(4, 3),
            {"observation_weights": torch.ones(3)},
            r"shape \(3,\); one number per case is \(4,\)",
        ),
        (
            Location(),
            Ensemble(members(), torch.ones(4, 5)),
            torch.zeros(4, 3),
            {"observation_weights": -torch.ones(4)},
            "4 of 4 observation_weights are negative, NaN or infinite",
        ),
        (
            Location(),
            standard_mixture(4),
            torch.zeros(4, 3),
            {"how": SmoothRank(), "exchangeable": True},
            "smooth PITs are for training",
        ),
        (Custom(lambda y: y[..., 0] / 0.0), Ensemble(members()), torch.zeros(4, 3), {}, "custom gave NaN for 4 of 24"),
        (Custom(lambda y: y[0]), Ensemble(members()), torch.zeros(4, 3), {}, r"map \(\.\.\., D\) to"),
        (
            Location(),
            GaussianMixture(torch.full((4, 1), NAN), torch.zeros(4, 1, 3), torch.eye(3).expand(4, 1, 3, 3)),
            torch.zeros(4, 3),
            {},
            "forecast's parameters must be numbers",
        ),
    ],
)
def test_bad_input_is_refused(prerank, forecast, y, options, message):
    with pytest.raises(ValueError, match=message):
        projected_pit(y, forecast, prerank, **options)


@pytest.mark.parametrize(
    ("prerank", "forecast", "options", "message"),
    [
        (Location(), "a forecast", {}, "the forecast is a str; pass an Ensemble"),
        (len, Ensemble(members()), {}, r"is not a pre-rank; .* wrap f as Custom\(f\)"),
        (Scale(), standard_mixture(4), {"how": ClosedForm()}, "scale of GaussianMixture has no closed-form PIT"),
        (Location(), Ensemble(members()), {"how": ClosedForm()}, "location of Ensemble has no closed-form PIT"),
    ],
)
def test_what_is_no_forecast_prerank_or_closed_form_is_refused(prerank, forecast, options, message):
    with pytest.raises(TypeError, match=message):
        projected_pit(torch.zeros(4, 3), forecast, prerank, **options)


def test_a_distribution_over_scalars_is_refused():
    with pytest.raises(ValueError, match="Independent"):
        projected_pit(torch.zeros(4, 3), Normal(torch.zeros(4, 3), 1.0), Location())


def test_density_of_a_law_without_one_is_refused():
    class Sampler(torch.distributions.Distribution):
        arg_constraints: dict = {}  # noqa: RUF012

        def __init__(self):
            super().__init__(torch.Size((4,)), torch.Size((3,)), validate_args=False)

        def sample(self, sample_shape=()):
            return torch.zeros(*sample_shape, 4, 3)

    with pytest.raises(TypeError, match="Sampler does not have; pass its draws as an Ensemble"):
        projected_pit(torch.zeros(4, 3), Sampler(), HDR())


@pytest.mark.parametrize(
    ("prerank", "n_targets", "message"),
    [
        (Scale(), 1, r"Scale\(\) is constant .* use Marginal\(\)"),
        (Dependency(), 1, r"constant for D=1 .* use Marginal\(\)"),
        (Dependency(), 2, r"constant for D=2 targets, .* use Scale\(\) or Contrast\(\)"),
        (Dependency(lag=3), 3, r"needs more than 3 targets, got D=3; use a lag of at most 2"),
        (Dependency(lag=0), 3, r"lag=0.*1 or more"),
        (Contrast(0, 3), 3, "two different targets between 0 and 2"),
        (Contrast(1, 1), 3, "two different targets"),
        (SquaredDifference(0, 5), 3, "two different targets"),
        (PCA(n_components=0), 3, "at least one component"),
    ],
)
def test_preranks_that_mean_nothing_here_are_refused_with_the_alternative(prerank, n_targets, message):
    with pytest.raises(ValueError, match=message):
        projected_pit(torch.zeros(4, n_targets), Ensemble(members(n_targets=n_targets)), prerank)


def test_principal_components_need_two_reference_draws():
    forecast = Ensemble(members(), reference=torch.zeros(4, 1, 3))
    with pytest.raises(ValueError, match="at least two points per case"):
        projected_pit(torch.zeros(4, 3), forecast, PCA())


def test_principal_components_say_how_many_are_kept():
    few = projected_pit(torch.zeros(4, 6), Ensemble(members(n_members=2, n_targets=6)), PCA())
    assert few.values.shape == (4, 2)
    assert few.notes == {"PCA": "2 of 6 components"}
    reference = Ensemble(members(n_targets=6), reference=torch.randn(4, 4, 6))
    assert projected_pit(torch.zeros(4, 6), reference, PCA()).values.shape == (4, 3)
    assert projected_pit(torch.zeros(4, 3), Ensemble(members()), PCA(2)).values.shape == (4, 2)


def test_notes_say_where_a_density_comes_from():
    bare = projected_pit(torch.zeros(4, 3), Ensemble(members()), HDR())
    assert bare.notes["HDR"] == "kernel density of 6 points, Scott's rule per target"
    law = StudentT(3.0).expand((4, 3))
    known = Ensemble(members(), reference=torch.distributions.Independent(law, 1))
    assert projected_pit(torch.zeros(4, 3), known, HDR()).notes["HDR"] == "log_prob of Independent"


@pytest.mark.parametrize("n_targets", [1, 2, 3])
@pytest.mark.parametrize("n_members", [1, 5])
@pytest.mark.parametrize("n_cases", [1, 4])
@pytest.mark.parametrize("constant", [False, True], ids=["members that differ", "constant members"])
def test_the_smallest_good_input_works(n_cases, n_members, n_targets, constant):
    x = members(n_cases, n_members, n_targets)
    x = torch.zeros_like(x) if constant else x
    pit = projected_pit(torch.zeros(n_cases, n_targets), Ensemble(x), paper_preranks(n_targets), exchangeable=True)
    assert pit.values.isfinite().all()
    assert pit.points.lower.shape == (n_cases, n_members + 1, pit.values.shape[-1])
    if constant:
        assert (pit.tied == 1).all()


def test_a_constant_vector_counts_as_perfectly_dependent():
    points = torch.tensor([[[0.1, 0.1, 0.1], [1.0, 2.0, 3.0]]])
    t = Dependency().given(Ensemble(points))(points)[0, :, 0]
    assert t[0] == 0
    assert t[1] < 0


def test_copula_in_many_dimensions_says_that_ties_decide():
    pit = projected_pit(torch.zeros(200, 20), Ensemble(members(200, 10, 20)), Copula())
    assert pit.tied.item() > 0.9
