"""Phases in C++: the loop nests inside one outer point."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile

from litz_codegen_cpp.emit.bodies.bf16_pairs import are_adjacent, multiplies_bf16
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.bodies.traversal import always_evaluated
from litz_codegen_cpp.emit.loops.borders import segments
from litz_codegen_cpp.emit.loops.reduction import Accumulator, accumulator, products_of
from litz_codegen_cpp.emit.loops.registers import phase_registers
from litz_codegen_cpp.emit.loops.scan import ScanWriter, scans_lanes
from litz_codegen_cpp.emit.source.prefetch import matrices, streams
from litz_codegen_cpp.emit.source.scopes import ActiveLanes, CppValue
from litz_ir.loops import Axis, NamedCombiner, UserCombiner
from litz_ir.plan import Accumulate, Phase, ScanStore, Statement, Store, cpu_loops
from litz_ir.scalar import indirects, indirects_in
from litz_ir.symbols import Range, Size, bounds, free_symbols

_SUM = NamedCombiner("sum")

_BLOCK = 128
"""Additions to one accumulator after which a long sum of floats starts a new block, for accuracy."""

_MOST_PRODUCTS = 2
"""The products that a register tile adds to a sum at one point of its inner loop, of two elements in a byte."""


def stored_buffers(phase: Phase) -> frozenset[str]:
    """Return the buffers that a phase writes."""
    found: set[str] = set()
    for statement in phase.statements:
        if isinstance(statement, Store):
            found.add(statement.buffer)
        elif isinstance(statement, ScanStore):
            found.update(buffer for buffer, _ in statement.targets)
    return frozenset(found)


def _checked_sizes(phase: Phase) -> tuple[tuple[Size, str], ...]:
    """Return the dimension sizes of indices that a phase checks at every point, each with its fault."""
    axes = {axis.name for axis in phase.axes}
    stores = [statement for statement in phase.statements if isinstance(statement, Store)]
    others = (value for each in phase.statements if not isinstance(each, Store) for value in each.values)
    atoms = [
        atom
        for node in always_evaluated((*(store.value for store in stores), *others))
        for atom in indirects(node)
    ]
    atoms.extend(atom for store in stores for atom in indirects_in(store.offset))
    checked = [atom for atom in atoms if atom.check != "assumed" and not free_symbols(atom.size) & axes]
    return tuple(dict.fromkeys((atom.size, atom.fault) for atom in checked))


def _runs_along(phase: Phase, vector: str | None) -> bool:
    """Return True when the lanes of a vector can be consecutive points of the phase's last axis."""
    if vector is None or not phase.axes or phase.axes[-1].name != vector:
        return False
    return not any(
        (isinstance(s, ScanStore) and not scans_lanes(s))
        or (isinstance(s, Accumulate) and isinstance(s.combiner, UserCombiner))
        for s in phase.statements
    )


def _is_register_tile(phase: Phase) -> bool:
    """Return True for the sums of a register tile of a matmul: sums of products, in each of which every product has a
    factor of another sum."""
    sums = [each for each in phase.statements if isinstance(each, Accumulate) and each.combiner == _SUM]
    products = [products_of(each.values[0]) for each in sums]
    if len(sums) != len(phase.statements) or len(sums) < 2:
        return False
    uses = Counter(
        factor for each in products for factor in {factor for factors in each or () for factor in factors}
    )
    return all(each and all(any(uses[x] > 1 for x in factors) for factors in each) for each in products)


def _fills_two(phase: Phase, lanes: int) -> bool:
    """Return True for sums over products of bf16 numbers, two registers of which are added to one."""
    size = phase.axes[-1].size
    sums = [products_of(each.values[0]) or () for each in phase.statements if isinstance(each, Accumulate)]
    long = not isinstance(size, int) or size >= 2 * lanes
    return long and all(multiplies_bf16(each) and not are_adjacent(each) for each in sums)


class PhaseWriter:
    """Writes one phase at the innermost scope, which is that of an outer point."""

    def __init__(self, body: ExpressionEmitter, phase: Phase) -> None:
        self.body = body
        self.context = body.context
        self.phase = phase
        self.across = self.context.vector is not None
        self.along = not self.across and _runs_along(phase, cpu_loops(self.context.kernel.schedule).vector)
        self.registers = self.context.registers
        if self.along:
            self.registers = phase_registers(self.context.kernel, phase, self.context.lanes)
        self.fused = _is_register_tile(phase)
        if self.along and self.fused and self.registers == 1 and _fills_two(phase, self.context.lanes):
            self.registers = 2
        self.accumulators: dict[int, Accumulator] = {}
        self.scans: dict[int, ScanWriter] = {}

    def write(self) -> None:
        """Write the declarations, the loops and the definitions of results."""
        context = self.context
        context.storing = stored_buffers(self.phase)
        self._stream()
        context.scopes.forget(context.storing)
        for number, statement in enumerate(self.phase.statements):
            if isinstance(statement, Accumulate):
                made = accumulator(
                    self.body,
                    statement.combiner,
                    statement.values,
                    registers=self.registers,
                    across=self.across,
                    along=self.along,
                    fused=self.fused,
                )
                made.declare()
                self.accumulators[number] = made
            elif isinstance(statement, ScanStore):
                self.scans[number] = ScanWriter(
                    self.body,
                    statement,
                    across=self.across,
                    along=self.phase.axes[-1].name if self.along else None,
                )
        with self._not_empty():
            self._nest(self.phase.axes)
        for number, statement in enumerate(self.phase.statements):
            if isinstance(statement, Accumulate):
                results = statement.results
                values = self.accumulators[number].results(tuple(dtype for _, dtype in results))
                for (name, _), value in zip(results, values):
                    context.scopes.remember(("scalar", name), value)
        context.storing = context.streamed = frozenset()
        context.streams = {}

    def _stream(self) -> None:
        """Have the loads of a register tile prefetch those of the next, unless an earlier phase of the point read the
        same rows."""
        kernel = self.context.kernel
        if not self.fused or not kernel.outer:
            return
        axis, sums = kernel.outer[-1].name, [each for each in kernel.phases if each.axes]
        earlier = takewhile(lambda each: each is not self.phase, sums)
        if matrices(self.phase, axis) in [matrices(each, axis) for each in earlier]:
            return
        self.context.streamed = frozenset(axis.name for axis in kernel.outer)
        self.context.streams = streams(self.phase, sums, axis)

    @contextmanager
    def _not_empty(self) -> Iterator[None]:
        """Write the loops under a test that they have points, so that nothing is hoisted out of an empty loop.

        Where there are points, an index into an empty dimension is reported before anything is read.
        """
        ranges = self.context.ranges
        tests = [self._some(axis.size) for axis in self.phase.axes if not positive(ranges, axis.size)]
        faults: dict[str, list[Size]] = {}
        for size, fault in _checked_sizes(self.phase):
            if not positive(ranges, size):
                faults.setdefault(fault, []).append(size)
        empty = [self._some(size) for sizes in faults.values() for size in sizes]
        if empty:
            for fault, sizes in faults.items():
                violated = " && ".join([*tests, f"!({' && '.join(map(self._some, sizes))})"])
                self.context.scopes.line(f"{self.context.flag(fault)} |= {violated};")
        if not tests and not empty:
            yield
            return
        with self.context.scopes.block(f"if ({' && '.join([*tests, *empty])}) {{", "block", conditional=True):
            yield

    def _some(self, size: Size) -> str:
        """Return a test that a size is positive."""
        return f"{self.body.scalar(size).bracketed()} > 0"

    # --- loops ----------------------------------------------------------------------------------------------

    def _nest(self, axes: tuple[Axis, ...]) -> None:
        """Write the loops over these axes."""
        if not axes:
            for scan in self.scans.values():
                scan.start()
            self._statements(self.phase.statements)
            return
        if len(axes) > 1:
            name, size = self._axis(axes[0]), self.body.scalar(axes[0].size).bracketed()
            with self.context.scopes.block(
                f"for (int64_t {name} = 0; {name} < {size}; ++{name}) {{"
            ) as scope:
                scope.axes[axes[0].name] = name
                self._nest(axes[1:])
            return
        for scan in self.scans.values():
            scan.start()
        if self.along:
            self._vector_loops(axes[0])
        else:
            self._blocked(axes[0], "0", self.body.scalar(axes[0].size).bracketed(), "1", self._scalar_loop)
        if len(self.phase.axes) > 1:
            self._settle_rarely()

    def _settle_rarely(self) -> None:
        """End a block of every sum after a loop inside others, of short ones after several."""
        shape = [axis.size for axis in self.phase.axes]
        sizes = [size for size in shape if isinstance(size, int)]
        steps = (
            -(-sizes[-1] // (self.registers * self.context.lanes))
            if self.along and len(sizes) == len(shape)
            else 0
        )
        if not steps or not self.fused:
            self._settle()
            return
        every = max(_BLOCK // (steps * _MOST_PRODUCTS), 1)
        if math.prod(sizes[:-1]) <= 2 * every:
            return
        if every == 1 or len(sizes) > 2:
            self._settle()
            return
        name = self._axis(self.phase.axes[0])
        with self.context.scopes.block(f"if ({name} % {every} == {every - 1}) {{", "block", conditional=True):
            self._settle()

    def _axis(self, axis: Axis) -> str:
        return self.context.axis_names[axis.name]

    def _scalar_loop(self, axis: Axis, start: str, stop: str) -> None:
        name = self._axis(axis)
        with self.context.scopes.block(
            f"for (int64_t {name} = {start}; {name} < {stop}; ++{name}) {{"
        ) as scope:
            scope.axes[axis.name] = name
            self._statements(self.phase.statements)

    def _blocked(
        self, axis: Axis, start: str, stop: str, step: str, loop: Callable[[Axis, str, str], None]
    ) -> None:
        """Write a loop, divided into blocks where it sums many floats."""
        length = bounds(axis.size, self.context.ranges).high
        per_step = 1 if step == "1" else self.registers * self.context.lanes
        sums = any(made.settles for made in self.accumulators.values())
        if not sums or (length is not None and length // per_step <= 2 * _BLOCK):
            loop(axis, start, stop)
            return
        first, last = self.context.names.fresh("block"), self.context.names.fresh("stop")
        stride = f"{_BLOCK}" if step == "1" else f"{_BLOCK} * {step}"
        with self.context.scopes.block(
            f"for (int64_t {first} = {start}; {first} < {stop}; {first} += {stride}) {{"
        ):
            self.context.scopes.line(f"const int64_t {last} = minimum<int64_t>({stop}, {first} + {stride});")
            loop(axis, first, last)
            self._settle()

    def _settle(self) -> None:
        """End a block of every sum."""
        for made in self.accumulators.values():
            made.settle()

    def _vector_loops(self, axis: Axis) -> None:
        """Write a loop of steps of ``registers`` registers, then a loop of single registers for the tail."""
        divided = segments((self.phase,), axis, self.context.ranges, self.context.lanes)
        if not divided:
            text = self.body.scalar(axis.size).bracketed()
            self._vector_steps(axis, axis.size, "0", text, self.phase.statements)
        for each in divided:
            size = each.high - each.low
            self._vector_steps(axis, size, str(each.low), str(each.high), each.phases[0].statements)

    def _vector_steps(
        self, axis: Axis, size: Size, first: str, text: str, statements: tuple[Statement, ...]
    ) -> None:
        """Write the loops from ``first`` to ``text``, which are so many points."""
        step = step_text(self.registers)
        whole = whole_steps(size, self.registers * self.context.lanes)
        stop = text
        if whole == "some":
            stop = self.context.names.fresh(f"{self._axis(axis)}_whole")
            self.context.scopes.line(f"const int64_t {stop} = {whole_end(first, text, step)};")
        if whole != "none":

            def loop(axis: Axis, start: str, stop: str) -> None:
                with vector_loop(self.body, axis, start, stop, step, self.registers, None):
                    self._statements(statements)

            self._blocked(axis, first, stop, step, loop)
        if whole != "all":
            masked = not (isinstance(size, int) and size % self.context.lanes == 0)
            start = stop if whole == "some" else first
            with vector_loop(self.body, axis, start, text, LANES, 1, text if masked else None):
                self._statements(statements)

    # --- statements -----------------------------------------------------------------------------------------

    def _statements(self, statements: tuple[Statement, ...]) -> None:
        """Write all values and then the stores, since a phase reads the memory as it was before it."""
        values: dict[int, CppValue] = {}
        for number, statement in enumerate(statements):
            match statement:
                case Store():
                    values[number] = self.body.to_store(statement.value)
                case Accumulate():
                    self.accumulators[number].add(statement.values)
                case ScanStore():
                    self.scans[number].step()
        for number, statement in enumerate(statements):
            if isinstance(statement, Store):
                self.body.memory.store(statement.buffer, statement.offset, values[number], statement.mode)
            elif isinstance(statement, ScanStore):
                self.scans[number].store()


@contextmanager
def vector_loop(
    body: ExpressionEmitter, axis: Axis, start: str, stop: str, step: str, registers: int, end: str | None
) -> Iterator[None]:
    """Open a loop whose steps take ``registers`` registers along ``axis``.

    With ``end``, lanes from there on are inactive.
    """
    context = body.context
    name = context.axis_names[axis.name]
    opening = f"for (int64_t {name} = {start}; {name} < {stop}; {name} += {step.strip('()')}) {{"
    with context.scopes.block(opening) as scope, context.vectorised(axis.name, registers):
        scope.axes[axis.name] = name
        if end is not None:
            remaining = context.names.fresh("left")
            context.scopes.line(f"const int64_t {remaining} = {end} - {name};")
            scope.lanes = ActiveLanes(count=remaining)
        yield


def step_text(registers: int) -> str:
    """Return the points in so many registers, as an operand."""
    return LANES if registers == 1 else f"({registers} * {LANES})"


def whole_end(first: str, stop: str, step: str) -> str:
    """Return the point after the whole steps from ``first``."""
    return f"{stop} / {step} * {step}" if first == "0" else f"{first} + ({stop} - {first}) / {step} * {step}"


def whole_steps(size: Size | None, step: int) -> str:
    """Return whether ``all``, ``some`` or ``none`` of an axis is covered by whole steps."""
    if not isinstance(size, int):
        return "some"
    if size % step == 0:
        return "all"
    return "some" if size > step else "none"


def positive(ranges: Mapping[str, Range], size: Size) -> bool:
    """Return True when an extent is known to be at least 1."""
    low = bounds(size, ranges).low
    return low is not None and low >= 1
