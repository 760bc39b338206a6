"""Other weights as a what-if equal the model that has them built in, and a brute-force row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from resharpen.analyses.what_if import REWEIGHING, parse_what_if
from resharpen.interp.profiling import profile
from resharpen.interp.profiling.attention_rows import attention_rule
from resharpen.interp.profiling.reweighed import reweighed_attention, score_tile
from resharpen.interp.remedies import Reweigh
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt
from resharpen.models.observed import AttentionSeen
from resharpen.models.probes import RandomTokens

CONFIG = TransformerConfig(
    d_vocab=11,
    n_layers=2,
    n_heads=2,
    d_model=16,
    n_ctx=64,
    norm_placement="pre",
    init_range=0.8,
    positional_embedding_type="standard",  # equal tokens would tie, and rounding break the ties
)
QUANTITIES = ("entropy", "max_weight", "effective_support", "window_16_mass")


def built_in(**change: object) -> Transformer:
    model = Transformer(replace(CONFIG, **change), seed=5)  # type: ignore[arg-type]
    model.load_state_dict(Transformer(CONFIG, seed=5).state_dict())
    return model


@pytest.mark.parametrize(
    ("remedy", "change"),
    [
        *((name, {"normalizer": name}) for name in REWEIGHING),
        ("entmax:2", {"normalizer": "entmax", "entmax_alpha": 2.0}),
        ("qk_norm:4", {"qk_norm": "fixed", "qk_gain": 4.0}),
        ("temperature:1.7", {"normalizer": "temperature", "inverse_temperature": 1.7}),
    ],
)
def test_a_what_if_is_the_model_with_the_remedy_built_in(remedy, change, monkeypatch) -> None:
    monkeypatch.setattr("resharpen.interp.profiling.reweighed._CHUNK", 2 * 2 * 48 * 7)
    probe = RandomTokens(11)
    options = {"n_sequences": 2, "statistics": QUANTITIES}
    tried = profile(
        adapt(Transformer(CONFIG, seed=5)), probe, [48], remedy=parse_what_if(remedy), **options
    )
    own = profile(adapt(built_in(**change)), probe, [48], **options)
    compared = 0
    for quantity in (*QUANTITIES, "residual_norm", "loss"):
        left, right = (
            frame[frame["quantity"] == quantity].sort_values(["site", "n_key", "head"])
            for frame in (tried.table, own.table)
        )
        assert len(left) == len(right) > 0 or quantity == "loss"
        np.testing.assert_allclose(left["mean"], right["mean"], rtol=2e-4, atol=2e-5)
        compared += len(left)
    assert compared > 50


def record(**change: object) -> AttentionSeen:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    values: dict = {
        "layer": 0,
        "query": draw(2, 4, 6, 3),
        "key": draw(2, 2, 9, 3),
        "value": draw(2, 2, 9, 5),
        "scale": 0.7,
        "causal": True,
        "window": 4,
        "bias": draw(1, 4, 6, 9),
        "soft_cap": 2.0,
    }
    return AttentionSeen(**{**values, **change})


def expected_scores(seen: AttentionSeen, batch: int, head: int, query: int) -> np.ndarray:
    q = seen.query[batch, head, query].double().numpy()
    scores = np.full(9, -np.inf)
    for key in range(9):
        place = 9 - 6 + query
        if key > place or place - key >= 4:
            continue
        s = seen.scale * q @ seen.key[batch, head // 2, key].double().numpy()
        s = seen.soft_cap * np.tanh(s / seen.soft_cap)
        scores[key] = s + float(seen.bias[0, head, query, key])
    return scores


def test_scores_are_those_of_the_record() -> None:
    seen = record()
    tile = score_tile(seen, attention_rule(seen), slice(2, 5), slice(1, 4))
    assert tile.shape == (2, 3, 3, 9)
    for batch in range(2):
        for head in range(1, 4):
            for query in range(2, 5):
                np.testing.assert_allclose(
                    tile[batch, head - 1, query - 2].numpy(),
                    expected_scores(seen, batch, head, query),
                    rtol=1e-6,
                    atol=1e-6,
                )


def test_output_is_of_the_weights_as_they_are(monkeypatch) -> None:
    monkeypatch.setattr("resharpen.interp.profiling.reweighed._CHUNK", 2 * 4 * 9 * 4)
    seen = record()

    def sigmoid(scores: torch.Tensor, n_key: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(scores - n_key.log())

    output, rows = reweighed_attention(
        seen, sigmoid, ("entropy", "max_weight"), query_mask=None, relevant_key=None
    )
    for batch, head, query in ((0, 0, 0), (1, 3, 5), (0, 2, 3)):
        scores = expected_scores(seen, batch, head, query)
        n = np.isfinite(scores).sum()
        weights = 1 / (1 + n * np.exp(-scores))
        value = seen.value[batch, head // 2].double().numpy()
        np.testing.assert_allclose(
            output[batch, head, query], weights @ value, rtol=1e-4, atol=1e-5
        )
        shares = weights / weights.sum()
        assert float(rows["max_weight"][batch, head, query]) == pytest.approx(shares.max())
        assert int(rows.n_key[batch, head, query]) == n


def test_some_heads_can_be_chosen() -> None:
    seen = record()
    remedy = Reweigh("even", lambda s, n: (s > -torch.inf) / n, frozenset({(0, 1)}))
    weigh = remedy.weigh(seen)
    assert weigh is not None
    output, rows = reweighed_attention(
        seen, weigh, ("normalised_entropy",), query_mask=None, relevant_key=None
    )
    ratio = rows["normalised_entropy"]
    assert torch.allclose(ratio[:, 1], torch.ones_like(ratio[:, 1]))
    assert (ratio[:, 0] < 0.999).all()
    assert output.shape == (2, 4, 6, 5)
    assert Reweigh("even", lambda s, n: s, frozenset({(3, 1)})).weigh(seen) is None


def test_a_row_without_keys_gives_nothing() -> None:
    mask = torch.ones(1, 1, 6, 9, dtype=torch.bool)
    mask[..., 2, :] = False
    seen = record(mask=mask)
    output, rows = reweighed_attention(
        seen, lambda s, n: torch.softmax(s, -1), ("entropy",), query_mask=None, relevant_key=None
    )
    assert (output[:, :, 2] == 0).all() and output.isfinite().all()
    assert rows["entropy"][:, :, 2].isnan().all()


def test_learned_sinks_are_refused() -> None:
    seen = record(sinks=torch.zeros(4))
    with pytest.raises(ValueError, match="layer 0 has learned attention sinks"):
        reweighed_attention(seen, lambda s, n: s, (), query_mask=None, relevant_key=None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("differential", "was not trained with it; what can be tried: temperature, "),
        ("sigmoid:2", "sigmoid takes no number"),
        ("entmax:0.5", "such as entmax:1.5; got 'entmax:0.5'"),
        ("entmax:x", "such as entmax:1.5; got 'entmax:x'"),
        ("colder", "unknown remedy 'colder'"),
    ],
)
def test_what_cannot_be_tried_is_refused(text, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_what_if(text)
