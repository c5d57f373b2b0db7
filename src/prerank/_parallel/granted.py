"""How many threads a call may compute in."""

import math
import os
from functools import cache
from pathlib import Path

import torch

from prerank._parallel.operations import here

VARIABLE = "PRERANK_NUM_THREADS"


def granted_threads() -> int:
    """The least of what the machine, the caller and the environment grant.

    That is the processors that this process may run on, a container's share of them (rounded up), what
    `torch.get_num_threads()` says to the caller, and the variables `OMP_NUM_THREADS` and `PRERANK_NUM_THREADS`. In a
    thread that is one of several at the same work it is one.
    """
    if here.shares:
        return 1
    limits = [_processors(), torch.get_num_threads() if here.given is None else here.given]
    quota = cgroup_quota()
    if quota is not None:
        limits.append(math.ceil(quota))
    openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number for each level of nesting
    if openmp.isdecimal():
        limits.append(int(openmp))
    own = os.environ.get(VARIABLE, "").strip()
    if own:
        if not own.isdecimal() or int(own) < 1:
            raise ValueError(f"{VARIABLE}={own!r}; it is a whole number of at least 1, or not set")
        limits.append(int(own))
    return max(1, min(limits))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cgroup_quota(mounted: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Processors that the control groups of this process (a container, a job) may use at a time; None without a limit."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # version 2 has one tree and no controllers here, version 1 a tree for each or for several
        for top in [mounted / controllers, mounted / "cpu"] if controllers else [mounted]:
            inside = top / path.lstrip("/")
            # a limit holds for all groups below; a container may be told the host's path, and see its own group as the top
            quotas += [_quota(folder) for folder in (inside, *inside.parents) if folder.is_relative_to(top)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """The limit of one control group: in `cpu.max` by version 2, in two files by version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None  # -1 stands for no limit
    except (OSError, ValueError, ZeroDivisionError):  # "max" stands for no limit, too
        return None
