"""A result on disk: whole or not at all, read strictly, the same when it comes back."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses import storage
from resharpen.analyses.result import ResultError, StudyResult
from resharpen.analyses.storage import check_destination
from resharpen.models import folders


@pytest.fixture
def saved(study_result, tmp_path):
    """A saved result's folder."""
    return study_result.save(tmp_path / "out", report="<p>ä</p>")


def rewrite(folder, change):
    """Change result.json as text or as a document."""
    path = folder / "result.json"
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    changed = change(document)
    path.write_text(changed or json.dumps(document), encoding="utf-8")


def test_what_is_saved_comes_back(study_result, saved):
    """Table to the bit and the type, curves, findings, verdicts, provenance, sentences."""
    again = StudyResult.load(saved)
    pd.testing.assert_frame_equal(again.table, study_result.table)
    assert again.curves == study_result.curves
    for name in ("findings", "verdicts"):
        told, held = (
            [item.to_dict() for item in getattr(result, name)] for result in (again, study_result)
        )
        assert told == held
    for name in ("provenance", "sentences"):
        assert repr(getattr(again, name)) == repr(getattr(study_result, name))
    assert repr(again) == repr(study_result)
    assert sorted(path.name for path in saved.iterdir()) == [
        "report.html",
        "result.json",
        "table.parquet",
    ]
    assert (saved / "report.html").read_text(encoding="utf-8") == "<p>ä</p>"


def test_json_is_json(saved):
    """No NaN, which other readers refuse; the schema version and the thresholds are there."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    text = (saved / "result.json").read_text(encoding="utf-8")
    document = json.loads(text, parse_constant=refuse)
    assert document["format"] == "resharpen-result"
    assert document["schema_version"] == 1
    assert document["verdicts"][0]["threshold"] == 0.1
    assert document["verdicts"][3]["value"] is None
    assert document["provenance"]["resolved"]["ratio"] is None
    assert document["provenance"]["completed"] is True


def test_attachments_are_part_of_the_result(study_result, tmp_path):
    """Written beside it, listed with their hashes, checked on reading, replaced with it."""
    folder = study_result.save(tmp_path / "out", attachments={"map.csv": "a,ä\n", "claims.md": ""})
    assert (folder / "map.csv").read_text(encoding="utf-8") == "a,ä\n"
    document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert set(document["files"]) == {"table.parquet", "map.csv", "claims.md"}
    assert document["files"]["map.csv"]["bytes"] == 5
    assert StudyResult.load(folder).sentences == study_result.sentences
    assert check_destination(folder) == folder
    fresh = study_result.save(folder, attachments={"other.txt": "x"})
    assert {path.name for path in fresh.iterdir()} == {"result.json", "table.parquet", "other.txt"}
    (fresh / "other.txt").write_text("y", encoding="utf-8")
    with pytest.raises(ResultError, match=r"other\.txt in .* is not the file that was saved"):
        StudyResult.load(fresh)


@pytest.mark.parametrize("name", ["result.json", "table.parquet", "report.html", "a/b.csv", "../x"])
def test_an_attachment_takes_no_other_files_place(study_result, tmp_path, name):
    """Nothing is written then."""
    with pytest.raises(ResultError, match="an attachment needs a file name of its own, without"):
        study_result.save(tmp_path / "out", report="<p>", attachments={name: "text"})
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_report(study_result, tmp_path):
    """The report is optional, and its absence is no damage."""
    folder = study_result.save(tmp_path / "a" / "b" / "out")
    assert not (folder / "report.html").exists()
    assert len(StudyResult.load(folder).findings) == len(study_result.findings)


def test_an_earlier_result_is_replaced_whole(study_result, saved):
    """No file of the old one stays, nothing is left beside it."""
    fresh = replace(study_result, sentences=("new",))
    fresh.save(saved)
    assert StudyResult.load(saved).sentences == ("new",)
    assert not (saved / "report.html").exists()
    assert [path.name for path in saved.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_filled(study_result, tmp_path):
    """As made by a user or by tempfile."""
    (tmp_path / "out").mkdir()
    study_result.save(tmp_path / "out")
    assert StudyResult.load(tmp_path / "out").sentences == study_result.sentences


def test_what_is_no_result_is_not_replaced(study_result, tmp_path):
    """A folder of somebody's files, a plain file, another tool's result.json."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    with pytest.raises(ResultError, match="not a resharpen result, so it is not replaced"):
        study_result.save(folder)
    (folder / "result.json").write_text('{"accuracy": 1}')
    with pytest.raises(ResultError, match="not a resharpen result, so it is not replaced"):
        check_destination(folder)
    with pytest.raises(ResultError, match="is a file"):
        study_result.save(folder / "chapter.tex")
    assert (folder / "chapter.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis"]


def test_a_file_put_beside_a_result_is_not_deleted(study_result, saved):
    """Replacing the folder would delete it."""
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(ResultError, match=r"holds notes\.txt beside the result"):
        study_result.save(saved)
    assert (saved / "notes.txt").read_text() == "mine"
    assert StudyResult.load(saved).sentences == study_result.sentences


@pytest.mark.parametrize("moment", ["writing", "first rename", "second rename"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_result(study_result, saved, monkeypatch, moment, error):
    """Whenever it fails, what was there is there, and nothing else."""
    calls = {"first rename": 1, "second rename": 2}
    if moment == "writing":
        monkeypatch.setattr(
            storage.Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(error)
        )
    else:
        real, seen = os.replace, []

        def failing(source, target):
            seen.append(source)
            if len(seen) == calls[moment]:
                raise error
            real(source, target)

        monkeypatch.setattr(folders.os, "replace", failing)
    fresh = replace(study_result, sentences=("new",))
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ResultError
    with pytest.raises(expected):
        fresh.save(saved)
    monkeypatch.undo()
    assert StudyResult.load(saved).sentences == study_result.sentences
    assert [path.name for path in saved.parent.iterdir()] == ["out"]


def test_a_kill_between_the_renames_loses_nothing(study_result, saved):
    """The old result lies beside; load says where, the next save cleans up."""
    saved.rename(saved.with_name(".out.previous"))
    with pytest.raises(ResultError, match=r"left the earlier result at .*\.out\.previous, rename"):
        StudyResult.load(saved)
    assert len(StudyResult.load(saved.with_name(".out.previous")).curves) == 25
    study_result.save(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "result.json").unlink(), "has no result.json"),
        (lambda f: (f / "table.parquet").unlink(), "lacks table.parquet"),
        (lambda f: (f / "report.html").unlink(), "lacks report.html"),
        (
            lambda f: os.truncate(f / "table.parquet", 1000),
            "not the file that was saved",
        ),
        (
            lambda f: (f / "report.html").write_text("x"),
            "not the file that was saved",
        ),
        (lambda f: os.truncate(f / "result.json", 5000), "truncated or not JSON"),
        (lambda f: (f / "result.json").write_bytes(b"\xff\xfe{"), "truncated or not JSON"),
        (lambda f: rewrite(f, lambda d: "[1]"), "not a resharpen result"),
        (lambda f: rewrite(f, lambda d: d.update(format="x")), "not a resharpen result"),
        (lambda f: rewrite(f, lambda d: d.update(schema_version=2)), "schema version 2"),
        (lambda f: rewrite(f, lambda d: d.pop("schema_version") and None), "schema version None"),
        (lambda f: rewrite(f, lambda d: d.update(files=["x"])), "no valid list of files"),
        (lambda f: rewrite(f, lambda d: d.update(files={"../x": {}})), "no valid list of files"),
        (
            lambda f: rewrite(f, lambda d: d.pop("curves") and None),
            "unknown parts: curves",
        ),
        (lambda f: rewrite(f, lambda d: d.update(extra=1)), "missing or unknown parts: extra"),
        (lambda f: rewrite(f, lambda d: d.update(files={})), "parts: table.parquet"),
        (lambda f: rewrite(f, lambda d: d.update(findings={})), "expected a list of Findings"),
        (lambda f: rewrite(f, lambda d: d["findings"][0].pop("kind") and None), "missing: kind"),
        (lambda f: rewrite(f, lambda d: d["verdicts"][0].update(verdict="OK")), "got 'OK'"),
        (lambda f: rewrite(f, lambda d: d["curves"][0].update(kind="x")), "kind"),
        (lambda f: rewrite(f, lambda d: d["provenance"].update(seeds=[0.5])), "expected int"),
        (lambda f: rewrite(f, lambda d: d.update(sentences=3)), "cannot be read"),
    ],
)
def test_damage_is_told_in_one_sentence(saved, damage, message):
    """Whatever is wrong: one `ResultError`, one line."""
    damage(saved)
    with pytest.raises(ResultError, match=message) as caught:
        StudyResult.load(saved)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_no_parquet_or_no_table(study_result, tmp_path):
    """Even when size and hash are right."""
    for content, message in ((b"PAR1 no", "no parquet file"), (None, "missing: study")):
        if content is None:
            content = study_result.table.drop(columns="study").to_parquet(index=False)
        document = {
            "sentences": [],
            "provenance": study_result.provenance.to_dict(),
            "findings": [],
            "verdicts": [],
            "curves": [],
        }
        folder = storage.write_folder(tmp_path / "out", document, {"table.parquet": content})
        with pytest.raises(ResultError, match=message):
            StudyResult.load(folder)


def test_nothing_there(tmp_path):
    """No folder, or a folder without result."""
    with pytest.raises(ResultError, match="there is no result folder at"):
        StudyResult.load(tmp_path / "none")
    with pytest.raises(ResultError, match=r"has no result\.json"):
        StudyResult.load(tmp_path)


def test_a_result_is_checked_when_made(study_result):
    """A table that is none, sentences that are one string."""
    with pytest.raises(ValueError, match="missing: study"):
        replace(study_result, table=study_result.table.drop(columns="study"))
    with pytest.raises(ValueError, match="got one string"):
        replace(study_result, sentences="one")


def test_repr_says_what_it_holds(study_result):
    """Shape, checkpoints, lengths, seeds, violations, verdicts."""
    text = repr(study_result)
    for part in (
        "set_complement: 6200 rows",
        "8 quantities",
        "checkpoints none, post, res_post, peri",
        "lengths 1 to 31",
        "seeds 0, 1, 2, 3, 4",
        "25 findings (1 violated)",
        "1 PASS, 1 WARN, 1 FAIL, 1 UNKNOWN",
    ):
        assert part in text
    assert "NOT COMPLETED" not in text
    stopped = replace(study_result, provenance=replace(study_result.provenance, completed=False))
    assert "NOT COMPLETED" in repr(stopped)
    empty = replace(study_result, table=study_result.table.iloc[:0], findings=(), verdicts=())
    assert "no lengths" in repr(empty)
    assert "no verdicts" in repr(empty)


def test_notebook_shows_violations_first_and_escapes(study_result):
    """Sentences, verdicts, then findings; what is cut off is counted."""
    page = study_result._repr_html_()
    assert "findings &lt;below&gt;" in page
    assert "a bound that is &lt;too&gt; tight" in page
    assert "<below>" not in page
    assert "<too>" not in page
    assert page.index("violated</span>") < page.index("holds</span>")
    assert "and 13 more findings, none violated" in page
    assert len(page) < 20_000


def test_all_violations_are_shown_in_a_notebook(study_result):
    """However many."""
    many = tuple(replace(f, violated=True, status="ok") for f in study_result.findings)
    page = replace(study_result, findings=many)._repr_html_()
    assert page.count("violated</span>") == len(many)
    assert "more finding" not in page


def test_loading_and_repr_need_no_torch(saved):
    """A result can be looked at where torch is slow or absent."""
    code = (
        "import sys; from resharpen.analyses.result import StudyResult; "
        f"result = StudyResult.load({str(saved)!r}); print(repr(result)); result._repr_html_(); "
        "assert not {'torch', 'transformer_lens', 'plotly'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StudyResult(set_complement: 6200 rows")


def test_nothing_is_rounded(study_result, tmp_path):
    """Curves too come back to the last bit."""
    again = StudyResult.load(study_result.save(tmp_path / "out"))
    for mine, theirs in zip(study_result.curves, again.curves, strict=True):
        assert np.array_equal(mine.values, theirs.values, equal_nan=True)
