"""Recalibration of the benchmark's networks on real data: plain, penalised, rivals, and transport + tilt.

    python benchmarks/recalibration_real.py [DATASETS] [--device cuda] [--workers 8] [--out FOLDER] [--seconds 500]

Networks are trained as in the benchmark (its splits, seeds and settings), corrections are fitted on the calibration rows and
judged on up to 1,024 test rows by plain ranks among 200 equally weighted draws. A likelihood is of cells for targets with
atoms, and a density for others. FOLDER/records.jsonl gets a line for every
dataset, seed and method; lines that are there are not computed again, and weights of plain networks are kept in
FOLDER/models. `benchmarks/recalibration_tables.py` makes the tables.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from other_bases import BASES, basis
from prerank import Ensemble, GaussianMixture, Recalibrator, energy_score, paper_preranks, pce, pce_test, projected_pit
from prerank.forecasts import Forecast, equally_weighted_draws
from prerank.recalibration import (
    Affine,
    EnsembleCopulaCoupling,
    HDRRecalibration,
    HighestDensityRegions,
    LatentRecalibration,
    SchaakeShuffle,
    Step,
    Tilt,
)
from prerank.regression.dequantising import Dequantiser
from prerank.training import FitOptions, PreRankPenalty, Run, TrainingSet, fit
from prerank.training.fleet import Architecture, forecast_of
from prerank_paper.datasets import load, split
from prerank_paper.datasets.splitting import PAPER_SEEDS, published_order

DATASETS = (
    "calcofi", "bio", "blogdata", "house", "births1", "births2", "taxi", "households", "wage", "air", "meps21", "scm20d",
    "scpf", "ansur2", "wq",
)  # fmt: skip
"""Those whose training takes longest first."""
TELLING = ("households", "air", "births2", "scm20d", "scpf", "wq")
LEVELS = (0.5, 0.8, 0.9, 0.95)
TEST_ROWS, DRAWS, STRENGTH, POOL = 1024, 200, 10.0, Tilt().pool


class Budget(NamedTuple):
    """What a trial makes smaller: epochs, draws of a pool, replicates of a test."""

    max_epochs: int = 5000
    pool: int = POOL
    n_replicates: int = 499


class TimeIsUp(Exception):
    """The seconds of this call are over; another one goes on."""


def steps_of(pool: int) -> dict[str, list[Step]]:
    """Recalibrations by name: the product's, and what was tried beside it."""
    tilt, strict = Tilt(pool=pool, errors=2.0), Tilt(pool=pool, errors=1.0)
    return {
        "affine": [Affine()],
        "affine + tilt": [Affine(), tilt],
        "affine + tilt + tilt": [Affine(), tilt, tilt],
        "affine + tilt, one error": [Affine(), strict],
        "affine + tilt + tilt, one error": [Affine(), strict, strict],
        "affine + tilt + tilt + tilt": [Affine(), tilt, tilt, tilt],
    }


CORE = ("affine", "affine + tilt", "affine + tilt + tilt")
VARIANTS = (
    *(name for name in steps_of(1) if name not in CORE),
    *(f"{method}, {name}" for name in BASES for method in CORE[1:]),
)
RIVALS: dict[str, Callable[[int], Any]] = {
    "ECC": lambda seed: EnsembleCopulaCoupling(n_draws=DRAWS, seed=seed),
    "Schaake shuffle": lambda seed: SchaakeShuffle(n_draws=DRAWS, seed=seed),
    "HDR recalibration": lambda seed: HDRRecalibration(n_draws=DRAWS, n_pool=5000, seed=seed),
    "latent recalibration": lambda seed: LatentRecalibration(n_draws=DRAWS, seed=seed),
}


class Rows(NamedTuple):
    """Standardised features and targets of some rows."""

    x: Tensor
    y: Tensor


def parts_of(dataset: str, seed: int, device: str) -> dict[str, Rows]:
    """Train, validation and calibration rows, and up to 1,024 test rows, as the benchmark splits them."""
    made = split(load(dataset, accept_licence=True), seed, order=published_order)
    rows = {}
    for name in ("train", "validation", "calibration", "test"):
        part = getattr(made, name)
        rows[name] = Rows(*(torch.from_numpy(array).to(device, torch.float32) for array in (part.x, part.y)))
    return rows | {"test": Rows(*(values[:TEST_ROWS] for values in rows["test"]))}


class _Until:
    """A progress that ends a fit when time is up; its checkpoint stays."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    def start(self, n_models: int, max_epochs: int) -> None:
        pass

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        if time.time() > self.deadline:
            raise TimeIsUp

    def stop(self) -> None:
        pass


class Folder(NamedTuple):
    """Where a study keeps its records and weights."""

    path: Path

    def records(self) -> list[dict[str, Any]]:
        file = self.path / "records.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def done(self, dataset: str, seed: int) -> set[str]:
        return {item["method"] for item in self.records() if (item["dataset"], item["seed"]) == (dataset, seed)}

    def add(self, record: dict[str, Any]) -> None:
        """One write, so that lines of several processes do not mix."""
        line = json.dumps({key: _rounded(value) for key, value in record.items()}) + "\n"
        file = os.open(self.path / "records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def weights(self, dataset: str) -> Path:
        return self.path / "models" / f"{dataset}.safetensors"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def train(dataset: str, runs: list[Run], out: Path, name: str, device: str, budget: Budget, deadline: float):  # type: ignore[no-untyped-def]
    """Networks of all seeds, from a checkpoint where there is one."""
    data = {}
    for seed in PAPER_SEEDS:
        rows = parts_of(dataset, seed, device)
        data[seed] = TrainingSet(*rows["train"], *rows["validation"])
    checkpoint = out / "checkpoints" / f"{dataset}.{name}"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    options = FitOptions(max_epochs=budget.max_epochs, checkpoint=checkpoint, checkpoint_seconds=20.0)
    return fit(runs, data, options, _Until(deadline))


def train_plain(dataset: str, out: Path, device: str, budget: Budget, deadline: float) -> None:
    """Networks without a penalty, one for each seed; their weights are kept."""
    path = Folder(out).weights(dataset)
    if path.exists():
        return
    fitted = train(dataset, [Run(seed) for seed in PAPER_SEEDS], out, "plain", device, budget, deadline)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({f"{k:02d}": tensor.contiguous().cpu() for k, tensor in enumerate(fitted.weights)}, path)


def plain_forecast(dataset: str, seed: int, out: Path, x: Tensor, n_targets: int) -> GaussianMixture:
    kept = load_file(Folder(out).weights(dataset))
    place = PAPER_SEEDS.index(seed)
    weights = [kept[name][place : place + 1].to(x) for name in sorted(kept)]
    law = forecast_of(weights, x, Architecture(x.shape[-1], n_targets))
    return GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])


def judge_penalties(dataset: str, out: Path, device: str, budget: Budget, deadline: float) -> None:
    """Networks with a penalty on one pre-rank, each judged by its own, and with one on all of them."""
    folder, rows = Folder(out), {seed: parts_of(dataset, seed, device) for seed in PAPER_SEEDS}
    preranks = paper_preranks(rows[PAPER_SEEDS[0]]["test"].y.shape[-1])
    kinds = {"penalty on all": preranks} | {f"penalty on {item.name}": (item,) for item in preranks}
    done = set.intersection(*(folder.done(dataset, seed) for seed in PAPER_SEEDS))
    kinds = {method: penalised for method, penalised in kinds.items() if method not in done}
    if not kinds:
        return
    runs = [Run(seed, PreRankPenalty(kind), STRENGTH) for kind in kinds.values() for seed in PAPER_SEEDS]
    fitted = train(dataset, runs, out, f"penalised-{len(kinds)}", device, budget, deadline)
    for place, run in enumerate(runs):
        method = list(kinds)[place // len(PAPER_SEEDS)]
        if method in folder.done(dataset, run.seed):
            continue
        x, y = rows[run.seed]["test"]
        law = fitted.forecast(x, [place])
        law = GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])
        plain = plain_forecast(dataset, run.seed, out, x, y.shape[-1])
        found = judged(law, plain, y, 0, kinds[method], budget, cells_of(rows[run.seed]))
        folder.add({"dataset": dataset, "seed": run.seed, "method": method, **found})


def cells_of(rows: dict[str, Rows]) -> Dequantiser:
    """What the targets of all rows but the test rows say of their atoms."""
    known = torch.cat([rows[name].y for name in ("train", "validation", "calibration")])
    return Dequantiser.of(known.double().cpu().numpy())


def _paired(after: Tensor, before: Tensor) -> list[float]:
    """Mean and standard error of a difference, case by case."""
    difference = (after - before).double()
    return [float(difference.mean()), float(difference.std() / math.sqrt(len(difference)))]


@torch.no_grad()
def judged(
    law: Forecast, plain: GaussianMixture, y: Tensor, n_cal: int, preranks: Any, budget: Budget, cells: Dequantiser
) -> dict[str, Any]:
    """PCE and p-value of every pre-rank, of the old density's HDR, and scores next to those of the plain network."""
    started = time.perf_counter()
    members = law.members if isinstance(law, Ensemble) else equally_weighted_draws(law, DRAWS, 0, "judged").members
    row: dict[str, Any] = {"n_cal": n_cal, "n_test": len(y), "n_targets": y.shape[-1]}
    ranked = Ensemble(members, reference=None if isinstance(law, Ensemble) else law)
    pit = projected_pit(y, ranked, preranks, exchangeable=True)
    test = pce_test(pit, n_replicates=budget.n_replicates)
    row["pce"] = {name: float(pce(pit.of(name)).mean()) for name in test.groups}
    row["p"] = dict(zip(test.groups, test.p_value.flatten().tolist(), strict=True))
    hdr = [item for item in paper_preranks(y.shape[-1]) if item.name == "HDR"]
    old = projected_pit(y, Ensemble(members, reference=plain), hdr, exchangeable=True)
    row["pce"]["HDR, old law"] = float(pce(old).mean())
    row["p"]["HDR, old law"] = float(pce_test(old, n_replicates=budget.n_replicates).p_value)
    before = energy_score(y, equally_weighted_draws(plain, DRAWS, 0, "judged"))
    after = energy_score(y, Ensemble(members))
    row["energy score"], row["energy score change"] = float(after.mean()), _paired(after, before)
    if not isinstance(law, Ensemble):
        observed = y.double().cpu().numpy()
        nll, nll_before = (-cells.log_likelihood(observed, each) for each in (law, plain))
        row["nll"], row["nll change"] = float(nll.double().mean()), _paired(nll, nll_before)
        row["nll of cells"] = cells.has_atoms
        if hasattr(law, "log_normaliser_error"):
            row["nll Monte Carlo error"] = float(law.log_normaliser_error.mean())
            row["effective share"] = float(law.effective_size.mean()) / law.pool
    row["seconds to judge"] = time.perf_counter() - started
    return row


def methods_of(dataset: str, tried: bool) -> list[str]:
    if tried:
        return list(VARIANTS) if dataset in TELLING else []
    return ["plain", *CORE, *RIVALS]


def judge(dataset: str, seed: int, out: Path, device: str, budget: Budget, deadline: float, tried: bool) -> None:
    """The plain network, rivals and recalibrations of a dataset and seed."""
    folder = Folder(out)
    left = [name for name in methods_of(dataset, tried) if name not in folder.done(dataset, seed)]
    if not left:
        return
    rows = parts_of(dataset, seed, device)
    n_targets = rows["test"].y.shape[-1]
    fit_on, new = (plain_forecast(dataset, seed, out, rows[name].x, n_targets) for name in ("calibration", "test"))
    y, n_cal, cells = rows["calibration"].y, len(rows["calibration"].y), cells_of(rows)
    for method in left:
        if time.time() > deadline:
            raise TimeIsUp
        about: dict[str, Any] = {"dataset": dataset, "seed": seed, "method": method}
        started = time.perf_counter()
        steps, of = _variant(method)
        try:
            with basis(of):
                law: Forecast = new
                if method in RIVALS:
                    law = RIVALS[method](seed).fit(fit_on, y).transform(new)
                elif method != "plain":
                    recalibrator = Recalibrator(steps=steps_of(budget.pool)[steps], seed=seed).fit(fit_on, y)
                    law = recalibrator.transform(new)
                    about |= {"changed": recalibrator.changed_, "summary": recalibrator.summary()}
                _wait(device)
                about["seconds"] = time.perf_counter() - started
                found = judged(law, new, rows["test"].y, n_cal, paper_preranks(n_targets), budget, cells)
        except (ValueError, TypeError, RuntimeError) as failure:
            found = {"failed": f"{type(failure).__name__}: {failure}"[:500]}
        folder.add(about | found)


def _variant(method: str) -> tuple[str, str | None]:
    """The name of its steps, and of the functions that its tilts are made of (None: those of the library)."""
    steps, _, of = method.rpartition(", ")
    return (steps, of) if of in BASES else (method, None)


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def regions(dataset: str, seed: int, out: Path, device: str, budget: Budget, deadline: float) -> None:
    """Coverage and volume of joint regions; what fits them has fitted nothing else."""
    folder = Folder(out)
    if "regions" in folder.done(dataset, seed):
        return
    if time.time() > deadline:
        raise TimeIsUp
    rows = parts_of(dataset, seed, device)
    (x, y), test = rows["calibration"], rows["test"]
    half = len(y) // 2
    to_fit, to_cover, new = (
        plain_forecast(dataset, seed, out, part, y.shape[-1]) for part in (x[:half], x[half:], test.x)
    )
    steps = steps_of(budget.pool)["affine + tilt + tilt"]
    recalibrator = Recalibrator(steps=steps, seed=seed).fit(to_fit, y[:half])
    record: dict[str, Any] = {"dataset": dataset, "seed": seed, "method": "regions", "n_targets": y.shape[-1]}
    record |= {"n_cal": len(y) - half, "n_test": len(test.y), "coverage": {}, "log volume": {}}
    some = slice(0, 256)
    for name, law, held in (
        ("plain", new, to_cover),
        ("recalibrated", recalibrator.transform(new), recalibrator.transform(to_cover)),
    ):
        fitted = HighestDensityRegions(seed=seed).fit(held, y[half:])
        cut = law.select(torch.arange(256, device=x.device)[: len(test.y)]) if hasattr(law, "select") else law
        for level in LEVELS:
            inside = fitted.region(law, level).contains(test.y)
            try:
                volume = fitted.region(cut, level).volume().value
            except torch.linalg.LinAlgError:  # copies of a few draws have no covariance
                volume = torch.full((1,), torch.nan)
            record["coverage"][f"{name} {level:g}"] = float(inside.double().mean())
            record["log volume"][f"{name} {level:g}"] = float(volume.log().median())
    record |= _ellipsoid(record, to_fit, y[:half], to_cover, y[half:], new, test.y)
    record["rows of volumes"] = min(some.stop, len(test.y))
    folder.add(record)


def _ellipsoid(
    record: dict[str, Any], fit_on: GaussianMixture, y: Tensor, cover: GaussianMixture, y_cover: Tensor,
    new: GaussianMixture, y_new: Tensor,
) -> dict[str, Any]:  # fmt: skip
    """The same for the ellipsoid of the residuals about the network's mean, as large in every case."""
    covariance = (y - fit_on.mean).double().mT.cov()
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    root = torch.linalg.cholesky(covariance + 1e-9 * covariance.diagonal().mean() * eye)

    def distance(observed: Tensor, law: GaussianMixture) -> Tensor:
        return torch.linalg.solve_triangular(root, (observed - law.mean).double().mT, upper=False).square().sum(0)

    scores, d = distance(y_cover, cover).sort().values, y.shape[-1]
    for level in LEVELS:
        edge = scores[min(len(scores), math.ceil(round((len(scores) + 1) * level, 9))) - 1]
        record["coverage"][f"ellipsoid {level:g}"] = float((distance(y_new, new) <= edge).double().mean())
        ball = 0.5 * d * math.log(math.pi) - math.lgamma(d / 2 + 1) + 0.5 * d * float(edge.log())
        record["log volume"][f"ellipsoid {level:g}"] = ball + float(root.diagonal().log().sum())
    return record


Task = tuple[Callable[..., None], tuple[Any, ...]]


def after_training(dataset: str) -> Iterator[Task]:
    yield from ((partial(judge, tried=False), (dataset, seed)) for seed in PAPER_SEEDS)


def later(datasets: list[str]) -> Iterator[Task]:
    """What can wait until every plain network is there."""
    yield from ((judge_penalties, (dataset,)) for dataset in datasets)
    for dataset in datasets:
        yield from ((regions, (dataset, seed)) for seed in PAPER_SEEDS)
    for dataset in datasets:
        yield from ((partial(judge, tried=True), (dataset, seed)) for seed in PAPER_SEEDS)


def run(
    task: Callable[..., None], arguments: tuple[Any, ...], out: Path, device: str, budget: Budget, deadline: float
) -> str:
    torch.set_num_threads(1)
    started = time.time()
    if started > deadline:
        return ""
    try:
        task(*arguments, out, device, budget, deadline)
    except TimeIsUp:
        return ""
    except (RuntimeError, ValueError) as failure:  # one task's trouble must not cost the others
        return f"{task} {arguments}: {type(failure).__name__} {failure}"[:300]
    finally:
        torch.cuda.empty_cache()  # other processes may share the GPU
    name = getattr(task, "__name__", None) or f"judge {getattr(task, 'keywords', '')}"
    return f"{name} {arguments}: {time.time() - started:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", metavar="DATASETS", help=", ".join(DATASETS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("recalibration-real"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many; the next call goes on")
    parser.add_argument("--quick", action="store_true", help="a trial: three epochs, small pools, few replicates")
    options = parser.parse_args()
    deadline, start = time.time() + options.seconds, time.time()
    options.out.mkdir(parents=True, exist_ok=True)
    budget = Budget(3, 500, 19) if options.quick else Budget()
    datasets = [name for name in DATASETS if not options.datasets or name in options.datasets]
    common = (options.out, options.device, budget, deadline)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        training: dict[Future[str], str] = {
            pool.submit(run, train_plain, (dataset,), *common): dataset for dataset in datasets
        }
        waiting: set[Future[str]] = set(training)
        trained = 0
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for item in ended:
                print(f"{time.time() - start:6.1f} s  {item.result()}", flush=True)
                if item in training and Folder(options.out).weights(training[item]).exists():
                    trained += 1
                    waiting |= {pool.submit(run, *task, *common) for task in after_training(training[item])}
                    if trained == len(datasets):
                        waiting |= {pool.submit(run, *task, *common) for task in later(datasets)}


if __name__ == "__main__":
    main()
