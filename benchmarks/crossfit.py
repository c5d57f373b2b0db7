"""Ways to calibrate by cross-fitting, compared on datasets: how sharp, how well calibrated, how costly.

    python benchmarks/crossfit.py [DATASETS ...] [--seeds 0 42 866] [--device cuda] [--out FILE] [--limit SECONDS]
    python benchmarks/crossfit.py --table results/estimator/crossfit.jsonl

Every dataset, seed and way is a line of JSON in FILE; lines that are there are not computed again, and no dataset is begun
after the limit. Test rows are the paper's; all others are fitted on, in standard units. Calibration is judged by plain ranks
among 200 equally weighted draws of at most 1,024 test rows; a ratio is a PCE over 0.3133 sqrt(1/n_cal + 1/n_test) with the
paper's number of calibration rows.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from sklearn.model_selection import KFold
from torch import Tensor

from prerank import Ensemble, GaussianMixture, Recalibrator, energy_score, nll, paper_preranks, pce, projected_pit
from prerank.forecasts import Mixed, equal_mixture, equally_weighted_draws
from prerank.forecasts.equal_mixture import side_by_side
from prerank.randomness import numpy_generator
from prerank.recalibration import Affine, HeldOut, Tilt
from prerank.regression import MixtureRegressor
from prerank.regression.cv_plans import Fold, Outside, Plan, held_out, single
from prerank.regression.fold_models import Job, fitted_models
from prerank_paper.datasets import load, split

DATASETS = ("households", "air", "wage", "births2", "scm20d", "scpf")
SEEDS = (0, 42, 866)
SETTINGS = {"learning_rate": 1e-3}
N_FOLDS, N_TEST, N_LEARNT, N_DRAWS = 5, 1024, 2048, 200
LEVEL = 0.3133  # the PCE expected of n calibrated cases is this over the square root of n


@dataclass(frozen=True)
class SpreadAdjusted:
    """Components of a pool made narrower or wider about their own means, by one factor: Gneiting and Ranjan (2013)."""

    def fit(self, forecast: GaussianMixture, held_out: HeldOut) -> "FittedSpread":
        def likelihood(log_factor: float) -> Tensor:
            return FittedSpread(math.exp(log_factor), True).transform(forecast).log_prob(held_out.y.to(forecast.loc))

        before = likelihood(0.0)
        found = minimize_scalar(lambda at: -float(likelihood(at).mean()), bounds=(-1.5, 1.5), method="bounded")
        gain, error = held_out.gain(likelihood(found.x) - before)
        return FittedSpread(math.exp(found.x), gain > error)


@dataclass(frozen=True)
class FittedSpread:
    factor: float
    changed: bool

    def transform(self, forecast: GaussianMixture) -> GaussianMixture:
        if not self.changed:
            return forecast
        return GaussianMixture(forecast.logits, forecast.loc, self.factor * forecast.scale_tril)

    def summary(self) -> str:
        return f"components' spreads multiplied by {self.factor:.3g}"


class Task(NamedTuple):
    """A dataset under one seed: rows to fit on (the paper's train, validation and calibration), and rows to judge by."""

    seed: int
    x: np.ndarray
    y: np.ndarray
    sizes: tuple[int, int, int]
    x_test: np.ndarray
    y_test: np.ndarray
    n_cal: int


def task_of(name: str, seed: int, most_rows: int | None) -> Task:
    parts = split(load(name, accept_licence=True), seed)
    fitted = (parts.train, parts.validation, parts.calibration)
    if most_rows is not None:  # a trial
        fitted = tuple(type(part)(part.x[:most_rows], part.y[:most_rows], part.rows[:most_rows]) for part in fitted)
    x, y = (np.concatenate([getattr(part, what) for part in fitted]).astype(np.float64) for what in "xy")
    test = slice(0, N_TEST if most_rows is None else most_rows)
    n_cal = len(parts.calibration)
    sizes = (len(fitted[0]), len(fitted[1]), len(fitted[2]))
    return Task(seed, x, y, sizes, parts.test.x[test].astype(float), parts.test.y[test].astype(float), n_cal)


def plans_of(task: Task) -> dict[str, Plan]:
    """The plans that are compared; that of the held-out fold is a part of the nested one."""
    n_rows = len(task.x)
    shuffled = KFold(N_FOLDS, shuffle=True, random_state=task.seed)
    folds = [Fold(train, test) for train, test in shuffled.split(task.x)]
    n_train, n_validation, _ = task.sizes
    rows = np.arange(n_rows)
    train, validation, rest = np.split(rows, [n_train, n_train + n_validation])
    paper = Plan([Job(train, validation, "paper")], [Outside(rest, (0,))], (0,))
    return {"paper": paper, "single": single(folds, n_rows), "pool": nested(folds), "held out": held_out(folds)}


def nested(folds: Sequence[Fold]) -> Plan:
    """The equal mixture of models that are each stopped by another fold, and use all rows.

    For every fold there is the mixture of models that never saw it; what those say of their folds is learnt from.
    """
    jobs, outside = [], []
    for i in range(len(folds)):
        plan = held_out([*folds[:i], *folds[i + 1 :], folds[i]])
        outside.append(Outside(folds[i].test, tuple(len(jobs) + j for j in plan.final)))
        jobs += [job._replace(name=f"without {i}, {job.name}") for job in plan.jobs]
    final = [Job(fold.train, fold.test, f"all rows, stopped by {j}") for j, fold in enumerate(folds)]
    return Plan([*jobs, *final], outside, tuple(range(len(jobs), len(jobs) + len(final))))


def trained(tasks: Sequence[Task], estimator: MixtureRegressor) -> dict[int, dict[str, list[Any]]]:
    """Models of every plan and seed, all in as few fleets as their sizes allow: rows of all seeds are stacked."""
    x, y = (np.concatenate([getattr(task, what) for task in tasks]) for what in ("x", "y"))
    jobs, places, first = [], [], 0
    for task in tasks:
        for name, plan in plans_of(task).items():
            if name == "held out":
                continue
            for job in plan.jobs:
                stop = None if job.stop is None else job.stop + first
                jobs.append(Job(job.train + first, stop, f"{task.seed}, {name}, {job.name}"))
                places.append((task.seed, name))
        first += len(task.x)
    models = fitted_models(estimator, x, y, None, jobs, 0)
    found: dict[int, dict[str, list[Any]]] = {task.seed: {} for task in tasks}
    for (seed, name), model in zip(places, models, strict=True):
        found[seed].setdefault(name, []).append(model)
    for each in found.values():
        each["held out"] = each["pool"][(N_FOLDS - 1) * (N_FOLDS - 1) : N_FOLDS * (N_FOLDS - 1)]
    return found


def learnt(steps: Sequence[Any], parts: Sequence[tuple[Any, np.ndarray]], seed: int) -> Recalibrator:
    """A recalibrator fitted on at most 2,048 of the cases of some forecasts and their observations."""
    forecast, y = side_by_side([part for part, _ in parts]), np.concatenate([part for _, part in parts])
    order = numpy_generator(seed, "cases to learn from").permutation(len(y))[:N_LEARNT]
    rows = torch.as_tensor(np.sort(order), device=forecast.loc.device)
    observed = torch.as_tensor(y, device=forecast.loc.device)[rows]
    return Recalibrator(steps=list(steps), seed=seed).fit(forecast.select(rows), observed)


def mixture(models: Sequence[MixtureRegressor], places: Sequence[int], x: np.ndarray) -> GaussianMixture:
    return equal_mixture([models[j].predict_distribution(x) for j in places])


def forecasts(task: Task, models: dict[str, list[Any]]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Way by way: its name, its forecast of the test rows, and what is known about it."""
    plain, spread = (Affine(), Tilt()), (SpreadAdjusted(), Affine(), Tilt())
    plans = plans_of(task)
    names = {
        "paper": ("paper's split", "paper's split, corrected"),
        "single": ("(a) all rows", "(a) all rows, corrected out of fold"),
        "held out": ("(c) pool, one fold held out", "(c) pool, one fold held out, corrected"),
        "pool": ("(d) pool of all rows", "(d) pool of all rows, corrected nested"),
    }
    for key, (before, after) in names.items():
        plan, own = plans[key], models[key]
        forecast = mixture(own, plan.final, task.x_test)
        yield before, forecast, {"models": len(plan.final), "epochs": own[0].best_epoch_}
        parts = [(mixture(own, part.jobs, task.x[part.rows]), task.y[part.rows]) for part in plan.outside]
        for steps, more in ((plain, ""), *(((spread, ", spread adjusted"),) if key in ("held out", "pool") else ())):
            started = time.perf_counter()
            recalibrator = learnt(steps, parts, task.seed)
            about = {
                "models": len(plan.jobs),
                "seconds": time.perf_counter() - started,
                "about": recalibrator.summary(),
            }
            yield after + more, recalibrator.transform(forecast), about
        if key == "single":
            started = time.perf_counter()
            each = [
                learnt(plain, [part], task.seed).transform(own[k].predict_distribution(task.x_test))
                for k, part in enumerate(parts)
            ]
            yield (
                "(b) fold models, each corrected",
                Mixed(each),
                {"seconds": time.perf_counter() - started, "models": 5},
            )


def judged(task: Task, forecast: Any, drawn: Ensemble | None = None) -> dict[str, Any]:
    """Scores and PCE ratios on the test rows; a likelihood where there is a density.

    `drawn` are draws in values of the targets, where those of the forecast are spread over cells.
    """
    row: dict[str, Any] = {}
    if isinstance(forecast, Ensemble):
        drawn, reference, y = forecast, None, torch.from_numpy(task.y_test)
    else:
        reference = forecast
        drawn = equally_weighted_draws(forecast, N_DRAWS, 1) if drawn is None else drawn
        y = torch.as_tensor(task.y_test, device=drawn.members.device)
        row["nll"] = float(nll(y, forecast).mean())
    scores = energy_score(y, drawn)
    row["energy score"] = float(scores.mean())
    row["energy score error"] = float(scores.std() / math.sqrt(len(y)))
    if hasattr(forecast, "effective_size"):
        row["effective size"] = float(forecast.effective_size.mean())
    level = LEVEL * math.sqrt(1 / task.n_cal + 1 / len(y))
    pit = projected_pit(y, Ensemble(drawn.members, reference=reference))
    for item in paper_preranks(y.shape[-1]):
        row[item.name] = float(pce(pit.of(item.name)).mean()) / level
    return row


def known(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def run(options: argparse.Namespace) -> None:
    started = time.monotonic()
    there = {(row["dataset"], row["seed"], row["way"]) for row in known(options.out)}
    seeds_done = {(d, s) for d, s, way in there if way == "(d) pool of all rows, corrected nested, spread adjusted"}
    for name in options.datasets or DATASETS:
        seeds = [seed for seed in options.seeds if (name, seed) not in seeds_done]
        if not seeds or time.monotonic() - started > options.limit:
            continue
        tasks = [task_of(name, seed, options.rows) for seed in seeds]
        began = time.perf_counter()
        settings = dict(SETTINGS) if options.rows is None else {**SETTINGS, "max_epochs": 5}
        models = trained(tasks, MixtureRegressor.paper(**settings, device=options.device))
        print(f"{name}: {sum(map(len, models[seeds[0]].values()))} models a seed, {time.perf_counter() - began:.0f} s")
        for task in tasks:
            for way, forecast, about in forecasts(task, models[task.seed]):
                if (name, task.seed, way) in there:
                    continue
                row = {"dataset": name, "seed": task.seed, "way": way, **judged(task, forecast), **about}
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                if time.monotonic() - started > options.limit + 60:
                    return
            print(f"{name}, seed {task.seed}: {time.monotonic() - started:.0f} s")


def summarised(rows: Sequence[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Way by way over all datasets and seeds, and means over seeds for each dataset."""
    frame = pd.DataFrame(rows)
    names = [name for name in frame.columns if name in {item.name for item in (*paper_preranks(2), *paper_preranks(6))}]
    frame["cells within 1.25"] = (frame[names] <= 1.25).sum(axis=1)
    frame["cells"] = frame[names].notna().sum(axis=1)
    plain = frame[frame["way"] == "paper's split"].set_index(["dataset", "seed"])["energy score"]
    own = pd.MultiIndex.from_frame(frame[["dataset", "seed"]])
    frame["energy score, relative"] = frame["energy score"] / plain.reindex(own).to_numpy()
    by_dataset = frame.groupby(["dataset", "way"], sort=False)[["energy score", "nll", *names, "seconds"]].mean()
    by_way = frame.groupby("way", sort=False)
    overall = pd.DataFrame(
        {
            "energy score, relative": by_way["energy score, relative"].mean(),
            "nll": by_way["nll"].mean(),
            "within 1.25": by_way["cells within 1.25"].sum() / by_way["cells"].sum(),
            "models": by_way["models"].first(),
        }
    )
    return overall, by_dataset


def table(rows: Sequence[dict[str, Any]]) -> str:
    return "\n\n".join(markdown(part.reset_index()) for part in summarised(rows))


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown, three decimals, gaps left empty."""

    def cell(value: Any) -> str:
        if isinstance(value, str | int):
            return str(value)
        return "" if value != value else f"{value:.3f}"

    cells = frame.map(cell)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--device")
    parser.add_argument("--rows", type=int, help="at most so many rows of each part, and five epochs: a trial")
    parser.add_argument("--out", type=Path, default=Path("crossfit.jsonl"))
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table is None:
        run(options)
    print(table(known(options.table or options.out)))


if __name__ == "__main__":
    main()
