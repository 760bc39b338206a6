"""The messages that the troubleshooting page explains are those that the toolkit gives."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def text_of(node: ast.AST) -> str:
    """A string as it is written, with a mark where a value is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return "\0"


@pytest.fixture(scope="module")
def said() -> str:
    """Every string of the toolkit."""
    nodes = (
        node
        for room in ("models", "interp", "analyses")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    return "\n".join(map(text_of, nodes))


def test_the_page_has_messages() -> None:
    assert len(MESSAGES) > 15


@pytest.mark.parametrize("message", MESSAGES)
def test_each_message_is_given(message: str, said: str) -> None:
    # What stands for a value (dots, a number, a capital letter) is left out.
    parts = re.split(r"\.\.\.|\d+(?:\.\d+)?|\b[A-Z]\b|\?", message)
    wanted = [part.strip(" :,") for part in parts]
    assert any(len(part) > 6 for part in wanted)
    assert not [part for part in wanted if len(part) > 6 and part not in said]
