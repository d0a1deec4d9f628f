"""Tests of the scripts in tools/."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest
import tree_metadata
from check_links import broken_links
from import_all import import_all
from installer_settings import variables_of
from module_sizes import MAX_LINES, MAX_MODULES, large
from public_api import public_lines, public_names
from signatures import Sources
from tree_metadata import PACKAGES, dependencies, link_missing, manifests, write_metadata

import litz


def test_public_names_follow_dunder_all_and_else_what_is_bound(tmp_path: Path) -> None:
    package = tmp_path / "src" / "sample"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text('from .inner import a, b\n__all__ = ["a"]\n__version__ = "1"\n')
    (package / "inner" / "__init__.py").write_text(
        "from __future__ import annotations\nimport os.path\na: int = 1\ndef b() -> None: ...\n_hidden = 2\n"
    )
    (package / "front.py").write_text('__all__ = ["c"]\nc, d = 1, 2\n')
    (package / "private.py").write_text("e = 3\n")
    inner = [("sample.inner", name) for name in ("a", "b", "os")]
    assert public_names(package) == [("sample", "a"), ("sample.front", "c"), *inner]


def test_large_modules_and_folders_of_many_modules_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "packages/one/src/one"
    folder.mkdir(parents=True)
    for name in ("__init__", *(f"m{k}" for k in range(MAX_MODULES))):
        (folder / f"{name}.py").write_text("x = 1\n" * MAX_LINES)
    assert large(tmp_path) == []
    (folder / "m0.py").write_text("x = 1\n" * (MAX_LINES + 1))
    (folder / "other.py").write_text("")
    assert large(tmp_path) == [
        "packages/one/src/one/m0.py: 501 lines, more than 500",
        "packages/one/src/one: 21 modules, more than 20",
    ]


def test_a_module_that_its_folder_names_is_public(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "inner/__init__.py": 'from sample.inner.made import a\n__all__ = ["a", "made"]\n',
        "inner/made.py": 'from math import pi\n__all__ = ["a", "b"]\na, b, c = 1, 2, 3\n',
        "inner/other.py": '__all__ = ["d"]\nd = 4\n',
    }
    for name, text in files.items():
        (tmp_path / "sample" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sample" / name).write_text(text)
    assert public_lines(tmp_path / "sample", Sources([tmp_path])) == [
        "sample.inner.a = sample.inner.made.a",
        "sample.inner.made.a = (1, 2, 3)",
        "sample.inner.made.b = (1, 2, 3)",
    ]


DEEP = """
from typing import Literal, overload
from dataclasses import dataclass
import os

Kind = Literal["near", "far"]

class _Base:
    x: int
    def __init__(self, x: int) -> None: ...

@dataclass(frozen=True)
class Point(_Base, metaclass=type):
    y: float = 1.5
    _cached = None
    @property
    def length(self) -> float: ...
    @classmethod
    def of(cls, *sizes: int, name: str = "p") -> "Point": ...
    def _hidden(self) -> None: ...

@overload
def scale(point: Point, /, by: int) -> Point: ...
@overload
def scale(point: Point, /, *, by: float = 2.0, **rest: object) -> Point: ...
def scale(point, /, by=2, **rest): ...
"""


def test_signatures_are_those_of_the_definitions(tmp_path: Path) -> None:
    files = {
        "sample/__init__.py": "from sample.inner import Point, scale\nfrom sibling.far import LIMITS\nimport json\n",
        "sample/inner/__init__.py": (
            "from sample.inner import deep\nfrom sample.inner.deep import Kind, Point, scale\n"
        ),
        "sample/inner/deep.py": DEEP,
        "sibling/far.py": "LIMITS: dict[str, int] = {'far': 3}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert public_lines(tmp_path / "sample", Sources([tmp_path])) == [
        "sample.LIMITS: dict[str, int]",
        "sample.Point = sample.inner.Point",
        "sample.inner.Kind = Literal['near', 'far']",
        "class sample.inner.Point(_Base, metaclass=type)",
        "    @dataclass(frozen=True)",
        "    x: int",
        "    __init__(self, x: int) -> None",
        "    y: float = 1.5",
        "    @property length(self) -> float",
        "    @classmethod of(cls, *sizes: int, name: str = 'p') -> 'Point'",
        "sample.inner.scale(point: Point, /, by: int) -> Point",
        "    @overload",
        "sample.inner.scale(point: Point, /, *, by: float = 2.0, **rest: object) -> Point",
        "    @overload",
        "sample.json = json",
        "sample.scale = sample.inner.scale",
    ]


def test_a_name_that_nothing_defines_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text("here = 1\n")
    with pytest.raises(LookupError, match="sample does not define there"):
        Sources([tmp_path]).definition("sample", "there")


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


PIP = r"""
:env:.find-links='/more /wheels'
global.extra-index-url='https://a.example/simple\nhttps://b.example/simple'
global.find-links='/wheels'
global.index-url='https://name:pass@c.example/simple?a=b'
global.no-color='true'
freeze.find-links='/of another command'
"""


def test_uv_is_told_the_settings_of_pip() -> None:
    assert variables_of(PIP) == {
        "UV_DEFAULT_INDEX": "https://name:pass@c.example/simple?a=b",
        "UV_FIND_LINKS": "/more,/wheels",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert variables_of("") == {}
