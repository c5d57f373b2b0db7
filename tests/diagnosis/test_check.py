"""`check` says what is true, whatever the container, the units and the holes in the data."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.distributions import Independent, MultivariateNormal, Normal

from prerank import (
    HDR,
    PCA,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    check,
    check_pits,
    projected_pit,
)


def truth(n_cases=150, n_members=20, n_targets=3, seed=0):
    rng = np.random.default_rng(seed)
    factor = np.linalg.cholesky(0.6 + 0.4 * np.eye(n_targets))
    points = rng.normal(size=(n_cases, n_members + 1, n_targets)) @ factor.T
    return points[:, 0], points[:, 1:]


def quick(y, forecast, **options):
    return check(y, forecast, **{"n_replicates": 99, **options})


class TestContainers:
    def test_numpy_torch_and_pandas_give_the_same_table(self):
        y, members = truth()
        tables = [
            quick(y, members).table,
            quick(torch.from_numpy(y), Ensemble(torch.from_numpy(members))).table,
            quick(pd.DataFrame(y), members).table,
        ]
        numbers = [table.drop(columns="reading") for table in tables]
        pd.testing.assert_frame_equal(numbers[0], numbers[1])
        pd.testing.assert_frame_equal(numbers[0], numbers[2])

    def test_target_names_of_a_frame_name_the_marginals(self):
        y, members = truth()
        result = quick(pd.DataFrame(y, columns=["wind", "sun", "load"]), 0.3 * members)
        assert result.pit.names[:3] == ("wind", "sun", "load")
        assert result.table.loc["marginal", "reading"] == "wind to load: under-dispersed"

    def test_sample_first_arrays_are_named_or_refused(self):
        y, members = truth()
        with pytest.raises(ValueError, match="sample-first"):
            quick(y, members.swapaxes(0, 1))
        named = quick(y, members.swapaxes(0, 1), axes=("member", "case", "target"))
        pd.testing.assert_frame_equal(named.table, quick(y, members).table)

    def test_distributions_need_no_members(self):
        y, _ = truth()
        covariance = torch.tensor(0.6 + 0.4 * np.eye(3))
        law = MultivariateNormal(torch.zeros(150, 3, dtype=torch.float64), covariance)
        assert quick(y, law).table.loc["HDR", "p-value"] > 0.001
        independent = Independent(Normal(torch.zeros(150, 3, dtype=torch.float64), 1.0), 1)
        assert not quick(y, independent, preranks=[Scale(), Dependency(), Location()]).calibrated

    def test_mixtures_are_checked_in_closed_form(self):
        y, _ = truth()
        factor = torch.linalg.cholesky(torch.tensor(0.6 + 0.4 * np.eye(3)))
        zeros = torch.zeros(150, 1, 3, dtype=torch.float64)
        law = GaussianMixture(zeros[..., 0], zeros, factor.expand(150, 1, 3, 3))
        result = quick(y, law)
        assert "closed form" in result.pit.method
        assert result.p_value > 0.001


class TestMissingValues:
    def test_cases_without_an_observation_are_dropped_and_counted(self):
        y, members = truth()
        holes = y.copy()
        holes[[3, 77], 1] = np.nan
        kept = np.setdiff1d(np.arange(150), [3, 77])
        result = quick(holes, members)
        assert result.n_cases == 148
        assert any("2 of 150 cases dropped" in note for note in result.notes)
        expected = projected_pit(
            torch.from_numpy(y[kept]),
            Ensemble(torch.from_numpy(members[kept])),
            Location(),
            case_ids=torch.from_numpy(kept),
        ).values
        column = result.pit.groups.index("location")
        torch.testing.assert_close(result.pit.values[:, column], expected[:, 0], rtol=0, atol=0)

    def test_a_missing_member_is_left_out_of_its_case_only(self):
        y, members = truth()
        holes = members.copy()
        holes[:40, 5, 0] = np.nan
        result = quick(y, holes)
        assert any("40 of 3000 members left out" in note for note in result.notes)
        whole = quick(y, members)
        column = whole.pit.groups.index("location")
        torch.testing.assert_close(result.pit.values[40:, column], whole.pit.values[40:, column], rtol=0, atol=0)
        few = np.delete(members[:40], 5, axis=1)
        some = quick(y[:40], few)
        torch.testing.assert_close(result.pit.values[:40, column], some.pit.values[:, column], rtol=0, atol=0)

    @pytest.mark.slow
    def test_p_values_stay_uniform_when_members_are_missing_at_random(self):
        p_values = []
        for seed in range(80):
            y, members = truth(60, 6, 2, seed)
            holes = np.random.default_rng(1000 + seed).random((60, 6)) < 0.3
            holes[:, 0] = False
            members[holes] = np.nan
            p_values.append(quick(y, members, preranks=[Marginal(), Scale()], seed=seed).table["p-value"].to_numpy())
        for column in np.array(p_values).T:
            assert stats.kstest(column, "uniform").pvalue > 1e-4

    def test_nothing_left_is_refused(self):
        y, members = truth(5)
        with pytest.raises(ValueError, match="no case is left"):
            quick(np.full_like(y, np.nan), members)
        with pytest.raises(ValueError, match="no case is left"):
            quick(y, np.full_like(members, np.nan))

    def test_infinite_values_are_not_missing_values(self):
        y, members = truth(5)
        members[0, 0, 0] = np.inf
        with pytest.raises(ValueError, match="infinite"):
            quick(y, members)

    def test_pca_keeps_as_many_components_as_the_case_with_the_fewest_members_has(self):
        y, members = truth(30, 3, 5)
        members[:10, 0] = np.nan
        result = quick(y, members, preranks=[PCA()])
        assert len(result.projections) == 2
        assert any(
            note.startswith("PCA: 2 of 5 components, as many as the case with the fewest members (2)")
            for note in result.notes
        )
        asked = quick(y, members, preranks=[PCA(n_components=2)])
        torch.testing.assert_close(result.pit.lower, asked.pit.lower)
        assert len(quick(y, members, preranks=[PCA(n_components=1)]).projections) == 1

    @pytest.mark.slow
    def test_with_half_of_the_members_missing_at_random_pca_holds_its_size_and_sees_an_error(self):
        """The number of components depends on how many members a case has, not on which point is the observation."""
        rng = np.random.default_rng(4)
        p_values = []
        for seed in range(80):
            points = rng.normal(size=(40, 7, 3)) * [1, 2, 3]
            points[:, 1:][rng.random((40, 6)) < 0.5] = np.nan
            p_values.append(check(points[:, 0], points[:, 1:], PCA(), n_replicates=99, seed=seed).p_value)
        assert stats.kstest(p_values, "uniform").pvalue > 1e-3
        wide = rng.normal(size=(400, 7, 3)) * np.where(np.arange(7) == 0, 0.3, 1.0)[:, None]
        wide[:, 2:][rng.random((400, 5)) < 0.5] = np.nan
        assert check(wide[:, 0], wide[:, 1:], PCA(), n_replicates=99).calibrated is False


class TestUnits:
    def test_targets_in_units_tenfold_apart_are_scaled_and_the_notes_say_so(self):
        y, members = truth()
        units = np.array([1.0, 1.0, 1000.0])
        result = quick(y * units, members * units)
        assert any("pooled spread" in note for note in result.notes)
        pd.testing.assert_frame_equal(result.table, quick(y, members, scale="pooled").table, rtol=1e-9)

    def test_the_units_may_be_kept(self):
        y, members = truth()
        units = np.array([1.0, 1.0, 1000.0])
        kept = quick(y * units, members * units, scale="none")
        assert not any("pooled spread" in note for note in kept.notes)
        with pytest.raises(ValueError, match="auto"):
            quick(y, members, scale="sometimes")

    def test_scaling_a_forecast_changes_no_marginal_or_density_rank(self):
        y, _ = truth(80)
        law = MultivariateNormal(torch.zeros(80, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
        plain = quick(y, law, preranks=[HDR(), Marginal()], scale="none")
        scaled = quick(y, law, preranks=[HDR(), Marginal()], scale="pooled")
        torch.testing.assert_close(plain.pit.values[:, 1:], scaled.pit.values[:, 1:])


class TestAnswers:
    @pytest.mark.parametrize(
        ("change", "prerank", "word"),
        [
            (lambda members: members + 0.7, "location", "biased high"),
            (lambda members: members - 0.7, "location", "biased low"),
            (lambda members: 0.4 * members, "location", "under-dispersed"),
            (lambda members: 2.5 * members, "location", "over-dispersed"),
            (lambda members: members, "location", "flat"),
        ],
    )
    def test_the_reading_names_the_mistake(self, change, prerank, word):
        y, members = truth(400)
        assert word in quick(y, change(members)).table.loc[prerank, "reading"]

    def test_the_table_prints_with_its_verdict(self):
        y, members = truth()
        text = str(quick(y, 0.3 * members))
        assert "Miscalibrated" in text
        assert all(name in text for name in ("marginal", "location", "scale", "dependency", "PCA", "HDR", "copula"))
        assert "No evidence against calibration" in str(quick(y, members))
        assert "<table" in quick(y, members)._repr_html_()

    def test_ties_make_a_prerank_nearly_blind_and_the_table_says_so(self):
        x = np.random.default_rng(0).normal(size=(100, 11, 12))  # no point lies below another in all twelve targets
        result = quick(x[:, 0], x[:, 1:])
        assert "nearly blind here" in result.table.loc["copula", "reading"]
        assert result.table.loc["copula", "power"] < 0.2
        assert (result.table["power"].drop("copula") > 0.6).all()
        assert not result.table["reading"].drop("copula").str.contains("blind").any()

    def test_a_row_that_only_the_adjustment_saves_is_not_called_flat(self):
        """Raw p-value at most .05 and adjusted for seven independent columns above: no clear shape."""
        even, rng = np.linspace(0.001, 0.999, 100), np.random.default_rng(0)
        pits = np.column_stack([rng.permutation(even**power) for power in (1.35, 1, 1, 1, 1, 1, 1)])
        result = check_pits(pits)
        first = result.table.iloc[0]
        assert first["p-value"] <= 0.05 < first["adjusted p-value"]
        assert result.rejected is False
        assert first["reading"] == "no clear shape"
        assert (result.table["reading"].iloc[1:] == "flat").all()

    def test_a_row_that_is_rejected_is_not_called_nearly_blind(self):
        x = np.random.default_rng(0).normal(size=(100, 11, 12))
        result = quick(x[:, 0] + 0.8, x[:, 1:])  # the copula ties in most cases, and yet it sees this
        assert result.table.loc["copula", "power"] < 0.2
        assert result.table.loc["copula", "adjusted p-value"] <= 0.05
        assert "blind" not in result.table.loc["copula", "reading"]

    def test_the_corrected_error_of_a_row_is_the_mean_over_its_projections(self):
        y, members = truth()
        result = quick(y, 0.5 * members)
        own = result.projections.groupby(level="pre-rank", sort=False)["corrected PCE"].mean()
        pd.testing.assert_series_equal(own, result.table["corrected PCE"], check_names=False)
        one = result.projections.loc[("marginal", result.pit.names[1])]
        excess = one["PCE"] ** 2 - one["expected PCE"] ** 2
        assert one["corrected PCE"] == pytest.approx(np.sign(excess) * abs(excess) ** 0.5)

    @pytest.mark.slow
    def test_right_margins_are_not_rejected_where_the_dependence_is_wrong(self):
        """Ten targets correlated by .95 and forecast as independent: location sees it, marginal does not."""
        rng, marginal, others = np.random.default_rng(4), [], []
        for _ in range(40):
            y = 0.95**0.5 * rng.normal(size=(100, 1)) + 0.05**0.5 * rng.normal(size=(100, 10))
            table = quick(y, rng.normal(size=(100, 12, 10)), preranks=[Marginal(), Location()]).table
            marginal.append(table.loc["marginal", "p-value"])
            others.append(table.loc["location", "adjusted p-value"])
        assert (np.array(marginal) <= 0.05).sum() <= stats.binom.isf(1e-4, 40, 0.05)
        assert (np.array(others) <= 0.05).all()

    def test_a_target_on_few_values_gets_a_note(self):
        rng = np.random.default_rng(0)
        y = np.column_stack([rng.normal(size=200), rng.integers(0, 2, size=200)])
        members = rng.normal(size=(200, 20, 2))
        assert any("only 2 values in 200 cases" in note for note in quick(y, members).notes)
        counts = np.concatenate([members[..., :1], rng.integers(0, 2, size=(200, 20, 1))], -1)
        assert not any("values in" in note for note in quick(y, counts).notes)

    @pytest.mark.slow
    def test_the_figure_is_written(self, tmp_path):
        y, members = truth(60)
        result = quick(y, members)
        result.plot(tmp_path / "figure.png")
        result.plot(tmp_path / "both")
        assert {file.name for file in tmp_path.iterdir()} == {"figure.png", "both.png", "both.svg"}
        assert (tmp_path / "figure.png").stat().st_size > 10_000

    def test_case_weights_of_zero_and_one_choose_cases(self):
        y, members = truth()
        y[75:] += 5.0
        weights = np.repeat([1.0, 0.0], 75)
        assert quick(y, members, preranks=[Location()], case_weights=weights).table.loc[
            "location", "PCE"
        ] == pytest.approx(quick(y[:75], members[:75], preranks=[Location()]).table.loc["location", "PCE"], abs=1e-12)

    def test_too_few_cases_with_a_weight_are_counted(self):
        y, members = truth(40, 2, 3)
        weights = np.eye(40)[7]
        verdict = quick(y, members, preranks=[Location()], case_weights=weights).verdict
        assert verdict.startswith("No verdict: 40 cases (1 with a positive weight) with so few members are too few")
        blocks = np.arange(40) // 10
        verdict = quick(y, members, preranks=[Location()], case_weights=np.ones(40), blocks=blocks).verdict
        assert verdict.startswith("No verdict: 40 cases in 4 blocks with so few members are too few")

    def test_a_group_without_a_weight_is_refused(self):
        y, members = truth(40, 5, 3)
        weights, by = np.repeat([1.0, 0.0], 20), np.repeat(["north", "south"], 20)
        said = "group 'south': all 20 case_weights are zero; give one of them a positive weight, or leave the group out"
        with pytest.raises(ValueError, match=said):
            quick(y, members, preranks=[Location()], case_weights=weights, by=by)

    def test_one_case_and_one_member_have_an_outcome(self):
        y, members = truth(1, 1, 3)
        result = quick(y, members, preranks=[Location(), Scale()])
        assert result.n_cases == 1
        assert result.p_value > 0.01
        assert result.calibrated is None
        assert "No verdict: 1 case with so few members" in result.verdict

    def test_a_fleet_of_one_is_a_forecast(self):
        y, _ = truth()
        zeros = torch.zeros(1, 150, 1, 3, dtype=torch.float64)
        law = GaussianMixture(zeros[..., 0], zeros, torch.eye(3, dtype=torch.float64).expand(1, 150, 1, 3, 3))
        alone = GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])
        pd.testing.assert_frame_equal(quick(y, law).table, quick(y, alone).table)
        two = GaussianMixture(*(part.expand(2, *part.shape[1:]) for part in (law.logits, law.loc, law.scale_tril)))
        with pytest.raises(ValueError, match="one model at a time"):
            quick(y, two)

    def test_weighted_cases_have_no_interval_rather_than_a_wrong_one(self):
        y, members = truth()
        row = quick(y, members, preranks=[Location()], case_weights=np.linspace(1, 2, 150)).table.loc["location"]
        assert np.isnan(row["low"])
        assert np.isnan(row["corrected PCE"])
        assert row["p-value"] > 0.001


class TestBlocks:
    def test_blocks_need_no_members_that_run_through_the_cases(self):
        y, members = truth()
        law = MultivariateNormal(torch.zeros(150, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
        result = quick(y, law, blocks=np.arange(150) // 5)
        assert result.n_blocks == 30
        assert set(result.test.nulls) == {"signs"}
        assert any("by random signs of whole blocks" in note for note in result.notes)
        weights = np.random.default_rng(3).random((150, 20))  # every member's own in every case
        assert quick(y, Ensemble(members, weights), blocks=np.arange(150) // 5).n_blocks == 30

    def test_fewer_than_twenty_blocks_get_a_note_and_five_no_verdict(self):
        y, members = truth()
        for length, approximate, verdict in ((7, False, True), (8, True, True), (30, True, False)):
            result = quick(y + 3, members, blocks=np.arange(150) // length, n_replicates=999)
            said = any("blocks: tests by signs of fewer than 20 blocks are approximate" in n for n in result.notes)
            assert said is approximate
            assert result.rejected is (True if verdict else None)
        assert result.attainable > 0.05
        assert result.verdict.startswith("No verdict: 150 cases in 5 blocks")
        assert "blocks" in result.verdict.split("take more")[1]


class TestRefusals:
    def test_two_preranks_of_one_name(self):
        y, members = truth()
        with pytest.raises(ValueError, match="dependency"):
            quick(y, members, preranks=[Dependency(1), Dependency(2)])

    def test_shapes_that_do_not_match(self):
        y, members = truth()
        with pytest.raises(ValueError, match="150"):
            quick(y[:10], members)
        with pytest.raises(ValueError, match="two axes"):
            quick(y[:, 0], members)
        with pytest.raises(ValueError, match="case_weights"):
            quick(y, members, case_weights=np.ones(3))


class TestGivenPITs:
    def test_columns_are_adjusted_in_steps(self):
        even = (np.arange(300) + 0.5) / 300
        pits = np.column_stack([even, even**3])
        result = check_pits(pits, names=["good", "bad"])
        table = result.table
        assert table.loc["bad", "p-value"] < 1e-4
        assert table.loc["bad", "adjusted p-value"] == result.attainable == 1 / 1000
        assert (table["adjusted p-value"] >= table["p-value"]).all()
        one, twice = check_pits(even[:, None] ** 1.1), check_pits(np.column_stack([even, even]) ** 1.1)
        assert one.p_value == one.table["p-value"].iloc[0] == twice.table["p-value"].iloc[0]
        # columns that are one cost little: the signs' p-value in place of the exact one, where Holm's is twice as large
        assert one.p_value <= twice.p_value < 1.5 * one.p_value
        assert table.loc["good", "reading"] == "flat"
        assert "biased high" in table.loc["bad", "reading"]

    def test_missing_and_impossible_pits(self):
        with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
            check_pits(np.array([0.2, 1.2]))
        with pytest.raises(ValueError, match="at least one case"):
            check_pits(np.array([np.nan]))
        assert check_pits(np.array([0.1, np.nan, 0.6])).n_cases == 2
        with pytest.raises(ValueError, match="names"):
            check_pits(np.random.default_rng(0).random((9, 2)), names=["one"])


REAL = os.environ.get("PRERANK_REAL")


@pytest.mark.skipif(not REAL or not (Path(REAL) / "uw_temperature.npz").exists(), reason="PRERANK_REAL is not set")
def test_the_real_temperature_ensemble_is_under_dispersed():
    data = np.load(Path(REAL) / "uw_temperature.npz")
    blocks = data["case_date"]
    result = check(data["obs"], data["ensemble"], blocks=blocks, n_replicates=199)
    assert not result.calibrated
    assert "under-dispersed" in result.table.loc["location", "reading"]
    assert f"{len(blocks):,} cases in {len(np.unique(blocks))} blocks" in result.verdict
    below = float((result.pit.upper[:, :5] < 1.5 / 9).double().mean())
    above = float((result.pit.lower[:, :5] > 7.5 / 9).double().mean())
    # the folder's README: below all members in 29 %, above all in 40 % of station-cases
    assert below == pytest.approx(0.29, abs=0.01)
    assert above == pytest.approx(0.40, abs=0.01)
