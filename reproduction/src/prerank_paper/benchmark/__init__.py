"""The whole paper in one command: the grid of datasets, pre-ranks, strengths and seeds, and the report on it."""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank_paper.benchmark.executors import Beside, Executor, InTurn, OnDask
    from prerank_paper.benchmark.plan import AS_PUBLISHED, EXACT, Grid
    from prerank_paper.report.write import report_folder
    from prerank_paper.benchmark.run import State, Summary, run_benchmark
    from prerank_paper.benchmark.work import Settings

_HOMES = {
    "AS_PUBLISHED": "plan",
    "EXACT": "plan",
    "Beside": "executors",
    "Executor": "executors",
    "Grid": "plan",
    "InTurn": "executors",
    "OnDask": "executors",
    "Settings": "work",
    "State": "run",
    "Summary": "run",
    "run_benchmark": "run",
    "report_folder": "report",
}
__getattr__, __dir__ = public_names("prerank_paper.benchmark", _HOMES)
