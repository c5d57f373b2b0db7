"""The HTML report of a check, or of the checks of several groups: what the page says, and the numbers that it draws."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from prerank._wording import counted, printable
from prerank.diagnosis.advice import advice
from prerank.diagnosis.explanations import meanings
from prerank.diagnosis.result import LEVEL, Check
from prerank.plotting.page import report_page
from prerank.plotting.panels import (
    CrossedHeat,
    GroupHeat,
    PreRankPanel,
    ProjectionPanel,
    highest_density,
    ratio,
    widest_deviation,
)
from prerank.plotting.tables import p_text

MOST_BYTES = 2_000_000
MOST_GROUPS = 500  # rows of the table of groups
_MOST_CELLS = 4_000  # of a table of two labels
_PICTURED = 6_000  # projections of all groups whose pictures fit into one page
_PER_PRERANK = 200  # rows of one pre-rank
_LONGEST = 200  # signs of a name from the data
_SHADES = (1.25, 2.0, 3.0, 5.0, 10.0)  # PCE over expected from which a cell is darker


class Described(NamedTuple):
    """What a report is told beside the result: its title, how to repeat it, and a date if it is to have one."""

    title: str
    command: str
    python: str
    date: str


class Pictured(NamedTuple):
    """A check with its pictures, under the name of its group."""

    group: str
    n_cases: int
    panels: Sequence[PreRankPanel]


def report_of_one(result: Check, described: Described) -> str:
    """The page of a single check."""
    panels = result.panels()
    facts = [
        ("cases", f"{result.n_cases:,}"),
        *([("blocks", f"{result.n_blocks:,}")] if result.n_blocks is not None else []),
        ("pre-ranks", str(len(panels))),
        ("projections", f"{len(result.projections):,}"),
        *_simulated(result),
    ]
    context = {
        **_common(described, result.calibrated, result.verdict, [result], int(result.calibrated is False)),
        "sentences": [clipped(sentence, 1000) for sentence in result.sentences.values()],
        "crossed": None,
        "facts": facts,
        "rows": _rows(panels),
        "groups": [],
        "groups_note": "",
        "pictures_note": "",
        "preranks": [],
        "words": _words(panels),
        "notes": [clipped(note, 500) for note in result.notes],
    }
    return report_page(context, _drawn([Pictured("", result.n_cases, panels)]))


def report_of_groups(
    results: Sequence[Check],
    heat: GroupHeat,
    readings: Sequence[str],
    calibrated: bool | None,
    verdict: str,
    described: Described,
    sentences: Sequence[str] = (),
    notes: Sequence[str] = (),
    crossed: CrossedHeat | None = None,
) -> str:
    """The page of the checks of several groups, each with a short reading; `sentences`, `notes` are about all of them."""
    shown = heat.order[:MOST_GROUPS].tolist()
    sizes = np.cumsum([len(results[k].projections) for k in shown])
    room = _PICTURED
    first = shown[: int((sizes <= room).sum())]
    drawn = [Pictured(heat.groups[k], results[k].n_cases, results[k].panels()) for k in first]
    while True:
        pictured = int((sizes <= room).sum())
        context = {
            **_common(described, calibrated, verdict, results, int((heat.adjusted_p_value <= LEVEL).sum())),
            "sentences": [clipped(sentence, 1000) for sentence in sentences],
            "crossed": None if crossed is None or crossed.ratios.size > _MOST_CELLS else _crossed(crossed),
            "facts": [
                ("groups", f"{len(results):,}"),
                ("cases", f"{sum(one.n_cases for one in results):,}"),
                ("pre-ranks", str(len(heat.preranks))),
                *_simulated(results[0]),
            ],
            "rows": [],
            "groups": [
                _group_row(heat, k, results[k].n_cases, readings[k], place if place < pictured else None)
                for place, k in enumerate(shown)
            ],
            "groups_note": _of_all(len(shown), len(results), "groups are listed", "the table of the result has all"),
            "pictures_note": _of_all(pictured, len(results), "groups have pictures here", "check others by themselves"),
            "preranks": [clipped(name) for name in heat.preranks],
            "words": _words([panel for one in drawn[:pictured] for panel in one.panels]),
            "notes": [*(clipped(note, 500) for note in notes), *_notes_of_groups(results)],
        }
        page = report_page(context, _drawn(drawn[:pictured]))
        if len(page.encode()) <= MOST_BYTES or pictured == 0:
            return page
        room //= 2


def _common(
    described: Described,
    calibrated: bool | None,
    verdict: str,
    checks: Sequence[Check],
    failing: int,
) -> dict[str, Any]:
    headline, mark, rest = verdict.partition(": ")
    return {
        "title": clipped(described.title) or "Is the joint forecast calibrated?",
        "state": {None: "none", True: "good", False: "bad"}[calibrated],
        "headline": clipped(headline + (mark.strip() if rest else ""), 500),
        "verdict": clipped(rest, 4000),
        "advice": [item._asdict() for item in advice(checks, calibrated, failing)],
        "command": clipped(described.command, 4000),
        "python": clipped(described.python or _python(checks), 8000),
        "date": clipped(described.date),
        "version": version("prerank"),
        "versions": _versions(),
        "several": any(len(one.projections) > len(one.table) for one in checks),
    }


def clipped(text: Any, longest: int = _LONGEST) -> str:
    """Text from the data: control characters spelt out, and cut where it is very long."""
    plain = printable(str(text))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def _python(checks: Sequence[Check]) -> str:
    call = checks[0].call or "check(y, forecast)"
    if len(checks) == 1:
        return f'result = {call}\nresult.to_html("report.html")'
    return (
        f'checks = {{group: {call} for group, (y, forecast) in groups.items()}}\ngrouped(checks).to_html("report.html")'
    )


def _versions() -> str:
    others = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    return f"Made by prerank {version('prerank')} with {others}, Python {platform.python_version()}."


def _simulated(result: Check) -> list[tuple[str, str]]:
    found = [] if result.n_replicates is None else [("replicates", f"{result.n_replicates:,}")]
    return found if result.seed is None else [*found, ("seed", str(result.seed))]


def _of_all(some: int, every: int, what: str, remedy: str) -> str:
    if some == every:
        return ""
    return f"{some:,} of {every:,} {what}, those with the smallest adjusted p-values; {remedy}."


def _notes_of_groups(results: Sequence[Check]) -> list[str]:
    """Notes of all groups, each once, with the number of groups that have it."""
    counts: dict[str, int] = {}
    for one in results:
        for note in one.notes:
            counts[note] = counts.get(note, 0) + 1
    many = len(results)
    said = [clipped(note, 400) + ("" if n == many else f" ({counted(n, 'group')})") for note, n in counts.items()]
    return said if len(said) <= 30 else [*said[:30], f"and {len(said) - 30} other notes"]


def _rows(panels: Sequence[PreRankPanel]) -> list[dict[str, Any]]:
    """The table of pre-ranks, with a bar for each PCE on a common scale."""
    most = max(max(panel.pce, panel.expected_pce, panel.high if panel.high == panel.high else 0.0) for panel in panels)
    unit = 118.0 / most if most > 0 else 0.0
    return [
        {
            "name": clipped(panel.name),
            "failed": panel.failed,
            "bar": f"{unit * panel.pce:.1f}",
            "tick": f"{unit * panel.expected_pce:.1f}",
            "whisker": None if np.isnan(panel.low) else (f"{unit * panel.low:.1f}", f"{unit * panel.high:.1f}"),
            "pce": f"{panel.pce:.4f}",
            "expected": f"{panel.expected_pce:.4f}",
            "ratio": _times(ratio(panel.pce, panel.expected_pce)),
            "interval": _interval(panel, "–"),
            "p": p_text(panel.p_value),
            "adjusted": p_text(panel.adjusted_p_value),
            "reading": clipped(panel.reading, 1000),
        }
        for panel in panels
    ]


def _interval(panel: PreRankPanel, none: str) -> str:
    return none if np.isnan(panel.low) else f"{panel.low:.3f}–{panel.high:.3f}"


def _times(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "–"


def _group_row(heat: GroupHeat, k: int, n_cases: int, reading: str, details: int | None) -> dict[str, Any]:
    """A row of the heat map, with the place of the group's pictures if it has some."""
    worst = float(np.nanmax(heat.ratios[k]))
    return {
        "name": clipped(heat.groups[k]) or "(empty)",
        "cases": f"{n_cases:,}",
        "adjusted": p_text(heat.adjusted_p_value[k]),
        "p": f"{heat.adjusted_p_value[k]:.6g}",
        "worst": f"{min(worst, 1e9):.6g}",
        "place": k,
        "failed": bool(heat.adjusted_p_value[k] <= LEVEL),
        "cells": [
            {"text": _times(value), "shade": sum(value >= bound for bound in _SHADES), "failed": marked}
            for value, marked in zip(heat.ratios[k], heat.failed[k], strict=True)
        ],
        "details": details,
        "reading": clipped(reading, 300),
    }


def _crossed(heat: CrossedHeat) -> dict[str, Any]:
    """Groups as a table of two labels."""
    return {
        "titles": [clipped(title) for title in heat.titles],
        "columns": [clipped(name) for name in heat.columns],
        "rows": [
            {
                "name": clipped(name) or "(empty)",
                "cells": [
                    {
                        "text": _times(value),
                        "shade": sum(value >= bound for bound in _SHADES) if value == value else 0,
                        "failed": bool(marked),
                    }
                    for value, marked in zip(ratios, failed, strict=True)
                ],
            }
            for name, ratios, failed in zip(heat.rows, heat.ratios, heat.failed, strict=True)
        ],
    }


def _words(panels: Sequence[PreRankPanel]) -> list[dict[str, Any]]:
    readings = [(clipped(panel.name), one.reading) for panel in panels for one in panel.projections]
    return [
        {
            "name": word,
            "bars": [(f"{24 - 11 * height:.1f}", f"{11 * height:.1f}") for height in shape.heights],
            "sentence": shape.sentence,
            "found": ", ".join(found),
        }
        for word, shape, found in meanings(readings)
    ]


class _Strings:
    """Every text once, by its number: names and readings recur in every group."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: Any, longest: int = _LONGEST) -> int:
        return self._numbers.setdefault(clipped(text, longest), len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def _drawn(groups: Sequence[Pictured]) -> dict[str, Any]:
    """The numbers that the script draws, as whole numbers: densities in hundredths, curves in ten-thousandths."""
    projections = [one for group in groups for panel in group.panels for one in panel.projections]
    places = _levels_kept(len(projections))
    most = _PER_PRERANK
    if len(projections) > _PICTURED:
        most = max(1, min(most, _PICTURED // sum(len(group.panels) for group in groups)))
    strings = _Strings()
    found = [
        {
            "n": strings(group.group or "(empty)"),
            "size": counted(group.n_cases, "case"),
            "panels": [_panel(panel, places, strings, most) for panel in group.panels],
        }
        for group in groups
    ]
    levels = groups[0].panels[0].levels[places] if groups else np.zeros(0)
    return {
        "levels": _whole(levels, 1000),
        "top": round(highest_density(projections), 3),
        "limit": round(widest_deviation(projections), 4),
        "words": strings.all(),
        "groups": found,
    }


def _levels_kept(n_projections: int) -> np.ndarray:
    """Which of 100 levels a curve is drawn at: fewer where there are very many curves."""
    count = 100 if n_projections <= 400 else 50 if n_projections <= 1500 else 20
    return np.round(np.linspace(0, 99, count)).astype(int)


def _panel(panel: PreRankPanel, places: np.ndarray, strings: _Strings, most: int) -> dict[str, Any]:
    sizes = [ratio(one.pce, one.expected_pce) for one in panel.projections]
    kept = sorted(np.argsort(sizes, kind="stable")[::-1][:most].tolist())
    common = panel.projections[kept[0]].half_width
    alike = all(np.array_equal(panel.projections[k].half_width, common) for k in kept)
    return {
        "n": strings(panel.name),
        "r": strings(panel.reading, 1000),
        **({"t": strings(panel.sentence, 1000)} if panel.sentence else {}),
        "f": int(panel.failed),
        **({"u": 1} if panel.by_rank else {}),
        "e": _short(panel.pce),
        "x": _short(panel.expected_pce),
        "p": _short(panel.adjusted_p_value),
        "i": _interval(panel, ""),
        "b": _whole(np.array(panel.band), 1000),
        "s": kept.index(panel.worst),
        "k": len(panel.projections),
        **({"w": _whole(common[places], 10_000)} if alike else {}),
        "q": [_projection(panel.projections[k], places, strings, not alike) for k in kept],
    }


def _projection(one: ProjectionPanel, places: np.ndarray, strings: _Strings, with_band: bool) -> dict[str, Any]:
    return {
        "n": strings(one.name),
        "r": strings(one.reading),
        "e": _short(one.pce),
        "x": _short(one.expected_pce),
        "p": _short(one.adjusted_p_value),
        "h": _whole(one.heights, 100),
        "d": _whole(one.deviation[places], 10_000),
        **({"w": _whole(one.half_width[places], 10_000)} if with_band else {}),
    }


def _whole(values: np.ndarray, factor: int) -> list[int]:
    return np.round(factor * values).astype(int).tolist()


def _short(value: float) -> float:
    return float(f"{value:.4g}")
