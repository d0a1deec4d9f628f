"""Tests that litz has no name of the device in examples/privateuse1_device, and that its document is what is checked.

The device's own tests run on wheels, in `nox -s targets`: its extension module is built there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from litz.commands.device import _STEPS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "examples" / "privateuse1_device"
DOCUMENT = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")


def entry_points() -> dict[str, dict[str, str]]:
    """Return the device's entry points by group."""
    manifest = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, str]] = manifest["project"]["entry-points"]
    return found


def test_litz_has_no_literal_of_its_name() -> None:
    (kind,) = entry_points()["litz.targets"]
    assert f'KIND = "{kind}"' in (PROJECT / "src" / "litz_device_toy" / "__init__.py").read_text("utf-8")
    sources = sorted(ROOT.glob("packages/*/src/**/*.py"))
    assert len(sources) > 300
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            name = (
                node.value
                if isinstance(node, ast.Constant)
                else getattr(node, "id", getattr(node, "attr", ""))
            )
            assert not (isinstance(name, str) and re.search(rf"\b{kind}\b", name)), source


def test_the_document_names_the_functions_that_are_checked() -> None:
    printed = re.findall(r"^\d+\. (.*): good$", DOCUMENT, re.MULTILINE)
    assert printed == [step.name for step in _STEPS]
    assert re.findall(r"^\| (\d+) \|", DOCUMENT, re.MULTILINE) == [str(k) for k in range(1, len(_STEPS) + 1)]


def test_the_figures_of_the_document_are_those_of_the_tests() -> None:
    figures = re.findall(r"conformance of \w+: .* skipped", DOCUMENT)
    tests = (PROJECT / "tests" / "test_toy_compiled.py").read_text(encoding="utf-8")
    assert len(figures) == 2 and all(figure in tests for figure in figures)
