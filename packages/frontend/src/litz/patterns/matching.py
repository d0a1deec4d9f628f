"""Search for a traced function in an FX graph: calls, sizes and numbers agree, and nothing else needs its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from litz.passes import reasons
from litz.passes.metadata import size_of
from litz.patterns.traced import (
    Call,
    GivenDevice,
    NumberInput,
    Operand,
    TensorInput,
    TracedFunction,
    arguments_by_name,
)
from litz_ir.fused import Reason

_COMMUTATIVE = frozenset(
    "aten.add.Tensor aten.mul.Tensor aten.maximum.default aten.minimum.default aten.eq.Tensor aten.ne.Tensor "
    "aten.bitwise_and.Tensor aten.bitwise_or.Tensor aten.bitwise_xor.Tensor aten.logical_and.default "
    "aten.logical_or.default".split()
)
"""Operators whose first two tensors may be swapped, ``add`` only where ``alpha`` is 1."""


@dataclass(frozen=True, slots=True)
class Match:
    """A place of a graph where a pattern matches. Nodes carry ``meta["val"]``, a fake tensor, or a number."""

    inputs: Mapping[str, Any]
    """The node or number of each parameter, by name."""

    nodes: tuple[Node, ...]
    """Nodes that the pattern covers, in program order."""

    results: tuple[Node, ...]
    """Nodes of the results, in the order in which the pattern returns them."""

    sizes: Mapping[sympy.Symbol, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Size of each symbol of the pattern."""

    def value(self, name: str) -> Any:
        """Return the fake tensor of a parameter, or its number."""
        found = self.inputs[name]
        return found.meta["val"] if isinstance(found, Node) else found


@dataclass(frozen=True, slots=True)
class _State:
    """Nodes found so far for calls and inputs, numbers by name, and sizes that have to agree."""

    nodes: Mapping[Operand, Node] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[tuple[Any, Any], ...] = ()
    devices: tuple[torch.device, ...] = ()

    def of(self, operand: Operand, node: Node) -> _State:
        return replace(self, nodes={**self.nodes, operand: node})


def find_matches(pattern: TracedFunction, graph: Graph, erased: set[Node]) -> Iterator[Match]:
    """Yield the matches of a pattern in program order, none of which contains a node of ``erased``.

    The caller may change the graph between matches; nodes that it removes it adds to ``erased``.
    """
    results = [each for each in pattern.results if isinstance(each, Call)]
    anchor = max(results, key=pattern.calls.index)
    for node in list(graph.find_nodes(op="call_function", target=anchor.target)):
        if node in erased:
            continue
        found = next(_whole(pattern, graph, anchor, node), None)
        if found is not None:
            yield found


def _whole(pattern: TracedFunction, graph: Graph, anchor: Call, node: Node) -> Iterator[Match]:
    """Yield the matches whose last result is ``node``."""
    for state in _of_results(pattern.results, graph, _call(anchor, node, _State())):
        symbols = _agreeing_sizes(pattern, state)
        if symbols is None or not _agree_on_device(pattern, state):
            continue
        covered = {found for call, found in state.nodes.items() if isinstance(call, Call)}
        inputs = {
            each.name: state.numbers.get(each.name)
            if isinstance(each, NumberInput)
            else state.nodes.get(each)
            for each in pattern.inputs
        }
        if not covered.isdisjoint(each for each in inputs.values() if isinstance(each, Node)):
            continue  # what goes in must not be replaced
        found_results = tuple(state.nodes[each] for each in pattern.results)
        yield Match(inputs, tuple(sorted(covered)), found_results, symbols)


def _of_results(results: Sequence[Operand], graph: Graph, states: Iterator[_State]) -> Iterator[_State]:
    """Extend states by the results that the last one does not lead to."""
    if not results:
        yield from states
        return
    first, rest = results[0], results[1:]

    def extended() -> Iterator[_State]:
        for state in states:
            if first in state.nodes:
                yield state
                continue
            assert isinstance(first, Call), "a pattern returns results of calls"
            for node in graph.find_nodes(op="call_function", target=first.target):
                yield from _call(first, node, state)

    yield from _of_results(rest, graph, extended())


# --- calls and their arguments ------------------------------------------------------------------------------


def _call(call: Call, value: Any, state: _State) -> Iterator[_State]:
    """Yield ``state`` extended by each way in which a node is a call."""
    if call in state.nodes:
        if state.nodes[call] is value:
            yield state
        return
    if not isinstance(value, Node) or value.op != "call_function" or value.target != call.target:
        return
    if value in state.nodes.values() and any(
        n is value and isinstance(o, Call) for o, n in state.nodes.items()
    ):
        return  # two calls of the pattern are two of the graph
    wanted = arguments_by_name(call.target, call.args, call.kwargs)
    found = arguments_by_name(value.target, value.args, value.kwargs)
    if wanted.keys() != found.keys():
        return
    own = state.of(call, value)
    yield from _all(list(wanted.values()), [found[name] for name in wanted], own)
    if str(call.target) in _COMMUTATIVE and wanted.get("alpha", 1) == 1:
        one, other, *more = wanted.values()
        if isinstance(one, Call | TensorInput) and isinstance(other, Call | TensorInput):
            yield from _all([other, one, *more], [found[name] for name in wanted], own)


def _all(wanted: Sequence[Any], found: Sequence[Any], state: _State) -> Iterator[_State]:
    """Yield ``state`` extended by each way in which all values agree."""
    if not wanted:
        yield state
        return
    for first in _value(wanted[0], found[0], state):
        yield from _all(wanted[1:], found[1:], first)


def _value(wanted: Any, found: Any, state: _State) -> Iterator[_State]:
    """Yield ``state`` extended by each way in which a value of the graph is that of the pattern."""
    match wanted:
        case Call(size=None):
            yield from _call(wanted, found, state)
        case Call():
            yield replace(state, sizes=(*state.sizes, (wanted.size, found)))
        case TensorInput():
            yield from _tensor(wanted, found, state)
        case NumberInput(name, kind):
            if _stands_for(kind, found) and (name not in state.numbers or _same(state.numbers[name], found)):
                yield replace(state, numbers={**state.numbers, name: found})
        case GivenDevice():
            if isinstance(found, torch.device):
                yield replace(state, devices=(*state.devices, found))
        case tuple() | list():
            if isinstance(found, tuple | list) and len(found) == len(wanted):
                yield from _all(wanted, found, state)
        case dict():
            if isinstance(found, Mapping) and found.keys() == wanted.keys():
                yield from _all(list(wanted.values()), [found[key] for key in wanted], state)
        case _:
            if _same(wanted, found):
                yield state


def _tensor(wanted: TensorInput, found: Any, state: _State) -> Iterator[_State]:
    """Yield ``state`` with a node for a tensor input, where dtype and number of dimensions agree."""
    if wanted in state.nodes:
        if state.nodes[wanted] is found:
            yield state
        return
    value = found.meta.get("val") if isinstance(found, Node) else None
    if isinstance(value, torch.Tensor) and (value.dtype, value.dim()) == (wanted.dtype, len(wanted.sizes)):
        sizes = tuple(zip(wanted.sizes, value.shape, strict=True))
        yield replace(state.of(wanted, found), sizes=(*state.sizes, *sizes))


def _stands_for(kind: type, found: Any) -> bool:
    """Report whether a number input stands for a value: a number of the program, or a symbolic one."""
    if isinstance(found, Node):
        return isinstance(
            found.meta.get("val"), torch.SymInt | (torch.SymFloat if kind is float else torch.SymInt)
        )
    return isinstance(found, int | float if kind is float else int) and not isinstance(found, bool)


def _same(one: Any, other: Any) -> bool:
    """Report whether two constants are equal, types included."""
    return one is other or (type(one) is type(other) and not isinstance(one, Node) and bool(one == other))


# --- sizes and devices --------------------------------------------------------------------------------------


def _agreeing_sizes(pattern: TracedFunction, state: _State) -> Mapping[sympy.Symbol, Any] | None:
    """Return the size of each of the pattern's symbols; ``None`` where sizes disagree."""
    symbols: dict[sympy.Symbol, Any] = {}
    for wanted, found in state.sizes:
        if isinstance(wanted, sympy.Symbol):
            symbols.setdefault(wanted, _expression(found))
    for wanted, found in state.sizes:
        expected = wanted.xreplace(symbols) if isinstance(wanted, sympy.Basic) else sympy.sympify(wanted)
        if not _equal(expected, _expression(found)):
            return None
    return symbols


def _expression(size: Any) -> Any:
    """Return a size, or the size that a node computes, as an expression."""
    value = size.meta.get("val") if isinstance(size, Node) else size
    if isinstance(value, torch.SymInt | torch.SymFloat | int | float) and not isinstance(value, bool):
        return sympy.sympify(size_of(value))
    return None


def _equal(one: Any, other: Any) -> bool:
    """Report whether two expressions are equal for all sizes."""
    return other is not None and (one == other or sympy.expand(one - other) == 0)


def _agree_on_device(pattern: TracedFunction, state: _State) -> bool:
    """Report whether devices that the pattern names are those of its tensors."""
    tensors = (state.nodes[each] for each in pattern.inputs if each in state.nodes)
    devices = {node.meta["val"].device for node in tensors}
    return devices.issuperset(state.devices)


# --- surroundings -------------------------------------------------------------------------------------------


def obstacle(match: Match) -> Reason | None:
    """Return the reason that a match cannot be replaced; ``None`` where it can."""
    covered, results = set(match.nodes), set(match.results)
    if any(user not in covered for node in match.nodes if node not in results for user in node.users):
        return reasons.ESCAPES
    last = match.nodes[-1]
    node = match.nodes[0]
    while node is not last:
        node = node.next
        if node not in covered and _writes(node):
            return reasons.WRITTEN
    first_user = min((u for node in results for u in node.users if u not in covered), default=None)
    given = [each for each in match.inputs.values() if isinstance(each, Node)]
    if first_user is not None and any(not each < first_user for each in given):
        return reasons.ORDER
    return None


def insertion_point(match: Match) -> Node:
    """Return the node before which the replacement of a match belongs."""
    covered = set(match.nodes)
    after = match.nodes[-1].next
    users = (user for node in match.results for user in node.users if user not in covered)
    return min((*users, after))


def _writes(node: Node) -> bool:
    """Report whether a node may write to memory that others read."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable) or "wrapper_mutation" in str(node.target)
