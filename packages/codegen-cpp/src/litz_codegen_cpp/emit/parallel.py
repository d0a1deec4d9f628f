"""The outer loops of a kernel: which points a thread takes, and the sequential loops around the phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from litz_codegen_cpp.emit.body import ExpressionEmitter
from litz_codegen_cpp.emit.index import LANES
from litz_codegen_cpp.emit.loops import step_text, vector_loop, whole_steps
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import Kernel, Store, cpu_loops
from litz_ir.scalar import loads
from litz_ir.symbols import Size, cdiv, coefficient, product

TILE = 16
"""Rows of a tile: what shares a line of memory."""

Points = Callable[[], None]
"""Writes the phases of an outer point, or of those in the registers of an open vector loop."""


@dataclass(frozen=True, slots=True)
class OuterLoopPlan:
    """How a kernel's outer axes are run: ``parallel`` ones are divided among threads, ``sequential`` ones are not.

    ``vector`` is the last one where it runs along the lanes of ``registers`` registers. A ``tiled`` axis, the one
    before it, is cut into tiles that run inside each step of the vector axis.
    """

    parallel: tuple[Axis, ...]
    sequential: tuple[Axis, ...]
    vector: Axis | None
    registers: int
    tiled: Axis | None = None

    @property
    def splits_vector(self) -> bool:
        """True when blocks of the vector axis are what threads divide."""
        return self.vector is not None and not self.sequential


def outer_of(kernel: Kernel, parts: int) -> OuterLoopPlan:
    """Sort the outer axes; raises :class:`CodegenError` when the schedule does not fit them."""
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
    made = OuterLoopPlan(kernel.outer[:count], kernel.outer[count:], vector, parts)
    return replace(made, tiled=kernel.outer[-2]) if vector is not None and _can_tile(made, kernel) else made


def _can_tile(outer: OuterLoopPlan, kernel: Kernel) -> bool:
    """True when the axis before the vector axis is worth tiling and its points may run in any order."""
    if len(kernel.outer) < 2 or kernel.outer[-2] not in outer.parallel:
        return False
    return _transposes(kernel)


def _transposes(kernel: Kernel) -> bool:
    """True when some access walks memory along the last but one outer axis and jumps along the last one.

    Such a pointwise kernel touches each line of memory once per element unless both axes advance together.
    """
    if any(phase.axes for phase in kernel.phases):
        return False
    rows, lanes = kernel.outer[-2].name, kernel.outer[-1].name
    offsets: list[Size] = []
    for phase in kernel.phases:
        for statement in phase.statements:
            if isinstance(statement, Store):
                offsets.append(statement.offset)
                offsets.extend(load.index[0] for load in loads(statement.value))
    return any(coefficient(x, rows) == 1 and coefficient(x, lanes) not in (0, 1, None) for x in offsets)


class OuterLoops:
    """Writes the outer loops around ``points``; ``begin`` and ``end`` name a thread's range of shared steps."""

    def __init__(self, body: ExpressionEmitter, outer: OuterLoopPlan, points: Points) -> None:
        self.body = body
        self.context = body.context
        self.outer = outer
        self.points = points
        self.step = step_text(outer.registers)
        self.tile: tuple[Axis, str, str] | None = None

    def write(self) -> None:
        """All of it, at the innermost scope."""
        shared = self.outer.parallel
        if not shared:
            self._sequential(self.outer.sequential)
            return
        last, splits = shared[-1], self.outer.splits_vector
        with ExitStack() as stack:
            first, stop = "begin", "end"
            if len(shared) > 1:
                first, stop = self._rows(stack, shared)
            if splits:
                self._vector(last, *self._points(last, first, stop))
                return
            if last is self.outer.tiled:
                self._enter_tiles(stack, last, first, stop)
            else:
                stack.enter_context(self._loop(last, first, stop))
            self._sequential(self.outer.sequential)

    def _enter_tiles(self, stack: ExitStack, axis: Axis, first: str, stop: str) -> None:
        """A loop over tiles of the last shared axis."""
        name = self.context.axis_names[axis.name]
        low, high = self.context.names.fresh(f"{name}_tile"), self.context.names.fresh(f"{name}_end")
        opening = f"for (int64_t {low} = {first}; {low} < {stop}; {low} += {TILE}) {{"
        stack.enter_context(self.context.scopes.block(opening))
        self.context.scopes.line(f"const int64_t {high} = minimum<int64_t>({stop}, {low} + {TILE});")
        self.tile = (axis, low, high)

    def count(self) -> str:
        """The number of steps that threads divide, at the innermost scope."""
        shared = self.outer.parallel
        rows = self.body.scalar(product(map(self._turns, shared[:-1])))
        length = self._length(shared[-1])
        return length if rows.text == "1" else f"{rows.bracketed()} * {length}"

    def grain(self) -> str:
        """The least number of steps that a thread should get."""
        points = cpu_loops(self.body.context.kernel.schedule).grain
        if not self.outer.splits_vector or points <= 1:
            return str(max(1, points))
        step = f"({TILE} * {self.step})" if self.outer.tiled else self.step
        return f"({points} + {step} - 1) / {step}"

    def _points(self, axis: Axis, first: str, stop: str) -> tuple[str, str]:
        """A range of steps as a range of points."""
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

    def _rows(self, stack: ExitStack, shared: tuple[Axis, ...]) -> tuple[str, str]:
        """One turn per point of all shared axes but the last; gives the range of the last one within it."""
        context, last = self.context, shared[-1]
        length = self._length(last)
        name = context.axis_names[last.name]
        row, left = context.names.fresh("row"), context.names.fresh("left")
        first, stop = context.names.fresh(f"{name}_first"), context.names.fresh(f"{name}_stop")
        context.scopes.line(f"int64_t {row} = begin / {length}, {first} = begin % {length};")
        opening = f"for (int64_t {left} = end - begin; {left} > 0; ++{row}, {first} = 0) {{"
        stack.enter_context(context.scopes.block(opening))
        context.scopes.line(f"const int64_t {stop} = minimum<int64_t>({length}, {first} + {left});")
        context.scopes.line(f"{left} -= {stop} - {first};")
        self._decode(row, shared[:-1])
        return first, stop

    def _decode(self, row: str, axes: tuple[Axis, ...]) -> None:
        """Define the axes whose row-major position is ``row``; of a tiled one, the range of its tile."""
        context, line = self.context, self.context.scopes.line
        for position, axis in enumerate(axes):
            text = row
            inner = axes[position + 1 :]
            if inner:
                block = self.body.scalar(product(map(self._turns, inner))).bracketed()
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
            line(f"const int64_t {low} = {text} * {TILE};")
            line(f"const int64_t {high} = minimum<int64_t>({size}, {low} + {TILE});")
            self.tile = (axis, low, high)

    def _turns(self, axis: Axis) -> Size:
        """How many values of an axis a row number tells apart."""
        return cdiv(axis.size, TILE) if axis is self.outer.tiled else axis.size

    def _length(self, axis: Axis) -> str:
        """Steps along the last shared axis."""
        size = self.body.scalar(axis.size).bracketed()
        if not self.outer.splits_vector:
            return size
        text = f"({size} + {self.step} - 1) / {self.step}"
        name = self.context.names.fresh("steps")
        self.context.scopes.line(f"const int64_t {name} = {text};")
        return name

    def _sequential(self, axes: tuple[Axis, ...]) -> None:
        with ExitStack() as stack:
            plain = axes[:-1] if axes and self.outer.vector is axes[-1] else axes
            for axis in plain:
                stack.enter_context(self._loop(axis, "0", self.body.scalar(axis.size).bracketed()))
            if len(plain) < len(axes):
                self._vector(axes[-1], "0", self.body.scalar(axes[-1].size).bracketed())
            else:
                self._point()

    @contextmanager
    def _loop(self, axis: Axis, first: str, stop: str) -> Iterator[None]:
        name = self.context.axis_names[axis.name]
        with self.context.scopes.block(
            f"for (int64_t {name} = {first}; {name} < {stop}; ++{name}) {{"
        ) as scope:
            scope.axes[axis.name] = name
            yield

    def _vector(self, axis: Axis, first: str, stop: str) -> None:
        """Whole steps of the vector axis, then single registers for the rest of it."""
        parts, lanes = self.outer.registers, self.context.lanes
        whole = whole_steps(axis.size, parts * lanes)
        limit = stop
        if whole == "some":
            limit = self.context.names.fresh(f"{self.context.axis_names[axis.name]}_whole")
            self.context.scopes.line(f"const int64_t {limit} = {stop} / {self.step} * {self.step};")
        if whole != "none":
            with vector_loop(self.body, axis, first, limit, self.step, parts, None):
                self._point()
        if whole != "all":
            masked = not (isinstance(axis.size, int) and axis.size % lanes == 0)
            start = first if whole == "none" else limit
            with vector_loop(self.body, axis, start, stop, LANES, 1, stop if masked else None):
                self._point()

    def _point(self) -> None:
        with self._loop(*self.tile) if self.tile else nullcontext():
            self.context.point = self.context.scopes.top
            self.points()
