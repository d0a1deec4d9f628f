"""Reasons for decisions: one table a package, whose rows are all used, and sentences that reports need no table for."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import litz
import litz_lowering.reasons
import litz_scheduler.reasons
from litz_ir.fused import Decision, Reason

TABLES = {module.__name__: module for module in (litz_lowering.reasons, litz_scheduler.reasons)}


def rows(module: ModuleType) -> dict[str, Reason]:
    return {name: each for name, each in vars(module).items() if isinstance(each, Reason)}


def sources(module: ModuleType) -> list[Path]:
    """The modules of a table's package, without the table."""
    assert module.__file__ is not None
    table = Path(module.__file__)
    return [path for path in table.parent.rglob("*.py") if path != table]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_used_and_every_reason_is_a_row(name: str) -> None:
    used: set[str] = set()
    for path in sources(TABLES[name]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used |= {node.attr} if node.value.id == "reasons" else set()
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason"
            assert not made, f"{path}: a reason outside the table"
    assert used == set(rows(TABLES[name]))


def test_a_key_belongs_to_one_row_and_names_it() -> None:
    found = [(name, each) for module in TABLES.values() for name, each in rows(module).items()]
    assert len({each.key for _, each in found}) == len(found)
    assert [name for name, _ in found] == [each.key.upper().replace(".", "_") for _, each in found]


def test_a_reason_of_another_package_is_explained() -> None:
    report = litz.explain(lambda x: x + 1, torch.ones(4))
    (graph,) = report.graphs
    cold = Decision("rewrite", "add", "leave", Reason("acme.cold", "its operand is cold"), note="model.py:3")
    text = str(replace(report, graphs=(replace(graph, decisions=(cold,)),)))
    assert "left as written: add: its operand is cold (model.py:3)" in text
