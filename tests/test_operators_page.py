"""Tests that docs/operators.md agrees with the registry of lowering rules."""

from __future__ import annotations

from pathlib import Path

import operators
import pytest
import torch

from litz_lowering.contexts.registry import RuleEntry

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
VERSION = torch.__version__.partition("+")[0]


def test_the_page_agrees_with_the_registry(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(operators.page(), encoding="utf-8")
    shown = PAGE.read_text(encoding="utf-8")
    if f"torch {VERSION}." not in shown:
        pytest.skip(f"the page lists the operators of another torch than {VERSION}")
    assert operators.page() == shown, "pytest --update-golden tests/test_operators_page.py rewrites it"


def test_common_operators_are_generated() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    for name in (
        "add",
        "sum",
        "gather",
        "scatter_add",
        "cumsum",
        "index_put",
        "constant_pad_nd",
        "native_layer_norm",
    ):
        assert f"| `{name}` | generated |" in shown, name


def test_treatments() -> None:
    def nothing() -> None:
        return None

    assert operators.treatment("aten.sinc.default", None, True) == "decomposed"
    assert operators.treatment("aten.kthvalue.default", None, False) == "ATen"
    assert operators.treatment("aten.tanh.default", None, False) == "no rule"
    assert operators.treatment("aten.relu.default", RuleEntry(nothing), True) == "generated"
    assert (
        operators.treatment("aten.relu.default", RuleEntry(nothing, takes="floats"), False)
        == "generated, floats"
    )
    assert operators.treatment("aten.rand.default", RuleEntry(nothing, "stream"), False) == "random"
