"""Estimate of register pressure: the registers that the values of one point of a tile need.

Values are taken in the order in which they are emitted: operands before their uses, stores last. Each is live from its
definition to its last use. The assembler hoists loads and recomputes indices, so the estimate ranks kernels; it is not
the number of registers that a kernel has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from litz_codegen_triton.emit.indexing.index import fits_narrow
from litz_codegen_triton.emit.indexing.statements import (
    can_flatten,
    independent_runs,
    targets_of,
    terms_of,
    values_of,
)
from litz_ir.dtypes import DType, compute_dtype
from litz_ir.plan import Kernel, Phase, Statement, Store
from litz_ir.scalar import Const, Expr, Index, Indirect, Param, Scalar, walk
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Size, Symbol, Term, extent, product

Node = Expr | Term


def point_words(kernel: Kernel) -> int:
    """Return the largest number of 32-bit registers that the values of a point need at a time, over all phases.

    In a phase with axes of its own, values that do not vary along them are not counted, unless all axes of the kernel
    are treated as outer ones.
    """
    whole = can_flatten(kernel)
    return max(
        _LiveIntervals(run, _along(kernel, phase, whole), index_words(kernel)).peak()
        for phase in kernel.phases
        for run in independent_runs(phase.statements)
    )


def _along(kernel: Kernel, phase: Phase, whole: bool) -> frozenset[str]:
    axes = (*kernel.outer, *phase.axes) if whole else phase.axes or kernel.outer
    return frozenset(axis.name for axis in axes)


def index_words(kernel: Kernel) -> int:
    """Return the registers of an index: 1 where 32-bit indices suffice, the overhang of tiles disregarded, else 2."""
    ranges = {info.name: info.range for info in kernel.symbols if info.kind != "float"}
    axes = (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes))
    ranges |= {axis.name: extent(axis.size) for axis in axes}
    terms = {term: None for phase in kernel.phases for each in phase.statements for term in terms_of(each)}
    flattened = [product(axis.size for axis in (*kernel.outer, *phase.axes)) for phase in kernel.phases]
    return 1 if fits_narrow([*terms, *flattened], ranges) else 2


class _LiveIntervals:
    """Values of statements at one point, in order of emission, and the last use of each.

    ``along`` are the axes along which the points of a tile differ.
    """

    def __init__(self, statements: Sequence[Statement], along: frozenset[str], index_words: int) -> None:
        self.along = along
        self.index_words = index_words
        self.order: list[Node] = []
        self.last: dict[Node, int] = {}
        stored: list[Node] = []
        for statement in statements:
            for value in values_of(statement):
                self._expression(value)
            stored += (atom for _, offset in targets_of(statement) for atom in self._atoms(offset))
            stored += values_of(statement) if isinstance(statement, Store) else ()
        self._use(stored)

    def peak(self) -> int:
        """Return the largest number of registers that are live at a time."""
        ends: Counter[int] = Counter()
        live = peak = 0
        for position, node in enumerate(self.order):
            words = self._words(node)
            ends[self.last[node]] += words
            live += words
            peak = max(peak, live)
            live -= ends[position]
        return peak

    def _words(self, node: Node) -> int:
        if isinstance(node, Const | Scalar | Param) or not self.along & node.free_symbols:
            return 0
        return self.index_words if isinstance(node, Term | Index) else dtype_words(node.dtype)

    def _expression(self, root: Expr) -> None:
        for node in walk(root):
            if node not in self.last:
                atoms = [atom for term in node.terms for atom in self._atoms(term)]
                self._use([*node.children, *atoms])
                self._define(node)
        self._use([root])

    def _atoms(self, term: Size) -> list[Term]:
        """Return the parts of a term that are values of their own: symbols, indirect indices, and quotients, remainders
        and extrema, which are computed once."""
        if not isinstance(term, Term):
            return []
        if isinstance(term, Indirect):
            if term not in self.last:
                self._expression(term.value)
                self._define(term)
            return [term]
        below = [atom for child in term.children() for atom in self._atoms(child)]
        if not isinstance(term, Symbol | FloorDiv | Mod | Min | Max):
            return below
        if term not in self.last:
            self._use(below)
            self._define(term)
        return [term]

    def _define(self, node: Node) -> None:
        self.last[node] = len(self.order)
        self.order.append(node)

    def _use(self, nodes: Sequence[Node]) -> None:
        self.last.update(dict.fromkeys(nodes, len(self.order)))


def dtype_words(dtype: DType) -> int:
    """Return the 32-bit registers of a value of ``dtype``, in the dtype that it is computed in."""
    return max(1, compute_dtype(dtype).itemsize // 4)
