"""The steps of one plan as C++: its launches, calls and regions."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.host.late import is_late, late_symbols
from litz_codegen_cpp.host.memory_writer import remark
from litz_codegen_cpp.host.routines.table import ROUTINES
from litz_codegen_cpp.host.text import block, double_text
from litz_codegen_cpp.host.value_steps import ValueSteps
from litz_ir.errors import CodegenError
from litz_ir.loops import Argument, Output, Ref, ScalarInput, ScalarRef
from litz_ir.plan import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Launch,
    Plan,
    RegionStep,
)
from litz_ir.symbols import Symbol, Term

SIGNATURE = (
    "(litz_runtime* rt, litz_host_services* services, const int64_t* symbols, void* const* inputs,\n"
    "                       void* const* outputs, const char* state, char* workspace)"
)
"""The parameters of the function of a plan."""


class PlanWriter(ValueSteps):
    """Writes the functions of one plan: its memory, and its steps."""

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
                case DefineStep() if step.symbol in self.late:
                    self.flush()
                    self.define(step)
                case CheckStep():
                    self.flush()
                    self.check(step)
                case Allocate() if step.storage in self.dynamic:
                    nbytes = next(each.nbytes for each in self.plan.storages if each.name == step.storage)
                    self.take(step.storage, nbytes)
                case Free() if step.name in self.dynamic:
                    self.dropped.append(step.name)
        self.flush()
        self.copy_outputs()
        self.lines.append("return 0;")
        head = f"static int64_t {self.function}{SIGNATURE}"
        return f"{self.memory_functions()}\n\n{block(head, [*self.prologue(), *self.lines])}"

    def flush(self) -> None:
        """Write the pending launches as one native segment, and then what is dropped."""
        self.launch()
        for name in self.dropped:
            self.lines.append(f"services->drop(services, {self.dynamic[name]});")
        self.dropped = []

    def launch(self) -> None:
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

    def call(self, step: CallStep) -> None:
        """Write the call of a routine or operator."""
        if id(step) in self.operator_steps:
            self.operator(step)
            return
        for name in step.results:
            if name in self.dynamic:
                self.take(name, self.plan.placement(name).nbytes)
        self.shared.headers.add(ROUTINES[step.target].header)
        position = self.step(step.target)
        lines, scratch = ROUTINES[step.target].emit(self, step)
        if scratch is not None and self.is_late_text(scratch):
            before, after = self.scratch(scratch)
            lines = [*before, *lines, *after]
        elif scratch is not None:
            self.scratch_sizes.append(scratch)
        self.add_block([f"// {remark(step.target)}, step {position}", *lines])

    def region(self, step: RegionStep) -> None:
        """Write the run of a subplan; the results of a frozen one are in the state."""
        if self.state is not None and self.state.holds(step):
            return
        for name in step.results:
            if name in self.dynamic:
                self.take(name, self.plan.placement(name).nbytes)
        lines = self.region_lines(step, [self.owner(name) for name in step.results], "workspace_of_subplan")
        function = self.shared.functions[step.plans[0]]
        nbytes = f"{function}_bytes(rt, {self.symbols_array(step)})"
        if self.is_late_text(nbytes):
            before, after = self.scratch(nbytes, "workspace_of_subplan")
            self.add_block([*before, *lines, *after])
            return
        self.scratch_sizes.append(nbytes)
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
        late = late_symbols(subplan)
        return [
            "0" if info.name in late else self.argument_value(bound.get(info.name, info.term))
            for info in subplan.symbols
        ]

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
            f"const int64_t* const values = {self.symbols_array(step)};",
            f"const int64_t failure = {function}(rt, services, values, given, results, state, {workspace});",
            "if (failure) return failure;",
        ]

    def number_output(self, position: int, output: Output) -> str:
        """Return the line that writes a number to the caller's memory: an ``int64_t``, a double or a bool."""
        kind = output_kind(self.plan, output)
        if isinstance(output, ScalarRef):
            value = self.names[output.name]
        elif isinstance(output, float):
            value = double_text(output)
        else:
            assert isinstance(output, int | Term)
            value = self.term(output)
        return f"litz_put(outputs[{position}], {value}, {1 if kind == 'bool' else 8});"

    def copy_outputs(self) -> None:
        """Write the copies of outputs whose memory is not the caller's."""
        direct = set(self.memory.output_of.values())
        for position, output in enumerate(self.plan.outputs):
            if not isinstance(output, Ref):
                self.lines.append(self.number_output(position, output))
                continue
            if position in direct:
                continue
            type_ = self.type(output.name)
            if is_late(type_, self.late):
                terms = ", ".join(self.term(size) for size in (*type_.shape, *type_.layout.strides))
                sizes = f"numbers<{2 * len(type_.shape)}>{{{{{terms}}}}}.values"
                delivered = f"services->deliver(services, {position}, {sizes}, {self.data(output.name)})"
                failed = f"{self.step(output.name)} * LITZ_HOST_STEP + LITZ_HOST_CALL_FAULT"
                self.lines.append(f"if ({delivered}) return {failed};")
                continue
            end = self.term(self.plan.placement(output.name).nbytes)
            offset = f"{self.term(type_.layout.offset)} * {type_.dtype.itemsize}"
            self.lines.append(f"copy(outputs[{position}], {self.data(output.name)}, {end} - {offset});")


def output_kind(plan: Plan, output: Output) -> str:
    """Return the kind of a result that is a number."""
    if isinstance(output, ScalarRef):
        return plan.symbols[output.name].kind
    return "bool" if isinstance(output, bool) else "float" if isinstance(output, float) else "int"
