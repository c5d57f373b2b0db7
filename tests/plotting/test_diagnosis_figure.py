"""The figure of a check: common axes, no projection hidden by another, bands that hold."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from scipy import stats

from prerank import Location, Marginal, check, check_pits
from prerank.diagnosis import grouped
from prerank.plotting.diagnosis import ROWS
from prerank.plotting.panels import HIGHEST, fitting_names
from prerank.plotting.style import ORANGE

EVEN = (np.arange(200) + 0.5) / 200
SHIFTED = np.column_stack([EVEN**1.5, 1 - EVEN**1.5, EVEN])  # two opposite errors, whose mean histogram is nearly flat


def drawn(figure) -> dict[str, list[Axes]]:
    """The axes by what they show."""
    found: dict[str, list[Axes]] = {"histogram": [], "curve": [], "strip": []}
    for ax in figure.axes:
        is_strip = any(part.get_array() is not None for part in ax.collections)
        found["strip" if is_strip else "histogram" if ax.containers else "curve"].append(ax)
    return found


def opposite(n_cases: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """One target forecast too high, one too low, one right."""
    rng = np.random.default_rng(2)
    return rng.normal([-1.0, 1.0, 0.0], 1.0, (n_cases, 3)), rng.normal(size=(n_cases, 19, 3))


def test_all_histograms_have_one_axis_and_all_curves_another():
    y, members = opposite()
    axes = drawn(check(y, members, n_replicates=99).plot())
    assert len(axes["histogram"]) == len(axes["curve"]) == 7
    assert len({ax.get_ylim() for ax in axes["histogram"]}) == 1
    assert len({ax.get_ylim() for ax in axes["curve"]}) == 1
    low, high = axes["curve"][0].get_ylim()
    assert low == -high


def test_opposite_errors_of_two_targets_do_not_cancel():
    y, members = opposite()
    result = check(y, members, Marginal(), n_replicates=99)
    figure = result.plot()
    bins, curves = (ax.collections[0].get_array().reshape(3, -1) for ax in drawn(figure)["strip"])
    assert bins[0, 0] > 1 > -1 > bins[0, -1]  # the first target: too often low
    assert bins[1, 0] < -1 < 1 < bins[1, -1]
    assert np.abs(bins[2]).max() <= 1
    assert curves[0].max() == 3.0
    assert curves[1].min() == -3.0
    pooled = np.mean([one.heights for one in result.panels()[0].projections], 0)
    assert pooled[0] > 1
    assert pooled[-1] > 1  # as of a forecast that is too narrow, which none of them is
    assert result.table.loc["marginal", "reading"] == "y1: biased high; y2: biased low"


def test_the_worst_projection_is_drawn_in_the_colour_of_the_verdict():
    y, members = opposite()
    result = check(y, members, Marginal(), n_replicates=99)
    (panel,) = result.panels()
    (histogram,) = drawn(result.plot())["histogram"]
    heights = [bar.get_height() for bar in histogram.containers[0]]
    assert panel.worst in (0, 1)
    assert heights == pytest.approx(np.minimum(panel.projections[panel.worst].heights, HIGHEST).tolist())
    assert to_rgb(histogram.containers[0][0].get_facecolor()) == to_rgb(ORANGE)


def test_bars_that_are_cut_say_how_high_they_are():
    figure = check_pits(np.full(200, 0.55)).plot()
    (histogram,) = drawn(figure)["histogram"]
    assert histogram.get_ylim() == (0, HIGHEST)
    assert [text.get_text() for text in histogram.texts] == ["10.0"]


def test_a_figure_says_what_its_colours_mean():
    y, members = opposite(60)
    several = check(y, members, Marginal(), n_replicates=99).plot().legends[0]
    single = check(y, members, Location(), n_replicates=99).plot().legends[0]
    assert "95 % consistency band" in {text.get_text() for text in single.get_texts()}
    assert {"row: below the band", "row: above"} <= {text.get_text() for text in several.get_texts()}


def test_many_projections_leave_the_worst_rows():
    pits = np.tile(EVEN[:, None], (1, 3))
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=(60, ROWS + 20)), rng.normal(size=(60, 9, ROWS + 20))
    y[:, 37] += 3
    figure = check(y, members, Marginal(), n_replicates=99).plot()
    strip = drawn(figure)["strip"][0]
    names = [text.get_text() for text in strip.get_yticklabels()]
    assert len(names) == ROWS
    assert "y38" in names
    assert check_pits(pits).plot().get_figwidth() == 5.0


def test_columns_stand_side_by_side_and_impossible_numbers_are_refused():
    result = check_pits(SHIFTED)
    one, three = result.plot(), result.plot(columns=3)
    assert three.get_figwidth() == 3 * one.get_figwidth()
    assert three.get_figheight() < one.get_figheight()
    for columns in (0, 4):
        with pytest.raises(ValueError, match=f"columns is {columns}; give a whole number from 1 to 3"):
            result.plot(columns=columns)


@pytest.mark.filterwarnings("error")
def test_one_case_and_all_ties_have_a_figure(tmp_path):
    check(np.zeros((1, 2)), np.zeros((1, 1, 2)), [Marginal()], n_replicates=19).plot(tmp_path / "one.png")
    check(np.zeros((30, 2)), np.zeros((30, 4, 2)), [Marginal()], n_replicates=19).plot(tmp_path / "ties.png")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("in_blocks", [False, True])
def test_all_bins_of_a_calibrated_forecast_stay_inside_their_band(in_blocks, benchmark_script):
    """In 95 % of data sets or more, so that more than the binomial bound at one in a million is a fault."""
    count = 20
    found = benchmark_script("report").outside(in_blocks, count, n_replicates=99)
    assert found <= stats.binom(count, 0.05).isf(1e-6)


def test_dependent_cases_have_wider_bands():
    rng = np.random.default_rng(1)
    points = np.repeat(rng.normal(size=(40, 10, 1)), 5, axis=0)
    alone, together = (
        check(points[:, 0], points[:, 1:], Marginal(), blocks=blocks, n_replicates=199).panels()[0].band
        for blocks in (None, np.repeat(np.arange(40), 5))
    )
    # five equal cases are one: as wide as for 40 cases, up to what simulation leaves open
    assert stats.binom(50, 0.1).isf(0.0025) / 5 <= together[1] <= stats.binom(32, 0.1).isf(0.0025) / 3.2
    assert alone[1] < together[1]


def test_groups_have_a_heat_map_with_the_worst_on_top(tmp_path):
    right, wrong = check_pits(EVEN), check_pits(EVEN**2)
    checks = {f"$g_{k}$": wrong if k == 69 else right for k in range(170)}
    figure = grouped(checks).plot(tmp_path / "groups.svg")
    (ax,) = figure.axes
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert len(names) == 150
    assert names[0] == "$g_69$"
    assert any("150 of 170 groups" in text.get_text() for text in figure.texts)
    assert "g_69" in (tmp_path / "groups.svg").read_text()


def test_names_from_data_frames_are_shortened_in_the_rows():
    y, members = opposite(60)
    frame = pd.DataFrame(y, columns=["a", "b", "x" * 80])
    strip = drawn(check(frame, members, Marginal(), n_replicates=99).plot())["strip"][0]
    assert [text.get_text() for text in strip.get_yticklabels()] == ["a", "b", "x" * 16 + "…"]


def test_shortened_names_stay_different():
    rng = np.random.default_rng(1)
    for length in (6, 12, 24):
        for names in (
            [f"2 metre temperature at station {k}" for k in range(120)],
            ["x" * k for k in range(1, 60)],
            ["".join(rng.choice(list("ab "), 40)) for _ in range(50)],
        ):
            cut = fitting_names(names, length)
            assert len(set(cut)) == len(set(names))
            assert max(map(len, cut)) <= length


@pytest.mark.parametrize(("n_members", "bars"), [(1, 2), (4, 5), (19, 20), (20, 10), (50, 10)])
def test_few_members_have_a_bar_for_every_rank(n_members, bars):
    rng = np.random.default_rng(2)
    points = rng.normal(size=(90, n_members + 1, 2))
    result = check(points[:, 0], points[:, 1:], [Marginal(), Location()], n_replicates=99)
    ranks = (points[:, 1:, 0] < points[:, :1, 0]).sum(1)
    for panel in result.panels():
        assert panel.by_rank == (bars == n_members + 1)
        assert {len(one.heights) for one in panel.projections} == {bars}
    heights = result.panels()[0].projections[0].heights
    assert heights.mean() == pytest.approx(1.0)
    if bars == n_members + 1:
        assert heights == pytest.approx(np.bincount(ranks, minlength=bars) * bars / 90)
    assert len(drawn(result.plot())["histogram"][0].containers[0]) == bars


def test_a_figure_says_what_to_see():
    y, members = opposite()
    result = check(y, members, [Marginal(), Location()], n_replicates=99)
    words = " ".join(text.get_text() for text in result.plot().texts)
    assert " ".join(result.sentences["marginal"].split()) in " ".join(words.split())
    labels = {ax.get_xlabel() for ax in result.plot().axes}
    assert {"place of the outcome", "level"} <= labels
