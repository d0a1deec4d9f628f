"""Fixtures of the tests that cross packages."""

from __future__ import annotations

from typing import Any

import pytest
from torch.fx import GraphModule

import litz_lowering
from litz_lowering import LoweredGraph


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
