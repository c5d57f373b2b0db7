"""Where downloads are kept between runs."""

import os
import sys
from pathlib import Path


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
