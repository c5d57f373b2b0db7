"""What the pages say of the report is what was recorded."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def records(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / "report" / name).open() as stream:
        return list(csv.DictReader(stream))


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text(encoding="utf-8"))


def test_the_cost_of_a_report_is_that_of_the_record():
    (row,) = records("cost.csv")
    assert (row["cases"], row["targets"], row["pre-ranks"]) == ("10000", "16", "7")
    said = f"is a file of {row['report, MB']} MB and takes {row['report, s']} s on one core, after {row['check, s']} s"
    assert said in page("guide/check.md")


def test_the_bands_of_histograms_held_as_often_as_the_decision_says():
    alone, blocks = records("bands.csv")
    assert int(alone["outside"]) <= 0.05 * int(alone["forecasts"])
    assert int(blocks["outside"]) <= 0.05 * int(blocks["forecasts"])
    said = f"Of {alone['forecasts']} calibrated forecasts with three targets {alone['outside']} left it somewhere"
    assert said in page("decisions/27-report.md")
    assert f"of {blocks['forecasts']} with dependent cases {blocks['outside']};" in page("decisions/27-report.md")
