"""Recalibration of simulated forecasts: harmless where nothing is wrong, right where something is, and what it costs.

    python benchmarks/recalibration.py harmless|right|power|cost [--quick] [--device cuda] [--workers 8] [--seconds 300]
        [--out FILE] [--test-cases 1000]

Every repetition is a line of JSON in FILE; lines that are there are not computed again. The table is printed at the end.
"""

import argparse
import json
import math
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import multivariate_t
from torch import Tensor

from prerank import (
    Ensemble,
    GaussianMixture,
    Recalibrator,
    energy_score,
    nll,
    paper_preranks,
    pce,
    pce_test,
    projected_pit,
)
from prerank.forecasts import equally_weighted_draws
from prerank.randomness import torch_generator

N_TEST = 1000
LEVEL = 0.3133  # the PCE expected of n calibrated cases is this over the square root of n


def forecasts(n_cases: int, n_targets: int, seed: int) -> GaussianMixture:
    """Normal forecasts whose means differ from case to case, equally correlated at 0.3."""
    generator = torch_generator(seed, "means")
    loc = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    factor = torch.linalg.cholesky(0.7 * torch.eye(n_targets, dtype=torch.float64) + 0.3)
    return GaussianMixture(torch.zeros(n_cases, 1), loc, factor.expand(n_cases, 1, n_targets, n_targets))


def _noise(forecast: GaussianMixture, seed: int) -> Tensor:
    return forecast.ensemble(1, seed, "observations").members[:, 0] - forecast.mean


def _recoloured(noise: Tensor, correlation: float) -> Tensor:
    """Noise of correlation 0.3 with another one."""
    d = noise.shape[-1]
    old, new = (torch.linalg.cholesky((1 - r) * torch.eye(d).double() + r) for r in (0.3, correlation))
    return torch.linalg.solve_triangular(old, noise.mT, upper=False).mT @ new.mT


def _heavy(noise: Tensor, seed: int) -> Tensor:
    """Student's t with 5 degrees of freedom and the same covariance."""
    generator = np.random.default_rng(seed)
    return noise * torch.as_tensor(np.sqrt(3.0 / generator.chisquare(5, size=(len(noise), 1))))


def _humps(noise: Tensor, seed: int) -> Tensor:
    side = torch.as_tensor(np.random.default_rng(seed).choice([-1.0, 1.0], size=(len(noise), 1)))
    return 0.6 * noise + 0.8 * side


def _clayton_like(noise: Tensor, seed: int) -> Tensor:
    """Normal margins, and dependence that is strong when all targets are low: a common factor only there."""
    low = noise.mean(-1, keepdim=True) < 0
    pulled = noise.mean(-1, keepdim=True) + 0.5 * (noise - noise.mean(-1, keepdim=True))
    mixed = torch.where(low, pulled, noise)
    rank = (mixed.argsort(0).argsort(0).double() + 0.5) / len(mixed)
    return torch.special.ndtri(rank)


ERRORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "none": lambda noise, seed: noise,
    "bias": lambda noise, seed: noise + 0.4,
    "spread": lambda noise, seed: 1.4 * noise,
    "correlation": lambda noise, seed: _recoloured(noise, 0.7),
    "skew": lambda noise, seed: (0.5 * noise).exp() * 1.5 - 1.7,
    "two humps": _humps,
    "heavy tails": _heavy,
    "copula": _clayton_like,
}


SMALL_ERRORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "small bias": lambda noise, seed: noise + 0.1,
    "small spread": lambda noise, seed: 1.1 * noise,
    "small correlation": lambda noise, seed: _recoloured(noise, 0.4),
}


def log_truth(error: str, noise: Tensor) -> Tensor | None:
    """Log density of the observations about the forecast's mean, where it is known; the forecast's noise is N(0, R)."""
    d = noise.shape[-1]

    def normal(values: Tensor, correlation: float = 0.3) -> Tensor:
        matrix = (1 - correlation) * torch.eye(d, dtype=torch.float64, device=noise.device) + correlation
        return torch.distributions.MultivariateNormal(values.new_zeros(d), matrix).log_prob(values)

    if error == "bias":
        return normal(noise - 0.4)
    if error == "spread":
        return normal(noise / 1.4) - d * math.log(1.4)
    if error == "correlation":
        return normal(noise, 0.7)
    if error == "skew":
        before = 2 * ((noise + 1.7) / 1.5).clamp_min(1e-300).log()
        return normal(before) - (noise + 1.7).clamp_min(1e-300).log().sum(-1) + d * math.log(2)
    if error == "two humps":
        sides = torch.stack([normal((noise - side) / 0.6) for side in (-0.8, 0.8)])
        return torch.logsumexp(sides, 0) - math.log(2) - d * math.log(0.6)
    if error == "heavy tails":
        matrix = 0.7 * torch.eye(d, dtype=torch.float64) + 0.3
        law = multivariate_t(np.zeros(d), (3 / 5) * matrix.numpy(), 5)
        return torch.as_tensor(np.atleast_1d(law.logpdf(noise.cpu().numpy()))).to(noise)
    return None


def data(error: str, n_cases: int, n_targets: int, seed: int) -> tuple[GaussianMixture, Tensor]:
    forecast = forecasts(n_cases, n_targets, seed)
    return forecast, forecast.mean + (ERRORS | SMALL_ERRORS)[error](_noise(forecast, seed), seed)


def on(device: str, forecast: GaussianMixture, y: Tensor) -> tuple[GaussianMixture, Tensor]:
    parts = (part.to(device) for part in (forecast.logits, forecast.loc, forecast.scale_tril))
    return GaussianMixture(*parts), y.to(device)


def repetition(
    error: str, n_cal: int, n_targets: int, seed: int, device: str = "cpu", n_test: int = N_TEST
) -> dict[str, Any]:
    """Fit on some cases and judge on fresh ones, by plain ranks among equally weighted draws."""
    held_out = on(device, *data(error, n_cal, n_targets, 2 * seed))
    started = time.perf_counter()
    recalibrator = Recalibrator(seed=seed).fit(*held_out)
    row: dict[str, Any] = {"changed": recalibrator.changed_, "seconds": time.perf_counter() - started}
    affine, *tilts = (step.changed for step in recalibrator.steps_)
    row["affine"], row["tilt"] = affine, any(tilts)
    if error in SMALL_ERRORS:
        pit = projected_pit(held_out[1], held_out[0], exchangeable=True)
        row["joint p-value"] = float(pce_test(pit, n_replicates=199).adjusted_p_value.min())
        return row
    row["n_test"] = n_test
    before, y = on(device, *data(error, n_test, n_targets, 2 * seed + 1))
    after = recalibrator.transform(before)
    row["nll loss"] = float((nll(y, after) - nll(y, before)).mean())
    row["nll error"] = float(after.log_normaliser_error.mean()) if hasattr(after, "log_normaliser_error") else 0.0
    row["energy score gain"] = float((energy_score(y, before) - energy_score(y, after)).mean())
    truth = log_truth(error, y - before.mean)
    if truth is not None:
        row |= {
            f"KL {name}": float((truth + nll(y, law)).mean()) for name, law in (("before", before), ("after", after))
        }
    level = LEVEL * math.sqrt(1 / n_cal + 1 / n_test)
    for name, law in (("before", before), ("after", after)):
        pit = projected_pit(y, Ensemble(equally_weighted_draws(law, 100, 1).members, reference=law))
        for item in paper_preranks(n_targets):
            row[f"{item.name} {name}"] = float(pce(pit.of(item.name)).mean()) / level
    return row


def done(path: Path) -> dict[tuple[str, int, int, int], dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {(row["error"], row["n_cal"], row["targets"], row["seed"]): row for row in rows}


def cells(study: str, quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """Error, cases, targets and seed of every repetition; an interrupted study has about as many of each."""
    dimensions = (2, 6) if quick else (2, 6, 16)
    if study == "right":
        for n_cal, repetitions in ((600, 1),) if quick else ((200, 6), (2000, 6), (20_000, 2)):
            for seed in range(repetitions):
                for error in ERRORS:
                    yield from ((error, n_cal, d, seed) for d in dimensions if error != "none")
        return
    sizes = (200,) if quick else (200, 600, 2000)
    errors = ("none",) if study == "harmless" else tuple(SMALL_ERRORS)
    for seed in range(2 if quick else 200 if study == "harmless" else 40):
        for error in errors:
            yield from ((error, n_cal, d, seed) for d in dimensions for n_cal in sizes)


def work(cell: tuple[str, int, int, int], device: str, deadline: float, n_test: int) -> dict[str, Any] | None:
    torch.set_num_threads(1)
    if time.time() > deadline:
        return None
    error, n_cal, n_targets, seed = cell
    about = {"error": error, "n_cal": n_cal, "targets": n_targets, "seed": seed}
    found = about | repetition(error, n_cal, n_targets, seed, device, n_test)
    torch.cuda.empty_cache()  # other processes may share the GPU
    return found


def cost(device: str) -> None:
    """n_cal = 2,048, M = 256, D = 16, five components, all pre-ranks, nine ridges, cross-validation included."""
    generator = torch.Generator().manual_seed(0)
    n, d, c = 2048, 16, 5
    factor = torch.eye(d) + 0.08 * torch.randn(n, c, d, d, generator=generator).tril(-1)
    forecast = GaussianMixture(
        torch.randn(n, c, generator=generator), torch.randn(n, c, d, generator=generator), factor
    )
    # what an affine map cannot mend: a common factor, and tails
    y = forecast.ensemble(1, seed=3).members[:, 0]
    y = forecast.mean + (y - forecast.mean) * (0.4 * torch.randn(n, 1, generator=generator)).exp()
    y = y + 0.6 * torch.randn(n, 1, generator=generator)
    held_out = on(device, forecast, y)
    for turn in ("cold", "warm"):
        started = time.perf_counter()
        recalibrator = Recalibrator().fit(*held_out)
        float(recalibrator.transform(held_out[0]).select(slice(0, 1)).ensemble(1).members.sum())
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if torch.device(device).type == "cuda":
            peak = torch.cuda.max_memory_allocated() / 2**30
        about = {"device": device, "threads": torch.get_num_threads(), "turn": turn, "seconds": round(seconds, 2)}
        print(json.dumps(about | {"peak GiB": round(peak, 2)}), flush=True)
        if device == "cpu":
            break
    print(recalibrator.summary())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("harmless", "right", "power", "cost"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--test-cases", type=int, default=N_TEST)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many; the next call goes on")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.study == "cost":
        cost(options.device)
        return
    path = options.out or Path(f"recalibration-{options.study}.jsonl")
    known, deadline = done(path), time.time() + options.seconds
    left = [cell for cell in cells(options.study, options.quick) if cell not in known]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        tasks = [pool.submit(work, cell, options.device, deadline, options.test_cases) for cell in left]
        for future in as_completed(tasks):
            if (record := future.result()) is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    table = pd.DataFrame(list(done(path).values())).groupby(["error", "targets", "n_cal"], sort=False)
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(table.mean().round(3).T.to_string())


if __name__ == "__main__":
    main()
