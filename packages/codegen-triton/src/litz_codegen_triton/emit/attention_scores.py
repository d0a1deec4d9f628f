"""Chains without a right factor: scores that are summed along a row as they are, or stored at every point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from litz_codegen_triton.emit.contraction import by_index_alone, is_point
from litz_codegen_triton.emit.fused_attention import (
    SUM,
    AttentionMatcher,
    FusedAttention,
    RowBlocks,
    names,
    p_operand_of,
    qk_operands,
)
from litz_codegen_triton.emit.loop_bounds import LoopBound, loop_bound_of, without_bound
from litz_ir.contraction import axes_by_operand, operands
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import Expr, Index, nested_reductions
from litz_ir.symbols import SymbolTable


def score_kernel(kernel: Kernel, known: SymbolTable) -> FusedAttention | None:
    """The chain of a kernel that stores scores, or sums them and uses the sums point by point."""
    searches = _summed(kernel, known) or _stored(kernel, known)
    return next((found for search in searches for found in search.chains()), None)


def _summed(kernel: Kernel, known: SymbolTable) -> list[_Alone]:
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
    return [_Alone(number, kernel.outer, phase.axes, statements, known)]


def _stored(kernel: Kernel, known: SymbolTable) -> list[_Alone]:
    """Any axes may be those of a row: those that one factor of a fold knows and the other one does not."""
    if len(kernel.phases) != 1:
        return []
    (phase,) = kernel.phases
    every = (*kernel.outer, *phase.axes)
    statements = [s for s in phase.statements if isinstance(s, Store)]
    if len(statements) != len(phase.statements) or not nested_reductions(*(s.value for s in statements)):
        return []
    searches = []
    for near, far in _sides(statements):
        axes = [axis for axis in every if axis.name in far - near]
        outer = [axis for axis in every if axis not in axes]
        if axes:
            searches.append(_Alone(0, outer, axes, statements, known))
    return searches


def _sides(statements: Sequence[Store]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """What the factors of the first fold know, one or the other taken for the near one."""
    first = next(iter(nested_reductions(*(statement.value for statement in statements))))
    found = operands(first.body)
    if found is not None:
        one, other = (each.free_symbols for each in found)
        yield one, other
        yield other, one


class _Alone(AttentionMatcher):
    def __init__(
        self, number: int, outer: Sequence[Axis], axes: Sequence[Axis],
        statements: Sequence[Accumulate | Store], known: SymbolTable,
    ) -> None:  # fmt: skip
        super().__init__(number, outer, axes, [p_operand_of(statement) for statement in statements], known)
        self.statements = statements

    def chains(self) -> Iterator[FusedAttention]:
        """The chains that the statements are, the best first."""
        guard = loop_bound_of([axis.name for axis in self.axes[:-1]], [], self.values)
        guards = [guard, None] if guard is not None and self.even and self._only_adds() else [None]
        for cut in (*self.cuts(), None):
            for each in guards:
                found = self._guarded(cut, each)
                if found is not None:
                    yield found

    def _only_adds(self) -> bool:
        """True where nothing happens where there is nothing to sum."""
        return all(isinstance(each, Accumulate) or each.mode == "add" for each in self.statements)

    def _guarded(self, cut: RowBlocks | None, guard: LoopBound | None) -> FusedAttention | None:
        statements = [_without(guard, statement) for statement in self.statements]
        values = [p_operand_of(statement) for statement in statements]
        if any(isinstance(s, Accumulate) and value.dtype != f32 for s, value in zip(statements, values)):
            return None
        pairs = [qk_operands(fold, self.summed) for fold in nested_reductions(*values)]
        near, far = (names((pair[side] for pair in pairs if pair), cut) for side in (0, 1))
        _, rows, _ = axes_by_operand(self.outer, near, far, self.labels(cut).__getitem__)
        return self.made(statements, rows, (), guard, cut)


def _without(guard: LoopBound | None, statement: Accumulate | Store) -> Accumulate | Store:
    """The statement where a guard holds."""
    if isinstance(statement, Accumulate):
        return replace(statement, values=tuple(without_bound(guard, value) for value in statement.values))
    place: Expr = without_bound(guard, Index(statement.offset))
    return replace(statement, value=without_bound(guard, statement.value), offset=place.terms[0])
