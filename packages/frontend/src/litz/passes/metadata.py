"""Metadata of the nodes that a pass made or changed, by fake tensors, without guards."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings
from torch.fx.node import map_arg

Arguments = tuple[str, Any, Any, Any]
"""Content of a node: its kind, target, arguments and keyword arguments."""


def arguments_of(node: Node) -> Arguments:
    """Return the content of a node, which changes where a pass changes it."""
    return node.op, node.target, node.args, dict(node.kwargs)


def fake_mode_of(gm: GraphModule) -> FakeTensorMode | None:
    """Return the mode of the fake tensors of a graph; ``None`` where no node has one."""
    mode = detect_fake_mode([node.meta.get("val") for node in gm.graph.nodes])
    assert mode is None or isinstance(mode, FakeTensorMode)
    return mode


def complete_metadata(gm: GraphModule, before: Mapping[Node, Arguments]) -> None:
    """Set ``meta["val"]`` of nodes that lack it, that are other than ``before``, or whose inputs have other types now.

    Raises what an operator's meta kernel raises for wrong arguments, and :class:`ValueError` for a node whose results
    nothing describes.
    """
    mode = fake_mode_of(gm)
    stale: set[Node] = set()
    for node in gm.graph.nodes:
        known = "val" in node.meta
        same = before.get(node) == arguments_of(node) and stale.isdisjoint(node.all_input_nodes)
        if (known and same) or node.op not in ("call_function", "get_attr"):
            continue
        if known and not _may_rerun(node):
            continue
        value = result_of(gm, node, mode)
        if not known or not is_same_type(node.meta["val"], value, strides=True):
            stale.add(node)
            node.meta["val"] = value


def result_of(gm: GraphModule, node: Node, mode: FakeTensorMode | None) -> Any:
    """Return the result of a node, a tensor of the mode or a number, computed on the metadata of its arguments.

    Sets ``meta["unbacked_bindings"]`` where it defines sizes. Raises :class:`ValueError` for arguments without
    metadata, and what the operator raises for them.
    """
    if node.op == "get_attr":
        value = operator.attrgetter(str(node.target))(gm)
        if not isinstance(value, torch.Tensor) or mode is None:
            return value
        return mode.from_tensor(value)
    for each in node.all_input_nodes:
        if "val" not in each.meta:
            raise ValueError(f"{each.name} has no meta['val']")

    def value_of(each: Node) -> Any:
        return each.meta["val"]

    args, kwargs = map_arg((node.args, dict(node.kwargs)), value_of)
    with _without_guards(mode):
        value = node.target(*args, **kwargs)  # type: ignore[operator]  # a function, by the node's kind
    env = None if mode is None else mode.shape_env
    if env is not None and env.pending_fresh_unbacked_symbols:
        found = compute_unbacked_bindings(env, value)
        if found:
            node.meta["unbacked_bindings"] = found
    return value


def _may_rerun(node: Node) -> bool:
    """Report whether the metadata of a node can be computed again: operators that define no new symbols."""
    plain = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    return (plain or node.op == "get_attr") and "unbacked_bindings" not in node.meta


@contextlib.contextmanager
def _without_guards(mode: FakeTensorMode | None) -> Iterator[None]:
    """Run operators on fake tensors of a mode, without adding guards."""
    if mode is None:
        yield
        return
    guards = contextlib.nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards()
    with mode, guards, torch.no_grad():
        yield


def is_same_type(old: object, new: object, *, strides: bool = False) -> bool:
    """Report whether two values have the same dtype, device and shape, and the same ``strides`` where asked.

    Symbolic sizes are compared as expressions, which adds no guard.
    """
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        kinds = [(each.dtype, each.device, each.layout, _sizes(each.shape)) for each in (old, new)]
        if not strides or old.layout != torch.strided or kinds[0] != kinds[1]:
            return kinds[0] == kinds[1]
        return _sizes(old.stride()) == _sizes(new.stride())
    if isinstance(old, tuple | list) and isinstance(new, tuple | list):
        return len(old) == len(new) and all(is_same_type(a, b, strides=strides) for a, b in zip(old, new))
    if isinstance(old, int | torch.SymInt) and isinstance(new, int | torch.SymInt):
        return bool(size_of(old) == size_of(new))
    return type(old) is type(new)


def _sizes(sizes: Any) -> tuple[Any, ...]:
    return tuple(map(size_of, sizes))


def size_of(size: Any) -> Any:
    """Return a size as a number or an expression, which compare without guards."""
    node = getattr(size, "node", None)
    return size if node is None else node.expr
