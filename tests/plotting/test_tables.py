"""Tables are text, wherever they are printed."""

import io

from prerank.plotting import render


def test_a_table_is_written_to_its_stream_in_a_notebook_too(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    stream = io.StringIO()
    render(["pre-rank", "PCE"], [["location", "0.1"]], stream, ["a note"])
    assert stream.getvalue().split() == ["pre-rank", "PCE", "location", "0.1", "a", "note"]
