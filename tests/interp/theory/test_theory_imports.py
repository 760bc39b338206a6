"""Theory stands alone: NumPy, the standard library, and its own files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import resharpen.interp.theory as theory

FOLDER = Path(theory.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
ALLOWED = {"numpy", "lazy_loader", *sys.stdlib_module_names}

LOAD_ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("alone", sys.argv[1], submodule_search_locations=[
    sys.argv[2]])
module = importlib.util.module_from_spec(spec)
sys.modules["alone"] = module
spec.loader.exec_module(module)
heavy = {"torch", "pandas", "scipy", "transformer_lens", "resharpen"} & set(sys.modules)
assert not heavy, heavy
assert float(module.entropy_limit(1)) == 0.0
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_imports_only_numpy_the_standard_library_and_its_neighbours(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names}
            assert roots <= ALLOWED, roots
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{file.name} reaches out of theory"
            assert node.level == 1 or (node.module or "").split(".")[0] in ALLOWED, node.module


def test_theory_loads_without_torch_pandas_or_the_rest_of_the_toolkit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALONE, str(FOLDER / "__init__.py"), str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_once_and_documented() -> None:
    assert len(set(theory.__all__)) == len(theory.__all__)
    for name in theory.__all__:
        thing = getattr(theory, name)
        if callable(thing) and name != "ScaleLaw":
            assert (thing.__doc__ or "").strip(), name


READ_OFF = {"accumulation_scale", "gap_count"}
"""Read off measured scores, not predicted: bare nouns, as measures are."""


def test_names_say_what_they_are() -> None:
    endings = ("_bound", "_bounds", "_limit", "_rate", "_threshold", "_curve", "_curves")
    functions = [name for name in theory.__all__ if name.islower() and name not in READ_OFF]
    assert len(functions) > 40
    for name in functions:
        assert name.startswith("predict_") or name.endswith(endings), name
