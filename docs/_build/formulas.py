"""Sphinx extension: formulas become pictures while the site is built, so that a page needs no script and no network.

matplotlib typesets the formulas of pages and docstrings; the page gets inline SVG in the colour and size of the text around
it. A formula that cannot be typeset is a warning, which the strict build refuses.
"""

import html
import re
from functools import lru_cache
from typing import Any

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath, TextToPath
from sphinx.application import Sphinx
from sphinx.util import logging

_LOG = logging.getLogger(__name__)
_SIZE = 100.0  # glyph coordinates per em
_LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
# what LaTeX knows and matplotlib does not
_REWRITES = (
    (r"\\tfrac", r"\\frac"),
    (r"\\[bB]ig+[lr]?\s*", ""),
    (r"\\text\{", r"\\mathrm{"),
    (r"\\operatorname\{", r"\\mathrm{"),
    (r"\\[lr]vert(?![a-z])", "|"),
    (r"\\frac\s*(\d)(?=\{)", r"\\frac{\1}"),
    (r"\\frac\s*(\\?\w)\s*(\\?\w)(?![\w{])", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\d)(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\w)\\(\w+)", r"\\frac{\1}{\\\2}"),
    (r"\\frac\s*(\w)(\w)", r"\\frac{\1}{\2}"),
    (r"\\(le|ge)(?![a-z])", r"\\\1q"),
    (r"\\top(?![a-z])", r"\\mathsf{T}"),  # a relation to matplotlib, with space around it
    (r"\\sqrt\s*(\w)", r"\\sqrt{\1}"),
    (r"\}\s*\\sum", r"}\\,\\sum"),
    (r"\\mathbf\s+(\w)", r"\\mathbf{\1}"),
    (r"\s+", " "),
)


def inline(translator: Any, node: nodes.math) -> None:
    """A formula within a line."""
    _append(translator, node, "span")


def block(translator: Any, node: nodes.math_block) -> None:
    """A formula by itself."""
    _append(translator, node, "div")


def _append(translator: Any, node: nodes.Element, tag: str) -> None:
    formula = node.astext().strip()
    picture = _picture(tag, formula)
    if picture is None:
        _LOG.warning("cannot typeset %r", formula, location=node)
        picture = f"<code>{html.escape(formula)}</code>"
    translator.body.append(picture)
    raise nodes.SkipNode


@lru_cache(maxsize=None)
def _picture(tag: str, formula: str) -> str | None:
    plain = formula
    for pattern, replacement in _REWRITES:
        plain = re.sub(pattern, replacement, plain)
    if tag == "div":
        plain = plain.replace(r"\frac", r"\dfrac")
    font = FontProperties(size=_SIZE, math_fontfamily="cm")
    try:
        width, height, descent = TextToPath().get_text_width_height_descent(f"${plain}$", font, ismath=True)
        path = TextPath((0, 0), f"${plain}$", prop=font)
    except ValueError:
        return None
    steps = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        if code == Path.CLOSEPOLY:
            steps.append("Z")
        else:
            steps.append(_LETTERS[code] + " ".join(f"{x:.0f} {-y:.0f}" for x, y in points.reshape(-1, 2)))
    box = f"0 {-(height - descent):.0f} {width:.0f} {height:.0f}"
    style = f"width:{width / _SIZE:.3f}em;height:{height / _SIZE:.3f}em;vertical-align:{-descent / _SIZE:.3f}em"
    label = html.escape(formula, quote=True)
    drawing = f'<svg role="img" aria-label="{label}" viewBox="{box}" style="{style}"><path d="{"".join(steps)}"/></svg>'
    return f'<{tag} class="formula">{drawing}</{tag}>'


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("paths", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
