"""Register tiles of matmuls with few rows on a CPU: one loop over K for all rows and several columns.

A point of such a kernel computes the results of a tile. Each element of the matrix is loaded once for all rows, and
each element of a row once for all columns of the tile, which also read several streams of memory at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, count, product

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Phase, Statement, Store
from litz_ir.scalar import Expr, Scalar, indirects, loads, transform, walk
from litz_ir.symbols import Size, SymbolTable, add, coefficient, free_symbols, mul, symbol
from litz_scheduler.analysis.few_rows import FewRows, few_rows
from litz_scheduler.analysis.loop_order import LoopNest, map_statements
from litz_scheduler.analysis.summed_axis import divided_sums

_SUMS, _MOST_SUMS = 16, 24
"""The most sums of a loop: half of 32 vector registers and, of rows that are computed in halves, what leaves registers
for the rows and a column. The second half does not wait for memory, so that it is loads of rows that columns save
(8 rows of 4,096 f32, Zen 5: 36 to 39 GB/s). Other loops do not gain: 8 rows by 3 columns are as fast as by 2."""

_WIDE = 64
"""Bytes of a vector register of CPUs that have 32 of them."""

_COLUMNS = (4, 2)
"""The numbers of columns of a point that are tried where one loop computes them."""

_MOST_COLUMNS, _FEWEST_POINTS = 16, 256
"""The most columns of a point that several loops compute, and the fewest points of their axis, for threads to share."""

_CACHED = 64 << 10
"""The most bytes of all rows that a CPU reads again and again from a first-level cache of 32 to 48 KB and what it
prefetches. Where more than four rows are longer, half of them are computed after the others, by twice as many columns,
so that the rows are read half as often (8 rows of 4,096 f32, Zen 5: 28 to 31 GB/s of weights)."""

_MOST_AT_ONCE = 4
"""The most rows that are computed at once however long they are."""

_SHORTEST = 256
"""The fewest summed elements for which tiles pay; the sums of a tile are reduced to numbers one by one."""


def with_register_tile(nest: LoopNest, symbols: SymbolTable, vector_bytes: int) -> LoopNest:
    """Return the nest of a matmul of few rows, in tiles of registers of so many bytes; other nests as they are."""
    found = _sums(nest)
    if found is None:
        return nest
    position, sums, shape = found
    (axis,) = nest.inner
    divided = divided_sums([each.values[0] for each in sums], nest.outer, axis, symbols)
    if divided is not None:
        axes, values = divided
        sums = [replace(each, values=(value,)) for each, value in zip(sums, values, strict=True)]
        phases = list(nest.phases)
        phases[position] = Phase(axes, tuple(sums))
        nest = replace(nest, phases=tuple(phases))
    if not _runs_along(nest.inner[-1], sums):
        return nest
    max_rows = shape.row_count
    if max_rows > _MOST_AT_ONCE and _row_bytes(axis.size, sums, shape) > _CACHED:
        max_rows = -(-max_rows // 2)
    # A weight with a scale for each group holds it in a register, and others for its conversion.
    several = vector_bytes >= _WIDE and divided is None and max_rows < shape.row_count
    limit = (_MOST_SUMS if several else _SUMS) // (max_rows * len(sums))
    runs = _runs(shape.columns[-1].size, limit, several=several)
    return replace(_tiled(nest, shape, runs, max_rows), along_sum=True)


def _row_bytes(length: Size, sums: Sequence[Accumulate], shape: FewRows) -> int:
    """Return the bytes of the matrix of rows, whose loads depend on no column."""
    columns = {axis.name for axis in shape.columns}
    values = [value for each in sums for value in each.values]
    sizes = [load.dtype.itemsize for load in loads(*values) if not free_symbols(load.index[0]) & columns]
    assert isinstance(length, int)
    return max(sizes, default=0) * shape.row_count * length


def _sums(nest: LoopNest) -> tuple[int, list[Accumulate], FewRows] | None:
    """Return the position of the phase of the sums, the sums, and the axes of rows and columns that they share."""
    inner = [k for k, phase in enumerate(nest.phases) if phase.axes]
    if len(inner) != 1 or len(nest.inner) != 1 or not _is_long(nest.inner[0]):
        return None
    (position,) = inner
    sums: list[Accumulate] = []
    shapes: set[FewRows] = set()
    for statement in nest.phases[position].statements:
        if not isinstance(statement, Accumulate) or any(True for _ in _indirects(statement.values)):
            return None
        shape = few_rows(statement.combiner, statement.values, nest.outer)
        if shape is None:
            return None
        sums.append(statement)
        shapes.add(shape)
    others = (s for k, phase in enumerate(nest.phases) if k != position for s in phase.statements)
    if len(shapes) != 1 or not all(isinstance(s, Store) and s.mode == "set" for s in others):
        return None
    return position, sums, shapes.pop()


def _is_long(axis: Axis) -> bool:
    return isinstance(axis.size, int) and axis.size >= _SHORTEST


def _indirects(values: Sequence[Expr]) -> Iterator[object]:
    for node in walk(*values):
        yield from indirects(node)


def _runs_along(axis: Axis, sums: Sequence[Accumulate]) -> bool:
    """Return whether vector registers can hold consecutive summed elements: all loads are contiguous along the axis,
    or do not depend on it, or skip every other element."""
    values = [value for each in sums for value in each.values]
    return all(coefficient(load.index[0], axis.name) in (0, 1, 2) for load in loads(*values))


def _runs(size: Size, limit: int, *, several: bool) -> tuple[int, ...]:
    """Return the numbers of columns, of an axis of ``size``, that each loop of a point computes: in one loop of up to
    ``limit`` or, where ``several`` may follow one another, in those that are longest on average."""
    if not isinstance(size, int) or limit < 2:
        return (1,)
    if not several:
        return (next((each for each in _COLUMNS if each <= limit and size % each == 0), 1),)
    tried = (
        each
        for each in range(1, _MOST_COLUMNS + 1)
        if size % each == 0 and (each <= limit or size // each >= _FEWEST_POINTS)
    )
    columns = max(tried, key=lambda each: (each / -(-each // limit), -each))
    loops = -(-columns // limit)
    return tuple((columns + number) // loops for number in reversed(range(loops)))


def _tiled(nest: LoopNest, shape: FewRows, runs: Sequence[int], max_rows: int) -> LoopNest:
    """Return the nest with all rows and some columns of one axis at each point, in loops of up to ``max_rows`` rows by
    ``runs`` of columns."""
    last, columns = shape.columns[-1], sum(runs)
    if columns == shape.row_count == 1:
        return nest
    outer = tuple(
        Axis(axis.name, axis.size // columns) if axis == last and isinstance(axis.size, int) else axis
        for axis in nest.outer
        if axis not in shape.rows
    )
    points = [
        dict(zip((axis.name for axis in shape.rows), point)) for point in product(*map(_range, shape.rows))
    ]
    names = {name for p in nest.phases for s in p.statements for name in _results(s)}
    tiles: list[dict[int, Mapping[str, Size]]] = []
    made = count()
    for end, run in zip(accumulate(runs), runs):
        for start in range(0, len(points), max_rows):
            tile = product(range(end - run, end), points[start : start + max_rows])
            tiles.append(
                {
                    next(made): {**point, last.name: add(mul(symbol(last.name), columns), column)}
                    for column, point in tile
                }
            )
    whole = {number: point for tile in tiles for number, point in tile.items()}
    phases = tuple(
        Phase(phase.axes, tuple(_copies(phase.statements, tile, names)))
        for phase in nest.phases
        for tile in (tiles if phase.axes else [whole])
    )
    return replace(nest, outer=outer, phases=phases)


def _range(axis: Axis) -> range:
    assert isinstance(axis.size, int)
    return range(axis.size)


def _results(statement: Statement) -> Iterator[str]:
    if isinstance(statement, Accumulate):
        yield from (name for name, _ in statement.results)


def _copies(
    statements: Sequence[Statement], tile: Mapping[int, Mapping[str, Size]], names: Collection[str]
) -> Iterator[Statement]:
    """Yield the statements of each point of a tile, whose sums have names of their own."""
    for number, point in tile.items():
        for statement in map_statements(statements, point):
            if isinstance(statement, Accumulate):
                results = tuple((f"{name}.{number}", dtype) for name, dtype in statement.results)
                yield replace(statement, results=results)
            else:
                assert isinstance(statement, Store)
                yield replace(statement, value=_renamed(statement.value, number, names))


def _renamed(value: Expr, number: int, names: Collection[str]) -> Expr:
    """Return a value over the sums ``names`` at one point of a tile."""

    def rename(node: Expr) -> Expr:
        if isinstance(node, Scalar) and node.name in names:
            return Scalar(f"{node.name}.{number}", node.dtype)
        return node

    return transform(value, rename)
