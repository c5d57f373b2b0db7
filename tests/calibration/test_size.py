"""True forecasts are calibrated, wrong ones are not: a reduced version of benchmarks/size.py."""

import pytest
import torch

REPETITIONS = 100
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def size(benchmark_script):
    return benchmark_script("size")


def rejected(size, setting, n_replicates=99):
    p_values = size.p_values(setting, REPETITIONS, 1, CPU, n_replicates, n_reference=100)
    return {test: float((p <= 0.05 + 1e-9).double().mean()) for test, p in p_values.items()}


def test_every_test_holds_its_size_for_the_true_forecast(size):
    rows = [
        rejected(size, size.Setting(forecast, n_targets, "none"))
        for forecast, n_targets in [
            ("mixture", 2), ("mixture", 4), ("ensemble of 10", 2), ("ensemble of 10", 5), ("ensemble of 20", 10)
        ]
    ]  # fmt: skip
    passed, sentence = size.verdict(rows, REPETITIONS)
    assert passed, sentence


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
    row = rejected(size, size.Setting("ensemble of 20", 5, error))
    # a test without power rejects 5 % of the time: 100 repetitions exceed 17 % by chance with probability 1e-5
    for name in seen_by:
        assert row[name] > 0.17, (name, row)
    assert row[size.OVERALL] > 0.17


def test_marginal_is_blind_to_dependence(size):
    row = rejected(size, size.Setting("ensemble of 20", 5, "wrong correlation"))
    assert row["marginal"] < 0.17
