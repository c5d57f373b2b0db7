"""What takes long says so in a terminal, and nothing anywhere else."""

import io
import sys
import time

import pytest
import torch

from prerank import GaussianMixture, Recalibrator
from prerank._progress import _Lines, shown_if_slow
from prerank.recalibration import Affine, HighestDensityRegions, Tilt, recalibrate_over_time
from prerank.recalibration.densities import density_scale


class Terminal(io.StringIO):
    def isatty(self):
        return True


def as_terminal(monkeypatch, slow=0.0):
    """Standard error as a terminal that shows what takes any time at all; pytest takes it back before every test."""
    for name, value in {"TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("prerank._progress.SLOW", slow)
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def until(stream, text):
    """Wait for what another thread writes."""
    end = time.monotonic() + 30
    while text not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.02)
    return text in stream.getvalue()


def test_work_inside_of_work_has_a_line_of_its_own(monkeypatch):
    terminal = as_terminal(monkeypatch)
    with shown_if_slow("outer", "fits") as tell:
        tell(3, 8)
        assert until(terminal, "outer")
        assert until(terminal, "3/8 fits")
        with shown_if_slow("inner", "steps"):
            assert until(terminal, "inner")
    shown = terminal.getvalue()
    with shown_if_slow("another") as tell:
        assert until(terminal, "another")
    assert "inner" not in terminal.getvalue()[len(shown) :]


def test_quick_work_shows_nothing(monkeypatch):
    terminal = as_terminal(monkeypatch, slow=60.0)
    with shown_if_slow("outer") as tell, shown_if_slow("inner"):
        tell(1, 2)
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_is_told_nothing(monkeypatch):
    monkeypatch.setattr("prerank._progress.SLOW", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown_if_slow("outer") as tell:
        tell(1, 2)
        time.sleep(0.2)
    assert stream.getvalue() == ""


def test_an_error_takes_the_bar_away(monkeypatch):
    terminal = as_terminal(monkeypatch)

    def fail():
        with shown_if_slow("outer"):
            assert until(terminal, "outer")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with shown_if_slow("next"):  # another one can be shown
        assert until(terminal, "next")


def forecast(n_cases):
    return GaussianMixture(torch.zeros(n_cases, 1), torch.zeros(n_cases, 1, 2), torch.eye(2).expand(n_cases, 1, 2, 2))


class Waiting:
    """A step that is done when its name can be read."""

    def __init__(self, terminal, text):
        self.terminal, self.text = terminal, text

    def fit(self, forecast, held_out):
        assert until(self.terminal, self.text)
        return Affine().fit(forecast, held_out)


def test_fits_transforms_walks_and_regions_say_what_they_do(monkeypatch):
    terminal = as_terminal(monkeypatch)
    y = 1 + forecast(60).ensemble(1).members[:, 0]
    Recalibrator(steps=[Affine(), Waiting(terminal, "1/2 steps")]).fit(forecast(60), y)
    assert "fitting" in terminal.getvalue()
    assert "Waiting" in terminal.getvalue()
    walk = Recalibrator(steps=[Waiting(terminal, "recalibrating over time")])
    monkeypatch.setattr("prerank.recalibration.over_time.clone", lambda one: one)
    recalibrate_over_time(y, forecast(60), range(60), recalibrator=walk, every=20, first=20)
    assert "0/2 fits" in terminal.getvalue()
    for what in ("fitting regions", "finding regions"):

        def slow(*given, what=what, **options):
            assert until(terminal, what)
            return density_scale(*given, **options)

        monkeypatch.setattr("prerank.recalibration.regions.density_scale", slow)
        if what == "fitting regions":
            regions = HighestDensityRegions(n_draws=50).fit(forecast(60), y)
        else:
            regions.region(forecast(5), 0.5)


def test_parts_of_the_cases_are_counted(monkeypatch):
    as_terminal(monkeypatch)
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    y = 1 + forecast(30).ensemble(1).members[:, 0]
    told = []
    line = _Lines._told
    monkeypatch.setattr(_Lines, "_told", lambda self, place, state: (told.append(state), line(self, place, state)))
    Recalibrator(steps=[Tilt(n_draws=16, n_reference=20, pool=40)]).fit(forecast(30), y)
    counts = [done for _, unit, done, total in told if unit == "parts of the cases" and total == 30]
    assert counts[:30] == list(range(1, 31))
    assert ("Tilt", "", 0, None) in told
