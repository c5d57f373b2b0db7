"""Processes of this machine that work for this one, and end when it does."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread

import torch


def worker_pool(n_processes: int, niceness: int = 0) -> ProcessPoolExecutor:
    """A pool of fresh processes with as many threads as this one has: another number might round differently.

    Started afresh and not forked, since a device that is in use here cannot be used in a copy of this process.
    """
    given = torch.get_num_threads(), niceness
    return ProcessPoolExecutor(n_processes, get_context("spawn"), _begin, given)


def _begin(n_threads: int, niceness: int) -> None:
    Thread(target=_end_with_the_parent, daemon=True).start()
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    torch.set_num_threads(n_threads)


def _end_with_the_parent() -> None:
    """A process that is killed cannot end its workers; they would train on, and write where a resumed run does."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
