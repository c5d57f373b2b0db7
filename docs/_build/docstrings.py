"""Sphinx extension: autodoc for docstrings in Markdown, which is what pages are written in too.

autodoc reads docstrings as reStructuredText. Here each becomes one directive, `markdown`, whose content MyST parses.
"""

import re
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Markdown(SphinxDirective):
    """Its content is Markdown, in a page or a docstring that is not."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        source, _ = self.get_source_info()
        inner = new_document(source, self.state.document.settings)
        inner.reporter = self.state.document.reporter
        MystParser().parse("\n".join(self.content), inner)
        return inner.children


def as_markdown(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Wrap the lines of a docstring into the directive, in place, as autodoc wants it."""
    if any(lines):
        lines[:] = [".. markdown::", "", *("   " + line for line in fenced(without_headings(lines))), ""]


def without_headings(lines: list[str]) -> list[str]:
    """Underlined words (Parameters, as scikit-learn writes them) in bold: a docstring is no chapter of its page."""
    found: list[str] = []
    for line in lines:
        if re.fullmatch(r"-{3,}", line.strip()) and found and found[-1].strip():
            found[-1] = f"**{found[-1].strip()}**"
            found.append("")
        else:
            found.append(line)
    return found


def fenced(lines: list[str]) -> list[str]:
    """Lines with a fence around every doctest, which Markdown alone would take for a quotation."""
    found: list[str] = []
    inside = False
    for line in [*lines, ""]:
        if line.lstrip().startswith(">>>") and not inside:
            found += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            found.append("```")
            inside = False
        found.append(line)
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("markdown", Markdown)
    app.connect("autodoc-process-docstring", as_markdown)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
