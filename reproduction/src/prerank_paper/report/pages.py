"""The pages of the report: the numbers that one must know, the summary, and the index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from prerank._wording import counted
from prerank_paper.benchmark.plan import PUBLISHED_STRENGTH
from prerank_paper.benchmark.records import Results
from prerank_paper.protocols import EXACT
from prerank_paper.report.agreement import shares
from prerank_paper.report.effects import (
    by_dataset,
    calibration_changes,
    calibration_table,
    counts,
    degradation_table,
    score_changes,
)
from prerank_paper.report.findings import (
    computing_table,
    model_minutes,
    overstated,
    price,
    price_table,
    rejection_table,
    rejections,
    smallest_p_values,
)
from prerank_paper.report.strengths import all_along, strength_table, tightness_table, trend_table
from prerank_paper.report.summaries import (
    EXACT_PROTOCOL,
    PROTOCOLS,
    Protocol,
    Tuned,
    baseline,
    datasets_run,
    failed_models,
    penalised,
)
from prerank_paper.report.text_tables import frame_table, markdown, of_what_ran

_NO_PENALTY = "No model with a penalty was run."
_QUARTILES = ("lower quartile", "median", "upper quartile")
_PRICE = {f"energy score, {name}": "+.1%" for name in _QUARTILES} | {f"NLL, {name}": "+.3f" for name in _QUARTILES}
_STRENGTHS = {"strength": "g", "PCE": ".3f", "energy score": "+.2%", "NLL": "+.4f"}
_PCE = dict.fromkeys(("median before", "median after", "baseline", "trained exactly", "trained as published"), ".3f")
_COMPUTING = {"n_train": ",", "steps": ",", "ms per step": ".1f", "seconds": ",.0f", "peak GiB": ".1f"}
_COMPUTING |= {"seconds per model": ".2f", "authors' ratio": ",.0f"}
_MINUTES = {"model_steps": ",.0f", "minutes": ".3f", "authors_minutes": ".1f", "ratio": ",.0f"}


class Picture(NamedTuple):
    """A picture, and what to see in it."""

    file: Path
    caption: str


@dataclass(frozen=True)
class Section:
    """A piece of the index: a sentence, pictures, Markdown tables by title, and what could not be made."""

    title: str
    text: str
    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Path] | None = None
    absent: Sequence[str] = ()


def must_know(results: Results, compared: pd.DataFrame) -> list[str]:
    """Four sentences: was there miscalibration, does either penalty help, what does it cost, is the paper reproduced."""
    return [_how_much(results), _how_good(results), _how_costly(results), _how_faithful(compared)]


def _how_much(results: Results) -> str:
    exact = rejections(baseline(results, EXACT_PROTOCOL), smallest_p_values(results))
    both = overstated(results)
    if both.empty or exact.cells == 0:
        return "**Miscalibration of the baselines: unknown**, since no baseline was tested exactly."
    undecided = f" ({exact.unresolved} more are undecided)" if exact.unresolved else ""
    return (
        f"**{exact.rejected} of {exact.cells}** baseline cells are miscalibrated by an exact test (5 %), "
        f"{exact.after_holm} after Holm's adjustment{undecided}. Above the 95 % quantile of what a calibrated forecast "
        f"scores lie {int(both['above_null'].sum())} of {len(both)} when evaluated exactly and "
        f"{int(both['called_miscalibrated'].sum())} as published."
    )


def _how_good(results: Results) -> str:
    smallest, said = smallest_p_values(results), []
    for protocol in PROTOCOLS:
        manner = _manner(protocol)
        after = rejections(penalised(results, Protocol(protocol.training, EXACT)), smallest)
        if after.cells == 0:
            continue
        found = counts(calibration_changes(results, protocol.training))
        said.append(
            f"Trained {manner} at strength {PUBLISHED_STRENGTH:g}, **{after.rejected} of {after.cells}** cells are "
            f"miscalibrated by the exact test; the bias-corrected PCE falls in {found['better']} and rises in "
            f"{found['worse']}."
        )
    return " ".join(said) or "**Effect of a penalty: unknown**, since no model with strength 10 was tested exactly."


def _how_costly(results: Results) -> str:
    said = []
    for protocol in PROTOCOLS:
        cells = score_changes(results, protocol, "energy score")
        if cells.empty:
            continue
        energy, nll = counts(cells), counts(score_changes(results, protocol, "nll"))
        cost = price(results, protocol)
        said.append(
            f"Trained {_manner(protocol)} at strength {PUBLISHED_STRENGTH:g}, the energy score is worse in "
            f"**{energy['worse']} of {energy['cells']}** cells (median {100 * cost['energy_score'].median():+.1f} %) and "
            f"NLL in {nll['worse']} (median {cost['nll'].median():+.3f})."
        )
    return " ".join(said) or "**Cost of a penalty: unknown**, since no model with strength 10 was run."


def _manner(protocol: Protocol) -> str:
    return "exactly" if protocol.training == EXACT else "as published"


def _how_faithful(compared: pd.DataFrame) -> str:
    counted = shares(compared)
    counted = counted[counted["table"] == "pce_baseline"]
    for data, words in (("exact", "on datasets with exactly the paper's values"), ("all", "on all datasets")):
        for row in counted[(counted["data"] == data) & (counted["cells"] > 0)].to_dict("records"):
            return (
                f"**{row['agree']} of {row['cells']}** baseline cells, evaluated as published, lie within 20 % of the "
                f"paper's {words}; the median deviation is {100 * row['median deviation']:.1f} %."
            )
    return "**Agreement with the paper: unknown**, since no cell of the paper was evaluated as published."


def summary_page(results: Results, numbers: Sequence[str], tuned: Tuned) -> str:
    """What the benchmark says, in counts and costs."""
    parts = ["# Summary", *(f"{place}. {text}" for place, text in enumerate(numbers, start=1))]
    parts += ["## Miscalibrated cells", _miscalibrated(results, tuned)]
    parts += ["## Does the penalty calibrate?", _calibrates(results, tuned)]
    parts += ["## Does the penalty degrade predictive performance?", _degrades(results, tuned)]
    parts += ["## Does more strength calibrate more, and cost more?", _more_strength(results)]
    parts += ["## Do the datasets lie closer together?", _tighter(results)]
    parts += ["## What the penalty costs", _costs(results, tuned)]
    parts += ["## What it took to compute", _computing(results)]
    return "\n\n".join(parts) + "\n"


def _miscalibrated(results: Results, tuned: Tuned) -> str:
    table = rejection_table(results, tuned)
    notes = [
        "A cell is one dataset and one pre-rank, evaluated exactly; its p-value is twice the median over seeds; level 5 %",
        "The tests take test rows for independent. Those of series (air, blogdata) are not quite",
        "A model trained as published with dependency on two targets is evaluated by scale, which ranks alike",
        "At the tuned strength a cell may be its own baseline, where the rule chose strength 0",
        "A simulated p-value that is one of the two smallest is simulated again with ten times the replicates",
    ]
    if int(table["unresolved"].sum()):
        notes.append(
            "Unresolved: Holm's adjustment loses these cells although no model has a smaller p-value for that pre-rank, as "
            "a rule because the simulation can give none; more replicates could decide"
        )
    named = table.rename(columns={"after_holm": "after Holm"})
    text = markdown(frame_table(of_what_ran(named), "Cells that an exact test calls miscalibrated", {}, notes))
    both = overstated(results)
    if both.empty:
        return text
    wrongly = both[both["called_miscalibrated"] & ~both["is_miscalibrated"]]
    missed = both[~both["called_miscalibrated"] & both["is_miscalibrated"]]
    return (
        f"{text}\nBy one rule for both evaluations (the mean over seeds lies above the 95 % quantile of what a calibrated "
        f"forecast of one seed scores), the published evaluation calls {int(both['called_miscalibrated'].sum())} of "
        f"{len(both)} baseline cells miscalibrated and the exact one {int(both['above_null'].sum())}. For {len(wrongly)} of "
        f"the former the exact test does not reject. It rejects {len(missed)} that the published evaluation does not call."
    )


def _calibrates(results: Results, tuned: Tuned) -> str:
    notes = [
        "Bias-corrected exact PCE, mean over seeds, of cells whose own pre-rank has an exact baseline",
        "p: two-sided paired t-test over seeds",
    ]
    changes = of_what_ran(calibration_table(results, tuned))
    if changes.empty:
        return _NO_PENALTY
    table = markdown(frame_table(changes, "Change of the exact PCE", _PCE, notes))
    where = ["Medians over pre-ranks of the bias-corrected exact PCE at strength 10; better: cells where it falls"]
    return f"{table}\n{markdown(frame_table(of_what_ran(by_dataset(results)), 'Where it helps', _PCE, where))}"


def _degrades(results: Results, tuned: Tuned) -> str:
    notes = [
        "A cell's change is that of the median seed; p: two-sided paired t-test over seeds, so that by chance one cell in "
        "forty would be called worse and one better",
        "Scores judge the mixture itself, however PITs are computed",
    ]
    changes = of_what_ran(degradation_table(results, tuned))
    if changes.empty:
        return _NO_PENALTY
    return markdown(frame_table(changes, "Change of the scores", {}, notes))


def _more_strength(results: Results) -> str:
    along = all_along(results)
    table = strength_table(along)
    if table.empty:
        return "No model with a penalty on one pre-rank was run."
    notes = [
        "Medians over cells: bias-corrected PCE if evaluated exactly, the published PCE otherwise; changes of the energy "
        "score (relative) and of NLL against no penalty. Counts: cells on that side of no penalty",
    ]
    trends = [
        "Cells whose measure falls or rises with the strength, by the sign of Spearman's correlation over all strengths",
    ]
    parts = [
        frame_table(table, "By strength", _STRENGTHS, notes),
        frame_table(of_what_ran(trend_table(along)), "Trend", {}, trends),
    ]
    return "\n".join(markdown(part) for part in parts)


def _tighter(results: Results) -> str:
    table = of_what_ran(tightness_table(results))
    if table.empty:
        return "It needs baselines and models of strength 10."
    notes = [
        "Before, after: interquartile range over datasets of the PCE at strength 10. Seeds: median over datasets of the "
        "standard deviation over seeds",
    ]
    return markdown(frame_table(table, "Spread of the PCE", dict.fromkeys(table.columns[4:], ".4f"), notes))


def _costs(results: Results, tuned: Tuned) -> str:
    notes = [
        "Energy score relative, NLL absolute; above zero is worse. Quartiles over datasets of the median seed: where one "
        "test row lies far outside the training range (house), a mean is that row's likelihood",
    ]
    parts = []
    for protocol in PROTOCOLS:
        for what, strengths in ((f"strength {PUBLISHED_STRENGTH:g}", None), ("tuned", tuned[protocol])):
            table = price_table(price(results, protocol, strengths))
            title = f"Change against the baseline, trained and evaluated {_manner(protocol)}, {what}"
            if not table.empty:
                parts.append(markdown(frame_table(table, title, _PRICE, notes)))
    return "\n".join(parts) or _NO_PENALTY


def _computing(results: Results) -> str:
    notes = [
        "A fleet trains all its models at once; seconds per model are its time divided by its models. Compiling kernels "
        "and capturing graphs, which come once for a number of targets and once for a size of the fleet, are included",
        "Training: the protocol of the penalised models of the fleet; none: baselines alone",
        "Sessions: how often it was begun; a resumed fleet's seconds are those up to each checkpoint that it went on from",
        "Authors' ratio: their recorded minutes for one model (mean over pre-ranks, S = 100, their GPU) over ours",
    ]
    if "processor" in results.fleets:
        notes.append(f"Processors of the hosts: {'; '.join(sorted(results.fleets['processor'].dropna().unique()))}")
    table = computing_table(results)
    if "beside" in table:
        notes.append("Beside: so many fleets shared the device, so that seconds are those of a fleet among others")
    text = markdown(frame_table(table, "Fleets", _COMPUTING, notes))
    minutes = model_minutes(results)
    if minutes.empty:
        return f"{text}\nNo training step was timed by pre-rank."
    notes = [
        "Minutes: time of a step divided by the models of the fleet, times the mean steps of that penalty's models "
        "(strength 10) until their early stop",
        "Authors: minutes of one model on their GPU, from the result files of their repository; ratio: theirs over ours. "
        "Not like for like: another GPU, and one model at a time where a fleet trains many",
    ]
    return f"{text}\n{markdown(frame_table(minutes, 'Minutes per model, by pre-rank', _MINUTES, notes))}"


def index_page(
    results: Results,
    numbers: Sequence[str],
    summary: Path,
    sections: Sequence[Section],
    failures: Mapping[str, str],
    out: Path,
) -> str:
    """The page that leads to everything: numbers first, then every picture and table with a sentence."""
    lines = ["# Benchmark report", "", *(f"{place}. {text}" for place, text in enumerate(numbers, start=1)), ""]
    lines += [_what_ran(results), "", f"Counts, costs and computing times: [summary]({relpath(summary, out)}).", ""]
    for section in sections:
        if not (section.pictures or section.tables or section.absent):
            continue
        lines += [f"## {section.title}", "", section.text, ""]
        for picture in section.pictures:
            lines += [f"![{picture.file.stem.replace('-', ' ')}]({relpath(picture.file, out)})", ""]
            lines += [f"*{picture.caption}*", ""]
        for title, table in (section.tables or {}).items():
            body = table.read_text(encoding="utf-8")
            lines += [f"<details><summary>{title} ({relpath(table, out)})</summary>", "", body, "</details>", ""]
        lines += [f"* Not made: {text}." for text in section.absent]
        lines += [""] if section.absent else []
    return "\n".join(lines + _what_failed(results, failures)) + "\n"


def _what_ran(results: Results) -> str:
    ran = datasets_run(results)
    seeds = sorted(results.models["seed"].unique())
    trained = [
        name for name in (protocol.training for protocol in PROTOCOLS) if name in set(results.models["training"])
    ]
    return (
        f"{counted(len(ran), 'dataset')} ({', '.join(ran.index)}), {counted(len(results.models), 'model')}, "
        f"{counted(len(seeds), 'seed')}; penalties trained: {', '.join(trained) or 'none'}. "
        "A protocol names both how models were trained and how they were evaluated; baselines have no penalty and "
        "serve both."
    )


def _what_failed(results: Results, failures: Mapping[str, str]) -> list[str]:
    models = failed_models(results)
    diverged = int(results.models["diverged"].astype(bool).sum())
    lines = ["## What failed", ""]
    lines += [f"* Fleet {name}: {error}" for name, error in failures.items()]
    for row in models.itertuples(index=False):
        lines.append(
            f"* Model {row.dataset}, {row.penalty}, strength {row.strength:g}, seed {row.seed} ({row.training}): {row.error}"
        )
    if diverged:
        lines.append(f"* {diverged} models diverged; those with a sound epoch before are evaluated at their best one.")
    return lines if len(lines) > 2 else [*lines, "Nothing."]
