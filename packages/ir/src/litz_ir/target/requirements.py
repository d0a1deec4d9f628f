"""Capabilities that loop bodies, operations and kernels need, and those that a device lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import DType
from litz_ir.loops.combiners import SORT, Combiner, NamedCombiner
from litz_ir.loops.nodes import Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.plan.horizontal_fusion import leaf_kernels
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Index, Op, indirects_in, nested_reductions, walk
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.target.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Requirements:
    """Capabilities that a piece of a program needs of the device that runs it."""

    dtypes: frozenset[DType] = frozenset()
    """Dtypes that it loads, stores or computes with."""
    operations: frozenset[str] = frozenset()
    """Scalar operations that it computes."""
    combiners: frozenset[str] = frozenset()
    """Kinds of reductions that it combines by; ``user`` for combiners given by expressions."""
    combining_stores: frozenset[tuple[str, DType]] = frozenset()
    """Mode and dtype of each store that combines a value with the element in memory."""
    nested_reductions: bool = False
    """True if a body contains a nested reduction."""

    def lacking(self, capabilities: Capabilities) -> str:
        """Return what a device lacks of this, as words after "needs"; empty if it lacks nothing."""
        dtypes = sorted(dtype.name for dtype in self.dtypes - capabilities.dtypes)
        if dtypes:
            return ", ".join(dtypes)
        absent = sorted(name for name in self.operations if not capabilities.computes(name))
        if absent:
            return f"the scalar operation {', '.join(absent)}"
        absent = sorted(name for name in self.combiners if not capabilities.combines(name))
        if absent:
            return f"the combiner {', '.join(absent)}"
        if self.nested_reductions and not capabilities.nested_reductions:
            return "nested reductions"
        if capabilities.max_tile_elements:  # kernels of other devices run such stores in order
            for mode, dtype in sorted(self.combining_stores, key=str):
                if dtype not in capabilities.atomics:
                    return f"atomic {mode} of {dtype}"
        return ""


def requirements_of(part: Operation | Kernel) -> Requirements:
    """Return the requirements of an operation of a loop graph, or of a kernel; a call needs nothing."""
    if isinstance(part, Kernel):
        return _of_kernel(part)
    dtypes = (value.type.dtype for value in part.results)
    match part:
        case Pointwise():
            return _required(part.bodies, dtypes)
        case Reduction() | Scan():
            return _required(part.bodies, dtypes, combiners=(part.combiner,))
        case Scatter():
            modes = () if part.mode == "set" else ((part.mode, part.body.dtype),)
            return _required((part.body, *_loaded(part.index)), dtypes, modes)
    return Requirements()


def _of_kernel(kernel: Kernel) -> Requirements:
    statements = [each for leaf in leaf_kernels(kernel) for phase in leaf.phases for each in phase.statements]
    dtypes = [each.dtype for leaf in leaf_kernels(kernel) for each in leaf.parameters]
    dtypes += [each.dtype for leaf in leaf_kernels(kernel) for each in leaf.scratch]
    bodies = [body for each in statements for body in _bodies(each)]
    modes = [
        (each.mode, each.value.dtype) for each in statements if isinstance(each, Store) and each.mode != "set"
    ]
    combiners = tuple(each.combiner for each in statements if isinstance(each, Accumulate | ScanStore))
    return _required(bodies, dtypes, modes, combiners)


def _required(
    bodies: Iterable[Expr],
    dtypes: Iterable[DType],
    modes: Iterable[tuple[str, DType]] = (),
    combiners: Sequence[Combiner] = (),
) -> Requirements:
    roots = list(bodies)
    for combiner in combiners:
        if not isinstance(combiner, NamedCombiner):
            roots += (*combiner.body, *combiner.identity, *combiner.finish)
    nodes = list(walk(*roots))
    return Requirements(
        # Indices are integers of the device's own width.
        frozenset(dtypes) | {node.dtype for node in nodes if not isinstance(node, Index)},
        frozenset(node.name for node in nodes if isinstance(node, Op)),
        # Devices that sort say so by the length of the rows.
        frozenset(_combiner_name(each) for each in combiners if each != SORT),
        frozenset(modes),
        any(True for _ in nested_reductions(*roots)),
    )


def _combiner_name(combiner: Combiner) -> str:
    return combiner.name if isinstance(combiner, NamedCombiner) else "user"


def _bodies(statement: Statement) -> Iterator[Expr]:
    match statement:
        case Store():
            yield statement.value
            yield from _loaded((statement.offset,))
        case ScanStore():
            yield from statement.values
            yield from _loaded(offset for _, offset in statement.targets)
        case Accumulate():
            yield from statement.values


def _loaded(terms: Iterable[Size]) -> Iterator[Expr]:
    """Yield the values of the indirect indices in terms."""
    for term in terms:
        yield from (atom.value for atom in indirects_in(term))
