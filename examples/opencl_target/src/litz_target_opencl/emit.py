"""Emit kernels as OpenCL kernels: a loop nest for each phase, in a work item for each parallel point."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from litz_ir.errors import CodegenError
from litz_ir.interp import with_origin
from litz_ir.loops import SORT, Axis, Combiner, NamedCombiner, UserCombiner
from litz_ir.origin import UNKNOWN
from litz_ir.plan import (
    Accumulate,
    Kernel,
    Launch,
    Phase,
    Plan,
    ScanStore,
    ScratchArray,
    Store,
    cpu_loops,
    with_user_combiners,
)
from litz_ir.symbols import Size
from litz_target_opencl.body import HELPERS, Body
from litz_target_opencl.combine import UPDATES, running_values
from litz_target_opencl.ops_table import TYPES, cl_type, operation

_HEAD = "#pragma OPENCL FP_CONTRACT OFF\n\n// Elements in memory: buffers of different types may share it.\n"
_COMBINING = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_PARAMETER_BYTES = 1024
"""Most bytes of arguments that every device takes. Source: the OpenCL specification,
CL_DEVICE_MAX_PARAMETER_SIZE."""
_States: TypeAlias = "dict[Accumulate | ScanStore, list[str]]"


def entry_point(kernel: str) -> str:
    """Return the OpenCL name of a kernel; no two kernels have the same."""
    return f"litz_{kernel}" if re.fullmatch(r"[A-Za-z0-9_]+", kernel) else f"named_{kernel.encode().hex()}"


def remark(text: str) -> str:
    """Return a text as what may stand in a comment, whatever its author wrote: no end of the line, no
    backslash."""
    return re.sub(r"[^\w ,.:()-]", "_", text, flags=re.ASCII)


def parallel_axes(kernel: Kernel) -> tuple[Axis, ...]:
    """Return the axes for each point of which there is a work item: those that the schedule lets run in any
    order."""
    return kernel.outer[: len(cpu_loops(kernel.schedule).parallel)]


def workspaces(kernel: Kernel) -> tuple[ScratchArray, ...]:
    """Return the scratch arrays whose size is known at the launch alone, and which OpenCL C cannot
    declare."""
    return tuple(array for array in kernel.scratch if not isinstance(array.size, int))


def emit_plan(plan: Plan) -> str:
    """Emit one source for all kernels of a plan; raises :class:`CodegenError` naming the kernel and the
    user's line."""
    origins = {s.kernel: s.origins for s in plan.steps if isinstance(s, Launch) and s.origins}
    kernels = []
    for kernel in plan.kernels:
        fused = origins.get(kernel.name, ())
        with with_origin(kernel.name, fused[0].origin if fused else UNKNOWN):
            comment = ", ".join(dict.fromkeys(o.operation for o in fused))
            kernels.append(_Writer(with_user_combiners(kernel, UPDATES)).kernel_text(comment))
    text = "\n".join(kernels)
    for block in reversed(HELPERS):
        if f"{block.partition('(')[0].split()[-1]}(" in text:
            text = f"{block.strip()}\n\n{text}"
    types = "".join(
        f"typedef {'uchar' if dtype.is_bool else name} {dtype} __attribute__((may_alias));\n"
        for dtype, name in TYPES.items()
        if re.search(rf"\b{dtype} ", text)
    )
    return f"{_HEAD}{types}\n{text}"


class _Writer:
    """Emitter of one kernel. A work item ends as soon as an index is out of range, and leaves an error
    code."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.body = Body()
        self.dtypes = {each.name: each.dtype for each in kernel.parameters}
        self.dtypes.update((each.name, each.dtype) for each in kernel.scratch)

    def kernel_text(self, comment: str) -> str:
        """Return the text; ``comment`` names the operations that the kernel fuses.

        The arguments are each buffer with its first element, the integers and floats that are the kernel's
        symbols, a buffer for each workspace, and one for the error code if there is any.
        """
        kernel, body = self.kernel, self.body
        if kernel.subkernels:
            raise CodegenError(
                f"{kernel.name} is fused horizontally", hint="launch its subkernels one by one"
            )
        arguments = [*self.buffer_arguments(), *self.symbol_arguments()]
        with ExitStack() as outer:
            self.work_item()
            arguments += self.scratch_arrays()
            for axis in kernel.outer[len(parallel_axes(kernel)) :]:
                outer.enter_context(body.loop(axis.name, axis.size))
            for phase in kernel.phases:
                self.phase(phase)
        if body.faults:
            arguments.append("volatile __global int *fault")
        if 8 * len(arguments) > _PARAMETER_BYTES:
            raise CodegenError(
                f"{kernel.name} has {len(arguments)} arguments, OpenCL devices take {_PARAMETER_BYTES // 8}",
                hint="fuse fewer operations",
            )
        heading = [f"// {remark(f'{kernel.name}: {comment}')}"] if comment else []
        opening = f"__kernel void {entry_point(kernel.name)}({', '.join(arguments)}) {{"
        return "\n".join([*heading, opening, *body.lines, "}", ""])

    def buffer_arguments(self) -> Iterator[str]:
        """Yield the arguments of buffers, and make their pointers point to their first elements."""
        body = self.body
        for parameter in self.kernel.parameters:
            cl_type(parameter.dtype)
            name = body.buffers[parameter.name] = body.unique(parameter.name)
            const = "const " if parameter.access == "in" else ""
            yield f"__global {const}{parameter.dtype} *{name}"
            yield f"long start_{name}"
            body.line(f"{name} += start_{name};")

    def symbol_arguments(self) -> Iterator[str]:
        """Yield the arguments of symbols."""
        body = self.body
        for info in self.kernel.symbols:
            name = body.integers[info.name] = body.scalars[info.name] = body.unique(info.name)
            yield f"{'double' if info.kind == 'float' else 'long'} {name}"

    def work_item(self) -> None:
        """Define the parallel axes by the number of the work item."""
        body, axes = self.body, parallel_axes(self.kernel)
        if not axes:
            return
        names = [body.unique(axis.name) for axis in axes]
        body.integers.update(zip((axis.name for axis in axes), names))
        rest = "get_global_id(0)"
        if len(axes) > 1:
            body.line(f"const long item = {rest};")
            rest = "item"
        for axis, name in zip(axes[:0:-1], names[:0:-1]):
            size = self.factor(axis.size)
            body.line(f"const long {name} = {rest} % {size};")
            rest += f" / {size}"
        body.line(f"const long {names[0]} = {rest};")

    def factor(self, size: Size) -> str:
        """Return a size as an operand of a multiplication or division."""
        text = self.body.term(size)
        return text if text.isidentifier() or text.isdecimal() else f"({text})"

    def scratch_arrays(self) -> Iterator[str]:
        """Declare the arrays of known size, and yield the arguments of the others, which have a part for each
        work item of a launch."""
        body = self.body
        for array in self.kernel.scratch:
            name = body.buffers[array.name] = body.unique(array.name)
            if isinstance(array.size, int):
                body.line(f"{array.dtype} {name}[{array.size}];")
                continue
            yield f"__global {array.dtype} *{name}"
            item = "(long)(get_global_id(0) - get_global_offset(0))"
            body.line(f"{name} += {item} * {self.factor(array.size)};")

    def phase(self, phase: Phase) -> None:
        """Emit a loop nest, with the declarations before it and the results that later phases read after
        it."""
        body = self.body
        accumulated = [s for s in phase.statements if isinstance(s, Accumulate)]
        scans = [s for s in phase.statements if isinstance(s, ScanStore)]
        with body.scope():
            states: _States = {statement: self.start(statement) for statement in accumulated}
            with ExitStack() as nest:
                for axis in phase.axes[:-1]:
                    nest.enter_context(body.loop(axis.name, axis.size))
                states.update((scan, self.start(scan)) for scan in scans)
                for axis in phase.axes[-1:]:
                    nest.enter_context(body.loop(axis.name, axis.size))
                self.point(phase, states)
            for statement in accumulated:
                found = self.results(statement.combiner, states[statement])
                for (name, _), text in zip(statement.results, found, strict=True):
                    body.scalars[name] = text

    def point(self, phase: Phase, states: _States) -> None:
        """Emit all statements at one point: stores come after all loads."""
        body, stores = self.body, []
        for statement in phase.statements:
            match statement:
                case Store():
                    element = f"{body.buffers[statement.buffer]}[{body.term(statement.offset)}]"
                    text = body.value(statement.value)
                    if statement.mode != "set":
                        dtype = statement.value.dtype
                        text = operation(_COMBINING[statement.mode], [element, text], dtype, dtype)
                    stores.append(f"{element} = {text};")
                case Accumulate():
                    self.update(statement, states[statement])
                case ScanStore():
                    self.update(statement, states[statement])
                    found = self.results(statement.combiner, states[statement])
                    for (buffer, offset), text in zip(statement.targets, found, strict=True):
                        # A counter of bools may be any number.
                        text = f"{text} != 0" if self.dtypes[buffer].is_bool else text
                        stores.append(f"{body.buffers[buffer]}[{body.term(offset)}] = {text};")
        for store in stores:
            body.line(store)

    # --- combinations ---------------------------------------------------------------------------------------

    def start(self, statement: Accumulate | ScanStore) -> list[str]:
        """Declare the accumulators of a combiner."""
        combiner, body = statement.combiner, self.body
        if combiner == SORT:
            raise CodegenError(
                "a sort has no spelling in OpenCL C", hint="run the operation as a call instead"
            )
        if isinstance(combiner, UserCombiner):
            first = [(cl_type(each.dtype), body.value(each)) for each in combiner.identity]
        else:
            first = running_values(combiner.name, [value.dtype for value in statement.values])
        if isinstance(statement, Accumulate) and isinstance(combiner, NamedCombiner):
            names = [body.unique(name) for name, _ in statement.results]
        else:
            names = [body.temporary() for _ in first]
        for name, (type_, text) in zip(names, first, strict=True):
            body.line(f"{type_} {name} = {text};")
        return names

    def update(self, statement: Accumulate | ScanStore, states: Sequence[str]) -> None:
        """Update the accumulators by the values at a point."""
        combiner, body = statement.combiner, self.body
        values = [body.value(value) for value in statement.values]
        if not isinstance(combiner, UserCombiner):
            body.line(UPDATES[combiner.name].format(*states, *values))
            return
        with body.block(""), body.arguments((*states, *values)):
            merged = [body.value(each) for each in combiner.body]
            for state, text in zip(states, merged, strict=True):
                body.line(f"{state} = {text};")

    def results(self, combiner: Combiner, states: Sequence[str]) -> Sequence[str]:
        """Return the results of the accumulators."""
        if not isinstance(combiner, UserCombiner):
            return states
        with self.body.arguments(states):
            return [self.body.value(each) for each in combiner.finish]
