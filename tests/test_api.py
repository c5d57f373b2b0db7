"""The public names with their arguments, compared with `api.txt`: a change of them is a decision, not an accident.

`python tests/test_api.py` writes the file again; the changelog names what changed.
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = (
    *("prerank", "prerank.calibration", "prerank.datasets", "prerank.diagnosis", "prerank.forecasts", "prerank.inputs"),
    *("prerank.io", "prerank.models", "prerank.plotting", "prerank.preranks", "prerank.recalibration"),
    *("prerank.regression", "prerank.scores", "prerank.training"),
)
FILE = Path(__file__).with_name("api.txt")


def default(value: Any) -> str:
    """A default as text that no memory address and no version of another library changes."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__name__
    return repr(value) if " at 0x" not in repr(value) else type(value).__name__


def arguments(function: Any) -> str:
    """Names, kinds and defaults of arguments; annotations are left out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    shown, starred = [], False
    for one in parameters:
        if one.name in ("self", "cls"):
            continue
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        if one.kind is one.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        shown.append(star + one.name + ("" if one.default is one.empty else f"={default(one.default)}"))
    return f"({', '.join(shown)})"


def lines() -> Iterator[str]:
    """A line for every public name, and for every public method that a class has of the library."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            value, full = getattr(module, name), f"{package}.{name}"
            if package != "prerank" and name in importlib.import_module("prerank").__all__:
                continue  # it has its line there
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                yield full
                continue
            yield full + arguments(value)
            if inspect.isclass(value) and value.__module__.startswith("prerank"):
                kinds = [kind for kind in reversed(value.__mro__) if kind.__module__.startswith("prerank")]
                for own, member in sorted({key: item for kind in kinds for key, item in vars(kind).items()}.items()):
                    if own.startswith("_"):
                        continue
                    if isinstance(member, property):
                        yield f"{full}.{own}"
                    elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
                        yield f"{full}.{own}{arguments(getattr(value, own))}"


def test_the_public_names_and_their_arguments_are_those_of_the_list():
    known, found = FILE.read_text(encoding="utf-8").splitlines(), list(lines())
    gone, new = (sorted(set(a) - set(b)) for a, b in ((known, found), (found, known)))
    if gone or new:
        changed = "\n".join([*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)])
        pytest.fail(
            f"the public interface changed; if meant, run `python tests/test_api.py`:\n{changed}", pytrace=False
        )
    assert len(found) > 250


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
