from typing import Any

import pytest
import torch
from torch import Tensor, nn

from resharpen.models import Checkpoint, Transformer, TransformerConfig, save_checkpoint
from resharpen.models.adapters import Adapter, adapt, describe
from resharpen.models.observed import AttentionSeen


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        parts = self.mix(x).chunk(3, -1)
        return tuple(part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x)
        return self.merge(
            nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        )

    def merge(self, mixed: Tensor) -> Tensor:
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.attention(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class MyAdapter(Adapter):
    scale, causal, hands_over = 0.5, True, True

    def watch(self, observer: Any) -> Any:
        for layer, block in enumerate(self.module.layers):

            def look(attention: Any, args: Any, output: Any, layer: int = layer) -> Any:
                query, key, value = attention.project(args[0])
                mixed = observer.attention(
                    AttentionSeen(layer, query, key, value, scale=self.scale, causal=self.causal)
                )
                return attention.merge(mixed) if self.hands_over and mixed is not None else None

            yield block.attention.register_forward_hook(look)


class WrongScale(MyAdapter):
    scale = 1.0


class NoMask(MyAdapter):
    causal = False


class Dropping(MyAdapter):
    hands_over = False


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WrongScale, "in a way that this toolkit does not know"),
        (NoMask, "in a way that this toolkit does not know"),
        (Dropping, "Dropping drops what observer.attention"),
    ],
)
def test_an_adapter_whose_records_do_not_explain_the_model_is_refused(
    kind: type[MyAdapter], words: str
) -> None:
    model = Model()
    with pytest.raises(ValueError, match=words):
        adapt(kind(model, describe(model, n_layers=2, n_heads=2, d_vocab=50), blocks=model.layers))


def test_attention_that_counts_for_nothing_yet_is_no_reason_to_refuse() -> None:
    model = Model()
    for block in model.layers:
        nn.init.zeros_(block.attention.out.weight)
    facts = describe(model, n_layers=2, n_heads=2, d_vocab=50)
    adapt(MyAdapter(model, facts, blocks=model.layers))


def test_an_adapter_of_your_own(tokens, recorder) -> None:
    model = Model()
    facts = describe(model, n_layers=2, n_heads=2, d_vocab=50)
    attention = [block.attention for block in model.layers]
    adapter = adapt(MyAdapter(model, facts, blocks=model.layers, attention=attention))
    assert adapter.placement == "post" and not adapter.description.padding
    assert adapter.description.n_parameters == sum(p.numel() for p in model.parameters())
    logits = adapter.observe(tokens, recorder)
    torch.testing.assert_close(logits, model(tokens))
    assert [seen.layer for seen in recorder.attentions] == [0, 1]
    assert [seen.position for seen in recorder.norms] == ["stream", "stream"]
    assert [seen.layer for seen in recorder.streams] == [0, 1, 2]
    assert model.training and not any(part._forward_hooks for part in model.modules())


def test_an_adapter_that_changes_the_model_is_refused() -> None:
    class Meddles(MyAdapter):
        def watch(self, observer: Any) -> Any:
            yield from super().watch(observer)
            yield self.module.head.register_forward_hook(lambda module, args, output: output * 2)

    model = Model()
    facts = describe(model, n_layers=2, n_heads=2, d_vocab=50)
    with pytest.raises(ValueError, match="observing Model changes its outputs"):
        adapt(Meddles(model, facts, blocks=model.layers))


def test_an_adapter_that_shows_nothing_is_refused() -> None:
    class Silent(MyAdapter):
        def watch(self, observer: Any) -> Any:
            return ()

    facts = describe(Model(), n_layers=2, n_heads=2, d_vocab=50)
    with pytest.raises(ValueError, match="showed no attention"):
        adapt(Silent(Model(), facts))
    with pytest.raises(NotImplementedError, match="must define watch"):
        adapt(Adapter(Model(), facts))


def test_checkpoints_of_ours(tmp_path, tokens, recorder) -> None:
    cfg = TransformerConfig(d_vocab=50, n_layers=2, n_heads=4, d_model=16)
    raw, averaged = Transformer(cfg, seed=1), Transformer(cfg, seed=2)
    weights = {"raw": raw.state_dict(), "ema-0.9": averaged.state_dict()}
    checkpoint = Checkpoint(config=cfg, weights=weights)
    folder = save_checkpoint(checkpoint, tmp_path / "mine")
    for source in (checkpoint, folder, str(folder)):
        adapter = adapt(source)
        assert adapter.description.digest == checkpoint.digest
        torch.testing.assert_close(adapter.observe(tokens, recorder), raw(tokens))
    other = adapt(folder, weights="ema-0.9")
    torch.testing.assert_close(other.run_plain(tokens), averaged(tokens))
    assert other.description.digest != checkpoint.digest
    with pytest.raises(ValueError, match=r"no weights 'ema-0\.5'"):
        adapt(folder, weights="ema-0.5")


def test_what_is_nothing() -> None:
    with pytest.raises(TypeError, match="got int"):
        adapt(3)
