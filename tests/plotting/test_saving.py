"""Figures are written where they were asked for, or refused with what to give instead."""

import pytest
import torch

from prerank import Location, check
from prerank.plotting.style import new_figure, save_figure


@pytest.fixture
def figure():
    return new_figure(1, 1)


def test_without_a_suffix_there_are_two_files(figure, tmp_path):
    assert save_figure(figure, tmp_path / "new" / "one") == [
        tmp_path / "new" / f"one.{kind}" for kind in ("png", "svg")
    ]
    assert (tmp_path / "new" / "one.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "one.svg").read_text(encoding="utf-8")


def test_a_folder_is_refused_and_nothing_is_written_beside_it(figure, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder is a folder; give the name of a figure in it, such as .*figure\.png"):
        save_figure(figure, tmp_path / "folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_check_is_not_plotted_into_a_folder(tmp_path, monkeypatch):
    y, members = torch.randn(30, 2), torch.randn(30, 5, 2)
    result = check(y, members, [Location()])
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "folder", ".", ""):
        with pytest.raises(ValueError, match="is a folder"):
            result.plot(path)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_figure_may_stand_beside_a_folder_of_its_name(figure, tmp_path):
    (tmp_path / "june").mkdir()
    assert save_figure(figure, tmp_path / "june", ("png",)) == [tmp_path / "june.png"]


def test_a_failure_leaves_no_half_of_a_figure(figure, tmp_path, monkeypatch):
    def half(partial, **options):
        partial.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", half)
    with pytest.raises(OSError, match=r"No space left on device: .*one\.png"):
        save_figure(figure, tmp_path / "one")
    assert not list(tmp_path.iterdir())
