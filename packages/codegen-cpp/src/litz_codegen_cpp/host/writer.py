"""The steps of one plan as C++: its memory, launches, calls and regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.host.routines import ROUTINES
from litz_codegen_cpp.host.slots import buffer_bytes, plan_memory
from litz_codegen_cpp.host.state import State
from litz_codegen_cpp.host.terms import term_text
from litz_codegen_cpp.host.text import block, double_text
from litz_ir.errors import CodegenError
from litz_ir.loops import Argument, Ref, ScalarInput, ScalarRef, TensorType
from litz_ir.plan import CallStep, Kernel, Launch, Plan, RegionStep, memory_root
from litz_ir.symbols import Size, Symbol, Term

SIGNATURE = (
    "(litz_runtime* rt, const int64_t* symbols, void* const* inputs, void* const* outputs, const char* state,\n"
    "                       char* workspace)"
)
"""The parameters of the function of a plan."""


@dataclass(slots=True)
class Shared:
    """State of the emission that the plans of one program share."""

    kernels: Mapping[str, Kernel]
    """The kernels of all plans by name."""
    functions: dict[str, str] = field(default_factory=dict)
    """The C++ function of each plan that is written."""
    steps: list[str] = field(default_factory=list)
    """The launches and calls of all plans; an error code has the position in this list."""
    headers: set[str] = field(default_factory=set)
    """The headers of the routines that are called."""


class PlanWriter:
    """Writes the functions of one plan: its memory, and its steps.

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
        self.memory = plan_memory(plan, () if state is None else state.names)
        self.pending: list[Launch] = []

    # --- text -----------------------------------------------------------------------------------------------

    def write(self) -> str:
        """Return the functions of the plan; those of its subplans have to be written before."""
        for step in self.plan.steps:
            match step:
                case Launch():
                    self.pending.append(step)
                case CallStep():
                    self.flush()
                    self.call(step)
                case RegionStep():
                    self.flush()
                    self.region(step)
        self.flush()
        self.copy_outputs()
        self.lines.append("return 0;")
        head = f"static int64_t {self.function}{SIGNATURE}"
        return f"{self.memory_functions()}\n\n{block(head, [*self.prologue(), *self.lines])}"

    def prologue(self) -> list[str]:
        """Return the definitions of symbols, inputs, slots and results."""
        lines = self.symbol_lines()
        for name, position in self.given.items():
            if name in self.given_types:
                lines.append(f"char* const i{position} = (char*)inputs[{position}]{self.before(name)};")
        count = len(self.memory.slots)
        lines += [f"int64_t at[{count + 1}];", f"{self.function}_memory(rt, symbols, at);"]
        lines += [f"char* const w{k} = workspace + at[{k}];" for k in range(count)]
        lines.append(f"char* const scratch = workspace + at[{count}];")
        for name, position in self.memory.output_of.items():
            lines.append(f"char* const o{position} = (char*)outputs[{position}];  // {_remark(name)}")
        if self.state is not None:
            lines += self.state.pointers()
        return lines

    def symbol_lines(self) -> list[str]:
        """Return the definitions of the symbols' variables, as the integers or bits that the caller passes."""
        return [f"const int64_t {name} = symbols[{k}];" for k, name in enumerate(self.names.values())]

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

    # --- values ---------------------------------------------------------------------------------------------

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

    # --- steps ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the pending launches as one native segment."""
        if not self.pending:
            return
        launches, self.pending = self.pending, []
        first = len(self.shared.steps)
        count = len(launches)
        lines = []
        for k, launch in enumerate(launches):
            kernel = self.shared.kernels[launch.kernel]
            self.shared.steps.append(launch.kernel)
            values = zip(launch.symbols, kernel.symbols, strict=True)
            symbols = [self.symbol_value(term, info.kind) for term, info in values]
            lines.append(f"void* b{k}[] = {{{', '.join(self.start(name) for name in launch.buffers)}}};")
            lines.append(f"const int64_t y{k}[] = {{{', '.join(symbols) or '0'}}};")
        kernels = ", ".join(entry_point(launch.kernel) for launch in launches)
        lines.append(f"const litz_kernel kernels[] = {{{kernels}}};")
        lines.append(f"void** buffers[] = {{{', '.join(f'b{k}' for k in range(count))}}};")
        lines.append(f"const int64_t* const values[] = {{{', '.join(f'y{k}' for k in range(count))}}};")
        lines.append(f"static const uint8_t waits[] = {{{', '.join(['0'] + ['1'] * (count - 1))}}};")
        lines.append(f"const int64_t failure = litz_segment(rt, {count}, kernels, buffers, values, waits);")
        lines.append(f"if (failure) return failure + {first} * LITZ_HOST_STEP;")
        self.add_block(lines)

    def symbol_value(self, term: object, kind: str) -> str:
        """Return a value of a kernel's symbol; the variable of a float symbol has its bits."""
        if isinstance(term, float) or (kind == "float" and isinstance(term, int)):
            return double_text(float(term))
        if isinstance(term, Symbol):
            return self.names[term.name]
        if isinstance(term, int | Term):
            text = self.term(term)
            return f"bits_as<int64_t>(double({text}))" if kind == "float" else text
        raise CodegenError(f"a kernel's symbol has the value {term!r}", node=self.plan.name)

    def add_block(self, lines: Sequence[str]) -> None:
        """Add lines in a scope of their own."""
        self.lines += ["{", *(f"  {line}" for line in lines), "}"]

    def call(self, step: CallStep) -> None:
        """Write the call of a routine."""
        self.shared.headers.add(ROUTINES[step.target].header)
        position = len(self.shared.steps)
        self.shared.steps.append(step.target)
        lines, scratch = ROUTINES[step.target].emit(self, step)
        if scratch is not None:
            self.scratch_sizes.append(scratch)
        self.add_block([f"// {_remark(step.target)}, step {position}", *lines])

    def region(self, step: RegionStep) -> None:
        """Write the run of a subplan; the results of a frozen one are in the state."""
        if self.state is not None and self.state.holds(step):
            return
        lines = self.region_lines(step, [self.owner(name) for name in step.results], "workspace_of_subplan")
        function = self.shared.functions[step.plans[0]]
        self.scratch_sizes.append(f"{function}_bytes(rt, {self.symbols_array(step)})")
        self.add_block(["char* const workspace_of_subplan = scratch;", *lines])

    def symbols_array(self, step: RegionStep) -> str:
        """Return the values of a subplan's symbols as an array."""
        values = self.subplan_symbols(step) or ["0"]
        return f"numbers<{len(values)}>{{{{{', '.join(values)}}}}}.values"

    def subplan_symbols(self, step: RegionStep) -> list[str]:
        """Return the value of each symbol of a subplan: that of an argument, or of the same symbol here."""
        subplan = self.plan.subplan(step.plans[0])
        bound: dict[str, Argument] = {}
        for item, argument in zip(subplan.inputs, step.arguments, strict=True):
            if isinstance(item, ScalarInput) and item.symbol is not None:
                bound[item.symbol] = argument
        return [self.argument_value(bound.get(info.name, info.term)) for info in subplan.symbols]

    def argument_value(self, argument: Argument) -> str:
        """Return a number that is passed to a subplan."""
        if isinstance(argument, ScalarRef):
            return self.names[argument.name]
        if isinstance(argument, float):
            return double_text(argument)
        if isinstance(argument, int | Term):
            return self.term(argument)
        raise CodegenError(f"a region is passed {argument!r}", node=self.plan.name)

    def region_lines(self, step: RegionStep, results: Sequence[str], workspace: str) -> list[str]:
        """Return the lines that run a subplan, whose outputs go to ``results``."""
        arguments = [self.data(a.name) if isinstance(a, Ref) else "nullptr" for a in step.arguments]
        constants = self.plan.subplan(step.plans[0]).constants
        arguments += [self.data(value.name) for value in constants]
        function = self.shared.functions[step.plans[0]]
        return [
            f"void* given[] = {{{', '.join(arguments) or 'nullptr'}}};",
            f"void* results[] = {{{', '.join(results) or 'nullptr'}}};",
            f"const int64_t failure = {function}(rt, {self.symbols_array(step)}, given, results, state, {workspace});",
            "if (failure) return failure;",
        ]

    def copy_outputs(self) -> None:
        """Write the copies of outputs whose memory is not the caller's."""
        direct = set(self.memory.output_of.values())
        for position, output in enumerate(self.plan.outputs):
            if position in direct or not isinstance(output, Ref):
                continue
            type_ = self.type(output.name)
            end = self.term(buffer_bytes(self.plan, output.name))
            offset = f"{self.term(type_.layout.offset)} * {type_.dtype.itemsize}"
            self.lines.append(f"copy(outputs[{position}], {self.data(output.name)}, {end} - {offset});")


def prepacked_results(plan: Plan) -> dict[str, str]:
    """Return the bytes, as C++, of results in a form that only routines read: prepacked weights."""
    found: dict[str, str] = {}
    for step in plan.steps:
        if isinstance(step, CallStep) and step.target in ROUTINES:
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


def _remark(text: str) -> str:
    """Return a name for a comment: it cannot end the line or continue it."""
    return "".join(c if c.isalnum() or c in "._:-" else "_" for c in text)
