"""Diagnoses: of models whose scores are known, of shipped ones, and of one made elsewhere."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from resharpen.analyses import StudyResult, diagnose, plot_score_laws
from resharpen.analyses.cli import main
from resharpen.analyses.diagnosis import render_diagnosis
from resharpen.analyses.growth_laws import fit_growth
from resharpen.analyses.head_ladders import HeadLadders
from resharpen.analyses.recommendations import Recommendation, recommend
from resharpen.analyses.score_laws import ScoreLaw
from resharpen.interp.tables import check_table
from resharpen.models import load_checkpoint
from resharpen.models.adapters import Adapter, describe
from resharpen.models.observed import AttentionSeen
from resharpen.models.probes import RandomTokens

D_VOCAB = 20000
LENGTHS = [16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512]


class Scored(nn.Module):
    """A model whose every token has one score, times a factor of the row's number of keys."""

    def __init__(self, scores: np.ndarray, law: str = "constant") -> None:
        super().__init__()
        self.law = law
        self.scores = nn.Embedding.from_pretrained(torch.as_tensor(scores).float()[:, None])

    def project(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        key = self.scores(tokens)[:, None]
        log_n = torch.arange(1, key.shape[2] + 1).log()
        factor = {"constant": torch.ones_like(log_n), "log_n": log_n}[self.law]
        return factor[None, None, :, None].expand(key.shape[0], 1, -1, 1), key

    def forward(self, tokens: Tensor) -> Tensor:
        query, key = self.project(tokens)
        attend = nn.functional.scaled_dot_product_attention
        return attend(query, key, key, is_causal=True, scale=1.0)[:, 0]


class ScoredAdapter(Adapter):
    def watch(self, observer: Any) -> Any:
        def look(module: Any, args: Any, output: Tensor) -> Tensor | None:
            query, key = module.project(args[0])
            z = observer.attention(AttentionSeen(0, query, key, key, scale=1.0, causal=True))
            return None if z is None else z[:, 0]

        yield self.module.register_forward_hook(look)


def scored(scores: np.ndarray, law: str = "constant") -> ScoredAdapter:
    model = Scored(scores, law)
    facts = describe(model, n_layers=1, n_heads=1, d_vocab=len(scores))
    return ScoredAdapter(model, dataclasses.replace(facts, causal=True))


RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=D_VOCAB)
MODELS = {
    "gaussian": (scored(0.8 * NORMAL), "gaussian", "sqrt_log_n"),
    "bounded": (scored(RNG.random(D_VOCAB)), "bounded", "power"),
    "growing": (scored(0.3 * NORMAL, "log_n"), "growing", "temperature"),
    "few tokens": (scored(NORMAL[:9]), "bounded", "norm"),
}


@pytest.fixture(scope="module", params=MODELS)
def known(request: pytest.FixtureRequest) -> Any:
    adapter, law, remedy = MODELS[request.param]
    found = diagnose(adapter, 0, 0, probe="random", lengths=LENGTHS, n_sequences=24, name="known")
    return found, law, remedy


def test_law_and_remedy_of_known_scores(known: Any) -> None:
    found, law, remedy = known
    assert (found.law.law, found.recommendation.kind) == (law, remedy), found.result.sentences
    assert found.sentence.startswith("known, layer 0, head 0 on random: ")
    assert found.sentence.endswith(".") and f"remedy: {remedy}" in found.sentence
    assert repr(found).startswith(f"Diagnosis(known, layer 0, head 0 on random: {law}, remedy")


def test_no_bound_is_violated_and_the_table_is_tidy(known: Any) -> None:
    found, law, _ = known
    check_table(found.table)
    assert {curve.quantity for curve in found.curves} >= {
        *("entropy", "max_weight", "log_accumulation_scale"),
        "log_sharpening_inverse_temperature",
    }
    assert not found.result.violations, [item.sentence for item in found.result.violations]
    assert set(found.table["study"]) == {"diagnose"}
    named = {curve.name for curve in found.curves}
    assert ("Gaussian scores, log n - sigma^2/2" in named) == (law != "bounded")


def test_what_it_says_survives_json_and_a_folder(known: Any, tmp_path: Path) -> None:
    found, law, remedy = known
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["law"]["law"] == law and record["recommendation"]["kind"] == remedy
    loaded = StudyResult.load(found.result.save(tmp_path / "out"))
    assert loaded.provenance.resolved["law"] == record["law"]
    assert loaded.sentences == found.result.sentences and "Evidence: spread" in loaded.sentences[1]
    (verdict,) = loaded.verdicts
    assert (verdict.subject, verdict.label, verdict.verdict) == ("L0 H0", law, "WARN")


def test_terminal_and_notebook_show_the_same_numbers(known: Any) -> None:
    found, *_ = known
    text = render_diagnosis(found)
    assert max(map(len, text.splitlines())) <= 100
    html = found._repr_html_()
    for item in found.law.evidence:
        assert item.name in text and str(item) in text and str(item) in html
    rows = found.rows()
    assert len(rows) <= 9 and rows[-1]["keys"] == str(int(found.law.n_key_last))
    assert rows[-1]["deviation"] in text


def test_the_figure_draws_every_curve_in_its_panel(known: Any) -> None:
    found, *_ = known
    figure = plot_score_laws(found.table, found.curves)
    drawn = {trace.name for trace in figure.data if trace.line.dash not in (None, "solid")}
    wanted = {curve.name for curve in found.curves if curve.quantity not in ("max_weight",)}
    assert drawn == {name for name in wanted if name}
    measured = {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}
    logs = found.table[found.table["quantity"] == "log_sharpening_inverse_temperature"]
    logs = logs[logs["status"] == "ok"].sort_values("n_key")
    shown = measured["sharpening inverse temperature"]
    np.testing.assert_allclose(np.array(shown.y, float), np.exp(logs["mean"].to_numpy()))
    assert figure.layout.meta["title"] == "Scores of known, layer 0, head 0"


def test_gaussian_predictions_meet_the_measurement() -> None:
    adapter, *_ = MODELS["gaussian"]
    found = diagnose(adapter, 0, 0, probe="random", lengths=LENGTHS, n_sequences=64)
    finding = {item.name: item for item in found.result.findings}
    assert found.law.deviation == pytest.approx(0.8, rel=0.03)
    assert finding["Gaussian scores, log n - sigma^2/2"].max_error < 0.1
    assert finding["Gaussian scores, expected spread"].final_ratio == pytest.approx(1, abs=0.03)
    assert finding["Gaussian scores, tends to order sqrt(log n) / sigma"].max_error < 0.4
    # Three keys of deviation 0.8 need an inverse temperature of 0.92, four 1.43.
    assert found.predicted_n_key in (2, 3)
    wide = diagnose(scored(8.0 * NORMAL), 0, 0, probe="random", lengths=LENGTHS, n_sequences=32)
    assert wide.law.law == "gaussian", wide.law
    assert 120e3 < wide.predicted_n_key < 180e3
    assert wide.recommendation.kind == "none" and wide.result.verdicts[0].verdict == "PASS"


def test_shipped_checkpoints_aggregate_and_get_no_temperature() -> None:
    found = diagnose("set-complement-post", 0, 0, n_sequences=32)
    assert (found.law.law, found.recommendation.kind) == ("bounded", "norm")
    assert found.probe == "task" and "averages over every key" in found.sentence
    assert not found.result.violations
    same = diagnose(load_checkpoint("set-complement-post"), 0, 0, n_sequences=32)
    assert same.table.equals(found.table)
    equal = diagnose("constructed-post", 0, 0, n_sequences=8)
    assert equal.law.law == "bounded" and equal.recommendation.inverse_temperature == math.inf
    assert "all scores of a row are equal" in equal.sentence


@pytest.fixture(scope="module")
def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 90, "n_positions": 128}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    return GPT2LMHeadModel(GPT2Config(**shape, **tokens, initializer_range=0.4)).eval()


def test_a_model_made_elsewhere_is_diagnosed_on_each_probe(gpt2: GPT2LMHeadModel) -> None:
    by_default = diagnose(gpt2, 1, 1, n_sequences=4)
    assert by_default.probe == "repeated"
    assert any("is the one that the probe asks for" in note for note in by_default.notes)
    for probe in ("random", "needle", RandomTokens(90)):
        found = diagnose(gpt2, 1, 1, probe=probe, n_sequences=4)
        assert found.law.evidence and not found.result.violations
    again = diagnose(gpt2, 1, 1, n_sequences=4)
    assert again.table.equals(by_default.table) and again.sentence == by_default.sentence
    encode = lambda text: [ord(letter) % 90 for letter in text]  # noqa: E731
    assert diagnose(gpt2, 0, 0, probe="text", encode=encode, n_sequences=2).probe == "text"


def test_progress_and_lengths_reach_the_measurement(gpt2: GPT2LMHeadModel) -> None:
    seen: list[tuple[int, int, int]] = []
    found = diagnose(
        gpt2, 0, 1, lengths=[16, 64, 32], n_sequences=2,
        progress=lambda *state: seen.append(state),
    )  # fmt: skip
    assert seen[-1] == (6, 6, 64) and sorted(set(found.table["length"])) == [16, 32, 64]
    assert found.law.law in ("undecided", "bounded", "gaussian", "growing")
    assert found.growth.law == "undecided" and "at least 5" in found.growth.reason


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer": 2}, "layer must be a number from 0 to 1"),
        ({"head": -1}, "head must be a number from 0 to 1"),
        ({"lengths": [64, 200], "probe": "random"}, "model has learned 128"),
        ({"probe": "text"}, "needs the model's tokenizer"),
        ({"probe": "task"}, "no task to feed it"),
        ({"probe": "nonsense"}, "unknown probe"),
        ({"n_sequences": 0}, "n_sequences must be"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    gpt2: GPT2LMHeadModel, change: dict[str, Any], sentence: str
) -> None:
    given = {"layer": 0, "head": 0, "n_sequences": 2, **change}
    with pytest.raises(ValueError, match=sentence):
        diagnose(gpt2, given.pop("layer"), given.pop("head"), **given)


def growth(law: str) -> Any:
    n = np.round(8 * 2 ** (np.arange(15) / 2))
    logs = {
        "temperature": np.full(n.size, 1.0),
        "log_n": np.log(np.log(n - 1)),
        "power": 0.7 * np.log(n),
        "falls": 3 - 0.3 * np.log(n),
    }
    return fit_growth(n, logs[law])


def score_law(law: str) -> ScoreLaw:
    return ScoreLaw(law, (), 32.0, 512.0, 1.0, 6.0, "made for the test")


@pytest.mark.parametrize(
    ("law", "grows", "kind", "agrees"),
    [
        ("gaussian", "log_n", "sqrt_log_n", False),
        ("bounded", "log_n", "log_n", True),
        ("bounded", "power", "power", True),
        ("bounded", "temperature", "log_n", False),
        ("growing", "temperature", "temperature", True),
        ("growing", "falls", "temperature", True),
        ("undecided", "log_n", "log_n", None),
        ("undecided", "power", "power", None),
    ],
)
def test_the_law_decides_and_the_growth_is_held_against_it(
    law: str, grows: str, kind: str, agrees: bool | None
) -> None:
    empty = HeadLadders(None, None, "", 0, 0, {})
    found = recommend(score_law(law), growth(grows), empty)
    assert (found.kind, found.agrees) == (kind, agrees)
    assert Recommendation.from_dict(found.to_dict()) == found
    average = recommend(score_law(law), growth(grows), empty, aggregates=True)
    assert average.kind == "norm" and average.inverse_temperature == math.inf
    with pytest.raises(ValueError, match="a remedy is one of"):
        dataclasses.replace(found, kind="prayer")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_the_command_line_says_the_sentence_and_writes_the_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    place = ("--layer", 0, "--head", 0, "--n-sequences", 8)
    code, said, _ = run(capsys, "diagnose", "set-complement-post", *place, "--out", out)
    assert code == 0
    assert "set-complement-post, layer 0, head 0 on task: the scores are" in said
    assert f"report: {out / 'report.html'}" in said
    assert StudyResult.load(out).verdicts[0].subject == "L0 H0"
    code, said, _ = run(
        capsys, "diagnose", "constructed-post", *place, "--probe", "random", "--lengths", 8, 16
    )
    assert code == 0 and "on random" in said and "report:" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("set-complement-post", "--layer", 4, "--head", 0), "layer must be a number from 0 to 0"),
        (("set-complement-post", "--layer", 0, "--head", 0, "--lengths", 99), "at most 31"),
        (("{tmp}/nothing", "--layer", 0, "--head", 0), "there is no file or folder"),
    ],
)
def test_the_command_line_refuses_in_one_sentence(
    arguments: tuple[Any, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    filled = [str(argument).format(tmp=tmp_path) for argument in arguments]
    code, _, complaint = run(capsys, "diagnose", *filled)
    assert code == 2 and sentence in complaint and "Traceback" not in complaint
