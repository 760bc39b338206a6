"""A whole search of tiny models: its table, its result, and that nothing is run twice."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from resharpen.analyses import StudyResult
from resharpen.analyses.cli import main
from resharpen.analyses.figures.search import plot_effects, plot_marginals, plot_winners
from resharpen.analyses.searching.drawing import fresh_seeds
from resharpen.analyses.searching.effects import effects_frame
from resharpen.analyses.searching.figures import search_figures
from resharpen.analyses.searching.planning import plan
from resharpen.analyses.searching.running import Outcome, Ran
from resharpen.analyses.searching.sentences import conclude, interval_words
from resharpen.analyses.searching.space import parse_space
from resharpen.analyses.searching.study import SearchStudy, run
from resharpen.analyses.searching.winners import Winner, confirm, winners_frame
from resharpen.analyses.trials import run_trial


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def heavy(document: dict[str, Any]) -> dict[str, Any]:
    """With repeated, refused and diverged trials in it."""
    document["trials"] = 12
    document["model"] = {
        "d_model": 8,
        "n_heads": {"choice": [1, 3]},
        "norm_placement": {"choice": ["pre", "post"]},
    }
    document["training"]["learning_rate"] = {"choice": [0.01, 1e30], "weights": [2, 1]}
    return document


def do(document: dict[str, Any], cache: Path) -> tuple[SearchStudy, list[str]]:
    said: list[str] = []
    return run(parse_space(document), cache=cache, jobs=1, say=said.append), said


def files(cache: Path) -> dict[str, int]:
    return {
        path.relative_to(cache).as_posix(): path.stat().st_mtime_ns
        for kind in ("trials", "outcomes")
        for path in (cache / kind).iterdir()
    }


def test_the_table_has_a_row_a_trial(document: dict[str, Any], cache: Path) -> None:
    search, said = do(document, cache)
    trials = search.trials
    assert trials["trial"].tolist() == list(range(6))
    assert trials["status"].tolist() == ["done"] * 6
    assert trials["hash"].nunique() == 6
    assert (trials["model.d_mlp"] == trials["model.d_model"]).all()
    assert (trials["seconds"] > 0).all()
    assert (trials["objective"] == trials["total_variation@4 raw"]).all()
    assert (trials["objective_low"] < trials["objective"]).all()
    metrics = [name for name in trials if "@" in str(name)]
    assert len(metrics) == 8 * 2 * 2, "quantities, lengths, weights"
    assert trials[metrics].notna().all(axis=None)
    assert said[0].startswith("6 trials, 6 to run")
    assert sum(line.startswith("done     trial") for line in said) == 6 + 2 * 3
    # Beside the numbers of a trial that is run by itself.
    space = search.space
    row = trials.iloc[3]
    trial = plan(space)[3].trial
    assert trial is not None
    rows, found = run_trial(trial, cache)
    assert found
    own = rows[
        (rows["quantity"] == "kl_divergence")
        & (rows["length"] == 2)
        & (rows["checkpoint"] == "ema-0.9")
    ]
    assert own["mean"].item() == row["kl_divergence@2 ema-0.9"]
    assert own["seed"].item() == row["seed"]
    tidy = search.result.table
    again = tidy[tidy["checkpoint"].str.contains("again")]
    assert (tidy["study"] == "search").all()
    best = [one.trial for one in search.winners]
    assert set(again["seed"]) == {seed for index in best for seed in fresh_seeds(space, index, 3)}


def test_the_same_command_and_a_longer_one_find_what_is_finished(
    document: dict[str, Any], cache: Path
) -> None:
    first, _ = do(document, cache)
    before = files(cache)
    again, said = do(document, cache)
    pd.testing.assert_frame_equal(again.trials, first.trials)
    pd.testing.assert_frame_equal(again.result.table, first.result.table)
    assert again.result.sentences == first.result.sentences
    assert files(cache) == before
    assert all(line.startswith("found") for line in said if ", seed" in line or "total" in line)
    longer, said = do({**document, "trials": 8, "rerun": {"top": 0}}, cache)
    pd.testing.assert_frame_equal(longer.trials.iloc[:6], first.trials)
    assert {name: time for name, time in files(cache).items() if name in before} == before
    assert sum(line.startswith("done") for line in said) == 2
    assert longer.winners == ()


def test_repeated_refused_and_diverged_trials_are_rows(
    document: dict[str, Any], cache: Path
) -> None:
    search, said = do(heavy(document), cache)
    trials = search.trials
    assert set(trials["status"]) == {"done", "repeated", "refused", "diverged"}
    for row in trials.to_dict("records"):
        broken = row["training.learning_rate"] == 1e30
        if row["model.n_heads"] == 3:
            assert (row["status"], row["hash"]) == ("refused", "")
            assert "d_model must be a multiple of n_heads" in row["reason"]
        elif row["status"] == "repeated":
            first = trials.iloc[row["repeats"]]
            assert first["trial"] < row["trial"]
            for name in ("hash", "seed", "seconds", "reason"):
                assert row[name] == first[name]
            assert math.isnan(first["objective"]) == broken
        else:
            assert row["status"] == ("diverged" if broken else "done")
            assert row["reason"].startswith("the loss of seed") == broken
            assert "is kept" not in row["reason"]
            assert row["seconds"] > 0
    assert sum(line.startswith("diverged trial") for line in said) == sum(
        trials["status"] == "diverged"
    )
    assert any("1 diverged" in line or "2 diverged" in line for line in search.result.sentences)
    items = search.lists["Trials without a result"]
    assert len(items) == trials["status"].isin(["refused", "diverged"]).sum()
    assert any("diverged: the loss of seed" in item for item in items)
    # What diverged is not tried again, and leaves no state behind.
    before = files(cache)
    _, said = do(heavy(document), cache)
    assert files(cache) == before
    assert sum(line.startswith("found    trial") for line in said) > 0
    assert not list(cache.rglob("*state*"))


def test_nothing_finished_and_weights_that_no_trial_has(
    document: dict[str, Any], cache: Path
) -> None:
    with pytest.raises(ValueError, match=r"objective\.weights can be raw, ema-0\.9$"):
        do({**document, "objective": {"weights": "ema-0.99"}}, cache)
    document["training"]["learning_rate"] = 1e30
    with pytest.raises(ValueError, match=r"not one trial was finished; .* stopped being finite"):
        do(document, cache)


def test_a_normalizer_without_gradient_is_refused_by_the_run(
    document: dict[str, Any], cache: Path
) -> None:
    document["model"]["normalizer"] = {"choice": ["softmax", "hardmax"]}
    document["rerun"]["top"] = 0
    trials = do(document, cache)[0].trials
    hard = trials["model.normalizer"] == "hardmax"
    assert (trials["status"] == hard.map({True: "refused", False: "done"})).all()
    assert trials.loc[hard, "reason"].str.contains("has no gradient").all()


def test_the_objective_can_be_one_that_is_maximised(document: dict[str, Any], cache: Path) -> None:
    document["objective"] = {"quantity": "all_legal_rate", "weights": "ema-0.9", "length": 2}
    search, _ = do(document, cache)
    assert (search.trials["objective"] == search.trials["all_legal_rate@2 ema-0.9"]).all()
    best = search.trials.sort_values("objective", ascending=False)["trial"].tolist()[:2]
    assert [one.trial for one in search.winners] == best


def winner(searched: float, *again: float) -> Winner:
    mean = sum(again) / len(again)
    return Winner(0, "", searched, searched - 0.01, searched + 0.01, mean, mean - 0.1, mean + 0.1,
                  len(again), 0, {"model.d_model": 8})  # fmt: skip


@pytest.mark.parametrize(
    ("searched", "said"),
    [(0.3, "partly luck"), (0.55, "lies within the interval"), (0.8, "rather bad luck")],
)
@pytest.mark.parametrize("more", [False, True])
def test_what_is_said_of_luck(
    document: dict[str, Any], searched: float, said: str, more: bool
) -> None:
    if more:  # Where more is better, luck lies on the other side.
        document["objective"] = {"quantity": "all_legal_rate"}
        searched = 1.0 - searched
    space = parse_space(document)
    trials = pd.DataFrame({"status": ["done"], "objective": [searched]})
    one = winner(searched, *((0.5, 0.4, 0.6) if more else (0.5, 0.6, 0.4)))
    sentences = conclude(space, trials, [], [one, one])
    assert any(said in sentence for sentence in sentences)
    words = "worse" if (searched < 0.5) != more else "better"
    assert f"are {abs(searched - 0.5):.3g} {words} with fresh seeds" in "".join(sentences)


def test_the_winner_is_set_beside_its_own_fresh_runs_only(
    document: dict[str, Any], cache: Path
) -> None:
    search, _ = do(document, cache)
    table = search.result.table
    for one in search.winners:
        own = table[
            (table["checkpoint"] == f"trial {one.trial} again / raw")
            & (table["quantity"] == "total_variation")
            & (table["length"] == 4)
        ]["mean"]
        assert (one.seeds, one.lost) == (3, 0)
        assert one.mean == pytest.approx(own.mean())
        half = 4.302653 * own.std() / math.sqrt(3)  # t(0.975, 2)
        assert (one.low, one.high) == pytest.approx((own.mean() - half, own.mean() + half))
        assert one.searched == search.trials["objective"][one.trial]


def test_a_fresh_run_that_is_lost_is_said(document: dict[str, Any], cache: Path) -> None:
    search, _ = do(document, cache)
    planned = plan(search.space)[:1]
    assert planned[0].trial is not None
    ran = Ran(Outcome("done", "", 1.0), run_trial(planned[0].trial, cache)[0], True)
    lost = Ran(Outcome("diverged", "so it is", 1.0), None, False)
    (one,) = confirm(search.space, planned, {0: ran}, {(0, 5): ran, (0, 6): lost})
    assert (one.seeds, one.lost, one.mean) == (1, 1, one.searched)
    assert math.isnan(one.low)
    sentences = conclude(search.space, search.trials, [], [one])
    assert any("one seed does not say" in sentence for sentence in sentences)


def test_an_interval_without_zero_does_not_show_one() -> None:
    assert interval_words(-0.02, -0.04, -0.0012) == "-0.02 [-0.04, -0.0012]"
    assert interval_words(-0.02, -0.04, 0.01) == "-0.02 [-0.04, 0.01]"
    assert interval_words(0.5, math.nan, math.nan) == "0.50"


def test_the_figures_show_what_the_tables_say(document: dict[str, Any], cache: Path) -> None:
    search, _ = do(document, cache)
    figures = search_figures(search)
    assert list(figures) == ["effects", "winners", "marginals"]
    drawn = {}
    for trace in figures["effects"].data:
        axis = "xaxis" if trace.xaxis in (None, "x") else "xaxis2"
        ticks = figures["effects"].layout[axis.replace("x", "y", 1)].ticktext
        drawn |= {ticks[int(y)]: x for x, y in zip(trace.x, trace.y, strict=True)}
    expected = {
        one.field if one.kind == "rank" else f"{one.field}: {one.level} against {one.reference}":
        one.value for one in search.effects
    }  # fmt: skip
    assert drawn == expected
    searched, again = figures["winners"].data
    assert list(searched.x) == [one.searched for one in search.winners]
    assert list(again.x) == [one.mean for one in search.winners]
    assert list(again.error_x.array) == pytest.approx([w.high - w.mean for w in search.winners])
    titles = [note.text for note in figures["marginals"].layout.annotations]
    assert titles == [f"<b>{field}</b>" for field in search.space.drawn]
    trials = figures["marginals"].data[::2]
    assert all(sorted(trace.y) == sorted(search.trials["objective"]) for trace in trials)


def test_figures_of_nothing_say_so() -> None:
    with pytest.raises(ValueError, match="no effect to draw"):
        plot_effects(effects_frame([]), objective="error")
    with pytest.raises(ValueError, match="no field to draw"):
        plot_marginals([], objective="error")
    with pytest.raises(ValueError, match="no trial to draw"):
        plot_winners(winners_frame([]), objective="error")


SPACE = """
trials = 5
lengths = [2, 4]
n_sequences = 8
[task]
name = "set-complement"
vocabulary = 6
[model]
d_model = 8
norm_placement = {choice = ["pre", "post"]}
[training]
length = 3
n_steps = 4
batch_size = 4
learning_rate = {log_uniform = [1e-3, 1e-1]}
[rerun]
top = 1
seeds = 2
"""


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in ("search", *arguments)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_the_command_writes_a_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    place, out = tmp_path / "space.toml", tmp_path / "out"
    place.write_text(SPACE)
    options = (place, "--out", out, "--cache", cache, "--jobs", 1)
    code, said, errors = command(capsys, *options)
    assert (code, errors) == (0, "")
    assert f"report: {out / 'report.html'}" in said
    assert "5 trials: 5 done." in said
    result = StudyResult.load(out)
    assert result.provenance.resolved["training"]["learning_rate"] == {"log_uniform": [1e-3, 0.1]}
    assert result.provenance.asked == {"space": str(place), "trials": None}
    trials = pd.read_csv(out / "trials.csv")
    assert trials["status"].tolist() == ["done"] * 5
    assert len(pd.read_csv(out / "winners.csv")) == 1
    fields = pd.read_csv(out / "effects.csv")["field"].tolist()
    assert fields == ["weights", "model.norm_placement", "training.learning_rate"]
    page = (out / "report.html").read_text()
    for heading in ("Marginal effects", "fresh seeds", "The objective over each field"):
        assert heading in page

    code, said, _ = command(capsys, *options, "--trials", 6)
    assert code == 0
    assert said.count("found    trial") >= 5
    assert said.count("done     trial") in (1, 3), "the new one, and another winner's fresh seeds"
    longer = pd.read_csv(out / "trials.csv")
    assert len(longer) == 6
    pd.testing.assert_frame_equal(longer.iloc[:5], trials)


def test_the_command_says_what_is_wrong_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "space.toml"
    place.write_text(SPACE.replace("d_model", "d_modle"))
    code, _, errors = command(capsys, place, "--out", tmp_path / "out")
    assert code == 2
    assert errors.startswith(f"resharpen: {place}: model has no 'd_modle'; it has n_layers")
    assert errors.count("\n") == 1
    place.write_text(SPACE)
    code, _, errors = command(capsys, place, "--out", tmp_path / "out", "--trials", 0)
    assert (code, "trials must be a whole number" in errors) == (2, True)
    code, _, errors = command(capsys, place, "--out", tmp_path)
    assert (code, "is not a resharpen result" in errors) == (2, True)
