"""Sphinx extension: autodoc for docstrings in Markdown, which is what pages are written in too.

autodoc reads docstrings as reStructuredText, and napoleon turns numpydoc's sections into it. Here a docstring becomes one
directive, `markdown`, whose content MyST parses, its sections as definition lists.
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
        lines[:] = [".. markdown::", "", *("   " + line for line in fenced(with_sections(lines))), ""]


def with_sections(lines: list[str]) -> list[str]:
    """Sections of numpydoc, an underlined word each, under a word in bold: a docstring is no chapter of its page."""
    found: list[str] = []
    place, section = 0, ""
    while place < len(lines):
        line = lines[place]
        if place + 1 < len(lines) and line.strip() and re.fullmatch(r"-{3,}", lines[place + 1].strip()):
            section = line.strip()
            found += ["", f"**{section}**", ""]
            place += 2
        elif section in _LISTS and line.strip():
            end = place + 1
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            found += _entry(section, line.strip(), [each.strip() for each in lines[place + 1 : end] if each.strip()])
            place = end
        elif section == "References":
            found.append(re.sub(r"^\.\. \[(\d+)\]", r"\1.", line))
            place += 1
        else:
            found.append(re.sub(r"(\[\d+\])_", r"\1", line))  # reStructuredText's mark of a reference
            place += 1
    return found


_LISTS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "See Also")


def _entry(section: str, head: str, description: list[str]) -> list[str]:
    """One entry of a section: a name, or a type, and what is said of it."""
    name, _, kind = head.partition(" : ")
    if section == "See Also":
        links = ", ".join(f"{{py:obj}}`.{each.strip()}`" for each in name.split(","))
        return [f"- {links}{': ' if kind else ''}{kind}"]
    if section in ("Parameters", "Attributes") or kind:
        head = f"`{name}` : {kind}" if kind else f"`{name}`"
    if not description:
        return [head, ""]
    return [head, f": {description[0]}", *("  " + each for each in description[1:]), ""]


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
