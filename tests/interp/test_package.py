"""The package loads nothing until it is used, and its names are what they seem."""

import pathlib
import subprocess
import sys

import pytest

import resharpen.interp as interp


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_neither_torch_nor_pandas():
    run("import resharpen.interp, sys; assert not {'torch', 'pandas', 'numpy'} & set(sys.modules)")


def test_measuring_does_not_load_transformer_lens():
    run(
        "from resharpen.interp import sweep; import sys\n"
        "assert 'transformer_lens' not in sys.modules"
    )


def test_no_module_has_the_name_of_a_function():
    """Else `from resharpen.interp import sweep` would depend on what was imported before."""
    modules = {path.stem for path in pathlib.Path(interp.__path__[0]).glob("*.py")}
    assert not modules & set(interp.__all__)


@pytest.mark.parametrize("name", interp.__all__)
def test_every_name_of_the_package_can_be_loaded(name):
    assert getattr(interp, name).__name__ if callable(getattr(interp, name)) else True
