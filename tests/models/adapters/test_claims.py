"""What a user says of a model is held against what it shows; one sentence for what does not fit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from resharpen.models.adapters import Adapter, adapt, describe
from resharpen.models.observed import AttentionSeen

HEADS, KV_HEADS, WIDTH = 4, 2, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.both = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        def split(part: Tensor, heads: int) -> Tensor:
            return part.unflatten(-1, (heads, 4)).transpose(1, 2)

        key, value = self.both(x).chunk(2, -1)
        return split(self.query(x), HEADS), split(key, KV_HEADS), split(value, KV_HEADS)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        return self.merge(mixed)

    def merge(self, mixed: Tensor) -> Tensor:
        return mixed.transpose(1, 2).flatten(2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.unembed = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 50)
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.unembed(x)


class Mine(Adapter):
    numbered = True

    def watch(self, observer: Any) -> Any:
        for number, block in enumerate(self.module.layers):
            layer = number if self.numbered else 0

            def look(attention: Any, args: Any, output: Any, layer: int = layer) -> Any:
                seen = AttentionSeen(layer, *attention.project(args[0]), scale=0.5, causal=True)
                mixed = observer.attention(seen)
                return None if mixed is None else attention.merge(mixed)

            yield block.attention.register_forward_hook(look)


class Unnumbered(Mine):
    numbered = False


class ReturnsNothing(Mine):
    def watch(self, observer: Any) -> Any:
        list(super().watch(observer))


class YieldsNothing(Mine):
    def watch(self, observer: Any) -> Any:
        yield None


def facts(model: nn.Module, **change: Any) -> Any:
    return describe(model, **{"n_layers": 2, "n_heads": HEADS, "d_vocab": 50, **change})


@pytest.mark.parametrize("with_blocks", [True, False])
def test_what_is_right_passes_and_the_rest_is_filled_in(with_blocks: bool) -> None:
    model = Model()
    blocks = model.layers if with_blocks else ()
    found = adapt(Mine(model, facts(model), blocks=blocks)).description
    assert (found.n_layers, found.n_heads, found.n_kv_heads) == (2, HEADS, KV_HEADS)
    assert found.d_model == (WIDTH if with_blocks else None)
    said = facts(model, n_kv_heads=KV_HEADS, d_model=WIDTH)
    assert adapt(Mine(model, said, blocks=blocks)).description.d_model == WIDTH


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_heads": 2}, "says n_heads=2, but Model has 4 query heads: give n_heads=4"),
        ({"n_heads": 8}, "says n_heads=8, but Model has 4 query heads"),
        ({"n_kv_heads": 1}, "says n_kv_heads=1, but Model has 2 key heads"),
        ({"d_model": 32}, "says d_model=32, but Model has 16 coordinates in its stream"),
        ({"n_layers": 3}, "says n_layers=3, but one run of Model calls its blocks 2 times"),
        ({"n_layers": 1}, "says n_layers=1, but one run of Model calls its blocks 2 times"),
        ({"d_vocab": 51}, "says d_vocab=51, but Model cannot look up token 50"),
        ({"d_vocab": 500}, "says d_vocab=500, but Model cannot look up token 499"),
    ],
)
def test_a_wrong_number_is_refused_with_the_right_one(change: Any, message: str) -> None:
    model = Model()
    with pytest.raises(ValueError, match=message):
        adapt(Mine(model, facts(model, **change), blocks=model.layers))


@pytest.mark.parametrize("n_layers", [1, 3])
def test_layers_are_counted_without_blocks_too(n_layers: int) -> None:
    model = Model()
    with pytest.raises(ValueError, match=rf"n_layers={n_layers}, but Mine shows .* layers 0, 1"):
        adapt(Mine(model, facts(model, n_layers=n_layers)))


@pytest.mark.parametrize("with_blocks", [True, False])
def test_layers_under_one_number_are_refused(with_blocks: bool) -> None:
    model = Model()
    with pytest.raises(ValueError, match="Unnumbered shows attention 2 times, as layers 0: each"):
        adapt(Unnumbered(model, facts(model), blocks=model.layers if with_blocks else ()))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (lambda model: [model.embed], "but Embedding takes no floating-point tensor"),
        (lambda model: [model.embed, *model.layers], "Embedding takes no floating-point tensor"),
        (
            lambda model: [*model.layers, model.unembed],
            r"Linear takes a tensor \[2, 11, 16\] and returns \[2, 11, 50\]",
        ),
        (lambda model: [Block(), Block()], "calls its blocks 0 times"),
    ],
)
def test_what_is_no_block_is_refused(blocks: Any, message: str) -> None:
    model = Model()
    with pytest.raises(ValueError, match=message):
        adapt(Mine(model, facts(model), blocks=blocks(model)))


def test_watch_must_give_handles() -> None:
    model = Model()
    with pytest.raises(TypeError, match=r"watch must yield or return the handles.*got NoneType"):
        adapt(ReturnsNothing(model, facts(model)))
    with pytest.raises(TypeError, match=r"yield handles with remove\(\), .*; got NoneType"):
        adapt(YieldsNothing(model, facts(model)))


def test_what_is_no_module_is_refused() -> None:
    model = Model()
    with pytest.raises(TypeError, match=r"module of Mine must be a torch.nn.Module; got list"):
        Mine([], facts(model))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"description of Mine must be describe\(.*; got dict"):
        Mine(model, {})  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"each of blocks of Mine must be a torch.nn.Module; got in"
    ):
        Mine(model, facts(model), blocks=[0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"describe takes the model.*got str"):
        facts("gpt2")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"n_heads": 0}, {"n_layers": 2.0}, {"d_model": True}])
def test_a_size_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(wrong))} must be a whole number, 1 or more"):
        facts(Model(), **wrong)
