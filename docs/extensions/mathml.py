"""Formulas as MathML, made when the site is built: no script, no font, no network to read them."""

import re
from typing import Any, cast

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# A space after the name of a function, and before it where it multiplies.
FUNCTION = re.compile(r"(</(?:mi|mn|mfrac|msub|msup|msubsup|mrow)>)?<mi>(log|exp|cos)</mi>")
THIN = '<mspace width="0.17em" />'


def _spaced(match: re.Match[str]) -> str:
    before, name = match.groups()
    return f"{before + THIN if before else ''}<mi>{name}</mi>{THIN if name == 'log' else ''}"


def to_mathml(formula: str, display: str) -> str:
    """Convert LaTeX, `display` being `inline` or `block`."""
    return FUNCTION.sub(_spaced, convert(formula, display=display))


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write `$...$`."""
    translator.body.append(to_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write `$$...$$`, in a box that scrolls where the page is narrower than the formula."""
    translator.body.append(f'<div class="formula">{to_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(cast(Any, visit_inline), None),
        block_renderers=(cast(Any, visit_block), None),
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
