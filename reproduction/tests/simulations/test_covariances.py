"""Covariances are symmetric positive definite, and preserve exactly what they promise."""

import math

import pytest
import torch

from prerank_paper.simulations.covariances import (
    distorted_structure,
    eigenbasis,
    exponential_covariance,
    flipped_anisotropy,
    grid_locations,
    line_locations,
    require_covariance,
    scrambled_spectrum,
    stretched_covariance,
    with_variances_of,
)

LINE, GRID = exponential_covariance(line_locations(10)), exponential_covariance(grid_locations(5, 5))
CONSTRUCTIONS = [scrambled_spectrum, distorted_structure, flipped_anisotropy]
ROUNDING = 1e-12


@pytest.mark.parametrize("truth", [LINE, GRID], ids=["line", "grid"])
@pytest.mark.parametrize("construct", CONSTRUCTIONS)
class TestEveryConstruction:
    def test_is_symmetric_positive_definite_in_both_forms(self, construct, truth):
        for matrix in (construct(truth), with_variances_of(construct(truth), truth)):
            assert torch.equal(matrix, matrix.mT)
            assert torch.linalg.eigvalsh(matrix)[0] > 0

    def test_rescaled_form_has_the_true_variances_exactly(self, construct, truth):
        assert torch.equal(with_variances_of(construct(truth), truth).diagonal(), truth.diagonal())

    def test_paper_form_does_not_have_the_true_variances(self, construct, truth):
        assert (construct(truth).diagonal() - truth.diagonal()).abs().max() > 0.05

    def test_rescaling_keeps_the_correlations(self, construct, truth):
        def correlations(matrix):
            scale = matrix.diagonal().rsqrt()
            return scale[:, None] * matrix * scale

        wrong = construct(truth)
        assert (correlations(with_variances_of(wrong, truth)) - correlations(wrong)).abs().max() < ROUNDING

    def test_does_not_depend_on_the_basis_of_equal_eigenvalues(self, construct, truth):
        # an error of the size of rounding picks another basis of an eigenspace; the covariance must not notice
        noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0), dtype=truth.dtype) * 1e-14
        assert (construct(truth + noise + noise.mT) - construct(truth)).abs().max() < 1e-8


@pytest.mark.parametrize("truth", [LINE, GRID], ids=["line", "grid"])
def test_scramble_and_flip_preserve_the_trace_and_structure_the_variance_of_the_mean(truth):
    assert abs(float(scrambled_spectrum(truth).trace() - truth.trace())) < ROUNDING * len(truth)
    assert abs(float(flipped_anisotropy(truth).trace() - truth.trace())) < ROUNDING * len(truth)
    assert abs(float((distorted_structure(truth).mean() - truth.mean()) / truth.mean())) < ROUNDING


def test_structure_at_the_default_has_the_diagonal_that_shows_the_paper_wrong():
    diagonal = distorted_structure(LINE).diagonal()
    assert round(float(diagonal.min()), 2) == 0.98
    assert round(float(diagonal.max()), 2) == 1.27


def test_scramble_keeps_eigenvectors_and_reverses_eigenvalues():
    values, vectors = eigenbasis(LINE)
    within = vectors.mT @ scrambled_spectrum(LINE) @ vectors
    assert (within - torch.diag(values.flip(0))).abs().max() < ROUNDING
    assert (scrambled_spectrum(LINE, gamma=0.0) - LINE).abs().max() < ROUNDING


def test_flip_leaves_index_d_minus_k_unchanged_and_turns_the_first_plane():
    values, vectors = eigenbasis(LINE)
    turned = vectors.clone()
    turned[:, 0], turned[:, 1] = vectors[:, 1], -vectors[:, 0]
    spectrum = (turned.mT @ flipped_anisotropy(LINE, ratio=2.0, n_directions=3) @ turned).diagonal()
    reverse = values.flip(0)
    ratio = spectrum / reverse / (spectrum[5] / reverse[5])
    assert torch.allclose(ratio, torch.tensor([2.0] * 3 + [1.0] * 4 + [0.5] * 3, dtype=ratio.dtype))


def test_stretching_keeps_variances_and_the_unstretched_axis():
    stretched = stretched_covariance(grid_locations(5, 5), factor=5.0)
    assert torch.equal(stretched.diagonal(), torch.ones(25, dtype=torch.float64))
    assert math.isclose(float(stretched[0, 5]), math.exp(-1))  # the next row
    assert math.isclose(float(stretched[0, 1]), math.exp(-5))  # the next column


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: distorted_structure(LINE, n_directions=5), "overlap"),
        (lambda: distorted_structure(LINE, n_directions=0), "overlap or are none"),
        (lambda: distorted_structure(LINE, factor=1.0), "greater than 1"),
        (lambda: flipped_anisotropy(LINE, n_directions=6), "use k from 1 to 5"),
        (lambda: flipped_anisotropy(LINE, ratio=0.5), "greater than 1"),
        (lambda: scrambled_spectrum(LINE, gamma=1.5), "from 0 to 1"),
        (lambda: exponential_covariance(line_locations(3), range_=0.0), "positive"),
        (lambda: stretched_covariance(line_locations(3)), "in the plane"),
        (lambda: require_covariance(torch.tensor([[1.0, 2.0], [2.0, 1.0]])), "smallest eigenvalue -1"),
        (lambda: require_covariance(torch.tensor([[1.0, 0.5], [0.0, 1.0]])), "not a symmetric matrix"),
    ],
)
def test_bad_arguments_are_refused(construct, message):
    with pytest.raises(ValueError, match=message):
        construct()


def test_a_distortion_that_leaves_the_positive_definite_cone_is_refused():
    with pytest.raises(ValueError, match="not positive definite"):
        distorted_structure(LINE, factor=1000.0, n_directions=4)
