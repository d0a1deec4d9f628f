"""The host program of a plan as readable Python: allocations, segments, calls, results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from litz.devices import is_gpu
from litz.host.emit.arguments import argument_code, output_code
from litz.host.emit.code import Code, assigned, code, joined, listed, tuple_of, with_drops
from litz.host.emit.frozen_copies import frozen_copies
from litz.host.emit.names import Names
from litz.host.emit.scalars import scalar_code
from litz.host.emit.segments import Segments
from litz.host.emit.tensors import TensorVariables, complex_strides, device_code
from litz.host.program import NO_ASSERTS, Computed, Detail, HostProgram, InputAsserts, ObservedStep
from litz.host.torch_types import COMPLEX_DTYPES, TORCH_DTYPES
from litz_ir.loops import (
    Argument,
    ComplexValue,
    Input,
    ObjectInput,
    Ref,
    ScalarInput,
    TensorType,
    Value,
    load_names,
    references,
)
from litz_ir.plan import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Launch,
    Plan,
    RegionStep,
    Step,
    written_buffers,
)
from litz_ir.scalar import Expr


def host_program(
    plan: Plan,
    name: str = "call",
    *,
    inner: bool = False,
    detail: Detail = "runs",
    asserts: InputAsserts = NO_ASSERTS,
    training: bool = False,
) -> HostProgram:
    """Return the host program of ``plan``; ``inner`` for the plan of a subgraph, which a higher-order operator
    calls. ``asserts`` are made about the inputs. ``training`` for half of a training graph, whose results are views for
    autograd only where another refers to their memory.

    Raises :class:`CodegenError` for steps that the host cannot express.
    """
    return _Writer(plan, name, inner, detail, asserts, training).write()


GPU_ALIGNMENT = 16
"""Bytes that addresses are multiples of where kernels of a GPU need no rebuilding."""


class _Writer:
    """Writes the host program of one plan."""

    def __init__(
        self, plan: Plan, name: str, inner: bool, detail: Detail, asserts: InputAsserts, training: bool
    ) -> None:
        self.plan = plan
        self.detail = detail
        self.asserts = asserts
        self.inner = inner
        self.name = name
        self.training = training
        self.lines: list[Code] = []
        self.names = Names((value.name for value in plan.constants), name)
        self.tensors = TensorVariables(plan, self.names, self.lines, training)
        self.kernels = {kernel.name: kernel for kernel in plan.kernels}
        self.segments = Segments(self.kernels, self.names, self.tensors, self.lines, shapes=detail != "runs")
        self.externs: list[tuple[str, str]] = []
        self.steps: list[tuple[str, ObservedStep]] = []
        self.computed: list[Computed] = []
        self.branches: dict[str, HostProgram] = {}
        self.defined = {i.symbol for i in plan.inputs if isinstance(i, ScalarInput) and i.symbol is not None}
        self.unchecked: list[tuple[str, CallStep]] = []
        self.unasserted: list[Value] = []
        self.read = {name for step in plan.steps for name in _read(step)}
        self.read.update(placement.base for _, placement in plan.buffers if placement.base is not None)
        for info in plan.symbols:
            self.names.symbol(info.name)
        for subplan in plan.subplans:
            function = self.names.function(subplan.name)
            self.branches[subplan.name] = host_program(subplan, function, inner=True, detail=detail)
        for step in plan.steps:
            if isinstance(step, RegionStep) and step.kind == "frozen" and is_gpu(plan.device.kind):
                (name,) = step.plans
                copies = frozen_copies(plan.subplan(name)) if self._is_on_gpu(step) else None
                self.branches[name] = replace(self.branches[name], copies=copies)

    def _is_on_gpu(self, step: RegionStep) -> bool:
        """Report whether all results of a region are on a GPU."""
        return all(is_gpu(self.plan.placement(name).type.device.kind) for name in step.results)

    def write(self) -> HostProgram:
        """Return the host program."""
        self._arguments(self.plan.inputs)
        for step in self.plan.steps:
            self._step(step)
        self.segments.flush()
        self._settle()
        self._line("return {}", tuple_of(self._results()))
        body = "\n".join(f"    {line}" for line in with_drops(self.lines))
        return HostProgram(
            self.name,
            f"def {self.name}(args):\n{body}\n",
            tuple(self.segments.done),
            tuple(dict.fromkeys(self.externs)),
            tuple((value.name, self.names.value(value.name).text) for value in self.plan.constants),
            self.asserts.functions(),
            tuple(self.branches.values()),
            frozenset(
                self.branches[name].name
                for step in self.plan.steps
                if isinstance(step, RegionStep) and step.kind == "frozen"
                for name in step.plans
            ),
            tuple(self.steps),
            tuple(self.computed),
        )

    def _results(self) -> list[Code]:
        """Return the results; values over one tensor become several, of which the first that is no view is the tensor.

        Without gradients the others are views of it, as in eager. With them they are none: autograd tracks gradients by
        tensor, and refuses writes to views among the results of one function.
        """
        values = [output_code(output, self.names, self.tensors) for output in self.plan.outputs]
        pairs = list(zip(self.plan.outputs, values, strict=True))
        names = [(output.name, value) for output, value in pairs if isinstance(output, Ref)]
        owners: dict[Code, str] = {}
        for name, value in sorted(names, key=lambda pair: self.tensors.root(pair[0]) != pair[0]):
            owners.setdefault(value, name)
        again = "{0}.detach()" if self.training else "{0}.view_as({0})"
        return [
            code(again, value) if isinstance(output, Ref) and owners[value] != output.name else value
            for output, value in pairs
        ]

    def _line(self, template: str, *parts: Code | str | int) -> None:
        """Append a line."""
        self.lines.append(code(template, *parts))

    def _argument(self, argument: Argument) -> Code:
        """Return an argument as Python."""
        return argument_code(argument, self.names, self.tensors)

    # --- arguments and results ------------------------------------------------------------------------------

    def _arguments(self, inputs: Iterable[Input]) -> None:
        """Emit the unpacking of the arguments."""
        targets = [self._input(item) for item in inputs]
        if targets:
            self.lines.append(assigned(targets, Code("args")))
        # Otherwise the caller's list would keep inputs alive after their last use.
        self._line("args.clear()")
        if self.inner:
            self._numbers(inputs)
        if self.asserts != NO_ASSERTS:
            self.unasserted = [item for item in inputs if isinstance(item, Value)]
            self._assert_inputs()
        for name, whole in self.tensors.wholes.items():
            self._line("{} = pairs({})", self.names.value(name), whole)

    def _input(self, item: Input) -> Code:
        """Return the variable that an argument is assigned to."""
        match item:
            case ComplexValue():
                whole = self.tensors.whole(item.name)
                self.tensors.made(item.name)
                return whole
            case Value():
                return self.tensors.made(item.name)
            case ScalarInput(symbol=str() as bound):
                return Code(self.names.symbol(bound))
            case ScalarInput() | ObjectInput():
                return self.names.value(item.name)

    def _assert_inputs(self) -> None:
        """Emit the assertions about inputs; those of sizes that are not defined yet wait until they are."""
        ready = [item for item in self.unasserted if self._is_defined(item.type)]
        self.unasserted = [item for item in self.unasserted if item not in ready]
        for item in ready:
            type_, is_complex = item.type, isinstance(item, ComplexValue)
            shape, strides, dtypes = type_.shape, type_.layout.strides, TORCH_DTYPES
            if is_complex:
                shape, strides, dtypes = shape[:-1], complex_strides(strides), COMPLEX_DTYPES
            value = self.tensors.whole(item.name) if is_complex else self.names.value(item.name)
            if self.asserts.sizes:
                sizes, steps = self.names.terms(shape), self.names.terms(strides)
                given = (value, sizes, steps, dtypes[type_.dtype])
                self._line("assert_sizes({}, {}, {}, {}, {!r})", *given, item.name)
            if self.asserts.alignment:
                nbytes = GPU_ALIGNMENT if is_gpu(type_.device.kind) else type_.dtype.itemsize
                self._line("assert_aligned({}, {}, {!r})", value, nbytes, item.name)

    def _numbers(self, inputs: Iterable[Input]) -> None:
        """Emit conversions of scalar inputs, which higher-order operators pass as tensors of one element."""
        for item in inputs:
            if isinstance(item, ScalarInput) and item.symbol is not None:
                name = self.names.symbol(item.symbol)
                self._line("{} = {}({})", name, item.kind, name)

    def _settle(self) -> None:
        """Emit copies back to complex inputs that were overwritten, where their pairs are a copy."""
        given = [item for item in self.plan.inputs if isinstance(item, ComplexValue)]
        changed = written_buffers(self.plan) if given else frozenset()
        for item in given:
            if item.name in changed:
                self._line("settle({}, {})", self.tensors.wholes[item.name], self.names.value(item.name))

    # --- steps ----------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        """Emit a step."""
        if isinstance(step, Launch):
            self.segments.launch(step)
            if self.detail != "runs":
                self._observe_launch(step)
            return
        self.segments.flush()
        match step:
            case Allocate():
                self.tensors.allocate(step.storage)
            case CallStep():
                self._call(step)
            case DefineStep():
                self._define(step)
            case CheckStep():
                condition = scalar_code(step.condition, self.names, self.tensors.tensor)
                self._line("if not {}:\n        raise {}({!r})", condition, step.error, step.message)
            case RegionStep():
                self._region(step)

    def _call(self, step: CallStep) -> None:
        """Emit a call."""
        observed = self.detail != "runs"
        function = self.names.routine(f"{step.target} {len(self.steps)}" if observed else step.target)
        self.externs.append((step.target, function))
        if observed:
            self.steps.append((function, step))
        arguments = [self._argument(argument) for argument in step.arguments]
        arguments += [code("{}={}", key, self._argument(value)) for key, value in step.attributes]
        call = code("{}({})", function, joined(arguments))
        targets = [self.tensors.result(name, step.pairs) for name in step.results]
        if step.unpack or not targets:
            self.lines.append(assigned(targets, call))
        else:
            self._line("{} = {}", targets[0], call)
        if None in step.results:
            self._line("del _")
        for name in step.pairs:
            # Results that only the caller reads keep their conjugate bit.
            if name in self.read:
                whole = self.tensors.wholes[name]
                self._line("{} = plain({})", whole, whole)
        if step.reason:
            own = [name for name in step.results if name is not None]
            self.unchecked += [(name, step) for name in own if self.tensors.placements[name].base is None]
        checked = self._check_results()
        for name in step.pairs:
            if name not in checked:
                self._as_pairs(name)
        self._show(step, [name for name in step.results if name in self.tensors.placements])

    def _observe_launch(self, step: Launch) -> None:
        """Emit the pending launch as a native call of its own, and show what it wrote."""
        self.segments.flush()
        self.steps.append((self.segments.done[-1].name, step))
        parameters = self.kernels[step.kernel].parameters
        uses = zip(step.buffers, parameters, strict=True)
        self._show(step, [name for name, each in uses if each.access in ("out", "inout")])

    def _show(self, step: ObservedStep, computed: Iterable[str | None]) -> None:
        """Emit a call that is given the tensors that a step computed, if the detail asks for it."""
        names = tuple(dict.fromkeys(name for name in computed if name is not None))
        if self.detail != "values" or not names:
            return
        pairs = step.pairs if isinstance(step, CallStep) else ()
        shown = [self.tensors.wholes[name] if name in pairs else self.tensors.tensor(name) for name in names]
        function = self.names.routine(f"computed {len(self.computed)}")
        self.computed.append(Computed(function, step, names))
        self._line("{}({})", function, tuple_of(shown))

    def _check_results(self) -> set[str]:
        """Emit checks of operators' results against their meta kernels, which later steps rely on; return the names
        checked.

        Results of data-dependent sizes wait until these are defined.
        """
        checked = {name for name, _ in self.unchecked if self._is_defined(self.tensors.placements[name].type)}
        for name, step in self.unchecked:
            if name in checked:
                self._check_result(name, step)
        self.unchecked = [(name, step) for name, step in self.unchecked if name not in checked]
        return checked

    def _check_result(self, name: str, step: CallStep) -> None:
        """Emit the check of one result."""
        type_ = self.tensors.placements[name].type
        value, shape, strides = self.names.value(name), type_.shape, type_.layout.strides
        dtype = TORCH_DTYPES[type_.dtype]
        if name in step.pairs:
            value, shape, strides = self.tensors.wholes[name], shape[:-1], complex_strides(strides)
            dtype = COMPLEX_DTYPES[type_.dtype]
        sizes, steps = self.names.terms(shape), self.names.terms(strides)
        is_aten = step.target.startswith("aten.")
        # torch's meta kernels give some numbers that only ATen operators read, such as seeds, another device.
        where = "" if is_aten else f", {device_code(type_.device)}"
        given = (sizes, steps, dtype, repr(step.target), where)
        check = code("{} = promised({}, {}, {}, {}, {}{})", value, value, *given)
        if is_aten and name not in step.pairs and 0 not in shape:
            # ATen operators return tensors, nearly always as their meta kernels say: an inline test is faster. Where
            # one has no elements, some return None.
            asked = code("{}.stride() != {} or {}.shape != {}", value, steps, value, sizes)
            check = code("if {} or {}.dtype is not {}:\n        {}", asked, value, dtype, check)
        self.lines.append(check)
        if name in step.pairs:
            self._as_pairs(name)

    def _as_pairs(self, name: str) -> None:
        """Emit the pairs of a complex result, if a step reads them."""
        if name in self.read:
            self._line("{} = view_as_real({})", self.names.value(name), self.tensors.wholes[name])

    def _is_defined(self, type_: TensorType) -> bool:
        """Report whether all symbols of a type are defined."""
        terms = (*type_.shape, *type_.layout.strides)
        return all(isinstance(term, int) or term.free_symbols <= self.defined for term in terms)

    def _define(self, step: DefineStep) -> None:
        """Emit the definition of a symbol."""
        self._line("{} = {}", self.names.symbol(step.symbol), self._source(step))
        self.defined.add(step.symbol)
        self._check_results()
        self._assert_inputs()

    def _source(self, step: DefineStep) -> Code:
        """Return the value of a symbol."""
        if isinstance(step.source, Expr):
            return scalar_code(step.source, self.names, self.tensors.tensor)
        kind, value, dim = step.source
        buffer = self.names.value(value)
        return buffer if kind == "argument" else code("{}.{}({})", buffer, kind, dim)

    def _region(self, step: RegionStep) -> None:
        """Emit a higher-order operator or frozen region."""
        functions = [self.branches[name].name for name in step.plans]
        targets = [self.tensors.result(name) for name in step.results]
        if step.kind in ("cond", "invoke", "frozen"):
            # Called directly, so that only the list refers to the arguments.
            arguments = [self._argument(argument) for argument in step.arguments]
            chosen = Code(functions[0])
            if step.kind == "cond":
                chosen = code("({} if {} else {})", functions[0], arguments.pop(0), functions[1])
            call = code("{}([{}])", chosen, joined(arguments))
        else:
            parts = joined(self._argument_group(argument) for argument in step.arguments)
            call = code("run_region({!r}, ({}), ({},))", step.kind, listed(functions), parts)
        self.lines.append(assigned(targets, call))

    def _argument_group(self, argument: Argument) -> Code:
        """Return a group of a loop's arguments: carried values, scanned ones, or others."""
        assert isinstance(argument, tuple)
        return tuple_of(map(self._argument, argument))


def _read(step: Step) -> Iterable[str]:
    """Return the values that a step reads, or whose sizes it reads."""
    match step:
        case Launch():
            return step.buffers
        case CallStep():
            return references((*step.arguments, *(value for _, value in step.attributes)))
        case RegionStep():
            return references(step.arguments)
        case CheckStep():
            return load_names((step.condition,))
        case DefineStep():
            return load_names((step.source,)) if isinstance(step.source, Expr) else (step.source[1],)
    return ()
