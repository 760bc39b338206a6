"""Records: what they refuse, what they say, and that JSON gives them back."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from resharpen.analyses.findings import SEVERITY, VERDICTS, Exponent, Verdict, worst
from resharpen.analyses.record import Record, decode_float, encode
from resharpen.analyses.wording import format_interval, format_number, format_place, site_words


@dataclass(frozen=True)
class Sample(Record):
    """One field of each kind."""

    number: float
    count: int | None
    flag: bool
    names: tuple[str, ...]
    nested: Exponent
    anything: dict[str, Any]


SAMPLE = Sample(
    math.inf, None, True, ("a", "b"), Exponent(-1.0, math.nan, 0.5, 3), {"x": [1, {"y": "z"}]}
)


def test_record_survives_json():
    """Infinity, NaN, None, nesting."""
    text = json.dumps(SAMPLE.to_dict(), allow_nan=False)
    again = Sample.from_dict(json.loads(text))
    assert repr(again) == repr(SAMPLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": "1"}, "Sample.number: expected a number or null"),
        ({"number": True}, "Sample.number: expected a number or null"),
        ({"count": 1.5}, "Sample.count: expected int"),
        ({"count": True}, "Sample.count: expected int"),
        ({"flag": 1}, "Sample.flag: expected bool"),
        ({"names": "ab"}, "Sample.names: expected a list"),
        ({"nested": 3}, "Sample.nested: a Exponent is a mapping"),
        ({"anything": [1]}, "Sample.anything: expected a mapping"),
        ({"more": 1}, "unknown: more"),
    ],
)
def test_record_is_strict(change, message):
    """One clear sentence for a wrong type or an unknown field."""
    with pytest.raises(ValueError, match=message):
        Sample.from_dict({**SAMPLE.to_dict(), **change})


def test_record_misses_nothing():
    """A missing field is named."""
    data = SAMPLE.to_dict()
    del data["flag"]
    with pytest.raises(ValueError, match="missing: flag"):
        Sample.from_dict(data)


def test_encode_takes_numpy_and_refuses_the_rest():
    """Arrays and scalars become lists and numbers; an object is refused by its type."""
    encoded = encode({"a": np.array([1.0, np.nan]), "b": np.int64(3), "c": {2, 1}})
    assert encoded == {"a": [1.0, None], "b": 3, "c": [1, 2]}
    with pytest.raises(TypeError, match="cannot hold object"):
        encode([object()])
    with pytest.raises(TypeError, match="string keys, got 1"):
        encode({1: 2})
    assert decode_float("-Infinity") == -math.inf


def test_verdict_is_checked():
    """A known verdict, a reason, and no PASS on an unknown value."""
    good = ("L0 H0", "head", "holds", "PASS", 0.5, 0.8, math.nan, math.nan, "it stays below")
    assert Verdict(*good).row()["length measured"] == "–"
    with pytest.raises(ValueError, match="PASS, WARN, FAIL, UNKNOWN, got 'OK'"):
        Verdict(*good[:3], "OK", *good[4:])
    with pytest.raises(ValueError, match="needs a reason"):
        Verdict(*good[:-1], " ")
    with pytest.raises(ValueError, match="say UNKNOWN"):
        Verdict(*good[:4], math.nan, *good[5:])


def test_verdict_shows_escaped_in_a_notebook():
    """Markup in a reason is text."""
    verdict = Verdict("<b>", "head", "holds", "WARN", 1.0, 2.0, 3.0, 4.0, "a < b & c")
    page = verdict._repr_html_()
    assert "&lt;b&gt;" in page
    assert "a &lt; b &amp; c" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "", "0"),
        (0.9412, "ratio", "0.941"),
        (3.0, "nats", "3 nats"),
        (12.34, "logit", "12.3 logit"),
        (1234.5, "", "1234"),
        (1.23e-6, "", "1.2e-06"),
        (-0.05, "", "-0.05"),
        (2.5e7, "", "2.5e+07"),
        (math.nan, "nats", "unknown"),
        (math.inf, "", "infinity"),
        (100.0, "", "100"),
    ],
)
def test_format_number(value, unit, text):
    """Three significant digits, units behind, unknown said aloud."""
    assert format_number(value, unit) == text


def test_format_interval():
    """Two decimals, more where they would hide the width, no minus zero."""
    assert format_interval(-0.98, -1.01, -0.95) == "-0.98 [-1.01, -0.95]"
    assert format_interval(-0.5004, -0.5009, -0.4999) == "-0.5004 [-0.5009, -0.4999]"
    assert format_interval(-1e-9, -1e-8, 1e-8) == "0.0000 [0.0000, 0.0000]"
    assert format_interval(1.0, math.nan, math.nan) == "1.00"


def test_places_and_sites():
    """From the outside in, hook names short."""
    assert site_words("blocks.0.ln1_post.hook_scale") == "L0 ln1_post"
    assert site_words("blocks.3.hook_resid_mid") == "L3 resid_mid"
    assert site_words("ln_final.hook_scale") == "ln_final"
    assert site_words("hook_embed") == "embed"
    place = format_place("post", 1, 2, "blocks.1.ln1.hook_scale", 4)
    assert place == "post, layer 1, head 2, ln1, seed 4"
    short = format_place("post", 1, 2, "blocks.1.ln1.hook_scale", 4, short=True)
    assert short == "post L1 H2 ln1 seed 4"
    assert format_place(None) == format_place(None, short=True) == ""


def test_the_worst_verdict_is_the_most_severe():
    assert set(SEVERITY) == set(VERDICTS)
    assert worst([]) == ""
    assert worst(iter(["PASS", "UNKNOWN", "PASS"])) == "UNKNOWN"
    assert worst(["UNKNOWN", "WARN", "PASS"]) == "WARN"
    assert worst(["WARN", "FAIL", "UNKNOWN"]) == "FAIL"
