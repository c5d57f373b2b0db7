"""Benchmark scripts as modules: a reduced version of what a script measures is a test."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_script(path: Path) -> ModuleType:
    """A script as a module, loaded once; scripts import others of their folder."""
    known = f"{path.parent.parent.name}_benchmark_{path.stem}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module  # dataclasses look their module up
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.pop(0)
    return sys.modules[known]
