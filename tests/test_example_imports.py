"""Tests that the examples import what the packages' lists of public names have, and nothing else of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py"))
LISTS = sorted(ROOT.glob("packages/*/tests/public_api.txt"))
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:from|import) ", re.MULTILINE)
PUBLIC = re.compile(r"^(?:class )?(litz[\w.]*)", re.MULTILINE)


def public_names() -> frozenset[str]:
    """Names of all lists, and the modules that have them."""
    names = {name for path in LISTS for name in PUBLIC.findall(path.read_text(encoding="utf-8"))}
    parents = {name.rsplit(".", 1)[0] for name in names}
    return frozenset(names | parents | set(PACKAGES))


def imported(text: str) -> Iterator[str]:
    """Yield the dotted names of the packages that a Python source imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in found if name.partition(".")[0] in PACKAGES)


def private(path: Path) -> set[str]:
    """Names that an example imports and that are not public."""
    text = path.read_text(encoding="utf-8")
    # A block of a page without imports may be a part of a program.
    sources = filter(IMPORT.search, BLOCK.findall(text)) if path.suffix == ".md" else [text]
    return {name for source in sources for name in imported(source)} - public_names()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_an_example_imports_public_names_alone(path: Path) -> None:
    assert not private(path)


def test_names_inside_of_rooms_are_found_out(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "```python\nimport litz_ir.host.executor\nfrom litz_ir.host import Executor\n"
        "from litz_ir.host.memory import NumpyMemory\nfrom litz_ir import host\nimport numpy\n```\n"
    )
    assert private(page) == {"litz_ir.host.executor", "litz_ir.host.memory.NumpyMemory"}
