"""Members that are read in chunks give the p-values of members in memory, and every other number to 1e-12."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import HDR, PCA, Copula, Location, Marginal, check
from prerank.calibration import ProjectedPIT, pce_interval
from prerank.calibration import confidence as interval
from prerank.diagnosis import GroupedCheck, execution
from prerank.inputs import lazy_members as lazymembers

xr = pytest.importorskip("xarray")
pytest.importorskip("dask.array")

N_CASES, N_MEMBERS, N_TARGETS = 150, 8, 3
CHUNK = 40  # cases; the last chunk has fewer
RANKED = 17  # cases that are ranked at once, so that a chunk is taken in parts
NAMES = ("case", "member", "target")
LABELS = np.arange(N_CASES)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(lazymembers, "VALUES", CHUNK * N_MEMBERS * N_TARGETS)
    monkeypatch.setattr(execution, "_VALUES", RANKED * N_MEMBERS * N_TARGETS)


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    points = np.random.default_rng(seed).normal(size=(N_CASES, N_MEMBERS + 1, N_TARGETS)).astype(np.float32)
    return points[:, 0], 0.7 * points[:, 1:]


def with_holes() -> tuple[np.ndarray, np.ndarray]:
    """An observation that is missing, a case without members, and other members that are missing."""
    y, members = drawn(1)
    members[np.random.default_rng(2).uniform(size=members.shape[:2]) < 0.03] = np.nan
    members[5], y[100, 1] = np.nan, np.nan
    return y, members


def in_chunks(members: np.ndarray, **coordinates) -> "xr.DataArray":
    return xr.DataArray(members, dims=NAMES, coords=coordinates).chunk({"case": CHUNK})


def assert_same(first, second) -> None:
    if isinstance(first, GroupedCheck):
        assert list(first.checks) == list(second.checks)
        for name in first.checks:
            assert_same(first.checks[name], second.checks[name])
    else:
        for mine, other in ((first.table, second.table), (first.projections, second.projections)):
            for name in mine.columns:
                if name == "reading" or name.endswith("p-value"):
                    assert mine[name].tolist() == other[name].tolist(), name
                else:
                    np.testing.assert_allclose(mine[name], other[name], rtol=0, atol=1e-12, err_msg=name)
        torch.testing.assert_close(first.pit.lower, second.pit.lower, rtol=0, atol=1e-12)
        torch.testing.assert_close(first.pit.upper, second.pit.upper, rtol=0, atol=1e-12)
    assert first.notes == second.notes
    assert first.verdict == second.verdict
    assert first.attainable == second.attainable


def with_holes_early() -> tuple[np.ndarray, np.ndarray]:
    """Members that are missing in the first half of the cases alone."""
    y, members = drawn(3)
    members[np.random.default_rng(4).uniform(size=members.shape[:2]) < 0.2] = np.nan
    members[75:] = drawn(3)[1][75:]
    return y, members


def without_one_member() -> tuple[np.ndarray, np.ndarray]:
    """A member that is missing in every case, another one in each."""
    y, members = drawn(5)
    members[LABELS, LABELS % N_MEMBERS] = np.nan
    return y, members


EVERYTHING = [Marginal(), Location(), PCA(n_components=2), HDR(), Copula()]
SITUATIONS = {
    "as it is": (drawn, EVERYTHING, {}),
    "another seed, and names of cases": (drawn, Location(), {"seed": 5, "case_ids": 1000 - 3 * LABELS}),
    "blocks": (drawn, EVERYTHING, {"blocks": LABELS // 3}),
    "weights": (drawn, EVERYTHING, {"case_weights": 1.0 + LABELS % 4}),
    "weights and blocks": (drawn, Location(), {"blocks": LABELS // 3, "case_weights": 1.0 + LABELS % 4}),
    "ties": (lambda: tuple(np.round(part) for part in drawn()), EVERYTHING, {}),
    "units": (lambda: tuple(part * np.array([1, 300, 1]) for part in drawn()), EVERYTHING, {}),
    "huge numbers": (lambda: tuple(part.astype(float) * 1e200 for part in drawn()), Location(), {}),
    "precision of y": (lambda: (np.float16(drawn()[0]), drawn()[1]), Location(), {}),
    "precision of members": (lambda: (drawn()[0].astype(float) + 1e-9, drawn()[1]), Location(), {}),
    "quantiles, and few values": (lambda: (np.round(drawn()[0]), np.sort(drawn()[1], 1)), Marginal(), {}),
    "missing": (with_holes, EVERYTHING, {}),
    "missing, and blocks": (with_holes, EVERYTHING, {"blocks": LABELS // 3}),
    "groups": (drawn, [Location(), HDR()], {"by": np.where(LABELS % 3 == 0, "a", "b")}),
    "groups, missing and blocks": (with_holes, Location(), {"by": LABELS < 90, "blocks": LABELS // 3}),
    "groups, missing in one": (with_holes_early, EVERYTHING, {"by": LABELS < 75}),
    "missing in every case": (without_one_member, EVERYTHING[:-1], {}),
    "missing in every case, and blocks": (without_one_member, EVERYTHING, {"blocks": LABELS // 3}),
    "exponent two": (drawn, Location(), {"exponent": 2}),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_chunks_change_no_p_value_and_no_digit_that_counts(situation):
    data, preranks, options = SITUATIONS[situation]
    y, members = data()
    options = {"n_replicates": 99, **options}
    whole = check(y, members, preranks, axes=NAMES, **options)
    assert_same(whole, check(y, in_chunks(members), preranks, **options))


def test_cases_and_targets_are_matched_by_their_labels():
    y, members = drawn()
    days, places = pd.date_range("2024-01-01", periods=N_CASES), ["u", "v", "w"]
    observed = pd.DataFrame(y, index=days, columns=places)
    order = np.random.default_rng(3).permutation(N_CASES)
    lazily = in_chunks(members, case=days, target=places).isel(case=order, target=[2, 0, 1]).chunk({"case": CHUNK})
    lazily = lazily.rename(case="time", member="number", target="station").transpose("station", "time", "number")
    weights = pd.Series(1.0 + LABELS % 4, index=days).sample(frac=1, random_state=1)
    whole = check(observed, members, [Marginal(), HDR()], axes=NAMES, n_replicates=99, case_weights=weights)
    found = check(observed, lazily, [Marginal(), HDR()], n_replicates=99, case_weights=weights)
    assert_same(whole, found)
    assert found.pit.names[:3] == ("u", "v", "w")


def test_no_more_than_a_chunk_is_ever_read_at_once():
    sizes = []

    def part(block_info=None):
        (start, stop), *_ = block_info[None]["array-location"]
        sizes.append(stop - start)
        return drawn()[1][start:stop]

    import dask.array

    chunks = ((CHUNK, CHUNK, CHUNK, N_CASES - 3 * CHUNK), (N_MEMBERS,), (N_TARGETS,))
    members = dask.array.map_blocks(part, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))
    check(drawn()[0], xr.DataArray(members, dims=NAMES), Location(), n_replicates=19)
    assert sizes == 2 * list(chunks[0])  # once to look at them, once to rank them


@pytest.mark.slow
def test_a_cluster_of_two_processes_gives_the_same_numbers():
    distributed = pytest.importorskip("distributed")
    y, members = with_holes()
    lazily, options = in_chunks(members), {"blocks": LABELS // 3, "n_replicates": 49}
    here = check(y, lazily, [Location(), HDR()], **options)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = check(y, lazily, [Location(), HDR()], **options)
        assert len(client.run(lambda: None)) == 2
        y[:] = np.inf
        with pytest.raises(ValueError, match="infinite"):
            check(y, lazily, Location())
    assert_same(here, there)


@pytest.mark.parametrize(
    ("members", "options", "words"),
    [
        (lambda members: in_chunks(members[:-1]), {}, "does not match"),
        (lambda members: in_chunks(members[..., :2]), {}, "does not match"),
        (lambda members: in_chunks(members).isel(member=0), {}, "give three|one value per case"),
        (lambda members: in_chunks(np.where(members > 2, np.inf, members)), {}, "members have .* infinite values"),
        (lambda members: in_chunks(np.where(members > 2, 1e20, members)), {}, "fill value"),
        (lambda members: in_chunks(members * np.nan), {}, "no case is left: every member"),
        (lambda members: in_chunks(members.astype(str)), {}, "dtype"),
        (lambda members: in_chunks(members), {"observation_weights": np.ones(N_CASES)}, "observation_weights"),
        (lambda members: in_chunks(members), {"blocks": np.ones(3)}, "one label per case"),
    ],
)
def test_what_cannot_be_checked_is_refused_as_in_memory(members, options, words):
    y, values = drawn()
    with pytest.raises((ValueError, TypeError), match=words):
        check(y, members(values), Location(), **options)


def test_blocks_need_no_member_that_all_their_cases_have():
    y, members = drawn()
    members[0, :4], members[1, 4:] = np.nan, np.nan
    options = {"axes": NAMES, "blocks": LABELS // 2, "n_replicates": 49}
    here, there = (
        check(y, forecast, [Location(), Marginal()], **options) for forecast in (members, in_chunks(members))
    )
    assert_same(here, there)
    assert here.table["p-value"].notna().all()


def test_pca_keeps_as_many_components_in_every_chunk_as_the_case_with_the_fewest_members_has():
    y, members = drawn()
    members[RANKED:, 2:] = np.nan  # all chunks but the first have two members
    for options in ({}, {"blocks": LABELS // 3}, {"by": LABELS < RANKED}):
        whole = check(y, members, PCA(), axes=NAMES, n_replicates=39, **options)
        assert_same(whole, check(y, in_chunks(members), PCA(), n_replicates=39, **options))
        one = next(iter(whole.checks.values())) if isinstance(whole, GroupedCheck) else whole
        assert len(one.projections) == 2
        assert "PCA: 2 of 3 components, as many as the case with the fewest members (2) has" in "; ".join(one.notes)


def test_sets_of_many_cases_are_resampled_to_the_same_effect(monkeypatch):
    """Both bootstraps estimate one quantile from 999 replicates; 4,096 sets and 6,000 cases know the spread to 2 %."""
    values = torch.from_numpy(np.random.default_rng(0).uniform(size=(6000, 2)) ** 1.2)
    pit = ProjectedPIT.of_values(values)
    by_case = pce_interval(pit, null=torch.zeros(9))
    monkeypatch.setattr(interval, "MANY_CASES", 1000)
    by_set = pce_interval(pit, null=torch.zeros(9))
    assert by_set.estimate == by_case.estimate
    assert by_set.high - by_set.estimate == pytest.approx(by_case.high - by_case.estimate, rel=0.15)
    assert by_set != by_case


def test_results_convert_to_xarray_and_pandas():
    y, members = drawn()
    result = check(y, members, [Marginal(), Location()], n_replicates=19)
    dataset = result.to_xarray()
    assert dataset["pce"].sel(prerank="location").item() == result.table.loc["location", "PCE"]
    assert (
        dataset["projection_pce"].sel(projection="marginal: y2").item() == result.projections["PCE"]["marginal", "y2"]
    )
    curve = dataset["reliability"]
    assert dict(curve.sizes) == {"level": 100, "projection": 4}
    error = abs(curve - dataset["level"]).mean("level").groupby("prerank_of_projection").mean()
    assert error.sel(prerank_of_projection="marginal").item() == pytest.approx(result.table.loc["marginal", "PCE"])
    assert dataset.attrs["verdict"] == result.verdict
    groups = check(y, members, [Marginal(), Location()], n_replicates=49, by=LABELS % 2)
    together = groups.to_xarray()
    assert together["pce"].sel(group=1, prerank="location").item() == groups.checks[1].table.loc["location", "PCE"]
    assert together["group_adjusted_p_value"].values.tolist() == groups.table["adjusted p-value"].tolist()
    assert groups.to_frame().loc[(1, "location"), "PCE"] == groups.checks[1].table.loc["location", "PCE"]


def test_groups_are_what_their_cases_give_alone():
    y, members = drawn()
    rows = LABELS % 2 == 0
    # as many replicates as ten tests can need, so that a group of two has no more than one alone
    groups = check(y, members, EVERYTHING, n_replicates=399, by=np.where(rows, "even", "odd"))
    alone = check(y[rows], members[rows], EVERYTHING, n_replicates=399, case_ids=LABELS[rows])
    pd.testing.assert_frame_equal(groups.checks["even"].table, alone.table)


@pytest.mark.parametrize("lazily", [False, True])
def test_a_group_that_misses_no_member_is_what_its_cases_give_alone(lazily):
    """Its ranks have a law of their own, though cases of the other group miss members."""
    y, members = with_holes_early()
    early, options = LABELS < 75, {"n_replicates": 99}
    preranks = [Marginal(), Location(), HDR(), Copula()]
    given = in_chunks(members) if lazily else members
    groups = check(y, given, preranks, by=np.where(early, "early", "late"), **options)
    for name, rows in (("early", early), ("late", ~early)):
        part = in_chunks(members[rows]) if lazily else members[rows]
        alone, found = check(y[rows], part, preranks, case_ids=LABELS[rows], **options), groups.checks[name]
        assert found.test.nulls == alone.test.nulls
        for mine, other in ((found.table, alone.table), (found.projections, alone.projections)):
            pd.testing.assert_frame_equal(mine, other, rtol=0, atol=1e-12)
        for one, other in zip(found.pit.parts, alone.pit.parts, strict=True):
            assert (one.n_members, one.method) == (other.n_members, other.method)
            assert (one.points is None) == (other.points is None)
            if one.points is not None:
                assert one.points.lower.shape == other.points.lower.shape
        assert found.test.nulls == ("signs", *(("points",) * 3 if name == "early" else ("exact", "exact", "points")))
        assert found.pit.parts[0].n_members == (None if name == "early" else N_MEMBERS)


def test_cases_that_all_miss_one_member_are_cases_of_one_less():
    y, members = without_one_member()
    left = members[~np.isnan(members)].reshape(N_CASES, N_MEMBERS - 1, N_TARGETS)
    found, expected = (check(y, part, EVERYTHING, n_replicates=99) for part in (members, left))
    assert found.test.nulls == expected.test.nulls
    assert "exact" in found.test.nulls
    pd.testing.assert_frame_equal(found.table, expected.table, rtol=0, atol=1e-12)
    assert found.pit.method == expected.pit.method


def test_groups_are_aligned_with_y():
    y, members = drawn()
    days = pd.date_range("2024-01-01", periods=N_CASES)
    season = pd.Series(np.where(days.month < 4, "winter", "spring"), index=days)
    observed = pd.DataFrame(y, index=days)
    shuffled = season.sample(frac=1, random_state=0)
    first, second = (check(observed, members, Location(), by=by, n_replicates=49) for by in (season, shuffled))
    assert first.table.equals(second.table)
    assert list(first.checks) == ["spring", "winter"]


def test_dimensions_of_usual_names_are_known_and_several_are_taken_together():
    y, members = drawn()
    time, lat, lon = pd.date_range("2024-01-01", periods=N_CASES), [1.0], [5.0, 6.0, 7.0]
    coordinates = {"time": time, "lat": lat, "lon": lon}
    observed = xr.DataArray(y[:, None], dims=("time", "lat", "lon"), coords=coordinates)
    forecast = xr.DataArray(members[:, :, None], dims=("time", "realization", "lat", "lon"), coords=coordinates)
    turned = forecast.transpose("lon", "realization", "lat", "time").isel(lon=[1, 2, 0], time=slice(None, None, -1))
    plain = check(y, members, [Marginal(), Location()], axes=NAMES, n_replicates=49)
    for one in (forecast, turned, turned.chunk({"time": 40})):
        found = check(observed, one, [Marginal(), Location()], n_replicates=49)
        assert found.table["p-value"].tolist() == plain.table["p-value"].tolist()
        assert found.pit.names[:3] == ("1.0, 5.0", "1.0, 6.0", "1.0, 7.0")
    renamed = turned.rename(time="when", realization="run")
    mapping = {"when": "case", "run": "member", "lat": "target", "lon": "target"}
    found = check(observed.rename(time="when"), renamed, Location(), axes=mapping, n_replicates=49)
    assert found.table["PCE"].tolist() == [plain.table.loc["location", "PCE"]]


def test_overlapping_intervals_as_labels_get_a_sentence():
    y, members = (part[:3] for part in drawn())
    labels = pd.IntervalIndex.from_arrays([0.0, 1.0, 2.0], [2.0, 3.0, 4.0])
    forecast = xr.DataArray(members, dims=NAMES, coords={"case": labels[::-1]})
    with pytest.raises(ValueError, match=r"intervals that overlap.*label every case by one point"):
        check(pd.DataFrame(y, index=labels), forecast)
