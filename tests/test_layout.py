"""The map of the rooms, enforced: direction of imports, packages, the wheel, and decoys."""

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("models", "interp", "analyses")

# What each room may import of the others. `interp` knows models only by what they show.
ALLOWED = {
    "models": set(),
    "interp": {"models.sites", "models.observed", "models.facts"},
    "analyses": {"models", "interp"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names (within the toolkit: without the leading ``resharpen.``), level of each."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
                if node.module:
                    yield target, node.level
                else:
                    for alias in node.names:
                        yield f"{target}.{alias.name}", node.level
            else:
                yield node.module or "", 0


def test_imports_go_one_way() -> None:
    wrong = []
    for name, path in modules():
        room = name.split(".")[0]
        for target, level in imports(name, path):
            other = target.split(".")[0]
            if not level or other not in ROOMS or other == room:
                continue
            allowed = ALLOWED[room]
            if other not in allowed and not any(
                target == one or target.startswith(f"{one}.") for one in allowed
            ):
                wrong.append(f"{name} imports {target}")
    assert not wrong, wrong


def test_measures_and_theory_do_not_know_each_other() -> None:
    for name, path in modules():
        for target, _ in imports(name, path):
            if name.startswith("interp.measures"):
                assert not target.startswith("interp.theory"), name
            if name.startswith("interp.theory"):
                assert not target.startswith(("interp.measures", "models", "torch")), name


def test_imports_inside_the_toolkit_are_relative() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules()
        for target, level in imports(name, path)
        if not level and target.split(".")[0] in (*ROOMS, "resharpen")
    ]
    assert not wrong, wrong


def test_plotly_and_print_stay_in_their_places() -> None:
    for name, path in modules():
        if not name.startswith("analyses.figures"):
            targets = {target.split(".")[0] for target, _ in _runtime_imports(name, path)}
            assert "plotly" not in targets, name
        if name != "analyses.cli":
            calls = {
                node.func.id
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert "print" not in calls, name


def _runtime_imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Imports outside ``if TYPE_CHECKING``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or "", 0


def test_every_package_folder_is_listed() -> None:
    """One that is missing works in an editable install and is absent from the wheel."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        f"resharpen.{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    }
    assert set(listed) == found | {"resharpen"}
    folders_with_code = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders_with_code)


def test_no_file_outgrows_its_room() -> None:
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for _, p in modules()}
    too_long = {name: lines for name, lines in sizes.items() if lines > 450}
    assert not too_long, too_long
    banned = ("utils", "helpers", "common", "misc", "base")
    assert not [name for name in sizes if Path(name).stem in banned]


def run_python(code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_help_imports_neither_torch_nor_transformer_lens(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from resharpen.analyses.cli import main\n"
        "for arguments in (['--help'], ['audit', '--help'], ['train', '--help']):\n"
        "    try: main(arguments)\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'torch', 'transformer_lens', 'pandas', 'plotly'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage: resharpen" in done.stdout


DECOY = '''
import torch
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()

    def forward(self, x):
        scores = x @ x.transpose(1, 2)
        future = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
        scores = self.hook_attn_scores(scores.masked_fill(future, -torch.inf)[:, None])
        return self.hook_pattern(scores.softmax(-1))[:, 0] @ x


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.hook_resid_post = Attention(), HookPoint()

    def forward(self, x):
        return self.hook_resid_post(x + self.attn(x))


class Mine(HookedRootModule):
    """A user's own class, in a module called `models` beside the notebook."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(11, 4)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.unembed = torch.nn.Linear(4, 11)
        self.setup()

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)
'''


def test_a_users_own_models_and_interp_are_not_shadowed(tmp_path: Path) -> None:
    """The decoy's class is imported from the decoy, and audited by the installed toolkit."""
    (tmp_path / "models.py").write_text(DECOY)
    (tmp_path / "interp.py").write_text("WHOSE = 'decoy'\n")
    (tmp_path / "analyses").mkdir()
    (tmp_path / "analyses" / "__init__.py").write_text("WHOSE = 'decoy'\n")
    code = (
        "import analyses, interp, models, torch\n"
        "assert interp.WHOSE == analyses.WHOSE == 'decoy'\n"
        "from resharpen.analyses import audit\n"
        "from resharpen.models import Transformer\n"
        "assert not issubclass(models.Mine, Transformer)\n"
        "def sample(generator, batch, length):\n"
        "    return torch.from_numpy(generator.integers(0, 11, (batch, length)))\n"
        "result = audit(models.Mine(), sample=sample, lengths=[2, 4, 8, 16], n_sequences=32)\n"
        "heads = [v for v in result.verdicts if v.level == 'head']\n"
        "assert [v.subject for v in heads] == ['L0 H0', 'L1 H0'], heads\n"
        "print(result)\n"
    )
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "checkpoints Mine" in done.stdout
    bare = run_python("import interp.sweeping", ROOT)
    assert bare.returncode != 0, "a bare `import interp` must not load a second copy"


@pytest.mark.slow
def test_the_wheel_in_a_new_environment_runs_the_command_line(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("package", *ROOMS, "pyproject.toml", "README.md", "LICENSE"):
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, source / name)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", str(tmp_path), str(source)),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env")  # our pip serves it too
    python = tmp_path / "env" / "bin" / "python"
    purelib = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")})
    # The dependencies are borrowed; their own .pth files, ours among them, are not processed.
    (Path(purelib) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
            *("--no-deps", "--no-index", str(wheel)),
        ],
        check=True,
    )
    command = tmp_path / "env" / "bin" / "resharpen"
    listed = subprocess.run([command, "checkpoints"], capture_output=True, text=True, check=True)
    name = listed.stdout.split()[0]
    environment = {**os.environ, "PYTHONPATH": ""}
    audited = subprocess.run(
        [command, "audit", name, "--out", str(tmp_path / "out"), "--n-sequences", "8"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert audited.returncode in (0, 1), audited.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > 1e6
    where = subprocess.run(
        [python, "-c", "import resharpen.models as m; print(m.__path__[0])"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert str(tmp_path / "env") in where.stdout
