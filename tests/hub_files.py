"""A forecast hub in the hubverse layout, made from known numbers."""

import gzip
import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd

ROUNDS, PLACES, HORIZONS, N_SAMPLES = ["2025-01-04", "2025-01-11", "2025-01-18"], ["01", "02", "US"], [0, 1, 2], 5
TARGET = "wk inc cases"
RULES = {
    "rounds": [
        {
            "round_id_from_variable": True,
            "round_id": "reference_date",
            "model_tasks": [
                {
                    "task_ids": {},
                    "output_type": {
                        "sample": {
                            "output_type_id_params": {"compound_taskid_set": ["reference_date", "location"]},
                            "value": {"type": "integer", "minimum": 0},
                        }
                    },
                    "target_metadata": [{"target_id": "cases", "target_keys": {"target": TARGET}, "time_unit": "week"}],
                }
            ],
        }
    ]
}


def members_of(seed: int, n_rounds: int = len(ROUNDS), scale: int = 100) -> np.ndarray:
    """Whole numbers (rounds, places, samples, horizons)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, scale, size=(n_rounds, len(PLACES), N_SAMPLES, len(HORIZONS)))


def day_of(r: int) -> str:
    """The day of a round."""
    return str((pd.Timestamp(ROUNDS[0]) + pd.Timedelta(weeks=r)).date())


def samples(members: np.ndarray, r: int, name: str = "{place}_s{k}") -> pd.DataFrame:
    rows = [
        {
            "reference_date": day_of(r),
            "location": place,
            "horizon": horizon,
            "target": TARGET,
            "target_end_date": str((pd.Timestamp(day_of(r)) + pd.Timedelta(weeks=horizon)).date()),
            "output_type": "sample",
            "output_type_id": name.format(place=place, k=k + 1, h=horizon),
            "value": int(members[r, p, k, h]),
        }
        for p, place in enumerate(PLACES)
        for k in range(N_SAMPLES)
        for h, horizon in enumerate(HORIZONS)
    ]
    return pd.DataFrame(rows)


def observed(n_weeks: int = 8) -> pd.DataFrame:
    days = [day_of(week) for week in range(n_weeks)]
    rows = [
        {"target_end_date": day, "location": place, "target": TARGET, "observation": 10 * i + p}
        for i, day in enumerate(days)
        for p, place in enumerate(PLACES)
    ]
    return pd.DataFrame(rows)


def expected_y() -> np.ndarray:
    r, p, h = np.ogrid[: len(ROUNDS), : len(PLACES), : len(HORIZONS)]
    return (10 * (r + h) + p).reshape(-1, len(HORIZONS)).astype(float)


def put(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        days = {name: pd.to_datetime(frame[name]).dt.date for name in frame.columns if name.endswith("date")}
        frame.assign(**days).to_parquet(path, index=False)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        frame.to_csv(path, index=False)


def build_hub(root: Path, n_rounds: int = len(ROUNDS)) -> Path:
    """Three models in three formats; each calls its samples otherwise."""
    kinds = {
        "a-csv": ("csv", "{place}_s{k}"),
        "b-parquet": ("parquet", "{k}-{place}"),
        "c-gz": ("csv.gz", "{place}0{k}"),
    }
    for seed, (model, (suffix, name)) in enumerate(kinds.items()):
        for r in range(n_rounds):
            rows = samples(members_of(seed, n_rounds), r, name)
            put(rows, root / "model-output" / model / f"{day_of(r)}-{model}.{suffix}")
    put(observed(n_rounds + 5), root / "target-data" / "time-series.csv")
    (root / "hub-config").mkdir()
    (root / "hub-config" / "tasks.json").write_text(json.dumps(RULES))
    (root / "model-output" / "README.md").write_text("who submits here")
    return root


def add_quantiles(hub: Path, model: str, levels: list[float], n_rounds: int = len(ROUNDS)) -> None:
    """A model with quantiles alone: Gaussian ones of three numbers that differ at every horizon."""
    rng = np.random.default_rng(0)
    for r in range(n_rounds):
        rows = [
            {
                "reference_date": day_of(r),
                "location": place,
                "horizon": horizon,
                "target": TARGET,
                "target_end_date": str((pd.Timestamp(day_of(r)) + pd.Timedelta(weeks=horizon)).date()),
                "output_type": "quantile",
                "output_type_id": level,
                "value": max(0.0, 10 * horizon + 9 * NormalDist().inv_cdf(level) + rng.normal()),
            }
            for place in PLACES
            for horizon in HORIZONS
            for level in levels
        ]
        put(pd.DataFrame(rows), hub / "model-output" / model / f"{day_of(r)}-{model}.csv")
