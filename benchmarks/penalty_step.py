"""What a penalty adds to a step of training a normalising flow, in processor time over that of the step without.

    python benchmarks/penalty_step.py --old DIR --repeats 3    in turn with another source tree, into results/penalty

The flows are zuko's neural spline flows with three transforms, of four targets and three features, in batches of 256: an
autoregressive one, whose draws take a pass for each target, and one of coupling layers, whose draws take two. One thread;
the median of single steps, after one that is not counted. "draws alone" is a step that draws from the flow and takes the
mean of the draws for a penalty: no penalty on draws of a flow can cost less.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "penalty" / "steps.csv"
FIELDS = ("tree", "flow", "penalty", "draws", "repeat", "milliseconds")
FLOWS = {"autoregressive": None, "coupling": 2}
N_TARGETS, N_FEATURES, BATCH = 4, 3, 256
WITHOUT, DRAWS_ALONE = "without", "draws alone"


def steps(flow_name: str, n_draws: int, n_steps: int) -> list[dict[str, Any]]:
    """Milliseconds of single steps without a penalty and with that of each pre-rank, in turn."""
    import torch
    import zuko

    from prerank import PreRankPenalty, paper_preranks

    torch.set_num_threads(1)
    torch.manual_seed(0)
    flow = zuko.flows.NSF(N_TARGETS, N_FEATURES, transforms=3, hidden_features=(64, 64), passes=FLOWS[flow_name])
    optimiser = torch.optim.Adam(flow.parameters(), 1e-3)
    x, y = torch.randn(BATCH, N_FEATURES), torch.randn(BATCH, N_TARGETS)
    several = paper_preranks(N_TARGETS)
    penalties: dict[str, Any] = {WITHOUT: None, DRAWS_ALONE: lambda y, law, step: law.rsample((n_draws,)).mean()}
    penalties |= {item.name: PreRankPenalty(item, n_draws=n_draws) for item in several}
    penalties["all seven"] = PreRankPenalty(several, n_draws=n_draws)
    found = []
    for step in range(n_steps + 1):
        for name, penalty in penalties.items():
            start = time.process_time()
            law = flow(x)
            loss = -law.log_prob(y).mean()
            if penalty is not None:
                loss = loss + penalty(y, law, step=step)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            spent = 1000 * (time.process_time() - start)
            if step:
                row = {"flow": flow_name, "penalty": name, "draws": n_draws, "repeat": step}
                found.append({**row, "milliseconds": round(spent, 2)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, nargs="*", default=[], help="other source trees, named by their folders")
    parser.add_argument("--draws", type=int, nargs="+", default=[4, 16, 100])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--old-repeats", type=int, default=1, help="of other source trees, which may take long")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        flow_name, n_draws, n_steps = options.one
        print(json.dumps(steps(flow_name, int(n_draws), int(n_steps))))
        return
    trees = {"now": ROOT, **{tree.name: tree.resolve() for tree in options.old}}
    found: list[dict[str, Any]] = []
    for n_draws in options.draws:
        for flow_name in FLOWS:
            for name, tree in trees.items():
                n_steps = options.repeats if name == "now" else options.old_repeats
                found += [{"tree": name, **row} for row in _elsewhere(tree, flow_name, n_draws, n_steps)]
                _print_medians(found, name, flow_name, n_draws)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def _elsewhere(tree: Path, flow_name: str, n_draws: int, n_steps: int) -> list[dict[str, Any]]:
    """`steps` in a process of its own, with the sources of a tree."""
    path = os.pathsep.join([str(tree / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    words = [sys.executable, __file__, "--one", flow_name, str(n_draws), str(n_steps)]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def _print_medians(found: list[dict[str, Any]], name: str, flow_name: str, n_draws: int) -> None:
    own = [row for row in found if (row["tree"], row["flow"], row["draws"]) == (name, flow_name, n_draws)]
    names = list(dict.fromkeys(row["penalty"] for row in own))
    middle = {what: median(row["milliseconds"] for row in own if row["penalty"] == what) for what in names}
    for what, value in middle.items():
        ratio = value / middle[WITHOUT]
        print(f"{name:10}{flow_name:16}{n_draws:5}  {what:12}{value:9.1f} ms{ratio:8.1f}", flush=True)


if __name__ == "__main__":
    main()
