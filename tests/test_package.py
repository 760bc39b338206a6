"""The package itself: rooms that load when first used, its version, and `python -m resharpen`."""

import subprocess
import sys
from importlib.metadata import version

import resharpen


def test_the_rooms_are_found_by_completion_and_loaded_when_used(tmp_path):
    code = (
        "import resharpen, sys\n"
        "assert dir(resharpen) == ['analyses', 'interp', 'models'], dir(resharpen)\n"
        "assert not {'torch', 'pandas', 'plotly'} & set(sys.modules)\n"
        "assert 'audit' in dir(resharpen.analyses)\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'post' in resharpen.models.PLACEMENTS\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_it_says_its_version_and_what_it_is_for():
    assert resharpen.__version__ == version("resharpen")
    assert resharpen.__doc__.startswith("Does attention disperse")


def test_it_runs_as_a_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "resharpen", "--help"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout.startswith("usage: resharpen")
