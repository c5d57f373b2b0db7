"""`prerank-paper benchmark`: the paper's experiments, resumable, on one device or a Dask cluster."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from prerank._progress import bar_of
from prerank._wording import counted
from prerank.cli.outputs import results_folder, shown_path
from prerank_paper.cli.device import device_called

if TYPE_CHECKING:
    from prerank_paper.benchmark.executors import Executor
    from prerank_paper.benchmark.run import State, Summary


class Protocol(StrEnum):
    """How models are trained; each is evaluated in both ways."""

    EXACT = "exact"
    AS_PUBLISHED = "as-published"
    BOTH = "both"
    NONE = "none"


class ExecutorName(StrEnum):
    """Where fleets are trained."""

    LOCAL = "local"
    DASK = "dask"


QUICK = {"datasets": ("diabetes",), "strengths": (10.0,), "seeds": (0, 42)}
QUICK_EPOCHS, QUICK_REPLICATES = 5, 99


def benchmark(
    datasets: Annotated[
        list[str] | None, typer.Option(help="Names, by commas or repeated.", show_default="all available locally")
    ] = None,
    preranks: Annotated[
        list[str] | None, typer.Option(help="Pre-ranks to penalise.", show_default="the paper's seven")
    ] = None,
    strengths: Annotated[list[str] | None, typer.Option(help="Strengths.", show_default="0.01,0.1,1,5,10")] = None,
    seeds: Annotated[
        list[str] | None, typer.Option(help="Seeds of split and model.", show_default="0,42,866,12,4")
    ] = None,
    protocol: Annotated[
        Protocol, typer.Option(help="How to train; all are evaluated both ways. None: baselines alone.")
    ] = Protocol.BOTH,
    device: Annotated[str, typer.Option(help="Where to compute, such as cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder of the results; an interrupted run is resumed there.")] = Path(
        "prerank-benchmark"
    ),
    executor: Annotated[
        ExecutorName, typer.Option(help="Train here, or send fleets to a Dask cluster.")
    ] = ExecutorName.LOCAL,
    scheduler: Annotated[
        str | None, typer.Option(help="With dask: address of a scheduler.", show_default="a local cluster")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="With dask: processes of the local cluster.", show_default="2")
    ] = None,
    initialisations: Annotated[int, typer.Option(min=1, help="Baselines for each seed, by other initial weights.")] = 1,
    processes: Annotated[
        int, typer.Option(min=1, help="Fleets trained beside each other here; they may share a GPU.")
    ] = 1,
    joint: Annotated[bool, typer.Option("--joint", help="Both protocols in one fleet: quicker on a GPU.")] = False,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing", help="Time a step by pre-rank, 100 and 1,000 draws.", show_default="unless quick"
        ),
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs at most.", show_default="5000; quick: 5")
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(min=19, help="Replicates of a test.", show_default="999; quick: 99")
    ] = None,
    eval_rows: Annotated[int, typer.Option(min=2, help="Validation and test rows to evaluate on, at most.")] = 20_000,
    judged_rows: Annotated[int | None, typer.Option(hidden=True)] = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Time between checkpoints.")] = 60.0,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept the MEPS data use agreement.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A trial in under a minute: one embedded dataset.")] = False,
) -> None:
    """Run the paper's experiments: every dataset by pre-rank by strength by seed. Killed, it resumes where it was."""
    from prerank_paper.benchmark.plan import Grid  # torch loads slowly
    from prerank_paper.benchmark.run import run_benchmark
    from prerank_paper.benchmark.work import Settings
    from prerank_paper.datasets.sources import available_locally
    from prerank_paper.protocols import AS_PUBLISHED, EXACT

    if judged_rows is not None:
        raise ValueError(f"--judged-rows is called --eval-rows; give --eval-rows {judged_rows}")
    console = Console()
    names = {
        Protocol.EXACT: (EXACT,),
        Protocol.AS_PUBLISHED: (AS_PUBLISHED,),
        Protocol.BOTH: (EXACT, AS_PUBLISHED),
        Protocol.NONE: (),
    }
    try:
        asked = {
            "datasets": _items("--datasets", datasets, str),
            "preranks": _items("--preranks", preranks, str),
            "strengths": _items("--strengths", strengths, float),
            "seeds": _items("--seeds", seeds, int),
        }
        chosen = (QUICK if quick else {}) | {name: value for name, value in asked.items() if value}
        if "datasets" not in chosen:
            chosen["datasets"] = available_locally(accept_licence)
        grid = Grid(**chosen, protocols=names[protocol], joint=joint, initialisations=initialisations)  # type: ignore[arg-type]
        settings = Settings(
            device,
            n_replicates=replicates or (QUICK_REPLICATES if quick else 999),
            max_epochs=max_epochs or (QUICK_EPOCHS if quick else 5000),
            checkpoint_seconds=checkpoint_seconds,
            accept_licence=accept_licence,
            eval_rows=eval_rows,
        )
        where = _executor(executor, scheduler, workers, device, processes)
        show = _Progress(console)
        with results_folder(out), show:
            summary = run_benchmark(
                grid,
                out,
                settings,
                where,
                timing=not quick if timing is None else timing,
                progress=show,
                on_fleet=show.fleet,
            )
    except KeyboardInterrupt:
        console.print(
            f"Interrupted. The same command goes on from what {shown_path(out)} holds.", highlight=False, soft_wrap=True
        )
        raise typer.Exit(130) from None
    except ChildProcessError as error:
        console.print(f"[red]{error}[/]", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    _tell(console, summary, out)
    if summary.failed:
        raise typer.Exit(1)


def _executor(
    name: ExecutorName, scheduler: str | None, workers: int | None, device: str, processes: int
) -> "Executor":
    from prerank_paper.benchmark.executors import InProcesses, InTurn, OnDask

    if name is ExecutorName.DASK:
        if processes > 1:
            raise ValueError("--processes is for training here; a cluster has --workers")
        if scheduler is not None and workers is not None:
            raise ValueError("--workers is for a local cluster; the scheduler's workers are its own")
        return OnDask(scheduler, workers or 2)  # its workers may have a device that is not here
    for option, value in (("--scheduler", scheduler), ("--workers", workers)):
        if value is not None:
            raise ValueError(f"{option} goes with --executor dask")
    device_called(device)
    return InProcesses(processes) if processes > 1 else InTurn()


def _items(option: str, given: list[str] | None, kind: Callable[[str], object]) -> tuple[object, ...]:
    """Values of an option that was given by commas, repeatedly, or both; none if it was not given at all."""
    texts = [item.strip() for text in given or () for item in text.split(",")]
    if not all(texts):
        raise ValueError(f"{option} {','.join(given or ())} has an empty name or number; give one, or leave it out")
    try:
        return tuple(kind(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"{option} {','.join(given or ())} cannot be read: {error}") from None


def _tell(console: Console, summary: "Summary", out: Path) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    done = f"{counted(summary.finished, 'fleet')} finished" if summary.finished or not summary.before else ""
    before = f"{counted(summary.before, 'fleet')} of earlier runs kept" if summary.before else ""
    if not done and not summary.failed:
        done = "Nothing left to do"
    say(f"{', '.join(filter(None, (done, before)))}. Results in {shown_path(out)}.")
    for name, error in summary.failed:
        say(f"[red]failed:[/] {escape(name)}: {escape(error)}")
    if summary.failed:
        say("A fleet that failed is tried again by the same command.")
    else:
        say(f"Tables and figures: prerank-paper report {shown_path(out)}")


class _Progress:
    """What the user sees: fleets done and time left, and inside a fleet the models done. On no terminal, a line each."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = bar_of("{task.fields[note]}", console=console, disable=not console.is_terminal)
        self.whole = self.bar.add_task("fleets", total=None, note="", visible=False)
        self.part = self.bar.add_task("", total=None, note="", visible=False)
        self.n_models, self.n_timings = 0, 0
        self.state: State | None = None

    def __enter__(self) -> "_Progress":
        self.bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.bar.update(self.part, visible=False)
        self.bar.stop()

    def fleet(self, state: "State") -> None:
        """A fleet has ended, the first is about to start, or a timing run is."""
        if state.timings:
            self._timing([run.name for run in state.timings])
            return
        ended = len(state.done) + len(state.failed)
        total = ended + len(state.pending)
        self.state = state
        self.bar.update(self.part, visible=False)
        self.bar.update(self.whole, completed=ended, total=total, note=_left(state), visible=total > 0)
        if not self.console.is_terminal and state.last is not None:
            word = "failed" if state.last in state.failed else "done"
            taken = _duration(state.marks[-1] - state.marks[-2])
            told = (f"{state.last.name} {word} after {taken}; {ended} of {counted(total, 'fleet')}", _left(state))
            self._line(", ".join(filter(None, told)))

    def _timing(self, left: list[str]) -> None:
        self.n_timings = max(self.n_timings, len(left))
        done = self.n_timings - len(left)
        if not self.console.is_terminal:
            self._line(f"timing {left[0]}, {done + 1} of {self.n_timings}")
        elif done == 0:
            self.bar.reset(self.part, total=self.n_timings, description="timing", note=left[0], visible=True)
        else:
            self.bar.update(self.part, completed=done, note=left[0])

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def start(self, n_models: int, max_epochs: int) -> None:
        if self.state is not None and self.state.pending:  # a timing run has no fleet
            self.n_models, name = n_models, self.state.pending[0].name
            self.bar.reset(self.part, total=n_models, description=name, note="models", visible=True)

    def advance(self, epoch: int, n_active: int, best_score: object) -> None:
        self.bar.update(self.part, completed=self.n_models - n_active, note=f"models, epoch {epoch}")
        if self.state is not None:
            self.bar.update(self.whole, note=_left(self.state))

    def stop(self) -> None:
        self.bar.update(self.part, completed=self.n_models, note="models, evaluating")


def _left(state: "State") -> str:
    """An honest time to completion: a range, since early stopping cannot be foreseen."""
    if not state.pending:
        return ""
    limits = state.seconds_left()
    if limits is None:
        return "time left not known yet"
    if limits[1] == 0:
        return "slower than the fleets before"
    low, high = (_duration(seconds) for seconds in limits)
    return f"{low} left" if low == high else f"{low} to {high} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
