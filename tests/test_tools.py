"""Tests of the scripts in tools/."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest
import tree_metadata
from check_links import broken_links
from import_all import import_all
from public_api import public_names
from tree_metadata import PACKAGES, dependencies, link_missing, manifests, write_metadata

import litz


def test_public_names_follow_dunder_all_and_else_what_is_bound(tmp_path: Path) -> None:
    package = tmp_path / "src" / "sample"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text('from .inner import a, b\n__all__ = ["a"]\n__version__ = "1"\n')
    (package / "inner" / "__init__.py").write_text(
        "from __future__ import annotations\nimport os.path\na: int = 1\ndef b() -> None: ...\n_hidden = 2\n"
    )
    assert public_names(package) == ["sample.a", "sample.inner.a", "sample.inner.b", "sample.inner.os"]


def test_broken_links_are_found_outside_code_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "there.md").write_text("")
    page.write_text("[a](there.md#part) [b](missing.md) [c](https://example.org)\n```\n[d](code.md)\n```\n")
    assert broken_links(page) == ["missing.md"]


def test_import_all_reaches_inner_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sample_to_import"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "deep.py").write_text("")
    (folder / "__main__.py").write_text("raise RuntimeError('a program, not a module')\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = import_all("sample_to_import")
    assert names == ["sample_to_import", "sample_to_import.inner", "sample_to_import.inner.deep"]


def test_a_checkout_looks_installed(tmp_path: Path) -> None:
    for project in manifests(PACKAGES).values():
        write_metadata(project, tmp_path)
    found = {each.metadata["Name"]: each for each in distributions(path=[str(tmp_path)])}
    entries = {(e.group, e.name, e.value) for each in found.values() for e in each.entry_points}
    assert found["litz"].version == litz.__version__
    assert ("litz.targets", "cuda", "litz_codegen_triton.target:CudaTarget") in entries
    assert ("torch_dynamo_backends", "litz", "litz_backend:litz") in entries
    assert any(each.startswith("torch") for each in found["litz"].requires or ())


def test_what_pip_carries_stands_in_for_a_missing_dependency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = dependencies(manifests(PACKAGES).values())
    assert "platformdirs" in needed and "torch" in needed and "litz_ir" not in needed
    copy = tmp_path / "carrier_of_copies" / "_vendor" / "carried"
    copy.mkdir(parents=True)
    (copy.parent.parent / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tree_metadata, "CARRIERS", ("carrier_of_nothing", "carrier_of_copies"))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert link_missing(["carried", "json", "not_to_be_had"], folder) == ["not_to_be_had"]
    assert [path.name for path in folder.iterdir()] == ["carried"]
    assert (folder / "carried").resolve() == copy.resolve()
