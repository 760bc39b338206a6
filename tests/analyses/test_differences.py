import pytest

from resharpen.analyses import Thresholds, audit
from resharpen.analyses.differences import Difference, compare_audits, render_differences

LENGTHS = [1, 2, 4, 8, 16, 31]


@pytest.fixture(scope="module")
def audits():
    return {
        name: audit(f"set-complement-{name}", lengths=LENGTHS, n_sequences=16)
        for name in ("none", "res_post")
    }


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
