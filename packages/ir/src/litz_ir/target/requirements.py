"""Capabilities that loop bodies, operations and kernels need, and those that a device lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import DType
from litz_ir.loops.combiners import SORT, Combiner, NamedCombiner
from litz_ir.loops.nodes import Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.plan.horizontal_fusion import leaf_kernels
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Checked, Index, Op, indirects, indirects_in, nested_reductions
from litz_ir.scalar.node import Expr, walk
from litz_ir.symbols.extrema import maximum
from litz_ir.symbols.term import Size
from litz_ir.target.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Requirements:
    """Capabilities that an operation or kernel needs of the device that runs it."""

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
    scans: bool = False
    """True if it scans."""
    sorted_row: Size = 0
    """Longest row that it sorts; 0 if it sorts none."""
    faults: bool = False
    """True if it reports values that it refuses."""

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
        if self.scans and not capabilities.scans:
            return "scans"
        if self.sorted_row != 0 and not (
            isinstance(self.sorted_row, int) and self.sorted_row <= capabilities.max_sorted_row
        ):
            return f"sorts of {self.sorted_row} elements"
        if self.faults and not capabilities.faults:
            return "reports of values that it refuses"
        modes = sorted({mode for mode, _ in self.combining_stores if not capabilities.stores(mode)})
        if modes:
            return f"stores that combine by {', '.join(modes)}"
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
        case Reduction():
            return _required(part.bodies, dtypes, combiners=(part.combiner,))
        case Scan():
            rows = (part.scan_axis.size,) if part.combiner == SORT else ()
            return _required(part.bodies, dtypes, combiners=(part.combiner,), scans=True, sorted_rows=rows)
        case Scatter():
            modes = () if part.mode == "set" else ((part.mode, part.body.dtype),)
            return _required((part.body,), dtypes, modes, indices=part.index)
    return Requirements()


def _of_kernel(kernel: Kernel) -> Requirements:
    leaves = leaf_kernels(kernel)
    statements = [(each, phase) for leaf in leaves for phase in leaf.phases for each in phase.statements]
    scans = [(each, phase) for each, phase in statements if isinstance(each, ScanStore)]
    return _required(
        [body for each, _ in statements for body in _bodies(each)],
        [each.dtype for leaf in leaves for each in (*leaf.parameters, *leaf.scratch)],  # type: ignore[attr-defined]
        [
            (each.mode, each.value.dtype)
            for each, _ in statements
            if isinstance(each, Store) and each.mode != "set"
        ],
        tuple(each.combiner for each, _ in statements if isinstance(each, Accumulate | ScanStore)),
        indices=[offset for each, _ in statements for offset in _offsets(each)],
        scans=bool(scans),
        sorted_rows=[phase.axes[-1].size for each, phase in scans if each.combiner == SORT],
    )


def _required(
    bodies: Iterable[Expr],
    dtypes: Iterable[DType],
    modes: Iterable[tuple[str, DType]] = (),
    combiners: Sequence[Combiner] = (),
    *,
    indices: Sequence[Size] = (),
    scans: bool = False,
    sorted_rows: Iterable[Size] = (),
) -> Requirements:
    """Return the requirements of bodies and of index terms, which store values of these dtypes."""
    atoms = [atom for term in indices for atom in indirects_in(term)]
    roots = [*bodies, *(atom.value for atom in atoms)]
    for combiner in combiners:
        if not isinstance(combiner, NamedCombiner):
            roots += (*combiner.body, *combiner.identity, *combiner.finish)
    nodes = list(walk(*roots))
    atoms += (atom for node in nodes for atom in indirects(node))
    return Requirements(
        # Indices are integers of the device's own width.
        dtypes=frozenset(dtypes) | {node.dtype for node in nodes if not isinstance(node, Index)},
        operations=frozenset(node.name for node in nodes if isinstance(node, Op)),
        # A sort is told by its row.
        combiners=frozenset(_combiner_name(each) for each in combiners if each != SORT),
        combining_stores=frozenset(modes),
        nested_reductions=any(True for _ in nested_reductions(*roots)),
        scans=scans,
        sorted_row=maximum(0, *sorted_rows),
        faults=any(isinstance(node, Checked) for node in nodes)
        or any(each.check == "raised" for each in atoms),
    )


def _combiner_name(combiner: Combiner) -> str:
    return combiner.name if isinstance(combiner, NamedCombiner) else "user"


def _bodies(statement: Statement) -> tuple[Expr, ...]:
    return (statement.value,) if isinstance(statement, Store) else statement.values


def _offsets(statement: Statement) -> tuple[Size, ...]:
    match statement:
        case Store():
            return (statement.offset,)
        case ScanStore():
            return tuple(offset for _, offset in statement.targets)
    return ()
