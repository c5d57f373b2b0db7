"""What is done for one fleet: load and split the data, train all models, evaluate each of them under both protocols."""

import json
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from prerank._writing import whole_file
from prerank.calibration import ProjectedPIT, centred_levels, inclusive_levels, projected_pit, reliability_curve
from prerank.forecasts import GaussianMixture
from prerank.training import FitOptions, FittedFleet, Progress, Run, TrainingSet, fit
from prerank_paper.benchmark.plan import (
    NONE,
    PUBLISHED_STRENGTH,
    Fleet,
    Model,
    penalised_preranks,
    penalty_of,
    preranks_of,
)
from prerank_paper.benchmark.records import FleetResult, sessions_of
from prerank_paper.datasets import load, split
from prerank_paper.datasets.splitting import published_order
from prerank_paper.evaluation import evaluate_both, exact_tests
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.published import published_pits

_LEVELS = 50  # of the reliability curves that are kept


@dataclass(frozen=True)
class Settings:
    """How the fleets of a benchmark are run; the defaults are the paper's. `max_epochs` shortens a trial.

    Models are evaluated on the first `eval_rows` validation and test rows, which are in random order: beyond that many
    a PCE is known to a third of a percentage point, and hundreds of models would take longer to evaluate than to train.
    `beside` says how many fleets are trained at a time, which their times depend on; a resumed fleet notes the most.
    """

    device: str = "cpu"
    n_draws: int = 100
    n_replicates: int = 999
    max_epochs: int = 5000
    checkpoint_seconds: float = 60.0
    accept_licence: bool = False
    eval_rows: int = 20_000
    beside: int = 1


class Rows(NamedTuple):
    """Standardised features and targets of one part, for each seed: (seeds, N, L) and (seeds, N, D)."""

    x: Tensor
    y: Tensor


class SplitData(NamedTuple):
    """A dataset on the device: what each seed trains on, and the validation and test rows that models are evaluated on."""

    seeds: tuple[int, ...]
    train: dict[int, TrainingSet]
    validation: Rows
    test: Rows
    status: str


def prepare(dataset: str, seeds: Sequence[int], settings: Settings) -> SplitData:
    """Load and split a dataset as the paper did, row by row, and bring it to the device in single precision."""
    table = load(dataset, accept_licence=settings.accept_licence)
    splits = [split(table, seed, order=published_order) for seed in seeds]

    def rows(part: str) -> Rows:
        def stacked(column: str) -> Tensor:
            arrays = [torch.from_numpy(getattr(getattr(item, part), column)) for item in splits]
            return torch.stack(arrays).to(settings.device, torch.float32)

        return Rows(stacked("x"), stacked("y"))

    train, validation, test = rows("train"), rows("validation"), rows("test")
    sets = {seed: TrainingSet(train.x[i], train.y[i], validation.x[i], validation.y[i]) for i, seed in enumerate(seeds)}
    most = settings.eval_rows
    validation, test = (Rows(part.x[:, :most], part.y[:, :most]) for part in (validation, test))
    return SplitData(tuple(seeds), sets, validation, test, table.card.status)


def work(fleet: Fleet, settings: Settings, checkpoint: Path | None, progress: Progress | None = None) -> FleetResult:
    """Train and evaluate a fleet. With a checkpoint, an interrupted call picks up where it was and ends the same."""
    started = time.monotonic()
    seeds = sorted({model.seed for model in fleet.models})
    data = prepare(fleet.dataset, seeds, settings)
    loaded = time.monotonic()
    n_targets = data.test.y.shape[-1]
    runs = [
        Run(model.seed, penalty_of(model, n_targets, settings.n_draws), model.strength, model.initialisation)
        for model in fleet.models
    ]
    on_gpu = torch.device(settings.device).type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(settings.device)
    options = FitOptions(
        max_epochs=settings.max_epochs, checkpoint=checkpoint, checkpoint_seconds=settings.checkpoint_seconds
    )
    sessions = _sessions(checkpoint, settings)
    fitted = fit(runs, data.train, options, progress)
    batches = -(-len(data.train[seeds[0]].x) // options.batch_size)
    about = {
        "name": fleet.name,
        "dataset": fleet.dataset,
        "training": fleet.training,
        "n_models": len(fleet.models),
        "n_targets": n_targets,
        "n_features": data.test.x.shape[-1],
        "n_train": len(data.train[seeds[0]].x),
        "n_validation": data.validation.y.shape[1],
        "n_test": data.test.y.shape[1],
        "batches_per_epoch": batches,
        "steps": fitted.steps,
        "epochs": fitted.epochs,
        "seconds": fitted.seconds,
        "ms_per_step": 1000 * fitted.seconds / max(1, fitted.steps),
        "peak_bytes": torch.cuda.max_memory_allocated(settings.device) if on_gpu else 0,
        "device": " and ".join(dict.fromkeys(session["device"] for session in sessions)),
        "processor": " and ".join(dict.fromkeys(session["processor"] for session in sessions)),
        "sessions": len(sessions),
        "beside": max(session.get("beside", 1) for session in sessions),
        "dataset_status": data.status,
    }
    trained = time.monotonic()
    records, errors = _evaluate(fleet, fitted, data, settings)
    models = _models(fleet, fitted, batches, options.patience, errors)
    curves = _curves(fleet, fitted, data, settings, set(errors))
    about |= {"loading_seconds": loaded - started, "evaluation_seconds": time.monotonic() - trained}
    return FleetResult(about, models, records, curves)


def _sessions(checkpoint: Path | None, settings: Settings) -> list[dict[str, Any]]:
    """Where this fleet has been trained, this time last; noted beside its checkpoint, so that a resumed one knows."""
    here = {"device": device_name(settings.device), "processor": processor_name(), "beside": settings.beside}
    if checkpoint is None:
        return [here]
    path = sessions_of(checkpoint)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() and checkpoint.exists() else []
    with whole_file(path) as partial:
        partial.write_text(json.dumps([*before, here]), encoding="utf-8")
    return [*before, here]


def processor_name() -> str:
    """What the host's processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def device_name(device: str) -> str:
    """What a device is called in the records."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"


def _models(fleet: Fleet, fitted: FittedFleet, batches: int, patience: int, errors: dict[int, str]) -> pd.DataFrame:
    """What became of each model; `errors` by place."""
    frame = pd.DataFrame([vars(model) for model in fleet.models]).assign(dataset=fleet.dataset)
    best = fitted.best_epoch.cpu().numpy()
    return frame.assign(
        best_epoch=best,
        best_score=fitted.best_score.double().cpu().numpy(),
        steps=((best + 1 + patience) * batches).clip(max=fitted.steps),
        diverged=fitted.diverged.cpu().numpy(),
        error=[errors.get(place, "") for place in range(len(frame))],
    )


def _evaluate(
    fleet: Fleet, fitted: FittedFleet, data: SplitData, settings: Settings
) -> tuple[pd.DataFrame, dict[int, str]]:
    """Every number of every model, and the errors of those that have none, by their place.

    A model that never had a finite validation score is one of these.
    """
    n_targets = data.test.y.shape[-1]
    exact, published = (list(preranks_of(n_targets, protocol).values()) for protocol in (EXACT, AS_PUBLISHED))
    lost = (~fitted.best_score.isfinite()).nonzero()[:, 0].tolist()
    errors = dict.fromkeys(lost, "the loss was not finite before the first epoch had ended")
    sound = [place for place in range(len(fleet.models)) if place not in errors]
    parts: list[pd.DataFrame] = []

    def evaluate(places: list[int]) -> None:
        found = []
        for part, rows in (("validation", data.validation), ("test", data.test)):
            forecast, y = _forecast(fleet, fitted, data.seeds, rows, places)
            numbers = evaluate_both(y, forecast, exact, published, n_draws=settings.n_draws, n_replicates=0)
            found.append(numbers.assign(part=part, place=[places[k] for k in numbers["model"]]))
        tested = _tests(fleet, fitted, data, settings, places)
        parts.append(_with_tests(pd.concat(found, ignore_index=True), tested))

    def succeeds(places: list[int]) -> bool:
        try:
            evaluate(places)
        except (ValueError, RuntimeError) as failure:
            if len(places) == 1:
                if isinstance(failure, torch.OutOfMemoryError):  # the machine's fault, and not the model's
                    raise
                errors[places[0]] = str(failure)
            return False
        return True

    for places in _some_at_a_time(sound, data.test):
        if not succeeds(places):  # one model's bad numbers, or one too many, must not cost the others theirs
            for place in places:
                succeeds([place])
    return _tidy(fleet, parts), errors


_TESTED = ["expected_pce", "corrected", "low", "high", "p_value"]
_WHICH = ["place", "part", "protocol", "metric", "prerank"]


def _tests(fleet: Fleet, fitted: FittedFleet, data: SplitData, settings: Settings, places: list[int]) -> pd.DataFrame:
    """Tests and intervals on the test rows: of baselines for every pre-rank, of other models for those they penalise.

    These are what the tables need, of the first initialisation; for every model and pre-rank they would take longer than
    the training.
    """
    places = [place for place in places if fleet.models[place].initialisation == 0]
    known = preranks_of(data.test.y.shape[-1], EXACT)
    tables = []
    for penalty in dict.fromkeys(fleet.models[place].penalty for place in places):
        own = [place for place in places if fleet.models[place].penalty == penalty]
        names = list(known) if penalty == NONE else penalised_preranks(penalty, list(known))
        chosen = [known[name] for name in names if name in known]
        if chosen:
            forecast, y = _forecast(fleet, fitted, data.seeds, data.test, own)
            numbers = exact_tests(y, forecast, chosen, n_draws=settings.n_draws, n_replicates=settings.n_replicates)
            tables.append(numbers.assign(part="test", place=[own[k] for k in numbers["model"]]))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*_WHICH, *_TESTED])


def _with_tests(numbers: pd.DataFrame, tested: pd.DataFrame) -> pd.DataFrame:
    """The records with what tests say filled in where there is a test."""
    joined = numbers.drop(columns=[name for name in ("low", "high", "p_value") if name in numbers]).merge(
        tested[[*_WHICH, *_TESTED]], how="left", on=_WHICH, suffixes=("", " of the test")
    )
    for name in ("expected_pce", "corrected"):
        joined[name] = joined[f"{name} of the test"].fillna(joined[name])
    return joined


def _forecast(
    fleet: Fleet, fitted: FittedFleet, seeds: tuple[int, ...], rows: Rows, places: list[int]
) -> tuple[GaussianMixture, Tensor]:
    of_seed = [seeds.index(fleet.models[place].seed) for place in places]
    return fitted.forecast(rows.x[of_seed], places), rows.y[of_seed]


def _some_at_a_time(places: list[int], rows: Rows) -> list[list[int]]:
    """Groups of models whose forecasts are held together; `evaluate_both` cuts them further where it must."""
    size = max(1, (1 << 20 if rows.y.device.type == "cpu" else 1 << 24) // (rows.y[0].numel() * rows.y.shape[-1]))
    return [places[start : start + size] for start in range(0, len(places), size)]


_RECORD_COLUMNS = [
    "dataset", "training", "penalty", "strength", "seed", "initialisation", "part", "evaluation", "metric", "prerank",
    "value", "expected_pce", "corrected", "low", "high", "p_value",
]  # fmt: skip


def _tidy(fleet: Fleet, parts: list[pd.DataFrame]) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame(columns=_RECORD_COLUMNS)
    numbers = pd.concat(parts).rename(columns={"protocol": "evaluation"})
    whose = pd.DataFrame([vars(model) for model in fleet.models]).assign(dataset=fleet.dataset)
    joined = numbers.join(whose, on="place").sort_values("place", kind="stable")
    joined["prerank"] = joined["prerank"].fillna("")
    return joined.reindex(columns=_RECORD_COLUMNS).reset_index(drop=True)


def _curves(fleet: Fleet, fitted: FittedFleet, data: SplitData, settings: Settings, failed: set[int]) -> pd.DataFrame:
    """Reliability curves: of baselines for every pre-rank, of models with the published strength for their own.

    These have the curves of their margins too. Of the first initialisation alone.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for place, model in enumerate(fleet.models):
        own = model.penalty == NONE or model.strength == PUBLISHED_STRENGTH
        if own and not model.initialisation and place not in failed:
            alike.setdefault((model.training, model.penalty), []).append(place)
    frames: list[tuple[int, pd.DataFrame]] = []
    for group in alike.values():
        for places in _some_at_a_time(group, data.test):
            forecast, y = _forecast(fleet, fitted, data.seeds, data.test, places)
            models = [fleet.models[place] for place in places]
            for protocol in (EXACT, AS_PUBLISHED):
                found = _curves_of(models, forecast, y, protocol, settings)
                frames += [(places[number], frame) for number, frame in found]
    columns = [item.name for item in fields(Model)]
    columns += ["evaluation", "prerank", "projection", "level", "frequency"]
    in_order = [frame for _, frame in sorted(frames, key=lambda item: item[0])]
    table = pd.concat(in_order, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    return table.assign(dataset=fleet.dataset)


def _curves_of(
    models: Sequence[Model], forecast: GaussianMixture, y: Tensor, protocol: str, settings: Settings
) -> Iterator[tuple[int, pd.DataFrame]]:
    """Curves of models (E, N) with one penalty: the number of the model, and the curve of one projection."""
    known = preranks_of(y.shape[-1], protocol)
    chosen = [item for name, item in known.items() if models[0].penalty in (NONE, name) or name == "marginal"]
    if not chosen:
        return
    pit: ProjectedPIT | Tensor
    if protocol == EXACT:
        levels = centred_levels(_LEVELS)
        pit = projected_pit(y, forecast, chosen, n_draws=settings.n_draws)
        groups = list(pit.groups)
    else:
        levels = inclusive_levels(_LEVELS)
        parts = list(published_pits(y, forecast, chosen, settings.n_draws))
        groups = [item.name for item, own in zip(chosen, parts[0], strict=True) for _ in range(own.shape[-1])]
        pit = torch.cat([torch.cat(part, -1).flatten(-3, -2) for part in parts], -2).double()
    frequency = reliability_curve(pit, levels=levels).frequency.cpu().numpy().astype("float32")
    for number, model in enumerate(models):
        for k, name in enumerate(groups):
            curve = {
                "evaluation": protocol,
                "prerank": name,
                "projection": groups[:k].count(name) + 1,
                "level": levels.numpy().astype("float32"),
                "frequency": frequency[number, :, k],
            }
            yield number, pd.DataFrame(vars(model) | curve)
