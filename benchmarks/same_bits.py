"""Do two trees give the same numbers, bit by bit? Checks, scores, corrections, regions, a fit, files, a study.

    python benchmarks/same_bits.py --old TREE       what differs between TREE and this one
    PYTHONPATH=TREE/src python benchmarks/same_bits.py --write FILE

Each line of a FILE is a name and a digest of numbers in full precision. Set PRERANK_REAL to a folder of real ensembles
(`.npz` with `obs` and `ensemble`) to have them among the data. About two minutes on two cores.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

ROOT = Path(__file__).parents[1]
Numbers = dict[str, Any]


def digest(value: Any) -> str:
    """Of arrays in double precision, so that a number has one digest whatever holds it."""
    if isinstance(value, pd.DataFrame):
        value = value.select_dtypes("number").to_numpy(dtype=float)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    array = np.ascontiguousarray(np.asarray(value, dtype=np.float64))
    return hashlib.sha256(array.tobytes() + str(array.shape).encode()).hexdigest()[:16]


def data() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Golden cases, made-up ensembles with ties and missing members, and the first 300 cases of real ones."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 21, 4))
    tied = rng.poisson(1.0, size=(120, 11, 3)).astype(float)
    found = {"normal": (x[:, 0], 0.8 * x[:, 1:]), "counts": (tied[:, 0], tied[:, 1:])}
    missing = x[:, 1:].copy()
    missing[rng.random(missing.shape[:2]) < 0.1] = np.nan
    observed = x[:, 0].copy()
    observed[::50, 1] = np.nan
    found["missing"] = (observed, missing)
    folders = [ROOT / "tests" / "golden", *([Path(os.environ["PRERANK_REAL"])] if "PRERANK_REAL" in os.environ else [])]
    for path in [path for folder in folders for path in sorted(folder.glob("*.npz"))]:
        with np.load(path, allow_pickle=False) as arrays:
            if {"obs", "ensemble"} <= set(arrays) and arrays["ensemble"].ndim == 3:
                found[path.stem] = arrays["obs"][:300], arrays["ensemble"][:300]
    return found


def of_checks() -> Numbers:
    from prerank import check

    found: Numbers = {}
    for name, (y, members) in data().items():
        result = check(y, members)
        found[f"check {name}"] = result.table
        found[f"check {name}: PITs"] = torch.cat([result.pit.lower, result.pit.upper], -1)
    y, members = data()["normal"]
    found["check with blocks"] = check(y, members, blocks=np.arange(300) // 10).table
    found["check with weights"] = check(y, members, case_weights=1 + np.arange(300) % 3).table
    found["check by group"] = check(y, members, by=np.arange(300) % 4).table
    return found


def of_scores() -> Numbers:
    from prerank import crps, energy_score, variogram_score

    y, members = data()["normal"]
    single = crps(y, members) if crps(y, members).shape == (300, 4) else crps(members, y)
    return {"energy score": energy_score(y, members), "variogram score": variogram_score(y, members), "crps": single}


def of_recalibration() -> Numbers:
    from prerank import Recalibrator
    from prerank.forecasts import equally_weighted_draws
    from prerank.recalibration import HighestDensityRegions

    y, members = data()["normal"]
    fitted = Recalibrator().fit(members[:200], y[:200])
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "fitted")
        read = Recalibrator.load(Path(folder) / "fitted")
    new = torch.from_numpy(members[200:])
    drawn = [equally_weighted_draws(each.transform(new), 20).members for each in (fitted, read)]
    found = {"recalibrator": drawn[0], "recalibrator, saved": drawn[1]}
    regions = HighestDensityRegions().fit(members[:200], y[:200])
    return found | {
        f"region of {level}": regions.region(members[200:], level).contains(y[200:]) for level in (0.5, 0.9)
    }


def of_estimator() -> Numbers:
    from prerank import MixtureRegressor

    rng = np.random.default_rng(6)
    x = rng.normal(size=(400, 3))
    y = np.stack([x[:, 0] + 0.3 * rng.normal(size=400), x[:, 1] * rng.normal(size=400)], -1)
    found = {}
    for name, options in {"plain": {}, "calibrated": {"calibrate": True}}.items():
        try:
            model = MixtureRegressor(max_epochs=30, random_state=0, **options).fit(x, y)
        except TypeError:  # an option of another name
            continue
        found[f"estimator, {name}: mean"] = model.predict(x)
        found[f"estimator, {name}: score"] = model.score(x, y)
    return found


def of_study() -> Numbers:
    """Simulation 1 by its command, whichever package has it."""
    own = importlib.util.find_spec("prerank_paper") is not None
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "prerank_paper"] if own else ["-c", "from prerank.cli import main; main()"]
        words = [sys.executable, *command, "simulate", "1", "--out", folder]
        subprocess.run(words, check=True, capture_output=True)
        return {
            f"simulation 1: {path.relative_to(folder)}": pd.read_csv(path)
            for path in sorted(Path(folder).rglob("*.csv"))
        }


PARTS: dict[str, Callable[[], Numbers]] = {
    "checks": of_checks,
    "scores": of_scores,
    "recalibration": of_recalibration,
    "estimator": of_estimator,
    "study": of_study,
}


def collected(parts: list[str]) -> dict[str, str]:
    return {name: digest(value) for part in parts for name, value in PARTS[part]().items()}


def of_tree(tree: Path, parts: list[str]) -> dict[str, str]:
    folders = [tree / "src", tree / "reproduction" / "src"]
    path = os.pathsep.join(str(folder) for folder in folders if folder.exists())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bits.json"
        words = [sys.executable, __file__, "--write", str(file), "--parts", *parts]
        subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": path})
        return dict(json.loads(file.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="the other source tree")
    parser.add_argument("--write", type=Path, help="write the digests of the tree on the path, and end")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    if options.write:
        options.write.write_text(json.dumps(collected(options.parts), indent=1))
        return
    if options.old is None:
        parser.error("--old TREE or --write FILE")
    old, new = of_tree(options.old.resolve(), options.parts), of_tree(ROOT, options.parts)
    for name in sorted(set(old) | set(new)):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name, 'missing')} {new.get(name, 'missing')}")
    print(f"{sum(old[name] == new.get(name) for name in old)} of {len(old)} are the same")


if __name__ == "__main__":
    main()
