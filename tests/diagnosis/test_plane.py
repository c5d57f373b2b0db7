"""The rank histogram of two projections in the plane counts what it says, and fails where the dependence is wrong."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from scipy import stats

from builders import normal, random_mixture
from prerank import Ensemble, Location, Marginal, check, projected_pit
from prerank.diagnosis.plane import plane_histogram
from prerank.plotting import new_figure
from prerank.plotting.panels import PlaneHistogram
from prerank.plotting.plane import plane_panel
from prerank.plotting.style import BLUE, INK, ORANGE


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


def drawn(observed, expected, failed=None):
    observed, expected = np.array(observed, float), np.array(expected, float)
    failed = np.zeros(observed.shape, bool) if failed is None else np.array(failed)
    axes = new_figure(3.0, 3.0).add_subplot()
    return plane_panel(axes, PlaneHistogram(("first", "second"), observed, expected, failed))


def test_a_cell_is_drawn_where_its_ranks_are_with_its_numbers():
    axes = drawn([[1, 20], [3, 4.4]], [[5, 6.6], [7, 8]], [[False, True], [False, False]])
    said = {tuple(np.round(text.get_position(), 3)): text for text in axes.texts}
    assert said[0.25, 0.75].get_text() == "20\n(7)"  # rank of the first to the right, of the second upwards
    assert said[0.75, 0.25].get_text() == "3\n(7)"
    assert said[0.75, 0.75].get_text() == "4\n(8)"
    assert [text.get_fontweight() for text in axes.texts] == ["normal", "bold", "normal", "normal"]
    assert {text.get_horizontalalignment() for text in axes.texts} == {"center"}
    assert {text.get_verticalalignment() for text in axes.texts} == {"center"}
    (mesh,) = axes.collections
    assert min(mesh.get_linewidths()) > 0  # white lines between the cells
    assert mesh.get_edgecolors().tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rank of first", "rank of second")
    assert axes.get_aspect() == 1
    assert axes.get_xlim() == axes.get_ylim() == (0.0, 1.0)


def test_colours_go_from_a_third_of_the_expected_number_to_three_times_as_many():
    axes = drawn([[10, 30], [10 / 3, 90]], [[10, 10], [10, 10]])
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array(), [[0, -1], [1, 1]], atol=1e-12)  # rows upwards
    white, blue, orange = (mesh.cmap(mesh.norm(value)) for value in (0.0, -1.0, 1.0))
    assert white == pytest.approx((1, 1, 1, 1), abs=0.01)
    assert blue == pytest.approx(to_rgba(BLUE), abs=0.01)
    assert orange == pytest.approx(to_rgba(ORANGE), abs=0.01)
    assert [text.get_color() for text in axes.texts] == [INK, "white", "white", "white"]
    (half,) = drawn([[10, 3**0.5 * 10], [10, 10]], [[10, 10], [10, 10]]).collections
    assert half.get_array()[1, 0] == pytest.approx(0.5)
    assert [text.get_color() for text in drawn([[10, 21], [21.9, 10]], [[10, 10], [10, 10]]).texts] == [
        INK,
        INK,
        "white",
        INK,
    ]


def test_an_empty_cell_is_the_bluest_and_one_that_nobody_expected_has_a_colour():
    (mesh,) = drawn([[0, 5], [0, 1]], [[5, 5], [0, 0]]).collections
    np.testing.assert_allclose(mesh.get_array(), [[-1, -1], [0, 1]])


@pytest.mark.parametrize(("lowest", "fails"), [(42, False), (43, True), (18, False), (17, True)])
def test_a_cell_fails_beyond_what_chance_allows_all_of_them(lowest, fails):
    """Three points on a line, each the observation in a third of 90 cases: 30 expected, standard deviation 20^(1/2).

    The quantile for nine cells is 2.773, so that 12 too many or too few are chance and 13 are not.
    """
    assert 12 < stats.norm.isf(0.05 / 2 / 9) * 20**0.5 < 13
    line = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    rest = 90 - lowest
    place = torch.tensor([0] * lowest + [1] * (rest // 2) + [2] * (rest - rest // 2))
    points = torch.stack([torch.roll(line, -int(k), 0) for k in place])
    pit = projected_pit(points[:, 0], Ensemble(points[:, 1:]), Marginal(), exchangeable=True)
    found = plane_histogram(pit, "y1", "y2", 3)
    np.testing.assert_allclose(np.diag(found.observed), [lowest, rest // 2, rest - rest // 2], atol=1e-9)
    np.testing.assert_allclose(found.expected, 30 * np.eye(3), atol=1e-11)
    assert found.failed[0, 0] == fails
    assert found.failed.sum() == fails


def test_five_bins_each_way_unless_told_otherwise_and_two_are_enough():
    x = correlated(60, 8, 0.5, 7)
    result = check(x[:, 0], x[:, 1:], Marginal())
    assert result.plane("y1", "y2").observed.shape == (5, 5)
    assert plane_histogram(result.pit, "y1", "y2").observed.shape == (5, 5)
    assert result.plane("y1", "y2", 2).observed.shape == (2, 2)
