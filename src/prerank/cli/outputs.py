"""Where results go: never over a file that is read, and never two into one file. Asked before any work is done."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.markup import escape

from prerank._wording import printable
from prerank._writing import require_file, require_folder

FIGURES = (".png", ".svg")  # what a figure without a suffix is written as
_USUAL = (*FIGURES, ".pdf")  # formats that are known without asking for them


def require_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None]) -> None:
    """Refuse files, by the options that name them, that are inputs, one another, or no place for a file.

    Files are the same by their resolved paths, and where they are one on the disk: links of both kinds. What lies in a
    folder that is read, such as a Zarr store, is read too.
    """
    taken = [path for path in inputs if path is not None]
    earlier: list[tuple[str, Path]] = []
    for name, path in outputs.items():
        if path is None:
            continue
        require_file(path)
        for file in files_of_figure(path) if name == "--plot" else [path]:
            if any(_same(file, other) or _inside(file, other) for other in taken):
                raise ValueError(f"{name} {path} would replace a file that is read; give another name")
            for other_name, other in earlier:
                if other_name != name and _same(file, other):
                    raise ValueError(f"{other_name} and {name} are both {file}; give two names")
            require_file(file)
            earlier.append((name, file))


@contextmanager
def results_folder(path: Path) -> Iterator[Path]:
    """A folder for results, made if it is missing; one that was made and stays empty is taken away if the block fails."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield require_folder(path)
    except BaseException:
        with suppress(OSError):  # it holds something
            for folder in new:
                folder.rmdir()
        raise


def shown_path(path: Path) -> str:
    """A path as a console prints it: no markup, no control characters."""
    return escape(printable(str(path)))


def files_of_figure(path: Path) -> list[Path]:
    """The files that a figure of this name is written to."""
    return [path] if path.suffix.lstrip(".") else [path.with_name(f"{path.name}{suffix}") for suffix in FIGURES]


def require_picture(path: Path) -> None:
    """Refuse a picture of an unknown format, or without a name."""
    if not path.name:
        raise ValueError(f"{path} is a folder; give the name of a figure in it, such as {path / 'figure.png'}")
    if not path.suffix.lstrip(".") or path.suffix.lower() in _USUAL:
        return
    from matplotlib.backend_bases import FigureCanvasBase  # loads slowly

    if path.suffix.lstrip(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        raise ValueError(f"{path}: figures are not written as {path.suffix!r}; give .png, .svg or .pdf")


def _same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return False


def _inside(file: Path, folder: Path) -> bool:
    return folder.is_dir() and Path(os.path.realpath(folder)) in Path(os.path.realpath(file)).parents
