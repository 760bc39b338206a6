"""What the study says: the map as text, the disagreements, the lists of the report."""

from collections.abc import Callable

import pytest

from resharpen.analyses.studies.remedies.claims import Claim
from resharpen.analyses.studies.remedies.config import Cell, RemediesConfig
from resharpen.analyses.studies.remedies.mapping import MapCell
from resharpen.analyses.studies.remedies.sentences import (
    conclude,
    disagreements,
    listed,
    render_lists,
    render_map,
)

NEEDLE = "argmax-retrieval"
SOLVED = (0.01, 0.01, 0.02, 0.02, 0.03, 0.03)
LOST = (0.01, 0.05, 0.15, 0.4, 0.6, 0.8)
CLAIMS = (
    Claim("Pigs fly", "does not hold", ("one did not: 0.5",), 5),
    Claim("Water is <wet>", "holds", ("it was", "again"), 6),
)


@pytest.fixture(scope="module")
def found(make_map: Callable[..., list[MapCell]]) -> list[MapCell]:
    """Two needles, of which sigmoid cures what theory says it cannot; one aggregation."""
    return make_map(
        {
            Cell("softmax", "none", "set-complement"): (0.01, 0.05, 0.15, 0.4),
            Cell("softmax", "res_post", "set-complement"): (0.01, 0.01, 0.02, 0.03),
            Cell("softmax", "none", NEEDLE): LOST,
            Cell("ssmax", "none", NEEDLE): SOLVED,
            Cell("sigmoid", "none", NEEDLE): SOLVED,
        }
    )


def test_conclusions_count_agreements_and_name_what_cures(found: list[MapCell]) -> None:
    said = conclude(RemediesConfig(), found, CLAIMS)
    assert said == [
        "Pigs fly: does not hold.",
        "Water is <wet>: holds.",
        "Theory and measurement agree on 4 of the 5 cells on which both say something; 1 cell "
        "disagrees.",
        "What cures aggregation dispersion, on how many tasks: softmax / res_post (1).",
        "What cures needle dispersion, on how many tasks: ssmax / none (1), sigmoid / none (1).",
    ]


def test_disagreements_are_listed_with_both_sides(found: list[MapCell]) -> None:
    (sentence,) = disagreements(found)
    assert sentence == (
        "argmax-retrieval, sigmoid / none: theory says 'cannot' (with bounded scores every weight "
        "is of order 1/n; theory 2 (VEL-L2.1)), measured 'cures' (error 0.0100 [0.0100, 0.0100] "
        "at 1x, 0.0300 [0.0300, 0.0300] at 32x)"
    )


def test_the_map_is_a_table_a_task(found: list[MapCell]) -> None:
    lines = render_map(RemediesConfig(threshold=0.25), found).split("\n")
    assert lines[0] == "set-complement (aggregation, trained at 6)"
    assert "argmax-retrieval (needle, trained at 8)" in lines
    heads = [line for line in lines if line.startswith("remedy / placement")]
    assert [head.count("error at") for head in heads] == [3, 4]  # 1x 2x 8x, and 32x
    marked = [line for line in lines if line.endswith("<- disagree")]
    assert [line.split("  ")[0] for line in marked] == ["sigmoid / none"]
    lost = next(line for line in lines if line.startswith("softmax / none") and "0.80" in line)
    assert lost.split()[-3:] == ["cannot", "no", "help"]
    assert lines[-1] == "cures: error at most 0.25 at the longest input."


def test_lists_hold_the_evidence_the_disagreements_and_what_failed(found: list[MapCell]) -> None:
    lists = listed(found, CLAIMS, {"first, softmax / post": "out of memory"})
    assert list(lists) == [
        "Pigs fly: does not hold",
        "Water is <wet>: holds",
        "Where theory and measurement disagree",
        "What could not be run",
    ]
    assert lists["Water is <wet>: holds"] == ["it was", "again"]
    assert lists["Where theory and measurement disagree"] == disagreements(found)
    assert lists["What could not be run"] == ["first, softmax / post: out of memory"]


def test_lists_are_markdown_without_the_empty_ones() -> None:
    assert render_lists({"A": ["x", "y"], "nothing": [], "B": ["z"]}) == (
        "## A\n\n- x\n- y\n\n## B\n\n- z\n"
    )
