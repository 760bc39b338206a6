"""The table of limits: rows computed by hand from a model's own pattern and values."""

from typing import Any

import numpy as np
import pytest
import torch

from resharpen.interp.drawing import length_generator
from resharpen.interp.limit_rows import LIMITS, profile_limits, selection_size
from resharpen.interp.measures import jacobian_norm, selection_distance, separable_share
from resharpen.interp.tables import check_table
from resharpen.models import Transformer, TransformerConfig, adapt
from resharpen.models.observed import AttentionSeen, PatternSeen
from resharpen.models.probes import RandomTokens, Repeated

SHAPE: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_vocab": 20}


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    made = Transformer(TransformerConfig(**SHAPE, n_ctx=64))
    with torch.no_grad():
        for block in made.blocks:
            block.attn.W_Q.mul_(40.0)
    return made.eval()


@pytest.mark.parametrize("selected", [3, 0.25])
def test_means_are_those_of_the_models_own_pattern(model: Transformer, selected: Any) -> None:
    probe = RandomTokens(20)
    found = profile_limits(
        adapt(model),
        probe,
        [8, 32],
        1,
        0,
        selected=selected,
        n_sequences=6,
        seed=2,
        batch_tokens=64,
    )
    check_table(found)
    tokens = probe.sample(length_generator(2, 32), 6, 32).tokens
    _, cache = model.run_with_cache(tokens)
    pattern, values = cache["blocks.1.attn.hook_pattern"][:, 0], cache["blocks.1.attn.hook_v"]
    for n_key in (8, 32):
        row, own = pattern[:, n_key - 1, :n_key].double(), values[:, :n_key, 0].double()
        k = selected if selected == 3 else n_key // 4
        expected = {
            "selection_distance": selection_distance(row, own, k=k),
            "separable_share": separable_share(row, own, k=k),
            "jacobian_norm": jacobian_norm(row),
            "jacobian_entry": (row * (1 - row)).amax(-1),
            "max_weight": row.amax(-1),
            "largest_value_norm": own.norm(dim=-1).amax(-1),
            "selected_keys": torch.full((6,), float(k)),
        }
        for name, value in expected.items():
            (line,) = found[(found["n_key"] == n_key) & (found["quantity"] == name)].to_dict(
                "records"
            )
            assert line["mean"] == pytest.approx(float(value.mean()), rel=1e-4), name
            assert line["max"] == pytest.approx(float(value.max()), rel=1e-4), name
            assert (line["n_obs"], line["unit"], line["status"]) == (6, LIMITS[name], "ok")
            assert (line["layer"], line["head"], line["site"]) == (1, 0, "decoder.1.attn")


def test_each_length_is_run_where_one_pass_does_not_hold_them_all(model: Transformer) -> None:
    seen: list[tuple[int, int, int]] = []
    found = profile_limits(
        adapt(model), Repeated(20), [16, 8], 0, 1, n_sequences=3,
        progress=lambda *state: seen.append(state),
    )  # fmt: skip
    assert seen == [(3, 6, 8), (6, 6, 16)]
    assert sorted(set(found["length"])) == [8, 16]
    assert set(found["quantity"]) == set(LIMITS)


class Shown:
    """An adapter that shows one record whatever it is fed."""

    def __init__(self, record: Any) -> None:
        self.record = record
        self.description = type("Facts", (), {"causal": True, "n_layers": 1})()
        self.max_length = None

    def observe(self, tokens: torch.Tensor, observer: Any, *args: Any, **more: Any) -> torch.Tensor:
        record = self.record(tokens)
        (observer.pattern if isinstance(record, PatternSeen) else observer.attention)(record)
        return tokens


def test_a_window_gives_no_row_twice() -> None:
    def record(tokens: torch.Tensor) -> AttentionSeen:
        vector = torch.randn(*tokens.shape, 4)[:, None]
        return AttentionSeen(0, vector, vector, vector, 1.0, True, window=6)

    found = profile_limits(Shown(record), RandomTokens(20), [4, 8, 16], 0, 0, n_sequences=2)
    assert sorted(set(found["n_key"])) == [4, 6]
    assert len(found) == 2 * len(LIMITS)


def test_a_pattern_without_values_leaves_what_needs_them_unavailable() -> None:
    def record(tokens: torch.Tensor) -> PatternSeen:
        n = tokens.shape[1]
        visible = torch.ones(n, n).tril().bool()
        scores = torch.zeros(len(tokens), 1, n, n).masked_fill(~visible, -torch.inf)
        return PatternSeen(0, scores.softmax(-1), visible[None, None], scores)

    found = profile_limits(Shown(record), RandomTokens(20), [4, 8], 0, 0, n_sequences=2)
    statuses = dict(zip(found["quantity"], found["status"], strict=True))
    unavailable = {name for name, status in statuses.items() if status == "unavailable"}
    assert unavailable == {"selection_distance", "separable_share", "largest_value_norm"}
    slope = found[found["quantity"] == "jacobian_norm"].sort_values("n_key")
    np.testing.assert_allclose(slope["mean"], [1 / 4, 1 / 8])


@pytest.mark.parametrize(
    ("selected", "n_key", "size"),
    [(4, 100, 4), (4, 2, 4), (0.06, 100, 6), (0.06, 3, 1), (0.5, 9, 4)],
)
def test_size_of_a_selection(selected: int | float, n_key: int, size: int) -> None:
    assert selection_size(selected, n_key) == size


@pytest.mark.parametrize("selected", [0, -1, True, 1.0, 2.5, 0.0, "4"])
def test_what_is_no_selection_is_refused(model: Transformer, selected: Any) -> None:
    with pytest.raises(ValueError, match="selected must be a whole number of keys from 1 on, or a"):
        profile_limits(adapt(model), RandomTokens(20), [8], 0, 0, selected=selected)
    with pytest.raises(ValueError, match="at least one length"):
        profile_limits(adapt(model), RandomTokens(20), [], 0, 0)
