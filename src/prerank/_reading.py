"""What is read is a regular file: a pipe or a device would be waited for, or read without an end."""

import os
import stat
from pathlib import Path


def require_regular(path: Path | str, error: type[ValueError] = ValueError) -> Path:
    """The path, links followed by whoever opens it; refused by `error` if a pipe, a device or a socket is there.

    What is missing, or a folder, is left to the reader, who says what it had expected.

    >>> require_regular(os.devnull)
    Traceback (most recent call last):
    ValueError: /dev/null is a device or a pipe, not a file; write its content to a file, and give that
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # a null character is a ValueError
        return Path(path)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(f"{path} is a device or a pipe, not a file; write its content to a file, and give that")
    return Path(path)
