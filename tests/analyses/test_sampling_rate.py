"""The sampling rate of heads whose scores and values are known, of shipped ones and of others."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from resharpen.analyses import SamplingRate, measure_sampling_rate, plot_sampling_error
from resharpen.interp.tables import check_table
from resharpen.models.adapters import Adapter, describe
from resharpen.models.observed import AttentionSeen, PatternSeen
from resharpen.models.probes import RandomTokens


class Known(nn.Module):
    """A model whose every token has one score and one value."""

    def __init__(self, scores: np.ndarray, values: np.ndarray) -> None:
        super().__init__()
        table = np.concatenate([scores[:, None], values], axis=1)
        self.table = nn.Embedding.from_pretrained(torch.as_tensor(table).float())

    def project(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        table = self.table(tokens)[:, None]
        key, value = table[..., :1], table[..., 1:]
        return torch.ones_like(key), key, value

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.project(tokens)
        attend = nn.functional.scaled_dot_product_attention
        return attend(query, key, value, is_causal=True, scale=1.0)[:, 0]


class KnownAdapter(Adapter):
    finished = False

    def watch(self, observer: Any) -> Iterator[Any]:
        def look(module: Any, args: Any, output: Tensor) -> Tensor | None:
            query, key, value = module.project(args[0])
            if self.finished:
                n = key.shape[2]
                visible = torch.ones(n, n).tril().bool()[None, None]
                scores = key.mT.expand(-1, -1, n, -1).masked_fill(~visible, -torch.inf)
                observer.pattern(PatternSeen(0, scores.softmax(-1), visible, scores))
                return None
            z = observer.attention(AttentionSeen(0, query, key, value, scale=1.0, causal=True))
            return None if z is None else z[:, 0]

        yield self.module.register_forward_hook(look)


def known(scores: np.ndarray, values: np.ndarray) -> KnownAdapter:
    model = Known(scores, values)
    facts = describe(model, n_layers=1, n_heads=1, d_vocab=len(scores))
    return KnownAdapter(model, dataclasses.replace(facts, causal=True))


RNG = np.random.default_rng(0)
SIZE = 4000
VALUES = RNG.normal(size=(SIZE, 3))


@pytest.fixture(scope="module")
def flat() -> SamplingRate:
    """Equal scores: the error is that of a plain mean, sigma / sqrt(n) from n = 1 on."""
    return measure_sampling_rate(
        known(np.zeros(SIZE), VALUES), 0, 0, probe="random", length=512, n_draws=400, name="flat"
    )


def test_the_rate_and_constant_of_a_mean_are_found(flat: SamplingRate) -> None:
    check_table(flat.table)
    assert flat.scale == pytest.approx(1.0) and flat.settled == pytest.approx(32.0)
    assert flat.constant == pytest.approx(math.sqrt(3.0), rel=0.05)
    assert flat.exponent.value == pytest.approx(-0.5, abs=0.02)
    assert flat.whole_exponent.value == pytest.approx(-0.5, abs=0.02)
    assert flat.exponent.high - flat.exponent.low < 0.05
    assert flat.finding.predicted_exponent.value == pytest.approx(-0.5)
    assert flat.finding.final_ratio == pytest.approx(1.0, abs=0.04)
    assert min(flat.table["n_key"]) == 8 and max(flat.table["n_key"]) == 1024


def test_gaussian_scores_keep_the_rate_with_the_constant_of_their_deviation() -> None:
    """Values apart from scores: C^2 = sigma_v^2 e^(sigma^2) for many keys."""
    found = measure_sampling_rate(
        known(0.7 * RNG.normal(size=SIZE), VALUES), 0, 0, probe="random", length=1024, n_draws=300
    )
    assert found.constant == pytest.approx(math.sqrt(3.0 * math.exp(0.49)), rel=0.08)
    assert found.scale == pytest.approx(math.exp(0.49), rel=0.25)
    assert found.exponent.value == pytest.approx(-0.5, abs=0.03)
    assert found.finding.final_ratio == pytest.approx(1.0, abs=0.05)


def test_a_head_of_one_key_has_the_rate_only_past_its_scale() -> None:
    """A needle in 512 keys: until it is drawn every time, the error does not fall."""
    scores = np.zeros(SIZE)
    scores[: SIZE // 250] = 25.0
    given: dict[str, Any] = {"probe": "random", "length": 512, "n_draws": 200}
    found = measure_sampling_rate(known(scores, VALUES), 0, 0, **given)
    assert found.scale > 50 and found.settled == 32 * found.scale
    early = measure_sampling_rate(known(scores, VALUES), 0, 0, sizes=[2, 4, 8, 16], **given)
    assert early.whole_exponent.value > -0.35
    assert early.exponent.status == "undefined" and not early.finding.violated
    assert "has no exponent from" in early.sentence
    # Drawn about its scale the variance is far from its limit; past it theory claims the rate.
    claimed = [curve for curve in found.curves if curve.kind == "limit"]
    assert claimed[0].domain[0] == found.settled


def test_the_sentence_says_rate_interval_theory_and_constant(flat: SamplingRate) -> None:
    assert flat.sentence.startswith("flat, layer 0, head 0 on random: the distance of the output")
    assert f"falls as n^{flat.exponent} from 32 keys on, where theory has n^-0.5" in flat.sentence
    assert "times the derived C / sqrt(n), C = 1.7" in flat.sentence
    assert repr(flat).startswith("SamplingRate(flat, layer 0, head 0 on random: n^-0.")
    assert flat.result.provenance.resolved["exponent"]["value"] == flat.exponent.value


def test_the_figure_draws_the_limit_and_names_the_conjecture(flat: SamplingRate) -> None:
    figure = plot_sampling_error(flat.table, flat.curves)
    key = [trace.name for trace in figure.data if trace.legend == "legend2"]
    assert key == [
        "sampling error, C / sqrt(n)",
        "sampling error, C / sqrt(n) over a ball of queries (conjecture)",
    ]
    drawn = {trace.name: trace for trace in figure.data if trace.hovertemplate}
    limit = np.array(drawn[key[0]].y, float)
    x = np.array(drawn[key[0]].x, float)
    np.testing.assert_allclose(limit[x >= 32], flat.constant / np.sqrt(x[x >= 32]))
    assert np.isnan(limit[x < 32]).all()
    assert "fitted" in drawn[key[1]].hovertemplate and "source:" in drawn[key[1]].hovertemplate
    assert figure.layout.meta["title"] == "Sampling error of flat, layer 0, head 0"


def test_ours_and_hugging_face_are_measured_alike() -> None:
    found = measure_sampling_rate("set-complement-none", 0, 0)
    assert found.probe == "task" and found.table["length"].unique().tolist() == [31]
    assert found.exponent.value == pytest.approx(-0.5, abs=0.03)
    assert found.finding.final_ratio == pytest.approx(1.0, abs=0.06)
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 90, "n_positions": 64}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, **tokens, initializer_range=0.4)).eval()
    foreign = measure_sampling_rate(model, 1, 1, probe=RandomTokens(90))
    assert foreign.exponent.value == pytest.approx(-0.5, abs=0.05)
    assert foreign.finding.final_ratio == pytest.approx(1.0, abs=0.1)
    again = measure_sampling_rate(model, 1, 1, probe=RandomTokens(90))
    assert again.table.equals(foreign.table) and again.sentence == foreign.sentence


def test_values_that_do_not_differ_have_no_rate_and_no_error() -> None:
    found = measure_sampling_rate(
        known(RNG.normal(size=SIZE), np.ones((SIZE, 2))), 0, 0, probe="random", length=64
    )
    assert found.table["mean"].max() < 1e-12
    assert found.constant == pytest.approx(0.0, abs=1e-12)


def test_progress_counts_sizes() -> None:
    seen: list[tuple[int, int, int]] = []
    measure_sampling_rate(
        known(np.zeros(SIZE), VALUES), 0, 0, probe="random", length=16, sizes=[64, 8],
        n_sequences=2, n_draws=4, progress=lambda *state: seen.append(state),
    )  # fmt: skip
    assert seen == [(1, 2, 8), (2, 2, 64)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer": 1}, "layer must be a number from 0 to 0"),
        ({"sizes": [0, 4]}, "n_key must be a whole number, 1 or more; got 0"),
        ({"n_draws": 0}, "n_draws must be a whole number"),
        ({"n_sequences": 0}, "n_sequences must be"),
        ({"sizes": []}, "sizes"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"layer": 0, "head": 0, "probe": "random", "length": 16, **change}
    adapter = known(np.zeros(SIZE), VALUES)
    with pytest.raises(ValueError, match=sentence):
        measure_sampling_rate(adapter, given.pop("layer"), given.pop("head"), **given)


def test_a_model_without_values_is_refused() -> None:
    adapter = known(np.zeros(SIZE), VALUES)
    adapter.finished = True
    with pytest.raises(ValueError, match="without the values that they average"):
        measure_sampling_rate(adapter, 0, 0, probe="random", length=16)
