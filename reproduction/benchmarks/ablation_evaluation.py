"""What makes the published PCE of a baseline: the draws, the sigmoid, or the batches of 256?

    python reproduction/benchmarks/ablation_evaluation.py --device cuda                       # every dataset that is at hand
    python reproduction/benchmarks/ablation_evaluation.py households --device cpu  # about four minutes on one core
    python reproduction/benchmarks/ablation_evaluation.py wq --alphabetical                   # targets in another order

Five networks for each dataset, trained by maximum likelihood, are evaluated in eight ways: soft draws or draws of the
mixture, a sigmoid or a rank, per 256 test cases or on all of them. All stand in one file, OUT/evaluation.csv.gz, which is
written whole after each dataset: called again, the command goes on with those that are missing, and from the checkpoint of
the one in training.
"""

import argparse
from pathlib import Path

import pandas as pd

from prerank._writing import whole_file
from prerank.training import FitOptions, Run, TrainingSet, fit
from prerank_paper.ablations import evaluation_table
from prerank_paper.benchmark.plan import preranks_of
from prerank_paper.benchmark.work import Settings, SplitData, prepare
from prerank_paper.datasets.sources import available_locally
from prerank_paper.datasets.splitting import PAPER_SEEDS
from prerank_paper.protocols import AS_PUBLISHED

STEPS = {
    "true draws, rank, whole test set": ("true", "rank", "whole"),
    "true draws, rank, per 256": ("true", "rank", "per 256"),
    "true draws, sigmoid, per 256": ("true", "sigmoid", "per 256"),
    "soft draws, rank, whole test set": ("soft", "rank", "whole"),
    "as published: soft draws, sigmoid, per 256": ("soft", "sigmoid", "per 256"),
}
"""What the table shows of the eight ways."""

AS_GIVEN, BY_NAME = "as given", "by name"
COLUMNS = ["dataset", "targets", "seed", "prerank", "draws", "rank", "cases", "value"]


def alphabetical(data: SplitData, names: list[str]) -> SplitData:
    """The same data with targets in the order of their names."""
    order = sorted(range(len(names)), key=lambda place: names[place])
    train = {
        seed: TrainingSet(part.x, part.y[:, order], part.x_validation, part.y_validation[:, order])
        for seed, part in data.train.items()
    }
    validation, test = (part._replace(y=part.y[..., order]) for part in (data.validation, data.test))
    return data._replace(train=train, validation=validation, test=test)


def target_names(dataset: str) -> list[str]:
    from prerank_paper.datasets import load

    return list(load(dataset, accept_licence=True).y_names)


def evaluate(dataset: str, settings: Settings, checkpoint: Path, by_name: bool = False) -> pd.DataFrame:
    """Train the baselines of all seeds and evaluate each in every way."""
    data = prepare(dataset, PAPER_SEEDS, settings)
    if by_name:
        data = alphabetical(data, target_names(dataset))
    options = FitOptions(max_epochs=settings.max_epochs, checkpoint=checkpoint)
    fitted = fit([Run(seed) for seed in PAPER_SEEDS], data.train, options)
    preranks = list(preranks_of(data.test.y.shape[-1], AS_PUBLISHED).values())
    tables = []
    for place, seed in enumerate(PAPER_SEEDS):
        at = data.seeds.index(seed)
        law = fitted.forecast(data.test.x[at], [place])
        found = evaluation_table(data.test.y[at][None], law, preranks, settings.n_draws)
        tables.append(found.drop(columns="model").assign(dataset=dataset, seed=seed))
    return pd.concat(tables, ignore_index=True)


def text(table: pd.DataFrame) -> str:
    """Means over seeds: a row for each pre-rank, a column for each step from the exact to the published way."""
    means = table.groupby(["dataset", "prerank", "draws", "rank", "cases"], sort=False)["value"].mean()
    lines = [f"| dataset | pre-rank | {' | '.join(STEPS)} |", f"| --- | --- |{' ---: |' * len(STEPS)}"]
    for dataset, prerank in means.index.droplevel([2, 3, 4]).unique():
        cells = [f"{means[(dataset, prerank, *step)]:.3f}" for step in STEPS.values()]
        lines.append(f"| {dataset} | {prerank} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def known(path: Path) -> pd.DataFrame:
    """What has been evaluated before."""
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", help="names; all that are at hand without one")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    parser.add_argument("--max-epochs", type=int, default=5000)
    parser.add_argument("--alphabetical", action="store_true", help="targets in the order of their names")
    given = parser.parse_args()
    settings = Settings(given.device, max_epochs=given.max_epochs, accept_licence=True)
    given.out.mkdir(parents=True, exist_ok=True)
    path, order = given.out / "evaluation.csv.gz", BY_NAME if given.alphabetical else AS_GIVEN
    for dataset in given.datasets or available_locally(accept_licence=True):
        table = known(path)
        if ((table["dataset"] == dataset) & (table["targets"] == order)).any():
            continue
        checkpoint = given.out / f".{dataset}.{order.replace(' ', '-')}.safetensors"
        new = evaluate(dataset, settings, checkpoint, given.alphabetical).assign(targets=order)
        table = pd.concat([table, new[COLUMNS]]) if len(table) else new[COLUMNS]
        with whole_file(path) as partial:
            compression = {"method": "gzip", "mtime": 0}  # the same bytes for the same numbers
            table.to_csv(partial, index=False, float_format="%.6g", compression=compression)
        checkpoint.unlink(missing_ok=True)
        print(f"{dataset} evaluated", flush=True)
    table = known(path)
    with whole_file(given.out / "evaluation.md") as partial:
        partial.write_text(text(table[table["targets"] == AS_GIVEN]), encoding="utf-8")


if __name__ == "__main__":
    main()
