"""Tables of recalibration on real and simulated data, from the records of the other two scripts.

    python benchmarks/recalibration_tables.py [--folder results/recalibration]

Reads real.jsonl, tried.jsonl, harmless.jsonl, right.jsonl and power.jsonl there; writes real.md, simulated.md, cells.csv
(PCE over its levels, by dataset, pre-rank and method), scores.csv, regions.csv and summary.csv (a row for each method).
"""

import argparse
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import betabinom

LEVEL, NEAR = 0.3133, 1.25
OLD = "HDR, old law"
ATOMS = ("air", "births1", "births2", "blogdata", "meps21", "scpf", "wage", "wq")
"""A single value takes 5 % or more of some target: a density means little there."""
SERIES = ("air", "scm20d")
ORDER = (
    "plain", "penalty, own pre-rank", "penalty on all", "affine", "ECC", "Schaake shuffle", "HDR recalibration",
    "latent recalibration", "affine + tilt", "affine + tilt + tilt",
)  # fmt: skip
PRODUCT = "affine + tilt + tilt"
CHOSE = ("air", "births2", "households", "scm20d", "scpf", "wq")
"""Datasets whose test rows were looked at while settings of the default were chosen."""


def read(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def cell_table(records: list[dict]) -> pd.DataFrame:
    """A row for every dataset, seed, method and pre-rank: PCE, its ratios to both levels, p-value."""
    n_cal = {item["dataset"]: item["n_cal"] for item in records if item["method"] == "plain"}
    rows = []
    for item in records:
        if "pce" not in item:
            continue
        own = item["method"].startswith("penalty on ") and item["method"] != "penalty on all"
        method = "penalty, own pre-rank" if own else item["method"]
        both, test = 1 / n_cal[item["dataset"]] + 1 / item["n_test"], 1 / item["n_test"]
        for name, value in item["pce"].items():
            if own and name == OLD:
                continue
            ratios = {"ratio": value / (LEVEL * math.sqrt(both)), "test ratio": value / (LEVEL * math.sqrt(test))}
            about = {"dataset": item["dataset"], "seed": item["seed"], "method": method, "pre-rank": name}
            rows.append(about | {"PCE": value, **ratios, "p": item["p"][name]})
    return pd.DataFrame(rows)


def means(cells: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, and twice the median p-value."""
    by = cells.groupby(["method", "dataset", "pre-rank"], sort=False)
    found = by[["PCE", "ratio", "test ratio"]].mean()
    found["p"] = (2 * by["p"].median()).clip(upper=1)
    return found.assign(seeds=by.size()).reset_index()


def score_table(records: list[dict]) -> pd.DataFrame:
    """Energy score and NLL of every dataset and method, means over seeds, and changes from the plain network."""
    rows = []
    for item in records:
        if "energy score" not in item:
            continue
        change, error = item["energy score change"]
        before = item["energy score"] - change
        row = {"dataset": item["dataset"], "method": item["method"], "energy score": item["energy score"]}
        row |= {"change %": 100 * change / before, "error": 100 * error / before, "seconds": item.get("seconds")}
        row |= {"effective share": item.get("effective share"), "changed": item.get("changed")}
        if "nll" in item and ("nll of cells" in item or item["dataset"] not in ATOMS):
            row |= {"NLL": item["nll"], "NLL change": item["nll change"][0], "NLL error": item["nll change"][1]}
            row["NLL Monte Carlo error"] = item.get("nll Monte Carlo error", 0.0)
        rows.append(row)
    by = pd.DataFrame(rows).groupby(["method", "dataset"], sort=False)
    errors = by[["error", "NLL error"]].agg(lambda values: np.sqrt((values**2).sum()) / len(values))
    found = by[["energy score", "change %", "seconds", "effective share", "changed", "NLL"]].mean(numeric_only=False)
    return found.join(errors).join(by["NLL change"].mean()).join(by["NLL Monte Carlo error"].mean()).reset_index()


def summary_table(cells: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each method: cells near the level, apart for datasets that chose settings, cells not rejected, scores.

    Changes of scores are those of datasets: their median, their mean, and the mean without the dataset of the largest
    change. A dataset is better or worse where its change is beyond two standard errors.
    """
    rows = []
    for method in dict.fromkeys(cells["method"]):
        own = cells[(cells["method"] == method) & (cells["pre-rank"] != OLD)]
        worst = scores[scores["method"] == method].set_index("dataset")["change %"]
        if method == "penalty, own pre-rank":
            worst = scores[scores["method"].str.match("penalty on (?!all)")].groupby("dataset")["change %"].mean()
        errors = scores[scores["method"] == method].set_index("dataset")["error"]
        beyond = [name for name, value in worst.items() if value - 2 * errors.get(name, 0.0) > 0.2]
        row = {"method": method, "datasets": own["dataset"].nunique(), "cells": len(own)}
        row |= {"near": int((own["ratio"] <= NEAR).sum()), "near %": 100 * (own["ratio"] <= NEAR).mean()}
        row |= {"near, test level %": 100 * (own["test ratio"] <= NEAR).mean()}
        for name, some in (("chose nothing", ~own["dataset"].isin(CHOSE)), ("chose", own["dataset"].isin(CHOSE))):
            row |= {f"near, {name}": int((own["ratio"][some] <= NEAR).sum()), f"cells, {name}": int(some.sum())}
        row |= {"near, test level": int((own["test ratio"] <= NEAR).sum())}
        row |= {"not rejected %": 100 * (own["p"] > 0.05).mean(), "energy score %": worst.mean()}
        row |= {"median %": worst.median(), "without extreme %": worst.drop(worst.abs().idxmax()).mean()}
        if set(worst.index) <= set(errors.index):
            row |= {"better": int((worst + 2 * errors < 0).sum()), "worse": int((worst - 2 * errors > 0).sum())}
        row |= {"worst %": worst.max(), "worst dataset": worst.idxmax(), "beyond 0.2 %": ", ".join(beyond)}
        rows.append(row | likelihood_changes(scores[scores["method"] == method].set_index("dataset")))
    found = pd.DataFrame(rows).set_index("method")
    return found.reindex([name for name in ORDER if name in found.index]).reset_index()


def likelihood_changes(scores: pd.DataFrame) -> dict:
    """Changes of the NLL by dataset: median, largest, and where it is worse beyond two standard errors."""
    change, error = scores["NLL change"].dropna(), scores["NLL error"]
    if change.empty:
        return {}
    worse = [f"{name} {value:+.2f}" for name, value in change.items() if value - 2 * error[name] > 0]
    row = {"NLL change, median": change.median(), "NLL change, worst": change.max()}
    return row | {"NLL datasets": len(change), "NLL worse": ", ".join(worse)}


@cache
def interval(n_cal: int, n_test: int, level: float, alpha: float) -> tuple[float, float]:
    """Where the share of covered test cases lies with probability 1 - alpha: beta-binomial."""
    place = math.ceil(round((n_cal + 1) * level, 9))
    law = betabinom(n_test, place, n_cal + 1 - place)
    return law.ppf(alpha / 2) / n_test, law.ppf(1 - alpha / 2) / n_test


def region_table(records: list[dict]) -> pd.DataFrame:
    """Coverage against the beta-binomial interval at 0.05 / cells, and volumes."""
    items = [item for item in records if item["method"] == "regions"]
    rows = []
    for item in items:
        for name, value in item["coverage"].items():
            kind, level = name.rsplit(" ", 1)
            low, high = interval(item["n_cal"], item["n_test"], float(level), 0.05 / (len(items) * 4))
            row = {"dataset": item["dataset"], "seed": item["seed"], "region": kind, "level": float(level)}
            row |= {"coverage": value, "low": low, "high": high}
            rows.append(row | {"log volume": item["log volume"][name], "n_targets": item["n_targets"]})
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """A table with numbers as they are, missing ones as a dash."""
    body = [["-" if pd.isna(value) else str(value) for value in row] for row in table.to_numpy()]
    rows = [list(map(str, table.columns)), ["---"] * table.shape[1], *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def wide(cells: pd.DataFrame, method: str) -> pd.DataFrame:
    own = cells[cells["method"] == method].pivot(index="dataset", columns="pre-rank", values="ratio").round(2)
    names = ["marginal", "location", "scale", "dependency", "contrast", "PCA", "HDR", OLD, "copula"]
    return own.reindex(columns=names).reset_index()


def real_page(folder: Path) -> None:
    records = read(folder / "real.jsonl")
    cells, scores = means(cell_table(records)), score_table(records)
    summary, regions = summary_table(cells, scores), region_table(records)
    cells.round(4).to_csv(folder / "cells.csv", index=False)
    scores.round(5).to_csv(folder / "scores.csv", index=False)
    regions.round(4).to_csv(folder / "regions.csv", index=False)
    summary.round(3).to_csv(folder / "summary.csv", index=False)
    shown = summary.round(
        {"near %": 1, "near, test level %": 1, "not rejected %": 1, "energy score %": 2, "worst %": 2}
    )
    changes = scores[scores["method"].isin(ORDER)].pivot(index="dataset", columns="method", values="change %").round(2)
    product = scores[scores["method"] == PRODUCT].drop(columns=["method", "changed"]).round(4)
    failures = [item for item in records if "failed" in item]
    tried = read(folder / "tried.jsonl")
    parts = [
        (folder / "real-notes.md").read_text(encoding="utf-8").strip(),
        markdown(shown),
        "## PCE over 0.3133 sqrt(1 / n_cal + 1 / n_test), means over seeds",
        *(f"**{method}**\n\n{markdown(wide(cells, method))}" for method in ("plain", "ECC", "affine + tilt", PRODUCT)),
        "## Energy score: change from the plain network in %",
        markdown(changes[[name for name in ORDER if name in changes]].reset_index()),
        f"## Scores of {PRODUCT}",
        "Errors of changes are standard errors over cases, seeds averaged. NLL: of cells where targets have atoms.",
        markdown(product),
        "## Joint regions",
        markdown(region_summary(regions)),
        "## What was tried",
        markdown(tried_table(records, tried)),
        "## Failures",
        "\n".join(
            f"* {item['dataset']}, seed {item['seed']}, {item['method']}: {item['failed'][:90]}" for item in failures
        )
        or "None.",
    ]
    (folder / "real.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def region_summary(regions: pd.DataFrame) -> pd.DataFrame:
    """By kind of region: cells inside their interval, below and above it, and volumes at 90 % next to the ellipsoid's."""
    rows = []
    for kind, own in regions.groupby("region", sort=False):
        below, above = own["coverage"] < own["low"], own["coverage"] > own["high"]
        row = {"region": kind, "cells": len(own), "inside": int((~below & ~above).sum()), "below": int(below.sum())}
        row |= {"above": int(above.sum()), "above, by dataset": ", ".join(sorted(set(own["dataset"][above])))}
        for level in (0.5, 0.8, 0.9, 0.95):
            row[f"{level:.0%}"] = round(100 * own["coverage"][own["level"] == level].mean(), 1)
        at = regions[regions["level"] == 0.9].pivot_table(
            index=["dataset", "seed"], columns="region", values="log volume"
        )
        per_target = (at[kind] - at["ellipsoid"]) / own.groupby(["dataset", "seed"])["n_targets"].first()
        row["volume per target"] = round(float(np.exp(per_target.replace(-np.inf, np.nan).median())), 2)
        rows.append(row)
    return pd.DataFrame(rows)


def tried_table(records: list[dict], tried: list[dict]) -> pd.DataFrame:
    """Variants on the datasets that tell them apart."""
    telling = ("households", "air", "births2", "scm20d", "scpf", "wq")
    both = [item for item in [*records, *tried] if item["dataset"] in telling]
    cells, scores = means(cell_table(both)), score_table(both)
    known = set(ORDER) - {"affine + tilt", PRODUCT}
    rows = []
    for method in dict.fromkeys(cells["method"]):
        own = cells[(cells["method"] == method) & (cells["pre-rank"] != OLD)].set_index("dataset")
        if method in known:
            continue
        change = scores[scores["method"] == method].set_index("dataset")["change %"]
        row = {"method": method}
        for name in telling:
            near = own.loc[own.index == name, "ratio"]
            row[name] = f"{int((near <= NEAR).sum())} of {len(near)}, {change[name]:+.2f} %" if len(near) else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def simulated_page(folder: Path) -> None:
    rows = pd.DataFrame([item for name in ("harmless", "right") for item in read(folder / f"{name}.jsonl")])
    after = [name for name in rows if name.endswith(" after") and not name.startswith("KL")]
    table = []
    for (error, targets, n_cal), own in rows.groupby(["error", "targets", "n_cal"]):
        ratios = {kind: own[[name.replace("after", kind) for name in after]].mean() for kind in ("before", "after")}
        row = {"error": error, "D": targets, "n_cal": n_cal, "repetitions": len(own)}
        row |= {
            "changed": f"{own['changed'].mean():.0%}",
            "NLL loss per target": round(own["nll loss"].mean() / targets, 4),
        }
        row |= {f"KL {kind}": round(float(own[f"KL {kind}"].mean()), 3) for kind in ("before", "after")}
        row |= {f"worst PCE ratio {kind}": round(float(ratios[kind].max()), 2) for kind in ("before", "after")}
        table.append(row | {"worst pre-rank": ratios["after"].idxmax().removesuffix(" after")})
    found = pd.DataFrame(table)
    power = pd.DataFrame(read(folder / "power.jsonl"))
    power["rejected"] = power["joint p-value"] <= 0.05
    shares = power.groupby(["error", "targets", "n_cal"])[["changed", "rejected"]].mean().round(2)
    shares["repetitions"] = power.groupby(["error", "targets", "n_cal"]).size()
    limits = {200: 0.005, 600: 0.002, 2000: 0.0005}
    harmless = found[found["error"] == "none"].copy()
    harmless["limit of the loss"] = harmless["n_cal"].map(limits)
    harmless = harmless.drop(columns=["error", "KL before", "KL after"])
    found.to_csv(folder / "simulated.csv", index=False)
    parts = [
        (folder / "simulated-notes.md").read_text(encoding="utf-8").strip(),
        "## Harmless: the forecast is calibrated",
        markdown(harmless),
        "## Right: the forecast has a known error",
        markdown(found[found["error"] != "none"]),
        "## What no change costs: small errors, share of fits that change something and of joint tests that reject at 5 %",
        markdown(shares.reset_index()),
    ]
    (folder / "simulated.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/recalibration"))
    folder = parser.parse_args().folder
    real_page(folder)
    simulated_page(folder)


if __name__ == "__main__":
    main()
