"""What every public object shows of itself in a notebook: one line, and a small table."""

import dataclasses
import enum
import importlib
import inspect
import pickle
from typing import is_typeddict

import numpy as np
import pandas as pd
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from resharpen.interp.measures import MEASURES
from resharpen.interp.remedies import REMEDIES
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, seeded_generator
from resharpen.models.facts import Facts, Registry, Settings, brief, facts_table, layers_by_heads
from resharpen.models.placements import PLACEMENTS
from resharpen.models.probes import PROBES
from resharpen.models.tasks import TASKS

PUBLIC = (
    "models", "models.adapters", "models.constructed", "models.probes", "models.tasks",
    "models.training", "interp", "interp.attention_statistics", "interp.measures",
    "interp.profiling", "interp.theory", "analyses", "analyses.exploring", "analyses.figures",
    "analyses.monitoring",
)  # fmt: skip


def public_classes():
    found = {}
    for module in PUBLIC:
        names = importlib.import_module(f"resharpen.{module}")
        found |= {
            name: thing for name in names.__all__ if inspect.isclass(thing := getattr(names, name))
        }
    return found


def holds_values(thing):
    """Not an error, a protocol, a tuple or an enumeration, which show themselves."""
    return not (
        issubclass(thing, (BaseException, enum.Enum, tuple))
        or getattr(thing, "_is_protocol", False)
        or is_typeddict(thing)
    )


@pytest.mark.parametrize(
    "thing",
    [one for one in public_classes().values() if holds_values(one)],
    ids=lambda x: x.__name__,
)
def test_every_public_object_shows_itself(thing):
    assert thing.__repr__ is not object.__repr__
    assert hasattr(thing, "_repr_html_") or hasattr(thing, "_ipython_display_")


@dataclasses.dataclass(repr=False)
class Thing(Facts):
    values: Float[Tensor, "batch pos d_model"]
    maybe: Float[Tensor, "pos"] | None
    words: tuple[str, ...]
    many: list[int]
    held: dict[str, float]
    _hidden: int = 0
    silent: int = dataclasses.field(default=3, repr=False)


def test_a_line_and_a_table_hold_the_same(html_texts):
    thing = Thing(torch.zeros(2, 3, 4), torch.tensor([2.0, 8.0]), ("a", "b"), list(range(99)), {})
    assert repr(thing) == (
        "Thing(values float32 [batch 2, pos 3, d_model 4]; maybe float32 [pos 2] from 2 to 8; "
        "words (a, b); many 99 items, the first 0; held {})"
    )
    told = [text for pair in thing._facts() for text in pair]
    assert html_texts(thing._repr_html_()) == ["Thing", *told]
    assert brief(dataclasses.replace(thing, maybe=None).maybe) == "None"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "True"),
        (1.23456789, "1.23457"),
        (float("nan"), "nan"),
        ("x" * 200, "x" * 71 + "…"),
        ("two\nlines", "two lines"),
        (np.zeros((2, 3)), "float64 [2, 3]"),
        (np.array([1, 5, 3]), "int64 [3] from 1 to 5"),
        (np.array([4, 4]), "int64 [2] of 4"),
        (np.array(["a", "b"]), "<U1 [2]"),
        (np.array([True, False]), "bool [2]"),
        (np.zeros(0), "float64 [0]"),
        (np.zeros(10_000), "float64 [10000]"),
        (torch.tensor(2.5), "2.5"),
        (torch.tensor(True), "True"),
        (torch.tensor(1 + 2j), "(1+2j)"),
        (torch.zeros(3, device="meta"), "float32 [3]"),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "2 rows x 2 columns"),
        ({"a": 1, "b": (2, 3)}, "{a: 1, b: (2, 3)}"),
        ({str(k): k for k in range(9)}, "9 entries, the first 0"),
        ((), "()"),
        ([None] * 3, "(None, None, None)"),
        (len, "len"),
        (TransformerConfig(8), "TransformerConfig(d_vocab=8)"),
    ],
)  # fmt: skip
def test_values_in_a_few_words(value, words):
    assert brief(value) == words


def test_a_long_entry_is_counted_and_cut():
    text = brief(["y" * 300] * 2)
    assert text == f"2 items, the first {'y' * 35}…"


def test_axes_get_names_only_where_they_fit():
    assert brief(np.zeros((2, 3)), Float[Tensor, "#batch pos=3"]) == "float64 [batch 2, pos 3]"
    assert brief(np.zeros((2, 3, 4)), Float[Tensor, "*place"]) == "float64 [2, 3, 4]"


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(32),
        TransformerConfig(32, n_heads=4, d_head=5, attn_only=False, d_mlp=256),
        TransformerConfig(32, d_model=60, n_heads=7, d_head=8, attn_scale=3.0),
        TransformerConfig(32, norm_placement="peri", init_range=0.125, tied_unembed=True),
        TransformerConfig(32, d_vocab_out=32, n_layers=2, normalizer="ssmax", qk_norm="learned"),
        TrainingConfig(),
        TrainingConfig(n_steps=20, ema_decays=(0.5, 0.9), burn_in=0, bema=((0.5, 0.2),)),
    ],
)
def test_settings_can_be_read_back_and_leave_out_defaults(config):
    assert eval(repr(config)) == config
    for field in dataclasses.fields(config):
        assert f"{field.name}={field.default!r}" not in repr(config)
    names = [name for name, _ in config._facts()]
    assert names == [field.name for field in dataclasses.fields(config)]


def test_settings_with_a_default_made_anew_each_time():
    @dataclasses.dataclass(repr=False)
    class Lists(Settings):
        items: list[int] = dataclasses.field(default_factory=list)

    assert repr(Lists()).endswith("Lists()")
    assert repr(Lists([1])).endswith("Lists(items=[1])")


def test_a_batch_says_its_axes():
    batch = SetComplement(32).sample(seeded_generator(0), 4, 16)
    assert repr(batch) == (
        "Batch(tokens int64 [batch 4, pos 16]; targets float32 [batch 4, pos 16, d_vocab_out 32]; "
        "next_tokens int64 [batch 4, pos 16]; relevant bool [batch 1, query 1, key 16]; "
        "length 16; bos False)"
    )


def test_a_table_escapes_what_it_is_given(html_texts):
    html = facts_table("<i>", [("<b>", "<script>")])
    assert html_texts(html) == ["<i>", "<b>", "<script>"]
    assert "<script>" not in html


@pytest.mark.parametrize("registry", [MEASURES, PLACEMENTS, PROBES, REMEDIES, TASKS])
def test_a_registry_shows_its_names_and_is_a_dictionary_else(registry, html_texts):
    assert repr(registry) == f"Registry({len(registry)}: {', '.join(registry)})"
    texts = html_texts(registry._repr_html_())
    assert texts[1::2] == list(registry)
    assert all(1 < len(line) <= 120 for line in texts[2::2])
    assert isinstance(registry, dict)
    assert {**registry} == registry == dict(registry)


def test_a_registry_is_pickled_whole():
    again = pickle.loads(pickle.dumps(PROBES))
    assert again == PROBES
    assert type(again) is Registry
    assert again._repr_html_() == PROBES._repr_html_()
    with pytest.raises(ValueError, match="each entry needs one line; check b"):
        Registry({"a": 1, "b": 2}, {"a": "one"})


def test_sizes_are_singular_or_plural():
    assert layers_by_heads(1, 1) == "1 layer x 1 head"
    assert layers_by_heads(2, 8) == "2 layers x 8 heads"
