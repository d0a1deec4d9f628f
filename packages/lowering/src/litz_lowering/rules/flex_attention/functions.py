"""Composition of scalar functions that operators are given into loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import i32, i64
from litz_ir.loops import Axis, LoopGraph, Operation, Pointwise, Ref, ScalarInput, Value, View
from litz_ir.scalar import (
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Op,
    Scalar,
    build,
    map_indirects,
    substitute_expr,
    transform,
)
from litz_ir.symbols import Range, Simplifier, Size, add, floordiv, maximum, minimum, mod, mul
from litz_lowering.contexts.values import Lowered, Tensor

CAPTURED_READS = "litz.captured_reads"
"""Key in ``meta`` of an attention's gradient for the :class:`CapturedRead` records of its joint graph."""


@dataclass(frozen=True, slots=True)
class CapturedRead:
    """A read of a captured tensor by a score function.

    The joint graph returns the summand of the element's gradient, then the element's indices.
    """

    captured: int
    """Position of the tensor among the captured ones."""
    indices: int
    """Number of indices, one per dimension."""


def composition_obstacle(graph: LoopGraph) -> str:
    """Reason why a lowered function is no expression of its arguments; empty where it is one."""
    for operation in graph.operations:
        if not isinstance(operation, Pointwise | View):
            return f"the function runs {operation.origin.operation or type(operation).__name__}"
    if graph.constants:
        return "the function has a constant tensor"
    if not all(isinstance(each, Value | ScalarInput) for each in graph.inputs):
        return "an argument of the function is neither a tensor nor a number"
    if not graph.outputs or not all(isinstance(each, Ref) for each in graph.outputs):
        return "the function does not return tensors"
    return ""


def compose_function(
    graph: LoopGraph, arguments: Sequence[Lowered], ranges: Mapping[str, Range]
) -> tuple[Expr, ...]:
    """Results of a function as expressions; :func:`composition_obstacle` must be empty for it.

    ``arguments`` are the graph's inputs: an expression for a 0-d tensor of the loop, a tensor for a captured one,
    a number for a number. ``ranges`` are those of the loop's axes and symbols. An index that is an index term and
    provably in range is used directly.
    """
    return _Composition(graph, arguments, ranges).results()


class _Composition:
    """Values of a function as bodies over axes of their own, in the order of its operations."""

    def __init__(self, graph: LoopGraph, arguments: Sequence[Lowered], ranges: Mapping[str, Range]) -> None:
        self._graph = graph
        self._dtypes = {name: value.type.dtype for name, value in graph.values().items()}
        self._simplifier = Simplifier(ranges)
        self._definitions: dict[str, tuple[tuple[Axis, ...], Expr]] = {}
        self._tensors: dict[str, Tensor] = {}
        self._numbers: dict[str, Expr] = {}
        for given, argument in zip(graph.inputs, arguments, strict=True):
            if isinstance(argument, Tensor):
                self._tensors[given.name] = argument
            elif isinstance(given, Value):
                assert isinstance(argument, Expr), "a value of the loop is an expression"
                self._definitions[given.name] = ((), argument)
            elif isinstance(given, ScalarInput) and isinstance(argument, Expr):
                self._numbers[given.symbol or given.name] = argument
        for operation in graph.operations:
            self._define(operation)

    def results(self) -> tuple[Expr, ...]:
        """Values that the function returns."""
        names = [output.name for output in self._graph.outputs if isinstance(output, Ref)]
        assert len(names) == len(self._graph.outputs), "a function of one point returns tensors"
        return tuple(self._definitions[name][1] for name in names)

    def _define(self, operation: Operation) -> None:
        assert isinstance(operation, Pointwise | View), "composition_obstacle refuses other operations"
        bodies = operation.bodies if isinstance(operation, Pointwise) else (self._view_body(operation),)
        for value, body in zip(operation.results, bodies, strict=True):
            self._definitions[value.name] = (operation.axes, transform(body, self._visit, self._term))

    def _view_body(self, view: View) -> Expr:
        """Body of a view."""
        load, wanted = build.load(view.base, view.index, self._dtypes[view.base]), view.results[0].type.dtype
        return load if load.dtype == wanted else build.op("bitcast", load, dtype=wanted)

    def _visit(self, node: Expr) -> Expr:
        if isinstance(node, Scalar):
            number = self._numbers.get(node.name)
            return node if number is None else build.cast(number, node.dtype)
        if not isinstance(node, Load):
            return node
        if node.buffer in self._tensors:
            return self._tensors[node.buffer].load(node.index)
        axes, body = self._definitions[node.buffer]
        moved = substitute_expr(body, {axis.name: at for axis, at in zip(axes, node.index, strict=True)})
        return transform(moved, lambda each: each, self._term)

    def _term(self, term: Size) -> Size:
        return self._simplifier.simplify(map_indirects(term, lambda atom: _direct(atom, self._simplifier)))


def element_of(index: Expr, size: Size, simplifier: Simplifier) -> Size:
    """Position in a dimension of an index; negative ones count from the end."""
    return _direct(Indirect(index, size, True), simplifier)


def _direct(atom: Indirect, simplifier: Simplifier) -> Size:
    """Index term of an indirect index that is provably in range; otherwise the indirect index."""
    term = _index_term(atom.value)
    if term is None:
        return atom
    term = simplifier.simplify(term)
    inside = simplifier.facts.nonnegative
    if inside(term) and inside(add(add(atom.size, mul(term, -1)), -1)):
        return term
    return atom.of(build.index(term))


def _divided(divide: Callable[[Size, Size], Size]) -> Callable[[Size, Size], Size | None]:
    """Division for positive divisors only."""
    return lambda a, b: divide(a, b) if isinstance(b, int) and b > 0 else None


_TERMS: Mapping[str, Callable[[Size, Size], Size | None]] = MappingProxyType(
    {
        "add": add,
        "sub": lambda a, b: add(a, mul(b, -1)),
        "mul": mul,
        "floor_div": _divided(floordiv),
        "remainder": _divided(mod),
        "minimum": minimum,
        "maximum": maximum,
    }
)
"""Integer operations as operations on index terms; None where they differ."""


_CLAMPS: Mapping[str, Callable[[Size, Size], Size]] = MappingProxyType({"lt": maximum, "gt": minimum})
"""Operation on index terms of a selection that clamps a value to a limit."""


def _index_term(value: Expr) -> Size | None:
    """Index term of an integer expression; None where there is none. Positions fit into 32 bits."""
    match value:
        case Index():
            return value.term
        case Const() if value.dtype.is_integer:
            return int(value.value)
        case Op(name="cast", args=(inner,)) if inner.dtype.is_integer and value.dtype in (i32, i64):
            return _index_term(inner)
        case Op(name="neg", args=(inner,)):
            term = _index_term(inner)
            return None if term is None else mul(term, -1)
        case Op(name="where", args=(Op(name=name, args=(x, limit)), chosen, other)) if name in _CLAMPS:
            a, b = _index_term(x), _index_term(limit)
            return (
                _CLAMPS[name](a, b)
                if a is not None and b is not None and (limit, x) == (chosen, other)
                else None
            )
        case Op(args=(left, right)) if value.name in _TERMS and value.dtype in (i32, i64):
            a, b = _index_term(left), _index_term(right)
            return None if a is None or b is None else _TERMS[value.name](a, b)
    return None
