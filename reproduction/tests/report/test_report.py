"""The report writes everything, says what is missing, and refuses what it cannot use."""

import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from typer.testing import CliRunner

from prerank.calibration import reliability_band
from prerank.plotting.style import BLUE
from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.cli.main import app
from prerank_paper.report.calibration_figures import reliability_figure
from prerank_paper.report.summaries import EXACT_PROTOCOL
from prerank_paper.report.write import write_report

LINK = re.compile(r"\]\(([^)]+)\)")


@pytest.mark.slow
def test_the_figures_are_rendered(make, tmp_path):
    files = write_report(make(["house"], seeds=(0, 1), strengths=(10.0,)), tmp_path)
    pictures = [file for file in files if file.suffix == ".png"]
    assert len(pictures) == 2 + 2 * (2 + 2 + 1 + 1)
    assert all(file.stat().st_size > 10_000 for file in pictures)


@pytest.mark.parametrize("margins", [True, False])
def test_below_each_prerank_stand_the_margins_of_its_own_model(results, margins):
    curves = results.curves
    own = (curves["dataset"] == "households") & (curves["evaluation"] == "exact")
    own &= curves["training"].isin(["none", "exact"])
    if not margins:  # as earlier releases kept them
        own &= curves["penalty"].isin(["none"]) | (curves["penalty"] == curves["prerank"])
    figure = reliability_figure(EXACT_PROTOCOL, "households", curves[own], reliability_band(1000))
    rows = [figure.axes[start : start + 7] for start in range(0, len(figure.axes), 7)]
    assert len(rows) == (2 if margins else 1)
    if margins:
        hdr = rows[1][PRERANKS.index("HDR")]
        (median,) = (line.get_ydata() for line in hdr.lines if line.get_color() == BLUE)
        shade = max(hdr.collections, key=lambda part: tuple(part.get_facecolor()[0][:3]) == to_rgb(BLUE)).get_paths()[0]
        kept = curves[own & (curves["penalty"] == "HDR") & (curves["prerank"] == "marginal")]
        kept = kept.assign(deviation=kept["frequency"] - kept["level"])
        assert len(kept.groupby(["seed", "projection"])) == 3 * 4
        by_level = kept.groupby("level")["deviation"]
        assert median == pytest.approx(by_level.median().to_numpy())
        heights = shade.vertices[:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((by_level.min().min(), by_level.max().max()))


@pytest.fixture(scope="module")
def quick():
    """Figures are drawn but not rendered: an empty file in their place."""

    def touch(figure, path):
        files = [Path(f"{path}.{suffix}") for suffix in ("png", "svg")]
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            file.touch()
        return files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prerank_paper.report.files.save_figure", touch)
        patch.setattr("matplotlib.figure.Figure.draw_without_rendering", lambda figure: None)
        yield


@pytest.fixture(scope="module")
def written(results, quick, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return out, write_report(results, out, {"taxi.exact": "out of memory"})


class TestWhole:
    def test_all_files_exist_and_are_linked(self, written):
        out, files = written
        assert files[0] == out / "index.md"
        assert all(file.exists() for file in files)
        text = files[0].read_text(encoding="utf-8")
        assert all((out / target).exists() for target in LINK.findall(text))
        shown = [file for file in files if file.suffix == ".png" or ("tables" in file.parts and file.suffix == ".md")]
        assert all(str(file.relative_to(out)) in text for file in shown)

    @pytest.mark.parametrize("protocol", ["exact", "as-published"])
    def test_the_papers_tables_are_written_for_both_protocols(self, written, protocol):
        out, _ = written
        for name in ("pce_baseline", "pce_regularised", "nll_regularised", "energy_score_regularised", "pce_marginal_all",
                     "pce_pca_all", "selected_lambda", "pce_tuned", "nll_baseline", "energy_score_baseline"):  # fmt: skip
            for suffix in ("csv", "md", "tex"):
                assert (out / "tables" / protocol / f"{name}.{suffix}").stat().st_size > 0

    def test_exact_tests_are_kept_per_seed(self, written):
        out, _ = written
        tests = pd.read_csv(out / "tables" / "exact" / "pce_baseline_tests.csv")
        assert len(tests) == 20 * 3
        assert {"low", "high", "p_value", "corrected", "expected_pce"} <= set(tests.columns)

    def test_the_numbers_one_must_know_come_first(self, written):
        _, files = written
        lines = files[0].read_text(encoding="utf-8").splitlines()
        assert [text[:2] for text in lines[2:6]] == ["1.", "2.", "3.", "4."]
        assert "of 20" in lines[2]

    def test_failures_are_named_and_nothing_is_missed_that_was_not_run(self, written):
        _, files = written
        text = files[0].read_text(encoding="utf-8")
        assert "taxi.exact: out of memory" in text
        assert "Not made" not in text
        assert "births2" not in text.replace("have not births1, births2", "")

    def test_every_picture_has_a_caption(self, written):
        _, files = written
        lines = files[0].read_text(encoding="utf-8").splitlines()
        pictures = [place for place, text in enumerate(lines) if text.startswith("![")]
        assert len(pictures) == sum(file.suffix == ".png" for file in files)
        assert all(lines[place + 2].startswith("*") and lines[place + 2].endswith("*") for place in pictures)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "reduced",
    [
        {"seeds": (0,)},
        {"trainings": ("exact",)},
        {"trainings": ("as published",), "timings": False},
        {"strengths": (1.0,)},
        {"strengths": ()},
        {"datasets": ("wage",)},
    ],
)
def test_what_was_not_run_is_said_and_nothing_breaks(make, tmp_path, reduced):
    settings = {"datasets": ("house",), "seeds": (0, 1)} | reduced
    files = write_report(make(**settings), tmp_path)
    text = files[0].read_text(encoding="utf-8")
    assert all(file.exists() for file in files)
    assert "nan" not in text.lower()
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert not re.search(r"(strength|strength 10|tuned|energy score|NLL) \| 0 \|", summary), "a row without a cell"
    assert "| –" not in summary.partition("## What it took")[0], "an empty column"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("trained", "other"), [("exact", "as published"), ("as published", "exactly")])
def test_a_protocol_that_nobody_asked_for_is_not_called_missing(make, tmp_path, trained, other):
    write_report(make(["house"], seeds=(0, 1), trainings=(trained,), timings=False), tmp_path)
    summary, index = ((tmp_path / name).read_text(encoding="utf-8") for name in ("summary.md", "index.md"))
    assert "Not made" not in index
    assert "unknown" not in summary
    assert "no such model" not in summary
    assert f"rained {other} at strength" not in summary


@pytest.mark.usefixtures("quick")
def test_a_failed_model_is_named(make, tmp_path):
    made = make(["house"], seeds=(0, 1))
    models = made.models.copy()
    gone = (models["penalty"] == "HDR") & (models["seed"] == 1)
    models.loc[gone, "error"] = "the loss was not finite"
    records = made.records[~((made.records["penalty"] == "HDR") & (made.records["seed"] == 1))]
    files = write_report(made._replace(models=models, records=records), tmp_path)
    assert "Model house, HDR, strength 10, seed 1" in files[0].read_text(encoding="utf-8")
    assert "†" in (tmp_path / "tables" / "exact" / "pce_regularised.md").read_text(encoding="utf-8")


def test_results_without_numbers_are_refused(results, tmp_path):
    with pytest.raises(ValueError, match="run `prerank-paper benchmark` again"):
        write_report(results._replace(records=results.records[:0]), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("quick")
def test_the_command_reads_kept_results(make, kept, tmp_path):
    kept(make(["house"], seeds=(0, 1)), tmp_path)
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report" / "index.md").exists()


def test_an_empty_folder_is_refused_with_what_to_do(tmp_path):
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 2
    assert "prerank-paper benchmark" in result.output
