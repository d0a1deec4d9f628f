"""Emit kernels as C functions: a loop nest for each phase, inside the loops over the outer axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from litz_ir.interp import with_origin
from litz_ir.loops import Axis, Combiner, NamedCombiner, UserCombiner
from litz_ir.origin import UNKNOWN
from litz_ir.plan import Accumulate, Kernel, Launch, Phase, Plan, ScanStore, Store, with_user_combiners
from litz_target_c.body import HELPERS, Body
from litz_target_c.combine import UPDATES, running_values
from litz_target_c.ops_table import SPELLINGS, c_type

_INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
_COMBINING = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_States: TypeAlias = "dict[Accumulate | ScanStore, list[str]]"


def entry_point(kernel: str) -> str:
    """Return the C function of a kernel; no two kernels have the same."""
    named = re.fullmatch(r"[A-Za-z0-9_]+", kernel)
    return f"litz_{kernel}" if named else f"named_{kernel.encode('utf-8', 'surrogatepass').hex()}"


def remark(text: str) -> str:
    """Return a text of the user's as what may stand in a comment: no end of the line, no backslash."""
    return re.sub(r"[^\w ,.:()-]", "_", text, flags=re.ASCII)


def emit_plan(plan: Plan) -> str:
    """Emit one source for all kernels of a plan; raises :class:`CodegenError` naming the kernel and the user's line."""
    origins = {s.kernel: s.origins for s in plan.steps if isinstance(s, Launch) and s.origins}
    functions = []
    for kernel in plan.kernels:
        fused = origins.get(kernel.name, ())
        with with_origin(kernel.name, fused[0].origin if fused else UNKNOWN):
            comment = ", ".join(dict.fromkeys(o.operation for o in fused))
            functions.append(_Writer(with_user_combiners(kernel, UPDATES)).function(comment))
    text = "\n".join(functions)
    helpers = [block.strip() + "\n" for block in HELPERS if f"{block.partition('(')[0].split()[-1]}(" in text]
    return "\n".join([_INCLUDES, *helpers, text])


class _Writer:
    """Emitter of one kernel. Its function returns 0, or an error code as soon as an index is out of range."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.body = Body()

    def function(self, comment: str) -> str:
        """Return the text; ``comment`` names the operations that the kernel fuses."""
        kernel, body = self.kernel, self.body
        arguments = []
        for parameter in kernel.parameters:
            name = body.buffers[parameter.name] = body.unique(parameter.name)
            const = "const " if parameter.access == "in" else ""
            arguments.append(f"{const}{c_type(parameter.dtype)} *{name}")
        for symbol in kernel.symbols:
            name = body.integers[symbol.name] = body.scalars[symbol.name] = body.unique(symbol.name)
            arguments.append(f"{'double' if symbol.kind == 'float' else 'int64_t'} {name}")
        with ExitStack() as outer:
            for axis in kernel.outer:
                outer.enter_context(self.loop(axis))
            for local in kernel.scratch:
                name = body.buffers[local.name] = body.unique(local.name)
                body.line(f"{c_type(local.dtype)} {name}[{local.size}];")
            for phase in kernel.phases:
                self.phase(phase)
        body.line("return 0;")
        heading = [f"// {remark(f'{kernel.name}: {comment}')}"] if comment else []
        opening = f"int64_t {entry_point(kernel.name)}({', '.join(arguments) or 'void'}) {{"
        return "\n".join([*heading, opening, *body.lines, "}", ""])

    def loop(self, axis: Axis) -> AbstractContextManager[None]:
        """Emit an axis as a loop; phases may run over axes of the same name."""
        name = self.body.integers.get(axis.name) or self.body.unique(axis.name)
        self.body.integers[axis.name] = name
        end = self.body.term(axis.size)
        return self.body.block(f"for (int64_t {name} = 0; {name} < {end}; {name}++)")

    def phase(self, phase: Phase) -> None:
        """Emit a loop nest, with the declarations before it and the results that later phases read after it."""
        body = self.body
        accumulated = [s for s in phase.statements if isinstance(s, Accumulate)]
        scans = [s for s in phase.statements if isinstance(s, ScanStore)]
        with body.scope():
            states: _States = {statement: self.start(statement) for statement in accumulated}
            with ExitStack() as nest:
                for axis in phase.axes[:-1]:
                    nest.enter_context(self.loop(axis))
                states.update((scan, self.start(scan)) for scan in scans)
                for axis in phase.axes[-1:]:
                    nest.enter_context(self.loop(axis))
                self.point(phase, states)
            for statement in accumulated:
                found = self.results(statement.combiner, states[statement])
                for (name, _), text in zip(statement.results, found, strict=True):
                    body.scalars[name] = text

    def point(self, phase: Phase, states: _States) -> None:
        """Emit all statements at one point: stores come after all loads."""
        body, stores = self.body, []
        for statement in phase.statements:
            if isinstance(statement, Store):
                element = f"{body.buffers[statement.buffer]}[{body.term(statement.offset)}]"
                text = body.value(statement.value)
                if statement.mode != "set":
                    dtype = statement.value.dtype
                    text = SPELLINGS[_COMBINING[statement.mode]].for_dtype(dtype).format(element, text)
                stores.append(f"{element} = {text};")
                continue
            self.update(statement.combiner, states[statement], [body.value(v) for v in statement.values])
            if isinstance(statement, ScanStore):
                found = self.results(statement.combiner, states[statement])
                for (buffer, offset), text in zip(statement.targets, found, strict=True):
                    stores.append(f"{body.buffers[buffer]}[{body.term(offset)}] = {text};")
        for store in stores:
            body.line(store)

    # --- combinations -----------------------------------------------------------------------------------------------

    def start(self, statement: Accumulate | ScanStore) -> list[str]:
        """Declare the accumulators of a combiner."""
        combiner, body = statement.combiner, self.body
        if isinstance(combiner, UserCombiner):
            first = [(c_type(each.dtype), body.value(each)) for each in combiner.identity]
        else:
            first = running_values(combiner.name, [value.dtype for value in statement.values])
        if isinstance(statement, Accumulate) and isinstance(combiner, NamedCombiner):
            names = [body.unique(name) for name, _ in statement.results]
        else:
            names = [body.temporary() for _ in first]
        for name, (type_, text) in zip(names, first, strict=True):
            body.line(f"{type_} {name} = {text};")
        return names

    def update(self, combiner: Combiner, states: Sequence[str], values: Sequence[str]) -> None:
        """Update the accumulators by one more element."""
        body = self.body
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
