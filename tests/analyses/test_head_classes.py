"""What each head does: the rules, their order, the numbers they are judged by, and the summary."""

import math
from dataclasses import replace

import numpy as np
import pytest

from resharpen.analyses.head_classes import classify_heads, summarise_layers
from resharpen.analyses.head_counts import count_heads
from resharpen.analyses.head_ladders import read_heads
from resharpen.analyses.head_records import (
    CLASSES,
    HeadClass,
    LayerSummary,
    stack_prefixes,
)
from resharpen.analyses.head_verdicts import judge_heads
from resharpen.analyses.thresholds import THRESHOLD_SOURCES, HeadThresholds
from resharpen.interp.tables import table

N_KEY = 2 ** np.arange(8)  # 1 to 128


def rows(slope=None, n_key=N_KEY, **more):
    """A head whose entropy is slope x log n; other quantities as numbers or ladders."""
    place = {"checkpoint": "m", "task": "text", "layer": 0, "head": 0, "site": "decoder.0.attn"}
    place |= {name: more.pop(name) for name in list(more) if name in place or name == "seed"}
    values = {} if slope is None else {"entropy": slope * np.log(n_key)}
    values |= more
    return [
        {
            **place,
            "study": "audit",
            "length": keys,
            "n_key": keys,
            "quantity": quantity,
            "unit": "nats" if quantity == "entropy" else "ratio",
            "mean": mean,
            "sem": 0.01 * abs(mean),
            "n_obs": 16,
            "min": mean,
            "max": mean + 0.5 * (quantity == "score_spread"),
        }
        for quantity, ladder in values.items()
        for keys, mean in zip(
            n_key.tolist(), np.broadcast_to(ladder, n_key.shape).tolist(), strict=True
        )
    ]


def only(*parts, **options):
    """The class of the only head of these rows."""
    (found,) = classify_heads(table(row for part in parts for row in part), **options)
    return found


@pytest.mark.parametrize(
    ("slope", "label", "verdict"),
    [(0.9, "dispersing", "WARN"), (0.1, "holding", "PASS"), (-0.1, "sharpening", "PASS")],
)
def test_the_slope_names_a_head(slope, label, verdict):
    """Above 0.25, between, below 0; the verdict carries the number and its line."""
    found = only(rows(slope))
    assert found.label == label
    assert found.slope.value == pytest.approx(slope)
    head, layer, model = judge_heads([found])
    assert (head.subject, head.level, head.label, head.verdict) == ("L0 H0", "head", label, verdict)
    assert head.value == pytest.approx(slope)
    assert head.threshold == (0.0 if label == "sharpening" else 0.25)
    assert (layer.subject, model.subject) == ("layer 0", "m")


def test_one_key_is_no_choice():
    """The fit starts at 2 keys, whatever the entropy at 1 is said to be."""
    bent = 0.5 * np.log(N_KEY)
    bent[0] = 3.0
    assert only(rows(entropy=bent)).slope.value == pytest.approx(0.5)
    assert only(rows(0.5)).slope.n_points == N_KEY.size - 1


def test_sink_and_local_come_before_the_slope():
    """By the masses at the longest n_key alone, sink before local."""
    sink = np.where(N_KEY < 128, 0.1, 0.6)
    found = only(rows(0.9, sink_mass=sink, window_16_mass=0.9))
    assert (found.label, found.sink_mass, found.window) == ("sink", 0.6, 16)
    head = judge_heads([found])[0]
    assert (head.verdict, head.value, head.threshold, head.unit) == ("PASS", 0.6, 0.5, "ratio")
    assert "2309.17453" in head.threshold_source
    local = only(rows(0.9, sink_mass=sink[::-1], window_16_mass=0.9))
    assert (local.label, local.window_mass) == ("local", 0.9)
    assert "latest 16 keys at 128 keys" in local.reason
    assert only(rows(0.9, sink_mass=0.49, window_16_mass=0.49)).label == "dispersing"


def test_a_learned_sink_counts():
    """The larger of the two is at most what both hold together."""
    found = only(rows(0.9, sink_mass=0.2, learned_sink_mass=0.7))
    assert (found.label, found.sink_mass) == ("sink", 0.7)


def test_nothing_is_narrow_where_few_keys_are_seen():
    """Uniform attention over 2 keys is no sink, over a window of all keys not local."""
    short = np.array([1, 2, 3])
    found = only(rows(1.0, short, sink_mass=0.5, window_2_mass=0.9))
    assert found.label == "unknown"
    assert math.isnan(found.sink_mass)
    assert (found.window, math.isnan(found.window_mass)) == (None, True)
    wide = only(rows(0.9, window_4_mass=0.1, window_32_mass=0.6, window_64_mass=0.9))
    assert (wide.window, wide.label) == (32, "local")


def test_an_undecided_slope_is_unknown():
    """Two lengths, or an interval across a line."""
    two = only(rows(1.0, np.array([2, 4])))
    assert two.label == "unknown"
    assert "2 points, at least 3" in two.reason
    noisy = only(rows(entropy=np.array([0, 0.2, 2, 0.3, 2.5, 0.2, 3, 0.4])))
    assert noisy.label == "unknown"
    head, layer, model = judge_heads([noisy])
    assert {head.verdict, layer.verdict, model.verdict} == {"UNKNOWN"}


def test_what_its_own_spread_allows():
    """1 + e^spread (1 - w) / w at the largest spread seen, rounded down."""
    found = only(rows(0.9, score_spread=np.linspace(1, 2, 8)))
    assert found.spread == 2.5
    assert found.n_key_bound == math.floor(1 + math.exp(2.5) * 9)
    assert judge_heads([found])[0].length_predicted == found.n_key_bound + 1
    assert math.isnan(only(rows(0.9)).n_key_bound)


def test_relevant_keys_are_watched_where_they_are_known():
    """Else the strongest."""
    weights = {"max_weight": 1 / N_KEY}
    found = only(rows(0.9, **weights))
    assert (found.crossing.quantity, found.crossing.n_key) == ("max_weight", 16)
    found = only(rows(0.9, **weights, relevant_mass=N_KEY**-0.4))
    assert (found.crossing.quantity, found.crossing.kind) == ("relevant_mass", "extrapolated")
    assert found.crossing.n_key == pytest.approx(0.1 ** (-1 / 0.4))
    head = judge_heads([found])[0]
    assert math.isnan(head.length_measured)
    assert "extrapolated past 128 keys" in head.reason
    nothing = only(rows(0.9)).crossing
    assert (nothing.kind, nothing.reason) == ("unknown", "nothing was measured")


def test_a_model_counts_the_lost_heads_of_all_its_layers():
    """Its first layer is not the model: the last one holds most of them, and the earliest."""
    lost, early = 4 / N_KEY.clip(4), 1 / N_KEY
    found = classify_heads(
        table(
            row
            for layer, head, weights in [(0, 0, lost), (0, 1, 1.0), (1, 0, early), (1, 1, lost)]
            for row in rows(0.9, layer=layer, head=head, max_weight=weights)
        )
    )
    first, second, model = judge_heads(found)[4:]
    assert "; 1 head below 0.1 within what was measured" in first.reason
    assert "; 2 heads below 0.1 within what was measured" in second.reason
    assert "; 3 heads below 0.1 within what was measured, the first from 16 keys on" in model.reason
    assert (first.length_measured, second.length_measured, model.length_measured) == (64, 16, 16)


def test_hook_points_of_one_module_are_one_head():
    """Our own models measure scores and pattern at different sites."""
    found = only(
        rows(0.9, site="blocks.0.attn.hook_pattern"),
        rows(score_spread=1.0, site="blocks.0.attn.hook_scores"),
    )
    assert (found.site, found.spread) == ("blocks.0.attn", 1.5)


def test_seeds_are_averaged_and_rows_without_a_value_left_out():
    """Two seeds of one head; an undefined row; rows of no head."""
    undefined = rows(0.5, np.array([4096]))
    undefined[0] |= {"mean": math.nan, "status": "undefined", "min": math.nan, "max": math.nan}
    whole = rows(sink_mass=0.9, head=None)
    found = only(rows(0.4, seed=0), rows(0.6, seed=1), undefined, whole)
    assert found.slope.value == pytest.approx(0.5)
    assert found.n_key == 128
    assert math.isnan(found.sink_mass)
    (ladders,) = read_heads(table([*rows(0.4, seed=0), *rows(0.6, seed=1)]))
    assert np.isnan(ladders["entropy"].half).all()
    (alone,) = read_heads(table(rows(0.4)))
    np.testing.assert_allclose(alone["entropy"].half, 2.131449546 * 0.01 * alone["entropy"].mean)


def test_lengths_that_see_as_many_keys_are_pooled():
    """A causal model shows few keys at every length: means weighted by their observations."""
    n_key = np.array([2, 4, 8])
    long = rows(0.8, n_key)
    for row in long:
        row |= {"length": 64, "n_obs": 48}
    frame = table([*rows(0.4, n_key), *long])
    (found,) = read_heads(frame)
    np.testing.assert_allclose(found["entropy"].mean, 0.7 * np.log(n_key))
    sem = np.hypot(16 * 0.4, 48 * 0.8) * 0.01 * np.log(n_key) / 64
    np.testing.assert_allclose(found["entropy"].half, 1.998340543 * sem)
    frame.loc[0, "sem"] = math.nan
    (found,) = read_heads(frame)
    assert np.isnan(found["entropy"].half).tolist() == [True, False, False]


def test_stacks_probes_and_checkpoints_stay_apart():
    """Layer 0 of an encoder is not layer 0 of a decoder; subjects say only what differs."""
    frame = table(
        [
            *rows(0.9, site="encoder.0.attn"),
            *rows(0.1, site="decoder.0.attn"),
            *rows(0.1, site="decoder.0.attn", head=1),
            *rows(0.1, site="decoder.0.attn", task="needle"),
        ]
    )
    found = classify_heads(frame)
    assert [item.label for item in found] == ["dispersing", *["holding"] * 3]
    subjects = [verdict.subject for verdict in judge_heads(found)]
    assert subjects == [
        "text encoder L0 H0", "text decoder L0 H0", "text decoder L0 H1", "needle decoder L0 H0",
        "text encoder layer 0", "text decoder layer 0", "needle decoder layer 0",
        "m on text", "m on needle",
    ]  # fmt: skip
    counts, labels = count_heads(judge_heads(found))
    assert [item.layer for item in counts] == subjects[4:7]
    assert [item.verdict.subject for item in counts] == subjects[4:7]
    assert labels == ["dispersing", "holding"]
    assert counts[1].row(labels) == {
        "layer": "text decoder layer 0", "verdict": "PASS", "dispersing": "", "holding": "2",
        "first below": "–",
    }  # fmt: skip
    assert stack_prefixes(item.place[:3] for item in found[1:3]) == {
        ("m", "text", "decoder.attn"): ""
    }
    mixed = [("m", "t", "decoder.self"), ("m", "t", "decoder.cross")]
    assert list(stack_prefixes(mixed).values()) == ["decoder.self ", "decoder.cross "]


def heads(*slopes, layer=0):
    """One layer of heads with these slopes; None = undecided."""
    few = np.array([2, 4])
    for head, slope in enumerate(slopes):
        place = {"head": head, "layer": layer, "site": f"decoder.{layer}.attn"}
        yield from rows(1.0, few, **place) if slope is None else rows(slope, **place)


@pytest.mark.parametrize(
    ("slopes", "verdict", "value"),
    [
        ((0.9, 0.9, 0.1, 0.1), "WARN", 0.5),
        ((0.9, 0.1, 0.1, 0.1), "PASS", 0.25),
        ((0.9, None, 0.1, 0.1), "UNKNOWN", 0.25),
        ((0.9, 0.9, None, None), "WARN", 0.5),
        ((None, 0.1, 0.1, 0.1), "PASS", 0.0),
    ],
)
def test_a_layer_is_judged_by_the_share_of_its_heads(slopes, verdict, value):
    """Half is a warning; unknown heads matter where they could make the difference."""
    found = judge_heads(classify_heads(table(heads(*slopes))))
    layer, model = found[-2:]
    assert (layer.verdict, layer.value, layer.threshold) == (verdict, value, 0.5)
    assert (model.verdict, model.level) == (verdict, "model")
    assert layer.reason.startswith("4 heads: ")


def test_layers_are_summed_up():
    """Counts, mean and steepest slope, the first head that lost its key."""
    frame = table(
        [
            *heads(0.9, 0.3, 0.0, layer=0),
            *rows(max_weight=1 / N_KEY, head=1),
            *rows(max_weight=2 / N_KEY, head=2),
            *heads(None, layer=1),
        ]
    )
    first, second = summarise_layers(classify_heads(frame))
    assert first.counts == {**dict.fromkeys(CLASSES, 0), "dispersing": 2, "holding": 1}
    assert (first.heads, first.layer, first.steepest) == (3, 0, 0)
    assert first.slope == pytest.approx(0.4)
    assert (first.lost, first.first_lost) == (2, 16)
    assert (second.steepest, second.lost) == (None, 0)
    assert math.isnan(second.slope)
    verdict = judge_heads(classify_heads(frame))[4]
    assert verdict.subject == "layer 0"
    assert verdict.length_measured == 16
    assert "2 heads below 0.1 within what was measured, the first from 16 keys on" in verdict.reason


def test_thresholds_are_used_and_named():
    """Each moves its class; each has a source; bad ones are refused."""
    head = rows(0.3, sink_mass=0.4, window_16_mass=0.4)
    for changed, label in (
        ({"sink": 0.4}, "sink"),
        ({"local": 0.4}, "local"),
        ({"disperses": 0.4}, "holding"),
        ({}, "dispersing"),
    ):
        assert only(head, thresholds=HeadThresholds(**changed)).label == label
    assert (
        only(rows(0.3, max_weight=0.2), thresholds=HeadThresholds(weight=0.3)).crossing.n_key == 2
    )
    near = only(rows(0.3, max_weight=N_KEY**-0.44), thresholds=HeadThresholds(reach=1.5))
    assert near.crossing.kind == "unknown"
    for bad, message in (
        ({"sink": 0.0}, r"sink threshold must lie in \(0, 1\]"),
        ({"narrow": 0.5}, "narrow must lie above 0 and below"),
        ({"reach": 1.0}, "reach must be above 1"),
        ({"weight": 1.0}, "weight threshold"),
    ):
        with pytest.raises(ValueError, match=message):
            HeadThresholds(**bad)
    used = {"disperses", "sharpens", "weight", "sink", "local", "narrow", "reach", "share"}
    assert set(THRESHOLD_SOURCES) == used
    assert used <= set(HeadThresholds.__dataclass_fields__)


def test_records_go_to_json_and_back(many_heads):
    """Classes and summaries, with their intervals and unknowns."""
    found = classify_heads(many_heads)
    assert len(found) == 270
    assert {item.label for item in found} == set(CLASSES) - {"unknown"}
    for item in found:
        assert HeadClass.from_dict(item.to_dict()).to_dict() == item.to_dict()
    for layer in summarise_layers(found):
        assert LayerSummary.from_dict(layer.to_dict()) == layer
    with pytest.raises(ValueError, match="class of a head is sink, local"):
        replace(found[0], label="asleep")


def test_nothing_measured_is_no_heads():
    """An empty table, or one without entropy."""
    assert classify_heads(table([])) == ()
    assert classify_heads(table(rows(max_weight=0.5))) == ()
    assert judge_heads([]) == []
