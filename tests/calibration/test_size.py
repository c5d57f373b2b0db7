"""True forecasts are calibrated, wrong ones are not: a reduced version of benchmarks/size.py."""

import numpy as np
import pytest
import torch

from prerank import check

REPETITIONS = 100
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def size(benchmark_script):
    return benchmark_script("size")


def rejected(size, setting):
    return {test: cell["rejected"] for test, cell in size.rates(setting, REPETITIONS, CPU).items()}


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["continuous", "rounded", "counts", "binary"])
def test_every_test_holds_its_size_for_the_true_forecast(size, targets):
    settings = [size.Setting(30, n_members, n_targets, targets) for n_members, n_targets in [(1, 2), (5, 3), (10, 5)]]
    if targets == "continuous":
        settings.append(size.Setting(30, None, 3))
    table = {setting: size.rates(setting, 60, CPU) for setting in settings}
    # the tests of one setting see the same data: as many independent repetitions as there are settings times 60
    passed, sentence = size.verdict(table, 60, tolerance=3.9 * (0.05 * 0.95 / (60 * len(settings))) ** 0.5)
    assert passed, sentence


def test_the_benchmark_computes_what_check_computes(size):
    for setting in (size.Setting(40, 6, 3, "counts"), size.Setting(40, None, 3)):
        y, forecast = size.data(setting, 2, 0, CPU)
        _, test = size.tested(y, forecast)
        for r in range(2):
            if setting.n_members is None:
                own = type(forecast)(forecast.logits[r], forecast.loc[r], forecast.scale_tril[r])
            else:
                own = type(forecast)(forecast.members[r])
            table = check(y[r], own).table
            np.testing.assert_allclose(table["p-value"], test.p_value[r], rtol=0, atol=1e-12)
            np.testing.assert_allclose(table["adjusted p-value"], test.adjusted_p_value[r], rtol=0, atol=1e-12)


def test_all_rows_together_can_attain_what_the_rows_can_up_to_the_level(size):
    """One case of one member has no small p-value in any row; thirty cases of five have."""
    for n_cases, n_members, known in ((4, 1, 0.0), (30, 5, 0.05)):
        pit, test = size.tested(*size.data(size.Setting(n_cases, n_members, 3), 5, 0, CPU))
        found = size.attainable_sizes(pit, test)
        overall = found.pop(size.OVERALL)
        assert list(found) == list(test.groups)
        assert (overall <= 0.05).all()
        assert (overall >= torch.stack(list(found.values())).amax(0)).all()
        assert overall.tolist() == pytest.approx([known] * 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "seen_by"),
    [
        ("biased", ("marginal", "location", "PCA", "copula")),
        ("too wide", ("marginal", "scale", "HDR")),
        ("too narrow", ("marginal", "scale", "HDR")),
        ("wrong correlation", ("dependency", "location")),
    ],
)
def test_each_error_is_found_by_the_preranks_that_see_it(size, error, seen_by):
    row = rejected(size, size.Setting(200, 20, 5, "continuous", error))
    # a test without power rejects 5 % of the time: 100 repetitions exceed 17 % by chance with probability 1e-5
    for name in seen_by:
        assert row[name] > 0.17, (name, row)
    assert row[size.OVERALL] > 0.17


@pytest.mark.slow
def test_marginal_is_blind_to_dependence(size):
    row = rejected(size, size.Setting(200, 20, 5, "continuous", "wrong correlation"))
    assert row["marginal"] < 0.17
