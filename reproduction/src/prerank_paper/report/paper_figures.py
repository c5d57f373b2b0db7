"""The pictures of a report, each with a caption that says what to see."""

from pathlib import Path

import pandas as pd

from prerank.calibration import reliability_band
from prerank_paper.benchmark.plan import NONE, PRERANKS, SEVERAL
from prerank_paper.benchmark.records import Results
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.report.before_after import before_after_figure
from prerank_paper.report.calibration_figures import (
    RELIABILITY_DATASETS,
    has_margins,
    null_figure,
    reliability_figure,
)
from prerank_paper.report.figures import reference_figure, story_figure, time_figure, trained_figure
from prerank_paper.report.files import save_picture, write_csv
from prerank_paper.report.findings import model_minutes, overstated, price
from prerank_paper.report.pages import Picture, Section
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.published_null import calibrated_range, statistic_null
from prerank_paper.report.summaries import (
    CELL,
    EXACT_PROTOCOL,
    Protocol,
    at_tuned_strength,
    baseline,
    datasets_run,
    penalised,
    summarise,
    was_trained,
)


def story(results: Results, out: Path, files: list[Path]) -> Section:
    """Do both evaluations say the same of the same models?"""
    both = overstated(results)
    title = "Exact versus as-published evaluation"
    if both.empty:
        return Section(title, "", absent=["the comparison of both evaluations: no baseline was evaluated under both"])
    write_csv(out / "tables" / "baseline_exact_versus_as_published.csv", both, files)
    picture = save_picture(story_figure(both), out / "figures" / "exact-versus-as-published", files)
    caption = (
        "Baseline PCE of every cell under both evaluations of the same models. Far above the diagonal, the apparent "
        "miscalibration comes from the evaluation; below it the evaluation hides some, as a sampler that is too narrow "
        "does where the model is too wide."
    )
    return Section(title, "", [Picture(picture, caption)])


def trained(results: Results, out: Path, files: list[Path]) -> Section:
    """Does either penalty calibrate, judged exactly?"""
    title = "What either penalty does to calibration"
    if not all(was_trained(results, training) for training in (EXACT, AS_PUBLISHED)):
        return Section(title, "")
    before = summarise(baseline(results, EXACT_PROTOCOL))
    after = [summarise(penalised(results, Protocol(training, EXACT))) for training in (EXACT, AS_PUBLISHED)]
    if before.empty or any(cells.empty for cells in after):
        return Section(
            title, "", absent=["the comparison of both penalties: it needs baselines and strength 10 of both"]
        )
    picture = save_picture(trained_figure(before, *after), out / "figures" / "trained", files)
    caption = (
        "Exact PCE of every cell before and after. Below the line a penalty calibrates. Trained as published, most "
        "models move above it, except where the baseline was far off."
    )
    return Section(title, "", [Picture(picture, caption)])


def paper_figures(
    results: Results, protocol: Protocol, cells: dict[str, pd.DataFrame], out: Path, files: list[Path]
) -> Section:
    """The paper's figures in one protocol."""
    folder = out / "figures" / protocol.folder
    pictures: list[Picture] = []
    absent: list[str] = []
    penalties = _strengths(results, protocol, cells) if was_trained(results, protocol.training) else []
    for name, strength, after, strengths in penalties:
        before = cells["pce_baseline"]
        before = before[before["dataset"].isin(set(after["dataset"]))]  # boxes compare like with like
        if before.empty or after.empty:
            absent.append(f"before and after at {strength}: it needs baselines and models of that strength")
            continue
        cost, level = price(results, protocol, strengths), float(before["expected_pce"].mean())
        picture = save_picture(
            before_after_figure(protocol, before, after, cost, level, strength), folder / name, files
        )
        caption = "Left: does the PCE fall to what is expected? Right: boxes above zero are what that costs."
        pictures.append(Picture(picture, caption))
    if cells["pce_baseline"].empty:
        absent.append("reference levels and null distributions: there is no baseline")
    else:
        pictures += _baselines(results, protocol, cells["pce_baseline"], folder, files)
    pictures += _reliability(results, protocol, folder, files)
    minutes = model_minutes(results)
    if (minutes["training"] == protocol.training).any():
        picture = save_picture(time_figure(minutes, protocol.training), folder / "training-time", files)
        dear = "HDR and copula" if protocol.training == EXACT else "The copula"
        caption = f"Which pre-ranks are dear to train with? {dear}, and the more so the more draws."
        pictures.append(Picture(picture, caption))
    text = "The paper's figures: orange before, blue after, grey expected under calibration."
    how = "exactly" if protocol.evaluation == EXACT else "as published"
    return Section(f"Figures, trained and evaluated {how}", text, pictures, absent=absent)


def _strengths(
    results: Results, protocol: Protocol, cells: dict[str, pd.DataFrame]
) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame | None]]:
    """Name of the file, strength in words, cells, strengths: 10, and those that were selected (the paper's, or ours)."""
    if protocol.evaluation == EXACT:
        words, chosen = "the tuned strengths", cells["selected_lambda"]
    else:
        words, chosen = "the paper's selected strengths", paper_table("selected_lambda")[[*CELL, "value"]]
    selected = summarise(at_tuned_strength(results, protocol, chosen))
    return [
        ("before-after", "strength 10", cells["pce_regularised"], None),
        ("before-after-selected", words, selected, chosen),
    ]


def _baselines(
    results: Results, protocol: Protocol, cells: pd.DataFrame, folder: Path, files: list[Path]
) -> list[Picture]:
    ran = datasets_run(results)
    levels = save_picture(reference_figure(protocol, cells, list(ran.index)), folder / "reference-levels", files)
    nulls = {str(name): statistic_null(protocol, int(n)) for name, n in ran["n_test"].items()}
    several = {name: int(ran["n_targets"][name]) for name in nulls}
    ranges = {
        (name, prerank): calibrated_range(null, several[name] if prerank in SEVERAL else 1)
        for name, null in nulls.items()
        for prerank in PRERANKS
    }
    expected = {name: null.mean for name, null in nulls.items()}
    figure = null_figure(protocol, baseline(results, protocol), expected, ranges)
    chance = save_picture(figure, folder / "nulls", files)
    return [
        Picture(levels, "How large is the PCE of a baseline beside the one expected under calibration?"),
        Picture(chance, "Is that more than chance? Baselines to the right of the grey range are miscalibrated."),
    ]


def _reliability(results: Results, protocol: Protocol, folder: Path, files: list[Path]) -> list[Picture]:
    """Of the datasets that the paper shows and that were run."""
    pictures = []
    n_test = datasets_run(results)["n_test"]
    for dataset in RELIABILITY_DATASETS:
        curves = results.curves
        right = (curves["dataset"] == dataset) & (curves["evaluation"] == protocol.evaluation)
        curves = curves[right & curves["training"].isin([NONE, protocol.training])]
        if curves.empty:
            continue
        figure = reliability_figure(protocol, dataset, curves, reliability_band(int(n_test[dataset])))
        caption = f"Where does {dataset} deviate, and does the penalty bring the lines into the grey band?"
        if has_margins(curves):
            caption += (
                " Below: the margins of the same models; calibrated jointly in one sense, are they so one by one?"
            )
        pictures.append(Picture(save_picture(figure, folder / f"reliability-{dataset}", files), caption))
    return pictures
