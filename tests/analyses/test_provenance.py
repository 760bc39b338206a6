"""Where a result comes from: versions, git."""

import subprocess
from pathlib import Path

import pytest

from resharpen.analyses import provenance as module
from resharpen.analyses.provenance import Provenance, provenance


def git(folder, *arguments):
    """Run git without the user's settings."""
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
    )


def test_versions_without_imports(monkeypatch):
    """What is installed has its version, what is not is None."""
    monkeypatch.setattr(module, "PACKAGES", ("numpy", "no-such-package-at-all"))
    record = provenance({"preset": "quick"}, {"width": 64}, seeds=range(3), checkpoints={"a": "0"})
    import numpy

    assert record.packages == {"numpy": numpy.__version__, "no-such-package-at-all": None}
    assert record.seeds == (0, 1, 2)
    assert record.completed
    assert Provenance.from_dict(record.to_dict()) == record


def test_what_json_cannot_hold_is_refused():
    """At once, not after hours when the result is saved."""
    with pytest.raises(TypeError, match="cannot hold"):
        provenance({"path": Path("x")}, {})


def test_commit_and_dirty_flag(tmp_path):
    """Of the checkout that tracks the file; a copy inside another's checkout is not tracked."""
    source = tmp_path / "code.py"
    source.write_text("x = 1\n")
    assert module._git_state(source) == (None, None)
    git(tmp_path, "init", "-q")
    assert module._git_state(source) == (None, None)
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit, dirty = module._git_state(source)
    assert commit is not None
    assert len(commit) == 40
    assert dirty is False
    source.write_text("x = 2\n")
    assert module._git_state(source) == (commit, True)
    git(tmp_path, "checkout", "-q", "code.py")
    installed = tmp_path / "venv" / "code.py"
    installed.parent.mkdir()
    installed.write_text("x = 1\n")
    assert module._git_state(installed) == (None, None)


def test_no_git_is_no_error(tmp_path, monkeypatch):
    """Where there is no git program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module._git_state(tmp_path / "code.py") == (None, None)
