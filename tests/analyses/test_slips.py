"""Slips that a newcomer makes, and the one sentence that each gets."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from resharpen.analyses import audit
from resharpen.analyses.cli import main
from resharpen.models import SetComplement, Transformer, TransformerConfig, adapt
from resharpen.models.checkpoint import CheckpointError
from resharpen.models.probes import Repeated
from resharpen.models.tasks import task_from_dict


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0), capsys.readouterr().err


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("the hub was asked")

    for name in ("AutoConfig", "AutoTokenizer"):
        monkeypatch.setattr(f"transformers.{name}.from_pretrained", asked)
    monkeypatch.setattr("resharpen.models.adapters.pretrained._configuration", asked)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("probe", [(), ("--probe", "text")])
def test_a_misspelt_shipped_name_is_answered_at_once(
    probe: tuple, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, error = run(capsys, "audit", "set-complement-nne", "--out", tmp_path / "out", *probe)
    assert code == 2
    assert "there is no checkpoint 'set-complement-nne': did you mean set-complement-none" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["model.gguf", "you/model.gguf", "weights.safetensors"])
def test_the_name_of_a_file_that_is_none_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"there is no file or folder '{name}'"):
        audit(name)


@pytest.mark.parametrize("more", [(), ("--probe", "random")])
def test_options_of_hugging_face_are_refused_for_a_checkpoint_of_ours(
    more: tuple, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("audit", "set-complement-post", "--out", tmp_path / "out", *more)
    code, error = run(capsys, *command, "--dtype", "float7")
    assert code == 2
    assert "dtype is for models of Hugging Face" in error
    assert "leave it out; got 'float7'" in error
    with pytest.raises(ValueError, match="device_map is for models of Hugging Face"):
        adapt("set-complement-post", device_map="auto")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--jobs", 0), "--jobs is a number of audits at once, at least 1; got 0"),
        (("--jobs", -3), "at least 1; got -3"),
        (("--poll-seconds", -1), "--poll-seconds is a time in seconds, zero or more; got -1"),
        (("--backend", "dask"), "one checkpoint is audited here, in this process"),
        (("--n-sequences", 0), "n_sequences must be a whole number, 1 or more; got 0"),
    ],
)
def test_numbers_and_places_that_mean_nothing(
    flags: tuple, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, error = run(capsys, "audit", "set-complement-post", "--out", tmp_path / "out", *flags)
    assert code == 2
    assert sentence in error
    assert not (tmp_path / "out").exists()


def test_a_text_probe_without_a_tokenizer_names_the_tokenizer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 90, "n_positions": 64}
    folder = tmp_path / "tiny"
    GPT2LMHeadModel(GPT2Config(**shape)).save_pretrained(folder)
    code, error = run(capsys, "audit", folder, "--out", tmp_path / "out", "--probe", "text")
    assert code == 2
    assert f"{folder} has no tokenizer" in error


def test_names_that_a_task_does_not_have_are_answered_with_those_it_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("train", "set-complement", "--out", tmp_path / "out")
    code, error = run(capsys, *command, "--task-parameters", "alphabt=8")
    assert code == 2
    assert "does not take these parameters: alphabt; it takes vocabulary, " in error
    with pytest.raises(ValueError, match="it takes "):
        task_from_dict({"name": "language", "langage": "dyck-1"})


def test_a_state_dict_is_told_how_it_is_given_its_configuration(tmp_path: Path) -> None:
    names = ("embed.W_E", "blocks.0.attn.W_Q", "unembed.W_U")
    torch.save({name: torch.zeros(2, 2, 2) for name in names}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=re.escape("to resharpen.models.adapt in Python")):
        audit(tmp_path / "model.pt")


def test_advice_that_has_no_flag_says_where_it_holds() -> None:
    with pytest.raises(ValueError, match="longer inputs need replacement to be true"):
        SetComplement(8).check_length(9)
    with pytest.raises(ValueError, match="use the random probe"):
        Repeated(7).check_length(40)


def test_heads_that_show_no_rows_are_a_plain_sentence_and_no_verdict() -> None:
    config = TransformerConfig(d_vocab=40, n_layers=1, d_model=16, normalizer="differential")
    result = audit(Transformer(config, seed=0), probe="random", lengths=[8, 16], n_sequences=2)
    assert "of up to 16 tokens: no head shows its rows of weights" in result.sentences[0]
    (verdict,) = result.verdicts
    assert (verdict.level, verdict.verdict) == ("model", "UNKNOWN")


def test_one_is_not_many_and_the_seed_is_said() -> None:
    own = audit("set-complement-post", lengths=[1, 2, 4], n_sequences=4)
    assert "Of 1 head: " in own.sentences[1]
    assert own.sentences[2].endswith(" of 1 layer.")
    probed = audit("set-complement-post", probe="random", lengths=[4, 8], n_sequences=4, seed=7)
    assert "of 1 head, 1 " in probed.sentences[0]
    assert "sequences of seed 7" in repr(probed)
