"""`prerank recalibrate`: files of forecasts and observations in, corrected forecasts out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from prerank._wording import counted, printable
from prerank.cli.fileoptions import (
    AsJson,
    Axes,
    Block,
    Case,
    Forecasts,
    Html,
    Joint,
    LeadUnits,
    Member,
    Members,
    Model,
    Observation,
    Observations,
    Plot,
    Preranks,
    Replicates,
    Seed,
    Target,
    Time,
    Title,
    Value,
    block_of,
    naming_of,
    preranks_named,
    require_inputs,
    require_preranks,
)
from prerank.cli.outputs import require_outputs, require_picture

FEWEST = 10  # blocks that cross-validation needs

if TYPE_CHECKING:
    from prerank.cli.cases import Read
    from prerank.diagnosis import Check, Comparison
    from prerank.io import Matched
    from prerank.recalibration import Recalibrator


def recalibrate(
    ctx: typer.Context,
    forecasts: Forecasts,
    observations: Observations = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Corrected forecasts, equally weighted draws, in a format by the suffix; of a hub a folder.",
        ),
    ] = ...,  # type: ignore[assignment]  # an option that must be given
    apply: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Other forecasts to correct.", show_default="the later cases of FORECASTS"),
    ] = None,
    apply_observations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Their observations, if known and not in that file: to judge by."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Share of cases, the first ones, to fit on; the rest judges.", show_default="0.5"),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Fit on cases before this block (or case), such as a date; the rest judges.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Fit again every N blocks (or cases), each time on what had been observed before.",
            show_default="one fit",
        ),
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Blocks (or cases) before a fit that are not observed yet, with --every."
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Learn from the last N observed blocks (or cases) alone, with --every."),
    ] = None,
    fits: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the fits of --every there; the same command then goes on from them."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=2, max=1_000_000, help="Draws of every case.", show_default="as many as members")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what was learnt from all cases: safetensors.")
    ] = None,
    load: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Correct FORECASTS by what --save kept; nothing is fitted.")
    ] = None,
    case: Case = None,
    member: Member = None,
    target: Target = None,
    joint: Joint = None,
    model: Model = None,
    value: Value = None,
    observation: Observation = None,
    axes: Axes = None,
    members: Members = None,
    time: Time = None,
    lead_units: LeadUnits = None,
    block: Block = None,
    prerank: Preranks = None,
    seed: Seed = 0,
    replicates: Replicates = 999,
    plot: Plot = None,
    html: Html = None,
    title: Title = None,
    as_json: AsJson = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="End with status 1 if the corrected forecast is miscalibrated.")
    ] = False,
) -> None:
    """Learn from past forecasts and their observations how they go wrong, and correct others.

    prerank recalibrate past.csv seen.csv --out corrected.csv   (fits on the first half, corrects the second)

    prerank recalibrate past.csv seen.csv --apply new.csv --out corrected.csv   (fits on all, corrects the new ones)

    prerank recalibrate hub --model a-csv --before 2025-01-18 --out corrected-hub --html report.html

    prerank recalibrate past.nc --block time --before 2024-07-01 --out corrected.nc

    prerank recalibrate past.csv seen.csv --block date --every 7 --delay 2 --out corrected.csv   (as time goes on)

    prerank recalibrate past.npz --save learnt.safetensors --out corrected.npz

    prerank recalibrate new.npz --load learnt.safetensors --out corrected.npz
    """
    _refuse_contradictions(apply, apply_observations, share, before, save, load)
    walk = _Walk.of(every, delay, window, fits, {"--apply": apply, "--save": save, "--load": load})
    is_hub = (forecasts / "model-output").is_dir()  # then --out is a folder
    outputs = {"--out": None if is_hub else out, "--save": save, "--plot": plot, "--html": html}
    require_outputs(outputs, (forecasts, observations, apply, apply_observations, load))
    require_inputs(forecasts, observations, apply, apply_observations, load)
    require_preranks(prerank)
    from prerank.cli.cases import Read  # torch and pandas load slowly
    from prerank.cli.repeating import command_line
    from prerank.io import read_forecasts, write_forecasts
    from prerank.io.write import require_output

    if plot is not None:
        require_picture(plot)
    if not is_hub:
        require_output(out)
    naming = naming_of(ctx.params)
    past = read_forecasts(forecasts, observations, naming, need_observations=load is None)
    _refuse_several(past)
    block = block_of(block, past)
    found = Read.of(past, block)
    other, like = None, past.layout
    if apply is not None:
        new = read_forecasts(apply, apply_observations, naming, need_observations=False)
        other, like = Read.of(new, block).with_targets(found.names, "those to learn from"), new.layout
    require_output(out, like)
    preranks = preranks_named(prerank, found.found.y.shape[1])
    task = _Task(preranks, draws, seed, replicates, like, ctx.params["block"] is None, [])
    if load is not None:
        result = task.loaded(load, found)
    elif walk is not None:
        result = task.walked(found, share, before, walk)
    else:
        result = task.fitted(found, other, share, before, save is not None)
    result = result._replace(
        notes=list(dict.fromkeys([*past.notes, *result.notes, *task.said, *result.corrected.notes]))
    )
    if result.comparison is None and (html or plot):
        raise ValueError(
            "nothing that was corrected has been observed, so there is no report; leave out --html and --plot"
        )
    write_forecasts(out, result.corrected, naming, like=like)
    if plot is not None:
        result.judgement.plot(plot)
    if html is not None:
        result.judgement.to_html(html, title=title or f"Is {out.name} calibrated?", command=command_line(ctx))
    if save is not None:
        result.recalibrator.save(save)
    typer.echo(result.document(out, seed) if as_json else printable(result.text(out)))
    if fail and result.comparison is not None and result.comparison.after.calibrated is False:
        raise typer.Exit(1)


def _refuse_several(found: "Matched") -> None:
    if found.by is not None:
        names = sorted({str(label) for label in found.columns[found.by]})
        raise ValueError(
            f"a correction is learnt for one {found.by}, not for {', '.join(names)} together; give one of them"
        )


def _about_awaited(n_cases: int) -> list[str]:
    return [f"{counted(n_cases, 'case')} not observed yet: corrected, and not judged by"] if n_cases else []


def _refuse_contradictions(apply: Any, seen: Any, share: Any, before: Any, save: Any, load: Any) -> None:
    if load is not None:
        fitting = {"--apply": apply, "--share": share, "--before": before, "--save": save}
        for name, given in fitting.items():
            if given is not None:
                raise ValueError(f"--load fits nothing, it corrects FORECASTS; leave out {name}")
    if seen is not None and apply is None:
        raise ValueError("--apply-observations belongs to --apply; say which forecasts were observed")
    if share is not None and before is not None:
        raise ValueError("--share and --before both say what is fitted on; give one of them")
    if share is not None and not 0 < share < 1:
        raise ValueError(f"--share {share:g}: a share of the cases between 0 and 1, such as 0.5")


class _Walk(NamedTuple):
    """How to fit again as time goes on."""

    every: int
    delay: int
    window: int | None
    folder: Path | None

    @classmethod
    def of(cls, every: Any, delay: Any, window: Any, folder: Any, others: dict[str, Any]) -> "_Walk | None":
        for name, given in {"--delay": delay, "--window": window, "--fits": folder}.items():
            if every is None and given is not None:
                raise ValueError(f"{name} belongs to --every, which says how often to fit again; give that, too")
        if every is None:
            return None
        for name, given in others.items():
            if given is not None:
                raise ValueError(
                    f"--every corrects the later cases of FORECASTS, each by what was known; leave out {name}"
                )
        return cls(every, delay or 0, window, folder)


class _Result(NamedTuple):
    """The corrected forecasts and what made them; the comparison is None where nothing was observed."""

    recalibrator: "Recalibrator"
    corrected: Any
    comparison: "Comparison | None"
    judged: str
    notes: list[str]

    @property
    def warning(self) -> str:
        """That the correction made cases worse which it was not fitted on; empty where it did not."""
        one = self.comparison
        if one is None or not self.recalibrator.changed_ or not one.score_after > one.score_before:
            return ""
        worse = f" (+{100 * (one.score_after / one.score_before - 1):.1f} %)" if one.score_before > 0 else ""
        return (
            "The correction made the forecast worse on the cases that judge it: the energy score rose from "
            f"{one.score_before:.4g} to {one.score_after:.4g}{worse}. Keep the raw forecast, or fit on more cases."
        )

    @property
    def judgement(self) -> "Check":
        """The check of the corrected forecasts, which says what it was before."""
        assert self.comparison is not None
        one = self.comparison
        sentences = {**({"correction": self.warning} if self.warning else {}), **one.after.sentences}
        before = f"before the correction: {one.before.verdict}"
        score = f"energy score {one.score_before:.4g} before and {one.score_after:.4g} after the correction"
        notes = (self.judged.rstrip(":"), before, score, *self.notes, *one.after.notes)
        return replace(one.after, notes=notes, sentences=sentences)

    def text(self, out: Path) -> str:
        n_cases, n_draws, n_targets = self.corrected.members.shape
        sizes = f"{counted(n_cases, 'case')}, {counted(n_draws, 'draw')}, {counted(n_targets, 'target')}"
        notes = [note for note in self.notes if note not in self.recalibrator.notes_]
        parts = [*([self.warning, ""] if self.warning else []), self.recalibrator.summary(), *notes, ""]
        if self.comparison is not None:
            parts += [self.judged, str(self.comparison), ""]
        return "\n".join([*parts, f"Written to {out}: {sizes}."])

    def document(self, out: Path, seed: int) -> str:
        from prerank.cli.document import of_comparison

        empty = {"before": None, "after": None, "energy_score": None}
        n_cases, n_draws, n_targets = self.corrected.members.shape
        found = {
            "changed": self.recalibrator.changed_,
            "warning": self.warning or None,
            "summary": self.recalibrator.summary().splitlines(),
            "notes": self.notes,
            "judged": None if self.comparison is None else self.judged,
            **(empty if self.comparison is None else of_comparison(self.comparison, seed)),
            "written": {"file": str(out), "cases": n_cases, "draws": n_draws, "targets": n_targets},
            "seed": seed,
        }
        return json.dumps(found, indent=2, allow_nan=False)


class _Task(NamedTuple):
    """How to fit, correct and judge."""

    preranks: Any
    draws: int | None
    seed: int
    replicates: int
    like: Any
    proposed: bool
    """Whether blocks are those that the kind of file proposes."""
    said: list[str]

    def fitted(
        self, found: "Read", other: "Read | None", share: float | None, before: str | None, keep: bool
    ) -> _Result:
        """Fit, and judge by observations of the forecasts to correct, or else by the later cases of the file."""
        usable, notes = found.usable()
        if other is not None and len(other.known):
            for name, given in (("--share", share), ("--before", before)):
                if given is not None:
                    raise ValueError(
                        "the forecasts of --apply have been observed, so they judge, and all of FORECASTS is fitted on; "
                        f"leave out {name}"
                    )
            whole = self._fit(usable)
            corrected = self._corrected(whole, other)
            return _Result(whole, corrected, self._compared(other, corrected), "Judged on --apply:", notes)
        earlier, observed = usable.split(share, before)
        later = found.with_awaited(observed)
        notes += _about_awaited(later.n_cases - observed.n_cases)
        trial = self._fit(earlier)
        corrected = self._corrected(trial, later)
        comparison = self._compared(later, corrected)
        first = f"Fitted on the first {counted(earlier.n_cases, 'case')} ({earlier.span})"
        judged = f"{first}, judged on the rest ({observed.span}):"
        final = self._fit(usable) if other is not None or keep else trial
        if other is not None:
            corrected = self._corrected(final, other)
        return _Result(final, corrected, comparison, judged, notes)

    def walked(self, found: "Read", share: float | None, before: str | None, walk: _Walk) -> _Result:
        """Correct the later cases of the file one after the other, each by a fit on what was known, and judge by them."""
        import numpy as np

        from prerank.cli.cases import AXES
        from prerank.forecasts import Ensemble
        from prerank.recalibration import Recalibrator, recalibrate_over_time

        usable, notes = found.usable()
        earlier, observed = usable.split(share, before)
        later = found.with_awaited(observed)
        notes += _about_awaited(later.n_cases - observed.n_cases)
        whole = found.rows(np.concatenate([earlier.places, later.places]))
        by_label = before is not None or whole.block is not None
        issued = recalibrate_over_time(
            whole.found.y,
            whole.found.members,
            whole.times.to_numpy() if by_label else np.arange(whole.n_cases),
            recalibrator=Recalibrator(self.preranks, seed=self.seed),
            every=walk.every,
            delay=walk.delay,
            window=walk.window,
            first=earlier.times.nunique() if by_label else earlier.n_cases,
            axes=AXES,
            member_names=whole.found.member_names,
            folder=walk.folder,
        )
        stayed = sum(isinstance(issue.forecast, Ensemble) for issue in issued.issues)
        drawn = issued.ensemble(None if stayed else self.draws, self.seed).members.cpu().numpy()
        corrected = self._written(later, drawn[np.argsort(issued.cases)], self.draws if stayed else None)
        n_fits = counted(len(issued.issues), "fit")
        first = f"the first on {counted(issued.issues[0].n_learnt, 'case')} ({earlier.span})"
        judged = f"{n_fits}, {first}, judged on the rest ({observed.span}):"
        notes.append(f"{n_fits} as time goes on; the summary is that of the last")
        return _Result(issued.issues[-1].recalibrator, corrected, self._compared(later, corrected), judged, notes)

    def loaded(self, path: Path, found: "Read") -> _Result:
        from prerank.recalibration import Recalibrator

        recalibrator = Recalibrator.load(path)
        if recalibrator.target_names_ is not None and found.has_names:
            found = found.with_targets(recalibrator.target_names_, "what was learnt")
        corrected = self._corrected(recalibrator, found)
        comparison = self._compared(found, corrected) if len(found.known) else None
        return _Result(recalibrator, corrected, comparison, "Judged on FORECASTS:", [])

    def _fit(self, cases: "Read") -> "Recalibrator":
        from prerank.cli.cases import AXES
        from prerank.recalibration import Recalibrator

        blocks = cases.blocks
        if self.proposed and blocks is not None and (n_blocks := len(set(blocks))) < FEWEST:
            blocks = None
            self.said.append(f"{n_blocks} blocks are too few to learn by, so runs of cases are taken in their place")
        recalibrator = Recalibrator(self.preranks, seed=self.seed)
        names = cases.found.member_names
        return recalibrator.fit(cases.found.members, cases.found.y, blocks=blocks, axes=AXES, member_names=names)

    def _corrected(self, recalibrator: "Recalibrator", cases: "Read") -> Any:
        from prerank.cli.cases import AXES
        from prerank.forecasts import equally_weighted_draws

        law = recalibrator.transform(cases.found.members, axes=AXES, member_names=cases.found.member_names)
        n_draws = self.draws or cases.found.members.shape[1]
        drawn = equally_weighted_draws(law, n_draws, self.seed, "corrected")
        return self._written(cases, drawn.members.cpu().numpy(), n_draws)

    def _written(self, cases: "Read", drawn: Any, n_draws: int | None) -> Any:
        """Cases with corrected members that their kind of file can hold."""
        from prerank.io.write import admissible

        members, notes = admissible(drawn, self.like)
        if n_draws is not None and members.shape[1] != n_draws:
            notes.append(f"--draws {n_draws}: the correction keeps the {members.shape[1]} members, which are no draws")
        return cases.found._replace(members=members, notes=tuple(notes))

    def _compared(self, cases: "Read", corrected: Any) -> "Comparison":
        from prerank.cli.cases import AXES
        from prerank.diagnosis import compare
        from prerank.forecasts import Ensemble

        judged = cases.rows(cases.known)
        return compare(
            judged.found.y,
            judged.found.members,
            Ensemble(corrected.members[cases.known]),
            self.preranks,
            axes=AXES,
            blocks=judged.blocks,
            seed=self.seed,
            n_replicates=self.replicates,
        )
