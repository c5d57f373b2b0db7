"""The pre-ranks of the field: size, power on the paper's simulations, and time.

    PYTHONPATH=src:reproduction/src python benchmarks/field_preranks.py size power time --out results/field

*Size*: as in `size.py`, whose worlds these are: observations and members are draws of one law, 100 cases, continuous or
counts; or the law itself is the forecast, a Gaussian mixture, or a log-normal law made of torch's distributions, which
knows no covariance. Every argument is at its default. *Power*: the scenarios of the paper's two simulations, and those of
wrong eigenstructure with the variances kept; 100 cases, 20 members, with the paper's seven pre-ranks beside the others.
Each is tested by itself at 5 %; "the seven" are all of the paper's, adjusted
for their number. "Adds" is the share of data sets that a pre-rank rejects among those that the seven do not; 5 % of
calibrated ones would be rejected by chance. *Time*: processor time of 1,000 cases of 50 members and 10 targets, and with
each number doubled.

A finished cell is kept under `parts/`, so that the script resumes; tables are written from what is there.
"""

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Distribution, ExpTransform, MultivariateNormal, TransformedDistribution

from prerank import Ensemble, paper_preranks, pce_test, projected_pit
from prerank.preranks import (
    AverageRank,
    BandDepth,
    EnergyScore,
    Exceedance,
    Isotropy,
    Mahalanobis,
    Maximum,
    Minimum,
    PreRank,
    Range,
    ReferenceDistance,
    Sliced,
    SpanningTree,
    Variogram,
)
from prerank.randomness import torch_generator
from prerank_paper.simulations.scenarios import Scenario, Simulation, gaussian_field, gaussian_vector
from size import LEVEL, Setting, attainable_sizes, data, truth

N_CASES = 100
N_MEMBERS = 20  # of the simulations
AT_ONCE = 2e6  # points times targets of the repetitions that are computed together
SEVEN = "the seven"
TORCH_LAW = "torch law"
SIZE_PARTS = (400, 600)  # repetitions of a cell that are kept together
Rates = dict[str, dict[str, float]]


def field_preranks(n_targets: int, shape: tuple[int, int] | None = None) -> list[PreRank]:
    """Those that are defined for this many targets, at their defaults; the threshold is half a standard deviation or so."""
    listed: list[PreRank] = [
        *(AverageRank(), BandDepth(), SpanningTree(), EnergyScore(), Mahalanobis()),
        *(ReferenceDistance(), Exceedance(0.5), Sliced(), Maximum(), Minimum(), Range()),
    ]
    if n_targets > 2:
        listed.append(Variogram())
    if shape is not None:
        listed += [Variogram(lags=((0, 1), (1, 0)), shape=shape, name="variogram on the grid"), Isotropy(shape)]
    return listed


def size_settings() -> Iterator[Setting]:
    for targets in ("continuous", "counts"):
        for n_members in (1, 5, 20, 50):
            for n_targets in (2, 5, 10, 25):
                yield Setting(N_CASES, n_members, n_targets, targets)
    for n_targets in (5, 2, 10):
        for law in ("continuous", TORCH_LAW):
            yield Setting(N_CASES, None, n_targets, law)


def forecasts(setting: Setting, n_sets: int, start: int) -> tuple[Tensor, Ensemble | Distribution]:
    """Observations (R, N, D) and what forecasts them, for repetitions from number `start` on."""
    if setting.targets != TORCH_LAW:
        return data(setting, n_sets, start, torch.device("cpu"))
    generator = torch_generator(0, "field size", setting.name, start)
    normal = truth(n_sets, setting.n_cases, setting.n_targets, generator)  # its first component
    centre, factor = normal.loc[..., 0, :], 0.5 * normal.scale_tril[..., 0, :, :]
    noise = torch.randn(centre.shape, generator=generator, dtype=torch.float64)
    y = (centre + (factor @ noise[..., None])[..., 0]).exp()
    return y, TransformedDistribution(MultivariateNormal(centre, scale_tril=factor), ExpTransform())


def grid_of(n_targets: int) -> tuple[int, int] | None:
    """A grid of so many targets, where one has two rows or more."""
    return {10: (2, 5), 25: (5, 5)}.get(n_targets)


def sizes(setting: Setting, first: int, last: int) -> Rates:
    """Share of repetitions in which each pre-rank rejects the true forecast, and the size that its test can attain."""
    n_points = 101 if setting.n_members is None else setting.n_members + 1
    at_once = max(1, min(last - first, int(AT_ONCE / (setting.n_cases * n_points * setting.n_targets))))
    rejected: dict[str, list[Tensor]] = {}
    attainable: dict[str, list[Tensor]] = {}
    listed = field_preranks(setting.n_targets, grid_of(setting.n_targets))
    for start in range(first, last, at_once):
        y, forecast = forecasts(setting, min(at_once, last - start), start)
        pit = projected_pit(y, forecast, listed, exchangeable=True)
        test = pce_test(pit)
        found = attainable_sizes(pit, test)
        for g, group in enumerate(test.groups):
            rejected.setdefault(group, []).append(test.p_value[:, g] <= LEVEL * (1 + 1e-9))
            attainable.setdefault(group, []).append(found[group])
    return {
        group: {
            "rejected": float(torch.cat(parts).double().mean()),
            "attainable": float(torch.cat(attainable[group]).mean()),
        }
        for group, parts in rejected.items()
    }


def pooled(parts: Sequence[tuple[int, Rates]]) -> Rates:
    """Rates over all repetitions, from those of so many each."""
    count = sum(repetitions for repetitions, _ in parts)
    return {
        group: {key: sum(n * part[group][key] for n, part in parts) / count for key in values}
        for group, values in parts[0][1].items()
    }


def powers(simulation: Simulation, scenario: Scenario, repetitions: int) -> Rates:
    """Share of repetitions rejected by each pre-rank, by the paper's seven together, and what each adds to these."""
    d = simulation.n_targets
    seven = paper_preranks(d)
    others = field_preranks(d, (5, 5) if simulation.name == "simulation-2" else None)
    truth, wrong = (torch.linalg.cholesky(matrix) for matrix in (simulation.covariance, scenario.covariance))
    at_once = max(1, int(AT_ONCE / (N_CASES * (N_MEMBERS + 1) * d)))
    kept: dict[str, list[Tensor]] = {}
    for start in range(0, repetitions, at_once):
        count = min(at_once, repetitions - start)
        generator = torch_generator(0, "field", simulation.name, scenario.name, start)
        options = {"generator": generator, "dtype": torch.float64}
        y = torch.randn(count, N_CASES, d, **options) @ truth.mT
        members = scenario.mean + torch.randn(count, N_CASES, N_MEMBERS, d, **options) @ wrong.mT
        for together, listed in ((True, seven), (False, others)):
            test = pce_test(projected_pit(y, Ensemble(members), listed, exchangeable=True))
            for g, group in enumerate(test.groups):
                kept.setdefault(group, []).append(test.p_value[:, g] <= LEVEL * (1 + 1e-9))
            if together:
                kept.setdefault(SEVEN, []).append(test.adjusted_p_value.amin(-1) <= LEVEL * (1 + 1e-9))
    found = {group: torch.cat(parts) for group, parts in kept.items()}
    missed = ~found[SEVEN]
    return {
        group: {
            "rejected": float(rejected.double().mean()),
            "adds": float(rejected[missed].double().mean()) if missed.any() else math.nan,
            "missed": float(missed.double().mean()),
        }
        for group, rejected in found.items()
    }


def seconds(n_cases: int, n_members: int, n_targets: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time in which each pre-rank ranks the observations of all cases: the best of seven."""
    x = torch.randn(n_cases, n_members + 1, n_targets, generator=torch_generator(0, "time"), dtype=torch.float64)
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    found = {}
    for item in [*paper_preranks(n_targets), *field_preranks(n_targets), Isotropy((2, n_targets // 2))]:
        projected_pit(y[:50], forecast.select(slice(0, 50)), item)
        times = []
        for _ in range(7):
            start = time.process_time()
            projected_pit(y, forecast, item)
            times.append(time.process_time() - start)
        found[item.name] = {"seconds": min(times)}
    return found


def kept(parts: Path, name: str, compute: Callable[[], Rates], until: float = math.inf) -> Rates:
    """What is computed, read back if it was; nothing if it was not and the time is over."""
    part = parts / f"{name}.json"
    if part.exists():
        return json.loads(part.read_text())  # type: ignore[no-any-return]
    start = time.monotonic()
    if start > until:
        return {}
    found = compute()
    part.parent.mkdir(parents=True, exist_ok=True)
    unfinished = part.with_suffix(".tmp")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(part)
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return found


def write(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{file}: {len(rows)} rows", flush=True)


def verdict(rows: list[dict[str, object]]) -> str:
    """Whether every cell is below the binomial bound for so many cells."""
    rates = [float(str(row["rejected"])) for row in rows]
    counts = [int(str(row["repetitions"])) for row in rows]
    bounds = [float(stats.binom.ppf(1 - LEVEL / len(rates), count, LEVEL)) / count for count in counts]
    full = [float(str(row["rejected"])) for row in rows if float(str(row["attainable"])) > LEVEL - 0.001]
    above = sum(rate > bound + 1e-9 for rate, bound in zip(rates, bounds, strict=True))
    return (
        f"{len(rates)} cells of {min(counts)} to {max(counts)} repetitions, highest {100 * max(rates):.1f} %, bound "
        f"{100 * min(bounds):.1f} to {100 * max(bounds):.1f} %, {above} above; mean over the {len(full)} that can attain "
        f"5 %: {100 * sum(full) / max(1, len(full)):.2f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["size", "power", "time"])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no new cell after so many seconds")
    parser.add_argument("--out", type=Path, default=Path("results/field"))
    args = parser.parse_args()
    parts, r, until = args.out / "parts", args.repetitions, time.monotonic() + args.seconds
    if "time" in args.parts:
        torch.set_num_threads(1)
        rows: list[dict[str, object]] = []
        for n, m, d in ((1000, 50, 10), (2000, 50, 10), (1000, 100, 10), (1000, 50, 20)):
            found = kept(parts, f"time, N={n}, M={m}, D={d}", lambda n=n, m=m, d=d: seconds(n, m, d))  # type: ignore[misc]
            rows += [{"cases": n, "members": m, "targets": d, "pre-rank": k, **v} for k, v in found.items()]
        write(args.out / "time.csv", rows)
    if "power" in args.parts:
        rows = []
        for simulation in (gaussian_vector(), gaussian_field()):
            for scenario in simulation.scenarios:
                name = f"power, {simulation.name}, {scenario.name}, {r} repetitions"
                found = kept(parts, name, lambda s=simulation, c=scenario: powers(s, c, r), until)  # type: ignore[misc]
                about = {"simulation": simulation.name, "scenario": scenario.name}
                rows += [{**about, "pre-rank": k, **v, "repetitions": r} for k, v in found.items()]
        write(args.out / "power.csv", rows)
    if "size" in args.parts:
        rows = []
        for setting in size_settings():
            ends = [0, *(end for end in accumulate(SIZE_PARTS) if end < r), r]
            some = []
            for first, last in pairwise(ends):
                name = f"size, {setting.name}, {first} to {last}"
                some.append((last - first, kept(parts, name, lambda s=setting, a=first, b=last: sizes(s, a, b), until)))  # type: ignore[misc]
            done = [(count, part) for count, part in some if part]
            if not done:
                continue
            found = pooled(done)
            law = setting.targets == TORCH_LAW
            about = {
                "targets": "continuous" if law else setting.targets,
                "forecast": TORCH_LAW if law else setting.forecast,
                "D": setting.n_targets,
            }
            rows += [{**about, "pre-rank": k, **v, "repetitions": sum(n for n, _ in done)} for k, v in found.items()]
        write(args.out / "size.csv", rows)
        print(verdict(rows))


if __name__ == "__main__":
    main()
