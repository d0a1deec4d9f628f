"""The outer loops of a kernel: division of points among threads, and sequential loops around the phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.borders import Segment, segments
from litz_codegen_cpp.emit.loops.phases import step_text, vector_loop, whole_end, whole_steps
from litz_codegen_cpp.emit.loops.registers import phases_registers
from litz_codegen_cpp.emit.loops.tiles import LINE_BYTES, TransposedTiles, tile_rows, transposed_accesses
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import Kernel, Phase, cpu_loops
from litz_ir.symbols import Size, cdiv, product

_FEW = 4
"""The most points of a segment that are computed one by one, such as those that padding adds."""

Points = Callable[[tuple[Phase, ...]], None]
"""A function that writes phases of an outer point, or of those in the registers of an open vector loop."""


@dataclass(frozen=True, slots=True)
class OuterLoopPlan:
    """The division of a kernel's outer axes."""

    parallel: tuple[Axis, ...]
    """Leading axes, whose points are divided among threads."""
    sequential: tuple[Axis, ...]
    """The other axes."""
    vector: Axis | None
    """The last axis, where it runs along the lanes."""
    registers: int
    """The registers of a step along the vector axis."""
    tiled: Axis | None = None
    """The axis before the vector axis, where it is divided into tiles that run inside each step of the vector axis."""
    tile: int = LINE_BYTES // 4
    """The rows of such a tile."""

    @property
    def splits_vector(self) -> bool:
        """True when threads divide steps of the vector axis."""
        return self.vector is not None and not self.sequential


def outer_of(kernel: Kernel, registers: int) -> OuterLoopPlan:
    """Divide the outer axes as the schedule says; raises :class:`CodegenError` when it does not fit them."""
    schedule = cpu_loops(kernel.schedule)
    names = [axis.name for axis in kernel.outer]
    count = len(schedule.parallel)
    if tuple(names[:count]) != schedule.parallel:
        raise CodegenError(
            f"parallel axes {schedule.parallel} do not lead the outer axes {tuple(names)}", node=kernel.name,
            hint="order the outer axes so that those divided among threads come first",
        )  # fmt: skip
    vector = None
    if schedule.vector in names:
        if names[-1] != schedule.vector:
            raise CodegenError(
                f"vector axis {schedule.vector!r} is an outer axis but not the last one", node=kernel.name,
                hint="make it the last outer axis, or an inner one",
            )  # fmt: skip
        vector = kernel.outer[-1]
    made = OuterLoopPlan(kernel.outer[:count], kernel.outer[count:], vector, registers)
    if vector is None or not _can_tile(made, kernel):
        return made
    return replace(made, tiled=kernel.outer[-2], tile=tile_rows(transposed_accesses(kernel)))


def sequential(kernel: Kernel) -> OuterLoopPlan:
    """Return a division in which no outer axis is divided among threads or runs along the lanes."""
    return OuterLoopPlan((), kernel.outer, None, 1)


def _can_tile(outer: OuterLoopPlan, kernel: Kernel) -> bool:
    """Return True when tiles of the axis before the vector axis are useful and its points may run in any order."""
    if len(kernel.outer) < 2 or kernel.outer[-2] not in outer.parallel:
        return False
    return bool(transposed_accesses(kernel))


@dataclass(frozen=True, slots=True)
class _Steps:
    """Points of the vector axis that a loop computes, as text."""

    first: str
    """The first point."""
    stop: str
    """The point after the last one."""
    size: Size | None
    """The number of points of all threads, None where borders divide it unevenly."""
    registers: int
    """The registers of a step."""
    origin: str = "0"
    """A point that is a whole number of steps before the first."""


class OuterLoops:
    """Writes the outer loops around ``points``; ``begin`` and ``end`` name a thread's range of parallel steps."""

    def __init__(self, body: ExpressionEmitter, outer: OuterLoopPlan, points: Points) -> None:
        self.body = body
        self.context = body.context
        self.outer = outer
        self.points = points
        self.step = step_text(outer.registers)
        self.tile: tuple[Axis, str, str] | None = None
        self.tiles = TransposedTiles(body, outer.registers)

    def write(self) -> None:
        """Write the loops at the innermost scope."""
        parallel = self.outer.parallel
        if not parallel:
            self._sequential(self.outer.sequential)
            return
        last, splits = parallel[-1], self.outer.splits_vector
        with ExitStack() as stack:
            first, stop = "begin", "end"
            if len(parallel) > 1:
                first, stop = self._rows(stack, parallel)
            if splits:
                self._vector(last, *self._points(last, first, stop))
                return
            if last is self.outer.tiled:
                self._enter_tiles(stack, last, first, stop)
            else:
                stack.enter_context(self._loop(last, first, stop))
            self._sequential(self.outer.sequential)

    def _enter_tiles(self, stack: ExitStack, axis: Axis, first: str, stop: str) -> None:
        """Open a loop over tiles of the last parallel axis."""
        name = self.context.axis_names[axis.name]
        low, high = self.context.names.fresh(f"{name}_tile"), self.context.names.fresh(f"{name}_end")
        opening = f"for (int64_t {low} = {first}; {low} < {stop}; {low} += {self.outer.tile}) {{"
        stack.enter_context(self.context.scopes.block(opening))
        self.context.scopes.line(
            f"const int64_t {high} = minimum<int64_t>({stop}, {low} + {self.outer.tile});"
        )
        self._start_tile(axis, low, high)

    def _start_tile(self, axis: Axis, low: str, high: str) -> None:
        """Remember the range of the tiled axis that the innermost scope defines, and declare the copies of tiles."""
        self.tile = (axis, low, high)
        self.tiles.declare(axis, self.outer.tile, low)

    def count(self) -> str:
        """Return the number of steps that threads divide, at the innermost scope."""
        parallel = self.outer.parallel
        rows = self.body.scalar(product(map(self._steps_of, parallel[:-1])))
        length = self._length(parallel[-1])
        return length if rows.text == "1" else f"{rows.bracketed()} * {length}"

    def grain(self) -> str:
        """Return the least number of steps for a thread."""
        points = cpu_loops(self.body.context.kernel.schedule).grain
        if not self.outer.splits_vector or points <= 1:
            return str(max(1, points))
        step = f"({self.outer.tile} * {self.step})" if self.outer.tiled else self.step
        return f"({points} + {step} - 1) / {step}"

    def _points(self, axis: Axis, first: str, stop: str) -> tuple[str, str]:
        """Convert a range of steps to a range of points."""
        name = self.context.axis_names[axis.name]
        size = self.body.scalar(axis.size).text
        line = self.context.scopes.line
        low, high = self.context.names.fresh(f"{name}_begin"), self.context.names.fresh(f"{name}_end")
        line(f"const int64_t {low} = {first} * {self.step};")
        if whole_steps(axis.size, self.outer.registers * self.context.lanes) == "all":
            line(f"const int64_t {high} = {stop} * {self.step};")
        else:
            line(f"const int64_t {high} = minimum<int64_t>({size}, {stop} * {self.step});")
        return low, high

    def _rows(self, stack: ExitStack, parallel: tuple[Axis, ...]) -> tuple[str, str]:
        """Open a loop over the points of all parallel axes but the last.

        Returns the range of the last axis within each point.
        """
        context, last = self.context, parallel[-1]
        length = self._length(last)
        name = context.axis_names[last.name]
        row, remaining = context.names.fresh("row"), context.names.fresh("left")
        first, stop = context.names.fresh(f"{name}_first"), context.names.fresh(f"{name}_stop")
        context.scopes.line(f"int64_t {row} = begin / {length}, {first} = begin % {length};")
        opening = f"for (int64_t {remaining} = end - begin; {remaining} > 0; ++{row}, {first} = 0) {{"
        stack.enter_context(context.scopes.block(opening))
        context.scopes.line(f"const int64_t {stop} = minimum<int64_t>({length}, {first} + {remaining});")
        context.scopes.line(f"{remaining} -= {stop} - {first};")
        self._decode(row, parallel[:-1])
        return first, stop

    def _decode(self, row: str, axes: tuple[Axis, ...]) -> None:
        """Define the axes whose row-major position is ``row``; of a tiled axis, the range of its tile."""
        context, line = self.context, self.context.scopes.line
        for position, axis in enumerate(axes):
            text = row
            inner = axes[position + 1 :]
            if inner:
                block = self.body.scalar(product(map(self._steps_of, inner))).bracketed()
                text, rest = f"{row} / {block}", context.names.fresh("row")
                line(f"const int64_t {rest} = {row} % {block};")
                row = rest
            own = context.axis_names[axis.name]
            if axis is not self.outer.tiled:
                line(f"const int64_t {own} = {text};")
                context.scopes.stack[-1].axes[axis.name] = own
                continue
            low, high = context.names.fresh(f"{own}_tile"), context.names.fresh(f"{own}_end")
            size = self.body.scalar(axis.size).text
            line(f"const int64_t {low} = {text} * {self.outer.tile};")
            line(f"const int64_t {high} = minimum<int64_t>({size}, {low} + {self.outer.tile});")
            self._start_tile(axis, low, high)

    def _steps_of(self, axis: Axis) -> Size:
        """Return the number of steps of an axis: its points, or its tiles."""
        return cdiv(axis.size, self.outer.tile) if axis is self.outer.tiled else axis.size

    def _length(self, axis: Axis) -> str:
        """Return the number of steps along the last parallel axis."""
        size = self.body.scalar(axis.size).bracketed()
        if not self.outer.splits_vector:
            return size
        text = f"({size} + {self.step} - 1) / {self.step}"
        name = self.context.names.fresh("steps")
        self.context.scopes.line(f"const int64_t {name} = {text};")
        return name

    def _sequential(self, axes: tuple[Axis, ...]) -> None:
        """Write the sequential loops around the phases."""
        with ExitStack() as stack:
            plain = axes[:-1] if axes and self.outer.vector is axes[-1] else axes
            for axis in plain:
                stack.enter_context(self._loop(axis, "0", self.body.scalar(axis.size).bracketed()))
            if len(plain) < len(axes):
                self._vector(axes[-1], "0", self.body.scalar(axes[-1].size).bracketed())
            else:
                self._point(self.context.kernel.phases)

    @contextmanager
    def _loop(self, axis: Axis, first: str, stop: str) -> Iterator[None]:
        name = self.context.axis_names[axis.name]
        with self.context.scopes.block(
            f"for (int64_t {name} = {first}; {name} < {stop}; ++{name}) {{"
        ) as scope:
            scope.axes[axis.name] = name
            yield

    def _vector(self, axis: Axis, first: str, stop: str) -> None:
        """Write the loops along the vector axis, from border to border where it is divided."""
        kernel, context = self.context.kernel, self.context
        divided: tuple[Segment, ...] = ()
        if self.tile is None and not kernel.scratch:
            divided = segments(kernel.phases, axis, context.ranges, context.lanes)
        if not divided:
            self._steps(_Steps(first, stop, axis.size, self.outer.registers), kernel.phases)
        for each in divided:
            size, low, high = each.high - each.low, str(each.low), str(each.high)
            if self.outer.splits_vector:
                low, high = self._common(axis, first, low, stop, high)
                steps = _Steps(low, high, None, self.outer.registers, low)
            else:
                registers = phases_registers(kernel, each.phases, size, context.lanes)
                steps = _Steps(low, high, size, registers, low)
            if size > _FEW:
                self._steps(steps, each.phases)
                continue
            with self._loop(axis, low, high):
                self._point(each.phases)

    def _common(self, axis: Axis, first: str, low: str, stop: str, high: str) -> tuple[str, str]:
        """Define the points of a segment that a thread computes."""
        name = self.context.axis_names[axis.name]
        begin, end = self.context.names.fresh(f"{name}_begin"), self.context.names.fresh(f"{name}_end")
        self.context.scopes.line(f"const int64_t {begin} = maximum<int64_t>({first}, {low});")
        self.context.scopes.line(f"const int64_t {end} = minimum<int64_t>({stop}, {high});")
        return begin, end

    def _steps(self, steps: _Steps, phases: tuple[Phase, ...]) -> None:
        """Write a loop of whole steps of the vector axis, then a loop of single registers for the tail."""
        axis, lanes = self.context.kernel.outer[-1], self.context.lanes
        step = step_text(steps.registers)
        whole = whole_steps(steps.size, steps.registers * lanes)
        limit = steps.stop
        if whole == "some":
            limit = self.context.names.fresh(f"{self.context.axis_names[axis.name]}_whole")
            end = whole_end(steps.origin, steps.stop, step)
            self.context.scopes.line(f"const int64_t {limit} = {end};")
        if whole != "none":
            with vector_loop(self.body, axis, steps.first, limit, step, steps.registers, None):
                self._point(phases)
        if whole != "all":
            masked = not (isinstance(steps.size, int) and steps.size % lanes == 0)
            start = steps.first if whole == "none" else limit
            end = steps.stop
            with vector_loop(self.body, axis, start, end, LANES, 1, end if masked else None):
                self._point(phases)

    def _point(self, phases: tuple[Phase, ...]) -> None:
        if self.tile is None:
            self.context.point = self.context.scopes.top
            self.points(phases)
            return
        with self.tiles.copied(*self.tile), self._loop(*self.tile):
            self.context.point = self.context.scopes.top
            self.points(phases)
