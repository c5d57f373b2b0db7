"""Compare the docstrings of public names with their signatures, and the names with the reference.

Run by `make check`. Every public function, class and method has numpydoc sections that name all of its parameters, with
types, and what it returns; every name that a package exports stands on a page of `docs/reference`.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

PACKAGES = (
    *("", "arrays", "calibration", "datasets", "diagnosis", "forecasts", "inputs", "io", "models", "plotting"),
    *("preranks", "randomness", "recalibration", "regression", "scores", "training"),
)
# missing docstring, unknown section, order of sections, summary; parameters: missing, unknown, order, type, description,
# colon; returns: missing, without description where several are named; yields
CODES = {"GL08", "GL06", "GL07", "SS01", "PR01", "PR02", "PR03", "PR04", "PR07", "PR10", "RT01", "YD01"}
SPECIAL = ("__call__",)
REFERENCE = Path(__file__).parents[1] / "reference"


class FieldsToo(Validator):
    """A class that users are given and do not make has its fields under Attributes, and they are its parameters."""

    def __init__(self, obj_name: str) -> None:
        super().__init__(get_doc_object(self._load_obj(obj_name), config={"show_class_members": False}))
        if inspect.isclass(self.obj) and not self.doc["Parameters"]:
            fields = set(self.signature_parameters)
            self.doc["Parameters"] = [field for field in self.doc["Attributes"] if field.name in fields]

    @property
    def signature_parameters(self) -> tuple[str, ...]:
        return () if getattr(self.obj, "_is_protocol", False) else super().signature_parameters


def public_names() -> Iterator[tuple[str, str, Any]]:
    """Package, dotted name and object of every export and, for a class of ours, of its own public methods."""
    for package in PACKAGES:
        module = package_of(package)
        for name in exports(module):
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if not package and name in exports_below():
                continue
            yield package, full, value
            if inspect.isclass(value) and value.__module__.startswith("prerank"):
                for own, member in vars(value).items():
                    plain = inspect.unwrap(getattr(member, "__func__", member))
                    if not plain.__doc__ and inspect.getdoc(getattr(value, own)):
                        continue  # what a method does is said by the class from which it is inherited
                    if own in SPECIAL or (not own.startswith("_") and (inspect.isfunction(plain) or is_property(member))):
                        yield package, f"{full}.{own}", member


def package_of(name: str) -> ModuleType:
    return importlib.import_module(f"prerank.{name}" if name else "prerank")


def exports(module: ModuleType) -> list[str]:
    """What a package exports; of a module without `__all__`, the functions that are its own."""
    own = [name for name, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def exports_below() -> set[str]:
    """Names that a package exports and `prerank` itself shows again."""
    return {name for package in PACKAGES if package for name in exports(package_of(package))}


def is_property(member: Any) -> bool:
    return isinstance(member, property | cached_property)


def findings(name: str, value: Any) -> Iterator[str]:
    """What is wrong with a docstring, a line for each finding."""
    if is_property(value):
        if not inspect.getdoc(value):
            yield "GL08: The object does not have a docstring"
        return
    if not (inspect.isclass(value) or callable(getattr(value, "__func__", value))):
        return  # a value or an alias of a type: its page says what it is
    for code, message in validate(name, validator_cls=FieldsToo)["errors"]:
        if code in CODES:
            yield f"{code}: {message}"


def in_reference() -> set[str]:
    """The dotted names that pages of the reference document."""
    texts = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    return {name for text in texts for name in re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)", text, re.MULTILINE)}


def main() -> int:
    names, found = in_reference(), []
    objects = {id(resolve(name)) for name in names}
    for package, name, value in public_names():
        found += [f"{name}: {line}" for line in findings(name, value)]
        if name.count(".") - bool(package) == 1 and name not in names and id(value) not in objects:
            found.append(f"{name}: on no page of docs/reference")
    print("\n".join(found) or "docstrings and signatures agree")
    return int(bool(found))


def resolve(name: str) -> Any:
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


if __name__ == "__main__":
    sys.exit(main())
