"""A file is written whole or not at all, and only where a file may stand."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from prerank._writing import whole_file, whole_folder


def put(path: Path, text: str = "new") -> None:
    with whole_file(path) as partial:
        partial.write_text(text)


def write_half(path: Path, failure: BaseException) -> None:
    path.write_text("half")
    raise failure


@pytest.fixture
def umask():
    """Set the umask of a test; the process has its own back afterwards."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_the_file_is_there_with_its_folders_and_nothing_beside_it(tmp_path):
    put(tmp_path / "a" / "b" / "file.txt")
    assert (tmp_path / "a" / "b" / "file.txt").read_text() == "new"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file.txt"]


def test_until_the_block_ends_the_old_file_stands(tmp_path):
    put(tmp_path / "file", "old")
    with whole_file(tmp_path / "file") as partial:
        partial.write_text("new")
        assert (tmp_path / "file").read_text() == "old"
        assert partial.parent == tmp_path  # a move is one step only within a disk
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("no"), OSError(errno.ENOSPC, "full")], ids=repr)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    put(tmp_path / "file", "old")
    with pytest.raises(type(failure)), whole_file(tmp_path / "file") as partial:
        write_half(partial, failure)
    assert (tmp_path / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize(
    ("call", "number"), [("fsync", errno.ENOSPC), ("open", errno.EROFS), ("replace", errno.EACCES)]
)
def test_an_error_of_the_system_names_the_file(tmp_path, monkeypatch, call, number):
    def fails(*_):
        raise OSError(number, os.strerror(number), "a temporary name")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(OSError) as caught:
            put(tmp_path / "file")
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "file"))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path):
    """A limit on the size of files is the full disk that every user can have: the write itself fails."""
    resource = pytest.importorskip("resource", reason="limits of a process are a matter of Unix")
    code = (
        "import resource, sys; from prerank._writing import whole_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with whole_file(sys.argv[1]) as partial: partial.write_bytes(bytes(100_000))"
    )
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"[Errno {errno.EFBIG}]" in done.stderr
    assert str(tmp_path / "file") in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002, 0o277])
def test_permissions_are_those_that_the_umask_allows(tmp_path, umask, mask):
    umask(mask)
    put(tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_a_writer_that_makes_its_own_file_changes_no_permissions(tmp_path, umask):
    with whole_file(tmp_path / "file") as partial:
        other = partial.with_name("other")
        other.write_text("new")
        other.chmod(0o600)  # as safetensors does
        other.replace(partial)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_the_file_that_is_replaced_lends_its_permissions(tmp_path, umask):
    put(tmp_path / "file", "old")
    (tmp_path / "file").chmod(0o640)
    put(tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    put(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_refused_and_stays(tmp_path):
    """As a device would be; no test may put the machine's own at risk."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a device or a pipe, not a file; give the name of a file"):
        put(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_to_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(ValueError, match="not a file"):
        put(tmp_path / "link")


def test_a_folder_is_refused_with_what_to_give(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; give the name of a file, such as .*result"):
        put(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder_to_write_into(tmp_path):
    put(tmp_path / "file", "old")
    with pytest.raises(ValueError, match=r"because .*file is a file"):
        put(tmp_path / "file" / "deeper" / "result")
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("protected", ["folder", "file"])
def test_what_is_read_only_is_refused_and_stays(tmp_path, protected):
    put(tmp_path / "file", "old")
    (tmp_path / "file" if protected == "file" else tmp_path).chmod(0o500)
    try:
        with pytest.raises(PermissionError) as caught:
            put(tmp_path / "file")
        assert caught.value.filename == str(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "old"
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_is_whole_or_absent(tmp_path):
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "new") as partial:
        write_half(partial / "half", RuntimeError())
    assert not list(tmp_path.iterdir())
    with whole_folder(tmp_path / "new") as partial:
        (partial / "file").write_text("whole")
        assert not (tmp_path / "new").exists()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["new", "new/file"]


def test_a_folder_takes_the_place_of_a_folder_and_of_nothing_else(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "left").write_text("by a kill")
    with whole_folder(tmp_path / "old") as partial:
        (partial / "file").write_text("whole")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["file"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is no folder"), whole_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
