"""A table in long form becomes arrays by its labels; what contradicts itself is refused with the first place."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from prerank import Location, check, from_long
from prerank.io import DataError


@pytest.fixture
def forecasts() -> pd.DataFrame:
    """Three cases, two members, two targets; the value says which is which: case, member, target in its digits."""
    rows = [(c, m, f"t{t}", 100.0 * c + 10 * m + t) for c in (1, 2, 3) for m in (0, 1) for t in (2, 10)]
    return pd.DataFrame(rows, columns=["case", "member", "target", "value"])


@pytest.fixture
def observations() -> pd.DataFrame:
    rows = [(c, f"t{t}", 100.0 * c + t) for c in (1, 2, 3) for t in (2, 10)]
    return pd.DataFrame(rows, columns=["case", "target", "value"])


def test_every_value_stands_where_its_labels_say_whatever_the_order_of_rows(forecasts, observations):
    for seed in range(5):
        found = from_long(forecasts.sample(frac=1, random_state=seed), observations.sample(frac=1, random_state=seed))
        assert found.y.columns.tolist() == ["t2", "t10"]
        assert found.y.index.tolist() == [1, 2, 3]
        assert found.y.to_numpy().tolist() == [[102, 110], [202, 210], [302, 310]]
        assert found.members[2].tolist() == [[302, 310], [312, 320]]


def test_an_ordered_categorical_says_the_order_of_targets(forecasts, observations):
    kind = pd.CategoricalDtype(["t10", "t2"], ordered=True)
    found = from_long(forecasts.astype({"target": kind}), observations.astype({"target": kind}))
    assert found.y.columns.tolist() == ["t10", "t2"]
    assert found.y.loc[1].tolist() == [110, 102]


def test_the_observation_may_be_a_column_of_the_forecasts(forecasts, observations):
    joined = forecasts.merge(observations.rename(columns={"value": "observation"}))
    assert from_long(joined).y.equals(from_long(forecasts, observations).y)
    joined.loc[3, "observation"] = -1.0
    with pytest.raises(DataError, match="case 1, target 't10' has two observations"):
        from_long(joined)


def test_absent_rows_are_missing_values(forecasts, observations):
    found = from_long(forecasts.drop(index=5), observations.drop(index=2))
    assert np.argwhere(np.isnan(found.members)).tolist() == [[1, 0, 1]]
    assert np.argwhere(found.y.isna().to_numpy()).tolist() == [[1, 0]]


def test_check_counts_what_is_missing():
    rng = np.random.default_rng(0)
    grid = pd.MultiIndex.from_product([range(40), range(6), ["a", "b"]], names=["case", "member", "target"])
    table = pd.DataFrame({"value": rng.normal(size=len(grid))}, index=grid).reset_index()
    seen = table[table["member"] == 0].drop(columns="member")
    found = from_long(table[table["member"] > 0].drop(index=table.index[3]), seen.iloc[1:])
    notes = check(found.y, found.members, axes=("case", "member", "target")).notes
    assert notes[0] == "1 of 40 cases dropped: the observation is missing"


def test_single_precision_stays(forecasts, observations):
    found = from_long(forecasts.astype({"value": "float32"}), observations)
    assert found.members.dtype == np.float32
    assert found.y.dtypes.tolist() == [np.float64, np.float64]


def test_a_column_is_kept_where_it_has_one_value_per_case(forecasts, observations):
    forecasts["month"] = forecasts["case"].map({1: "May", 2: "June", 3: "May"})
    observations["place"] = "Oslo"
    kept = from_long(forecasts, observations, keep=["month", "place", "case"]).columns
    assert kept["month"].tolist() == ["May", "June", "May"]
    assert kept["place"].tolist() == ["Oslo"] * 3
    assert kept["case"].tolist() == [1, 2, 3]
    forecasts.loc[0, "month"] = "July"
    with pytest.raises(DataError, match="column 'month' has more than one value in case 1; it needs one"):
        from_long(forecasts, observations, keep=["month"])
    with pytest.raises(DataError, match="there is no column 'year'"):
        from_long(forecasts, observations, keep=["year"])


def test_what_contradicts_itself_is_refused_with_the_first_place(forecasts, observations):
    twice = pd.concat([forecasts, forecasts.iloc[[5]]])
    with pytest.raises(DataError, match=r"1 row of the forecasts repeat.* case 2, member 0, target 't10'; keep one"):
        from_long(twice, observations)
    with pytest.raises(DataError, match=r"1 row of the observations repeat.* case 1, target 't2'"):
        from_long(forecasts, pd.concat([observations, observations.iloc[[0]]]))
    with pytest.raises(DataError, match="1 case of the forecasts is not in the observations, the first 3"):
        from_long(forecasts, observations[observations["case"] < 3])
    with pytest.raises(DataError, match="2 cases of the observations are not in the forecasts, the first 2"):
        from_long(forecasts[forecasts["case"] < 2], observations)
    with pytest.raises(DataError, match="1 target of the observations is not in the forecasts, the first 't2'"):
        from_long(forecasts[forecasts["target"] == "t10"], observations)
    with pytest.raises(DataError, match=r"3 cases of the forecasts are not in the observations, the first 1;"):
        from_long(forecasts, observations.astype({"case": str}))


def test_a_table_without_what_is_needed_is_refused(forecasts, observations):
    with pytest.raises(DataError, match="the forecasts have no rows"):
        from_long(forecasts.iloc[:0], observations)
    with pytest.raises(
        DataError, match="no column 'member', only 'case', 'target', 'value'; name the one of members with --member"
    ):
        from_long(forecasts.drop(columns="member"), observations)
    words = forecasts.astype({"value": object})
    words.loc[4, "value"] = "calm"
    with pytest.raises(DataError, match="'value' of the forecasts holds not only numbers but, for instance, 'calm'"):
        from_long(words, observations)
    with pytest.raises(DataError, match="the column 'case' holds lists, which are no labels"):
        from_long(forecasts.assign(case=[[1]] * 12), observations.assign(case=[[1]] * 6))
    forecasts["case"] = forecasts["case"].astype("Int64")
    forecasts.loc[[4, 6], "case"] = pd.NA
    with pytest.raises(DataError, match="2 of 12 rows of the forecasts have no 'case', the first is row 5"):
        from_long(forecasts, observations)


def test_members_that_are_called_differently_in_every_case_are_refused_before_memory_runs_out():
    n = 50_000
    table = pd.DataFrame(
        {"case": np.arange(n), "member": np.arange(n), "target": "a", "value": 0.0, "observation": 0.0}
    )
    with pytest.raises(DataError, match="50,000 rows are too few for 50,000 cases x 50,000 members x 1 target; call"):
        from_long(table)


class HandsOverArrow:
    """A table of another library: all that is known of it is its stream of Arrow."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [HandsOverArrow, lambda frame: pa.Table.from_pandas(frame, preserve_index=False)])
def test_tables_of_other_libraries_are_read_as_data_frames_are(kind) -> None:
    rows = pd.MultiIndex.from_product([[1, 2, 3], [0, 1], ["a", "b"]], names=["case", "member", "target"])
    forecasts = pd.DataFrame({"value": np.arange(12.0)}, rows).reset_index()
    seen = forecasts[forecasts["member"] == 0].drop(columns="member")
    expected, found = from_long(forecasts, seen), from_long(kind(forecasts), kind(seen))
    pd.testing.assert_frame_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.members, expected.members)
    with pytest.raises(DataError, match="the forecasts are a list"):
        from_long([forecasts])  # type: ignore[arg-type]


def test_observations_may_be_a_table_that_hands_over_arrow() -> None:
    rng = np.random.default_rng(0)
    y, members = pd.DataFrame(rng.normal(size=(60, 2)), columns=["rain", "wind"]), rng.normal(size=(60, 9, 2))
    expected = check(y, members, [Location()], n_replicates=39)
    found = check(HandsOverArrow(y), members, [Location()], n_replicates=39)
    assert found.p_value == expected.p_value
