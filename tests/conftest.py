"""Fixtures of the tests that cross packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.fx import GraphModule

import litz
import litz_lowering
from litz.targets import targets_for
from litz_ir.device import CPU
from litz_ir.target import Capabilities
from litz_lowering import LoweredGraph


def cpu() -> Capabilities:
    """The capabilities of the CPU that kernels are compiled for, which ``LITZ_ISA`` names."""
    return targets_for([CPU.kind], litz.config.current())[CPU].capabilities()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of what only CPUs with wide vectors do, where kernels are compiled for another."""
    marked = [item for item in items if item.get_closest_marker("wide_vectors")]
    if marked and (known := cpu()).model.vector_bytes < 32:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"kernels are compiled for {known.name}"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a module's program leaves kernels."""
    return tmp_path_factory.mktemp("sources")


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of graphs that are lowered from now on."""
    names: list[str] = []
    lower = litz_lowering.lower

    def counted(gm: GraphModule, **options: Any) -> LoweredGraph:
        names.append(options["name"])
        return lower(gm, **options)

    monkeypatch.setattr(litz_lowering, "lower", counted)
    return names
