"""The invariants of a body, given what surrounds it. The verifiers of all levels use them."""

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
    Expr,
    Load,
    Masked,
    Op,
    Param,
    Scalar,
    indirects,
    indirects_in,
    nested_reductions,
    walk,
)
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.ranges import Range, bounds
from litz_ir.symbols.term import Size, Sum, Symbol, free_symbols


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """Where a check looks: the stage, the operation and its origin, for errors."""

    stage: str
    node: str = ""
    origin: Origin = UNKNOWN

    def fail(self, check: str, message: str, hint: str = "") -> NoReturn:
        """Raise :class:`VerifyError`."""
        raise VerifyError(
            message, check=check, stage=self.stage, node=self.node, origin=self.origin, hint=hint
        )


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """What a body may know of a buffer: its dtype and the extent of each index, None where it is not known."""

    dtype: DType
    shape: tuple[Size | None, ...]


@dataclass(frozen=True, slots=True)
class BodyScope:
    """What a body may refer to.

    ``names`` are the axes and symbols that index terms may use, ``ranges`` what is known of them, ``exact`` those that
    take every value of their range, whatever the others are. ``scalars`` gives the dtypes that a scalar of that name
    may have, ``parameters`` the dtypes of a combine body's arguments.
    """

    buffers: Mapping[str, BufferInfo] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    ranges: Mapping[str, Range] = field(default_factory=dict)
    exact: frozenset[str] = frozenset()
    scalars: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)
    parameters: tuple[DType, ...] = ()


def verify_bodies(
    bodies: Iterable[Expr], around: BodyScope, location: ErrorLocation, indices: Iterable[Size] = ()
) -> None:
    """Check everything about bodies and the index terms beside them. Raises :class:`VerifyError`."""
    terms = tuple(indices)
    roots = (*bodies, *(atom.value for term in terms for atom in indirects_in(term)))
    for term in terms:
        check_term_names(term, around, location)
    for root in roots:
        check_names("the body", root.free_symbols, around, location)
    around = nested_scope(roots, around, location)
    for node in walk(*roots):
        match node:
            case Op():
                check_operation(node, location)
            case Const():
                check_literal(node, location)
            case Load():
                check_load(node, around, location)
            case Scalar():
                check_scalar(node, around, location)
            case Param():
                check_parameter(node, around, location)
            case Checked():
                check_fault(node.fault, location)
        for term in node.terms:
            check_term_names(term, around, location)
            for atom in indirects_in(term):
                check_fault(atom.fault, location)
    for load in unconditional_loads(roots):
        check_load_bounds(load, around, location)


def check_operation(node: Op, location: ErrorLocation) -> None:
    """The operation is a row of the table, with as many arguments, over dtypes that the row accepts."""
    row = OPS.get(node.name)
    if row is None:
        location.fail(
            "scalar-operation", f"{node.name!r} is no scalar operation", "see litz_ir.scalar.ops_table.OPS"
        )
    if len(node.args) != row.arity:
        location.fail("scalar-operation", f"{node.name} takes {row.arity} arguments, it has {len(node.args)}")
    try:
        dtype = result_dtype(row, tuple(arg.dtype for arg in node.args), node.dtype)
    except DTypeError as error:
        location.fail("scalar-dtype", error.message, error.hint)
    if dtype != node.dtype:
        location.fail("scalar-dtype", f"{node.name} gives {dtype} here, it is declared {node.dtype}")


def check_fault(name: str, location: ErrorLocation) -> None:
    """What is raised is a row of the table of faults."""
    if name not in FAULTS:
        location.fail("fault", f"{name!r} is no fault", "see litz_ir.faults.FAULTS")


def check_literal(node: Const, location: ErrorLocation) -> None:
    """An integer literal fits its dtype."""
    value = node.value
    if node.dtype.is_integer and wrap_integer(int(value), node.dtype) != value:
        location.fail("literal", f"{value} does not fit {node.dtype}", "litz_ir.scalar.build.const wraps")


def check_load(node: Load, around: BodyScope, location: ErrorLocation) -> None:
    """The buffer is known here, has the load's dtype, and as many dimensions as there are indices."""
    buffer = around.buffers.get(node.buffer)
    if buffer is None:
        location.fail("defined-before-use", f"%{node.buffer} is read, but not defined here")
    if node.dtype != buffer.dtype:
        location.fail("load-dtype", f"%{node.buffer} holds {buffer.dtype}, it is read as {node.dtype}")
    if len(node.index) != len(buffer.shape):
        location.fail(
            "index-arity",
            f"%{node.buffer} has {len(buffer.shape)} dimensions, it is read with {len(node.index)} indices",
        )


def check_scalar(node: Scalar, around: BodyScope, location: ErrorLocation) -> None:
    """The scalar is known here and has that dtype."""
    dtypes = around.scalars.get(node.name)
    if dtypes is None:
        location.fail("scalar-known", f"${node.name} is read, but nothing before defines it")
    if node.dtype not in dtypes:
        allowed = " or ".join(map(str, dtypes))
        location.fail("scalar-known", f"${node.name} is {allowed}, it is read as {node.dtype}")


def check_parameter(node: Param, around: BodyScope, location: ErrorLocation) -> None:
    """Parameters occur in combine bodies only, within their number and with their dtype."""
    if node.position not in range(len(around.parameters)):
        location.fail("combine-parameter", f"${node.position} has no meaning here")
    dtype = around.parameters[node.position]
    if node.dtype != dtype:
        location.fail("combine-parameter", f"${node.position} is {dtype}, it is read as {node.dtype}")


def check_term_names(term: Size, around: BodyScope, location: ErrorLocation) -> None:
    """Only own axes and known symbols occur free in a term."""
    check_names(f"the index term {term}", free_symbols(term), around, location)


def check_names(what: str, free: frozenset[str], around: BodyScope, location: ErrorLocation) -> None:
    """Only names that are known here are free."""
    unknown = free - around.names
    if unknown:
        known = ", ".join(sorted(around.names)) or "none"
        names = ", ".join(sorted(unknown))
        location.fail("free-symbols", f"{what} uses {names}, known here: {known}")


def nested_scope(bodies: Iterable[Expr], around: BodyScope, location: ErrorLocation) -> BodyScope:
    """What may be referred to inside of the folds of bodies: their axes too, whose names are new."""
    sizes: dict[str, Size] = {}
    for fold in nested_reductions(*bodies):
        for name, size in fold.axes:
            if name in around.names:
                location.fail("axes", f"a fold binds {name}, which has a meaning around it")
            if sizes.setdefault(name, size) != size:
                location.fail("axes", f"two folds bind {name}, over {sizes[name]} and over {size}")
    if not sizes:
        return around
    ranges, exact = axis_ranges(sizes)
    return replace(
        around,
        names=around.names | sizes.keys(),
        ranges={**around.ranges, **ranges},
        exact=around.exact | exact,
    )


def check_load_bounds(node: Load, around: BodyScope, location: ErrorLocation) -> None:
    """No index is known to leave its dimension."""
    buffer = around.buffers[node.buffer]
    for dimension, (term, size) in enumerate(zip(node.index, buffer.shape, strict=True)):
        if isinstance(size, int) and leaves(term, size, around):
            location.fail(
                "index-bounds",
                f"%{node.buffer} is read at {term} along dimension {dimension}, whose size is {size}",
                "mask the load, or check how the index was derived",
            )


def leaves(term: Size, size: int, around: BodyScope) -> bool:
    """True when ``term`` certainly takes a value outside ``[0, size)`` at some point."""
    if size == 0:
        return False
    found = bounds(term, around.ranges)
    if (found.low is not None and found.low >= size) or (found.high is not None and found.high < 0):
        return True
    if not _attains_ends(term, around.exact):
        return False
    return (found.low is not None and found.low < 0) or (found.high is not None and found.high >= size)


def _attains_ends(term: Size, exact: frozenset[str]) -> bool:
    """True when interval arithmetic is exact: a sum of independent variables that take every value of their range."""
    if isinstance(term, int):
        return True
    parts = [part for part, _ in term.terms] if isinstance(term, Sum) else [term]
    return all(isinstance(part, Symbol) and part.name in exact for part in parts)


def unconditional_loads(roots: Iterable[Expr]) -> Iterator[Load]:
    """Loads that happen at every point: those that no ``masked`` guards."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Load):
            yield node
        stack += (node.cond,) if isinstance(node, Masked) else node.children
        stack += (atom.value for atom in indirects(node))


def axis_ranges(sizes: Mapping[str, Size]) -> tuple[dict[str, Range], frozenset[str]]:
    """The ranges of loop variables, and which of them take every value: all, unless some loop may run over nothing."""
    ranges: dict[str, Range] = {}
    for name, size in sizes.items():
        ranges[name] = Range(0, size - 1) if isinstance(size, int) else Range(0, None, size)
    runs = all(isinstance(size, int) and size > 0 for size in sizes.values())
    return (ranges, frozenset(sizes)) if runs else ({name: Range() for name in sizes}, frozenset())
