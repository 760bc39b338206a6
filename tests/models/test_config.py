import dataclasses

import pytest

from resharpen.models import TransformerConfig


def test_defaults_that_depend_on_other_fields_are_resolved() -> None:
    cfg = TransformerConfig(d_vocab=10, n_heads=4, d_model=24, attn_only=False)
    assert (cfg.d_head, cfg.d_mlp, cfg.d_vocab_out) == (6, 96, 10)
    assert cfg.attn_scale == pytest.approx(6**0.5)
    assert cfg.init_range == pytest.approx(24**-0.5)


def test_round_trip_keeps_every_field() -> None:
    cfg = TransformerConfig(
        d_vocab=11,
        n_layers=3,
        n_heads=2,
        d_model=8,
        d_head=6,
        d_vocab_out=7,
        attn_only=False,
        act_fn="silu",
        normalization_type="LNPre",
        norm_placement="peri",
        final_norm=True,
        eps=0.0,
        positional_embedding_type="rotary",
        attention_dir="bidirectional",
        biases=True,
        tied_unembed=True,
    )
    assert TransformerConfig.from_dict(cfg.to_dict()) == cfg


def test_is_frozen() -> None:
    cfg = TransformerConfig(d_vocab=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.d_vocab = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_vocab": 0}, "d_vocab must be a positive number; got 0"),
        ({"d_vocab": 3, "n_layers": True}, "n_layers must be int; got True"),
        ({"d_vocab": 3, "d_model": 7, "n_heads": 2}, "d_model must be a multiple of n_heads"),
        ({"d_vocab": 3, "norm_placement": "middle"}, "norm_placement must be one of none, pre"),
        ({"d_vocab": 3, "normalization_type": None}, "normalization_type must be one of LN"),
        ({"d_vocab": 3, "eps": float("nan")}, "eps must be a finite number"),
        ({"d_vocab": 3, "eps": -1.0}, "eps must be a finite number"),
        (
            {"d_vocab": 3, "d_head": 3, "positional_embedding_type": "rotary"},
            "rotary positions need an even d_head",
        ),
        ({"d_vocab": 3, "d_vocab_out": 5, "tied_unembed": True}, "tied unembedding"),
        ({"d_vocab": 3, "width": 5}, "unknown configuration key 'width'; known keys are d_vocab"),
        ({}, "the configuration must give 'd_vocab'"),
    ],
)
def test_bad_values_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_dict(values)
