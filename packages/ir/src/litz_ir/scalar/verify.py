"""The invariants of a loop body in its scope, which the verifiers of all levels check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from litz_ir.dtypes import DType
from litz_ir.errors import DTypeError, VerifyError
from litz_ir.faults import FAULTS
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.scalar.build import result_dtype, wrap_integer
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Load,
    Masked,
    Op,
    Param,
    Scalar,
    indirects,
    indirects_in,
    nested_reductions,
)
from litz_ir.scalar.node import Expr, walk
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.nodes import Sum
from litz_ir.symbols.ranges import Range, bounds
from litz_ir.symbols.term import Size, Symbol, free_symbols


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """Stage, node and origin that a verifier's error names."""

    stage: str
    """Level of the program, such as ``loop graph``."""
    node: str = ""
    """Operation, kernel or buffer."""
    origin: Origin = UNKNOWN
    """Source of the node in the user's program."""

    def fail(self, check: str, message: str, hint: str = "") -> NoReturn:
        """Raise :class:`VerifyError` for the check called ``check``."""
        raise VerifyError(
            message, check=check, stage=self.stage, node=self.node, origin=self.origin, hint=hint
        )


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """Dtype and shape of a buffer that a body may load from."""

    dtype: DType
    """Dtype of the elements."""
    shape: tuple[Size | None, ...]
    """Extent of each index; ``None`` if unknown."""


@dataclass(frozen=True, slots=True)
class BodyScope:
    """Buffers, symbols and scalars that a body may refer to."""

    buffers: Mapping[str, BufferInfo] = field(default_factory=dict)
    """Buffers by name."""
    names: frozenset[str] = frozenset()
    """Axes and symbols that index terms may use."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Known ranges of axes and symbols."""
    exact: frozenset[str] = frozenset()
    """Axes that take every value of their range, independently of the others."""
    scalars: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)
    """Dtypes in which each scalar may be read."""
    parameters: tuple[DType, ...] = ()
    """Dtypes of the arguments of a user-given combiner."""


def verify_bodies(
    bodies: Iterable[Expr], scope: BodyScope, location: ErrorLocation, indices: Iterable[Size] = ()
) -> None:
    """Check every invariant of bodies and of ``indices``, the index terms used with them; raises
    :class:`VerifyError`.
    """
    terms = tuple(indices)
    roots = (*bodies, *(atom.value for term in terms for atom in indirects_in(term)))
    for term in terms:
        _check_term_names(term, scope, location)
    for root in roots:
        _check_names("the body", root.free_symbols, scope, location)
    scope = _nested_scope(roots, scope, location)
    for node in walk(*roots):
        match node:
            case Op():
                _check_operation(node, location)
            case Const():
                _check_literal(node, location)
            case Load():
                _check_load(node, scope, location)
            case Scalar():
                _check_scalar(node, scope, location)
            case Param():
                _check_parameter(node, scope, location)
            case Checked():
                _check_fault(node.fault, location)
        for term in node.terms:
            _check_term_names(term, scope, location)
            for atom in indirects_in(term):
                _check_fault(atom.fault, location)
    for load in unconditional_loads(roots):
        _check_load_bounds(load, scope, location)


def _check_operation(node: Op, location: ErrorLocation) -> None:
    """The operation is a row of the table, with the row's number of arguments and accepted dtypes."""
    row = OPS.get(node.name)
    if row is None:
        location.fail(
            "scalar-operation", f"{node.name!r} is not a scalar operation", "see litz_ir.scalar.OPS"
        )
    if len(node.args) != row.arity:
        location.fail("scalar-operation", f"{node.name} takes {row.arity} arguments, got {len(node.args)}")
    try:
        dtype = result_dtype(row, tuple(arg.dtype for arg in node.args), node.dtype)
    except DTypeError as error:
        location.fail("scalar-dtype", error.message, error.hint)
    if dtype != node.dtype:
        location.fail("scalar-dtype", f"{node.name} has the dtype {dtype} here, but is declared {node.dtype}")


def _check_fault(name: str, location: ErrorLocation) -> None:
    """The fault is a row of the table of faults."""
    if name not in FAULTS:
        location.fail("fault", f"{name!r} is not a fault", "see litz_ir.faults.FAULTS")


def _check_literal(node: Const, location: ErrorLocation) -> None:
    """An integer literal fits its dtype."""
    value = node.value
    if node.dtype.is_integer and wrap_integer(int(value), node.dtype) != value:
        location.fail("literal", f"{value} does not fit {node.dtype}", "litz_ir.scalar.build.const wraps")


def _check_load(node: Load, scope: BodyScope, location: ErrorLocation) -> None:
    """The buffer is in scope, has the load's dtype, and one dimension for each index."""
    buffer = scope.buffers.get(node.buffer)
    if buffer is None:
        location.fail("defined-before-use", f"%{node.buffer} is read, but not defined here")
    if node.dtype != buffer.dtype:
        location.fail("load-dtype", f"%{node.buffer} is {buffer.dtype}, but is read as {node.dtype}")
    if len(node.index) != len(buffer.shape):
        location.fail(
            "index-arity",
            f"%{node.buffer} has {len(buffer.shape)} dimensions, but is read with {len(node.index)} indices",
        )


def _check_scalar(node: Scalar, scope: BodyScope, location: ErrorLocation) -> None:
    """The scalar is in scope and has that dtype."""
    dtypes = scope.scalars.get(node.name)
    if dtypes is None:
        location.fail("scalar-known", f"${node.name} is read, but not defined before")
    if node.dtype not in dtypes:
        allowed = " or ".join(map(str, dtypes))
        location.fail("scalar-known", f"${node.name} is {allowed}, but is read as {node.dtype}")


def _check_parameter(node: Param, scope: BodyScope, location: ErrorLocation) -> None:
    """A combiner parameter is in scope and has that dtype."""
    if node.position not in range(len(scope.parameters)):
        location.fail("combine-parameter", f"the parameter ${node.position} is not in scope")
    dtype = scope.parameters[node.position]
    if node.dtype != dtype:
        location.fail("combine-parameter", f"${node.position} is {dtype}, but is read as {node.dtype}")


def _check_term_names(term: Size, scope: BodyScope, location: ErrorLocation) -> None:
    """The free names of a term are in scope."""
    _check_names(f"the index term {term}", free_symbols(term), scope, location)


def _check_names(user: str, free: frozenset[str], scope: BodyScope, location: ErrorLocation) -> None:
    """The free names are in scope."""
    unknown = free - scope.names
    if unknown:
        known = ", ".join(sorted(scope.names)) or "none"
        names = ", ".join(sorted(unknown))
        location.fail("free-symbols", f"{user} uses {names}, in scope are: {known}")


def _nested_scope(bodies: Iterable[Expr], scope: BodyScope, location: ErrorLocation) -> BodyScope:
    """The scope inside the nested reductions of bodies, which has their axes too; those have new names."""
    sizes: dict[str, Size] = {}
    for reduction in nested_reductions(*bodies):
        for name, size in reduction.axes:
            if name in scope.names:
                location.fail("axes", f"a nested reduction binds {name}, which is already in scope")
            if sizes.setdefault(name, size) != size:
                location.fail(
                    "axes", f"two nested reductions bind {name}, over {sizes[name]} and over {size}"
                )
    if not sizes:
        return scope
    ranges, exact = axis_ranges(sizes, scope.ranges)
    return replace(
        scope,
        names=scope.names | sizes.keys(),
        ranges={**scope.ranges, **ranges},
        exact=scope.exact | exact,
    )


def _check_load_bounds(node: Load, scope: BodyScope, location: ErrorLocation) -> None:
    """No index is known to be out of bounds."""
    buffer = scope.buffers[node.buffer]
    for dimension, (term, size) in enumerate(zip(node.index, buffer.shape, strict=True)):
        if isinstance(size, int) and leaves(term, size, scope):
            location.fail(
                "index-bounds",
                f"%{node.buffer} is read at {term} along dimension {dimension}, whose size is {size}",
                "mask the load, or check how the index was derived",
            )


def leaves(term: Size, size: int, scope: BodyScope) -> bool:
    """True if ``term`` is known to take a value outside ``[0, size)`` at some point."""
    if size == 0:
        return False
    found = bounds(term, scope.ranges)
    if (found.low is not None and found.low >= size) or (found.high is not None and found.high < 0):
        return True
    if not _attains_ends(term, scope.exact):
        return False
    return (found.low is not None and found.low < 0) or (found.high is not None and found.high >= size)


def _attains_ends(term: Size, exact: frozenset[str]) -> bool:
    """True if interval arithmetic is exact: a sum of independent variables that take every value of their range."""
    if isinstance(term, int):
        return True
    summands = [summand for summand, _ in term.terms] if isinstance(term, Sum) else [term]
    return all(isinstance(summand, Symbol) and summand.name in exact for summand in summands)


def unconditional_loads(roots: Iterable[Expr]) -> Iterator[Load]:
    """Yield the loads that run at every point, since no ``masked`` encloses them."""
    visited: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        if isinstance(node, Load):
            yield node
        stack += (node.cond,) if isinstance(node, Masked) else node.children
        stack += (atom.value for atom in indirects(node))


def axis_ranges(
    sizes: Mapping[str, Size], symbols: Mapping[str, Range]
) -> tuple[dict[str, Range], frozenset[str]]:
    """Ranges of loop variables, and those that take every value of their range.

    ``symbols`` are the ranges of the symbols in sizes. If some loop may be empty, no variable does, and the ranges are
    unknown.
    """
    ranges: dict[str, Range] = {}
    for name, size in sizes.items():
        ranges[name] = Range(0, size - 1) if isinstance(size, int) else Range(0, None, size)
    runs = all((bounds(size, symbols).low or 0) > 0 for size in sizes.values())
    if not runs:
        return {name: Range() for name in sizes}, frozenset()
    return ranges, frozenset(name for name, size in sizes.items() if isinstance(size, int))
