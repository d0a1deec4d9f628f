"""Emission of kernels as C++ functions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from litz_codegen_cpp.capabilities import PANEL_VECTORS
from litz_codegen_cpp.emit.attention.few_rows import FewRowsWriter
from litz_codegen_cpp.emit.attention.writer import AttentionWriter
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.bodies.moves import with_moved_bits
from litz_codegen_cpp.emit.loops.parallel import OuterLoops, outer_of, sequential
from litz_codegen_cpp.emit.loops.phases import PhaseWriter, positive, stored_buffers
from litz_codegen_cpp.emit.loops.reduction import STATE_CLASSES
from litz_codegen_cpp.emit.loops.registers import expressions, outer_registers
from litz_codegen_cpp.emit.loops.tiled_sums import TiledLoops
from litz_codegen_cpp.emit.source.context import BufferPointer, Context
from litz_codegen_cpp.emit.source.entry_points import CALLED, entry_point
from litz_codegen_cpp.emit.source.scopes import CppValue, indented
from litz_codegen_cpp.emit.source.spelling import CppNames, memory_type, remark
from litz_ir.dtypes import b1, f64, i64
from litz_ir.errors import CodegenError
from litz_ir.faults import FAULTS
from litz_ir.plan import (
    CpuAttention,
    CpuLoops,
    CpuTiledSum,
    Kernel,
    Phase,
    attention_of,
    tiled_sum_of,
    with_user_combiners,
)
from litz_ir.scalar import HEAVY, OPS, Op
from litz_ir.symbols import Range, extent

OUT_OF_MEMORY = 2
"""The error code of a kernel that could not allocate its scratch."""

_STACK_BYTES = 64 << 10
"""Scratch of up to this many bytes is on a thread's stack, larger scratch on the heap."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """The C++ text of one kernel."""

    name: str
    """The kernel's name in the plan."""
    text: str
    """The text."""
    headers: frozenset[str] = frozenset()
    """The headers that it includes, without path and suffix."""
    heavy: int = 0
    """Inlined copies of expensive maths functions."""


def emit_kernel(kernel: Kernel, lanes: int, comment: str = "") -> Emitted:
    """Return the C++ text of a kernel, for vectors of ``lanes`` lanes or a smaller power of two.

    Raises ``CodegenError``, also for a horizontally fused kernel, which no CPU runs.
    """
    if kernel.subkernels:
        raise CodegenError(
            "a CPU runs no horizontally fused kernels", node=kernel.name,
            hint="plan for a target with max_subkernels = 1",
        )  # fmt: skip
    if not isinstance(kernel.schedule, CpuAttention):
        kernel = with_moved_bits(with_user_combiners(kernel, STATE_CLASSES))
    return _KernelWriter(kernel, lanes, comment).write()


class _KernelWriter:
    """Writes one kernel: its signature, its buffers and scratch, and its loops."""

    def __init__(self, kernel: Kernel, lanes: int, comment: str) -> None:
        self.kernel = kernel
        self.comment = comment
        self.lanes = lanes
        looped = isinstance(kernel.schedule, CpuLoops)
        self.registers = outer_registers(kernel, lanes) if looped else 1
        self.outer = outer_of(kernel, self.registers) if looped else sequential(kernel)
        self.threaded = not looped or bool(self.outer.parallel)
        self.symbol = entry_point(kernel.name)
        self.body = self._body()

    def _body(self) -> ExpressionEmitter:
        """Return an emitter with the kernel's symbols and buffers, and a function scope of its own."""
        kernel = self.kernel
        axes = (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes))
        ranges = {axis.name: extent(axis.size) for axis in axes}
        ranges.update((info.name, info.range) for info in kernel.symbols if info.kind != "float")
        ranges[LANES] = Range(1, 64)
        names = CppNames(CALLED | {self.symbol})
        context = Context(kernel, names, ranges, self.lanes)
        context.buffers = {p.name: BufferPointer(names.exact(p.name), p.dtype) for p in kernel.parameters}
        laned = self.outer.vector is not None
        context.buffers.update(
            (array.name, BufferPointer(names.exact(array.name), array.dtype, laned))
            for array in kernel.scratch
        )
        context.axis_names = {name: names.exact(name) for name in dict.fromkeys(axis.name for axis in axes)}
        context.written = frozenset[str]().union(*(stored_buffers(phase) for phase in kernel.phases))
        return ExpressionEmitter(context)

    def write(self) -> Emitted:
        """Return the kernel, with the function that each thread runs where outer points are divided among threads."""
        comment = [f"// {remark(self.comment)}"] if self.comment else []
        if any(axis.size == 0 for axis in self.kernel.outer):
            text = [*comment, self._signature(), "  return 0;", "}"]
        elif self.threaded:
            text = [*self._range_function(comment), "", *self._launcher()]
        else:
            text = [*comment, *self._serial()]
        return Emitted(self.kernel.name, "\n".join(text) + "\n", self._headers(), self._heavy())

    def _headers(self) -> frozenset[str]:
        """Return the headers of the called functions; ``float8`` where an 8-bit float is used."""
        kernel = self.kernel
        used = chain(
            (parameter.dtype for parameter in kernel.parameters),
            (array.dtype for array in kernel.scratch),
            (node.dtype for node in expressions(kernel.phases)),
        )
        has_float8 = any(dtype.is_narrow for dtype in used)
        return frozenset(self.body.headers).union(("float8",) if has_float8 else ())

    def _heavy(self) -> int:
        """Return the number of inlined expensive functions; a vector loop has a second copy for its tail."""
        schedule = self.kernel.schedule
        loops = 1 if isinstance(schedule, CpuLoops) and schedule.vector is None else 2
        return loops * sum(
            1
            for node in expressions(self.kernel.phases)
            if isinstance(node, Op) and OPS[node.name].cost > HEAVY
        )

    def _signature(self) -> str:
        return (
            f'extern "C" int64_t {self.symbol}(litz_runtime* rt, void** buffers, const int64_t* symbols) {{'
        )

    def _range_function(self, comment: list[str]) -> list[str]:
        """Return the function that computes a range of the parallel steps."""
        opening = (
            f"static void {self.symbol}_range(void** buffers, const int64_t* symbols, int64_t* error, "
            "int64_t begin, int64_t end) {"
        )
        self._function_body()
        return [*comment, opening, *indented(self.body.context.scopes.stack[0].lines), "}"]

    def _launcher(self) -> list[str]:
        """Return the entry point that divides the parallel steps among threads."""
        body = self._body()
        self._symbols(body)
        self._return_if_empty(body, "return 0;")
        loops = self._loops(body)
        line = body.context.scopes.line
        count = loops.count()
        line(
            f"return parallel_range(rt, 0, {count}, {loops.grain()}, {self.symbol}_range, buffers, symbols);"
        )
        return [self._signature(), *indented(body.context.scopes.stack[0].lines), "}"]

    def _serial(self) -> list[str]:
        """Return the entry point of a kernel that runs on one thread."""
        scopes = self.body.context.scopes
        scopes.line("int64_t failure = 0, *const error = &failure;")
        self._function_body("return failure;")
        scopes.line("return failure;")
        lines = scopes.stack[0].lines
        if not any("report(error" in line for line in lines):
            lines = [line.replace("return failure;", "return 0;") for line in lines[1:]]
        return [self._signature(), *indented(["if (idle(rt)) return 0;", *lines]), "}"]

    # --- inside the function --------------------------------------------------------------------------------

    def _function_body(self, leave: str = "return;") -> None:
        """Write symbols, buffers, scratch and loops; ``leave`` is the statement of an early return."""
        context, scopes = self.body.context, self.body.context.scopes
        self._symbols(self.body)
        if not self.threaded:
            self._return_if_empty(self.body, leave)
        self._buffers()
        on_heap = self._scratch(leave)
        start = len(scopes.stack[0].lines)
        self._loops(self.body).write()
        for position, (fault, flag) in enumerate(context.faults.items()):
            scopes.stack[0].lines.insert(start + position, f"bool {flag} = false;")
            scopes.line(f"if ({flag}) report(error, {FAULTS[fault].code});")
        for pointer in on_heap:
            scopes.line(f"__builtin_free({pointer});")

    def _symbols(self, body: ExpressionEmitter) -> None:
        """Define the symbols that the kernel uses; ints and bools can be index terms, all can be scalars."""
        context = body.context
        for position, info in enumerate(self.kernel.symbols):
            name = context.names.exact(info.name)
            source = f"symbols[{position}]"
            if info.kind == "float":
                context.scopes.line(f"const double {name} = bits_as<double>({source});")
                value = CppValue((name,), f64, 0)
            else:
                context.scopes.line(f"const int64_t {name} = {source};")
                context.scopes.stack[0].axes[info.name] = name
                value = CppValue((name,), i64, 0)
                if info.kind == "bool":
                    value = CppValue((f"({name} != 0)",), b1, 0)
            context.scopes.remember(("scalar", info.name), value)

    def _return_if_empty(self, body: ExpressionEmitter, leave: str) -> None:
        """Return early when an outer axis is empty, since hoisted loads are not valid then."""
        uncertain = [axis.size for axis in self.kernel.outer if not positive(body.context.ranges, axis.size)]
        if uncertain:
            tests = " || ".join(f"{body.scalar(size).bracketed()} <= 0" for size in uncertain)
            body.context.scopes.line(f"if ({tests}) {leave}")

    def _buffers(self) -> None:
        """Define the pointers of the parameters."""
        context = self.body.context
        for position, parameter in enumerate(self.kernel.parameters):
            const = "const " if parameter.access == "in" else ""
            kind = memory_type(parameter.dtype)
            pointer = context.buffers[parameter.name].pointer
            context.scopes.line(f"{const}{kind}* {pointer} = ({const}{kind}*)buffers[{position}];")

    def _scratch(self, leave: str) -> list[str]:
        """Declare the scratch arrays, and return the pointers to free."""
        context = self.body.context
        copies = self.registers * self.lanes if self.outer.vector is not None else 1
        repeat = f" * {self.registers} * LITZ_LANES" if self.outer.vector is not None else ""
        stack_left = _STACK_BYTES
        on_heap: list[str] = []
        for array in self.kernel.scratch:
            kind, pointer = memory_type(array.dtype), context.buffers[array.name].pointer
            count = f"{array.size}ull"
            if isinstance(array.size, int):
                size = array.size * copies * array.dtype.itemsize
                if size <= stack_left:
                    stack_left -= size
                    context.scopes.line(f"alignas(64) {kind} {pointer}[{max(1, array.size)}{repeat}];")
                    continue
            else:
                count = f"uint64_t(maximum<int64_t>({self.body.scalar(array.size).text}, 1))"
            context.scopes.line(
                f"{kind}* {pointer} = ({kind}*)__builtin_malloc({count}{repeat} * sizeof({kind}));"
            )
            release = "".join(f" __builtin_free({each});" for each in on_heap)
            context.scopes.line(f"if (!{pointer}) {{ report(error, {OUT_OF_MEMORY});{release} {leave} }}")
            on_heap.append(pointer)
        return on_heap

    def _loops(self, body: ExpressionEmitter) -> OuterLoops | TiledLoops | AttentionWriter:
        """Return the writer of the schedule's form; raises :class:`CodegenError` where it does not suit the kernel."""
        kernel, schedule = self.kernel, self.kernel.schedule
        match schedule:
            case CpuAttention():
                form = attention_of(kernel, schedule)
                if form is not None:
                    return (FewRowsWriter if schedule.lanes == "columns" else AttentionWriter)(body, form)
            case CpuTiledSum():
                tiled = tiled_sum_of(kernel.outer, kernel.phases, schedule.columns)
                if tiled is not None and schedule.columns == PANEL_VECTORS * self.lanes:
                    return TiledLoops(body, tiled, schedule.grain, lambda: self._phases(kernel.phases[1:]))
            case CpuLoops():
                return OuterLoops(body, self.outer, self._phases)
        raise CodegenError(
            f"a kernel does not suit its schedule of the form {type(schedule).__name__}", node=kernel.name,
            hint="schedule the graph for the capabilities of the target that emits it, and verify the plan",
        )  # fmt: skip

    def _phases(self, phases: tuple[Phase, ...]) -> None:
        """Write phases of one outer point."""
        for phase in phases:
            PhaseWriter(self.body, phase).write()
