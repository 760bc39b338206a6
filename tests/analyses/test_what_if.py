"""What-ifs as texts and as remedies, for all heads and for some."""

import re
from pathlib import Path
from typing import Any

import pytest

from resharpen.analyses import StudyResult, audit
from resharpen.analyses.cli import main
from resharpen.analyses.what_if import KINDS, parse_what_if, read_what_ifs
from resharpen.interp import NormGain, Remedy
from resharpen.models import Transformer, TransformerConfig

SMALL: dict[str, Any] = {"probe": "random", "lengths": [8, 16], "n_sequences": 2}


def model() -> Transformer:
    """Two layers of four heads."""
    return Transformer(TransformerConfig(d_vocab=40, n_layers=2, n_heads=4, d_model=16), seed=1)


def test_texts_and_remedies_are_the_same() -> None:
    given = ["temperature:1.5", Remedy("temperature", 1.5), ["temperature:1.5"]]
    tables = [audit(model(), what_if=what_if, **SMALL).table for what_if in given]  # type: ignore[arg-type]
    assert all(table.equals(tables[0]) for table in tables)
    assert "Transformer + temperature 1.5" in set(tables[0]["checkpoint"])
    (entmax,) = read_what_ifs("entmax:1.5")
    assert entmax.name == "entmax 1.5"


def test_heads_are_named_and_recorded() -> None:
    remedies = [parse_what_if(text, [(1, 2), (0, 3)]) for text in ("temperature:2", "hardmax")]
    result = audit(model(), what_if=[*remedies, "temperature:2"], **SMALL)
    told = "temperature 2 on heads 0.3, 1.2"
    assert set(result.table["checkpoint"]) == {
        "Transformer",
        f"Transformer + {told}",
        "Transformer + hardmax on heads 0.3, 1.2",
        "Transformer + temperature 2",
    }
    assert any(sentence.startswith(f"What if {told}, at") for sentence in result.sentences)
    asked = result.provenance.asked
    assert asked["what_if"][0] == told
    assert asked["what_if_heads"][told] == [[0, 3], [1, 2]]
    assert "temperature 2" not in asked["what_if_heads"]
    assert parse_what_if("norm_gain:2", [(1, 0), (1, 3)]).name == "norm_gain 2 in layer 1"


@pytest.mark.parametrize(
    ("what_if", "sentence"),
    [
        (Remedy("temperature", 2.0, heads=frozenset({(9, 9)})), "there is no head 9.9 for "),
        (Remedy("temperature", 2.0, heads=frozenset({(1, 4)})), "layers 0 to 1 with heads 0 to 3"),
        (NormGain(2.0, frozenset({2})), "there is no layer 2"),
        (Remedy("log_n", heads=frozenset()), "names no head"),
        ("temperature", "temperature needs a number, the inverse temperature"),
        ("norm_gain", "norm_gain needs a number"),
        ("adaptive:2", "adaptive takes no number"),
        ("colder", f"expected one of {', '.join(KINDS)}"),
        (["log_n", "log_n"], "'log_n from 256' twice"),
    ],
)
def test_what_would_change_nothing_or_cannot_be_read_is_refused(
    what_if: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        audit(model(), what_if=what_if, **SMALL)


def test_what_is_no_remedy_is_refused() -> None:
    with pytest.raises(TypeError, match="what_if takes remedies"):
        audit(model(), what_if=[3], **SMALL)
    with pytest.raises(ValueError, match="fp32 widens whole layers"):
        parse_what_if("fp32", [(0, 0)])
    assert {"norm_gain", "entmax", "softmax1", "sigmoid", "hardmax"} <= set(KINDS)


def test_heads_of_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        quick = ("--lengths", "1", "2", "4", "--n-sequences", "4", "--out", str(tmp_path / "out"))
        with pytest.raises(SystemExit) as stop:
            main(["audit", "set-complement-post", *quick, *arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.err

    code, error = run("--what-if-heads", "0.0")
    assert (code, "name one with --what-if" in error) == (2, True)
    code, error = run("--what-if", "temperature:2", "--what-if-heads", "9.9")
    assert (code, "there is no head 9.9" in error) == (2, True)
    assert not (tmp_path / "out").exists()
    code, _ = run("--what-if", "temperature:2", "--what-if-heads", "0.0")
    assert code == 0
    result = StudyResult.load(tmp_path / "out")
    assert result.provenance.asked["what_if"] == ["temperature 2 on head 0.0"]


def test_arguments_of_an_audit_that_are_none() -> None:
    with pytest.raises(ValueError, match="n_sequences must be a whole number, 1 or more; got 0"):
        audit("set-complement-post", n_sequences=0)
    for more in ({}, {"probe": "random"}):
        with pytest.raises(TypeError, match="name is what to call the model, a text; got int"):
            audit("set-complement-post", name=3, **more)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^audit\(\) .*'n_sequnces': did you mean 'n_sequences'"):
        audit("set-complement-post", n_sequnces=3)
