"""How much of its cell an atom is spread over: the sweep that the estimator's rule was chosen by, and the other half.

    python benchmarks/dequantising.py [--workers 2] [--out results/estimator/dequantising.csv]
    python benchmarks/dequantising.py --table results/estimator/dequantising.csv

Datasets with atoms. A fit gets the paper's training and validation rows; shares are compared on its calibration rows, on the
choosing half of the datasets, and reported on test rows of the other. Likelihoods are of cells, energy scores of 200 draws
in values of the targets, and a share of cells is that of pre-ranks within 1.25 of the PCE expected of so many rows.
"""

import argparse
import math
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from crossfit import N_DRAWS, N_TEST, judged, markdown, task_of
from estimator_settings import CHOOSING
from prerank import Ensemble, paper_preranks
from prerank.regression import MixtureRegressor
from prerank.regression.dequantising import Dequantiser

DATASETS = ("births1", "wage", "wq", "meps21", "air", "births2", "scpf", "blogdata", "ansur2")
SHARES, SEEDS = (1.0, 0.75, 0.5, 0.25), (0, 42, 866)


def one(name: str, seed: int, share: float) -> dict[str, Any]:
    """Scores and calibration of a fit whose atoms are spread over a share of their cells."""
    torch.set_num_threads(1)
    task = task_of(name, seed, None)
    n_train, n_validation, _ = task.sizes
    fitted, rest = slice(0, n_train + n_validation), slice(n_train + n_validation, None)
    if name in CHOOSING:
        task = task._replace(x_test=task.x[rest][:N_TEST], y_test=task.y[rest][:N_TEST])

    with patch("prerank.regression.dequantising.MIDDLE", share), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixtureRegressor(random_state=seed).fit(
            task.x[fitted], task.y[fitted], validation_rows=np.arange(fitted.stop) >= n_train
        )
    law = model.predict_distribution(task.x_test)
    drawn = Ensemble(torch.from_numpy(model.sample(task.x_test, N_DRAWS, seed=1)))
    found = judged(task, law, drawn)
    nll = -float(Dequantiser.of(task.y).log_likelihood(task.y_test, law).mean())
    n_test, n_targets = task.y_test.shape
    own_level = math.sqrt(1 + n_test / task.n_cal)  # over 0.3133 / sqrt(n_test), no row of calibration is fitted on
    ratios = np.array([found[item.name] for item in paper_preranks(n_targets)]) * own_level
    row = {"dataset": name, "seed": seed, "share": share, "targets": n_targets, "nll": nll}
    return row | {"energy score": found["energy score"], "cells": np.mean(ratios <= 1.25)}


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    """NLL per target and log energy score against the whole cell, and their sum, the index of the estimator's settings."""
    whole = frame[frame["share"] == 1.0].set_index(["dataset", "seed"])
    own = pd.MultiIndex.from_frame(frame[["dataset", "seed"]])
    frame = frame.assign(
        nll=(frame["nll"] - whole["nll"].reindex(own).to_numpy()) / frame["targets"],
        energy=np.log(frame["energy score"] / whole["energy score"].reindex(own).to_numpy()),
        half=np.where(frame["dataset"].isin(CHOOSING), "choosing", "reported"),
    )
    return frame.assign(index=frame["nll"] + frame["energy"])


def table(frame: pd.DataFrame) -> str:
    """By half and share, and by dataset and share."""
    frame, parts = compared(frame), []
    for by in (["half", "share"], ["dataset", "share"]):
        parts.append(markdown(frame.groupby(by)[["nll", "energy", "index", "cells"]].mean().reset_index()))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dequantising.csv"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table is None:
        found = pd.read_csv(options.out).to_dict("records") if options.out.exists() else []
        there = {(row["dataset"], row["seed"], row["share"]) for row in found}
        left = [
            (name, seed, share)
            for name in DATASETS
            for seed in SEEDS
            for share in SHARES
            if (name, seed, share) not in there
        ]
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            for done in as_completed([pool.submit(one, *about) for about in left]):
                found.append(done.result())
                pd.DataFrame(found).sort_values(["dataset", "seed", "share"]).to_csv(
                    options.out, index=False, float_format="%.6g"
                )
    print(table(pd.read_csv(options.table or options.out)))


if __name__ == "__main__":
    main()
