"""Tests that follow the worked examples of `docs/contributing/`.

A page's changes are applied to a copy of the tree, and its commands run there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "contributing"
FILES: Mapping[str, int] = {
    "pointwise-operator": 3,
    "scalar-operation": 6,
    "pass": 4,
    "strategy": 4,
    "reduction-kind": 6,
    "dtype": 6,
}
"""Most files that the example of a page changes, changelogs aside where a package has one line of them each."""
CHANGE = re.compile(r"^```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDED = ("conftest.py", "constraints.txt", "pyproject.toml", "packages", "tests", "tools")
IGNORED = shutil.ignore_patterns("*.egg-info", "build", ".hypothesis", "*-pytest-*")
"""Names that are not copied. Python's bytecode is: it holds for the files that a page leaves as they are."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, tests and tools."""
    copy = tmp_path / "litz"
    copy.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=IGNORED)
        else:
            shutil.copy(source, copy / name)
    return copy


def run(command: Sequence[str], tree: Path, **variables: str) -> str:
    """Run a command in the tree; its output. Fails the test if the command fails."""
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, timeout=600, env={**os.environ, **variables}
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def apply(changes: Sequence[str], tree: Path) -> None:
    """Apply the changes of a page, whose context may have moved."""
    patch = tree.parent / "changes.diff"
    patch.write_text("".join(changes), encoding="utf-8")
    run(["git", "apply", "-C1", str(patch)], tree, GIT_CEILING_DIRECTORIES=str(tree.parent))


def test_every_page_has_a_bound() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_an_example_works_as_its_page_says(name: str, tree: Path, tmp_path: Path) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    changes = CHANGE.findall(page)
    assert 0 < len(changes) <= FILES[name]
    assert all(change.count("\n+++ ") == 1 for change in changes), "a block changes one file"
    apply(changes, tree)
    sources = run([sys.executable, "tools/tree_metadata.py", str(tmp_path / "metadata")], tree).strip()
    path = os.pathsep.join((sources, str(tree / "tests"), str(tree / "tools")))
    (commands,) = COMMANDS.findall(page)
    for command in commands.splitlines():
        words = shlex.split(command)
        program = words.index("python")
        variables = dict(word.split("=", 1) for word in words[:program])
        run(
            [sys.executable, *words[program + 1 :]], tree,
            PYTHONPATH=path, LITZ_CACHE_DIR=str(tmp_path / "cache"), **variables,
        )  # fmt: skip
