"""Are true forecasts found calibrated, and wrong ones not? Size and power of every pre-rank's test.

    PYTHONPATH=src python benchmarks/size.py --device cuda --out results/size

For a Gaussian mixture and for bare ensembles with M = 10, 20, 100 members, D = 2, 5, 10, 25 correlated targets,
N = 200 cases: the share of repetitions in which the 5 % test of each pre-rank, and the test corrected over all of them,
rejects. Forecasts are the truth itself, or biased, too wide, too narrow, wrongly correlated. Truths differ from case to
case: several components, each with its own mean, spread and correlation.

The script ends with an error unless the table is what exact tests give: every cell of the true forecast within the
binomial interval at level 0.05 / number of cells, and their mean within half a point of 5 % (more for fewer repetitions,
in proportion to the standard error).

Settings are written to `parts/` under --out as they finish, and skipped when the script is started again.
"""

import argparse
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor

from prerank import HDR, PCA, Contrast, Copula, Dependency, Ensemble, GaussianMixture, Location, Marginal, Scale
from prerank.calibration import PreRank, pce_test, projected_pit
from prerank.randomness import key, torch_generator

LEVEL = 0.05
N_CASES = 200
N_COMPONENTS = 3
DIMENSIONS = (2, 5, 10, 25)
FORECASTS = ("mixture", "ensemble of 10", "ensemble of 20", "ensemble of 100")
WRONG = ("biased", "too wide", "too narrow", "wrong correlation")
OVERALL = "all, corrected"


@dataclass(frozen=True)
class Setting:
    """One row of the table: what is forecast, by what, and what is wrong with it."""

    forecast: str
    n_targets: int
    error: str

    @property
    def name(self) -> str:
        return f"{self.forecast}, D={self.n_targets}, {self.error}"


def settings(dimensions: tuple[int, ...] = DIMENSIONS, forecasts: tuple[str, ...] = FORECASTS) -> Iterator[Setting]:
    for error in ("none", *WRONG):
        for forecast in forecasts:
            for n_targets in dimensions:
                yield Setting(forecast, n_targets, error)


def preranks(n_targets: int, n_reference: int = 200) -> list[PreRank]:
    """Every pre-rank that is defined for this many targets."""
    dependency: list[PreRank] = [Dependency()] if n_targets > 2 else []
    return [Marginal(), Location(), Scale(), *dependency, PCA(), HDR(), Copula(n_reference), Contrast()]


def truth(n_cases: int, n_targets: int, generator: torch.Generator) -> GaussianMixture:
    """A different mixture for every case: correlations between 0 and 0.8, spreads and means of their own."""
    device = generator.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    shape = (n_cases, N_COMPONENTS)
    distance = (torch.arange(n_targets, device=device)[:, None] - torch.arange(n_targets, device=device)).abs()
    correlation = (0.8 * uniform(*shape, 1, 1)) ** distance
    spread = 0.5 + uniform(*shape, n_targets)
    factor = torch.linalg.cholesky(correlation) * spread[..., :, None]
    return GaussianMixture(normal(*shape), normal(n_cases, 1, n_targets) + 0.7 * normal(*shape, n_targets), factor)


def wrong(law: GaussianMixture, error: str) -> GaussianMixture:
    """The forecast that somebody issues who errs in one way."""
    spread = law.variance.sqrt()
    centre = law.mean[..., None, :]
    if error == "none":
        return law
    if error == "biased":
        return GaussianMixture(law.logits, law.loc + 0.25 * spread[..., None, :], law.scale_tril)
    if error in ("too wide", "too narrow"):
        factor = 1.3 if error == "too wide" else 1 / 1.3
        return GaussianMixture(law.logits, centre + factor * (law.loc - centre), factor * law.scale_tril)
    # the same marginal laws of each component, without their correlation
    return GaussianMixture(law.logits, law.loc, torch.diag_embed(law.scale_tril.square().sum(-1).sqrt()))


def repetitions_per_chunk(setting: Setting, device: torch.device) -> int:
    """As many repetitions as keep the largest tensor, PITs of all points, near 2 GB (100 MB on a CPU)."""
    points = 101 if setting.forecast == "mixture" else int(setting.forecast.split()[-1]) + 1
    per_repetition = N_CASES * points * (2 * setting.n_targets + 6) * 4
    return max(1, int((1e8 if device.type == "cpu" else 2e9) / per_repetition))


def p_values(
    setting: Setting,
    repetitions: int,
    seed: int,
    device: torch.device,
    n_replicates: int,
    n_reference: int = 200,
) -> dict[str, Tensor]:
    """p-values (repetitions,) of every pre-rank's test and of the corrected test over all."""
    results: dict[str, list[Tensor]] = {}
    chunk = repetitions_per_chunk(setting, device)
    for start in range(0, repetitions, chunk):
        count = min(chunk, repetitions - start)
        name = (setting.name, start)
        generator = torch_generator(seed, *name, device=device)
        # Repetitions lie in the axis of cases: the randomisation of a PIT depends on the case.
        law = truth(count * N_CASES, setting.n_targets, generator)
        y = law.ensemble(1, key(seed, *name) % (1 << 31), "observation").members[..., 0, :]
        issued = wrong(law, setting.error)
        forecast: Ensemble | GaussianMixture = issued
        if setting.forecast != "mixture":
            n_members = int(setting.forecast.split()[-1])
            forecast = issued.ensemble(n_members, key(seed, *name) % (1 << 31), "member")
        chosen = preranks(setting.n_targets, n_reference)
        pit = projected_pit(chosen, forecast, y, seed=key(seed, *name, "ranks") % (1 << 31), exchangeable=True)
        assert pit.points is not None
        pit = replace(
            pit,
            values=pit.values.reshape(count, N_CASES, -1),
            points=pit.points.reshape(count, N_CASES, *pit.points.shape[-2:]),
        )
        test = pce_test(pit, n_replicates=n_replicates, seed=key(seed, *name, "exchange") % (1 << 31))
        for g, group in enumerate(test.groups):
            results.setdefault(group, []).append(test.p_value[:, g].cpu())
        results.setdefault(OVERALL, []).append(test.corrected_p_value.amin(-1).cpu())
    return {group: torch.cat(parts) for group, parts in results.items()}


def rejections(
    setting: Setting, repetitions: int, seed: int, device: torch.device, n_replicates: int, parts: Path | None
) -> dict[str, float]:
    """Share of repetitions rejected at 5 %, by test; read back if this setting is done."""
    part = None if parts is None else parts / f"{setting.name}, {repetitions} repetitions, seed {seed}.csv"
    if part is not None and part.exists():
        with part.open() as stream:
            return {row["test"]: float(row["rejected"]) for row in csv.DictReader(stream)}
    rejected = {
        group: float((p <= LEVEL * (1 + 1e-12)).double().mean())
        for group, p in p_values(setting, repetitions, seed, device, n_replicates).items()
    }
    if part is not None:
        part.parent.mkdir(parents=True, exist_ok=True)
        unfinished = part.with_suffix(".tmp")
        with unfinished.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["test", "rejected"])
            writer.writerows(rejected.items())
        unfinished.rename(part)
    return rejected


def verdict(sizes: list[dict[str, float]], repetitions: int) -> tuple[bool, str]:
    """Whether the sizes are those of exact tests, and the sentence that says so."""
    cells = [share for row in sizes for share in row.values()]
    count = len(cells)
    low, high = stats.binom.ppf([LEVEL / count / 2, 1 - LEVEL / count / 2], repetitions, LEVEL) / repetitions
    mean = sum(cells) / count
    # half a point for the full table (16 rows of 1,000 repetitions), more for fewer: the same in standard errors
    tolerance = 0.005 * math.sqrt(16_000 / (repetitions * len(sizes)))
    outside = [share for share in cells if not low - 1e-9 <= share <= high + 1e-9]
    passed = not outside and abs(mean - LEVEL) <= tolerance
    return passed, (
        f"{count} cells, from {100 * min(cells):.1f} % to {100 * max(cells):.1f} %; the interval is "
        f"{100 * low:.1f} % to {100 * high:.1f} %, {len(outside)} outside. Mean {100 * mean:.2f} %, "
        f"within {100 * tolerance:.1f} points of 5 %: {'yes' if abs(mean - LEVEL) <= tolerance else 'NO'}."
    )


def write(
    out: Path, table: dict[Setting, dict[str, float]], repetitions: int, n_replicates: int, seed: int, sentence: str
) -> None:
    tests = list(dict.fromkeys(group for row in table.values() for group in row))
    tests.append(tests.pop(tests.index(OVERALL)))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "size.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["forecast", "targets", "error", "test", "rejected", "repetitions", "cases"])
        for setting, row in table.items():
            for test in tests:
                if test in row:
                    writer.writerow(
                        [setting.forecast, setting.n_targets, setting.error, test, row[test], repetitions, N_CASES]
                    )
    lines = [
        "# Size and power of the tests",
        "",
        f"Share of {repetitions} repetitions rejected at 5 %, in percent; N = {N_CASES} cases, {n_replicates} exchange "
        f"replicates, seed {seed}. An error of `none` is the true forecast: its rows show the size, the others the "
        "power (bias 0.25 standard deviations; spread times 1.3 or divided by 1.3; all correlation within components "
        "left out).",
        "",
        f"{sentence}",
        "",
        "`PYTHONPATH=src python benchmarks/size.py --device cuda --out results/size` repeats it.",
        "",
        "| error | forecast | D | " + " | ".join(tests) + " |",
        "| --- | --- | --- |" + " ---: |" * len(tests),
    ]
    for setting, row in table.items():
        values = [f"{100 * row[test]:.1f}" if test in row else "–" for test in tests]
        lines.append(f"| {setting.error} | {setting.forecast} | {setting.n_targets} | " + " | ".join(values) + " |")
    (out / "size.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=199, help="exchange replicates per test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder for size.csv, size.md and parts/")
    parser.add_argument("--dimensions", type=int, nargs="+", default=list(DIMENSIONS))
    options = parser.parse_args()
    device = torch.device(options.device)
    parts = None if options.out is None else options.out / "parts"
    table: dict[Setting, dict[str, float]] = {}
    begin = time.perf_counter()
    for setting in settings(tuple(options.dimensions)):
        row = rejections(setting, options.repetitions, options.seed, device, options.replicates, parts)
        table[setting] = row
        shares = "  ".join(f"{group} {100 * share:.1f}" for group, share in row.items())
        print(f"{time.perf_counter() - begin:6.1f} s  {setting.name}:  {shares}", flush=True)
    passed, sentence = verdict([row for setting, row in table.items() if setting.error == "none"], options.repetitions)
    print(sentence)
    if options.out is not None:
        write(options.out, table, options.repetitions, options.replicates, options.seed, sentence)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
