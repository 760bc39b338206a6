"""Audits of models that nobody here trained, tiny and random, built offline."""

from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
)

from resharpen.analyses import audit, audit_adapted, compare_audits, render_report, render_text
from resharpen.analyses.audit_figures import adapted_figures
from resharpen.analyses.cli import main
from resharpen.analyses.lengths import fitting_lengths
from resharpen.interp import NormGain, Remedy
from resharpen.models import (
    Checkpoint,
    SetComplement,
    Transformer,
    TransformerConfig,
    load_checkpoint,
)
from resharpen.models.probes import RandomTokens, TaskProbe

LENGTHS = [16, 32, 64]


@pytest.fixture(scope="module")
def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 90, "n_positions": 128}
    return GPT2LMHeadModel(GPT2Config(**shape, initializer_range=0.4)).eval()


@pytest.fixture(scope="module")
def folder(gpt2: GPT2LMHeadModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    gpt2.save_pretrained(place)
    return place


def test_a_folder_a_model_and_audit_itself_agree(folder: Path, gpt2: GPT2LMHeadModel) -> None:
    from_folder = audit_adapted(folder, lengths=LENGTHS, n_sequences=4)
    from_model = audit(gpt2, lengths=LENGTHS, n_sequences=4, name="tiny-gpt2")
    assert from_folder.result.table.equals(from_model.table)
    heads = [v.subject for v in from_model.verdicts if v.level == "head"]
    assert heads == ["L0 H0", "L0 H1", "L1 H0", "L1 H1"]
    assert {item.label for item in from_folder.classes} <= {
        *("dispersing", "holding", "sharpening", "sink", "local", "unknown")
    }
    assert from_folder.result.provenance.resolved["model"]["placement"] == "pre"


def test_a_remedy_sharpens_and_says_so(gpt2: GPT2LMHeadModel) -> None:
    remedy = Remedy("temperature", 3.0)
    audited = audit_adapted(gpt2, lengths=LENGTHS, n_sequences=4, what_if=[remedy])
    table = audited.result.table
    entropy = table[(table["quantity"] == "entropy") & (table["status"] == "ok")]
    mean = entropy.groupby("checkpoint")["mean"].mean()
    assert mean["GPT2LMHeadModel + temperature 3"] < 0.8 * mean["GPT2LMHeadModel"]
    loss = table[table["quantity"] == "loss"]
    assert set(loss["checkpoint"]) == {"GPT2LMHeadModel", "GPT2LMHeadModel + temperature 3"}
    assert "What if temperature 3" in audited.result.sentences[-1]
    assert {item.checkpoint for item in audited.classes} == {"GPT2LMHeadModel"}


def test_the_report_has_a_map_and_the_text_fits(gpt2: GPT2LMHeadModel) -> None:
    audited = audit_adapted(gpt2, lengths=LENGTHS, n_sequences=4, probe="needle")
    report = render_report(audited.result, adapted_figures(audited))
    assert "Attention heads" in report
    assert max(map(len, render_text(audited.result).splitlines())) <= 100


def test_norms_on_both_sides_are_found_and_their_gain_can_be_tried() -> None:
    torch.manual_seed(0)
    shape = {
        "vocab_size": 90,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "sliding_window": 8,
    }
    model = Gemma3ForCausalLM(Gemma3TextConfig(**shape)).eval()
    audited = audit_adapted(model, lengths=[16, 32], n_sequences=2, what_if=[NormGain(2.0)])
    assert audited.result.provenance.resolved["model"]["placement"] == "peri"
    gains = audited.result.table[audited.result.table["quantity"] == "rescale_gain"]
    assert gains["site"].nunique() >= 8
    assert "What if norm_gain 2" in audited.result.sentences[-1]


def test_an_encoder_is_audited_length_by_length() -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 90, "hidden_size": 16, "intermediate_size": 32}
    counts = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    model = BertModel(BertConfig(**shape, **counts)).eval()
    audited = audit_adapted(model, lengths=[8, 16, 32, 64], n_sequences=2, probe="random")
    assert audited.profile.lengths == (8, 16, 32, 64)
    assert audited.result.provenance.resolved["model"]["placement"] == "post"
    assert {v.label for v in audited.result.verdicts if v.level == "head"} == {"dispersing"}


def test_text_needs_a_tokenizer(gpt2: GPT2LMHeadModel) -> None:
    with pytest.raises(ValueError, match="the text probe needs the model's tokenizer"):
        audit_adapted(gpt2, probe="text")
    encode = lambda text: [ord(letter) % 90 for letter in text]  # noqa: E731
    audited = audit_adapted(gpt2, probe="text", encode=encode, lengths=[16, 64], n_sequences=2)
    assert "One pass of length 64 was run" in " ".join(audited.result.sentences)


def test_a_checkpoint_of_ours_is_fed_its_own_task_by_default() -> None:
    remedy = Remedy("temperature", 2.0)
    asked = {"lengths": [2, 4, 8, 31], "n_sequences": 4}
    named = audit_adapted("set-complement-post", what_if=[remedy], **asked)
    checkpoint = load_checkpoint("set-complement-post")
    given = audit_adapted(checkpoint, probe="task", what_if=[remedy], **asked)
    through = audit("set-complement-post", what_if=[remedy], **asked)
    assert named.result.table.equals(given.result.table)
    assert named.result.table.equals(through.table)
    table, resolved = named.result.table, named.result.provenance.resolved
    assert list(table["checkpoint"].unique()) == [
        "set-complement-post",
        "set-complement-post + temperature 2",
    ]
    assert resolved["probe"] == {"name": "task", "task": checkpoint.task}
    assert given.result.provenance.resolved["source"] == "set-complement-post"
    assert named.result.verdicts[-1].subject == "set-complement-post"
    assert "What if temperature 2" in named.result.sentences[-1]
    other = audit_adapted(checkpoint, probe="repeated", lengths=[8, 16], n_sequences=2)
    assert other.result.provenance.resolved["probe"]["name"] == "repeated"


def test_by_default_a_task_has_its_own_lengths_and_number_of_sequences() -> None:
    config = TransformerConfig(d_vocab=6, d_model=8)
    weights = {"raw": Transformer(config, seed=1).state_dict()}
    checkpoint = Checkpoint(config, weights, SetComplement(6).to_dict(), name="mine")
    result = audit_adapted(checkpoint).result
    assert sorted(result.table["length"].unique()) == [1, 2, 3, 4, 5]
    assert result.provenance.resolved["n_sequences"] == 256
    assert result.verdicts[-1].subject == "mine"
    with_bos = TaskProbe(SetComplement(6, bos=True))
    assert fitting_lengths(with_bos, None) == (1, 2, 3, 4, 5)
    assert fitting_lengths(with_bos, 4) == (1, 2, 3)
    assert fitting_lengths(RandomTokens(6), 100) == (32, 64)
    with pytest.raises(ValueError, match=r"none of the usual lengths .* give lengths="):
        fitting_lengths(RandomTokens(6), 31)


def test_only_a_checkpoint_of_ours_has_a_task_of_its_own(
    gpt2: GPT2LMHeadModel, folder: Path
) -> None:
    config = TransformerConfig(d_vocab=6, d_model=8)
    nameless = Checkpoint(config, {"raw": Transformer(config).state_dict()}, name="nameless")
    for source, label in ((gpt2, "GPT2LMHeadModel"), (folder, "tiny-gpt2"), (nameless, "nameless")):
        with pytest.raises(
            ValueError,
            match=f"^{label} is no checkpoint of this toolkit that names its task, so there is no "
            r"task to feed it: choose another probe \(repeated, needle, random, text\)$",
        ):
            audit_adapted(source, probe="task")


def test_too_long_an_input_is_refused_with_the_number(gpt2: GPT2LMHeadModel) -> None:
    with pytest.raises(ValueError, match="the model has learned 128: ask for shorter lengths"):
        audit_adapted(gpt2, lengths=[64, 200], probe="random")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_the_command_line_audits_and_compares(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = ("--lengths", 16, 32, 64, "--n-sequences", 2)
    first, second = tmp_path / "first", tmp_path / "second"
    code, said, _ = run(
        capsys,
        *("audit", folder, "--out", first, *common),
        *("--what-if", "temperature:2", "adaptive", "--what-if-heads", "0.1", "1.0"),
    )
    assert code == 0
    assert "What if temperature 2" in " ".join(said.split())
    assert (first / "report.html").stat().st_size < 10e6
    code, _, _ = run(capsys, "audit", folder, "--out", second, *common, "--seed", 1)
    assert code == 0
    code, said, _ = run(capsys, "compare", first, second)
    assert code == 0
    assert said.startswith("first -> second: of 7 verdicts")


def test_a_folder_of_checkpoints_is_audited_once_with_its_trend(
    gpt2: GPT2LMHeadModel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for step in (10, 9):
        gpt2.save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    out = tmp_path / "audits"
    command = ("audit", tmp_path / "run", "--out", out, "--lengths", 16, 32, 64)
    code, said, _ = run(capsys, *command, "--n-sequences", 2)
    assert code == 0
    assert [line.split()[:2] for line in said.splitlines()[:2]] == [
        ["audited", "checkpoint-9"],
        ["audited", "checkpoint-10"],
    ]
    assert "Attention heads" in (out / "checkpoint-9" / "report.html").read_text()
    assert (out / "trend.html").exists()
    _, said, _ = run(capsys, *command, "--n-sequences", 2)
    assert said.startswith("kept")
    code, said, _ = run(capsys, "audit", tmp_path / "run", "nowhere", *command[2:])
    assert code == 2
    assert "'nowhere' is no folder" in said


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("truncated", "model.safetensors"),
        ("lying config", "config.json"),
        ("nan", "NaN"),
        ("head flag", "a head is written LAYER.HEAD"),
    ],
)
def test_broken_models_get_one_sentence_and_status_2(
    damage: str,
    sentence: str,
    gpt2: GPT2LMHeadModel,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    place = tmp_path / "broken"
    gpt2.save_pretrained(place)
    flags: tuple = ()
    weights = place / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-64])
    elif damage == "lying config":
        config = place / "config.json"
        config.write_text(config.read_text().replace('"n_embd": 16', '"n_embd": 32'))
    elif damage == "nan":
        from safetensors.torch import load_file, save_file

        state = load_file(weights)
        next(iter(state.values())).fill_(torch.nan)
        save_file(state, weights, {"format": "pt"})
    else:
        flags = ("--what-if", "adaptive", "--what-if-heads", "one")
    code, _, complaint = run(capsys, "audit", place, "--out", tmp_path / "out", *flags)
    assert code == 2
    assert "Traceback" not in complaint
    last = complaint.strip().splitlines()[-1]
    assert last.rpartition("\r")[2].startswith("resharpen: ") or "resharpen: " in last
    assert sentence in complaint or damage in ("lying config",)
    assert not (tmp_path / "out").exists()


def test_the_same_model_has_no_differences(gpt2: GPT2LMHeadModel) -> None:
    result = audit(gpt2, lengths=LENGTHS, n_sequences=2)
    assert {item.change for item in compare_audits(result, result)} == {"same"}
