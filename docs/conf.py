"""Sphinx configuration. Neither the build nor a reader's browser fetches anything from elsewhere."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [str(ROOT / "src"), str(ROOT / "reproduction" / "src")]
sys.path[:0] = [str(ROOT / "docs" / "_build"), *SOURCES]
# Code cells run in a process of their own, which must import the same prerank, on one thread, like the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*SOURCES, os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["COLUMNS"] = "100"  # how wide tables are printed
# A profile of its own, so that a reader's settings change nothing, without the kernel's remarks about its transport.
profile = ROOT / "build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
os.environ["IPYTHONDIR"] = str(profile.parent)

from prerank import __version__  # noqa: E402

project = "prerank"
author = "The prerank developers"
project_copyright = author
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "formulas", "docstrings"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]

root_doc = "index"
nitpicky = True
myst_enable_extensions = ["attrs_inline", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# Code cells of the tutorials run at every build, and an exception ends it.
# PRERANK_DOCS_FAST=1 leaves them out, to look at a page of text.
nb_execution_mode = "off" if os.environ.get("PRERANK_DOCS_FAST") else "auto"
suppress_warnings = ["myst-nb.lexer"]  # the language of a cell that was not run is unknown
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds per cell, for a busy machine
nb_merge_streams = True
nb_output_stderr = "remove-warn"  # a page shows no warnings, so none may be given

copybutton_exclude = ".linenos, .gp, .go"

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "exclude-members": "arg_constraints, support, has_rsample, set_fit_request, set_score_request",
}
autodoc_typehints = "none"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88

html_theme = "pydata_sphinx_theme"
html_title = "prerank"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_math_renderer = "paths"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_sidebars = {"index": [], "install": [], "recipes": []}
html_theme_options = {
    "logo": {"text": "prerank"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
