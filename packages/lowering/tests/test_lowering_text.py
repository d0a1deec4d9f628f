"""The loop graph that each rule makes, in text.

The cases are in `text/`. The input of the command `lower` is a call of an operator, in which `f32[4, 8]` is an argument
of that type: contiguous, or with the strides in `f32[4, 8](1, 4)`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from text_tests import Case, Command, cases, titles
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

from litz_ir.dtypes import ALL
from litz_ir.text import to_text
from litz_lowering import lower, torch_dtype
from litz_lowering.rules import RULES

CASES = cases(Path(__file__).parent / "text")
DTYPES = {dtype.name: torch_dtype(dtype) for dtype in ALL} | {
    "c64": torch.complex64,
    "c128": torch.complex128,
}
ORIGIN = re.compile(r" +@ y \(.*\)$", re.MULTILINE)
WITHOUT_A_CASE = ("operator.", "math.", "builtins.", "torch.", "higher_order.")
"""Names of operators that no call of an overload makes: those of Python on symbolic numbers, the state of torch's
generator, and higher-order operators, whose arguments are graphs (`golden/flex_attention_cases.txt`)."""


class Reader:
    """Builds the FX graph of a call as it is written."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.graph = Graph()

    def call(self, text: str) -> GraphModule:
        """The graph that returns what the call does; raises `ValueError` for anything but a call."""
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            raise ValueError(f"no call: {text}")
        target = self._value(tree.func)
        args = [self._value(each) for each in tree.args]
        kwargs = {each.arg: self._value(each.value) for each in tree.keywords if each.arg}
        node = self.graph.create_node("call_function", target, tuple(args), kwargs, name="y")
        given = tree_map_only(Node, lambda each: each.meta["val"], (args, kwargs))
        with self.mode:
            node.meta["val"] = target(*given[0], **given[1])
        results = node.meta["val"]
        if not isinstance(results, tuple | list):
            self.graph.output(node)
        else:
            self.graph.output(tuple(self._item(node, k, each) for k, each in enumerate(results)))
        return GraphModule(torch.nn.Module(), self.graph)

    def _item(self, node: Node, position: int, value: Any) -> Node:
        item = self.graph.call_function(operator.getitem, (node, position))
        item.meta["val"] = value
        return item

    def _value(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Subscript(value=ast.Name(id=name)):
                return self._input(name, ast.literal_eval(tree.slice), None)
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name), slice=shape), args=strides):
                return self._input(
                    name, ast.literal_eval(shape), [ast.literal_eval(each) for each in strides]
                )
            case ast.Attribute(value=value, attr=attr):
                return getattr(self._value(value), attr)
            case ast.Name(id="torch"):
                return torch
            case ast.Name(id="device"):
                return torch.device("cpu")
            case ast.Name(id=name):
                return getattr(torch.ops, name)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(each) for each in items]
        return ast.literal_eval(tree)

    def _input(self, name: str, shape: int | tuple[int, ...], strides: Sequence[int] | None) -> Node:
        sizes = (shape,) if isinstance(shape, int) else shape
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        with self.mode:
            node.meta["val"] = (
                torch.empty(sizes, dtype=DTYPES[name])
                if strides is None
                else torch.empty_strided(sizes, strides, dtype=DTYPES[name])
            )
        return node


def reader() -> Reader:
    """Return a reader of one call, whose results may have sizes that depend on data."""
    return Reader(FakeTensorMode(shape_env=ShapeEnv()))


def lowered(source: str, arguments: Sequence[str]) -> str:
    """The loop graph of a call, and what of it is left to ATen."""
    assert not arguments
    found = lower(reader().call(source))
    left = "".join(f"# {each.target} is ATen's: {each.reason}\n" for each in found.fallbacks)
    return ORIGIN.sub("", to_text(found.graph)) + "\n" + left


COMMANDS: Mapping[str, Command] = {"lower": lowered}


def called(name: str) -> Any | None:
    """Return the operator of a name such as ``aten.add.Tensor``; None if this torch has no such operator."""
    found: Any = torch.ops
    for each in name.split("."):
        found = getattr(found, each, None)
    return found


def operator_name(case: Case) -> str:
    """Return the name of the operator that a case calls."""
    return case.source.strip().partition("(")[0]


@pytest.mark.parametrize("case", CASES, ids=titles(CASES))
def test_a_case(case: Case, check_case: Callable[[Case, Mapping[str, Command]], None]) -> None:
    if called(operator_name(case)) is None:
        pytest.skip(f"torch {torch.__version__} has no {operator_name(case)}")
    check_case(case, COMMANDS)


def test_every_rule_has_a_case() -> None:
    # Before cases are read, which may register more: torch registers some operators of `prims` late.
    names = [
        name for name in RULES.served if not name.startswith(WITHOUT_A_CASE) and called(name) is not None
    ]
    covered = set[int]()
    for case in CASES:
        if called(operator_name(case)) is None:
            continue
        graph = reader().call(case.source).graph
        node = next(node for node in graph.nodes if node.op == "call_function")
        values = tree_leaves((node.meta["val"], [each.meta["val"] for each in node.all_input_nodes]))
        is_complex = any(isinstance(each, torch.Tensor) and each.is_complex() for each in values)
        entry = RULES.find(operator_name(case), is_complex=is_complex)
        assert entry is not None, f"{case.title}: no rule"
        covered.add(id(entry.rule))
    missing = {
        f"{name}{' of complex tensors' if is_complex else ''}"
        for name in names
        for is_complex in (False, True)
        if (entry := RULES.find(name, is_complex=is_complex)) is not None and id(entry.rule) not in covered
    }
    assert not missing
