"""The recipes of docs/connectors.md, each run where its package is installed."""

import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from prerank import check

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"
RECIPE = re.compile(r"^## (.+?)\n.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
RECIPES = dict(RECIPE.findall(PAGE.read_text(encoding="utf-8")))
PACKAGES = {
    "scikit-learn forests": "sklearn",
    "NGBoost": "ngboost",
    "torch.distributions": "torch",
    "sbi": "sbi",
    "sbi, corrected": "sbi",
    "ArviZ": "arviz",
    "neuralforecast": "neuralforecast",
    "Darts": "darts",
    "GluonTS": "gluonts",
    "scoringrules": "scoringrules",
}
SHAPES = {
    "scikit-learn forests": (400, 2),
    "NGBoost": (300, 2),
    "torch.distributions": (300, 3),
    "sbi": (200, 2),
    "sbi, corrected": (200, 2),
    "ArviZ": (250, 3),
    "neuralforecast": (60, 4),
    "Darts": (100, 3),
    "GluonTS": (200, 5),
    "scoringrules": (200, 3),
}
TRUE = ["torch.distributions", "ArviZ", "GluonTS", "scoringrules"]  # members and observations come from one law


def test_every_recipe_has_its_package():
    assert set(RECIPES) == set(PACKAGES) == set(SHAPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_brings_the_cases_and_targets_into_place(name, tmp_path, monkeypatch):
    package = PACKAGES[name]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install '.[connectors]', or {package} alone")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "recipe"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages' own
        exec(compile(RECIPES[name], f"{PAGE.name}, {name}", "exec"), names)
    result = names["result"]
    assert result.pit.values.shape[:1] == SHAPES[name][:1]
    assert int(result.to_frame().loc["marginal", "projections"]) == SHAPES[name][1]
    assert np.isfinite(result.to_frame()["PCE"]).all()
    if name in TRUE:
        # their seeds are fixed and the verdict's level is 5 %; mixed-up axes give p-values of 0.001
        assert result.p_value > 0.01
    if name in ("scikit-learn forests", "sbi", "NGBoost"):
        # they learn well enough that a wrong order of cases or targets, which makes them twice too narrow, would show (0.1)
        assert result.to_frame().loc["marginal", "PCE"] < 0.06
    assert names.get("same", True) is True  # what the recipe compares
    if name == "sbi, corrected":
        raw = names["Posterior"](names["x"])
        before, after = (law.log_prob(names["true"]) for law in (raw, names["posterior"]))
        gain = after - before
        assert gain.mean() > 2 * gain.std() / len(gain) ** 0.5
        assert result.table["PCE"].mean() < check(names["true"], raw, names["preranks"]).table["PCE"].mean()
        assert names["samples"].shape == (1000, 2)
        assert names["density"].shape == (1,)
        assert bool(names["density"].isfinite().all())
