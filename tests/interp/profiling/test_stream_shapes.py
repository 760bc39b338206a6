"""Streams of an adapted model against their definitions, pair by pair; what is left out and how."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from resharpen.interp.drawing import length_generator
from resharpen.interp.profiling import profile, stream_shapes
from resharpen.interp.profiling.score_alignment import score_cosine_correlation
from resharpen.interp.profiling.stream_shapes import spared_sequences
from resharpen.models.adapters import adapt
from resharpen.models.observed import AttentionSeen
from resharpen.models.probes import RandomTokens, Repeated

PROBE = Repeated(64, avoid=(0, 2), bos=1)


def row(table: pd.DataFrame, quantity: str, **where: Any) -> pd.Series:
    rows = table[table["quantity"] == quantity]
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1, (quantity, where, len(rows))
    return rows.iloc[0]


def pairs(tokens: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of different tokens, one by one."""
    unit = [token / math.sqrt(sum(float(x) ** 2 for x in token)) for token in tokens]
    n = len(unit)
    return np.array([float(unit[i] @ unit[j]) for i in range(n) for j in range(n) if i != j])


def rank(tokens: np.ndarray) -> float:
    values = np.linalg.svd(tokens, compute_uv=False)
    share = values[values > 1e-7 * values[0]]
    share = share / share.sum()
    return math.exp(-float((share * np.log(share)).sum()))


def expected(tokens: np.ndarray) -> dict[str, float]:
    """Every quantity of one sequence's tokens ``[n, d_model]``, from its definition."""
    cosines = pairs(tokens)
    unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    parts = unit.sum(0) ** 2
    without = np.delete(tokens, int(parts.argmax()), axis=1)
    values = np.linalg.svd(tokens, compute_uv=False)
    n, groups = len(tokens), []
    near = cosines.reshape(n, n - 1) >= 0.9
    near = [[near[i, j - (j > i)] if i != j else True for j in range(n)] for i in range(n)]
    left = set(range(n))
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {j for i in new for j in left if near[i][j]} - group
        groups.append(group)
        left -= group
    return {
        "mean_cosine": float(cosines.mean()),
        "mean_square_cosine": float((cosines**2).mean()),
        "trimmed_cosine": float(pairs(without).mean()),
        "top_coordinate_share": float(parts.max() / parts.sum()),
        "effective_rank": rank(tokens),
        "stable_rank": float((values**2).sum() / values[0] ** 2),
        "direction_rank": rank(unit),
        "cluster_count": len(groups),
        "largest_cluster_share": max(map(len, groups)) / n,
    }


def hidden(model: Any, tokens: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return list(model(input_ids=tokens, output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_every_quantity_equals_its_definition(name: str, build, adapted) -> None:
    probe, causal = RandomTokens(64, avoid=(0, 2)), name != "bert"
    found = profile(adapted(name), probe, [9, 22], n_sequences=3).table
    for n in (9, 22):
        length = 22 if causal else n  # one pass stands for both lengths of a causal model
        tokens = probe.sample(length_generator(0, length), 3, length).tokens
        states = hidden(build(name), tokens)
        for layer, state in enumerate(states[:-1]):
            wanted = [expected(one[:n].double().numpy()) for one in state]
            for quantity in wanted[0]:
                values = [one[quantity] for one in wanted]
                mine = row(
                    found, quantity, site=f"blocks.{layer}.resid_pre", length=length, n_key=n
                )
                assert mine["mean"] == pytest.approx(np.mean(values), rel=2e-4, abs=2e-5)
                assert mine["min"] == pytest.approx(min(values), rel=2e-4, abs=2e-5)
                assert mine["n_obs"] == 3 and mine["layer"] == layer
        if not causal:
            before, after = states[0].double(), states[1].double()
            cosine = torch.cosine_similarity(before, after, dim=-1)
            speed = row(found, "angular_speed", site="blocks.0", n_key=n)
            assert speed["mean"] == pytest.approx(float(cosine.arccos().mean()), rel=1e-4)
            growth = row(found, "norm_growth", site="blocks.0", n_key=n)
            ratio = after.norm(dim=-1) / before.norm(dim=-1)
            assert growth["mean"] == pytest.approx(float(ratio.mean()), rel=1e-4)
    assert set(found[found["site"] == "final"]["quantity"]) >= set(wanted[0])


def test_dear_quantities_are_of_the_first_sequences_however_they_are_split(
    adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_shapes, "WORK", 2 * 16**3)
    assert spared_sequences(16) == 2 and spared_sequences(10**4) == 1
    whole = profile(adapted("gpt2"), PROBE, [20], n_sequences=5).table
    split = profile(adapted("gpt2"), PROBE, [20], n_sequences=5, batch_tokens=20).table
    for quantity, count in (("effective_rank", 2), ("cluster_count", 2), ("mean_cosine", 5)):
        one, other = (row(frame, quantity, site="blocks.1.resid_pre") for frame in (whole, split))
        assert one["n_obs"] == other["n_obs"] == count
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-5)


def test_wide_long_streams_are_thinned(adapted, monkeypatch: pytest.MonkeyPatch, build) -> None:
    monkeypatch.setattr(stream_shapes, "MOST_RANKED", 6)
    monkeypatch.setattr(stream_shapes, "MOST_CLUSTERED", 4)
    found = profile(adapted("gpt2"), RandomTokens(64), [11], n_sequences=1).table
    tokens = RandomTokens(64).sample(length_generator(0, 11), 1, 11).tokens
    state = hidden(build("gpt2"), tokens)[1][0].double().numpy()
    ranked, clustered = state[[0, 2, 4, 6, 8, 10]], state[[0, 3, 7, 10]]
    at = {"site": "blocks.1.resid_pre"}
    assert row(found, "stable_rank", **at)["mean"] == pytest.approx(
        expected(ranked)["stable_rank"], rel=1e-4
    )
    share = expected(clustered)["largest_cluster_share"]
    assert row(found, "largest_cluster_share", **at)["mean"] == pytest.approx(share)
    whole = expected(state)["mean_cosine"]
    assert row(found, "mean_cosine", **at)["mean"] == pytest.approx(whole, abs=1e-5)


def test_one_token_has_no_cosine_and_says_so(adapted) -> None:
    found = profile(adapted("gpt2"), RandomTokens(64), [1], n_sequences=2).table
    at = {"site": "blocks.1.resid_pre"}
    alone = row(found, "mean_cosine", **at)
    assert alone["status"] == "undefined" and math.isnan(alone["mean"])
    assert row(found, "effective_rank", **at)["mean"] == pytest.approx(1.0)
    correlation = found[found["quantity"] == "score_cosine_correlation"]
    assert (correlation["status"] == "undefined").all() and len(correlation) == 2


def test_a_coordinate_that_is_large_in_every_token_is_told_from_tokens_that_are_alike(own) -> None:
    model = own(n_layers=1)
    with torch.no_grad():
        model.W_E[:, 3] = 40.0
    table = profile(adapt(model), RandomTokens(64), [60], n_sequences=2).table
    at = {"site": "blocks.0.resid_pre"}
    assert row(table, "mean_cosine", **at)["mean"] > 0.9
    assert row(table, "top_coordinate_share", **at)["mean"] > 0.99
    assert abs(row(table, "trimmed_cosine", **at)["mean"]) < 0.1


def test_scores_of_identity_matrices_are_the_cosines(own) -> None:
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(2, 9, 12, generator=generator)
    unit = (stream / stream.norm(dim=-1, keepdim=True))[:, None]
    heads = {"value": unit, "scale": 5.0, "causal": True}

    class Places:
        shown = torch.ones(2, 9, dtype=torch.bool)
        documents = torch.zeros(2, 9, dtype=torch.int64)

    def correlation(query: Tensor, key: Tensor, causal: bool = True) -> Tensor:
        seen = AttentionSeen(0, query=query, key=key, **heads)
        return score_cosine_correlation(seen, stream, Places(), causal)  # type: ignore[arg-type]

    grouped = unit.expand(-1, 4, -1, -1)
    for causal in (True, False):
        assert correlation(grouped, unit, causal).tolist() == pytest.approx([1.0, 1.0])
    assert correlation(-grouped, unit).tolist() == pytest.approx([-1.0, -1.0])
    other = torch.randn(2, 1, 9, 12, generator=generator)
    scores = (other[0, 0] @ unit[0, 0].T)[torch.ones(9, 9).tril(-1).bool()]
    cosines = (unit[0, 0] @ unit[0, 0].T)[torch.ones(9, 9).tril(-1).bool()]
    wanted = float(np.corrcoef(scores.numpy(), cosines.numpy())[0, 1])
    assert float(correlation(other, unit)[0]) == pytest.approx(wanted, abs=1e-5)
    assert correlation(torch.zeros_like(unit), unit).isnan().all()
