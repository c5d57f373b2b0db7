"""Functions that tilts are compared with: orthonormal for a uniform PIT, and used only where they are asked for."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from prerank.recalibration import likelihood, tilted
from prerank.recalibration.basis import legendre, log_tilt


@pytest.mark.parametrize("name", ["splines", "tails"])
def test_functions_are_orthonormal_and_a_tilt_is_their_sum(benchmark_script, name):
    bases = benchmark_script("other_bases")
    table = bases.BASES[name](8)
    np.testing.assert_allclose(table @ table.T / table.shape[1], np.eye(8), atol=1e-9)
    np.testing.assert_allclose(table.mean(1), 0, atol=1e-9)
    line = np.sqrt(12) * ((np.arange(bases.N_GRID) + 0.5) / bases.N_GRID - 0.5)
    assert abs(abs(table[0] @ line) / bases.N_GRID - 1) < 1e-5  # the first is the straight line
    generator = torch.Generator().manual_seed(0)
    pits, theta = torch.rand(3, 5, 4, generator=generator), torch.randn(8, 4, generator=generator)
    with bases.basis(name):
        functions = likelihood.legendre(pits, 8)
        assert_close(tilted.log_tilt(pits, theta), torch.einsum("npjk,jk->np", functions, theta))
        assert float((functions - legendre(pits, 8)).abs().max()) > 0.1
    assert tilted.log_tilt is log_tilt
    assert likelihood.legendre is legendre
