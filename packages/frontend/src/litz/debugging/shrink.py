"""Reductions of a graph: fewer outputs, shorter, with inputs instead of operations, smaller and in plainer dtypes.

Nodes carry ``meta["val"]``. Each reduction takes a graph and a function that tries a candidate and returns it, cleaned,
where it fails as the graph does; it returns the smallest graph that was accepted.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from litz.debugging.replay import propagate

Try = Callable[[GraphModule], GraphModule | None]
"""Function that returns a candidate where it fails as the graph does, else ``None``."""

_NO_OPERATIONS = ("placeholder", "get_attr", "output")


def operations(gm: GraphModule) -> list[Node]:
    """Return the nodes that compute something."""
    return [node for node in gm.graph.nodes if node.op not in _NO_OPERATIONS]


def duplicate(gm: GraphModule) -> GraphModule:
    """Return a copy of a graph, with the same names of nodes and the same attributes."""
    return GraphModule(gm, copy.deepcopy(gm.graph))


def cleaned(gm: GraphModule) -> GraphModule:
    """Remove nodes and inputs that nothing uses, in place, and return the graph."""
    for node in reversed(gm.graph.nodes):
        removable = node.op in ("placeholder", "get_attr") or not node.is_impure()
        if node.op != "output" and not node.users and removable:
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    return gm


def fewer_outputs(gm: GraphModule, attempt: Try) -> GraphModule:
    """Keep one output, or half of the outputs as often as possible."""
    names = [each.name for each in _outputs(gm)]
    for name in names if len(names) > 1 else ():
        if found := attempt(_returning(gm, [name])):
            return found
    while len(names) > 2:
        half = len(names) // 2
        found = attempt(_returning(gm, names[:half])) or attempt(_returning(gm, names[half:]))
        if found is None:
            break
        gm, names = found, [each.name for each in _outputs(found)]
    return gm


def shorter(gm: GraphModule, attempt: Try) -> GraphModule:
    """Cut the graph after the first operations with which it fails, and return all values that are used later."""

    def prefix(count: int) -> GraphModule:
        order = {node: k for k, node in enumerate(gm.graph.nodes)}
        end = order[operations(gm)[count - 1]]
        live = [n.name for n in gm.graph.nodes if order[n] <= end and any(order[u] > end for u in n.users)]
        return _returning(gm, [name for name in live if _is_value(_named(gm, name))])

    found = _least(len(operations(gm)), lambda count: attempt(prefix(count)))
    return gm if found is None else found


def later_start(gm: GraphModule, attempt: Try) -> GraphModule:
    """Make inputs of the results of as many of the first operations as possible."""
    names = [node.name for node in operations(gm)]
    found = _least(len(names), lambda count: attempt(_as_inputs(gm, names[: len(names) - count])))
    return gm if found is None else found


def fewer_operations(gm: GraphModule, attempt: Try) -> GraphModule:
    """Make inputs of the results of operations: of half of them, then of ever smaller parts (delta debugging)."""
    size = max(len(operations(gm)) // 2, 1)
    while True:
        start = 0
        while start < len(names := [node.name for node in operations(gm)]):
            part = names[start : start + size]
            found = attempt(_as_inputs(gm, part)) or (attempt(_without(gm, part[0])) if size == 1 else None)
            if found is None:
                start += size
            else:
                gm = found
        if size == 1:
            return gm
        size = max(size // 2, 1)


def smaller_sizes(gm: GraphModule, attempt: Try) -> GraphModule:
    """Replace each size of the inputs, wherever it stands in the graph, by a smaller one."""
    if any(not isinstance(size, int) for size in _sizes(gm)):
        static = _with_inputs(gm, _static, {})
        found = None if static is None else attempt(static)
        if found is None:
            return gm
        gm = found
    for size in sorted({each for each in _sizes(gm) if each > 2}, reverse=True):
        for less in dict.fromkeys((2, 3, size // 4, size // 2)):
            candidate = _resized(gm, size, less) if 2 <= less < size else None
            if candidate is not None and (found := attempt(candidate)):
                gm = found
                break
    return gm


def plainer_dtypes(gm: GraphModule, attempt: Try) -> GraphModule:
    """Make ``float32`` of other floating dtypes, and inputs that require no gradients."""
    values = [node.meta["val"] for node in _inputs(gm)]
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    for dtype in {each.dtype for each in tensors if each.is_floating_point()} - {torch.float32}:
        changes = {dtype: torch.float32}
        candidate = _with_inputs(gm, lambda value, own=changes: _typed(value, own), changes)  # type: ignore[misc]
        found = None if candidate is None else attempt(candidate)
        gm = found or gm
    if any(each.requires_grad for each in tensors):
        candidate = _with_inputs(gm, _without_gradient, {})
        found = None if candidate is None else attempt(candidate)
        gm = found or gm
    return gm


REDUCTIONS: tuple[Callable[[GraphModule, Try], GraphModule], ...] = (
    shorter,
    fewer_outputs,
    later_start,
    fewer_operations,
    smaller_sizes,
    plainer_dtypes,
)
"""The reductions in the order in which they are tried, again and again until none helps."""


def _least(total: int, attempt: Callable[[int], GraphModule | None]) -> GraphModule | None:
    """Return the result of the smallest count below ``total`` that is accepted, if larger ones are too."""
    low, high, best = 0, total, None
    while high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return best


def _inputs(gm: GraphModule) -> list[Node]:
    """Return the placeholders."""
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _outputs(gm: GraphModule) -> list[Node]:
    """Return the nodes that a graph returns, each once."""
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    return list(dict.fromkeys(each for each in pytree.tree_leaves(output.args[0]) if isinstance(each, Node)))


def _named(gm: GraphModule, name: str) -> Node:
    """Return the node of a name."""
    nodes: Iterable[Node] = gm.graph.nodes
    return next(node for node in nodes if node.name == name)


def _is_value(node: Node) -> bool:
    """Report whether a node is one tensor or number, which an input can replace."""
    value = node.meta.get("val")
    return node.op not in ("get_attr", "output") and isinstance(value, torch.Tensor | torch.SymInt | int)


def _returning(gm: GraphModule, names: Sequence[str]) -> GraphModule:
    """Return the graph with other outputs."""
    made = duplicate(gm)
    output = next(node for node in reversed(made.graph.nodes) if node.op == "output")
    output.args = (tuple(_named(made, name) for name in names),)
    return made


def _as_inputs(gm: GraphModule, names: Sequence[str]) -> GraphModule:
    """Return the graph with inputs in place of the values of operations."""
    made = duplicate(gm)
    first = next(node for node in made.graph.nodes if node.op != "placeholder")
    for node in [node for node in made.graph.nodes if node.name in set(names)]:
        for each in _values(node):
            with made.graph.inserting_before(first):
                placeholder = made.graph.placeholder(each.name)
            placeholder.meta["val"] = _leaf(each.meta["val"])
            each.replace_all_uses_with(placeholder)
    return made


def _values(node: Node) -> Iterator[Node]:
    """Yield the node where it is one value, else the elements that are taken from it."""
    if _is_value(node):
        yield node
    elif all(user.target is operator.getitem for user in node.users):
        yield from (user for user in list(node.users) if _is_value(user))


def _leaf(value: Any) -> Any:
    """Return a value as an input has it: not the result of an operation."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _without(gm: GraphModule, name: str) -> GraphModule:
    """Return the graph with an operation replaced by an operand of the same type; with none, the graph itself."""
    made = duplicate(gm)
    node = _named(made, name)
    kind = _kind(node)
    same = (each for each in node.all_input_nodes if kind is not None and _kind(each) == kind)
    if (operand := next(same, None)) is not None:
        node.replace_all_uses_with(operand)
    return made


def _kind(node: Node) -> object:
    """Return dtype, shape and strides of a tensor, or ``None``."""
    value = node.meta.get("val")
    return (value.dtype, value.shape, value.stride()) if isinstance(value, torch.Tensor) else None


# --- sizes and dtypes ----------------------------------------------------------------------------------------------


def _sizes(gm: GraphModule) -> list[Any]:
    """Return all sizes of inputs, and inputs that are numbers."""
    found: list[Any] = []
    for value in (node.meta["val"] for node in _inputs(gm)):
        found += value.shape if isinstance(value, torch.Tensor) else [value]
    return found


def _with_inputs(
    gm: GraphModule, change: Callable[[Any], Any], constants: dict[Any, Any]
) -> GraphModule | None:
    """Return the graph with changed inputs and constants, with new metadata; ``None`` where operations refuse them."""
    made = duplicate(gm)
    try:
        inputs = [change(node.meta["val"]) for node in _inputs(made)]
        for node in operations(made) if constants else ():
            node.args, node.kwargs = pytree.tree_map(
                lambda each: _replaced(each, constants), (node.args, node.kwargs)
            )
        propagate(made, inputs)
    except Exception:
        return None
    return made


def _replaced(value: Any, constants: dict[Any, Any]) -> Any:
    """Return the replacement of a constant."""
    known = type(value) in (int, torch.dtype) and value in constants
    return constants[value] if known else value


def _resized(gm: GraphModule, size: int, less: int) -> GraphModule | None:
    """Return the graph with a size replaced by another one, in shapes and constants."""

    def change(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return less if value == size else value
        return _dense(value, [less if each == size else each for each in value.shape])

    return _with_inputs(gm, change, {size: less})


def _dense(value: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor like ``value`` of another shape, its axes in the same order in memory."""
    strides, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda k: (value.stride(k), -k)):
        if value.stride(axis):
            strides[axis] = step
            step *= max(shape[axis], 1)
    made = torch.empty_strided(tuple(shape), strides, dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


def _typed(value: Any, changes: dict[torch.dtype, torch.dtype]) -> Any:
    """Return a tensor like ``value`` of another dtype."""
    found = _static(value)
    if not isinstance(found, torch.Tensor) or found.dtype not in changes:
        return found
    return found.detach().to(changes[found.dtype]).requires_grad_(value.requires_grad)


def _static(value: Any) -> Any:
    """Return an input with the sizes of the traced call."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint)
    if not isinstance(value, torch.Tensor):
        return value
    sizes: Iterable[Any] = value.shape
    steps: Iterable[Any] = value.stride()
    shape, strides = ([_static(each) for each in own] for own in (sizes, steps))
    made = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


def _without_gradient(value: Any) -> Any:
    """Return an input that requires no gradient."""
    found = _static(value)
    return found.detach() if isinstance(found, torch.Tensor) else found
