"""The directive `public-names`: every public name of a package, under the file that defines it.

    .. public-names:: resharpen.models

A section a file, headed by the file's name and the first sentences of its docstring; below it the
names that the package exports from there, documented by autodoc. A name that is added to the
package is in the reference without a further step.
"""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

from docstrings import convert
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles


def imported_from(package: str) -> dict[str, str]:
    """Return the module that each public name is imported from, as the package's stub says."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else folder / "__init__.py").read_text("utf-8"))
    return {
        alias.asname or alias.name: f"{package}.{node.module}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


def home(package: str, name: str) -> str:
    """Return the module that defines a public name of a package, through packages on the way."""
    module = imported_from(package).get(name)
    if module is None:
        return package
    is_package = hasattr(importlib.import_module(module), "__path__")
    return home(module, name) if is_package else module


def public_names(package: str) -> list[str]:
    """Return the names that a package exports, less modules and what its parent exports, too."""
    module = importlib.import_module(package)
    above = getattr(importlib.import_module(package.rpartition(".")[0]), "__all__", ())
    named = (name for name in module.__all__ if name not in above)
    return [name for name in named if not inspect.ismodule(getattr(module, name))]


def by_file(package: str) -> dict[str, list[str]]:
    """Group the public names of a package by the module that defines them, in order."""
    groups: dict[str, list[str]] = {}
    for name in sorted(public_names(package), key=str.lower):
        groups.setdefault(home(package, name), []).append(name)
    return dict(sorted(groups.items()))


def data_lines(package: str, name: str) -> list[str]:
    """Describe a constant by the docstring that stands below it."""
    described = ModuleAnalyzer.for_module(home(package, name)).find_attr_docs()
    text = convert(list(described.get(("", name), [])))
    place = [f".. py:currentmodule:: {package}", "", f".. py:data:: {name}", ""]
    return [*place, *(f"   {line}".rstrip() for line in text), ""]


def entry_lines(package: str, name: str) -> list[str]:
    """Document one public name."""
    value = getattr(importlib.import_module(package), name)
    if inspect.isclass(value):
        return [f".. autoclass:: {package}.{name}", "   :members:", ""]
    if inspect.isfunction(value):
        return [f".. autofunction:: {package}.{name}", ""]
    return data_lines(package, name)


class PublicNames(SphinxDirective):
    """Write the sections of one package."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Build reStructuredText for autodoc and parse it."""
        package = self.arguments[0]
        lines: list[str] = []
        for module, names in by_file(package).items():
            title = f"``{module.removeprefix('resharpen.')}``"
            lines += [title, "-" * len(title), ""]
            if module != package:
                lines += [f".. automodule:: {module}", "   :no-index:", "   :no-members:", ""]
            for name in names:
                lines += entry_lines(package, name)
        node = nodes.container()
        source = f"<public names of {package}>"
        nested_parse_with_titles(self.state, StringList(lines, source), node)
        return node.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
