"""The host program of a plan, as readable Python: allocations, runs of kernels, calls, results."""

from __future__ import annotations

from collections.abc import Iterable

from litz.host.arguments import argument_code, output_code
from litz.host.code import Code, assigned, code, joined, listed, tuple_of, with_drops
from litz.host.names import Names
from litz.host.program import HostProgram
from litz.host.scalars import scalar_code
from litz.host.segments import Segments
from litz.host.tensors import TensorVariables, complex_strides
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


def host_program(plan: Plan, name: str = "call", *, inner: bool = False) -> HostProgram:
    """The host program of ``plan``; ``inner`` for the plan of a subgraph, which control flow calls.

    Raises :class:`CodegenError` for what the host cannot express.
    """
    return _Writer(plan, name, inner).write()


class _Writer:
    def __init__(self, plan: Plan, name: str, inner: bool) -> None:
        self.plan = plan
        self.inner = inner
        self.name = name
        self.lines: list[Code] = []
        self.names = Names(value.name for value in plan.constants)
        self.tensors = TensorVariables(plan, self.names, self.lines)
        kernels = {kernel.name: kernel for kernel in plan.kernels}
        self.segments = Segments(kernels, self.names, self.tensors, self.lines)
        self.externs: dict[str, str] = {}
        self.branches: dict[str, HostProgram] = {}
        self.defined = {i.symbol for i in plan.inputs if isinstance(i, ScalarInput) and i.symbol is not None}
        self.owed: list[tuple[str, CallStep]] = []
        self.read = {name for step in plan.steps for name in _read(step)}
        self.read.update(placement.base for _, placement in plan.buffers if placement.base is not None)
        for info in plan.symbols:
            self.names.symbol(info.name)
        for subplan in plan.subplans:
            function = self.names.function(subplan.name)
            self.branches[subplan.name] = host_program(subplan, function, inner=True)

    def write(self) -> HostProgram:
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
            tuple(self.externs.items()),
            tuple((value.name, self.names.value(value.name).text) for value in self.plan.constants),
            tuple(self.branches.values()),
            frozenset(
                self.branches[name].name
                for step in self.plan.steps
                if isinstance(step, RegionStep) and step.kind == "frozen"
                for name in step.plans
            ),
        )

    def _results(self) -> list[Code]:
        """What is returned. Values that are one tensor come as two: autograd notes whether each has a gradient."""
        owners: dict[Code, str] = {}
        results: list[Code] = []
        for output in self.plan.outputs:
            result = output_code(output, self.names, self.tensors)
            if isinstance(output, Ref) and owners.setdefault(result, output.name) != output.name:
                result = code("{}.detach()", result)
            results.append(result)
        return results

    def _line(self, template: str, *parts: Code | str | int) -> None:
        self.lines.append(code(template, *parts))

    def _argument(self, argument: Argument) -> Code:
        return argument_code(argument, self.names, self.tensors)

    # --- in and out -----------------------------------------------------------------------------------------

    def _arguments(self, inputs: Iterable[Input]) -> None:
        targets = [self._input(item) for item in inputs]
        if targets:
            self.lines.append(assigned(targets, Code("args")))
        # The caller's list must not keep inputs alive that the program is done with.
        self._line("args.clear()")
        if self.inner:
            self._numbers(inputs)
        for name, whole in self.tensors.wholes.items():
            self._line("{} = pairs({})", self.names.value(name), whole)

    def _input(self, item: Input) -> Code:
        """The variable that an argument is assigned to."""
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

    def _numbers(self, inputs: Iterable[Input]) -> None:
        """Control flow carries numbers as tensors of one element."""
        for item in inputs:
            if isinstance(item, ScalarInput) and item.symbol is not None:
                name = self.names.symbol(item.symbol)
                self._line("{} = {}({})", name, item.kind, name)

    def _settle(self) -> None:
        """Complex inputs that a step may have written: where their pairs are a copy, the caller's tensor is told."""
        given = [item for item in self.plan.inputs if isinstance(item, ComplexValue)]
        changed = written_buffers(self.plan) if given else frozenset()
        for item in given:
            if item.name in changed:
                self._line("settle({}, {})", self.tensors.wholes[item.name], self.names.value(item.name))

    # --- steps ----------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        if isinstance(step, Launch):
            self.segments.launch(step)
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
        function = self.externs[step.target] = self.names.routine(step.target)
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
            # What only the caller sees keeps its conjugate bit.
            if name in self.read:
                whole = self.tensors.wholes[name]
                self._line("{} = plain({})", whole, whole)
        if step.reason:
            own = [name for name in step.results if name is not None]
            self.owed += [(name, step) for name in own if self.tensors.placements[name].base is None]
        held = self._hold_owed()
        for name in step.pairs:
            if name not in held:
                self._as_pairs(name)

    def _hold_owed(self) -> set[str]:
        """Hold what operators returned to what their meta kernels said: everything after was compiled for that. What
        depends on sizes that are data waits until they are defined. The names of what was held."""
        held = {name for name, _ in self.owed if self._is_defined(self.tensors.placements[name].type)}
        for name, step in self.owed:
            if name in held:
                self._hold(name, step)
        self.owed = [(name, step) for name, step in self.owed if name not in held]
        return held

    def _hold(self, name: str, step: CallStep) -> None:
        type_ = self.tensors.placements[name].type
        value, shape, strides = self.names.value(name), type_.shape, type_.layout.strides
        dtype = TORCH_DTYPES[type_.dtype]
        if name in step.pairs:
            value, shape, strides = self.tensors.wholes[name], shape[:-1], complex_strides(strides)
            dtype = COMPLEX_DTYPES[type_.dtype]
        sizes, steps = self.names.terms(shape), self.names.terms(strides)
        correct = code("{} = promised({}, {}, {}, {}, {!r})", value, value, sizes, steps, dtype, step.target)
        if step.target.startswith("aten.") and name not in step.pairs:
            # ATen's own operators give tensors, and nearly always what they promised: to ask here is quicker.
            asked = code("{}.stride() != {} or {}.shape != {}", value, steps, value, sizes)
            correct = code("if {} or {}.dtype is not {}:\n        {}", asked, value, dtype, correct)
        self.lines.append(correct)
        if name in step.pairs:
            self._as_pairs(name)

    def _as_pairs(self, name: str) -> None:
        if name in self.read:
            self._line("{} = view_as_real({})", self.names.value(name), self.tensors.wholes[name])

    def _is_defined(self, type_: TensorType) -> bool:
        terms = (*type_.shape, *type_.layout.strides)
        return all(isinstance(term, int) or term.free_symbols <= self.defined for term in terms)

    def _define(self, step: DefineStep) -> None:
        self._line("{} = {}", self.names.symbol(step.symbol), self._source(step))
        self.defined.add(step.symbol)
        self._hold_owed()

    def _source(self, step: DefineStep) -> Code:
        """The value of a symbol."""
        if isinstance(step.source, Expr):
            return scalar_code(step.source, self.names, self.tensors.tensor)
        kind, value, dim = step.source
        buffer = self.names.value(value)
        return buffer if kind == "argument" else code("{}.{}({})", buffer, kind, dim)

    def _region(self, step: RegionStep) -> None:
        functions = [self.branches[name].name for name in step.plans]
        targets = [self.tensors.result(name) for name in step.results]
        if step.kind in ("cond", "invoke", "frozen"):
            # Called directly, so that nothing but the list holds the arguments.
            arguments = [self._argument(argument) for argument in step.arguments]
            chosen = Code(functions[0])
            if step.kind == "cond":
                chosen = code("({} if {} else {})", functions[0], arguments.pop(0), functions[1])
            call = code("{}([{}])", chosen, joined(arguments))
        else:
            parts = joined(self._part(argument) for argument in step.arguments)
            call = code("run_region({!r}, ({}), ({},))", step.kind, listed(functions), parts)
        self.lines.append(assigned(targets, call))

    def _part(self, argument: Argument) -> Code:
        """The carried values of a loop, what it goes along, or the others."""
        assert isinstance(argument, tuple)
        return tuple_of(map(self._argument, argument))


def _read(step: Step) -> Iterable[str]:
    """The values that a step reads, or measures."""
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
