"""How many programs of a GPU have an outer point of a kernel together.

Two reasons make them share. Rows that no program can keep in registers, where a few can, are read once instead of
twice, unless the second-level cache holds them meanwhile. And where outer points are fewer than the programs that
processors want, one kernel does what would take two.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.contraction import matmul_nest
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, can_use_cluster
from litz_ir.scalar import Load
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols
from litz_ir.target import Capabilities
from litz_scheduler.cost import estimate, points
from litz_scheduler.loop_order import LoopNest, nodes_of, stores_of
from litz_scheduler.options import SchedulerOptions

CTAS_PER_SM = 4
"""The programs wanted for each processor of a GPU."""

MIN_COLUMN_TILE = 32
"""The results that a GPU's program takes on at a time where they, not what is reduced, are neighbours in memory."""

REGISTER_MARGIN = 2
"""The programs that share a row keep this many times less of it than a program can have in registers: while some
programs of a processor wait for others, the rest of them move memory. Where they would be too many for that, a row read
twice is read sooner."""

MIN_ELEMENTS_PER_CTA = 16
"""What each of so many programs has at the least, in elements, times their number: all have some then, though pieces
begin where accesses of 16 bytes may."""


def max_cluster_size(capabilities: Capabilities, options: SchedulerOptions) -> int:
    """The most programs that may share outer points; 1 where none can wait for another."""
    return min(capabilities.max_cluster_size, options.max_cluster_size)


def chosen_cluster_size(
    nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> int:
    """How many programs share each outer point of a nest; 1 where each is one program's."""
    most, inner = max_cluster_size(capabilities, options), points(nest.inner)
    if most < 2 or not isinstance(inner, int) or not can_use_cluster(nest.phases):
        return 1
    statements = [each for phase in nest.phases for each in phase.statements]
    if any(
        isinstance(each, Accumulate) and not isinstance(each.combiner, NamedCombiner) for each in statements
    ):
        return 1  # nobody promised that what is combined of nothing combines to nothing on both sides
    if any(isinstance(each, Accumulate) and _multiplies(each, nest) for each in statements):
        return 1
    while most > 1 and inner < MIN_ELEMENTS_PER_CTA * most * most:
        most //= 2
    columns = _along_outer(nest, symbols)
    outer = estimate(points(nest.outer), symbols)
    at_once = inner * _again(nest) * min(outer, capabilities.sm_count)
    if not columns and inner > options.long_row and at_once > capabilities.l2_bytes:
        wanted = _power(-(-inner * REGISTER_MARGIN // options.long_row))
        if wanted <= most and -(-inner // wanted) * max(1, _rows(nest) - 2) <= options.long_row:
            return wanted
    programs = -(-outer // (MIN_COLUMN_TILE if columns else 1))
    if programs >= 2 * capabilities.sm_count:
        return 1
    nbytes = inner * (MIN_COLUMN_TILE if columns else 1) * sum(node.dtype.itemsize for node in _loads(nest))
    wanted = min(CTAS_PER_SM * capabilities.sm_count // max(programs, 1), nbytes // options.gpu_split_bytes)
    return _power(min(wanted, most) + 1) // 2 if wanted > 1 else 1


def _multiplies(statement: Accumulate, nest: LoopNest) -> bool:
    """True for a sum of products, which has tiles of its own."""
    return matmul_nest(statement.combiner, statement.values, nest.outer, nest.inner) is not None


def _power(number: int) -> int:
    """The least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def _loads(nest: LoopNest) -> tuple[Load, ...]:
    """What phases of several points read, each element once."""
    found = {
        (node.buffer, node.index): node
        for phase in nest.phases
        if phase.axes
        for node in nodes_of(phase.statements)
        if isinstance(node, Load)
    }
    return tuple(found.values())


def _again(nest: LoopNest) -> int:
    """The bytes, for each point of a row, of what phases read that earlier ones have touched. What all rows read alike
    stays in caches."""
    outer = {axis.name for axis in nest.outer}
    touched: set[tuple[str, Size]] = set()
    found: dict[tuple[str, Size], int] = {}
    for phase in nest.phases:
        if phase.axes:
            loads = [node for node in nodes_of(phase.statements) if isinstance(node, Load)]
            read = {(node.buffer, node.index[0]): node.dtype.itemsize for node in loads}
            found |= {each: read[each] for each in touched.intersection(read)}
            touched |= {*read, *(target for each in phase.statements for target in stores_of(each))}
    return sum(nbytes for (_, offset), nbytes in found.items() if free_symbols(offset) & outer)


def _offsets(nest: LoopNest) -> tuple[Size, ...]:
    """The offsets of what phases of several points read and store."""
    stored = (
        term
        for phase in nest.phases
        if phase.axes
        for each in phase.statements
        for _, term in stores_of(each)
    )
    return tuple(dict.fromkeys([*(node.index[0] for node in _loads(nest)), *stored]))


def _rows(nest: LoopNest) -> int:
    """How many different rows a program keeps in registers."""
    inner = {axis.name for axis in nest.inner}
    return sum(bool(free_symbols(offset) & inner) for offset in _offsets(nest))


def _along_outer(nest: LoopNest, symbols: SymbolTable) -> bool:
    """True where more of what is touched are neighbours among outer points than among those of a phase."""
    votes = 0
    for offset in _offsets(nest):
        names = free_symbols(offset)
        touched = estimate(points(axis for axis in nest.outer + nest.inner if axis.name in names), symbols)
        votes += touched * (_unit(nest.outer, offset) - _unit(nest.inner, offset))
    return votes > 0


def _unit(axes: Sequence[Axis], offset: Size) -> bool:
    return any(coefficient(offset, axis.name) == 1 for axis in axes)
