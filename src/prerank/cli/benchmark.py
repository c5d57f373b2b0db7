"""`prerank benchmark`: the paper's experiments, resumable, on one device or a Dask cluster."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from prerank.studies.benchmark.run import Executor, State, Summary


class Protocol(StrEnum):
    """How models are trained; each is judged in both ways."""

    EXACT = "exact"
    AS_PUBLISHED = "as-published"
    BOTH = "both"


class ExecutorName(StrEnum):
    """Where fleets are trained."""

    LOCAL = "local"
    DASK = "dask"


QUICK = {"datasets": ("diabetes",), "strengths": (10.0,), "seeds": (0, 42)}
QUICK_EPOCHS, QUICK_REPLICATES = 5, 99


def benchmark(
    datasets: Annotated[list[str] | None, typer.Option(help="Names, by commas or repeated [all at hand].")] = None,
    preranks: Annotated[list[str] | None, typer.Option(help="Pre-ranks to penalise [the paper's seven].")] = None,
    strengths: Annotated[list[str] | None, typer.Option(help="Strengths [0.01,0.1,1,5,10].")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Seeds of split and model [0,42,866,12,4].")] = None,
    protocol: Annotated[
        Protocol, typer.Option(help="How to train; every model is judged in both ways.")
    ] = Protocol.BOTH,
    device: Annotated[str, typer.Option(help="Where to compute, such as cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder of the results; an interrupted run is resumed there.")] = Path(
        "prerank-benchmark"
    ),
    executor: Annotated[
        ExecutorName, typer.Option(help="Train here, or send fleets to a Dask cluster.")
    ] = ExecutorName.LOCAL,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler [a local cluster].")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes of the local Dask cluster.")] = 2,
    joint: Annotated[bool, typer.Option("--joint", help="Both protocols in one fleet: quicker on a GPU.")] = False,
    timing: Annotated[bool, typer.Option(help="Time a step by pre-rank, with 100 and 1,000 draws.")] = True,
    max_epochs: Annotated[int, typer.Option(min=1, help="Epochs at most.")] = 5000,
    replicates: Annotated[int, typer.Option(min=19, help="Replicates of a test.")] = 999,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Time between checkpoints.")] = 60.0,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept the MEPS data use agreement.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A trial in under a minute: one embedded dataset.")] = False,
) -> None:
    """Run the paper's experiments: every dataset by pre-rank by strength by seed. Killed, it resumes where it was."""
    from prerank.studies.benchmark.plan import AS_PUBLISHED, EXACT, Grid  # torch loads slowly
    from prerank.studies.benchmark.run import InTurn, OnDask, run_benchmark
    from prerank.studies.benchmark.work import Settings
    from prerank.studies.tables import require_folder

    console = Console()
    names = {Protocol.EXACT: (EXACT,), Protocol.AS_PUBLISHED: (AS_PUBLISHED,), Protocol.BOTH: (EXACT, AS_PUBLISHED)}
    try:
        asked = {
            "datasets": _items(datasets, str),
            "preranks": _items(preranks, str),
            "strengths": _items(strengths, float),
            "seeds": _items(seeds, int),
        }
        chosen = (QUICK if quick else {}) | {name: value for name, value in asked.items() if value}
        if "datasets" not in chosen:
            chosen["datasets"] = at_hand(accept_licence)
        grid = Grid(**chosen, protocols=names[protocol], joint=joint)  # type: ignore[arg-type]
        settings = Settings(
            device,
            n_replicates=min(replicates, QUICK_REPLICATES) if quick else replicates,
            max_epochs=min(max_epochs, QUICK_EPOCHS) if quick else max_epochs,
            checkpoint_seconds=checkpoint_seconds,
            accept_licence=accept_licence,
        )
        where: Executor = OnDask(scheduler, workers) if executor is ExecutorName.DASK else InTurn()
        show = _Progress(console)
        with show:
            summary = run_benchmark(
                grid,
                require_folder(out),
                settings,
                where,
                timing=timing and not quick,
                progress=show,
                on_fleet=show.fleet,
            )
    except (ValueError, ImportError) as error:
        console.print(f"[red]{escape(str(error))}[/red]")
        raise typer.Exit(2) from error
    _tell(console, summary, out)
    if summary.failed:
        raise typer.Exit(1)


def _items(given: list[str] | None, kind: Callable[[str], object]) -> tuple[object, ...]:
    """Values of an option that was given by commas, repeatedly, or both."""
    try:
        return tuple(kind(item.strip()) for text in given or () for item in text.split(",") if item.strip())
    except ValueError as error:
        raise ValueError(f"{', '.join(given or ())} cannot be read: {error}") from None


def at_hand(accept_licence: bool) -> tuple[str, ...]:
    """The paper's datasets that need no download, smallest first, without those whose agreement is not accepted."""
    from prerank.data import PAPER_DATASETS
    from prerank.data.sources import Elsewhere, locate

    found = [
        entry
        for entry in PAPER_DATASETS
        if not isinstance(locate(entry), Elsewhere) and (accept_licence or not entry.agreement)
    ]
    if not found:
        raise ValueError(
            "none of the paper's datasets is at hand: set PRERANK_DATA, run `prerank datasets fetch NAME`, "
            "name some with --datasets (they are downloaded), or try --quick"
        )
    return tuple(entry.name for entry in sorted(found, key=lambda entry: entry.n_rows))


def _tell(console: Console, summary: "Summary", out: Path) -> None:
    before = f", {summary.before} were there already" if summary.before else ""
    console.print(f"{summary.finished} fleets finished{before}. Results in {out}.", highlight=False)
    for name, error in summary.failed:
        console.print(f"[red]failed:[/red] {escape(name)}: {escape(error)}", highlight=False)
    if not summary.failed:
        console.print(f"Tables and figures: prerank report {out}", highlight=False)


class _Progress:
    """What the user sees: fleets done and time left, and inside a fleet the models done. On no terminal, a line each."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.whole = self.bar.add_task("fleets", total=None, note="")
        self.models = self.bar.add_task("models of this fleet", total=None, note="", visible=False)

    def __enter__(self) -> "_Progress":
        self.bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.bar.stop()

    def fleet(self, state: "State") -> None:
        """A fleet has ended, or the first is about to start."""
        ended, total = len(state.done) + len(state.failed), len(state.done) + len(state.failed) + len(state.pending)
        note = f"{_left(state.seconds_left())}" if state.pending else ""
        self.bar.update(self.whole, completed=ended, total=total, note=note)
        if not self.console.is_terminal and state.last is not None:
            word = "failed" if state.last in state.failed else "done"
            self.console.print(
                f"{state.last.name} {word} in {state.marks[-1] - state.marks[-2]:.0f} s; {ended} of {total} fleets. {note}",
                highlight=False,
            )

    def start(self, n_models: int, max_epochs: int) -> None:
        self.total = n_models
        self.bar.update(self.models, completed=0, total=n_models, note="", visible=True)

    def advance(self, epoch: int, n_active: int, best_score: object) -> None:
        self.bar.update(self.models, completed=self.total - n_active, note=f"epoch {epoch}")

    def stop(self) -> None:
        self.bar.update(self.models, note="judging")


def _left(limits: tuple[float, float] | None) -> str:
    """An honest time to completion: a range, since early stopping cannot be foreseen."""
    if limits is None:
        return "time left not known before the first fleet has finished"
    low, high = (_duration(seconds) for seconds in limits)
    return f"{low} left" if low == high else f"{low} to {high} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
