"""The rank histogram of two projections in the plane counts what it says, and fails where the dependence is wrong."""

import numpy as np
import pytest
import torch

from builders import normal, random_mixture
from prerank import Location, Marginal, check
from prerank.diagnosis.plane import plane_histogram


def correlated(n_cases, n_members, rho, seed):
    x = normal(n_cases, n_members, 2, seed=seed)
    return torch.stack([x[..., 0], rho * x[..., 0] + (1 - rho**2) ** 0.5 * x[..., 1]], -1)


def test_cells_hold_all_cases_and_what_is_expected_is_the_mean_over_the_points():
    x = correlated(150, 10, 0.6, 0)
    result = check(x[:, 0], x[:, 1:], Marginal())
    found = result.plane("y1", "y2", 4)
    assert found.observed.sum() == pytest.approx(150)
    assert found.expected.sum() == pytest.approx(150)
    lower, upper = (end.numpy() for end in result.pit.points.bounds())
    by_hand = np.zeros((4, 4))
    for case in range(150):
        for point in range(10):
            shares = [
                np.clip(
                    np.minimum(upper[case, point, k], np.arange(1, 5) / 4)
                    - np.maximum(lower[case, point, k], np.arange(4) / 4),
                    0,
                    1,
                )
                / (upper[case, point, k] - lower[case, point, k])
                for k in (0, 1)
            ]
            by_hand += np.outer(*shares) / 10
    np.testing.assert_allclose(found.expected, by_hand, atol=1e-9)
    assert found.expected[0, 0] > 2 * found.expected[0, 3]  # calibrated ranks of dependent targets are no square


def test_a_calibrated_forecast_fails_in_no_cell_more_often_than_promised():
    failed = 0
    for seed in range(40):
        x = correlated(100, 10, 0.6, seed)
        failed += check(x[:, 0], x[:, 1:], Marginal(), n_replicates=99).plane("y1", "y2").failed.any()
    assert failed <= 8  # 40 at 5 %: more with probability 5e-4


def test_missing_dependence_fails_in_the_corners_though_both_targets_are_right():
    y, members = correlated(600, 1, 0.8, 1)[:, 0], correlated(600, 19, 0.0, 2)
    result = check(y, members, Marginal())
    found = result.plane("y1", "y2")
    assert result.calibrated
    assert found.failed[0, 0]
    assert found.failed[4, 4]
    assert found.observed[0, 0] > 1.5 * found.expected[0, 0]
    assert found.observed[0, 4] < 0.5 * found.expected[0, 4]


def test_tied_ranks_are_spread_and_missing_members_count():
    x = correlated(80, 8, 0.5, 3).mul(1.5).round()
    x[5, 3] = torch.nan
    found = check(x[:, 0], x[:, 1:], Marginal()).plane("y1", "y2", 3)
    assert found.observed.sum() == pytest.approx(80)
    assert found.expected.sum() == pytest.approx(80)


def test_preranks_of_one_projection_are_called_by_their_name_and_others_are_refused():
    x = correlated(60, 8, 0.5, 4)
    result = check(x[:, 0], x[:, 1:], [Marginal(), Location()])
    assert result.plane("location", "y1").names == ("location", "y1")
    with pytest.raises(ValueError, match="no projection 'y3'; choose from y1, y2, location"):
        result.plane("y1", "y3")
    with pytest.raises(ValueError, match="two bins or more"):
        plane_histogram(result.pit, "y1", "y2", 1)
    law = check(normal(60, 2), random_mixture(60, n_targets=2), Marginal())
    with pytest.raises(ValueError, match=r"no ranks among members .closed form"):
        law.plane("y1", "y2")


def test_the_picture_has_a_number_for_every_cell(tmp_path):
    x = correlated(60, 8, 0.5, 5)
    figure = check(x[:, 0], x[:, 1:], Marginal()).plot_plane("y1", "y2", tmp_path / "plane.png", n_bins=4)
    assert (tmp_path / "plane.png").stat().st_size > 1000
    (axes,) = figure.axes
    assert len(axes.texts) == 16
    assert axes.get_xlabel() == "rank of y1"
