"""Do intervals, corrected errors and tests keep their promises where cases depend on each other within blocks?

    PYTHONPATH=src python benchmarks/blocks.py --out results/blocks

Ten members run through blocks of days that share a season; blocks are of uneven length, one to fifteen days. Forecasts are
calibrated, biased, too narrow, or uncorrelated where the truth is correlated. The error that infinitely many cases
would show is that of the mean curve over all repetitions (zero for a calibrated forecast). The script prints, for 20,
50 and 100 blocks and three pre-ranks, how often the 95 % interval holds it, how often the interval without
blocks would, the mean corrected PCE, and how often the test rejects. It ends with an error where coverage is below the
binomial bound for 95 % at 0.05 over the number of cells.
"""

import argparse
import csv
import time
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor

from prerank import Ensemble, Location, Marginal, Scale, pce_test, projected_pit, reliability_curve
from prerank.calibration import centred_levels
from prerank.calibration.confidence import pce_intervals
from prerank.calibration.null import in_quadrature
from prerank.randomness import torch_generator

COVERAGE = 0.95
N_MEMBERS = 10
BLOCKS = (20, 50, 100)
ERRORS = ("none", "biased", "too narrow", "uncorrelated")
PRERANKS = (Marginal(), Location(), Scale())


def block_labels(n_blocks: int) -> Tensor:
    """Labels of cases in blocks of 1, 8, 15, 5, 12, ... days: the same for all repetitions."""
    return torch.arange(n_blocks).repeat_interleave(1 + (7 * torch.arange(n_blocks)) % 15)


def data(error: str, blocks: Tensor, n_sets: int, start: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Observations (R, N, 3) and members (R, N, M, 3) of repetitions from number `start` on."""
    generator = torch_generator(0, "blocks", error, len(blocks), start, device=device)
    options = {"generator": generator, "device": device, "dtype": torch.float64}
    n_blocks, shape = int(blocks.max()) + 1, (N_MEMBERS + 1, 3)
    season = torch.randn(n_sets, n_blocks, *shape, **options)[:, blocks.to(device)]
    common = torch.randn(n_sets, len(blocks), N_MEMBERS + 1, 1, **options).expand(-1, -1, -1, 3).clone()
    if error == "uncorrelated":
        common[:, :, 1:] = torch.randn(n_sets, len(blocks), N_MEMBERS, 3, **options)
    x = season + 0.7 * common + 0.7 * torch.randn(n_sets, len(blocks), *shape, **options)
    y, members = x[:, :, 0], x[:, :, 1:]
    if error == "biased":
        members = members + 0.3
    return y, 0.7 * members if error == "too narrow" else members


def cell_rows(error: str, n_blocks: int, repetitions: int, device: torch.device) -> list[dict[str, object]]:
    """Coverage, corrected error and rejection rate of every pre-rank."""
    blocks, levels = block_labels(n_blocks).to(device), centred_levels()
    size = 10 if device.type == "cpu" else 100
    found: dict[str, list[Tensor]] = {}
    curves: dict[str, list[Tensor]] = {}
    for start in range(0, repetitions, size):
        y, members = data(error, blocks, min(size, repetitions - start), start, device)
        pit = projected_pit(y, Ensemble(members), PRERANKS, exchangeable=True)
        test = pce_test(pit, blocks=blocks)
        for g, part in enumerate(pit.parts):
            own = pit.of(part.prerank)
            curves.setdefault(part.prerank, []).append(reliability_curve(own).frequency)
            null = test.replicates[..., g, None]
            with_blocks = pce_intervals(own, null, blocks, COVERAGE, levels, len(null))
            estimate, low, high = (limit[..., 0] for limit in with_blocks)
            naive = [limit[..., 0] for limit in pce_intervals(own, None, None, COVERAGE, levels, len(null))]
            corrected = in_quadrature(estimate, test.expected_pce[:, g])
            row = torch.stack([low, high, naive[1], naive[2], corrected, test.p_value[:, g]], -1)
            found.setdefault(part.prerank, []).append(row)
    rows = []
    for name, parts in found.items():
        low, high, naive_low, naive_high, corrected, p_value = torch.cat(parts).T
        curve = torch.cat(curves[name]).double().mean(0)
        population = 0.0 if error == "none" else float((curve - levels.to(curve)[:, None]).abs().mean())
        held = ((low <= population) & (population <= high)).double().mean()
        naive = ((naive_low <= population) & (population <= naive_high)).double().mean()
        rows.append(
            {
                "error": error,
                "blocks": n_blocks,
                "cases": len(blocks),
                "pre-rank": name,
                "PCE": round(population, 4),
                "coverage": round(float(held), 4),
                "coverage without blocks": round(float(naive), 4),
                "corrected PCE": round(float(corrected.mean()), 4),
                "rejected": round(float((p_value <= 0.05 + 1e-9).double().mean()), 4),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=None, help="folder for blocks.csv and blocks.md")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    begin = time.perf_counter()
    for error in ERRORS:
        for n_blocks in BLOCKS:
            for row in cell_rows(error, n_blocks, options.repetitions, torch.device(options.device)):
                rows.append(row)
                print(
                    f"{time.perf_counter() - begin:6.1f} s  " + "  ".join(f"{k} {v}" for k, v in row.items()),
                    flush=True,
                )
    bound = float(stats.binom.ppf(0.05 / len(rows), options.repetitions, COVERAGE)) / options.repetitions
    below = [row for row in rows if float(str(row["coverage"])) < bound - 1e-9]
    sentence = (
        f"{len(rows)} cells, coverage from {100 * min(float(str(row['coverage'])) for row in rows):.1f} %; the bound for "
        f"95 % is {100 * bound:.1f} %, {len(below)} below."
    )
    print(sentence)
    if options.out is not None:
        write(options.out, rows, options.repetitions, sentence)
    raise SystemExit(1 if below else 0)


def write(out: Path, rows: list[dict[str, object]], repetitions: int, sentence: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "blocks.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        "# Dependent cases in blocks",
        "",
        f"{repetitions} repetitions, {N_MEMBERS} members, three targets, blocks of 1 to 15 cases. {sentence} The interval "
        "without blocks treats the cases as independent.",
        "",
        "`PYTHONPATH=src python benchmarks/blocks.py --device cuda --out results/blocks` repeats it.",
        "",
        f"| {' | '.join(rows[0])} |",
        "| --- " * 4 + "|" + " ---: |" * (len(rows[0]) - 4),
        *(f"| {' | '.join(str(value) for value in row.values())} |" for row in rows),
    ]
    (out / "blocks.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
