"""Marginally calibrated, jointly wrong: the margins pass, contrast and PCA do not."""

import pytest

from prerank_paper.simulations.marginal import bivariate_normal, run_marginal


def test_margins_are_calibrated_and_the_rest_is_not():
    p_values = run_marginal(1000).tests.set_index("projection")["p_value"]
    assert p_values[["y1", "y2"]].min() > 0.01
    assert p_values[["y1 - y2", "component 1", "component 2"]].max() < 0.001


def test_a_true_forecast_passes_everywhere():
    assert run_marginal(1000, 0.8, 0.8).tests["p_value"].min() > 0.01


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="no density"):
        bivariate_normal(1.0, 5)
    with pytest.raises(ValueError, match="10 or more"):
        run_marginal(3)
