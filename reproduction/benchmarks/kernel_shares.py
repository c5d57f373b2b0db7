"""What each kernel gives: a step of 180 models with all kernels, and with one of them switched off.

    python reproduction/benchmarks/kernel_shares.py  # one GPU, about five minutes; goes on where it was stopped
    python reproduction/benchmarks/kernel_shares.py --spare 2  # then without all that give less than 2 %, together
    python reproduction/benchmarks/kernel_shares.py --write results/kernels/shares.csv  # what has been measured, as a table

Steps are those of `step_times.py`, in which a validation is included; those of the exact protocol, and of the
published one for the kernels that only it uses. All kernels are timed three times in between: their range is the noise.
The shares do not add up, since penalties run beside each other. A JSON line is written for each measurement.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from fleet import compare
from prerank._kernels import EIGENVECTORS, PROJECTIONS, Kernel, rows, without
from prerank._writing import whole_file
from prerank_paper.protocols import AS_PUBLISHED
from step_times import all_of, grid
from training import BATCH, make_set, milliseconds_per_step

EXACT, PUBLISHED = "exact", "published"
PROTOCOLS = {EXACT: EXACT, PUBLISHED: AS_PUBLISHED}


class Measured(NamedTuple):
    """Milliseconds of a step, or the largest difference between a fleet and its models alone (protocol "fleet")."""

    protocol: str
    targets: int
    off: tuple[str, ...]
    repeat: int
    value: float


class Records:
    """Measurements in a file, one JSON line each; those that it has are not made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.items = [Measured(**json.loads(line) | {"off": tuple(json.loads(line)["off"])}) for line in lines]

    def has(self, protocol: str, targets: int, off: tuple[str, ...], repeat: int) -> bool:
        return any(item[:4] == (protocol, targets, off, repeat) for item in self.items)

    def add(self, item: Measured) -> None:
        self.items.append(item)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(item._asdict()) + "\n")
        unit = "" if item.protocol == "fleet" else " ms"
        off = " + ".join(item.off) or "none"
        print(f"{item.protocol:<9} D = {item.targets:<3} off: {off:<30} {item.value:.3g}{unit}", flush=True)

    def value(self, protocol: str, targets: int, off: tuple[str, ...]) -> float | None:
        found = [item.value for item in self.items if item[:3] == (protocol, targets, off)]
        return median(found) if found else None


def kernels_of(protocol: str) -> list[Kernel]:
    """Those that are switched off in turn: in the published grid only what no other has."""
    own = [kernel for kernel in rows() if kernel is PROJECTIONS or not kernel.fused.startswith("prerank._kernels.")]
    return own if protocol == PUBLISHED else [kernel for kernel in rows() if kernel not in own]


def time_step(records: Records, protocol: str, targets: int, off: Iterable[Kernel], repeat: int = 0) -> None:
    off = list(off)
    names = tuple(kernel.name for kernel in off)
    if records.has(protocol, targets, names, repeat):
        return
    # without its kernel the step of PCA cannot be captured, and is so slow that one look is enough
    looks = 1 if EIGENVECTORS in off else 3
    with without(off):
        taken = milliseconds_per_step(
            all_of(grid(targets, PROTOCOLS[protocol])), make_set(targets, "cuda", 64 * BATCH), looks
        )
    records.add(Measured(protocol, targets, names, repeat, taken))


def measure(records: Records, dimensions: list[int]) -> None:
    for targets in dimensions:
        for protocol in (EXACT, PUBLISHED):
            kernels = kernels_of(protocol)
            half = len(kernels) // 2
            for repeat, part in enumerate((kernels[:half], kernels[half:], [])):
                time_step(records, protocol, targets, [], repeat)
                for kernel in part:
                    time_step(records, protocol, targets, [kernel])


def longer(records: Records, protocol: str, targets: int, off: tuple[str, ...]) -> float | None:
    """By how many per cent a step is longer without the kernels; None where it was not measured."""
    whole, without_it = records.value(protocol, targets, ()), records.value(protocol, targets, off)
    return None if whole is None or without_it is None else 100 * (without_it / whole - 1)


def spare(records: Records, dimensions: list[int], most: float) -> None:
    """Switch off together what gives less than `most` per cent at every dimension; is a fleet then still its models?"""
    found = []
    for protocol in (EXACT, PUBLISHED):
        for kernel in kernels_of(protocol):
            shares = [longer(records, protocol, targets, (kernel.name,)) for targets in dimensions]
            if all(share is not None and share < most for share in shares):
                found.append(kernel)
    print("give little:", ", ".join(kernel.name for kernel in found) or "none")
    sets = [[kernel] for kernel in found] + ([found] if len(found) > 1 else [])
    for targets in dimensions if len(found) > 1 else []:
        for protocol in (EXACT, PUBLISHED):
            time_step(records, protocol, targets, found)
    for off in sets:
        names = tuple(kernel.name for kernel in off)
        if not records.has("fleet", 4, names, 0):
            with without(off):
                worst = max(found.parameters for found in compare("cuda", epochs=4))
            records.add(Measured("fleet", 4, names, 0, worst))


def write(records: Records, path: Path) -> None:
    lines = ["protocol,targets,without,ms,longer_percent"]
    for protocol, targets, off in dict.fromkeys(item[:3] for item in records.items if item.protocol != "fleet"):
        value, more = records.value(protocol, targets, off), longer(records, protocol, targets, off)
        lines.append(f"{protocol},{targets},{' + '.join(off) or 'none'},{value:.3f},{more:.1f}")
    with whole_file(path) as place:
        place.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 6, 16])
    parser.add_argument("--records", type=Path, default=Path("build/kernel_shares.jsonl"))
    parser.add_argument("--spare", type=float, metavar="PERCENT")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    records = Records(asked.records)
    if asked.write is not None:
        write(records, asked.write)
    else:
        torch.backends.cuda.matmul.allow_tf32 = False
        measure(records, asked.dimensions)
        if asked.spare is not None:
            spare(records, asked.dimensions, asked.spare)
