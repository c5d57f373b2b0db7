"""`recommend` chooses on one half and tests on the other; what it says of a pre-rank is so."""

import numpy as np
import pytest
import torch
from scipy import stats

from builders import normal, random_mixture
from prerank import Copula, Custom, Dependency, Location, Marginal, Scale, check
from prerank.diagnosis import recommend
from prerank.diagnosis.recommendation import ALIKE, _correlations, _halves
from prerank.preranks import Mahalanobis, Maximum, Range


def forecast(n_cases=120, n_members=9, n_targets=3, seed=0, factor=1.0, shift=0.0):
    x = normal(n_cases, n_members + 1, n_targets, seed=seed)
    return x[:, 0], factor * x[:, 1:] + shift


def test_the_tested_half_is_checked_alone_with_what_was_chosen():
    y, x = forecast(seed=1, factor=0.6)
    found = recommend(y, x, most=2, seed=3)
    assert found.n_learnt == 60
    assert [item.name for item in found.chosen] == list(found.tested.table.index)
    alone = check(y[60:], x[60:], list(found.chosen), seed=3, case_ids=torch.arange(60, 120))
    np.testing.assert_allclose(found.tested.table["p-value"], alone.table["p-value"], atol=1e-12)
    np.testing.assert_allclose(found.tested.table["adjusted p-value"], alone.table["adjusted p-value"], atol=1e-12)
    learnt = check(y[:60], x[:60], list(found.chosen), seed=3)
    np.testing.assert_allclose(
        found.table.loc[list(found.tested.table.index), "p-value"], learnt.table["p-value"], atol=1e-12
    )


def test_the_second_half_has_no_say_in_the_choice_and_the_first_none_in_the_test():
    y, x = forecast(seed=2, factor=0.7)
    other, members = forecast(seed=3, shift=1.0)
    mixed = recommend(torch.cat([y[:60], other[60:]]), torch.cat([x[:60], members[60:]]))
    plain = recommend(y, x)
    assert mixed.table.equals(plain.table)
    again = recommend(torch.cat([other[:60], y[60:]]), torch.cat([members[:60], x[60:]]), list(plain.chosen), most=99)
    chosen = [name for name in plain.tested.table.index if name in again.tested.table.index]
    assert chosen
    np.testing.assert_allclose(
        again.tested.table.loc[chosen, "p-value"], plain.tested.table.loc[chosen, "p-value"], atol=1e-12
    )


def test_blocks_stay_whole_and_halves_are_as_equal_as_they_allow():
    blocks = torch.tensor([2] * 10 + [0] * 30 + [1] * 25 + [2] * 5 + [3] * 30)
    first, second = _halves(100, blocks)
    assert set(blocks[first].tolist()) == {2, 0}
    assert set(blocks[second].tolist()) == {1, 3}
    y, x = forecast(100, seed=4)
    found = recommend(y, x, [Location(), Scale()], blocks=blocks.numpy())
    assert found.n_learnt == 45
    assert found.tested.n_blocks == 2
    with pytest.raises(ValueError, match="all cases are in one block"):
        recommend(y, x, blocks=np.zeros(100))


def test_a_repetition_is_redundant_and_said_to_be():
    y, x = forecast(seed=5)
    repeats = [Location(), Custom(lambda y: -y.sum(-1), name="minus the sum"), Scale()]
    found = recommend(y, x, repeats)
    row = found.table[found.table["verdict"] == "redundant"]
    assert len(row) == 1
    assert {row.index[0], row["like"].iloc[0]} == {"location", "minus the sum"}
    assert row["correlation"].iloc[0] < -ALIKE
    assert f"{row.index[0]}: says what {row['like'].iloc[0]} says" in str(found)
    assert len(found.chosen) == 2


def test_a_row_is_redundant_only_if_all_its_projections_are():
    y, x = forecast(seed=6)
    result = check(y, x, [Custom(lambda y: y[..., 0], name="first"), Marginal()])
    between = _correlations(result.pit)
    assert float(between[0, 1]) == pytest.approx(1.0)  # the first target is among the targets
    assert abs(float(between[1, 0])) < 0.5  # the others are not the first


def test_a_degenerate_prerank_is_nearly_blind_and_not_chosen():
    y, x = forecast(n_members=3, n_targets=4, seed=7)
    found = recommend(y, x, [Mahalanobis(), Location(), Copula()], axes=("case", "member", "target"))
    assert found.table.loc["Mahalanobis", "verdict"] == "nearly blind"
    assert "Mahalanobis: nearly blind here" in str(found).replace("Mahalanobis, copula", "Mahalanobis")
    assert "Mahalanobis" not in found.tested.table.index


def test_an_error_is_found_by_a_prerank_that_sees_it_and_confirmed():
    y, x = forecast(300, 15, 5, seed=8)
    found = recommend(y.cumsum(-1), torch.arange(1.0, 6.0).sqrt() * x, most=1, scale="none")
    assert found.table["verdict"].iloc[0] == "most telling"
    assert found.tested.rejected
    assert "confirmed on the second half" in found.sentences[1]
    assert found.table.loc["marginal", "verdict"] in ("sees no error", "sees an error, others more")


def test_only_what_is_rejected_on_the_first_half_is_called_telling():
    y, x = forecast(200, 9, 3, seed=9)
    found = recommend(y, x, [Location(), Maximum(), Range()])
    assert len(found.chosen) == 3
    for name, row in found.table.iterrows():
        assert (row["verdict"] == "most telling") == (row["p-value"] <= 0.05)
        assert (f"{name}: no sign of an error on the first half" in str(found)) == (row["verdict"] == "chosen")
    assert (found.table["verdict"] == "chosen").any()


def test_laws_are_taken_like_ensembles():
    law = random_mixture(80, n_targets=3)
    y = law.ensemble(1, seed=1, stream="observation").members[:, 0]
    found = recommend(y, law, [Location(), Dependency(), Copula()], n_draws=20)
    assert len(found.table) == 3


def test_too_few_cases_members_in_chunks_and_the_blind_alone_are_refused():
    y, x = forecast(19)
    with pytest.raises(ValueError, match=r"19 cases are too few .* 20 are needed"):
        recommend(y, x)
    y, x = forecast(20, 1, 3)
    with pytest.raises(ValueError, match="none of 1 pre-ranks has power with 10 cases"):
        recommend(y, x, [Mahalanobis()])
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    lazy = xr.DataArray(normal(40, 5, 3).numpy(), dims=("case", "member", "target")).chunk({"case": 10})
    with pytest.raises(ValueError, match="needs the members in memory"):
        recommend(normal(40, 3).numpy(), lazy)


def test_the_tested_half_keeps_its_size(benchmark_script):
    """A reduced benchmarks/recommended.py: choosing and testing on the same half would fail."""
    script = benchmark_script("recommended")
    found = script.batch(script.Setting(40, 5, 3), 0, size=20, n_replicates=99)
    assert found["tested"] <= stats.binom.ppf(1 - 1e-4, 20, 0.05)
    assert found["naive"] > found["tested"]


@pytest.mark.parametrize("targets", ["continuous", "counts"])
def test_the_benchmark_does_what_recommend_does(benchmark_script, targets):
    script = benchmark_script("recommended")
    y, forecast = script.data(script.Setting(40, 5, 3, targets), 2, 0, torch.device("cpu"))
    several = script.tested(*script.halves(y, forecast), 99)
    for r, (p_value, smallest) in enumerate(several):
        one = recommend(y[r], forecast.members[r], n_replicates=99)
        assert one.tested.p_value == pytest.approx(p_value, abs=1e-12)
        assert float(one.table["p-value"].min()) == pytest.approx(smallest, abs=1e-12)
