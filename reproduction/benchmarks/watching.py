"""What a command takes: seconds, how much of them the GPU computes, and peak memory of the device and of the host.

The command may start processes of its own; all of them count, and all of them end with it. Host memory is read from /proc,
where there is one, and the device from nvidia-smi, where there is one.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")
EVERY_MS = 200
MPS = "nvidia-cuda-mps-control"


class Taken(NamedTuple):
    """What a command took. `gpu_busy`: the mean share of a sampling interval in which a kernel ran."""

    returncode: int | None
    seconds: float
    cut_off: bool
    gpu_busy: float | None
    gpu_idle_seconds: float | None
    gpu_gb: float | None
    host_rss_gb: float
    host_pss_gb: float
    processes: int


class GPU:
    """Samples of one GPU: utilisation in per cent and memory in MiB, every 200 ms."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self.process: subprocess.Popen[str] | None = None
        if shutil.which(QUERY[0]):
            command = [*QUERY, f"--loop-ms={EVERY_MS}"]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            sample = parsed(line)
            if sample is not None:
                self.samples.append(sample)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def parsed(line: str) -> tuple[float, float] | None:
    """Utilisation and memory of a line of nvidia-smi; None for one that has no numbers.

    >>> parsed("97, 5123")
    (97.0, 5123.0)
    """
    parts = line.split(",")
    try:
        return float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        return None


class Host:
    """The largest memory of a process and all that it has started: resident, and with shared pages counted once."""

    def __init__(self, pid: int) -> None:
        self.pid, self.rss, self.pss, self.most = pid, 0.0, 0.0, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(2.0):
            family = descendants(self.pid)
            found = [memory(pid) for pid in family]
            self.rss = max(self.rss, sum(item[0] for item in found))
            self.pss = max(self.pss, sum(item[1] for item in found))
            self.most = max(self.most, len(family))

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()


def descendants(pid: int) -> list[int]:
    """A process and all that it and its children have started, where /proc says so."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat") if Path("/proc/self").exists() else ():
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it has ended
        parents.setdefault(parent, []).append(int(path.parent.name))
    family, new = [pid], [pid]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        family += new
    return family


def memory(pid: int) -> tuple[float, float]:
    """GB of a process: resident, and proportional."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return sizes.get("Rss:", 0) * 1024 / 1e9, sizes.get("Pss:", 0) * 1024 / 1e9


def watched(
    command: Sequence[str],
    seconds: float,
    log: Path,
    env: Mapping[str, str] | None = None,
    until: Callable[[], bool] | None = None,
) -> Taken:
    """Run a command in a session of its own, its output into `log`; kill all of it after so many seconds, or when told."""
    log.parent.mkdir(parents=True, exist_ok=True)
    gpu, start, cut_off = GPU(), time.monotonic(), False
    with log.open("a", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=dict(env or os.environ), start_new_session=True
        )
        host = Host(process.pid)
        while process.poll() is None:
            if time.monotonic() - start > seconds or (until is not None and until()):
                cut_off = process.poll() is None
                end(process)
                break
            time.sleep(0.05)
    taken = time.monotonic() - start
    host.stop()
    gpu.stop()
    busy = sum(sample[0] for sample in gpu.samples) / len(gpu.samples) / 100 if gpu.samples else None
    idle = sum(sample[0] == 0 for sample in gpu.samples) * EVERY_MS / 1000 if gpu.samples else None
    peak = max(sample[1] for sample in gpu.samples) * 2**20 / 1e9 if gpu.samples else None
    return Taken(process.returncode, taken, cut_off, busy, idle, peak, host.rss, host.pss, host.most)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that has a session of its own, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def shared_gpu(folder: Path, wanted: bool) -> Iterator[bool]:
    """Let processes share the GPU at the same time (CUDA's Multi-Process Service) inside; says whether they do."""
    if not wanted or shutil.which(MPS) is None:
        yield False
        return
    places = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
    for place in places.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    env = os.environ | places
    started = subprocess.run([MPS, "-d"], env=env, check=False).returncode == 0
    probe = [sys.executable, "-c", "import torch; torch.ones(1, device='cuda').sum().item()"]
    before = dict(os.environ)
    try:
        works = started and subprocess.run(probe, env=env, check=False, timeout=60).returncode == 0
        if works:
            os.environ.update(places)
        yield works
    finally:
        if started:
            subprocess.run([MPS], input="quit\n", text=True, env=env, check=False, timeout=30)
        os.environ.clear()
        os.environ.update(before)


def facts() -> dict[str, Any]:
    """The machine: processor, cores, memory, GPU, driver, versions."""
    import torch

    from prerank_paper.benchmark.work import processor_name

    found: dict[str, Any] = {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "system": platform.release(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "mps": shutil.which(MPS) is not None,
    }
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["triton"] = None
    if shutil.which(QUERY[0]):
        # not asked of torch, which would take a place on the device to find out
        command = [QUERY[0], "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        found["memory"] = meminfo.read_text().splitlines()[0].partition(":")[2].strip()
    return found
