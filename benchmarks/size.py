"""How often do the tests reject? Size for true forecasts, power for wrong ones.

    PYTHONPATH=src python benchmarks/size.py --device cuda --out results/size

Size: every argument at its default, seeds never varied, only the data. Ensembles of M members and observations are draws of
one law per case, continuous or rounded to 0.1, counts (Poisson with mean 1) or binary; mixtures are forecast as they
are. Beside a rate stands the size that the test could attain: ranks among few members and tied ranks take few values, and a
test that may not reject too often then rejects less often. Power: the same tests where the forecast is wrong, 200
cases. The tables have pre-ranks with one projection; those with several are judged by `rows.py`, where dependence is wrong
too. A finished row is kept under `parts/`, so that the script resumes. It ends with an error where a rate is above the
binomial bound at 0.05 over the number of cells, or where the mean over the continuous cells that can attain 5 % is not
within 0.3 points of it.
"""

import argparse
import csv
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor

from prerank import Ensemble, GaussianMixture, ProjectedPIT, paper_preranks, pce_null, pce_test, projected_pit
from prerank.calibration import PCETest
from prerank.calibration.row_test import exceedance
from prerank.randomness import torch_generator

LEVEL = 0.05
N_COMPONENTS = 3
POWER_CASES = 200
TARGETS = ("continuous", "rounded", "counts", "binary")
WRONG = ("biased", "too wide", "too narrow", "wrong correlation")
OVERALL = "all, corrected"
SEVERAL = ("marginal", "PCA", OVERALL)  # more than one projection
AT_ONCE = {"cpu": 4e6, "cuda": 3e8}  # points times projections of the repetitions that are computed together


@dataclass(frozen=True)
class Setting:
    """One row of the table: how many cases, members (None: a mixture) and targets, of what kind, and what is wrong."""

    n_cases: int
    n_members: int | None
    n_targets: int
    targets: str = "continuous"
    error: str = "none"

    @property
    def forecast(self) -> str:
        return "mixture" if self.n_members is None else f"{self.n_members} members"

    @property
    def name(self) -> str:
        return f"N={self.n_cases}, {self.forecast}, D={self.n_targets}, {self.targets}, {self.error}"


def size_settings() -> Iterator[Setting]:
    for targets in TARGETS:
        for n_cases, members in ((30, (1, 2, 5, 25)), (300, (1, 2, 5, 25)), (1000, (50,))):
            for n_members in members:
                for n_targets in (2, 5, 12):
                    yield Setting(n_cases, n_members, n_targets, targets)
    for n_cases in (30, 300):
        for n_targets in (2, 12, 25):
            yield Setting(n_cases, None, n_targets)


def power_settings() -> Iterator[Setting]:
    for error in WRONG:
        for n_members in (None, 10, 20, 100):
            for n_targets in (2, 5, 10):
                yield Setting(POWER_CASES, n_members, n_targets, "continuous", error)


def truth(n_sets: int, n_cases: int, n_targets: int, generator: torch.Generator) -> GaussianMixture:
    """A different mixture for every case: correlations between 0 and 0.8, spreads and means of their own."""
    options = {"generator": generator, "device": generator.device, "dtype": torch.float64}

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, **options)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, **options)

    shape = (n_sets, n_cases, N_COMPONENTS)
    place = torch.arange(n_targets, device=generator.device)
    correlation = (0.8 * uniform(*shape, 1, 1)) ** (place[:, None] - place).abs()
    spread = 0.5 + uniform(*shape, n_targets)
    factor = torch.linalg.cholesky(correlation) * spread[..., :, None]
    centre = normal(n_sets, n_cases, 1, n_targets)
    return GaussianMixture(normal(*shape), centre + 0.7 * normal(*shape, n_targets), factor)


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


def drawn(law: GaussianMixture, count: int, generator: torch.Generator) -> Tensor:
    """Draws (..., N, count, D) from a generator, so that nothing is shared with the draws of a test."""
    options = {"generator": generator, "device": generator.device, "dtype": torch.float64}
    pick = torch.rand(*law.batch_shape, count, **options)
    component = (pick[..., None] > law.weights.cumsum(-1)[..., None, :-1]).sum(-1)
    noise = torch.randn(*law.batch_shape, count, law.n_targets, **options)
    loc = law.loc.gather(-2, component[..., None].expand(noise.shape))
    result = loc.clone()
    for c in range(law.n_components):
        moved = noise @ law.scale_tril[..., c, :, :].mT
        result += torch.where((component == c)[..., None], moved, 0.0)
    return result


def discretised(points: Tensor, targets: str) -> Tensor:
    if targets == "rounded":
        return (points * 10).round() / 10
    if targets == "binary":
        return (points > 0).double()
    if targets == "counts":  # quantiles of the Poisson law with mean 1 at the normal scores of the points
        steps = torch.tensor(stats.poisson.cdf(range(12), 1.0), dtype=torch.float64, device=points.device)
        return torch.searchsorted(steps, torch.special.ndtr(points / 1.2).contiguous()).double()
    return points


def data(setting: Setting, n_sets: int, start: int, device: torch.device) -> tuple[Tensor, Ensemble | GaussianMixture]:
    """Observations (R, N, D) and the forecast of them, for repetitions from number `start` on."""
    generator = torch_generator(0, "size", setting.name, start, device=device)
    law = truth(n_sets, setting.n_cases, setting.n_targets, generator)
    y = drawn(law, 1, generator)[..., 0, :]
    issued = wrong(law, setting.error)
    if setting.n_members is None:
        return y, issued
    members = drawn(issued, setting.n_members, generator)
    return discretised(y, setting.targets), Ensemble(discretised(members, setting.targets))


def tested(y: Tensor, forecast: Ensemble | GaussianMixture) -> tuple[ProjectedPIT, PCETest]:
    """What `check` computes, for several data sets at once: every argument at its default."""
    pit = projected_pit(y, forecast, paper_preranks(y.shape[-1]), exchangeable=True)
    return pit, pce_test(pit)


def attainable_sizes(pit: ProjectedPIT, test: PCETest) -> dict[str, Tensor]:
    """Per data set the largest p-value up to 5 % that each test could have given, 0 where there is none.

    Of a row by signs the mean's, which ties at least as often as the mean and the maximum together; of all rows together
    their sum up to 5 %: an adjusted p-value is never below the row's own, and in steps they share the 5 %.
    """
    found = {}
    for g, (part, null) in enumerate(zip(pit.parts, test.nulls, strict=True)):
        if null == "exact":
            sample = pce_null(pit.n_cases, n_members=part.n_members, unrandomised=part.unrandomised).sample
            p_values = exceedance(torch.from_numpy(sample)[:, None])
        else:
            p_values = exceedance(torch.cat([test.statistic[None], test.replicates])[..., g])
        found[part.prerank] = _largest(p_values, LEVEL).expand(len(test.statistic))
    found[OVERALL] = torch.stack(list(found.values())).sum(0).clamp_max(LEVEL)
    return found


def _largest(p_values: Tensor, level: float) -> Tensor:
    return torch.where(p_values <= level * (1 + 1e-9), p_values, 0.0).amax(0).cpu()


def rates(setting: Setting, repetitions: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Share of repetitions rejected by each test, and the mean size that the test can attain."""
    points = (101 if setting.n_members is None else setting.n_members + 1) * (2 * setting.n_targets + 5)
    size = max(1, min(repetitions, int(AT_ONCE[device.type] / (points * setting.n_cases))))
    rejected: dict[str, list[Tensor]] = {}
    attainable: dict[str, list[Tensor]] = {}
    for start in range(0, repetitions, size):
        y, forecast = data(setting, min(size, repetitions - start), start, device)
        pit, test = tested(y, forecast)
        for g, group in enumerate(test.groups):
            rejected.setdefault(group, []).append((test.p_value[:, g] <= LEVEL * (1 + 1e-9)).cpu())
        rejected.setdefault(OVERALL, []).append((test.adjusted_p_value.amin(-1) <= LEVEL * (1 + 1e-9)).cpu())
        if setting.error == "none":
            for group, values in attainable_sizes(pit, test).items():
                attainable.setdefault(group, []).append(values)
    return {
        group: {
            "rejected": float(torch.cat(parts).double().mean()),
            "attainable": float(torch.cat(attainable[group]).mean()) if group in attainable else math.nan,
        }
        for group, parts in rejected.items()
    }


def kept_rates(
    setting: Setting, repetitions: int, device: torch.device, parts: Path | None
) -> dict[str, dict[str, float]]:
    """`rates`, read back if this setting is done."""
    part = None if parts is None else parts / f"{setting.name}, {repetitions} repetitions.json"
    if part is not None and part.exists():
        return json.loads(part.read_text())  # type: ignore[no-any-return]
    found = rates(setting, repetitions, device)
    if part is not None:
        part.parent.mkdir(parents=True, exist_ok=True)
        unfinished = part.with_suffix(".tmp")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(part)
    return found


Table = dict[Setting, dict[str, dict[str, float]]]


def verdict(table: Table, repetitions: int, tolerance: float = 0.003) -> tuple[bool, str]:
    """Whether the tests hold their size, and the sentences that say so.

    `tolerance` is how far the mean over cells with an attainable size of 5 % may be from it; the full table has
    33 settings of continuous targets with 1,000 repetitions each. All rows together reject no more often than their adjusted
    p-values, which are never below the rows' own, allow: they count for the bound alone.
    """
    cells = [(setting, cell) for setting, row in table.items() for cell in row.values()]
    bound = float(stats.binom.ppf(1 - LEVEL / len(cells), repetitions, LEVEL)) / repetitions
    above = [setting.name for setting, cell in cells if cell["rejected"] > bound + 1e-9]
    full = [
        cell["rejected"]
        for setting, row in table.items()
        for test, cell in row.items()
        if setting.targets == "continuous" and test != OVERALL and cell["attainable"] > LEVEL - 0.001
    ]
    mean = sum(full) / len(full) if full else LEVEL
    passed = not above and abs(mean - LEVEL) <= tolerance
    return passed, (
        f"{len(cells)} cells, from {100 * min(c['rejected'] for _, c in cells):.1f} % to "
        f"{100 * max(c['rejected'] for _, c in cells):.1f} %; the bound is {100 * bound:.1f} %, {len(above)} above"
        f"{': ' + '; '.join(above) if above else ''}. Mean over the {len(full)} cells with continuous targets whose "
        f"attainable size is 5 %: {100 * mean:.2f} %, within {100 * tolerance:.1f} points of 5 %: "
        f"{'yes' if abs(mean - LEVEL) <= tolerance else 'NO'}."
    )


def write(out: Path, size: Table, power: Table, repetitions: int, sentence: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "size.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        names = list(asdict(Setting(1, None, 1)))
        writer.writerow([*names, "test", "rejected", "attainable", "repetitions"])
        for table in (size, power):
            for setting, row in table.items():
                for test, cell in row.items():
                    values = [
                        *asdict(setting).values(),
                        test,
                        cell["rejected"],
                        round(cell["attainable"], 5),
                        repetitions,
                    ]
                    writer.writerow(values)
    lines = [
        "# Size and power of the tests",
        "",
        f"Share of {repetitions} repetitions rejected at 5 %, in percent, every argument at its default and no seed varied. "
        "In brackets the size that the test can attain, where that is less than 4.9 %: with few members, few cases or many "
        "ties the statistic takes few values.",
        "",
        sentence,
        "",
        "`PYTHONPATH=src python benchmarks/size.py --device cuda --out results/size` repeats it.",
        "",
        *_text(size, ("targets", "N", "forecast", "D")),
        "",
        "## Power",
        "",
        f"{POWER_CASES} cases; bias 0.25 standard deviations; spread times 1.3 or divided by 1.3; all correlation within "
        "components left out.",
        "",
        *_text(power, ("error", "forecast", "D")),
    ]
    (out / "size.md").write_text("\n".join(lines) + "\n")


def _text(table: Table, labels: tuple[str, ...]) -> list[str]:
    tests = list(dict.fromkeys(group for row in table.values() for group in row))
    lines = [f"| {' | '.join(labels)} | {' | '.join(tests)} |", "| --- " * len(labels) + "|" + " ---: |" * len(tests)]
    for setting, row in table.items():
        about = {
            "targets": setting.targets,
            "N": str(setting.n_cases),
            "forecast": setting.forecast,
            "D": str(setting.n_targets),
            "error": setting.error,
        }
        cells = [_cell(row[test]) if test in row else "–" for test in tests]
        lines.append(f"| {' | '.join(about[label] for label in labels)} | {' | '.join(cells)} |")
    return lines


def _cell(cell: dict[str, float]) -> str:
    bracket = f" ({100 * cell['attainable']:.1f})" if cell["attainable"] < LEVEL - 0.001 else ""
    return f"{100 * cell['rejected']:.1f}{bracket}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=None, help="folder for size.csv, size.md and parts/")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop before a new row after so many seconds")
    options = parser.parse_args()
    device = torch.device(options.device)
    parts = None if options.out is None else options.out / "parts"
    begin, size, power = time.perf_counter(), {}, {}
    for table, settings in ((size, size_settings()), (power, power_settings())):
        for setting in settings:
            if time.perf_counter() - begin > options.seconds:
                raise SystemExit("out of time: run again to go on")
            found = kept_rates(setting, options.repetitions, device, parts)
            table[setting] = row = {test: cell for test, cell in found.items() if test not in SEVERAL}
            shares = "  ".join(f"{group} {_cell(cell)}" for group, cell in row.items())
            print(f"{time.perf_counter() - begin:6.1f} s  {setting.name}:  {shares}", flush=True)
    passed, sentence = verdict(size, options.repetitions)
    print(sentence)
    if options.out is not None:
        write(options.out, size, power, options.repetitions, sentence)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
