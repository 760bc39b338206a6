"""Progress: a bar, a function of one's own, nothing; and how far an interrupted work came."""

import io
import sys
from functools import partial
from types import SimpleNamespace

import pytest

import resharpen.interp.progress as progress_module
from resharpen.interp import profile, profile_limits, profile_score_rows, sweep
from resharpen.interp.progress import advancing, is_watched
from resharpen.models import SetComplement, Transformer, TransformerConfig, adapt, get_probe

CONFIG = TransformerConfig(d_vocab=16, n_heads=2, d_model=8, attn_only=True)


def test_a_function_is_told_and_may_interrupt() -> None:
    told: list[tuple[int, int, int]] = []

    def tell(done: int, total: int, length: int) -> None:
        told.append((done, total, length))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), advancing(tell, "work", "part") as advance:
        for done in range(1, 5):
            advance(done, 4, 8)
    assert told == [(1, 4, 8), (2, 4, 8)]
    assert (advance.done, advance.total, advance.complete) == (2, 4, False)


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_shown_unless_asked(progress, capsys: pytest.CaptureFixture[str]) -> None:
    with advancing(progress, "work", "part") as advance:
        assert not advance.complete
        advance(3, 3, 8)
    assert advance.complete
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""


@pytest.mark.parametrize("what", ["sweep", "profile", "scores", "limits"])
def test_true_is_a_bar(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Drawn at every batch here, however little time has passed."""
    monkeypatch.setattr(progress_module, "tqdm", partial(progress_module.tqdm, mininterval=0.0))
    model, probe = Transformer(CONFIG, seed=0), get_probe("random")(16)
    few = {"n_sequences": 2, "batch_tokens": 8, "progress": True}
    if what == "sweep":
        sweep(model, SetComplement(16).sample, [2, 4], ["entropy"], batch=2, progress=True)
    elif what == "profile":
        profile(adapt(model), probe, [8], **few)
    elif what == "scores":
        profile_score_rows(adapt(model), probe, [4, 8], [(0, 0)], **few)
    else:
        profile_limits(adapt(model), probe, [4, 8], 0, 0, selected=1, **few)
    shown = capsys.readouterr().err
    assert what in shown
    assert "1/2" in shown
    assert "2/2" in shown
    assert "length" in shown


def test_a_bar_is_seen_in_a_terminal_and_a_notebook_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    for stream, seen in ((terminal, True), (io.StringIO(), False), (None, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert is_watched() is seen
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert is_watched()
