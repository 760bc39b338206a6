from dataclasses import replace
from typing import Any

import pytest

from resharpen.analyses import Thresholds, audit
from resharpen.analyses.differences import Difference, compare_audits, render_differences
from resharpen.analyses.result import StudyResult
from resharpen.analyses.storage import ResultError
from resharpen.models.tasks import SetComplement

LENGTHS = [1, 2, 4, 8, 16, 31]


@pytest.fixture(scope="module")
def audits():
    return {
        name: audit(f"set-complement-{name}", lengths=LENGTHS, n_sequences=16)
        for name in ("none", "res_post")
    }


def resolved(result: StudyResult, settings: dict[str, Any]) -> StudyResult:
    return replace(result, provenance=replace(result.provenance, resolved=settings))


def test_what_a_norm_changed(audits) -> None:
    found = {item.subject: item for item in compare_audits(audits["none"], audits["res_post"])}
    assert {name: item.change for name, item in found.items()} == {
        "L0 H0": "better",
        "layer 0": "better",
        "model": "better",
    }
    assert found["L0 H0"].before == "WARN disperses"
    assert found["L0 H0"].after == "PASS disperses"
    assert found["model"].value_after < 0.05 < found["model"].value_before
    back = {
        item.subject: item.change for item in compare_audits(audits["res_post"], audits["none"])
    }
    assert set(back.values()) == {"worse"}


def test_the_same_audit_has_no_changes(audits) -> None:
    differences = compare_audits(audits["none"], audits["none"])
    assert {item.change for item in differences} == {"same"}
    said = render_differences(differences, ("a", "b"))
    assert said == "a -> b: of 3 verdicts, 0 changed.\n"


def test_changes_are_said_worst_first(audits) -> None:
    differences = compare_audits(audits["res_post"], audits["none"])
    lines = render_differences(differences, ("res_post", "none")).splitlines()
    assert lines[0] == "res_post -> none: of 3 verdicts, 3 changed."
    assert all(line.startswith("worse") for line in lines[1:])
    assert "PASS keeps precision -> FAIL loses precision" in lines[-1]


def test_other_thresholds_are_refused(audits) -> None:
    other = audit(
        "set-complement-none",
        lengths=LENGTHS,
        n_sequences=16,
        thresholds=Thresholds(error_warn=0.2),
    )
    with pytest.raises(ValueError, match="judged by different thresholds"):
        compare_audits(audits["none"], other)


def test_folders_are_read(audits, tmp_path) -> None:
    for name, result in audits.items():
        result.save(tmp_path / name)
    read = compare_audits(str(tmp_path / "none"), tmp_path / "res_post")
    assert read == compare_audits(audits["none"], audits["res_post"])
    with pytest.raises(ResultError, match="nowhere"):
        compare_audits(tmp_path / "nowhere", audits["none"])


@pytest.mark.parametrize("wrong", [None, 3, {"a": 1}])
def test_what_is_no_audit_is_refused(audits, wrong) -> None:
    with pytest.raises(TypeError, match=r"expected an audit, .*; got " + type(wrong).__name__):
        compare_audits(audits["none"], wrong)


def test_a_study_is_no_audit(audits) -> None:
    study = resolved(audits["none"], {"n_vocab": 8})
    with pytest.raises(ValueError, match="got another kind of result: compare two audits"):
        compare_audits(study, audits["none"])


def test_a_task_and_a_probe_are_refused(audits) -> None:
    probed = audit("set-complement-none", probe="repeated", lengths=[4, 8, 16, 31], n_sequences=2)
    with pytest.raises(ValueError, match="first is an audit on a task and the second on a probe"):
        compare_audits(audits["none"], probed)
    with pytest.raises(ValueError, match="first is an audit on a probe and the second on a task"):
        compare_audits(probed, audits["none"])
    settings = {**probed.provenance.resolved, "probe": {"name": "needle", "d_vocab": 8}}
    with pytest.raises(ValueError, match=r"fed different things.*audit both on the same probe"):
        compare_audits(probed, resolved(probed, settings))
    # A probe is made for the vocabulary of its model: that is no other probe.
    own = {**probed.provenance.resolved["probe"], "d_vocab": 50, "avoid": [1], "bos": 2}
    same = resolved(probed, {**probed.provenance.resolved, "probe": own})
    assert {item.change for item in compare_audits(probed, same)} == {"same"}


def test_another_task_or_another_parameter_is_refused(audits) -> None:
    settings = audits["none"].provenance.resolved
    other = resolved(audits["none"], {**settings, "task": SetComplement(16).to_dict()})
    with pytest.raises(ValueError, match=r"fed different things.*audit both on the same task"):
        compare_audits(audits["none"], other)
    own = resolved(audits["none"], {**settings, "task": None})
    with pytest.raises(ValueError, match="a sample of your own"):
        compare_audits(audits["none"], own)


def test_other_lengths_are_refused_with_those_in_common() -> None:
    first = audit("set-complement-none", lengths=[2, 4, 8], n_sequences=4)
    second = audit("set-complement-none", lengths=[2, 31], n_sequences=4)
    with pytest.raises(ValueError, match=r"different lengths \(2, 4, 8; 2, 31\).*both have \(2\)"):
        compare_audits(first, second)
    third = audit("set-complement-none", lengths=[16, 31], n_sequences=4)
    with pytest.raises(ValueError, match=r"at the same lengths$"):
        compare_audits(first, third)


def test_other_numbers_of_sequences_are_warned_of(audits) -> None:
    fewer = audit("set-complement-none", lengths=LENGTHS, n_sequences=8)
    with pytest.warns(UserWarning, match="ran 16 and 8 sequences a length"):
        compare_audits(audits["none"], fewer)


def test_subjects_that_only_one_audit_has(audits) -> None:
    wider = audit("constructed-none", lengths=LENGTHS, n_sequences=16)
    fewer = type(wider)(
        table=wider.table,
        curves=wider.curves,
        findings=wider.findings,
        verdicts=wider.verdicts[1:],
        provenance=wider.provenance,
        sentences=wider.sentences,
    )
    changes = {item.subject: item.change for item in compare_audits(wider, fewer)}
    assert changes["L0 H0"] == "gone"
    changes = {item.subject: item.change for item in compare_audits(fewer, wider)}
    assert changes["L0 H0"] == "new"
    (head,) = (item for item in compare_audits(fewer, wider) if item.subject == "L0 H0")
    assert isinstance(head, Difference)
    assert head.row()["before"] == ""
