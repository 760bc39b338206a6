"""How the pages are built into a site (`make docs`): Sphinx, MyST Markdown, the Furo theme.

Nothing is fetched when the site is built or read: formulas become MathML here, fonts are the
reader's own.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "resharpen"
author = "The resharpen authors"
project_copyright = author
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "docstrings",
    "public_names",
]
default_role = "literal"
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["extensions"]

# Markdown as a code host shows it, and formulas between dollars.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "resharpen"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False


def adapt_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn what a code host shows into what the site needs.

    The claims of a study, which the study writes without a title, get one; a link to the
    repository's README, which is no page of the site, leads to the first page.
    """
    if name.endswith("/claims"):
        study = name.split("/")[-2]
        source[0] = f"# Claims under test: {study}\n\n{source[0]}"
    up = "../" * (name.count("/") + 1)
    source[0] = source[0].replace(f"]({up}README.md)", "](/index.md)")


def setup(app: Sphinx) -> None:
    """Connect what this file defines."""
    app.connect("source-read", adapt_page)
