"""A model that cannot be right is better calibrated with the penalty than without, on fresh rows of the true law."""

import pytest

from prerank.preranks import Location, Marginal, Scale


@pytest.mark.slow
def test_one_gaussian_for_a_bimodal_truth_is_better_calibrated_with_the_penalty(benchmark_script):
    """A reduced version of benchmarks/misspecified.py: paired over three seeds, beyond three standard errors."""
    script = benchmark_script("misspecified")
    setting, *_ = script.settings(max_epochs=40)
    preranks = [Marginal(), Location(), Scale()]
    table = script.summary(script.study(setting, preranks, seeds=(0, 1, 2), n_fresh=1500))
    for row in table.to_dict("records"):
        assert row["pce change"] < -3 * row["pce se"], row
        assert row["pce with"] < row["pce without"], row
