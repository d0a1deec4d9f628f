"""Recognition of fused attention without V: P or its gradient, summed along a row or stored at every point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from litz_codegen_triton.emit.loops.contraction import by_index_alone, is_point
from litz_codegen_triton.emit.loops.fused_attention import (
    SUM,
    AttentionMatcher,
    FusedAttention,
    RowBlocks,
    free_symbols_of,
    p_operand_of,
    qk_operands,
    simplified,
)
from litz_codegen_triton.emit.loops.loop_bounds import LoopBound, loop_bound_of, without_bound
from litz_ir.contraction import axes_by_operand, operands
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import nested_reductions
from litz_ir.symbols import SymbolTable


def score_kernel(kernel: Kernel, known: SymbolTable) -> FusedAttention | None:
    """Match a kernel that stores scores, or sums them along rows and uses the sums pointwise.

    ``known`` has the hints of the kernel's symbols. Returns ``None`` for any other kernel.
    """
    matchers = _summed(kernel, known) or _stored(kernel, known)
    return next((found for matcher in matchers for found in matcher.matches()), None)


def _summed(kernel: Kernel, known: SymbolTable) -> list[_ScoreMatcher]:
    """Return the matcher of a kernel whose only reduction phase sums scores, in a list; else an empty list."""
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return []
    (number,) = inner
    phase = kernel.phases[number]
    statements = [s for s in phase.statements if isinstance(s, Accumulate)]
    if len(statements) != len(phase.statements):
        return []
    if not all(
        s.combiner == SUM and by_index_alone(kernel, s) and nested_reductions(*s.values) for s in statements
    ):
        return []
    return [_ScoreMatcher(number, kernel.outer, phase.axes, statements, known)]


def _stored(kernel: Kernel, known: SymbolTable) -> list[_ScoreMatcher]:
    """Return the matchers of a kernel that stores scores: one for each operand of QK^T taken for K.

    The axes of the keys are those that K depends on and Q does not.
    """
    if len(kernel.phases) != 1:
        return []
    (phase,) = kernel.phases
    every = (*kernel.outer, *phase.axes)
    statements = [s for s in phase.statements if isinstance(s, Store)]
    if len(statements) != len(phase.statements) or not nested_reductions(*(s.value for s in statements)):
        return []
    matchers = []
    for q, k in _operand_symbols(statements):
        axes = [axis for axis in every if axis.name in k - q]
        outer = [axis for axis in every if axis not in axes]
        if axes:
            matchers.append(_ScoreMatcher(0, outer, axes, statements, known))
    return matchers


def _operand_symbols(statements: Sequence[Store]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Yield the free symbols of both operands of the first nested reduction, in either order."""
    first = next(iter(nested_reductions(*(statement.value for statement in statements))))
    found = operands(first.body)
    if found is not None:
        one, other = (each.free_symbols for each in found)
        yield one, other
        yield other, one


class _ScoreMatcher(AttentionMatcher):
    """Matches statements that sum or store P without a V."""

    def __init__(
        self, number: int, outer: Sequence[Axis], axes: Sequence[Axis],
        statements: Sequence[Accumulate | Store], known: SymbolTable,
    ) -> None:  # fmt: skip
        super().__init__(number, outer, axes, [p_operand_of(statement) for statement in statements], known)
        self.statements = statements

    def matches(self) -> Iterator[FusedAttention]:
        """Yield the ways in which the statements are fused attention: with row blocks first, with a bound first."""
        bound = loop_bound_of([axis.name for axis in self.axes[:-1]], [], self.values)
        bounds = [bound, None] if bound is not None and self.has_whole_tiles and self._only_adds() else [None]
        for blocks in (*self.row_blocks(), None):
            for each in bounds:
                found = self._match(blocks, each)
                if found is not None:
                    yield found

    def _only_adds(self) -> bool:
        """True where all statements add, so that points with value zero may be left out."""
        return all(isinstance(each, Accumulate) or each.mode == "add" for each in self.statements)

    def _match(self, blocks: RowBlocks | None, bound: LoopBound | None) -> FusedAttention | None:
        """Return the fused attention of the statements with these row blocks and this loop bound, if they are one."""
        statements = [simplified(each, partial(without_bound, bound)) for each in self.statements]
        values = [p_operand_of(statement) for statement in statements]
        if any(isinstance(s, Accumulate) and value.dtype != f32 for s, value in zip(statements, values)):
            return None
        pairs = [qk_operands(nested, self.summed) for nested in nested_reductions(*values)]
        q, k = (free_symbols_of((pair[number] for pair in pairs if pair), blocks) for number in (0, 1))
        _, rows, _ = axes_by_operand(self.outer, q, k, self.labels(blocks).__getitem__)
        return self.build(statements, rows, (), bound, blocks)
