"""One HTML page that needs nothing else: template, style, script and numbers in one file, everything from data escaped."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from prerank._writing import whole_file

_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def report_page(context: Mapping[str, Any], data: Any) -> str:
    """The page of a report from what its template shows and the numbers that its script draws; the same bytes each time.

    A policy in the page itself allows its own style and script, by their hashes, and nothing else: no network, and no
    script that a name could smuggle in.
    """
    style, script = (Markup(_part(name)) for name in ("page.css", "page.js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False, keep_trailing_newline=True)
    return environment.from_string(_part("page.html")).render(
        **context,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=Markup(as_json(data)),
    )


def write_page(page: str, path: Path | str | None) -> str:
    """The page, written whole to `path` if there is one."""
    if path is not None:
        with whole_file(path) as partial:
            partial.write_bytes(page.encode())
    return page


def as_json(data: Any) -> str:
    """JSON that may stand inside a script element: plain ASCII, and without the signs that could end the element.

    >>> as_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign, spelt in _JSON.items():
        text = text.replace(sign, spelt)
    return text


@cache
def _part(name: str) -> str:
    return (files("prerank.plotting") / "report" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
