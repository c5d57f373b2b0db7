"""The call of `check` that gave a result, as a line of Python."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np

_SHORT = (str, int, float, bool, type(None))


def call_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """A call with the arguments that differ from their defaults; arrays are called by the name of their argument.

    >>> def check(y, forecast, preranks=None, *, blocks=None, seed=0): ...
    >>> call_of(check, {"y": [1.0], "forecast": [2.0], "preranks": None, "blocks": [1, 2], "seed": 3})
    'check(y, forecast, blocks=blocks, seed=3)'
    """
    said = []
    for name, parameter in inspect.signature(function).parameters.items():
        value = arguments[name]
        if parameter.default is inspect.Parameter.empty:
            said.append(name)
        elif value is not parameter.default and not (isinstance(value, _SHORT) and value == parameter.default):
            text = in_python(value, name)
            said.append(text if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{name}={text}")
    return f"{function.__name__}({', '.join(said)})"


def in_python(value: Any, name: str) -> str:
    """A value as Python writes it, or `name` for what has no short form. No address of an object gets through.

    >>> from prerank import Dependency, Location
    >>> in_python([Location(), Dependency(lag=2)], "preranks")
    '[Location(), Dependency(lag=2)]'
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _SHORT):
        return repr(value)
    if isinstance(value, Mapping) and all(isinstance(item, str) for pair in value.items() for item in pair):
        return repr(dict(value))
    if isinstance(value, tuple) and all(isinstance(item, _SHORT) for item in value):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type) and hasattr(value, "given"):
        chosen = [(field.name, getattr(value, field.name)) for field in fields(value) if not _is_default(field, value)]
        return f"{type(value).__name__}({', '.join(f'{key}={in_python(item, key)}' for key, item in chosen)})"
    if isinstance(value, Sequence) and len(value) and all(hasattr(item, "given") for item in value):
        return f"[{', '.join(in_python(item, 'prerank') for item in value)}]"
    if callable(value) and hasattr(value, "__name__") and value.__name__.isidentifier():
        return str(value.__name__)
    return name


def _is_default(field: Any, value: Any) -> bool:
    default = field.default if field.default is not MISSING else None
    return field.default is not MISSING and getattr(value, field.name) == default
