"""Sizes of graphs that are compiled outside of ``torch.compile``: symbols of the graph, or those of example inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from litz_ir.errors import ConfigError

DynamicShapes = Literal["from_graph", "from_tracing_context", "from_example_inputs"]
"""Sources of a graph's sizes: symbols of its own nodes, those of the compilation by ``torch.compile`` that is running,
or the sizes of the example inputs, as constants."""


def checked_source(source: str) -> DynamicShapes:
    """Return a source of sizes; raise :class:`ConfigError` for an unknown one."""
    for each in get_args(DynamicShapes):
        if source == each:
            found: DynamicShapes = each
            return found
    names = ", ".join(map(repr, get_args(DynamicShapes)))
    raise ConfigError(f"unknown dynamic_shapes {source!r}", hint=f"it is one of {names}")


def has_symbols(gm: GraphModule) -> bool:
    """Report whether an input of a graph has a size, or is a number, that is a symbol."""
    return any(_is_symbolic(value) for value in _values(gm))


@contextlib.contextmanager
def traced_sizes(
    gm: GraphModule, example_inputs: Sequence[Any], source: DynamicShapes
) -> Iterator[Sequence[Any]]:
    """Trace inside a ``with`` block with sizes from a source; the block gets the inputs to trace with.

    Raises :class:`ConfigError` where the source has no sizes.
    """
    inputs: Sequence[Any] = list(example_inputs)
    if source == "from_tracing_context":
        outer = TracingContext.try_get()
        if outer is None or outer.fake_mode is None:
            hint = "call it in a backend of torch.compile, or choose dynamic_shapes='from_graph'"
            raise ConfigError("no compilation by torch.compile is running", hint=hint)
        context = TracingContext(outer.fake_mode)
        context.tensor_to_context = outer.tensor_to_context
        context.guards_context = outer.guards_context
    elif source == "from_graph":
        modes = [each.fake_mode for each in _values(gm) if isinstance(each, FakeTensor)]
        context = TracingContext(modes[0] if modes else FakeTensorMode(shape_env=ShapeEnv()))
        inputs = _with_symbols(gm, inputs)
    else:
        context = TracingContext(FakeTensorMode(shape_env=ShapeEnv()))
        if any(map(_is_symbolic, inputs)):
            raise ConfigError(
                "example inputs have symbols as sizes",
                hint="dynamic_shapes='from_example_inputs' takes inputs of fixed sizes",
            )
    scope: AbstractContextManager[Any] = tracing(context)
    with scope:
        yield inputs


def _with_symbols(gm: GraphModule, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs, with the graph's own values in place of those that the graph has."""
    values = _values(gm)
    if len(values) != len(inputs):
        return inputs  # the graph flattens what it is given
    return [given if value is None else value for given, value in zip(inputs, values, strict=True)]


def _values(gm: GraphModule) -> list[Any]:
    """Return the values of a graph's inputs that its capture noted, or ``None`` for each without one."""
    nodes = (node for node in gm.graph.nodes if node.op == "placeholder")
    return [node.meta.get("example_value", node.meta.get("val")) for node in nodes]


def _is_symbolic(value: Any) -> bool:
    """Report whether a value is a symbol, or a tensor with symbols as sizes."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))
