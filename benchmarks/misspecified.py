"""A model that cannot be right: is it better calibrated with the penalty than without, and what does it cost?

    python benchmarks/misspecified.py --out results        # about 20 minutes on one core

Three ways to be wrong, on tables whose law is known (D = 3: all seven pre-ranks of the paper exist, and the modes
do not cancel in the mean):

    one Gaussian        a network with a single component, for targets that are bimodal; 1,000 training rows
    one Gaussian, corner  the same for exponential margins that hang together in one corner only (a Clayton copula)
    few rows            five components and 100 training rows

Every model is judged on fresh rows of the true law by the exact PCE of the pre-rank it was penalised by, next to the
unpenalised model of the same seed: the differences are paired, and their standard errors are over seeds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from prerank.calibration import pce, pce_null, projected_pit
from prerank.datasets import Bimodal, ClaytonDependent, Heteroscedastic
from prerank.datasets.synthetic import Recipe
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, paper_preranks
from prerank.scores import energy_score
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit


@dataclass(frozen=True)
class Setting:
    """A true law and a model that does not fit it."""

    name: str
    recipe: Recipe
    n_rows: int
    options: FitOptions


def settings(n_targets: int = 3, learning_rate: float = 2e-3, max_epochs: int = 120) -> list[Setting]:
    common = {"hidden": (32, 32), "learning_rate": learning_rate, "max_epochs": max_epochs}
    return [
        Setting("one Gaussian", Bimodal(n_targets), 1000, FitOptions(n_components=1, **common)),
        Setting("one Gaussian, corner", ClaytonDependent(n_targets), 1000, FitOptions(n_components=1, **common)),
        Setting("few rows", Heteroscedastic(n_targets), 100, FitOptions(n_components=5, **common)),
    ]


def rows_of(recipe: Recipe, n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = recipe.table(n_rows, seed)
    return torch.from_numpy(made.x).float(), torch.from_numpy(made.y).float()


def study(
    setting: Setting, preranks: Sequence[PreRank], seeds: Sequence[int], strength: float = 10.0, n_fresh: int = 4000
) -> pd.DataFrame:
    """One record per pre-rank, seed and model (with or without its penalty): PCE, energy score and NLL on fresh rows."""
    data = {}
    for seed in seeds:
        x, y = rows_of(setting.recipe, setting.n_rows + setting.n_rows // 4, seed)
        kept = setting.n_rows
        data[seed] = TrainingSet(x[:kept], y[:kept], x[kept:], y[kept:])
    runs = [Run(seed) for seed in seeds]
    runs += [Run(seed, PreRankPenalty(prerank), strength) for prerank in preranks for seed in seeds]
    fleet = fit(runs, data, setting.options)
    if bool(fleet.diverged.any()):
        raise RuntimeError(f"{setting.name}: {int(fleet.diverged.sum())} models diverged")
    rows = []
    for place, run in enumerate(runs):
        x, y = rows_of(setting.recipe, n_fresh, 10_000 + run.seed)
        laws = fleet.forecast(x, [place])
        law = GaussianMixture(laws.logits[0], laws.loc[0], laws.scale_tril[0])
        common = {
            "setting": setting.name,
            "seed": run.seed,
            "energy": float(energy_score(y, law.ensemble(100)).mean()),
            "nll": -float(law.log_prob(y).mean()),
        }
        judged = preranks if run.penalty is None else [p for p in preranks if p.name == run.penalty.name]
        pit = projected_pit(y, law, judged)
        for prerank in judged:
            own = [k for k, group in enumerate(pit.groups) if group == prerank.name]
            value = float(pce(pit.values[:, own].double()).mean())
            rows.append({**common, "prerank": prerank.name, "penalised": run.penalty is not None, "pce": value})
    return pd.DataFrame(rows)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Means without and with the penalty, and the paired differences with their standard errors."""
    wide = found.pivot_table(index=["setting", "prerank", "seed"], columns="penalised", sort=False)
    records = []
    for (setting, prerank), part in wide.groupby(level=[0, 1], sort=False):
        record: dict[str, object] = {"setting": setting, "prerank": prerank}
        for metric in ("pce", "energy", "nll"):
            difference = part[metric][True] - part[metric][False]
            record[f"{metric} without"] = part[metric][False].mean()
            record[f"{metric} with"] = part[metric][True].mean()
            record[f"{metric} change"] = difference.mean()
            record[f"{metric} se"] = difference.sem()
        records.append(record)
    return pd.DataFrame(records)


def text_of(table: pd.DataFrame, n_fresh: int, n_seeds: int, strength: float) -> str:
    lines = [
        f"Penalised at strength {strength:g} against unpenalised, on {n_fresh} fresh rows of the true law, mean of "
        f"{n_seeds} seeds with paired standard errors. A calibrated model has PCE {pce_null(n_fresh).mean:.4f}.",
        "",
        "| setting | pre-rank | PCE without | with | change (se) | energy score without | change (se) | "
        "NLL without | change (se) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in table.to_dict("records"):
        cells = [row["setting"], row["prerank"], f"{row['pce without']:.4f}", f"{row['pce with']:.4f}"]
        cells.append(f"{row['pce change']:+.4f} ({row['pce se']:.4f})")
        for metric in ("energy", "nll"):
            cells += [f"{row[f'{metric} without']:.3f}", f"{row[f'{metric} change']:+.3f} ({row[f'{metric} se']:.3f})"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main(
    n_seeds: int, strength: float, n_fresh: int, only: list[str] | None, chosen: list[str] | None, out: Path | None
) -> None:
    preranks = [item for item in paper_preranks(3) if only is None or item.name in only]
    asked = [setting for setting in settings() if chosen is None or setting.name in chosen]
    found = [study(setting, preranks, range(n_seeds), strength, n_fresh) for setting in asked]
    table = summary(pd.concat(found))
    text = text_of(table, n_fresh, n_seeds, strength)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        table.to_csv(out / "misspecified.csv", index=False, float_format="%.5f")
        (out / "misspecified.md").write_text(
            text + "\nRepeat with `python benchmarks/misspecified.py --out results`.\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--strength", type=float, default=10.0)
    parser.add_argument("--fresh", type=int, default=4000)
    parser.add_argument("--only", nargs="*", help="names of pre-ranks")
    parser.add_argument("--settings", nargs="*", help="names of settings")
    parser.add_argument("--out", type=Path, help="folder for misspecified.csv and misspecified.md")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    main(chosen.seeds, chosen.strength, chosen.fresh, chosen.only, chosen.settings, chosen.out)
