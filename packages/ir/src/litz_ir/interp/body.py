"""Evaluation of loop bodies at every point of a grid at once.

An axis is an ``int64`` array that varies along its own dimension of the grid and has size 1 along the others. Values
that depend on few axes therefore stay small; results broadcast against the grid's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

import numpy as np

from litz_ir.errors import GraphError, LitzError, SymbolError
from litz_ir.faults import FAULTS, Fault, fault_error
from litz_ir.interp.encoding import Array, compute_type, decode, round_to
from litz_ir.interp.scalar import apply
from litz_ir.origin import Origin
from litz_ir.scalar.build import wrap_integer
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects,
)
from litz_ir.scalar.node import Expr
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.term import Size, Symbol, Term

Reader = Callable[[Load, tuple[Array, ...], "Array | None"], Array]
"""A function that returns the values of a load at given indices.

Where the mask is false, it reads no memory and may return any value.
"""


@contextmanager
def with_origin(node: str, origin: Origin) -> Iterator[None]:
    """Add ``node`` and ``origin`` to litz errors raised inside that name no operation."""
    try:
        yield
    except LitzError as error:
        if not error.origin:
            error.origin = origin
        error.node = error.node or node
        raise


@dataclass(frozen=True)
class PointGrid:
    """The points of a loop nest."""

    shape: tuple[int, ...]
    """Extents of the axes."""
    coordinates: Mapping[str, Array]
    """Values of each axis, as an array that broadcasts against ``shape``."""


def grid_of(axes: Sequence[tuple[str, int]]) -> PointGrid:
    """The grid of all points of ``axes``: (name, extent), the slowest first."""
    rank = len(axes)
    coordinates = {
        name: np.arange(size, dtype=np.int64).reshape([-1 if d == k else 1 for d in range(rank)])
        for k, (name, size) in enumerate(axes)
    }
    return PointGrid(tuple(size for _, size in axes), coordinates)


def gather(array: Array, load: Load, index: tuple[Array, ...], mask: Array | None) -> Array:
    """Load elements of ``array`` and decode them; raises :class:`IndexOutOfRange` for an unmasked index out
    of bounds.
    """
    safe = check_index(load.buffer, array.shape, index, mask)
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*(i.shape for i in index)), compute_type(load.dtype))
    return decode(np.asarray(array[safe]), load.dtype)


def check_index(
    buffer: str, shape: tuple[int, ...], index: tuple[Array, ...], mask: Array | None
) -> tuple[Array, ...]:
    """The index, with masked values clipped into ``shape``; raises for an unmasked index out of bounds."""
    if len(index) != len(shape):
        raise GraphError(
            f"{buffer} has {len(shape)} dimensions and is read with {len(index)} indices", node=buffer
        )
    for dimension, (position, size) in enumerate(zip(index, shape)):
        _check_range(position, np.asarray(size), mask, dimension, buffer, FAULTS["index"])
    if mask is None:
        return index
    return tuple(np.clip(position, 0, max(size - 1, 0)) for position, size in zip(index, shape))


def _check_range(
    position: Array, size: Array, mask: Array | None, dimension: int | None, reader: str, fault: Fault
) -> None:
    outside = (position < 0) | (position >= size)
    if mask is not None:
        outside = outside & mask
    if not outside.any():
        return
    first = np.broadcast_to(position, outside.shape)[outside][0]
    limit = np.broadcast_to(size, outside.shape)[outside][0]
    location = "a dimension" if dimension is None else f"dimension {dimension}"
    detail = f"index {first} is out of bounds for {location} with size {limit}, reading {reader}"
    raise fault_error(fault, detail=detail)


@dataclass
class _Scope:
    """Values computed under one mask, and the scopes of masks inside it."""

    mask: Array | None
    """Points at which memory may be read; ``None`` for all."""
    outer: _Scope | None = None
    """Scope of the enclosing mask."""
    values: dict[Expr, Array] = field(default_factory=dict)
    terms: dict[Term, Array] = field(default_factory=dict)
    inner: dict[Expr, _Scope] = field(default_factory=dict)

    def find(self, expr: Expr) -> Array | None:
        """The value of ``expr`` in this scope or an enclosing one, whose mask covers more points."""
        scope: _Scope | None = self
        while scope is not None:
            found = scope.values.get(expr)
            if found is not None:
                return found
            scope = scope.outer
        return None


class BodyEvaluator:
    """Evaluates expressions and index terms over one grid, each distinct node once.

    ``symbols`` has values of int, float and bool symbols, ``scalars`` the arrays of ``Scalar`` nodes by name,
    ``params`` the values of ``Param`` nodes.
    """

    def __init__(
        self,
        grid: PointGrid,
        reader: Reader,
        symbols: Mapping[str, int | float],
        *,
        scalars: Mapping[str, Array] | None = None,
        params: Sequence[Array] = (),
    ) -> None:
        self.grid = grid
        self._reader = reader
        self._symbols = symbols
        self._scalars = scalars or {}
        self._params = params
        self._root = _Scope(None)

    def value(self, expr: Expr) -> Array:
        """The value at every point, in the grid's full shape; read-only."""
        return np.broadcast_to(self._evaluate(expr, self._root), self.grid.shape)

    def broadcastable(self, expr: Expr) -> Array:
        """The value as an array that broadcasts against the grid."""
        return self._evaluate(expr, self._root)

    def index(self, size: Size) -> Array:
        """The ``int64`` value of an index term at every point, as an array that broadcasts against the grid."""
        return self._term(size, self._root)

    def _evaluate(self, root: Expr, scope: _Scope) -> Array:
        """Evaluate children first, without recursion, since inlined bodies may be thousands of nodes deep."""
        stack = [root]
        while stack:
            expr = stack[-1]
            if scope.find(expr) is not None:
                stack.pop()
                continue
            missing = [child for child in self._eager_children(expr) if scope.find(child) is None]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            scope.values[expr] = np.asarray(self._node_value(expr, scope))
        found = scope.find(root)
        assert found is not None
        return found

    @staticmethod
    def _eager_children(expr: Expr) -> Iterator[Expr]:
        if isinstance(expr, Masked):
            yield expr.cond
            yield expr.other
            return
        if isinstance(expr, NestedReduction):
            return
        yield from expr.children
        for atom in indirects(expr):
            yield atom.value

    def _node_value(self, expr: Expr, scope: _Scope) -> Array:
        match expr:
            case Const():
                return _literal(expr)
            case Index():
                return self._term(expr.term, scope)
            case Scalar():
                return self._scalar(expr)
            case Param():
                return self._params[expr.position]
            case Load() if 0 in self.grid.shape:
                # There is no point, so an index that is constant over the grid may be out of bounds.
                return np.zeros(self.grid.shape, compute_type(expr.dtype))
            case Load():
                return self._reader(expr, tuple(self._term(t, scope) for t in expr.index), scope.mask)
            case Op():
                args = [self._evaluate(arg, scope) for arg in expr.args]
                return apply(expr.name, args, expr.args[-1].dtype, expr.dtype)
            case Masked():
                return self._masked(expr, scope)
            case Checked():
                return self._checked(expr, scope)
            case NestedReduction():
                return self._nested_reduction(expr, scope)
        raise GraphError(f"a body has an unknown node {type(expr).__name__}")

    def _masked(self, expr: Masked, scope: _Scope) -> Array:
        cond = self._evaluate(expr.cond, scope)
        if cond.all():
            return self._evaluate(expr.body, scope)
        other = self._evaluate(expr.other, scope)
        if not cond.any():
            return other
        inner = scope.inner.get(expr.cond)
        if inner is None:
            mask = cond if scope.mask is None else cond & scope.mask
            inner = scope.inner[expr.cond] = _Scope(mask, scope)
        return np.where(cond, self._evaluate(expr.body, inner), other)

    def _checked(self, expr: Checked, scope: _Scope) -> Array:
        violated = ~self._evaluate(expr.cond, scope)
        if scope.mask is not None:
            violated = violated & scope.mask
        if violated.any() and 0 not in self.grid.shape:
            raise fault_error(FAULTS[expr.fault])
        return self._evaluate(expr.body, scope)

    def _nested_reduction(self, expr: NestedReduction, scope: _Scope) -> Array:
        """The sum in ``f64``, rounded once; computed point by point, since all points at once would multiply the
        grid's size.
        """
        sizes = [range(int(self._term(size, scope).max(initial=0))) for _, size in expr.axes]
        total = np.zeros((), np.float64)
        for point in product(*sizes):
            here = {name: np.asarray(at, np.int64) for (name, _), at in zip(expr.axes, point, strict=True)}
            grid = PointGrid(self.grid.shape, {**self.grid.coordinates, **here})
            body = BodyEvaluator(
                grid, self._reader, self._symbols, scalars=self._scalars, params=self._params
            )
            total = total + body._evaluate(expr.body, _Scope(scope.mask))
        return round_to(total, expr.dtype)

    def _scalar(self, expr: Scalar) -> Array:
        found = self._scalars.get(expr.name)
        if found is not None:
            return found
        if expr.name not in self._symbols:
            raise self._unbound(expr.name)
        value = np.asarray(self._symbols[expr.name])
        return round_to(value, expr.dtype) if expr.dtype.is_float else value.astype(compute_type(expr.dtype))

    def _unbound(self, name: str) -> SymbolError:
        known = ", ".join(sorted({*self.grid.coordinates, *self._symbols, *self._scalars})) or "none"
        return SymbolError(f"'{name}' has no value; known: {known}")

    def _term(self, size: Size, scope: _Scope) -> Array:
        if isinstance(size, int):
            return np.asarray(size, np.int64)
        found = scope.terms.get(size)
        if found is None:
            with np.errstate(all="ignore"):
                found = scope.terms[size] = np.asarray(self._term_value(size, scope))
        return found

    def _term_value(self, term: Term, scope: _Scope) -> Array:
        match term:
            case Symbol():
                return self._axis_or_symbol(term.name)
            case Sum():
                parts = [self._term(part, scope) * np.int64(factor) for part, factor in term.terms]
                return np.asarray(sum(parts[1:], parts[0]) + np.int64(term.constant))
            case Product():
                return reduce(np.multiply, [self._term(factor, scope) for factor in term.factors])
            case FloorDiv():
                return np.asarray(self._term(term.dividend, scope) // self._term(term.divisor, scope))
            case Mod():
                return np.asarray(self._term(term.dividend, scope) % self._term(term.divisor, scope))
            case Min():
                return reduce(np.minimum, [self._term(arg, scope) for arg in term.args])
            case Max():
                return reduce(np.maximum, [self._term(arg, scope) for arg in term.args])
            case Indirect():
                return self._indirect(term, scope)
        raise GraphError(f"an index term has an unknown node {type(term).__name__}")

    def _axis_or_symbol(self, name: str) -> Array:
        found = self.grid.coordinates.get(name)
        if found is not None:
            return found
        value = self._symbols.get(name)
        if value is None:
            raise self._unbound(name)
        if isinstance(value, float):
            raise SymbolError(f"'{name}' is a float and cannot be an index")
        return np.asarray(int(value), np.int64)

    def _indirect(self, atom: Indirect, scope: _Scope) -> Array:
        position = self._evaluate(atom.value, scope).astype(np.int64)
        size = self._term(atom.size, scope)
        if atom.wrap:
            position = np.where(position < 0, position + size, position)
        if atom.check == "raised":
            _check_range(position, size, scope.mask, None, "an indirect index", FAULTS[atom.fault])
        if atom.check == "clamped":
            position = np.clip(position, 0, np.maximum(size - 1, 0))
        return position


def _literal(expr: Const) -> Array:
    value = expr.value
    if expr.dtype.is_float:
        return round_to(np.asarray(float(value)), expr.dtype)
    if expr.dtype.is_bool:
        return np.asarray(bool(value))
    return np.asarray(wrap_integer(int(value), expr.dtype), compute_type(expr.dtype))
