"""mkdocs hook: pages that the navigation names but nobody has written yet are left out, and only those listed here."""

from pathlib import Path
from typing import Any

OPTIONAL = {"decisions/estimator.md"}


def on_config(config: Any, **_: Any) -> Any:
    config.nav = [entry for entry in (_kept(item, Path(config.docs_dir)) for item in config.nav) if entry]
    return config


def _kept(entry: Any, folder: Path) -> Any:
    if isinstance(entry, dict):
        kept = {title: _kept(value, folder) for title, value in entry.items()}
        return {title: value for title, value in kept.items() if value}
    if isinstance(entry, list):
        return [item for item in (_kept(item, folder) for item in entry) if item]
    return None if entry in OPTIONAL and not (folder / entry).exists() else entry
