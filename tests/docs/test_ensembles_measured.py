"""Numbers on bare ensembles on the page of recalibration benchmarks are those of the committed record."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PAGE = re.sub(r"\s+", " ", (ROOT / "docs" / "benchmarks" / "recalibration.md").read_text(encoding="utf-8"))
RECORD = pd.read_csv(ROOT / "results" / "recalibration" / "ensembles.csv")
PRERANKS = ("marginal", "location", "scale", "dependency", "PCA", "HDR", "copula")
SHOWN = ("raw", "affine", "ECC", "dressing, M draws", "dressing", "dressing + tilt")


def mean(data, members, method):
    rows = RECORD[(RECORD["data"] == data) & (RECORD["members"] == members) & (RECORD["method"] == method)]
    assert len(rows)
    return rows.mean(numeric_only=True)


@pytest.mark.parametrize("method", SHOWN)
def test_the_table_of_the_real_ensemble_is_the_record(method):
    row = mean("temperature", 8, method)
    cells = [f"{row[f'{name} ratio']:.1f}" for name in PRERANKS]
    cells += [
        f"{row['rejected']:.1f}",
        f"{row['energy score']:.2f}",
        f"{row['energy score, M members']:.2f}",
        f"{row['variogram score']:.2f}",
    ]
    assert f"| {method} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("members", sorted(RECORD[RECORD["data"] == "simulated"]["members"].unique()))
@pytest.mark.parametrize("method", [*SHOWN, "truth"])
def test_the_table_of_simulated_ensembles_is_the_record(members, method):
    row = mean("simulated", members, method)
    kl = "–" if pd.isna(row["KL to truth"]) else f"{row['KL to truth']:.2f}"
    worst = max(row[f"{name} ratio"] for name in PRERANKS)
    cells = [f"{worst:.1f}", f"{row['energy score']:.3f}", f"{row['energy score, M members']:.3f}", kl]
    assert f"| {members} | {method} | {' | '.join(cells)} |" in PAGE


def test_splits_and_seeds_are_counted_right():
    real = RECORD[RECORD["data"] == "temperature"]
    assert real.groupby("method").size().nunique() == 1
    assert f"means over {real['name'].nunique()} splits" in PAGE


def test_dressing_and_tilt_do_what_the_page_says_of_them():
    raw, dressing, tilt = (mean("temperature", 8, method) for method in ("raw", "dressing", "dressing + tilt"))
    assert all(dressing[f"{name} ratio"] < raw[f"{name} ratio"] for name in PRERANKS)
    assert tilt["scale ratio"] < dressing["scale ratio"] < 0.7 * raw["scale ratio"]
    few = {method: mean("temperature", 8, method)["rejected"] for method in SHOWN[:4]}
    assert min(few, key=few.get) == "dressing, M draws"
    assert dressing["energy score"] < 0.9 * raw["energy score"]
    for members in RECORD[RECORD["data"] == "simulated"]["members"].unique():
        plain, tilted = (mean("simulated", members, method) for method in ("dressing", "dressing + tilt"))
        assert tilted["KL to truth"] < plain["KL to truth"]
        # what no forecast can do: fair scores flatter stretched members
        assert (
            mean("simulated", members, "affine")["energy score"] < mean("simulated", members, "truth")["energy score"]
        )
