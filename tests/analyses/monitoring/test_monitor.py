import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from resharpen.analyses.monitoring import DispersionMonitor
from resharpen.analyses.monitoring.monitor import HISTORY_COLUMNS
from resharpen.interp.profiling import profile
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.adapters import adapt
from resharpen.models.probes import get_probe


def model(**more: object) -> Transformer:
    shape = {"d_vocab": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_head": 4}
    made = Transformer(TransformerConfig(**{**shape, **more}), seed=1)  # type: ignore[arg-type]
    for block in made.blocks:
        block.attn.W_Q.data *= 8
    return made


def monitor(watched: nn.Module | None = None, **options: object) -> DispersionMonitor:
    given = {"every": 2, "lengths": (16,), "n_sequences": 3, **options}
    return DispersionMonitor(model() if watched is None else watched, **given)  # type: ignore[arg-type]


def test_it_measures_what_a_profile_measures() -> None:
    watched = model()
    own = monitor(watched)
    own.measure(7)
    probe = get_probe("random")(d_vocab=11)
    table = profile(
        adapt(watched), probe, [16], n_sequences=3, ladder=[16], statistics="fast"
    ).table
    history = own.history
    for quantity in ("entropy", "normalised_entropy", "effective_support"):
        wanted = table[(table["quantity"] == quantity) & (table["n_key"] == 16)]
        got = history[history["quantity"] == quantity]
        assert got["n_key"].tolist() == [16] * 4
        np.testing.assert_allclose(
            got["value"].to_numpy(), wanted["mean"].to_numpy(np.float64), rtol=1e-6
        )


def test_a_head_that_is_uniform_has_slope_one_and_one_that_holds_has_none() -> None:
    watched = model(n_layers=1, n_heads=1, positional_embedding_type="none")
    watched.blocks[0].attn.W_Q.data.zero_()
    uniform = monitor(watched, lengths=(64,))
    uniform.measure(0)
    history = uniform.history.set_index("quantity")["value"]
    assert history["dispersion_slope"] == pytest.approx(1.0, abs=1e-6)
    assert history["normalised_entropy"] == pytest.approx(1.0, abs=1e-6)
    assert history["effective_support"] == pytest.approx(64, rel=1e-5)


def test_every_so_many_steps_counted_or_told() -> None:
    own = monitor(every=3)
    assert [own.step() for _ in range(7)] == [False, False, True, False, False, True, False]
    assert own.steps == (3, 6)
    assert own.step(30)
    assert not own.step(31)
    own.measure(6)
    assert sorted(own.steps) == [3, 6, 30]
    assert tuple(own.history.columns) == HISTORY_COLUMNS
    assert "3 measured" in repr(own)


def test_training_goes_on_as_if_nobody_had_looked() -> None:
    runs = []
    for watching in (False, True):
        watched = model(attn_dropout=0.2).train()
        optimizer = torch.optim.AdamW(watched.parameters(), lr=1e-2)
        own = monitor(watched, every=1) if watching else None
        torch.manual_seed(5)
        for _ in range(4):
            tokens = torch.randint(0, 11, (4, 8))
            loss = nn.functional.cross_entropy(watched(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            before = [p.grad.clone() for p in watched.parameters() if p.grad is not None]
            if own is not None:
                own.step()
            after = [p.grad for p in watched.parameters() if p.grad is not None]
            assert all(map(torch.equal, before, after))
            assert watched.training
            optimizer.step()
        runs.append(copy.deepcopy(watched.state_dict()))
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_the_same_sequences_every_time() -> None:
    own = monitor()
    own.measure(0)
    own.measure(2)
    history = own.history
    first, second = (history[history["step"] == step]["value"].to_numpy() for step in (0, 2))
    np.testing.assert_array_equal(first, second)


class Writer:
    def __init__(self) -> None:
        self.said: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.said.append((name, value, step))


class Run:
    def __init__(self) -> None:
        self.said: list[dict[str, float]] = []

    def log(self, numbers: dict[str, float]) -> None:
        self.said.append(numbers)


def test_what_is_logged_is_the_mean_over_heads() -> None:
    writer, run, heard = Writer(), Run(), []
    own = monitor(log=[writer, run, lambda step, numbers: heard.append((step, numbers))])
    own.measure(4)
    history = own.history
    layer = history[(history["layer"] == 1) & (history["quantity"] == "entropy")]["value"]
    name = "dispersion/layer 1/entropy"
    ((step, numbers),) = heard
    assert step == 4
    assert numbers[name] == pytest.approx(layer.mean())
    assert (name, numbers[name], 4) in writer.said
    assert run.said == [{**numbers, "dispersion/step": 4}]
    assert "dispersion/model/dispersion_slope" in numbers


def test_the_trend_is_drawn_by_layer() -> None:
    own = monitor()
    own.step(2)
    own.step(4)
    trend = own.trend()
    assert set(trend["place"]) == {"model", "layer 0", "layer 1"}
    history = own.history
    slopes = history[(history["step"] == 2) & (history["quantity"] == "dispersion_slope")]
    whole = trend[(trend["step"] == 2) & (trend["place"] == "model")]
    assert float(whole["value"].iloc[0]) == pytest.approx(float(slopes["value"].mean()))
    figure = own.plot()
    assert any(list(trace.x) == [2.0, 4.0] for trace in figure.data)


def test_nothing_to_draw_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="nothing"):
        monitor().plot()


def test_a_measurement_that_fails_warns_and_the_run_goes_on() -> None:
    watched = model(positional_embedding_type="standard", n_ctx=8)
    own = monitor(watched, lengths=(16,))
    with pytest.warns(UserWarning, match="not measured at step 2"):
        assert not own.step(2)
    assert own.steps == ()
    assert own.history.empty


def test_a_model_that_has_diverged_is_told_of_once_and_left_out() -> None:
    watched, heard = model(), []
    own = monitor(watched, every=1, log=lambda step, numbers: heard.append(step))
    assert own.step()
    healthy = copy.deepcopy(watched.state_dict())
    watched.blocks[0].attn.W_Q.data.fill_(float("nan"))
    with pytest.warns(
        UserWarning, match="not measured at step 2: 4 of 4 heads have no finite"
    ) as said:
        assert [own.step() for _ in range(3)] == [False] * 3
    assert len(said) == 1
    assert own.steps == (1,)
    assert heard == [1]
    watched.load_state_dict(healthy)
    assert own.step()
    watched.blocks[0].attn.W_Q.data.fill_(float("inf"))
    with pytest.warns(UserWarning, match="not measured at step 6"):
        assert not own.step()
    assert heard == [1, 5]


def test_what_is_still_finite_of_a_diverging_model_is_kept() -> None:
    watched = model()
    own = monitor(watched)
    watched.blocks[1].attn.W_Q.data.fill_(float("nan"))
    with pytest.warns(UserWarning, match="in part at step 2: 2 of 4 heads have no finite"):
        assert own.step(2)
    assert set(own.history["layer"]) == {0}


def test_a_log_that_fails_never_ends_the_run() -> None:
    lost, heard = [True], []

    def log(step: int, numbers: object) -> None:
        if lost[0]:
            raise ConnectionError("the run is gone")
        heard.append(step)

    own = monitor(every=1, log=[log, lambda step, numbers: heard.append(-step)])
    with pytest.warns(UserWarning, match=r"of step 1 .* \(ConnectionError: the run is g") as said:
        assert own.step()
        assert own.step()
    assert len(said) == 1
    lost[0] = False
    assert own.step()
    assert heard == [-1, -2, 3, -3]
    assert own.steps == (1, 2, 3)
    lost[0] = True
    with pytest.warns(UserWarning, match="dispersion of step 4 could not be logged"):
        assert own.step()


@pytest.mark.parametrize("step", ["x", 1.5, -1, True])
def test_a_step_is_a_whole_number(step: object) -> None:
    own = monitor()
    with pytest.raises(ValueError, match="step must be a whole number of steps done, 0 or more"):
        own.step(step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step must be a whole number"):
        own.measure(step)  # type: ignore[arg-type]
    assert own.step(np.int64(2))  # type: ignore[arg-type]
    assert own.steps == (2,)


def test_it_looks_into_a_compiled_model() -> None:
    watched = model()
    own = monitor(torch.compile(watched, backend="eager"), lengths=(8,))  # type: ignore[arg-type]
    assert own.measure(0)
    other = monitor(nn.DataParallel(watched), lengths=(8,))
    assert other.measure(0)
    np.testing.assert_array_equal(own.history["value"], other.history["value"])


def test_attention_that_is_not_causal_runs_a_ladder() -> None:
    own = monitor(model(attention_dir="bidirectional"), lengths=None)
    own.measure(0)
    assert set(own.history["n_key"]) == {128}
    assert all(math.isfinite(value) for value in own.history["value"])
    assert "dispersion_slope" in set(own.history["quantity"])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"every": 0}, ValueError, "every must be a whole number"),
        ({"n_sequences": 1.5}, ValueError, "n_sequences must be a whole number"),
        ({"probe": "nonsense"}, ValueError, "unknown probe"),
        ({"log": 3}, TypeError, "SummaryWriter"),
        ({"lengths": 8}, TypeError, r"written as \(8,\)"),
        ({"lengths": (1, 8)}, ValueError, r"lengths must be 2 or more, .*; got \[1, 8\]"),
        ({"seed": "a"}, ValueError, "seed must be a whole number"),
        ({"probe": 3}, TypeError, "probe must be"),
    ],
)
def test_bad_input(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        monitor(**options)
