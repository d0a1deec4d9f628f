"""The memory and names of one plan's values as C++."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from litz_codegen_cpp.host.late import late_owners, late_symbols
from litz_codegen_cpp.host.operator_calls import is_operator
from litz_codegen_cpp.host.routines.table import ROUTINES
from litz_codegen_cpp.host.slots import plan_memory
from litz_codegen_cpp.host.state import State
from litz_codegen_cpp.host.terms import term_text
from litz_codegen_cpp.host.text import block
from litz_ir.errors import CodegenError
from litz_ir.loops import Ref, ScalarInput, TensorType
from litz_ir.plan import CallStep, Kernel, Launch, Plan, RegionStep, memory_root
from litz_ir.symbols import Size


@dataclass(slots=True)
class Shared:
    """State of the emission that the plans of one program share."""

    kernels: dict[str, Kernel]
    """The kernels of all plans by name."""
    functions: dict[str, str] = field(default_factory=dict)
    """The C++ function of each plan that is written."""
    steps: list[str] = field(default_factory=list)
    """The launches and calls of all plans; an error code has the position in this list."""
    headers: set[str] = field(default_factory=set)
    """The headers of the routines that are called."""
    operators: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name and overload of each operator that is called, by the plans' names."""
    dynamic: int = 0
    """Count of the blocks that steps take and drop, of all plans."""


class MemoryWriter:
    """Names and memory of the values of one plan, and the functions that place them.

    ``state`` is that of the whole program for its outermost plan, and ``None`` for subplans, which keep nothing.
    """

    def __init__(self, plan: Plan, function: str, shared: Shared, state: State | None = None) -> None:
        self.plan = plan
        self.function = function
        self.shared = shared
        self.state = state
        self.lines: list[str] = []
        self.scratch_sizes: list[str] = []
        self.placements = dict(plan.buffers)
        self.names = {info.name: f"s{k}" for k, info in enumerate(plan.symbols)}
        self.given = {item.name: k for k, item in enumerate((*plan.inputs, *plan.constants))}
        self.given_types = {
            item.name: item.type for item in (*plan.inputs, *plan.constants) if not isinstance(item, ScalarInput)
            and hasattr(item, "type")
        }  # fmt: skip
        self.prepacked_results = prepacked_results(plan)
        self.late = late_symbols(plan)
        self.unknown = set(self.late)
        calls = [step for step in plan.steps if isinstance(step, CallStep) and is_operator(plan, step)]
        self.operator_steps = {id(step) for step in calls}
        self.dynamic = {
            name: shared.dynamic + k for name, k in late_owners(plan, self.late, calls).items()
            if state is None or name not in state.names
        }  # fmt: skip
        shared.dynamic += len(self.dynamic)
        self.memory = plan_memory(plan, (*self.dynamic, *(() if state is None else state.names)))
        self.found: dict[str, int] = {}
        self.unsettled: list[str] = []
        self.dropped: list[str] = []
        self.pending: list[Launch] = []

    def prologue(self) -> list[str]:
        """Return the definitions of symbols, inputs, slots and results."""
        lines = self.symbol_lines(in_steps=True)
        lines += [
            f"char* dynamic{number} = nullptr;  // {remark(name)}" for name, number in self.dynamic.items()
        ]
        for name, position in self.given.items():
            if name in self.given_types:
                lines.append(f"char* const i{position} = (char*)inputs[{position}]{self.before(name)};")
        count = len(self.memory.slots)
        lines += [f"int64_t at[{count + 1}];", f"{self.function}_memory(rt, symbols, at);"]
        lines += [f"char* const w{k} = workspace + at[{k}];" for k in range(count)]
        lines.append(f"char* const scratch = workspace + at[{count}];")
        for name, position in self.memory.output_of.items():
            lines.append(f"char* const o{position} = (char*)outputs[{position}];  // {remark(name)}")
        if self.state is not None:
            lines += self.state.pointers()
        return lines

    def symbol_lines(self, *, in_steps: bool = False) -> list[str]:
        """Return the definitions of the symbols' variables, as the integers or bits that the caller passes.

        Late ones are 0 until a step defines them, ``in_steps``, and elsewhere.
        """
        late = "int64_t {} = 0;" if in_steps else "const int64_t {} = 0;"
        return [
            late.format(name) if symbol in self.late else f"const int64_t {name} = symbols[{k}];"
            for k, (symbol, name) in enumerate(self.names.items())
        ]

    def before(self, name: str) -> str:
        """Return the step from the first element of an input back to the start of its memory."""
        type_ = self.given_types[name]
        offset = type_.layout.offset
        return "" if offset == 0 else f" - {self.term(offset)} * {type_.dtype.itemsize}"

    def memory_functions(self) -> str:
        """Return the function that places slots and scratch, and the one that returns the bytes of both.

        Sizes that overflow give more bytes than there are, so that the runtime gets no memory and runs nothing.
        """
        lines = [*self.symbol_lines(), "int64_t end = 0, scratch = 0;", "bool overflow = false;"]
        for k, slot in enumerate(self.memory.slots):
            sizes = dict.fromkeys(
                self.prepacked_results.get(o.name) or term_text(o.nbytes, self.names, checked=True)
                for o in slot.owners
            )
            lines.append(f"at[{k}] = end;")
            lines.append(f"end += bounded(largest({{{', '.join(sizes)}}}), overflow);")
        lines.append(f"at[{len(self.memory.slots)}] = end;")
        lines += [
            f"scratch = maximum<int64_t>(scratch, {size});" for size in dict.fromkeys(self.scratch_sizes)
        ]
        lines.append("return overflow ? MOST_BYTES : end + bounded(scratch, overflow);")
        head = f"static int64_t {self.function}_memory(const litz_runtime* rt, const int64_t* symbols, int64_t* at)"
        count = len(self.memory.slots) + 1
        total = [f"int64_t at[{count}];", f"return {self.function}_memory(rt, symbols, at);"]
        bytes_head = f"static int64_t {self.function}_bytes(const litz_runtime* rt, const int64_t* symbols)"
        return f"{block(head, lines)}\n\n{block(bytes_head, total)}"

    def term(self, size: Size) -> str:
        """Return an index term as C++."""
        return term_text(size, self.names)

    def type(self, name: str) -> TensorType:
        """Return the type of a buffer or input."""
        placement = self.placements.get(name)
        return self.given_types[name] if placement is None else placement.type

    def start(self, name: str) -> str:
        """Return the start of a buffer's memory, as a ``char*``."""
        root = memory_root(name, self.placements)
        placement = self.placements.get(root)
        if placement is not None and placement.storage is not None:
            base = self.owner(placement.storage)
            return base if placement.offset == 0 else f"({base} + {self.term(placement.offset)})"
        return f"i{self.given[root]}" if root in self.given else self.owner(root)

    def owner(self, name: str) -> str:
        """Return the variable of a storage or result."""
        if name in self.dynamic:
            return f"dynamic{self.dynamic[name]}"
        if name in self.memory.output_of:
            return f"o{self.memory.output_of[name]}"
        if name in self.memory.slot_of:
            return f"w{self.memory.slot_of[name]}"
        if self.state is not None and name in self.state.names:
            return self.state.pointer(name)
        raise CodegenError(f"{name} has no memory in the host program", node=self.plan.name)

    def data(self, name: str) -> str:
        """Return the first element of a buffer, as a ``char*``."""
        type_ = self.type(name)
        offset = type_.layout.offset
        return (
            self.start(name)
            if offset == 0
            else f"({self.start(name)} + {self.term(offset)} * {type_.dtype.itemsize})"
        )

    def constant(self, name: str) -> bool:
        """Report whether a buffer has the same elements in each call."""
        return self.state is not None and memory_root(name, self.placements) in self.state.constants

    def prepacked(self, name: str, form: str, nbytes: str, fill: Callable[[str], str]) -> str | None:
        """Return the pointer to the prepacked form of a buffer, which ``fill(pointer)`` writes once, when the model is
        opened; ``None`` for a buffer that is no constant."""
        if self.state is None or not self.constant(name):
            return None
        self.state.mark_read(name)
        return self.state.prepacked(f"{name} {form}", nbytes, fill)

    def number(self, name: str) -> tuple[str, str]:
        """Return the variable of a symbol, and the kind of its values."""
        return self.names[name], self.plan.symbols[name].kind

    def step(self, name: str) -> int:
        """Return the position of a new step, by which error codes name it."""
        self.shared.steps.append(name)
        return len(self.shared.steps) - 1

    def add_block(self, lines: Sequence[str]) -> None:
        """Add lines in a scope of their own."""
        self.lines += ["{", *(f"  {line}" for line in lines), "}"]

    def take(self, name: str, nbytes: Size) -> None:
        """Write the allocation of memory whose size was not known before."""
        self.lines += self.take_lines(
            f"dynamic{self.dynamic[name]}",
            self.dynamic[name],
            term_text(nbytes, self.names, checked=True),
            name,
        )

    def take_lines(self, variable: str, number: int, nbytes: str, name: str) -> list[str]:
        """Return the allocation of a block; a size that overflows gets none."""
        failed = f"return {self.step(name)} * LITZ_HOST_STEP + LITZ_HOST_NO_MEMORY;"
        taken = f"services->take(services, {number}, bounded({nbytes}, overflow))"
        return [
            f"{{ bool overflow = false; {variable} = {taken};",
            f"  if (!{variable} || overflow) {failed} }}",
        ]

    def is_late_text(self, text: str) -> bool:
        """Report whether C++ text names a symbol that has no value before the steps run."""
        names = {self.names[name] for name in self.late}
        return not names.isdisjoint(re.findall(r"\w+", text))

    def scratch(self, nbytes: str, variable: str = "scratch") -> tuple[list[str], list[str]]:
        """Return the lines before and after the use of scratch of a size that depends on late symbols."""
        number, self.shared.dynamic = self.shared.dynamic, self.shared.dynamic + 1
        lines = [f"char* {variable};", *self.take_lines(variable, number, nbytes, "scratch")]
        return lines, [f"services->drop(services, {number});"]


def prepacked_results(plan: Plan) -> dict[str, str]:
    """Return the bytes, as C++, of results in a form that only routines read: prepacked weights."""
    found: dict[str, str] = {}
    for step in plan.steps:
        if isinstance(step, CallStep) and step.target in ROUTINES and not is_operator(plan, step):
            size = ROUTINES[step.target].result_bytes
            if size is not None and step.results[0] is not None:
                found[step.results[0]] = size(plan, step)
        elif isinstance(step, RegionStep):
            subplan = plan.subplan(step.plans[0])
            inner = prepacked_results(subplan)
            for name, output in zip(step.results, subplan.outputs, strict=True):
                if isinstance(output, Ref) and output.name in inner:
                    found[name] = inner[output.name]
    return found


def remark(text: str) -> str:
    """Return a name for a comment: it cannot end the line or continue it."""
    return "".join(c if c.isalnum() or c in "._:-" else "_" for c in text)
