"""The whole study on one GPU, in parts that may be cut off at any time and gone on with: times, memory, and comparisons.

    cd reproduction/benchmarks
    python whole_study.py exact --mps --processes 8 --out OUT    # 15 datasets, from an empty compile cache
    python whole_study.py published --seconds 560 --out OUT      # the other protocol, into the same results
    python whole_study.py beside turn old kills --old TREE --mps --seconds 560 --out OUT
    python whole_study.py ablation --mps --processes 3 --out OUT # ways to train between the protocols
    python whole_study.py timings --seconds 560 --out OUT        # steps by pre-rank, 100 and 1,000 draws
    python whole_study.py unpack --out OUT                       # on the machine where the results are wanted

exact, published   the grid, four fleets beside each other; `WORK/grid` is a results folder of `prerank-paper report`
beside             five datasets at the same time
turn               the same, one fleet after the other: times, and the same bits as beside each other
old                the same by the script and code of another revision, unpacked under TREE: times from the same machine
kills              two datasets, killed and resumed three times; and again with one of two processes killed, and resumed
timings            the timing runs of the grid
ablation           the fleets of `ablation_training.py`, which makes tables of `WORK/ablation`

Each part has a compile cache of its own, empty when it begins (kills, ablation and timings begin with what other parts
compiled). What it took stands in OUT/whole_study.json, the results in OUT/study.tar.gz.00 and so on, none larger than
15 MiB: finished fleets first, then as many checkpoints as there is room for. A part that is finished is not run again.
Only PYTHONPATH=src:reproduction/src and the data (PRERANK_DATA) are needed.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from study_files import compared, pack, seconds_of, unpack
from watching import descendants, facts, shared_gpu, watched

PARTS = ("exact", "published", "beside", "turn", "old", "kills", "timings", "ablation")
AT_THE_SAME_TIME = ("exact", "published", "beside", "ablation")  # whose processes may share the GPU
FIVE = ("wage", "house", "households", "air", "scm20d")
KILLED = ("wage", "households")
WARM = {"kills": ("turn",), "ablation": ("beside",), "timings": ("exact", "published", "turn", "ablation")}
"""Whose kernels a part begins with."""
FOR_PACKING = 15.0  # seconds that are kept for it


@dataclass(frozen=True)
class Job:
    """One call of `run_benchmark`."""

    out: str
    datasets: tuple[str, ...] | None  # None: all that are there
    protocols: tuple[str, ...] = ("exact",)
    processes: int = 1
    device: str = "cuda"
    initialisations: int = 3
    checkpoint_seconds: float = 20.0
    timing: bool = False
    preranks: tuple[str, ...] | None = None
    strengths: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    max_epochs: int | None = None
    n_replicates: int | None = None
    ablation: bool = False


def run_job(job: Job) -> int:
    """In a process of its own."""
    from prerank_paper.benchmark.executors import InProcesses, InTurn
    from prerank_paper.benchmark.plan import Grid
    from prerank_paper.benchmark.run import run_benchmark
    from prerank_paper.benchmark.work import Settings
    from prerank_paper.datasets.sources import available_locally

    names = job.datasets or (None if job.ablation else available_locally(accept_licence=True))
    wanted = asdict(job) | {"datasets": names, "accept_licence": True}

    def known(kind: Any) -> dict[str, Any]:
        return {f.name: wanted[f.name] for f in fields(kind) if wanted.get(f.name) is not None}

    grid = _ablation(known) if job.ablation else Grid(**known(Grid))
    executor = InProcesses(job.processes) if job.processes > 1 else InTurn()
    start = time.monotonic()

    def tell(state: Any) -> None:
        if state.last is not None:
            left = len(state.pending)
            print(f"{time.monotonic() - start:7.1f} s  {state.last.name}, {left} left", flush=True)

    summary = run_benchmark(
        grid,
        Path(job.out),
        Settings(**known(Settings)),
        executor,
        timing=job.timing,
        on_fleet=tell,
    )
    for name, error in summary.failed:
        print(f"failed: {name}: {error}", flush=True)
    return 1 if summary.failed else 0


def _ablation(known: Callable[[Any], dict[str, Any]]) -> Any:
    """Its own protocols and, unless told otherwise, its own datasets."""
    from prerank_paper.benchmark.plan import Ablation

    return Ablation(**{name: value for name, value in known(Ablation).items() if name != "protocols"})


class Study:
    """The parts, their record, and the time that is left."""

    def __init__(self, work: Path, trial: Job | None, seconds: float, processes: int, device: str) -> None:
        self.work, self.end = work, time.monotonic() + seconds
        base = Job("", None, device=device) if trial is None else replace(trial, device=device)
        self.base, self.processes, self.mps = base, processes, False
        self.path = work / "whole_study.json"
        self.record: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def finished(self, name: str) -> bool:
        return bool(self.record.get(name, {}).get("finished"))

    def keep(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)

    def call(self, name: str, job: Job, tree: Path, until: Callable[[], bool] | None = None) -> bool:
        """Run a job as long as there is time, note what it took, and say whether it came to its end."""
        part = self.record.setdefault(name, {"finished": False, "calls": []})
        cache = self.work / "cache" / name
        if not part["calls"]:
            shutil.rmtree(cache, ignore_errors=True)
            for other in WARM.get(name, ()):
                if (self.work / "cache" / other).exists():
                    shutil.copytree(self.work / "cache" / other, cache, dirs_exist_ok=True)
        job = replace(job, out=str(self.work / job.out))
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in ("src", "reproduction/src")),
            "PYTHONUNBUFFERED": "1",
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        }
        command = [sys.executable, str(script_of(tree)), "job", "--job", json.dumps(asdict(job))]
        cached = sum(1 for _ in cache.rglob("*") if _.is_file()) if cache.exists() else 0
        taken = watched(command, self.left, self.work / "logs" / f"{name}.log", env, until)
        fleets = sorted(path.parent.name for path in Path(job.out).glob("fleets/*/fleet.json"))
        about = {"files_in_cache_before": cached, "fleets": len(fleets), "beside": job.processes, "mps": self.mps}
        part["calls"].append(taken._asdict() | about)
        done = taken.returncode == 0
        print(f"{name}: {taken.seconds:.0f} s, {len(fleets)} fleets{'' if done else ', not finished'}", flush=True)
        self.keep()
        return done

    def grid(self, name: str, here: Path) -> None:
        protocols = ("exact",) if name == "exact" else ("exact", "as published")
        if name == "published" and not self.finished("exact"):
            raise SystemExit("the exact protocol comes first: its results are those that the other is added to")
        job = replace(self.base, out="grid", protocols=protocols, processes=self.processes)
        if self.call(name, job, here):
            models = [self._models(path) for path in (self.work / "grid").glob("fleets/*/fleet.json")]
            self.record[name] |= {"finished": True, "models_in_all": sum(models)}

    @staticmethod
    def _models(path: Path) -> int:
        return int(json.loads(path.read_text())["n_models"])

    def timings(self, here: Path) -> None:
        job = replace(self.base, out="grid", protocols=("exact", "as published"), timing=True)
        done = self.call("timings", job, here)
        self.record["timings"]["finished"] = done

    def ablation(self, here: Path) -> None:
        job = replace(self.base, out="ablation", ablation=True, processes=self.processes)
        done = self.call("ablation", job, here)
        self.record["ablation"]["finished"] = done

    def beside(self, here: Path) -> None:
        job = replace(self._five(FIVE, "beside"), processes=min(self.processes, len(FIVE)))
        if self.call("beside", job, here):
            self.record["beside"] |= {"finished": True, "fleets": seconds_of(self.work / "beside")}

    def turn(self, here: Path) -> None:
        if self.call("turn", self._five(FIVE, "turn"), here):
            self.record["turn"] |= {"finished": True, "fleets": seconds_of(self.work / "turn")}
            self._compare("turn", "beside each other", "beside", "turn")

    def old(self, tree: Path) -> None:
        if self.call("old", self._five(FIVE, "old"), tree):
            self.record["old"] |= {"finished": True, "fleets": seconds_of(self.work / "old")}
            self._compare("old", "old and new code", "old", "turn")

    def kills(self, here: Path) -> None:
        """Killed when a checkpoint has been written since the start, three times, and then left to its end."""
        job = replace(
            self._five(KILLED, "killed"), processes=2, checkpoint_seconds=min(1.0, self.base.checkpoint_seconds)
        )
        part = self.record.setdefault("kills", {"finished": False, "calls": []})
        checkpoints = self.work / "killed" / "checkpoints"
        while part.get("killed", 0) < 3 and self.left > 0:
            since = time.time()
            self.call("kills", job, here, lambda since=since: _newest(checkpoints) > since)
            if not part["calls"][-1]["cut_off"]:
                break  # it came to its end first
            part["killed"] = part.get("killed", 0) + (1 if self.left > 0 else 0)
            self.keep()
        if self.left > 0 and self.call("kills", job, here):
            self._compare("kills", "killed and resumed", "killed", "turn")
            self._death(job, here)

    def _death(self, job: Job, here: Path) -> None:
        """Two processes, of which one is killed as soon as there is a checkpoint; the command ends, and is called again."""
        part, dead = self.record["kills"], []
        checkpoints = self.work / "one-died" / "checkpoints"

        def kill_one() -> bool:
            if not dead and _newest(checkpoints) > 0:
                workers = [pid for pid in descendants(os.getpid()) if _trains(pid)]
                if workers:
                    os.kill(workers[-1], 9)
                    dead.append(workers[-1])
            return False

        job = replace(job, out="one-died")
        if self.call("kills", job, here, kill_one) or (dead and self.left > 0 and self.call("kills", job, here)):
            self._compare("kills", "one of two died", "one-died", "turn")
            part |= {"finished": True, "deaths": len(dead)}

    def _five(self, names: Sequence[str], out: str) -> Job:
        return replace(self.base, out=out, datasets=self.base.datasets or tuple(names))

    def _compare(self, part: str, words: str, first: str, second: str) -> None:
        found = compared(self.work / first, self.work / second)
        self.record[part].setdefault("compared", {})[words] = found
        print(f"{words}: {found}", flush=True)
        self.keep()


def script_of(tree: Path) -> Path:
    """This script as a tree has it; earlier ones had it with the other benchmarks."""
    own = tree / "reproduction" / "benchmarks" / "whole_study.py"
    return own if own.exists() else tree / "benchmarks" / "whole_study.py"


def _newest(folder: Path) -> float:
    """When the newest checkpoint was written."""
    times = []
    for path in folder.glob("[!.]*.safetensors"):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue  # its fleet has just finished
    return max(times, default=0.0)


def _trains(pid: int) -> bool:
    """Whether a process is a worker that trains; those that compile are politer."""
    try:
        started = b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        niceness = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])
    except (OSError, IndexError):
        return False
    return started and niceness == os.nice(0)


def told(record: Mapping[str, Any]) -> str:
    """The record in a few lines."""
    lines = []
    for name, part in record.items():
        if name == "machine":
            continue
        calls = part["calls"]
        seconds = sum(call["seconds"] for call in calls)
        busy = [call["gpu_busy"] * call["seconds"] for call in calls if call["gpu_busy"] is not None]
        share = f", GPU busy {100 * sum(busy) / seconds:.0f} %" if busy else ""
        gpu = max((call["gpu_gb"] or 0.0 for call in calls), default=0.0)
        host = max((call["host_pss_gb"] for call in calls), default=0.0)
        state = "finished" if part["finished"] else "not finished"
        lines.append(
            f"{name:<10} {state:<13} {seconds:7.0f} s in {len(calls)} calls{share}, GPU {gpu:.1f} GB, host {host:.1f} GB"
        )
        for words, found in part.get("compared", {}).items():
            differ = f"{found['different']} numbers differ, by {found['worst']:.2g} at most"
            same = "identical" if found["different"] == 0 else differ
            of = f"{len(found['fleets'])} fleets, {found['rows']} rows, {same}"
            lines.append(f"{'':<10} {words}: {of if found['rows'] else 'nothing to compare'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "unpack", "job"))
    parser.add_argument("--work", type=Path, default=Path("build/whole_study"), help="where everything is kept")
    parser.add_argument("--out", type=Path, default=Path("build/whole_study_out"), help="what is to be brought back")
    parser.add_argument("--old", type=Path, help="the root of another revision's tree")
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--mps", action="store_true", help="let the processes of a grid share the GPU at the same time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--trial", help="a Job as JSON, for a small grid")
    parser.add_argument("--job", help="used by the script itself")
    given = parser.parse_args()
    if given.parts == ["job"]:
        return run_job(Job(**{name: _tupled(value) for name, value in json.loads(given.job).items()}))
    work = given.work.resolve()
    if given.parts == ["unpack"]:
        unpack(given.out, work)
        return 0
    trial = Job(**{name: _tupled(value) for name, value in json.loads(given.trial).items()}) if given.trial else None
    study = Study(work, trial, given.seconds - FOR_PACKING, given.processes, given.device)
    here = Path(__file__).resolve().parents[2]
    study.record["machine"] = facts()
    for name in given.parts:
        if study.finished(name) or study.left < 0:
            continue
        if name in AT_THE_SAME_TIME:
            # and nowhere else: a client that is killed may take the others with it
            with (
                tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
                shared_gpu(Path(folder), given.mps) as study.mps,
            ):
                study.grid(name, here) if name in ("exact", "published") else getattr(study, name)(here)
            study.mps = False
        elif name == "old":
            study.old((given.old or here).resolve())
        else:
            getattr(study, name)(here)
        study.keep()
    pack(work, given.out)
    print(json.dumps(study.record["machine"]))
    print(told(study.record))
    return 0


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
