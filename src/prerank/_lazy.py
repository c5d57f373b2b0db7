"""Public names that are imported when they are first used, so that a package costs nothing until then."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def public_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are found in the modules that `homes` says.

    >>> look_up, names = public_names("prerank", {"counted": "_wording"})
    >>> look_up("counted")(2, "case"), names()
    ('2 cases', ['counted'])
    """

    def look_up(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return look_up, lambda: sorted(homes)
