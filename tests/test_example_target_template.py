"""Tests that the template in examples/target_template is as small, public and easily renamed as its README says."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "examples" / "target_template"
SOURCES = sorted((PROJECT / "src" / "litz_target_mine").glob("*.py"))
README = (PROJECT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 300
"""Lines of code that all of the template's sources have less than."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Return the number of lines of a source without those that are blank, a comment or a docstring."""
    strings = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    docstrings = {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = [
        each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type not in LAYOUT
    ]
    lines = {line for each in tokens for line in range(each.start[0], each.end[0] + 1)}
    return len(lines - docstrings)


def imported_from_litz(text: str) -> Iterator[str]:
    """Yield the dotted names that a source imports from litz, but for those of the template itself."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{each.name}" for each in names if _is_of_litz(module))
            case ast.Import(names=names):
                yield from (each.name for each in names if _is_of_litz(each.name))


def _is_of_litz(module: str) -> bool:
    return module.startswith("litz") and not module.startswith("litz_target_")


def public_names() -> set[str]:
    """Return every public name of litz, dotted."""
    lists = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/tests/public_api.txt"))
    return set(re.findall(r"^(?:class )?([\w.]+)", lists, re.MULTILINE))


def commands() -> str:
    """Return the README's commands that copy and rename the template, for the folder that holds `examples`."""
    return str(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[0])


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """The template under another name, made by the README's commands."""
    copied = shutil.ignore_patterns("build", "__pycache__", ".pytest_cache", "*.egg-info")
    shutil.copytree(PROJECT, tmp_path / "examples" / "target_template", ignore=copied)
    subprocess.run(["bash", "-euo", "pipefail", "-c", commands()], cwd=tmp_path, check=True, timeout=60)
    return tmp_path / "litz-target-lanes"


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a target in its folder."""
    path = os.pathsep.join([str(folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_the_readme_says_how_long_each_file_is() -> None:
    counted = {path.name: code_lines(path.read_text(encoding="utf-8")) for path in SOURCES}
    said = {
        name: int(lines) for name, lines in re.findall(r"^\| `(\w+\.py)` \| (\d+) \|", README, re.MULTILINE)
    }
    assert said == {name: lines for name, lines in counted.items() if lines}
    assert f"| all of `src/` | {sum(counted.values())} |" in README
    assert sum(counted.values()) < MOST_LINES


def test_only_public_names_of_litz_are_used() -> None:
    paths = [*SOURCES, *sorted((PROJECT / "tests").glob("*.py"))]
    used = {name for path in paths for name in imported_from_litz(path.read_text(encoding="utf-8"))}
    assert {"litz_ir.target.Capabilities", "litz_ir.plan.Kernel"} <= used
    assert used - public_names() == set()


def test_the_name_stands_in_no_other_word() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PROJECT.rglob("*.*") if path.suffix in _SUFFIXES]
    words = {word for text in texts for word in re.findall(r"\w*[mM]ine\w*", text)}
    assert words <= {"mine", "Mine", "litz_target_mine", "test_mine", "MineTarget", "MineModule"}


_SUFFIXES = (".md", ".py", ".sh", ".toml")


def test_it_passes_its_tests() -> None:
    done = pytest_in(PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_under_another_name_it_passes_its_tests_and_grows(renamed: Path) -> None:
    left = [
        path
        for path in renamed.rglob("*")
        if path.is_file() and re.search("[mM]ine", path.read_text("utf-8"))
    ]
    assert not left and not [path for path in renamed.rglob("*") if "mine" in path.name]
    operation, combiners = re.findall(r"```python\n(    \"\w+\": .*|COMBINERS = .*)\n```", README)
    language = renamed / "src" / "litz_target_lanes" / "language.py"
    text = language.read_text(encoding="utf-8")
    grown = re.sub(r"^COMBINERS = .*$", combiners, text, flags=re.MULTILINE)
    grown = grown.replace(
        "OPERATIONS: Mapping[str, str] = {\n", f"OPERATIONS: Mapping[str, str] = {{\n{operation}\n"
    )
    language.write_text(grown, encoding="utf-8")
    (cases,) = re.findall(r"With these two lines (\d+) cases pass", README)
    tests = renamed / "tests" / "test_lanes.py"
    tests.write_text(
        re.sub(r"^PASSED = \d+$", f"PASSED = {cases}", tests.read_text("utf-8"), flags=re.MULTILINE), "utf-8"
    )
    done = pytest_in(renamed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_runs_and_says_what_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    suite, example = re.findall(r"```python\n((?:from|import) .*?)```", README, re.DOTALL)
    path = os.pathsep.join([str(PROJECT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    for program in (suite, example):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == 0, done.stderr
        if program is suite:
            assert f"prints `{done.stdout.splitlines()[0]}`" in README
