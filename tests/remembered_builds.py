"""A memoised compiler: one build for each source, however many caches ask for it, since builds dominate these tests'
time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from litz_codegen_cpp.target import CpuTarget
from litz_ir.target import SourceUnit


@contextmanager
def remembered_builds(place: Path) -> Iterator[None]:
    """Keep in the folder ``place`` the builds of the block, and copy them from there when they are requested again."""
    memo: dict[tuple[str, tuple[str, ...]], Path] = {}
    build = CpuTarget.build

    def remembered(self: CpuTarget, unit: SourceUnit, folder: Path) -> Path:
        key = (unit.text, unit.flags)
        if key not in memo:
            memo[key] = Path(shutil.copy(build(self, unit, folder), place / str(len(memo))))
        return Path(shutil.copy(memo[key], folder / f"{unit.name}.so"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuTarget, "build", remembered)
        yield
