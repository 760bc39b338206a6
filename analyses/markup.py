"""A table as HTML that any notebook shows well: no style sheet, no script, every cell escaped."""

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["html_table"]

# Fills with enough contrast to their own text, on a white page and on a dark one.
_BADGES = {
    "PASS": "background:#0b6b4f;color:#fff",
    "WARN": "background:#8a5a00;color:#fff",
    "FAIL": "background:#a8320a;color:#fff",
    "violated": "background:#a8320a;color:#fff",
    "agrees": "background:#0b6b4f;color:#fff",
    "holds": "background:#0b6b4f;color:#fff",
}
_PLAIN_BADGE = "background:#666;color:#fff"


def html_table(rows: Sequence[Mapping[str, str]], badge: str = "") -> str:
    """The rows as an HTML table; an empty string if there are none.

    Args:
        rows: one mapping a row, all with the same keys, which are the column titles.
        badge: the column whose cells are set as coloured labels (PASS, WARN, FAIL, violated).
    """
    if not rows:
        return ""
    columns = list(rows[0])
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in columns)
    body = []
    for row in rows:
        cells = []
        for column in columns:
            text = escape(row[column])
            if column == badge:
                style = _BADGES.get(row[column], _PLAIN_BADGE)
                text = f'<span style="{style};padding:1px 6px;border-radius:3px">{text}</span>'
            cells.append(f'<td style="text-align:left">{text}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
