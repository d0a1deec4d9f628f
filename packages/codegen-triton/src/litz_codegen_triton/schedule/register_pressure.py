"""How many registers the values of one point take: what a thread has for each of its points while it computes them.

Values are counted as they are written, operands before what uses them and stores last, each from where it is computed
to where it is used for the last time. Assemblers move loads ahead and compute indices again, so this is a measure to
compare with others of its kind, not the number of a kernel's registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from litz_codegen_triton.emit.index import fits_narrow
from litz_codegen_triton.emit.statements import can_flatten, independent_runs, targets_of, terms_of, values_of
from litz_ir.dtypes import DType, compute_dtype
from litz_ir.plan import Kernel, Phase, Statement, Store
from litz_ir.scalar import Const, Expr, Index, Indirect, Param, Scalar, walk
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Size, Symbol, Term, extent, product

Node = Expr | Term


def point_words(kernel: Kernel) -> int:
    """The most 32-bit registers that the values of a point take at a time, of all phases. Where a phase has axes of its
    own, what does not vary along them is left out, unless all of its axes are treated as outer ones."""
    whole = can_flatten(kernel)
    return max(
        _Values(run, _along(kernel, phase, whole), index_words(kernel)).most()
        for phase in kernel.phases
        for run in independent_runs(phase.statements)
    )


def _along(kernel: Kernel, phase: Phase, whole: bool) -> frozenset[str]:
    axes = (*kernel.outer, *phase.axes) if whole else phase.axes or kernel.outer
    return frozenset(axis.name for axis in axes)


def index_words(kernel: Kernel) -> int:
    """The registers that an index takes: one when 32-bit indices do, tiles that stick out left aside."""
    ranges = {info.name: info.range for info in kernel.symbols if info.kind != "float"}
    axes = (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes))
    ranges |= {axis.name: extent(axis.size) for axis in axes}
    terms = {term: None for phase in kernel.phases for each in phase.statements for term in terms_of(each)}
    flattened = [product(axis.size for axis in (*kernel.outer, *phase.axes)) for phase in kernel.phases]
    return 1 if fits_narrow([*terms, *flattened], ranges) else 2


class _Values:
    """The values at a point of statements, in the order in which they are written, and where each is used last.
    ``along`` are the axes that points differ in."""

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

    def most(self) -> int:
        """The most registers that are held at a time."""
        ends: Counter[int] = Counter()
        held = most = 0
        for place, node in enumerate(self.order):
            words = self._words(node)
            ends[self.last[node]] += words
            held += words
            most = max(most, held)
            held -= ends[place]
        return most

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
        """What stands for itself in a term: its symbols, and what is computed once."""
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
    """The registers that a value is computed in."""
    return max(1, compute_dtype(dtype).itemsize // 4)
