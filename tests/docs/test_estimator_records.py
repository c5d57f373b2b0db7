"""What is said of the estimator's defaults is what its records say, and its pages are made from them."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from prerank.regression import MixtureRegressor, dequantising, fitting, preparation
from prerank.regression import discrete_targets as atoms

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "estimator"

Script = Callable[[str], ModuleType]


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["settings", "many_targets", "atoms", "time"])
def test_a_page_is_what_its_record_gives(name: str, benchmark_script: Script) -> None:
    module = benchmark_script({"settings": "estimator_settings", "time": "estimator_time"}.get(name, name))
    given = pd.read_csv(RECORDS / f"{name}.csv") if name in ("atoms", "time") else RECORDS
    assert module.summary(given) == (RECORDS / f"{name}.md").read_text(encoding="utf-8")


def test_the_defaults_are_what_the_rule_takes_from_the_sweep(benchmark_script: Script) -> None:
    module = benchmark_script("estimator_settings")
    table = module.index(pd.read_csv(RECORDS / "settings_sweep.csv"), "paper").set_index("setting")
    quick = table[table["time"] <= 1 / 3]
    near = quick[quick["index"] <= quick["index"].min() + 0.005]
    taken = str(near["time"].idxmin())
    assert taken == "rate 5e-3"
    chosen = {**module.START, **module.CHANGES[taken]}
    own = MixtureRegressor().get_params()
    assert own.pop("n_components") is None  # five, up to 16 targets
    assert {name: own[name] for name in chosen if name != "n_components"} == {
        name: value for name, value in chosen.items() if name != "n_components"
    }
    said = page("decisions/25-estimator-defaults.md")
    best = str(quick["index"].idxmin())
    assert best == "rate 3e-3, batch 128"
    assert f"ahead by {quick['index'][taken] - quick['index'][best]:.3f}" in said
    assert f"({', '.join(module.CHOOSING)})" in said


def test_the_rules_on_the_page_are_those_of_the_code() -> None:
    said = page("guide/training.md")
    assert f"{100 * atoms.REPEATED:.0f} % of the rows share their value" in said
    assert f"at least {atoms.WIDTH} standard deviations wide on average" in said
    assert f"{100 * atoms.AT_AN_END:.0f} % of the rows have the smallest or largest value" in said
    assert f"an interval of {atoms.ROOM} standard deviations" in said
    assert f"drawn evenly from the middle {100 * dequantising.MIDDLE:.0f} % of its cell" in said
    assert preparation.KNEE == 4.0
    assert "beyond four standard deviations they grow like a logarithm" in said
    assert f"a wide component of weight {MixtureRegressor().tail_weight}" in said
    assert fitting.WIDTH == 3.0


def test_no_small_problem_fails_silently() -> None:
    """Refused with a sentence, or a finite forecast; where the reference was taken, a warning said so."""
    found = pd.read_csv(RECORDS / "small_problems.csv")
    assert len(found) == 200
    fitted = found[found["outcome"] != "refused"]
    assert fitted["finite"].astype(bool).all()
    assert found.loc[found["outcome"] == "refused", "said"].str.contains("is constant").all()
    assert fitted.loc[fitted["outcome"] == "reference", "said"].str.contains("validation NLL").all()


def test_with_many_targets_the_forecast_is_no_worse_than_the_reference() -> None:
    found = pd.read_csv(RECORDS / "many_targets.csv")
    found = found[found["setting"] == "defaults"]
    assert sorted(found["targets"].unique()) == [24, 30, 60, 100]
    used = found["network"].where(found["used"] == "network", found["reference"])
    assert (used >= found["reference"]).all()
    assert (used <= found["truth"]).all()


def test_dequantising_brings_calibration_errors_down() -> None:
    """All but that of the spread of 14 grades (wq), where there are 530 rows to learn from."""
    found = pd.read_csv(RECORDS / "atoms.csv")
    errors = found[found["metric"] != "energy score"].groupby(["dataset", "metric", "way"])["value"].mean().unstack()
    assert list(errors.index[errors["dequantised"] >= errors["not dequantised"]]) == [("wq", "scale")]


def test_the_share_of_a_cell_is_the_best_of_the_choosing_half(benchmark_script: Script) -> None:
    module = benchmark_script("dequantising")
    record = pd.read_csv(RECORDS / "dequantising.csv")
    found = module.compared(record)
    index = found.groupby(["half", "share"])["index"].mean()
    choosing, reported = index["choosing"], index["reported"]
    assert choosing.idxmin() == dequantising.MIDDLE
    said = page("decisions/25-estimator-defaults.md")
    rest = ", ".join(f"{share}: {choosing[share]:.3f}" for share in (0.5, 0.25))
    assert f"{choosing[dequantising.MIDDLE]:.3f} against the whole cell ({rest})" in said
    assert f"it has {reported[dequantising.MIDDLE]:.3f}, where 0.5 has {reported[0.5]:.3f}" in said
    energy = found[(found["dataset"] == "births2") & (found["share"] == dequantising.MIDDLE)]["energy"].mean()
    assert f"births2 alone gains {-100 * energy:.0f} % of its energy score" in said
    assert module.table(record) in (RECORDS / "dequantising.md").read_text(encoding="utf-8")
