"""Where local data are, and where downloads are kept between runs."""

import os
import sys
from pathlib import Path

from prerank.io.errors import DataError


def cache_folder() -> Path:
    """Where downloads are kept: PRERANK_CACHE, or `prerank` in the platform's cache folder."""
    if value := os.environ.get("PRERANK_CACHE"):
        return Path(value).expanduser()
    if value := os.environ.get("XDG_CACHE_HOME"):
        return Path(value).expanduser() / "prerank"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "prerank"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "prerank" / "Cache"
    return Path.home() / ".cache" / "prerank"


def data_folder() -> Path | None:
    """The folder in PRERANK_DATA, or None where the variable is not set."""
    value = os.environ.get("PRERANK_DATA", "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"PRERANK_DATA is {value!r}, which is not a folder; correct it or unset it.")
    return folder
