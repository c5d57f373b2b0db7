"""Keyed random numbers are uniform, independent of order and chunks, and leave the caller's generators alone."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.randomness import (
    bits,
    case_keys,
    key,
    keyed_order,
    normal,
    numpy_generator,
    seeded,
    torch_generator,
    uniform,
)

ORDERS = {
    0: [8, 6, 4, 2, 7, 10, 9, 1, 0, 11, 5, 3],
    866: [10, 5, 8, 1, 7, 0, 3, 11, 4, 6, 2, 9],
}
ORDER_SUM = 276331
LEVEL = 1e-4  # of each statistical check here; seeds are fixed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_one_key_are_uniform(dtype):
    z = uniform(key(1, "uniform"), (100_000,), dtype)
    assert z.dtype == dtype
    assert z.min() > 0
    assert z.max() < 1
    assert stats.kstest(z.double().numpy(), "uniform").pvalue > LEVEL


def test_first_numbers_of_consecutive_cases_are_uniform_and_independent_of_each_other():
    z = uniform(case_keys(0, torch.arange(50_000), "rank"), (2,)).numpy()
    assert stats.kstest(z[:, 0], "uniform").pvalue > LEVEL
    assert stats.pearsonr(z[:, 0], z[:, 1]).pvalue > LEVEL  # within a case
    assert stats.pearsonr(z[1:, 0], z[:-1, 0]).pvalue > LEVEL  # of neighbours
    other = uniform(case_keys(1, torch.arange(50_000), "rank"), (1,)).numpy()
    assert stats.pearsonr(z[:, 0], other[:, 0]).pvalue > LEVEL  # of seeds
    other = uniform(case_keys(0, torch.arange(50_000), "another rank"), (1,)).numpy()
    assert stats.pearsonr(z[:, 0], other[:, 0]).pvalue > LEVEL  # of names


def test_every_bit_is_fair():
    drawn = bits(key(3), (20_000,))
    ones = torch.stack([(drawn >> shift) & 1 for shift in range(64)]).double().mean(-1)
    worst = stats.norm.isf(LEVEL / 2 / 64) * 0.5 / 20_000**0.5
    assert (ones - 0.5).abs().max() < worst


def test_normal_numbers_are_normal():
    assert stats.kstest(normal(key(2, "normal"), (100_000,)).numpy(), "norm").pvalue > LEVEL


def test_a_case_gets_its_numbers_whatever_the_other_cases():
    ids = torch.tensor([5, 900, 2, 77])
    together = uniform(case_keys(0, ids, "x"), (3, 2))
    for row, case in zip(together, ids, strict=True):
        assert torch.equal(uniform(case_keys(0, case[None], "x"), (3, 2))[0], row)
    assert torch.equal(uniform(case_keys(0, ids, "x"), (7, 2))[:, :3], together)  # asking for more changes nothing


def test_names_are_not_run_together():
    assert key(0, "a", "b") != key(0, "ab")
    assert key(0, 1, 23) != key(0, 12, 3)


def test_global_generators_are_left_as_they_were():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is looked at
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    with seeded(1, "a"):
        first = torch.rand(3)
    with seeded(1, "a"):
        assert torch.equal(torch.rand(3), first)
    torch.rand(3, generator=torch_generator(0, "b"))
    numpy_generator(0, "c").random(3)
    uniform(key(0), (4,))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_generators_of_a_seed_and_names_repeat():
    assert torch.equal(
        torch.rand(3, generator=torch_generator(4, "x")), torch.rand(3, generator=torch_generator(4, "x"))
    )
    assert (numpy_generator(4, "x").random(3) == numpy_generator(4, "x").random(3)).all()
    assert (numpy_generator(4, "x").random(3) != numpy_generator(4, "y").random(3)).all()


def test_the_order_of_rows_is_pinned() -> None:
    assert keyed_order(12, seed=0).tolist() == ORDERS[0]
    assert keyed_order(12, seed=866).tolist() == ORDERS[866]
    assert int((keyed_order(100_000, seed=42) * np.arange(100_000)).sum() % 1_000_003) == ORDER_SUM


def test_the_order_of_rows_is_left_alone_by_other_random_numbers_and_leaves_them_alone() -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = keyed_order(1000, seed=4)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
    np.random.default_rng().random(7)
    assert (first == keyed_order(1000, seed=4)).all()


def test_every_row_is_as_likely_to_be_first_as_any_other() -> None:
    counts = np.bincount([keyed_order(8, seed)[0] for seed in range(4000)], minlength=8)
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 24.32  # the 0.999 quantile for 7 degrees of freedom


def test_the_order_does_not_depend_on_how_many_rows_are_hashed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = keyed_order(50, 1)
    monkeypatch.setattr("prerank.randomness._CHUNK", 7)
    assert keyed_order(50, 1).tolist() == whole.tolist()
