"""Does the half on which `recommend` tests keep its size, whatever was chosen on the other?

    PYTHONPATH=src python benchmarks/recommended.py --out results/field

Calibrated forecasts, as in `size.py`: 60 cases, half of them to learn from; 999 replicates and every other argument at
its default. *Tested* is the share of data sets whose second half is rejected at 5 % by the adjusted p-values of the
pre-ranks that the first half chose. *Naive* is what would come of testing the best of them on the half that chose it,
without adjustment. A finished batch is kept under `parts/`, so that the script resumes; the table is written from what is
there.
"""

import argparse
import csv
import json
import math
import time
from pathlib import Path

import torch
from scipy import stats

from prerank.diagnosis import recommend
from size import LEVEL, Setting, data

SETTINGS = (Setting(60, 9, 3), Setting(60, 9, 3, "counts"), Setting(60, 19, 5), Setting(60, 4, 2, "counts"))
BATCH = 100


def batch(setting: Setting, start: int, n_replicates: int = 999) -> dict[str, int]:
    """How many of a hundred data sets are rejected, on the tested half and naively."""
    y, forecast = data(setting, BATCH, start, torch.device("cpu"))
    tested = naive = 0
    for r in range(BATCH):
        axes = ("case", "member", "target")
        found = recommend(y[r], forecast.members[r], axes=axes, n_replicates=n_replicates)  # type: ignore[union-attr]
        tested += found.tested.p_value <= LEVEL * (1 + 1e-9)
        naive += float(found.table["p-value"].min()) <= LEVEL * (1 + 1e-9)
    return {"tested": tested, "naive": naive, "data sets": BATCH}


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
