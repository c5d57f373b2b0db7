"""Milliseconds of a training step: fleets of both protocols, the hardware's limit, and a peer by vmap, from one run.

    python reproduction/benchmarks/step_times.py --out build/step_times.csv      # one GPU, six to nine minutes; resumes
    python reproduction/benchmarks/step_times.py --device cpu --quick            # a trial on a CPU, under a minute

The fleet is the grid of one dataset: seven pre-ranks by five strengths by five seeds, and five baselines. "All" is all of
it, then come every third and every ninth model, and each pre-rank alone. A step of ours has its share of the validation in
it, one of the peer (`vmap_peer.py`, exact protocol) none. On a GPU the peer's steps of one number of targets are compiled
at the same time, a process each, and timed one after the other when all are ready.
"""

import argparse
import csv
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, NamedTuple

import torch

import vmap_peer
from prerank.preranks import paper_preranks
from prerank.training import PreRankPenalty, Run
from prerank_paper.benchmark.plan import PUBLISHED_STRENGTH, preranks_of
from prerank_paper.benchmark.precompile import Kind, compile_first
from prerank_paper.benchmark.work import Settings, device_name, processor_name
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.published import PublishedPenalty
from training import BATCH, COMPONENTS, DRAWS, FEATURES, SEEDS, STRENGTHS, make_set, milliseconds_per_step

PENALTIES = {EXACT: PreRankPenalty, AS_PUBLISHED: PublishedPenalty}
ALL, SHARES = "all", {"all": 1, "every third": 3, "every ninth": 9}
FLEET, PEER = "fleet", "vmap"
LIMIT = 400.0  # seconds after which a peer that is not ready is not waited for


class Row(NamedTuple):
    """One measurement: whose step, of which models; `how` says how the peer came out, or why it has no time."""

    targets: int
    protocol: str
    models: str
    n_models: int
    code: str
    ms: float
    floor_ms: float
    peak_gb: float
    how: str
    device: str
    processor: str


class Records:
    """Measurements in a CSV file; those that it has are not made again."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.rows = path, []
        if path is not None and path.exists():
            with path.open(encoding="utf-8", newline="") as stream:
                types = Row.__annotations__
                self.rows = [Row(**{k: types[k](v) for k, v in line.items()}) for line in csv.DictReader(stream)]

    def has(self, *which: object) -> bool:
        return any((row.targets, row.protocol, row.models, row.code) == which for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(
            f"D = {row.targets:<3} {row.protocol:<13} {row.models:<12} {row.code:<6} {row.ms:9.3f} ms {row.how}",
            flush=True,
        )
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = not self.path.exists()
            with self.path.open("a", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerows([Row._fields, row] if new else [row])


def grid(n_targets: int, protocol: str = EXACT, seeds: int = 5, strengths: int = 5) -> dict[str, list[Run]]:
    """The grid of one dataset by the name of the pre-rank: every strength by every seed, and a baseline for each seed."""
    found = {"none": [Run(seed) for seed in SEEDS[:seeds]]}
    for item in paper_preranks(n_targets):
        penalty = PENALTIES[protocol](item, n_draws=DRAWS)
        found[item.name] = [Run(seed, penalty, value) for value in STRENGTHS[:strengths] for seed in SEEDS[:seeds]]
    return found


def all_of(parts: dict[str, list[Run]]) -> list[Run]:
    return [run for part in parts.values() for run in part]


def floor(runs: Iterable[Run], n_targets: int, bandwidth: float = 4.3e12, flops: float = 60e12) -> float:
    """The least milliseconds that a step can take: bytes that must move, or operations, whichever is slower.

    Bytes: weights, gradients and two Adam moments read and written once; activations and mixture parameters written and
    read once each way; draws likewise, of the models that need any. Operations: the perceptron forward and backward, the
    factors times noise (of all components as published), HDR's whitening, the copula's pairs (4 each, twice).
    """
    d, c, b, s = n_targets, COMPONENTS, BATCH, DRAWS
    penalties = [run.penalty for run in runs]
    published = sum(isinstance(penalty, PublishedPenalty) for penalty in penalties)
    names = [penalty.name.split(" ")[0] for penalty in penalties if penalty is not None]
    exactly_drawn = 0 if published else sum(name not in vmap_peer.LINEAR for name in names)
    outputs = c * (1 + d + d * (d + 1) // 2)
    weights = FEATURES * 100 + 100 * 100 + 100 * outputs
    moved = 4 * len(penalties) * (weights * 8 + 4 * b * (200 + outputs)) + 16 * (exactly_drawn + published) * b * s * d
    done = 6 * len(penalties) * b * weights + 6 * (exactly_drawn + c * published) * b * s * d * d
    done += 6 * names.count("HDR") * b * s * c * d * d + 12 * names.count("copula") * b * s * s * d
    return 1000 * max(moved / bandwidth, done / flops)


class Asked(NamedTuple):
    """What is measured."""

    device: str
    dimensions: list[int]
    seeds: int = 5
    strengths: int = 5
    batches: int = 64
    epochs: int = 5
    seconds: float = 540.0


class Clock:
    """How long the run may still take."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


def compile_ahead(asked: Asked) -> None:
    """Everything that the fleets need, on all cores, before anything is timed."""
    kinds = [Kind(d) for d in asked.dimensions] + [
        Kind(d, protocol, name, PUBLISHED_STRENGTH)
        for d in sorted(asked.dimensions, reverse=True)
        for protocol in PENALTIES
        for name in preranks_of(d, protocol)
    ]
    compile_first([(kind, Settings(asked.device)) for kind in kinds])


def row_of(
    targets: int, protocol: str, models: str, runs: list[Run], code: str, ms: float, how: str, asked: Asked
) -> Row:
    on_gpu = asked.device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu and code == FLEET else float("nan")
    limit = floor(runs, targets) if on_gpu else float("nan")
    where = device_name(asked.device), processor_name()
    return Row(targets, protocol, models, len(runs), code, ms, limit, peak, how, *where)


def time_fleets(records: Records, asked: Asked, clock: Clock) -> None:
    """Ours: the whole grid, a third, a ninth, and every pre-rank alone, in both protocols."""
    for targets in asked.dimensions:
        data = make_set(targets, asked.device, asked.batches * BATCH)
        for protocol in PENALTIES:
            parts = grid(targets, protocol, asked.seeds, asked.strengths)
            chosen = {name: all_of(parts)[::share] for name, share in SHARES.items()} | parts
            for name, runs in chosen.items():
                if records.has(targets, protocol, name, FLEET) or clock.left < 0:
                    continue
                if asked.device.startswith("cuda"):
                    torch.cuda.reset_peak_memory_stats()
                ms = milliseconds_per_step(runs, data, asked.epochs if name == ALL else min(3, asked.epochs))
                records.add(row_of(targets, protocol, name, runs, FLEET, ms, "", asked))


def peer_task(asked: Asked, targets: int, prerank: str) -> tuple[float, str]:
    """Milliseconds of a step of the peer, and how it came out."""
    data = make_set(targets, asked.device, asked.batches * BATCH)
    x, y = (part.expand(asked.seeds, *part.shape).contiguous() for part in (data.x, data.y))
    strengths = [0.0] if prerank == "none" else STRENGTHS[: asked.strengths]
    try:
        training = vmap_peer.Training(prerank, x, y, strengths, DRAWS, BATCH)
        step, how = vmap_peer.prepared(training, compile_it=asked.device.startswith("cuda"))
    finally:
        _wait_for_the_others()
    with _TURN or get_context("spawn").Lock():
        return vmap_peer.milliseconds_per_step(training, step, asked.batches), how


_READY: Any = None
_TURN: Any = None


def _share(ready: Any, turn: Any) -> None:
    global _READY, _TURN
    _READY, _TURN = ready, turn
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")


def _wait_for_the_others() -> None:
    try:
        if _READY is not None:
            _READY.wait(LIMIT)
    except BrokenBarrierError:
        pass  # one of them died


def time_peers(records: Records, asked: Asked, clock: Clock) -> None:
    """The peer's, in the exact protocol: every pre-rank alone, and for "all" one after the other."""
    for targets in asked.dimensions:
        parts = grid(targets, EXACT, asked.seeds, asked.strengths)
        names = [name for name in parts if not records.has(targets, EXACT, name, PEER)]
        if not names or clock.left < 0:
            continue
        if not asked.device.startswith("cuda"):
            found: Iterable[tuple[float, str] | BaseException] = [peer_task(asked, targets, name) for name in names]
        else:
            found = _side_by_side(asked, targets, names)
        for name, outcome in zip(names, found, strict=True):
            if isinstance(outcome, tuple):
                records.add(row_of(targets, EXACT, name, parts[name], PEER, *outcome, asked))
            else:
                print(f"D = {targets:<3} {name}: no peer, {type(outcome).__name__}: {outcome}"[:400], flush=True)
        times = [row.ms for row in records.rows if row.code == PEER and row.targets == targets and row.models in parts]
        if len(times) == len(parts):
            summed = sum(times)
            records.add(row_of(targets, EXACT, ALL, all_of(parts), PEER, summed, "sum of its pre-ranks", asked))


def _side_by_side(asked: Asked, targets: int, names: list[str]) -> list[tuple[float, str] | BaseException]:
    context = get_context("spawn")
    shared = context.Barrier(len(names)), context.Lock()
    with ProcessPoolExecutor(len(names), context, _share, shared) as pool:
        tasks = [pool.submit(peer_task, *given) for given in zip(repeat(asked), repeat(targets), names)]
        return [task.exception() or task.result() for task in tasks]


def table(rows: list[Row]) -> str:
    """What was measured, as text."""
    lines = ["  D protocol      models        models       ms    floor  x floor     vmap  vmap/ours"]
    peers = {(row.targets, row.protocol, row.models): row.ms for row in rows if row.code == PEER}
    fleets = [row for row in rows if row.code == FLEET]
    for row in sorted(fleets, key=lambda row: (row.targets, row.protocol == AS_PUBLISHED)):
        peer = peers.get((row.targets, row.protocol, row.models), float("nan"))
        line = (
            f"{row.targets:>3} {row.protocol:<13} {row.models:<12} {row.n_models:>7} {row.ms:8.3f} {row.floor_ms:8.3f}"
        )
        line += f" {row.ms / row.floor_ms:8.1f} {peer:8.2f} {peer / row.ms:10.1f}"
        lines.append(line.replace("nan", "  -"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 6, 16])
    parser.add_argument("--quick", action="store_true", help="few models and steps, two targets")
    parser.add_argument("--only", choices=(FLEET, PEER))
    parser.add_argument("--seconds", type=float, default=540.0, help="begin nothing after that")
    parser.add_argument("--out", type=Path, help="a CSV file, gone on with if it is there")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    asked = Asked(given.device, given.dimensions, seconds=given.seconds)
    if given.quick:
        asked = Asked(given.device, [2], seeds=1, strengths=1, batches=1, epochs=1, seconds=given.seconds)
    records, clock = Records(given.out), Clock(asked.seconds)
    print(
        f"{device_name(asked.device)}, {processor_name()}, torch {torch.__version__}, float32, batch {BATCH}, S = {DRAWS}"
    )
    if given.only != PEER:
        if asked.device.startswith("cuda"):
            compile_ahead(asked)
            print(f"kernels compiled, {asked.seconds - clock.left:.0f} s", flush=True)
        time_fleets(records, asked, clock)
    if given.only != FLEET:
        time_peers(records, asked, clock)
    print(table(records.rows))
    print(f"{asked.seconds - clock.left:.0f} s" + ("" if clock.left > 0 else ": out of time, the same command goes on"))


if __name__ == "__main__":
    main()
