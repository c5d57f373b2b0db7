"""Names come from data: a figure shows them as they are."""

import numpy as np
import pandas as pd

from prerank import Marginal, check


def test_names_of_targets_are_no_formulas(tmp_path):
    rng = np.random.default_rng(0)
    names = [r"$\notacommand$", "a_b^"]
    y = pd.DataFrame(3.0 * rng.normal(size=(60, 2)), columns=names)  # so that every name is read out
    check(y, rng.normal(size=(60, 9, 2)), [Marginal()]).plot(tmp_path / "names.png")
    assert (tmp_path / "names.png").stat().st_size > 1000
