"""Emit kernels as Python functions: a loop nest for each phase, inside the loops over the outer axes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from litz_ir.dtypes import DType, f64, i64
from litz_ir.interp import with_origin
from litz_ir.loops import SORT, Axis, Combiner, UserCombiner
from litz_ir.origin import UNKNOWN
from litz_ir.plan import (
    Accumulate,
    Kernel,
    Launch,
    Phase,
    Plan,
    ScanStore,
    Store,
    invocations_of,
    with_user_combiners,
)
from litz_ir.symbols import Size
from litz_target_numba import functions
from litz_target_numba.body import Body
from litz_target_numba.combine import SPELLED, accumulators, update
from litz_target_numba.ops_table import operation
from litz_target_numba.spelling import cast, element_type, numpy_type, stored

_COMBINING = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_Accumulators: TypeAlias = list[tuple[str, DType]]
_States: TypeAlias = dict[Accumulate | ScanStore, _Accumulators]


def entry_point(kernel: str) -> str:
    """Return the name of a kernel's function; one that had to be changed ends in a digest, to stay unique."""
    name = re.sub(r"\W", "_", kernel, flags=re.ASCII)
    if name != kernel:
        name += "_" + hashlib.sha256(kernel.encode("unicode_escape")).hexdigest()[:8]
    return f"litz_{name}"


def emit_plan(plan: Plan) -> str:
    """Emit one source for all kernels of a plan; raises :class:`CodegenError` naming the kernel and the
    user's line."""
    origins = {s.kernel: s.origins for s in plan.steps if isinstance(s, Launch) and s.origins}
    texts = []
    for kernel in plan.kernels:
        fused = origins.get(kernel.name, ())
        with with_origin(kernel.name, fused[0].origin if fused else UNKNOWN):
            comment = ", ".join(dict.fromkeys(o.operation for o in fused))
            heading = f"# {_one_line(f'{kernel.name}: {comment}')}\n" if comment else ""
            texts += [heading + text for text in _functions(kernel)]
    text = "\n\n".join(texts)
    called = {"jit", *re.findall(r"\b(\w+)\(", text)}
    names = ", ".join(sorted(called.intersection(functions.__all__)))
    imports = ["import math\n"] * ("math." in text) + ["import numpy as np\n"]
    return "\n".join([*imports, f"from litz_target_numba.functions import {names}\n\n", text])


def _one_line(text: str) -> str:
    """Return a text of the user's, which may have any characters, so that a comment can't end in it."""
    return text.encode("unicode_escape").decode("ascii")


def _functions(kernel: Kernel) -> list[str]:
    """Return the function of a kernel, after those of its subkernels."""
    if not kernel.subkernels:
        return [_Writer(kernel).function(entry_point(kernel.name))]
    names = {
        sub.kernel.name: f"{entry_point(kernel.name)}__{entry_point(sub.kernel.name)}"
        for sub in kernel.subkernels
    }
    found = [_Writer(sub.kernel).function(names[sub.kernel.name]) for sub in kernel.subkernels]
    return [*found, _Writer(kernel).calls(entry_point(kernel.name), names)]


class _Writer:
    """Emitter of one function. It returns 0, or an error code as soon as an index is out of range."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = with_user_combiners(kernel, SPELLED)
        self.body = Body()
        self.dtypes = {each.name: each.dtype for each in kernel.parameters}
        self.dtypes.update((each.name, each.dtype) for each in kernel.scratch)

    def function(self, name: str) -> str:
        """Return the text of a kernel that is not fused."""
        kernel, body = self.kernel, self.body
        arguments = self.arguments()
        for parameter in kernel.parameters:
            buffer = body.buffers[parameter.name]
            body.line(f"{buffer} = pointer({buffer}, {element_type(parameter.dtype)})")
        for array in kernel.scratch:  # one outer point runs after another
            buffer = body.buffers[array.name] = body.unique(array.name)
            body.line(f"{buffer} = np.empty({body.term(array.size)}, {element_type(array.dtype)})")
        with self.loops(kernel.outer):
            for phase in kernel.phases:
                self.phase(phase)
        return self.text(name, arguments)

    def calls(self, name: str, names: Mapping[str, str]) -> str:
        """Return the text of a horizontally fused kernel, which calls subkernels by ``names``."""
        body, arguments = self.body, self.arguments()
        for subkernel, invocation in invocations_of(self.kernel):
            given = [body.buffers[each] for each in invocation.buffers] + list(
                map(body.term, invocation.symbols)
            )
            code = body.variable(f"{names[subkernel.name]}({', '.join(given)})")
            with body.block(f"if {code} != 0:"):
                body.line(f"return {code}")
        return self.text(name, arguments)

    def arguments(self) -> list[str]:
        """Return the arguments: addresses of buffers, then symbols."""
        kernel, body = self.kernel, self.body
        for parameter in kernel.parameters:
            body.buffers[parameter.name] = body.unique(parameter.name)
        for symbol in kernel.symbols:
            name = body.integers[symbol.name] = body.unique(symbol.name)
            body.scalars[symbol.name] = (name, f64 if symbol.kind == "float" else i64)
        return [*body.buffers.values(), *body.integers.values()]

    def text(self, name: str, arguments: Sequence[str]) -> str:
        """Return the function of the lines so far."""
        return "\n".join(
            ["@jit", f"def {name}({', '.join(arguments)}):", *self.body.lines, "    return 0", ""]
        )

    def loops(self, axes: Sequence[Axis]) -> AbstractContextManager[None]:
        """Emit axes as a loop nest."""
        return self.body.loops([(axis.name, axis.size) for axis in axes])

    # --- phases ---------------------------------------------------------------------------------------------

    def phase(self, phase: Phase) -> None:
        """Emit a loop nest, with the accumulators before it and the results that later phases read after
        it."""
        body = self.body
        accumulated = [s for s in phase.statements if isinstance(s, Accumulate)]
        scans = [s for s in phase.statements if isinstance(s, ScanStore)]
        with body.scope():
            states: _States = {statement: self.start(statement) for statement in accumulated}
            with self.loops(phase.axes[:-1]):
                for scan in scans:
                    sorts = scan.combiner == SORT
                    states[scan] = self.sorted_row(scan, phase.axes[-1]) if sorts else self.start(scan)
                with self.loops(phase.axes[-1:]):
                    self.point(phase, states)
            for statement in accumulated:
                found = self.results(statement.combiner, states[statement])
                for (name, dtype), (text, own) in zip(statement.results, found, strict=True):
                    converted = text if own == dtype else body.variable(cast(text, own, dtype))
                    body.scalars[name] = (converted, dtype)

    def point(self, phase: Phase, states: _States) -> None:
        """Emit all statements at one point: stores come after all loads."""
        body, stores = self.body, []
        for statement in phase.statements:
            if isinstance(statement, Store):
                stores.append(self.store(statement))
                continue
            self.update(statement, states[statement])
            if isinstance(statement, ScanStore):
                found = self.results(statement.combiner, states[statement])
                for (buffer, offset), (text, own) in zip(statement.targets, found, strict=True):
                    stores.append(self.assignment(buffer, offset, text, own))
        for store in stores:
            body.line(store)

    def store(self, statement: Store) -> str:
        """Return the assignment of a store, whose value and offset are computed before it."""
        body, dtype = self.body, statement.value.dtype
        text = body.value(statement.value)
        if statement.mode != "set":
            element = body.element(statement.buffer, statement.offset, dtype)
            text = operation(_COMBINING[statement.mode], [element, text], dtype, dtype)
        return self.assignment(statement.buffer, statement.offset, text, dtype)

    def assignment(self, buffer: str, offset: Size, text: str, dtype: DType) -> str:
        """Return the assignment of a value of ``dtype`` to an element."""
        target = f"{self.body.buffers[buffer]}[{self.body.term(offset)}]"
        return f"{target} = {stored(text, dtype, self.dtypes[buffer])}"

    # --- combinations ---------------------------------------------------------------------------------------

    def start(self, statement: Accumulate | ScanStore) -> _Accumulators:
        """Initialise the accumulators of a combiner."""
        combiner, body = statement.combiner, self.body
        if isinstance(combiner, UserCombiner):
            first = [(each.dtype, body.value(each)) for each in combiner.identity]
        else:
            first = accumulators(combiner, [value.dtype for value in statement.values])
        if isinstance(statement, Accumulate) and not isinstance(combiner, UserCombiner):
            names = [body.unique(name) for name, _ in statement.results]
        else:
            names = [body.temporary() for _ in first]
        for name, (_, text) in zip(names, first, strict=True):
            body.line(f"{name} = {text}")
        return [(name, dtype) for name, (dtype, _) in zip(names, first, strict=True)]

    def sorted_row(self, scan: ScanStore, axis: Axis) -> _Accumulators:
        """Sort the values along an axis; returns the value at each of its points, the largest first."""
        body, (value,) = self.body, scan.values
        row = body.variable(f"np.empty({body.term(axis.size)}, {numpy_type(value.dtype)})")
        with self.loops([axis]):
            body.line(f"{row}[{body.integers[axis.name]}] = {body.value(value)}")
        body.line(f"{row}.sort()")
        return [(f"{row}[-1 - {body.integers[axis.name]}]", value.dtype)]

    def update(self, statement: Accumulate | ScanStore, states: _Accumulators) -> None:
        """Update the accumulators by one more element."""
        combiner, body = statement.combiner, self.body
        if combiner == SORT:
            return
        names, values = [name for name, _ in states], [body.value(value) for value in statement.values]
        if isinstance(combiner, UserCombiner):
            with body.arguments((*names, *values)):
                merged = [body.value(each) for each in combiner.body]
            body.line(f"{', '.join(names)} = {', '.join(merged)}")
        else:
            dtypes = [value.dtype for value in statement.values]
            body.line(update(combiner.name, names, values, dtypes))

    def results(self, combiner: Combiner, states: _Accumulators) -> _Accumulators:
        """Return the results of the accumulators."""
        if not isinstance(combiner, UserCombiner):
            return states
        with self.body.arguments([name for name, _ in states]):
            return [(self.body.value(each), each.dtype) for each in combiner.finish]
