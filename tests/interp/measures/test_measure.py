"""The registry: names, units, ranges, and what each record reads."""

import inspect
import math
from functools import partial

import pytest
import torch

from resharpen.interp.measures import ARRAYS, MEASURES, UNITS, Measure, entropy, get_measure

# Spelled in the contract of the table.
UNIT_OF = {
    "entropy": "nats",
    "normalised_entropy": "ratio",
    "effective_support": "1",
    "entropy_support": "1",
    "max_weight": "ratio",
    "total_mass": "1",
    "top_4_mass": "ratio",
    "relevant_mass": "ratio",
    "irrelevant_mass": "ratio",
    "sink_mass": "ratio",
    "score_spread": "1",
    "score_deviation": "1",
    "residual_norm": "l2",
    "contribution_norm": "l2",
    "norm_scale": "1",
    "output_variance": "1",
    "rescale_gain": "ratio",
    "displacement": "logit",
    "min_displacement": "logit",
    "oscillation": "logit",
    "frozen_displacement": "logit",
    "displacement_rescale": "ratio",
    "total_variation": "ratio",
    "kl_divergence": "nats",
    "illegal_mass": "ratio",
}


def example_arrays():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 5, generator=generator)
    logits = torch.randn(6, 7, generator=generator)
    present = torch.arange(7).expand(6, 7) < 3
    return {
        "weights": scores.softmax(-1),
        "unnormalised": scores.sigmoid(),
        "scores": scores,
        "visible": torch.ones(6, 5, dtype=torch.bool),
        "relevant": torch.arange(5).expand(6, 5) < 2,
        "stream": torch.randn(6, 4, generator=generator),
        "contribution": torch.randn(6, 4, generator=generator),
        "outputs": torch.randn(6, 4, generator=generator),
        "scale": torch.rand(6, 1, generator=generator) + 1,
        "scale_alone": torch.rand(6, 1, generator=generator) + 1,
        "logits": logits,
        "frozen_logits": logits / 2,
        "target": (~present).float() / 4,
        "present": present,
        "absent": ~present,
    }


def test_every_quantity_is_there_with_its_unit():
    assert {name: measure.unit for name, measure in MEASURES.items()} == UNIT_OF
    assert all(name == measure.name for name, measure in MEASURES.items())
    assert set(UNIT_OF.values()) <= set(UNITS)


@pytest.mark.parametrize("name", list(MEASURES))
def test_a_record_reads_what_its_function_takes_in_that_order(name):
    measure = MEASURES[name]
    function = measure.function.func if isinstance(measure.function, partial) else measure.function
    takes = [parameter for parameter in inspect.signature(function).parameters if parameter != "k"]
    reads = [array.removeprefix("frozen_") for array in measure.reads]
    assert reads == [array.removeprefix("frozen_") for array in takes]


@pytest.mark.parametrize("name", list(MEASURES))
def test_a_record_computes_values_within_its_range(name):
    measure = MEASURES[name]
    values = measure(example_arrays())
    assert values.shape == (() if name == "output_variance" else (6,))
    low, high = measure.range
    assert bool(((values >= low) & (values <= high)).all())


def test_every_array_is_read_by_some_measure():
    assert {array for measure in MEASURES.values() for array in measure.reads} == set(ARRAYS)


def test_lookup_names_what_is_known():
    assert get_measure("entropy").function is entropy
    with pytest.raises(ValueError, match="unknown measure 'entropi'; known measures are entropy, "):
        get_measure("entropi")


def test_a_missing_array_is_named():
    with pytest.raises(ValueError, match=r"'relevant_mass' reads .*; missing: relevant"):
        MEASURES["relevant_mass"]({"weights": torch.ones(1), "visible": torch.ones(1).bool()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "two words"}, "must be an identifier"),
        ({"reads": ("patterns",)}, "must read some of weights"),
        ({"reads": ()}, "must read some of"),
        ({"unit": "bits"}, "must be one of nats"),
        ({"range": (1.0, 0.0)}, "is empty"),
    ],
)
def test_a_wrong_record_is_refused(change, message):
    good = {
        "name": "thing",
        "function": entropy,
        "reads": ("weights",),
        "unit": "nats",
        "range": (0.0, math.inf),
        "doc": "",
    }
    assert Measure(**good).name == "thing"
    with pytest.raises(ValueError, match=message):
        Measure(**{**good, **change})
