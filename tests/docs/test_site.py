"""The pages as a site: pages are found, links lead somewhere, public names are documented."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")])
NAMES = [page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES]
PACKAGES = ("models", "interp", "interp.measures", "interp.theory", "analyses")

GENERATOR = ("sphinx", "myst_parser", "furo", "latex2mathml")
MISSING = [name for name in GENERATOR if importlib.util.find_spec(name) is None]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as a code host and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text("utf-8")), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if not re.match(r"[a-z]+:", target):
            yield target


def test_the_navigation_and_the_pages_are_the_same() -> None:
    text = (DOCS / "index.md").read_text("utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines()]
    entries = [line for line in lines if line and not line.startswith(":")]
    assert sorted(entries) == sorted(set(NAMES) - {"index"})


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        assert file.is_file(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def test_every_page_has_one_title() -> None:
    for page in PAGES:
        # The claims of a study are written by the study; the site gives them a title.
        if page.suffix == ".md" and page.name != "claims.md":
            text = without_code(page.read_text("utf-8"))
            assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page


def test_every_package_has_its_place_in_the_reference() -> None:
    text = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.rst"))
    assert sorted(re.findall(r"public-names:: resharpen\.(\S+)", text)) == sorted(PACKAGES)


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING) and not os.environ.get("CI"),
    reason=f"the site is not built: there is no {' and no '.join(MISSING)}",
)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    assert not MISSING, f"CI must have {' and '.join(MISSING)}"
    built = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--fresh-env"),
            *("-b", "html", "-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "site")),
        ],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert built.returncode == 0, built.stderr
    from sphinx.util.inventory import InventoryFile

    with (tmp_path / "site" / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: name)
    documented = {name for kind in inventory for name in inventory[kind] if kind.startswith("py:")}
    for package in PACKAGES:
        module = importlib.import_module(f"resharpen.{package}")
        named = {name for name in module.__all__ if name not in ("measures", "theory")}
        lacking = {name for name in named if f"resharpen.{package}.{name}" not in documented}
        above = getattr(importlib.import_module(module.__name__.rpartition(".")[0]), "__all__", ())
        assert not lacking - set(above)
    for name in NAMES:
        page = (tmp_path / "site" / f"{name}.html").read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="([^"]+)"', page)
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], name
        assert "merror" not in page, name
