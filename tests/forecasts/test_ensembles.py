"""Ensembles and the door: axes are named, foreign arrays come back as they went in, ambiguous shapes are refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Ensemble, GaussianMixture, as_ensemble, pce
from prerank.arrays import as_observations, as_tensor
from prerank.forecasts.ensemble import in_units


def test_weighted_moments_are_those_of_repeated_members():
    members = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weighted = Ensemble(members, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).expand(4, 3))
    repeated = Ensemble(members[:, [0, 1, 1, 2, 2, 2]])
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.covariance_matrix, repeated.covariance_matrix)
    torch.testing.assert_close(weighted.effective_size, torch.full((4,), 36 / 14, dtype=torch.float64))
    torch.testing.assert_close(repeated.effective_size, torch.full((4,), 6.0, dtype=torch.float64))


def test_cases_are_selected_with_their_weights_and_references():
    members = torch.randn(5, 3, 2)
    mixture = GaussianMixture(torch.zeros(5, 1), torch.randn(5, 1, 2), torch.eye(2).expand(5, 1, 2, 2))
    some = Ensemble(members, torch.rand(5, 3), mixture).select(slice(1, 3))
    assert some.members.shape == (2, 3, 2)
    assert some.weights.shape == (2, 3)
    assert torch.equal(some.reference.loc, mixture.loc[1:3])
    assert Ensemble(members, reference=torch.randn(5, 9, 2)).select(slice(0, 1)).reference.n_members == 9
    with pytest.raises(TypeError, match="reference is a MultivariateNormal cannot be cut"):
        Ensemble(members, reference=MultivariateNormal(torch.zeros(5, 2), torch.eye(2))).select(slice(0, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ensemble(torch.zeros(5, 3)), r"members\[\.\.\., None\]"),
        (lambda: Ensemble(torch.zeros(5, 3, 2), torch.ones(5)), r"one weight per case and member is \(5, 3\)"),
        (lambda: Ensemble(torch.zeros(5, 3, 2), reference=torch.zeros(4, 3, 2)), "for 4 cases and 2 targets"),
        (lambda: as_ensemble(np.zeros((5, 5, 2)), torch.zeros(5, 2)), "first two axes have the same length"),
        (lambda: as_ensemble(np.zeros((5, 2, 2)), torch.zeros(5, 2)), "last two axes have the same length"),
        (lambda: as_ensemble(np.zeros((9, 5, 2)), torch.zeros(5, 2)), "it looks sample-first"),
        (lambda: as_ensemble(np.zeros((5, 2, 9)), torch.zeros(5, 2)), "it looks member-last"),
        (lambda: as_ensemble(np.zeros((4, 9, 3)), torch.zeros(5, 2)), "expected .*5 cases, M members, 2 targets"),
        (lambda: as_ensemble(np.zeros((4, 9, 3)), axes=("case", "member", "member")), "exactly once"),
        (lambda: as_observations(torch.zeros(4)), r"y\[:, None\] for one target"),
        (lambda: as_tensor(np.array(["a"]), "y"), "y has dtype <U1"),
        (lambda: as_tensor(pd.Series(pd.to_datetime(["2020-01-01"])), "y"), "convert text and dates first"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_axes_can_be_named_in_any_order():
    values = np.random.default_rng(0).normal(size=(5, 7, 3))  # case, member, target
    expected = torch.from_numpy(values)
    for order in [("member", "case", "target"), ("target", "member", "case"), ("case", "target", "member")]:
        moved = np.transpose(values, [("case", "member", "target").index(axis) for axis in order])
        assert torch.equal(as_ensemble(moved, axes=order).members, expected)


def test_xarray_names_its_axes_itself():
    xarray = pytest.importorskip("xarray")
    values = np.random.default_rng(0).normal(size=(7, 5, 3))
    array = xarray.DataArray(values, dims=("member", "case", "target"))
    assert torch.equal(as_ensemble(array).members, torch.from_numpy(values).movedim(0, 1))


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, list])
def test_users_get_back_what_they_passed(kind):
    pit = np.linspace(0.01, 0.99, 40)[:, None]
    expected = pce(torch.from_numpy(pit))
    assert isinstance(expected, torch.Tensor)
    found = pce(kind(pit.tolist()) if kind is list else kind(pit))
    assert isinstance(found, np.ndarray)
    assert found == pytest.approx(expected.numpy())


def test_whole_numbers_read_only_and_foreign_byte_orders_become_floats():
    assert as_tensor(np.arange(3)).dtype == torch.float64
    assert as_tensor(torch.arange(3)).dtype == torch.get_default_dtype()
    assert as_tensor(np.arange(3, dtype=">f8")).tolist() == [0.0, 1.0, 2.0]
    frozen = np.ones(3)
    frozen.flags.writeable = False
    assert as_tensor(frozen).tolist() == [1.0, 1.0, 1.0]


def test_the_effective_size_is_that_of_each_case_whatever_the_leading_axes():
    weights = torch.tensor([[[1.0, 1.0, 2.0], [1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0], [0.0, 3.0, 3.0]]])
    forecast = Ensemble(torch.zeros(2, 2, 3, 1), weights)
    torch.testing.assert_close(forecast.effective_size, torch.tensor([[16 / 6, 1.0], [3.0, 2.0]]))


def test_an_ensemble_has_the_sizes_and_draws_of_a_distribution():
    ensemble = Ensemble(torch.arange(2 * 7 * 5 * 3.0).reshape(2, 7, 5, 3))
    assert (ensemble.batch_shape, ensemble.event_shape) == ((2, 7), (3,))
    assert ensemble.ensemble(50) is ensemble


def test_other_units_are_those_of_the_reference_too():
    units = torch.tensor([2.0, 4.0])
    law = GaussianMixture(torch.zeros(3, 1), torch.ones(3, 1, 2), torch.eye(2).expand(3, 1, 2, 2))
    found = Ensemble(torch.ones(3, 5, 2), torch.ones(3, 5), law).in_units(units)
    assert torch.equal(found.members[0, 0], 1 / units)
    assert torch.equal(found.reference.loc[0, 0], 1 / units)
    assert torch.equal(found.reference.scale_tril[0, 0], torch.diag(1 / units))
    plain = torch.distributions.MultivariateNormal(torch.ones(3, 2), torch.eye(2))
    torch.testing.assert_close(in_units(plain, units).covariance_matrix[0], torch.diag(units**-2))
    opaque = torch.distributions.Independent(torch.distributions.Laplace(torch.ones(3, 2), 1.0), 1)
    points = torch.rand(3, 2)
    torch.testing.assert_close(
        in_units(opaque, units).log_prob(points), opaque.log_prob(units * points) + units.log().sum()
    )
