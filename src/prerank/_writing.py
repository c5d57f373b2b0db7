"""Results are written whole or not at all: beside the target, flushed, and moved into place in one step."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A path to write to, whose file takes the place of `path` when the block ends.

    A kill, a full disk or an error in the block leaves what was there before, and nothing beside it. Folders above are
    made, a link is followed, and the file has the permissions of the one that it replaces, or else those that the umask
    allows. What is no regular file is refused, because moving a file over a device would take the device away. An error
    of the system names `path`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole_file(folder / "table.csv") as partial:
    ...     _ = partial.write_text("a,b\\n")
    >>> [file.name for file in folder.iterdir()]
    ['table.csv']
    """
    target = require_file(path)
    partial = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # made here, because some writers make theirs readable by nobody else; its permissions tell what the umask allows
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        allowed = (target if target.exists() else partial).stat().st_mode
        os.chmod(partial, 0o600)
        yield partial
        _flush(partial)
        os.chmod(partial, stat.S_IMODE(allowed))
        os.replace(partial, target)
    except OSError as error:
        raise _about(path, error) from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of the folder `path` when the block ends. As `whole_file` otherwise."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is there and is no folder; move it away, or give another place")
    partial = _beside(path)
    try:
        partial.mkdir(parents=True)
        yield partial
        for part in [*partial.rglob("*"), partial]:
            _flush(part)
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(partial, path)
    except OSError as error:
        raise _about(path, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_file(path: Path | str) -> Path:
    """Where a file of this name would be written, links followed; refused if something else than a file is there."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {Path(path) / 'result'}")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is a device or a pipe, not a file; give the name of a file")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"{path} cannot be written, because {above} is a file; give another place")
    return target


def require_folder(folder: Path) -> Path:
    """The folder, made if it is missing; refused before any work if nothing can be written there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder for the figures and tables")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".prerank-writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror}; give another folder") from error
    return folder


def _beside(target: Path) -> Path:
    """A name that no other writer has, in the same folder, because a file is moved in one step only within a disk."""
    return target.with_name(f".{target.name[:60]}.{secrets.token_hex(4)}.part")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _about(path: Path | str, error: OSError) -> OSError:
    """The same error, naming what was to be written; the system names a temporary file, or none at all."""
    if error.errno is None:
        return OSError(f"{path} cannot be written: {error}")
    return OSError(error.errno, os.strerror(error.errno), str(path))
