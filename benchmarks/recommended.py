"""Does the half on which `recommend` tests keep its size, whatever was chosen on the other?

    PYTHONPATH=src python benchmarks/recommended.py --out results/field

Calibrated forecasts, as in `size.py`: 60 cases, half of them to learn from, 199 replicates. What `recommend` does is done
for a hundred data sets at once. *Tested* is the share of data sets whose second half is rejected at 5 % by the adjusted
p-values of the pre-ranks that the first half chose. *Naive* is what would come of testing the best of them on the half
that chose it, without adjustment. A finished batch is kept under `parts/`, so that the script resumes; the table is
written from what is there.
"""

import argparse
import csv
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor

from prerank import Ensemble, paper_preranks, pce_test, projected_pit
from prerank.calibration import PCETest, ProjectedPIT
from prerank.diagnosis.recommendation import KEPT, TELLING, judged
from prerank.preranks.naming import field_preranks
from size import LEVEL, Setting, data

SETTINGS = (Setting(60, 9, 3), Setting(60, 9, 3, "counts"), Setting(60, 19, 5), Setting(60, 4, 2, "counts"))
BATCH = 100
MOST = 3


def halves(y: Tensor, forecast: Ensemble) -> list[ProjectedPIT]:
    """PITs of all candidates in both halves of the cases, named by their positions, of several data sets (R, N, ...)."""
    n_cases, n_targets = y.shape[-2:]
    listed = [*paper_preranks(n_targets), *field_preranks(n_targets)]
    cut = n_cases // 2
    return [
        projected_pit(
            y[..., cases, :],
            Ensemble(forecast.members[..., cases, :, :]),
            listed,
            case_ids=torch.arange(n_cases)[cases],
            exchangeable=True,
        )
        for cases in (slice(0, cut), slice(cut, n_cases))
    ]


def of_one(test: PCETest, number: int) -> PCETest:
    """The test of one of several data sets, as far as a choice needs it."""
    own = {"statistic", "expected_pce", "p_value", "projection_power"}
    return test._replace(**{name: getattr(test, name)[number] for name in own})


def tested(first: ProjectedPIT, second: ProjectedPIT, n_replicates: int) -> list[tuple[float, float]]:
    """For each data set the p-value on the second half, and the smallest of any candidate on the first."""
    learnt = pce_test(first, n_replicates=n_replicates)
    found = []
    for r in range(len(learnt.p_value)):
        table = judged(first.model(r), of_one(learnt, r), MOST)
        chosen = [name for name, verdict in table["verdict"].items() if verdict in (TELLING, KEPT)]
        pit = second.model(r)
        few = replace(pit, parts=tuple(part for name in chosen for part in pit.of(str(name)).parts))
        p_value = pce_test(few, n_replicates=n_replicates).adjusted_p_value.min()
        found.append((float(p_value), float(table["p-value"].min())))
    return found


def batch(setting: Setting, start: int, size: int = BATCH, n_replicates: int = 199) -> dict[str, int]:
    """How many of some data sets are rejected, on the tested half and naively."""
    y, forecast = data(setting, size, start, torch.device("cpu"))
    found = tested(*halves(y, forecast), n_replicates)  # type: ignore[arg-type]
    rejected = [[p <= LEVEL * (1 + 1e-9) for p in p_values] for p_values in zip(*found, strict=True)]
    return {"tested": sum(rejected[0]), "naive": sum(rejected[1]), "data sets": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=2500, help="of each setting")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no new batch after so many seconds")
    parser.add_argument("--out", type=Path, default=Path("results/field"))
    args = parser.parse_args()
    parts, until = args.out / "parts", time.monotonic() + args.seconds
    parts.mkdir(parents=True, exist_ok=True)
    found: dict[Setting, list[dict[str, int]]] = {setting: [] for setting in SETTINGS}
    for start in range(0, args.data_sets, BATCH):
        for setting in SETTINGS:
            part = parts / f"recommended, {setting.name}, {start}.json"
            if not part.exists():
                if time.monotonic() > until:
                    continue
                unfinished = part.with_suffix(".tmp")
                unfinished.write_text(json.dumps(batch(setting, start)))
                unfinished.rename(part)
                print(part.stem, flush=True)
            found[setting].append(json.loads(part.read_text()))
    rows = []
    for setting, batches in found.items():
        total = {key: sum(one[key] for one in batches) for key in ("data sets", "tested", "naive")}
        rows.append({"targets": setting.targets, "members": setting.n_members, "D": setting.n_targets, **total})
    count = sum(row["data sets"] for row in rows)
    rejected = sum(row["tested"] for row in rows)
    with (args.out / "recommended.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    bound = int(stats.binom.ppf(0.99, count, LEVEL))
    print(f"{rejected} of {count} rejected ({100 * rejected / count:.2f} %), at most {bound} at 5 %")
    raise SystemExit(0 if rejected <= bound else 1)


if __name__ == "__main__":
    main()
