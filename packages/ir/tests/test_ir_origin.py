"""Origins as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_ir.origin import UNKNOWN, Origin, abbreviated_list, describe_locations

ADD = Origin("add", "aten.add.Tensor", "model.block", "model.py", 12, "x = x + y\n")


@pytest.mark.parametrize(
    ("names", "text"),
    [("", ""), ("a", "a"), ("aba", "a, b"), ("abcd", "a, b, c, d"), ("abcde", "a, b, c and 2 more")],
)
def test_the_first_of_many_names_are_listed(names: str, text: str) -> None:
    assert abbreviated_list(names) == text


def test_nodes_of_one_line_are_described_together() -> None:
    others = [replace(ADD, node=f"add_{k}", module=f"model.block.{k}") for k in range(5)]
    elsewhere = replace(ADD, node="add_9", line=13)
    assert describe_locations([ADD, UNKNOWN, elsewhere, *others]) == (
        "add, add_0, add_1 and 3 more (aten.add.Tensor) at model.py:12: x = x + y",
        "add_9 (aten.add.Tensor) at model.py:13: x = x + y",
    )
