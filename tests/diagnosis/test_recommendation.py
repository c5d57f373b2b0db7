"""`recommend` chooses on one half and tests on the other; what it says of a pre-rank is so."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from builders import normal, random_mixture
from prerank import Copula, Custom, Dependency, Location, Marginal, Scale, check
from prerank.diagnosis import recommend
from prerank.diagnosis.recommendation import ALIKE, _correlations, _halves, judged
from prerank.plotting.tables import p_text
from prerank.preranks import Mahalanobis, Maximum, Range, Sliced


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


def judge(values, names, p_values, ratios, powers, most=2, expected=None):
    """What is said of pre-ranks with these PITs (N, K), names of projections, p-values, ratios and powers."""
    values = torch.as_tensor(values, dtype=torch.float64)
    parts = [SimpleNamespace(names=own) for own in names.values()]
    pit = SimpleNamespace(values=values, parts=parts)
    expected = torch.tensor(expected or [0.01] * len(names), dtype=torch.float64)
    test = SimpleNamespace(
        groups=tuple(names),
        statistic=torch.tensor(ratios, dtype=torch.float64) * expected,
        expected_pce=expected,
        p_value=torch.tensor(p_values, dtype=torch.float64),
        projection_power=torch.tensor(powers, dtype=torch.float64),
    )
    return judged(pit, test, most)


def test_verdicts_follow_p_values_then_ratios_then_power():
    names = {name: (name,) for name in "abcdef"}
    values = normal(200, 6, seed=10)
    p_values, ratios = [0.001, 0.001, 0.04, 0.6, 0.7, 0.03], [2.0, 3.0, 1.5, 0.9, 1.0, 1.2]
    table = judge(values, names, p_values, ratios, [1.0, 1.0, 1.0, 1.0, 0.01, 0.01])
    assert table["verdict"].to_dict() == {
        "b": "most telling",
        "a": "most telling",  # of equal p-values the larger ratio first
        "f": "sees an error, others more",
        "c": "sees an error, others more",  # no power, and an error found
        "d": "sees no error",
        "e": "nearly blind",
    }
    assert list(table.index) == ["b", "a", "f", "c", "d", "e"]
    np.testing.assert_allclose(table["ratio"], [3.0, 2.0, 1.2, 1.5, 0.9, 1.0])
    np.testing.assert_allclose(table["power"], [1.0, 1.0, 0.01, 1.0, 1.0, 0.01])
    assert set(table["like"]) == {""}
    assert table["correlation"].isna().all()


def test_a_row_is_as_powerful_as_its_best_projection_and_unknown_power_counts_as_enough():
    names = {"one": ("one",), "two": ("x", "y"), "unknown": ("unknown",)}
    table = judge(normal(200, 4, seed=11), names, [0.3, 0.4, 0.5], [1.0, 1.0, 1.0], [0.01, 0.02, 0.9, float("nan")], 3)
    assert table["power"].to_dict() == {"two": 0.9, "unknown": 1.0, "one": 0.01}
    assert table["verdict"].to_dict() == {"two": "chosen", "unknown": "chosen", "one": "nearly blind"}


@pytest.mark.parametrize(
    ("correlation", "verdict"), [(-0.9001, "redundant"), (0.9001, "redundant"), (-0.8999, "chosen")]
)
def test_what_correlates_by_nine_tenths_is_redundant(correlation, verdict):
    x, noise = np.linalg.qr(normal(100, 2, seed=12).numpy() - normal(100, 2, seed=12).numpy().mean(0))[0].T
    other = correlation * x + (1 - correlation**2) ** 0.5 * noise
    table = judge(np.stack([x, other], 1), {"a": ("a",), "b": ("b",)}, [0.2, 0.3], [1.0, 1.0], [1.0, 1.0])
    assert table["verdict"].to_dict() == {"a": "chosen", "b": verdict}
    if verdict == "redundant":
        assert table.loc["b", "like"] == "a"
        assert table.loc["b", "correlation"] == pytest.approx(correlation)


def test_a_prerank_that_always_ties_has_a_ratio_of_zero():
    table = judge(
        normal(200, 2, seed=11), {"a": ("a",), "b": ("b",)}, [1.0, 0.5], [0.0, 1.0], [0.0, 1.0], expected=[0.0, 0.01]
    )
    assert table["ratio"].to_dict() == {"b": 1.0, "a": 0.0}
    assert table["verdict"].to_dict() == {"b": "chosen", "a": "nearly blind"}


def test_a_redundant_one_is_like_the_nearest_of_those_chosen_and_takes_no_place():
    a, b, c = normal(400, 3, seed=13).numpy().T
    values = np.stack([a, b, b + 0.05 * c, c], 1)
    table = judge(values, {k: (k,) for k in "abcd"}, [0.01, 0.02, 0.03, 0.04], [2.0] * 4, [1.0] * 4, most=3)
    assert table["verdict"].to_dict() == {**dict.fromkeys("abd", "most telling"), "c": "redundant"}
    assert table.loc["c", "like"] == "b"


def test_equal_pits_correlate_with_nothing():
    pit = SimpleNamespace(
        values=torch.stack([torch.full((50,), 0.5), torch.rand(50, generator=torch.Generator().manual_seed(0))], 1),
        parts=[SimpleNamespace(names=("constant",)), SimpleNamespace(names=("other",))],
    )
    assert _correlations(pit).tolist() == [[0.0, 0.0], [0.0, pytest.approx(1.0)]]


def test_of_several_projections_the_least_alike_counts():
    x, y, z = np.linalg.qr(normal(100, 3, seed=14).numpy() - normal(100, 3, seed=14).numpy().mean(0))[0].T
    pit = SimpleNamespace(
        values=torch.from_numpy(np.stack([x, y, 0.8 * x + 0.6 * z, -y], 1) + 0.5),
        parts=[SimpleNamespace(names=("x", "y")), SimpleNamespace(names=("u", "v"))],
    )
    between = _correlations(pit)
    np.testing.assert_allclose(between, [[1.0, 0.8], [0.8, 1.0]], atol=1e-9)


def test_sentences_say_each_verdict_in_words():
    y, x = forecast(200, 15, 3, seed=15, factor=0.7)
    found = recommend(y, x, [Scale(), Range(), Location(), Maximum(), Dependency()], most=1)
    table = found.table
    lines = found.sentences
    assert lines[0] == "Learnt on 100 cases, tested on the other 100."
    (chosen,) = table.index[table["verdict"] == "most telling"]
    p = found.tested.table["adjusted p-value"][chosen]
    outcome = "confirmed" if p <= 0.05 else "not confirmed"
    assert lines[1] == (
        f"{chosen}: {table.loc[chosen, 'ratio']:.1f} times the expected PCE; {outcome} on the second half "
        f"(adjusted p-value {p_text(p)})."
    )
    for verdict, words in (
        ("sees an error, others more", "see an error as well, less clearly."),
        ("sees no error", "see no error here."),
    ):
        names = table.index[table["verdict"] == verdict]
        assert (f"{', '.join(names)}: {words}" in lines) == (len(names) > 0)
    assert lines[-1] == found.tested.verdict.splitlines()[0]
    assert str(found) == repr(found) == "\n".join([*lines, "", str(found.tested)])


def test_what_is_not_rejected_again_is_not_confirmed():
    y, x = forecast(80, 9, 3, seed=16)
    other, members = forecast(80, 9, 3, seed=17, shift=0.8)
    found = recommend(torch.cat([other[:40], y[40:]]), torch.cat([members[:40], x[40:]]), [Location()])
    assert found.table["verdict"].tolist() == ["most telling"]
    assert "; not confirmed on the second half" in found.sentences[1]


def test_defaults_are_those_of_check_and_three_are_chosen_at_most():
    y, x = forecast(60, 9, 4, seed=18, factor=0.5)
    law = random_mixture(60, n_targets=3)
    plain, told = recommend(y, x), recommend(y, x, most=3, n_replicates=999, seed=0)
    assert plain.table.equals(told.table)
    assert plain.tested.table.equals(told.tested.table)
    assert len(plain.chosen) == 3
    ranked = [Scale(), Copula()]
    observed = law.ensemble(1, seed=1, stream="observation").members[:, 0]
    assert recommend(observed, law, ranked).table.equals(recommend(observed, law, ranked, n_draws=100).table)
    assert not recommend(observed, law, ranked).table.equals(recommend(observed, law, ranked, n_draws=50).table)
    assert not recommend(y, x, [Scale(), Sliced()]).table.equals(recommend(y, x, [Scale(), Sliced()], seed=1).table)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most": 0}, "most"),
        ({"n_draws": 0}, "n_draws"),
        ({"n_replicates": 0}, "n_replicates"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_numbers_that_are_none_are_refused(options, words):
    y, x = forecast(40)
    with pytest.raises((ValueError, TypeError), match=words):
        recommend(y, x, [Location()], **options)


def test_halves_are_the_first_and_the_last_cases():
    first, second = _halves(21, None)
    assert first.tolist() == list(range(10))
    assert second.tolist() == list(range(10, 21))
    assert [len(half) for half in _halves(20, None)] == [10, 10]
    blocks = torch.tensor([0] * 12 + [1] * 3 + [2] * 9)  # 12 or 15 of 24 cases
    assert len(_halves(24, blocks)[0]) == 12
    assert _halves(24, torch.tensor([0] * 4 + [1] * 20))[1].tolist() == list(range(4, 24))


def test_the_second_half_of_blocks_is_tested_by_blocks():
    y, x = forecast(100, seed=19, factor=0.6)
    blocks = np.repeat(np.arange(20), 5)
    found = recommend(y, x, [Location(), Scale()], blocks=blocks)
    alone = check(y[:50], x[:50], [Location(), Scale()], blocks=blocks[:50])
    np.testing.assert_allclose(found.table["p-value"].sort_index(), alone.table["p-value"].sort_index(), atol=1e-12)


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
