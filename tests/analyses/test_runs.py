from pathlib import Path

import pytest
import torch

from resharpen.analyses import runs
from resharpen.analyses.runs import cached_train, code_digest, default_cache, run_key
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig

CFG = TransformerConfig(d_vocab=6, d_model=8)
TASK = SetComplement(6)
RECIPE = TrainingConfig(length=3, n_steps=6, batch_size=4, save_every=2)


def test_a_run_is_made_once(tmp_path: Path) -> None:
    first, cached = cached_train(CFG, TASK, RECIPE, [0, 1], tmp_path)
    again, cached_again = cached_train(CFG, TASK, RECIPE, [0, 1], tmp_path)
    assert (cached, cached_again) == (False, True)
    assert [c.digest for c in first] == [c.digest for c in again]


def test_a_killed_run_resumes_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    whole, _ = cached_train(CFG, TASK, RECIPE, [0], tmp_path / "whole")

    def kill(done: int, losses: torch.Tensor) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_train(CFG, TASK, RECIPE, [0], tmp_path / "killed", on_step=kill)
    resumed, cached = cached_train(CFG, TASK, RECIPE, [0], tmp_path / "killed")
    assert not cached
    assert resumed[0].digest == whole[0].digest
    (weights,) = (tmp_path / "killed").rglob("seed-0/model.safetensors")
    weights.write_bytes(b"")
    mended, cached = cached_train(CFG, TASK, RECIPE, [0], tmp_path / "killed")
    assert not cached
    assert mended[0].digest == whole[0].digest


def test_the_key_depends_on_everything_that_was_asked() -> None:
    keys = {
        run_key(CFG, TASK, RECIPE, [0]),
        run_key(CFG, TASK, RECIPE, [1]),
        run_key(CFG, SetComplement(6, replacement=True), RECIPE, [0]),
        run_key(CFG, TASK, TrainingConfig(length=3, n_steps=7), [0]),
        run_key(TransformerConfig(d_vocab=6, d_model=8, eps=0.0), TASK, RECIPE, [0]),
    }
    assert len(keys) == 5


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESHARPEN_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("RESHARPEN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "resharpen"


def test_the_key_depends_on_the_code_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_key(CFG, TASK, RECIPE, [0])
    asked = []
    monkeypatch.setattr(runs, "code_digest", lambda room: asked.append(room) or "another")
    assert run_key(CFG, TASK, RECIPE, [0]) != before
    assert asked == ["models"]


def test_the_code_of_a_room_is_every_module_by_name_and_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "_ROOMS", tmp_path)
    (tmp_path / "room" / "inner").mkdir(parents=True)
    inner, notes = tmp_path / "room" / "inner" / "a.py", tmp_path / "room" / "notes.txt"
    digest = code_digest.__wrapped__
    seen = [digest("room")]
    for path, text in ((inner, ""), (inner, "x = 1"), (tmp_path / "room" / "b.py", "")):
        path.write_text(text)
        seen.append(digest("room"))
    inner.rename(inner.with_name("c.py"))
    seen.append(digest("room"))
    assert len(set(seen)) == 5
    notes.write_text("not code")
    assert digest("room") == seen[-1]
    assert digest("another") == seen[0]


def test_a_process_is_named_after_the_code_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Modules that change while it runs are not the ones that it has read."""
    monkeypatch.setattr(runs, "_ROOMS", tmp_path)
    (tmp_path / "changing-room").mkdir()
    before = code_digest("changing-room")
    (tmp_path / "changing-room" / "new.py").write_text("x = 1")
    assert code_digest("changing-room") == before
    assert code_digest.__wrapped__("changing-room") != before
