"""Tests of the reference pages: one for each module with public names, and roles of docstrings as links."""

from __future__ import annotations

from pathlib import Path

import api_pages
import docstring_roles
import pytest
from signatures import Sources

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def sources() -> Sources:
    """The sources of every package."""
    return Sources(sorted(ROOT.glob("packages/*/src")))


def test_every_module_with_public_names_has_its_page(sources: Sources) -> None:
    expected = api_pages.pages(sources)
    assert {"index.md", "litz_ir.md", "litz_ir.loops.md", "litz_ir.dtypes.md", "litz.md"} <= expected.keys()
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")}
    assert found == expected, "run: python tools/api_pages.py --write"


def test_a_function_called_like_a_folder_is_shown_by_its_definition(sources: Sources) -> None:
    text = api_pages.page("litz", ("bench", "explain"), sources)
    assert text.count(":::") == 2
    assert "::: litz.explain.entry.explain\n" in text


def test_names_that_no_page_shows_are_reported(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    for name in api_pages.pages(sources):
        built = tmp_path / "api" / Path(name).with_suffix(".html").name
        built.write_text('<h2 id="litz_ir.device.CPU">', encoding="utf-8")
    absent = api_pages.absent_from(tmp_path, sources)
    assert "litz_ir.device.Device" in absent
    assert "litz_ir.device.CPU" not in absent
    assert "litz.devices.gpu" not in absent, "torch documents it"


def test_functions_classes_and_constants_have_docstrings(sources: Sources) -> None:
    names = {
        f"{module}.{name}"
        for modules in api_pages.every_module(sources).values()
        for module, names in modules.items()
        for name in names
    }
    assert names & set(api_pages.bare(sources)) == set()


def test_roles_become_references() -> None:
    html = "<p>a :class:<code>~litz_ir.plan.Plan</code>, or :func:<code>run()</code></p>"
    assert docstring_roles.on_page_content(html, page=None) == (
        '<p>a <autoref identifier="litz_ir.plan.Plan" optional><code>Plan</code></autoref>, '
        'or <autoref identifier="run" optional><code>run</code></autoref></p>'
    )
