"""A compiler that is run once for a source, however many caches ask for it: most of a test's time would be its."""

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
    """Keep in the folder ``place`` what is compiled in the block, and copy it from there the next time."""
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
