"""What must not matter (batches, padding, packing), and what happens when something goes wrong."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from resharpen.interp.profiling import FAST_STATISTICS, Ladder, profile
from resharpen.models.adapters import adapt
from resharpen.models.observed import AttentionSeen
from resharpen.models.probes import Needle, RandomTokens, Repeated, TaskProbe
from resharpen.models.tasks import SetComplement

PROBE = Repeated(64, avoid=(0, 2), bos=1)
KEYS = ["length", "n_key", "layer", "head", "site", "quantity"]


def assert_same(one: pd.DataFrame, other: pd.DataFrame, without: tuple[str, ...] = ()) -> None:
    one, other = (
        frame[~frame["quantity"].isin(without)].sort_values(KEYS).reset_index(drop=True)
        for frame in (one, other)
    )
    exact = [*KEYS, "unit", "n_obs", "status"]
    pd.testing.assert_frame_equal(one[exact], other[exact])
    numbers = ["mean", "sem", "min", "max"]
    pd.testing.assert_frame_equal(one[numbers], other[numbers], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "bert", "bloom"])
def test_the_split_into_batches_does_not_matter(name: str, adapted) -> None:
    whole = profile(adapted(name), PROBE, [14, 30], n_sequences=5)
    split = profile(adapted(name), PROBE, [14, 30], n_sequences=5, batch_tokens=60)
    assert whole.batch == {14: 5, 30: 5} and split.batch == {14: 4, 30: 2}
    assert_same(whole.table, split.table)
    pd.testing.assert_frame_equal(whole.rows, split.rows)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3", "bert", "bloom"])
def test_padding_changes_no_row(name: str, adapted, padded) -> None:
    ladder = Ladder((1, 3, 6, 12, 17))
    alone = profile(adapted(name), PROBE, [25], n_sequences=4, ladder=ladder)
    behind = profile(adapted(name), padded(PROBE, 3), [25], n_sequences=4, ladder=ladder)
    # With padding an encoder has no short run to take its gain from.
    without = ("rescale_gain",) if name == "bert" else ()
    assert_same(alone.table, behind.table, without)
    counts = behind.rows.groupby("status")["n_rows"].sum()
    assert counts["padding"] == 4 * 3 * 2 * 4  # sequences, positions of padding, layers, heads
    kept = alone.rows.groupby("status")["n_rows"].sum()
    assert counts.drop("padding").to_dict() == kept.to_dict()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])
def test_packing_changes_no_row(name: str, adapted, packed) -> None:
    adapter = adapted(name)
    assert adapter.description.packing
    ladder = Ladder((1, 3, 6, 12, 17))
    alone = profile(adapter, PROBE, [25], n_sequences=4, ladder=ladder)
    together = profile(adapter, packed(PROBE), [25], n_sequences=4, ladder=ladder)
    # Distances within a document are what they were, so the window's mass is too.
    assert_same(alone.table, together.table)
    counts = together.rows.groupby("status")["n_rows"].sum()
    assert counts.to_dict() == (2 * alone.rows.groupby("status")["n_rows"].sum()).to_dict()


def test_our_own_model_and_task(own) -> None:
    task = SetComplement(63, bos=True)
    model = own(d_vocab_out=63)
    found = profile(adapt(model), TaskProbe(task), [20, 50], n_sequences=4)
    table = found.table
    assert set(table["task"]) == {"task"} and found.complete
    # Every position is scored, and one position more than the length is there.
    loss = table[(table["quantity"] == "loss") & (table["length"] == 50)]
    assert loss["n_key"].max() == 50 and loss["n_key"].min() == 4  # 49, 50 and 51 average to 50
    entropy = table[(table["quantity"] == "entropy") & (table["length"] == 50)]
    assert (entropy["mean"] <= torch.tensor(entropy["n_key"].tolist()).log().numpy() + 1e-2).all()


def test_one_pass_stands_for_every_length_where_it_may(adapted) -> None:
    probe = RandomTokens(64)
    once = profile(adapted("gpt2"), probe, [8, 16, 32], n_sequences=3)
    assert once.asked == once.lengths == (32,) and "One pass of length 32" in once.notes[0]
    entropy = once.table[once.table["quantity"] == "entropy"]
    # The lengths asked for (31 and 32 average to 31), and the geometric rungs between them.
    assert {8, 16, 31} < set(entropy["n_key"]) == {4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 18, 22, 26, 31}
    each = profile(adapted("gpt2"), probe, [8, 16, 32], n_sequences=3, one_pass=False)
    assert each.lengths == (8, 16, 32) and not each.notes
    encoder = profile(adapted("bert"), probe, [8, 16], n_sequences=3)
    assert encoder.lengths == (8, 16)
    with pytest.raises(ValueError, match="'needle' on this model needs a pass for each"):
        profile(adapted("gpt2"), Needle(64), [8, 16], one_pass=True)


def test_fast_mode_measures_what_the_fused_kernel_gives(adapted) -> None:
    found = profile(adapted("gpt2"), RandomTokens(64), [20], n_sequences=2, statistics="fast")
    heads = found.table[found.table["site"].str.endswith(".attn")]
    assert set(heads["quantity"]) == set(FAST_STATISTICS)
    full = profile(adapted("gpt2"), RandomTokens(64), [20], n_sequences=2)
    same = full.table[full.table["quantity"].isin(FAST_STATISTICS)]
    assert_same(heads, same[same["site"].str.endswith(".attn")])


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                self.n = max(self.n, part.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("statistics", ["fast", "full"])
@pytest.mark.parametrize("name", ["gpt2", "ours"])
def test_no_array_grows_with_the_square_of_the_length(
    name: str, statistics: str, adapted, own
) -> None:
    n = 1536
    adapter = (
        adapted("gpt2", n_positions=n, n_layer=1)
        if name == "gpt2"
        else adapt(own(n_layers=1, n_ctx=n))
    )
    probe = Repeated(64, replacement=True)
    with Largest() as largest:
        profile(adapter, probe, [n], n_sequences=1, statistics=statistics)
    assert 0 < largest.n < n * n / 2


class Stub:
    """An adapter that fails in a chosen way and otherwise runs a real one."""

    def __init__(self, adapter: Any, fail: Callable[[torch.Tensor], None]) -> None:
        self.adapter, self.fail = adapter, fail
        self.description, self.max_length = adapter.description, adapter.max_length

    def observe(self, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.fail(tokens)
        return self.adapter.observe(tokens, *args, **kwargs)


def test_batches_are_halved_until_they_fit(adapted) -> None:
    def refuse(tokens: torch.Tensor) -> None:
        if len(tokens) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    stub = Stub(adapted("gpt2"), refuse)
    small = profile(stub, PROBE, [16, 20], n_sequences=8)
    assert small.batch == {16: 2, 20: 2}
    assert_same(small.table, profile(adapted("gpt2"), PROBE, [16, 20], n_sequences=8).table)

    def always(tokens: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="one sequence of 16 positions does not fit"):
        profile(Stub(adapted("gpt2"), always), PROBE, [16], n_sequences=8)

    def other(tokens: torch.Tensor) -> None:
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        profile(Stub(adapted("gpt2"), other), PROBE, [16], n_sequences=8)


def test_an_interrupt_keeps_the_finished_lengths(adapted) -> None:
    def interrupt(tokens: torch.Tensor) -> None:
        if tokens.shape[1] > 20:
            raise KeyboardInterrupt

    stub = Stub(adapted("gpt2"), interrupt)
    with pytest.warns(UserWarning, match="the 2 finished of 3 lengths"):
        found = profile(stub, PROBE, [40, 12, 20], n_sequences=2)
    assert found.lengths == (12, 20) and found.asked == (12, 20, 40) and not found.complete
    assert set(found.table["length"]) == {12, 20}
    with pytest.raises(KeyboardInterrupt):
        profile(stub, PROBE, [40], n_sequences=2)


def test_lengths_past_the_positions_are_refused_or_marked(adapted) -> None:
    with pytest.raises(ValueError, match="length 65 needs 65 positions, but the model has learned"):
        profile(adapted("gpt2"), PROBE, [16, 65], past_positions=True)
    with pytest.raises(ValueError, match=r"was made for at most 64.*past_positions=True"):
        profile(adapted("llama"), PROBE, [16, 65])
    found = profile(adapted("llama"), PROBE, [16, 65], n_sequences=1, past_positions=True)
    assert found.past_positions == (65,) and found.max_length == 64
    assert found.lengths == (16, 65)


def test_measuring_beside_the_models_own_kernel_gives_the_same(adapted) -> None:
    outputs: list[torch.Tensor] = []

    class Keep(Stub):
        def observe(self, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            outputs.append(super().observe(tokens, *args, **kwargs))
            outputs.append(self.adapter.run_plain(tokens))
            return outputs[-2]

    adapter = Keep(adapted("llama"), lambda tokens: None)
    beside = profile(adapter, PROBE, [20], n_sequences=2, stand_in=False)
    assert torch.equal(outputs[0], outputs[1])
    standing_in = profile(adapter, PROBE, [20], n_sequences=2)
    torch.testing.assert_close(outputs[2], outputs[3], rtol=1e-3, atol=1e-4)
    assert_same(beside.table, standing_in.table)


def test_a_remedy_changes_what_it_names_and_nothing_before_it(adapted) -> None:
    def sharpen(seen: AttentionSeen) -> AttentionSeen:
        if seen.layer != 1:
            return seen
        factor = torch.tensor([3.0, 1.0, 1.0, 1.0]).view(1, -1, 1, 1)
        return dataclasses.replace(seen, query=seen.query * factor)

    before = profile(adapted("llama"), PROBE, [20], n_sequences=2).table
    after = profile(adapted("llama"), PROBE, [20], n_sequences=2, remedy=sharpen).table
    site = {layer: f"decoder.{layer}.attn" for layer in range(2)}
    untouched = [
        frame[(frame["site"] == site[0]) | ((frame["site"] == site[1]) & (frame["head"] > 0))]
        for frame in (before, after)
    ]
    assert_same(*untouched)
    spread = [
        frame.query(f"site == '{site[1]}' and head == 0 and quantity == 'score_spread'")["mean"]
        for frame in (before, after)
    ]
    assert (spread[1] / spread[0]).tolist() == pytest.approx([3.0] * len(spread[0]), rel=1e-4)
    loss = [frame[frame["quantity"] == "loss"]["mean"].tolist() for frame in (before, after)]
    assert loss[0] != loss[1]


def test_rows_that_are_not_finite_are_counted_and_called_undefined(adapted) -> None:
    def spoil(seen: AttentionSeen) -> AttentionSeen:
        if seen.layer != 1:
            return seen
        query = seen.query.clone()
        query[:, 2] = torch.nan
        return dataclasses.replace(seen, query=query)

    found = profile(adapted("llama"), PROBE, [20], n_sequences=2, remedy=spoil, statistics="fast")
    counts = found.rows[found.rows["status"] == "non_finite"]
    assert counts["site"].tolist() == ["decoder.1.attn"] and counts["n_rows"].tolist() == [40]
    rows = found.table.query("site == 'decoder.1.attn' and quantity == 'entropy'")
    assert set(rows[rows["head"] == 2]["status"]) == {"undefined"}
    assert set(rows[rows["head"] != 2]["status"]) == {"ok"}


def test_progress_and_labels(adapted) -> None:
    calls: list[tuple[int, int, int]] = []
    found = profile(
        adapted("gpt2"),
        PROBE,
        [20, 10],
        n_sequences=3,
        batch_tokens=40,
        labels={"study": "s", "checkpoint": "c", "seed": 4},
        progress=lambda *call: calls.append(call),
    ).table
    assert calls == [(3, 6, 10), (5, 6, 20), (6, 6, 20)]
    assert set(found["study"]) == {"s"} and set(found["checkpoint"]) == {"c"}
    assert set(found["task"]) == {"repeated"} and set(found["seed"]) == {4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": []}, "at least one"),
        ({"lengths": [0]}, "1 or more"),
        ({"lengths": [8, 8]}, "must all be different"),
        ({"lengths": [3]}, "need a length of at least 5"),
        ({"n_sequences": 0}, "n_sequences must be a whole number"),
        ({"batch_tokens": 1.5}, "batch_tokens must be a whole number"),
        ({"statistics": "ful"}, '"fast", "full" or a collection'),
        ({"statistics": ["entropi"]}, "unknown statistic 'entropi'"),
        ({"labels": {"model": "x"}}, "labels may be study, checkpoint, task, seed; got 'model'"),
        ({"ladder": [100, 101]}, "too close"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(changes, message, adapted) -> None:
    def never(tokens: torch.Tensor) -> None:
        raise AssertionError("the model was run")

    arguments = {"lengths": [16], **changes}
    with pytest.raises(ValueError, match=message):
        profile(Stub(adapted("gpt2"), never), PROBE, **arguments)


def test_a_probe_with_more_tokens_than_the_output_is_refused(own) -> None:
    adapter = adapt(own(d_vocab_out=20))
    with pytest.raises(ValueError, match=r"labels go up to .* but the model has 20 output tokens"):
        profile(adapter, PROBE, [40], n_sequences=4)
