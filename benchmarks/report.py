"""What a report costs, and whether the bands of its histograms hold: `python benchmarks/report.py`, some minutes.

Writes results/report/cost.csv (processor seconds and megabytes) and results/report/bands.csv (how many calibrated forecasts
have a bin outside the band).
"""

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from prerank import Marginal, check
from prerank.diagnosis import Check
from prerank.plotting.panels import departures

FOLDER = Path(__file__).parents[1] / "results" / "report"


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time, which others on the machine change little."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def cost(n_cases: int = 10_000, n_members: int = 20, n_targets: int = 16) -> dict[str, object]:
    """One check of a calibrated forecast with all pre-ranks, its report and its figure."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(n_cases, n_targets)).astype("float32")
    members = rng.normal(size=(n_cases, n_members, n_targets)).astype("float32")
    for_check, result = seconds(lambda: check(y, members))
    for_report, page = seconds(result.to_html)
    with tempfile.TemporaryDirectory() as folder:
        for_figure, _ = seconds(lambda: result.plot(Path(folder) / "figure.png"))
    return {
        "cases": n_cases,
        "members": n_members,
        "targets": n_targets,
        "pre-ranks": len(result.table),
        "check, s": f"{for_check:.2f}",
        "report, s": f"{for_report:.2f}",
        "figure, s": f"{for_figure:.2f}",
        "report, MB": f"{len(page.encode()) / 1e6:.3f}",
    }


def leaves_band(result: Check) -> bool:
    """Whether any bin of any projection lies outside its band."""
    return any(
        bool((np.abs(departures(one.heights, panel.band)) > 1 + 1e-9).any())
        for panel in result.panels()
        for one in panel.projections
    )


def outside(in_blocks: bool, n_forecasts: int, n_replicates: int = 199) -> int:
    """How many calibrated forecasts of three targets, or of one in 24 blocks of five dependent cases, leave the band."""
    rng, count = np.random.default_rng(7), 0
    blocks = np.repeat(np.arange(24), 5) if in_blocks else None
    for seed in range(n_forecasts):
        if in_blocks:  # a run errs in the same way in all cases of a block, as members do that run through days
            runs = np.repeat(rng.normal(size=(24, 10, 1)), 5, axis=0)
            points = runs + 0.3 * rng.normal(size=(120, 10, 1))
        else:
            points = rng.normal(size=(60, 10, 3))
        found = check(points[:, 0], points[:, 1:], Marginal(), blocks=blocks, n_replicates=n_replicates, seed=seed)
        count += leaves_band(found)
    return count


def write(name: str, rows: list[dict[str, object]]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / name).open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    print((FOLDER / name).read_text())


if __name__ == "__main__":
    write("cost.csv", [cost()])
    kinds = {"three targets, 60 independent cases": False, "one target, 24 blocks of five cases": True}
    write(
        "bands.csv",
        [{"forecasts": 300, "outside": outside(blocks, 300), "kind": kind} for kind, blocks in kinds.items()],
    )
