"""What makes a penalty work: the draws, the temperature, the closed form, or the directions?

    python reproduction/benchmarks/ablation_training.py --device cuda                            # households, air, births2
    python reproduction/benchmarks/ablation_training.py diabetes --seeds 0 --max-epochs 2        # a trial on a CPU

    python reproduction/benchmarks/ablation_training.py --out A --others B results/benchmark  # tables of several folders

Seven ways to train between the published penalty and the exact one (`prerank_paper.ablations`), at strength 10, five seeds,
each on every pre-rank that it concerns, with baselines: one fleet for each dataset. Results are kept as those of `prerank
benchmark`: killed and called again, the command goes on where it was.
"""

import argparse
from pathlib import Path

import pandas as pd

from prerank._writing import whole_file
from prerank_paper.ablations import VARIANTS
from prerank_paper.benchmark.plan import NONE, PRERANKS, Ablation
from prerank_paper.benchmark.records import Results, read_results
from prerank_paper.benchmark.run import run_benchmark
from prerank_paper.benchmark.work import Settings
from prerank_paper.report.summaries import EXACT_PROTOCOL, PUBLISHED_PROTOCOL, Protocol, baseline, penalised


def table(results: Results) -> pd.DataFrame:
    """Means over seeds by dataset, pre-rank and way to train: exact PCE, published PCE, energy score."""
    parts = []
    for way in ("no penalty", *VARIANTS):
        row = {}
        for name, protocol, metric in (
            ("exact PCE", EXACT_PROTOCOL, "pce"),
            ("published PCE", PUBLISHED_PROTOCOL, "pce"),
            ("energy score", EXACT_PROTOCOL, "energy score"),
        ):
            chosen = (
                baseline(results, protocol, metric)
                if way == "no penalty"
                else penalised(results, Protocol(way, protocol.evaluation), metric)
            )
            row[name] = chosen.groupby(["dataset", "prerank"], sort=False)["value"].mean()
        parts.append(pd.DataFrame(row).reset_index().assign(trained=way))
    joined = pd.concat(parts, ignore_index=True)
    return joined[["dataset", "prerank", "trained", "exact PCE", "published PCE", "energy score"]]


def text(found: pd.DataFrame) -> str:
    """The exact PCE: a row for each dataset and pre-rank, a column for each way to train."""
    ways = ["no penalty", *VARIANTS]
    shown = found[found["prerank"] != "none"]
    wide = shown.pivot_table(index=["dataset", "prerank"], columns="trained", values="exact PCE", sort=False)
    lines = [f"| dataset | pre-rank | {' | '.join(ways)} |", f"| --- | --- |{' ---: |' * len(ways)}"]
    for (dataset, prerank), row in wide.reindex(columns=ways).iterrows():
        cells = ["–" if pd.isna(value) else f"{value:.3f}" for value in row]
        lines.append(f"| {dataset} | {prerank} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=list(Ablation().datasets))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", default="0,42,866,12,4")
    parser.add_argument("--max-epochs", type=int, default=5000)
    parser.add_argument("--replicates", type=int, default=999)
    parser.add_argument("--out", type=Path, default=Path("results/ablation/training"))
    parser.add_argument("--tables", type=Path, default=Path("results/ablation"), help="where the tables are written")
    parser.add_argument(
        "--others", type=Path, nargs="+", help="train nothing: tables of --out and of these, the first that has it"
    )
    given = parser.parse_args()
    if not given.others:
        grid = Ablation(tuple(given.datasets), seeds=tuple(int(seed) for seed in given.seeds.split(",")))
        settings = Settings(
            given.device, max_epochs=given.max_epochs, n_replicates=given.replicates, accept_licence=True
        )
        print(run_benchmark(grid, given.out, settings, timing=False))
    parts = [table(read_results(folder)) for folder in (given.out, *(given.others or ()))]
    found = pd.concat(parts).drop_duplicates(["dataset", "prerank", "trained"])
    found = found[found["dataset"].isin(given.datasets)].sort_values(
        ["dataset", "prerank"], key=lambda names: names.map([*given.datasets, *PRERANKS, NONE].index), kind="stable"
    )
    given.tables.mkdir(parents=True, exist_ok=True)
    with whole_file(given.tables / "training.csv") as partial:
        found.to_csv(partial, index=False, float_format="%.6g")
    with whole_file(given.tables / "training.md") as partial:
        partial.write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
