"""Random inputs of a loop graph, small and within the bounds of its symbols and indirect indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from litz_ir.interp.encoding import Array, encode
from litz_ir.loops.nodes import (
    Assert,
    Call,
    HostScalar,
    LoopGraph,
    ObjectInput,
    Operation,
    Pointwise,
    Reduction,
    ScalarInput,
    Scan,
    Scatter,
    Sort,
    TensorType,
    Value,
    View,
)
from litz_ir.scalar.expr import Indirect, indirects, loads
from litz_ir.scalar.node import Expr, walk
from litz_ir.symbols.ranges import Range
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, Term, evaluate, free_symbols

_SMALL = (2, 7)
"""Range from which unknown sizes are drawn, without its end."""


@dataclass(frozen=True)
class Sample:
    """Inputs and constants of a graph, and the symbols that they fit."""

    inputs: tuple[Any, ...]
    """One input for each input of the graph."""
    constants: Mapping[str, Array]
    """Constants by name."""
    symbols: Mapping[str, Any]
    """Values of the symbols."""

    def fresh(self) -> tuple[list[Any], dict[str, Array]]:
        """Copies, which a run may modify."""
        inputs = [value.copy() if isinstance(value, np.ndarray) else value for value in self.inputs]
        return inputs, {name: value.copy() for name, value in self.constants.items()}


def draw(graph: LoopGraph, rng: np.random.Generator, constants: Mapping[str, Array] | None = None) -> Sample:
    """Random inputs for one run of ``graph``, and random constants where ``constants`` has none."""
    symbols = _draw_symbols(graph.symbols, rng)
    limits = _index_limits(graph, symbols)
    inputs: list[Any] = []
    for each in graph.inputs:
        match each:
            case Value():
                inputs.append(draw_array(each.type, symbols, limits.get(each.name), rng))
            case ScalarInput():
                term: Size = each.term if each.term is not None else 0
                inputs.append(symbols.get(each.symbol or each.name, evaluate(term, symbols)))
            case ObjectInput():
                inputs.append(None)
    given = constants or {}
    sample_constants = {
        value.name: given[value.name]
        if value.name in given
        else draw_array(value.type, symbols, limits.get(value.name), rng)
        for value in graph.constants
    }
    return Sample(tuple(inputs), sample_constants, symbols)


def _draw_symbols(table: SymbolTable, rng: np.random.Generator) -> dict[str, Any]:
    """A value for each symbol that satisfies every fact of the table."""
    replaced, ranges = table.solved
    free: dict[str, Any] = {}
    for name, known in ranges.items():
        if name not in replaced:
            free[name] = _within(known, rng)
    values = dict(free)
    for info in table:
        if info.kind == "float":
            values[info.name] = float(np.round(rng.normal(), 3))
        elif info.name in replaced:
            values[info.name] = evaluate(replaced[info.name], free)
        if info.kind == "bool":
            values[info.name] = bool(values[info.name])
    return values


def _within(known: Range, rng: np.random.Generator) -> int:
    low = _SMALL[0] if known.low is None else max(known.low, min(_SMALL[0], known.high or _SMALL[0]))
    high = (
        low + _SMALL[1] - _SMALL[0]
        if known.high is None
        else min(known.high + 1, low + _SMALL[1] - _SMALL[0])
    )
    return int(rng.integers(low, max(high, low + 1)))


def draw_array(
    type_: TensorType, symbols: Mapping[str, int], limit: int | None, rng: np.random.Generator
) -> Array:
    """A random array in memory form, of integers in ``[0, limit)`` if a limit is given."""
    shape = tuple(evaluate(size, symbols) for size in type_.shape)
    if type_.dtype.is_float:
        values = rng.normal(size=shape) * 2
        return encode(np.where(rng.random(shape) < 0.05, 0.0, values).astype(np.float32), type_.dtype)
    if type_.dtype.is_bool:
        return np.asarray(rng.random(shape) < 0.5)
    low, high = (-3 if type_.dtype.is_signed else 0, 8) if limit is None else (0, max(limit, 1))
    return encode(np.asarray(rng.integers(low, min(high, 2**31), size=shape)), type_.dtype)


def _index_limits(graph: LoopGraph, symbols: Mapping[str, int]) -> dict[str, int]:
    """Exclusive upper bounds of integers in buffers that are used as indices.

    Bounds propagate from a reader to its operands, through views and integer operations. Integers passed to a call
    stay below 2, since the tensors that they index there are unknown.
    """
    limits: dict[str, int] = {}
    for operation in reversed(graph.operations):
        own = [limits[value.name] for value in operation.results if value.name in limits]
        for atom in _atoms(operation):
            if isinstance(atom.size, int) or free_symbols(atom.size) <= symbols.keys():
                _restrict(limits, atom.value, evaluate(atom.size, symbols))
        if own:
            for name in _sources(operation):
                limits[name] = min([*own, limits[name]] if name in limits else own)
            for body in _bodies_of(operation):
                _restrict(limits, body, min(own))
        if isinstance(operation, Call):
            limits.update((name, min(2, limits.get(name, 2))) for name in operation.reads)
    return limits


def _sources(operation: Operation) -> tuple[str, ...]:
    if isinstance(operation, (View, Scatter)):
        return (operation.base,)
    return (operation.source,) if isinstance(operation, Sort) else ()


def _restrict(limits: dict[str, int], value: Expr, limit: int) -> None:
    for load in loads(value):
        if load.dtype.is_integer:
            limits[load.buffer] = min(limit, limits.get(load.buffer, limit))


def _bodies_of(operation: Operation) -> tuple[Expr, ...]:
    """The bodies of an operation."""
    match operation:
        case Pointwise() | Reduction() | Scan():
            return operation.bodies
        case Scatter():
            return (operation.body,)
        case Assert():
            return (operation.condition,)
        case HostScalar():
            return (operation.body,)
    return ()


def _atoms(operation: Operation) -> Iterator[Indirect]:
    for node in walk(*_bodies_of(operation)):
        yield from indirects(node)
    if isinstance(operation, (View, Scatter)):
        for term in operation.index:
            if isinstance(term, Term):
                yield from (atom for atom in term.atoms() if isinstance(atom, Indirect))


def points(graph: LoopGraph, symbols: Mapping[str, int]) -> int:
    """An estimate of the work of a run: points of the largest loop, or elements of the largest value."""
    largest = 0
    for operation in graph.operations:
        axes = (
            *getattr(operation, "axes", ()),
            *getattr(operation, "reduce_axes", ()),
            *((operation.scan_axis,) if isinstance(operation, Scan) else ()),
        )
        largest = max(largest, prod(_estimate(axis.size, symbols) for axis in axes))
    for value in graph.values().values():
        largest = max(largest, prod(_estimate(size, symbols) for size in value.type.shape))
    return largest


def _estimate(size: Size, symbols: Mapping[str, int]) -> int:
    return evaluate(size, symbols) if free_symbols(size) <= symbols.keys() else _SMALL[1]
