"""The system's Chromium for tests of pages: `.ci/browser` installs Debian's, PRERANK_CHROMIUM names another."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PATH = os.environ.get("PRERANK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
NEEDED = pytest.mark.skipif(
    PATH is None, reason="there is no Chromium; .ci/browser installs it, PRERANK_CHROMIUM names one"
)


@contextmanager
def launched(sync_api: Any) -> Iterator[Any]:
    """A browser of playwright's, which brings none of its own."""
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=PATH, args=flags)
        yield started
        started.close()
