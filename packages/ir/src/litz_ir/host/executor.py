"""Execution of a plan, step by step, over any memory and table of routines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litz_ir.dtypes import DType, bf16
from litz_ir.errors import DTypeError, GraphError, asserted
from litz_ir.host.externs import ExternTable
from litz_ir.host.launch import BufferFunction, Launcher
from litz_ir.host.memory import Memory, NumpyMemory
from litz_ir.interp.bind import BITS_HINT, bind_inputs, bind_result, require_mapping
from litz_ir.interp.body import with_origin
from litz_ir.interp.calls import Externs, call, resolve
from litz_ir.interp.graph import evaluate_scalar
from litz_ir.interp.kernel import run_kernel
from litz_ir.interp.pairs import as_pairs
from litz_ir.interp.regions import run_region
from litz_ir.loops.layout import span
from litz_ir.loops.nodes import (
    Output,
    Ref,
    ScalarInput,
    ScalarRef,
    StridedRef,
    TensorType,
    Value,
)
from litz_ir.origin import UNKNOWN
from litz_ir.plan.buffer_uses import memory_root, written_buffers
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import (
    Allocate,
    CallStep,
    CheckStep,
    DefineStep,
    Free,
    Launch,
    Placement,
    Plan,
    RegionStep,
    Step,
)
from litz_ir.scalar.expr import loads
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, Term, evaluate


class Executor:
    """Runs a plan over any memory and table of routines.

    ``launchers`` has each kernel's function by name; without it kernels run in the reference interpreter.
    ``constants`` has the plan's constants by name. An executor has no state between runs, so threads may share it.
    Raises :class:`GraphError` for what is no plan, and for constants and launchers that are missing.
    """

    def __init__(
        self,
        plan: Plan,
        launchers: Mapping[str, Launcher] | None = None,
        memory: Memory | None = None,
        externs: Externs | None = None,
        *,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise GraphError(
                f"an Executor runs a Plan, got a value of type {type(plan).__name__}",
                stage="executor",
                hint="schedule a graph first, or run it by litz_ir.interp.run_graph",
            )
        for value, called in ((launchers, "launchers"), (externs, "externs"), (constants, "constants")):
            if value is not None:
                require_mapping(value, called)
        self.plan = plan
        self.launchers = launchers
        self.memory: Memory = NumpyMemory() if memory is None else memory
        self.externs: Externs = ExternTable({}) if externs is None else externs
        self.constants = constants or {}
        self.placements = dict(plan.buffers)
        self.storages = {storage.name: storage for storage in plan.storages}
        self.kernels = {kernel.name: kernel for kernel in plan.kernels}
        self.written = written_buffers(plan)
        absent = [value.name for value in plan.constants if value.name not in self.constants]
        if absent:
            raise GraphError(f"constants are missing: {', '.join(absent)}", stage="executor", node=plan.name)
        if launchers is not None and (lacking := sorted(self.kernels.keys() - launchers.keys())):
            raise GraphError(
                f"kernels have no launcher: {', '.join(lacking)}", stage="executor", node=plan.name
            )

    def run(self, inputs: Sequence[Any], *, symbols: Mapping[str, Any] | None = None) -> list[Any]:
        """The plan's outputs: tensors with the strides of their placements, scalars and ``None``.

        Inputs that the plan mutates change in place. ``symbols`` are those of the plan around a region's plan. Raises
        :class:`GraphError` for inputs that do not fit, and the errors of kernels, routines and checks.
        """
        if symbols is not None:
            require_mapping(symbols, "symbols")
        return _Execution(self, inputs, symbols).run()


def check_dtype(memory: Memory, tensor: Any, dtype: DType, name: str) -> None:
    """Raise :class:`DTypeError` unless a tensor, called ``name``, has elements of ``dtype``."""
    found = memory.dtypes(tensor)
    if dtype not in found:
        names = " or ".join(sorted(each.name for each in found)) or "a dtype that litz does not have"
        raise DTypeError(
            f"{name} is {dtype}, got elements of {names}",
            hint=BITS_HINT
            if dtype is bf16 or dtype.is_narrow
            else f"convert the tensor to {dtype.torch_name}",
        )


class _Execution:
    """One run: the storages, tensors and symbols that exist so far."""

    def __init__(self, executor: Executor, inputs: Sequence[Any], symbols: Mapping[str, Any] | None) -> None:
        self.executor = executor
        self.is_region = symbols is not None
        self.memory = executor.memory
        self.storages: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}
        self.copied_in: list[tuple[str, Any]] = []
        plan = executor.plan
        self.symbols = {**(symbols or {}), **bind_inputs(plan.inputs, inputs, self.memory.geometry)}
        self.arguments = {each.name: argument for each, argument in zip(plan.inputs, inputs)}
        for each in (*plan.inputs, *plan.constants):
            if not isinstance(each, ScalarInput):
                tensor = (
                    self.arguments[each.name]
                    if each.name in self.arguments
                    else executor.constants[each.name]
                )
                self.given[each.name] = tensor
                if isinstance(each, Value):
                    kind = "input" if each.name in self.arguments else "constant"
                    check_dtype(self.memory, tensor, each.type.dtype, f"{kind} {each.name}")

    def run(self) -> list[Any]:
        for step in self.executor.plan.steps:
            self.step(step)
        found = [self.output(output) for output in self.executor.plan.outputs]
        for name, tensor in self.copied_in:
            if name in self.executor.written:
                self.memory.write(self.given[name], self.memory.read(tensor, self.type(name).dtype))
        return found

    def step(self, step: Step) -> None:
        match step:
            case Allocate():
                storage = self.executor.storages[step.storage]
                self.storages[step.storage] = self.memory.empty(self.size(storage.nbytes), storage.device)
            case Free():
                self.free(step.name)
            case Launch():
                kernel = self.executor.kernels[step.kernel]
                with with_origin(kernel.name, step.origins[0].origin if step.origins else UNKNOWN):
                    self.launch(kernel, step)
            case CallStep():
                with with_origin(step.target, step.origin):
                    self.call(step)
            case DefineStep():
                self.symbols[step.symbol] = self.define(step)
            case CheckStep():
                with with_origin("", step.origin):
                    if not self.host_value(step.condition):
                        raise asserted(step.error, step.message)
            case RegionStep():
                with with_origin(step.kind, step.origin):
                    self.region(step)

    def size(self, size: Size) -> int:
        return evaluate(size, self.symbols)

    def type(self, name: str) -> TensorType:
        return self.executor.placements[name].type

    def tensor(self, name: str) -> Any:
        """The tensor of a buffer, created on first use."""
        found = self.tensors.get(name)
        if found is None:
            found = self.tensors[name] = self.make(name)
        return found

    def make(self, name: str) -> Any:
        placement = self.executor.placements.get(name)
        if placement is None:
            if name not in self.given:
                raise GraphError(f"{name} is not defined", stage="executor", node=self.executor.plan.name)
            return self.given[name]
        own = self.size(placement.type.layout.offset) * placement.type.dtype.itemsize
        if placement.storage is not None:
            if placement.storage not in self.storages:
                raise GraphError(
                    f"{name} is used while {placement.storage} is not allocated", stage="executor"
                )
            return self.view(
                self.storages[placement.storage], placement.type, self.size(placement.offset) + own
            )
        if placement.base is not None:
            base = self.type(placement.base)
            start = self.size(base.layout.offset) * base.dtype.itemsize
            return self.view(self.tensor(placement.base), placement.type, own - start)
        if name not in self.given:
            raise GraphError(f"{name} is used before a step defines it", stage="executor")
        tensor = self.conform(name, self.given[name], placement.type)
        if name in self.executor.plan.donated:
            self.given[name] = tensor = self.whole(placement, tensor)
        return tensor

    def whole(self, placement: Placement, tensor: Any) -> Any:
        """The tensor of a donated input, copied if its memory may end before the last byte that a plan reuses.

        A region's plan gets memory of the plan around it, which may read there what the region writes.
        """
        nbytes, aligned = self.size(placement.nbytes), self.size(placement.aligned_nbytes)
        if nbytes == aligned or self.is_region:
            return tensor
        dtype = placement.type.dtype
        copy = self.view(self.memory.empty(aligned, placement.type.device), placement.type, 0)
        self.memory.write(copy, self.memory.read(tensor, dtype))
        return copy

    def view(self, storage: Any, type_: TensorType, offset: int) -> Any:
        shape, strides = map(self.size, type_.shape), map(self.size, type_.layout.strides)
        return self.memory.view(storage, type_.dtype, tuple(shape), tuple(strides), offset)

    def conform(self, name: str, tensor: Any, type_: TensorType) -> Any:
        """The tensor itself if it has the type's strides, else a copy that has."""
        shape, strides = self.memory.geometry(tensor)
        strides_needed = tuple(map(self.size, type_.layout.strides))
        if tuple(map(self.size, type_.shape)) != shape:
            raise GraphError(f"{name} has shape {shape}, but its type has {type_.shape}", stage="executor")
        if 0 in shape or all(
            n == 1 or a == b for n, a, b in zip(shape, strides, strides_needed, strict=True)
        ):
            return tensor
        reach = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides_needed))
        storage = self.memory.empty(reach * type_.dtype.itemsize, type_.device)
        copy = self.memory.view(storage, type_.dtype, shape, strides_needed, 0)
        self.memory.write(copy, self.memory.read(tensor, type_.dtype))
        if name in self.arguments:
            self.copied_in.append((name, copy))
        return copy

    def free(self, name: str) -> None:
        """Free a storage, or drop a call's result, with every tensor over it."""
        self.storages.pop(name, None)
        self.given.pop(name, None)
        for view_name in [view_name for view_name in self.tensors if self.lives_in(view_name, name)]:
            del self.tensors[view_name]

    def lives_in(self, buffer: str, name: str) -> bool:
        root = memory_root(buffer, self.executor.placements)
        placement = self.executor.placements.get(root)
        return root == name or (placement is not None and placement.storage == name)

    def launch(self, kernel: Kernel, step: Launch) -> None:
        values = [self.symbol_value(term) for term in step.symbols]
        if self.executor.launchers is None:
            self.interpret(kernel, step, values)
            return
        launcher = self.executor.launchers[kernel.name]
        if isinstance(launcher, BufferFunction):
            extents = ((name, *self.extent(name)) for name in step.buffers)
            launcher.run([self.memory.buffer(self.tensor(name), -a, n) for name, a, n in extents], values)
        else:
            starts = ((name, self.extent(name)[0]) for name in step.buffers)
            launcher([self.memory.address(self.tensor(name)) - start for name, start in starts], values)

    def extent(self, name: str) -> tuple[int, int]:
        """Bytes of a buffer before its tensor's first element, and all bytes that its type spans."""
        type_ = self.type(name)
        elements = 0 if 0 in map(self.size, type_.shape) else self.size(span(type_.shape, type_.layout))
        return self.size(type_.layout.offset) * type_.dtype.itemsize, elements * type_.dtype.itemsize

    def symbol_value(self, term: Size) -> Any:
        return evaluate(term, self.symbols) if isinstance(term, Term) else term

    def interpret(self, kernel: Kernel, step: Launch, values: Sequence[Any]) -> None:
        """Run a kernel in the reference interpreter, on its buffers as flat arrays from their start."""
        flats, arrays = {}, {}
        for parameter, name in zip(kernel.parameters, step.buffers, strict=True):
            start, nbytes = self.extent(name)
            elements = nbytes // parameter.dtype.itemsize
            flat = self.memory.view(self.tensor(name), parameter.dtype, (elements,), (1,), -start)
            flats[parameter.name] = flat
            arrays[parameter.name] = self.memory.read(flat, parameter.dtype)
        run_kernel(kernel, arrays, {info.name: v for info, v in zip(kernel.symbols, values, strict=True)})
        for parameter in kernel.parameters:
            if parameter.access != "in":
                self.memory.write(flats[parameter.name], arrays[parameter.name])

    def call(self, step: CallStep) -> None:
        returned = call(
            self.executor.externs,
            step.target,
            step.arguments,
            step.attributes,
            self.tensor,
            self.strided_view,
            self.symbols,
        )
        for name, tensor in zip(step.results, returned if step.unpack else (returned,)):
            if name is not None and tensor is not None:
                self.define_tensor(name, as_pairs(tensor) if name in step.pairs else tensor)

    def strided_view(self, ref: StridedRef) -> Any:
        """The tensor of a strided view of a buffer's memory."""
        type_ = replace(self.type(ref.name), shape=ref.shape, layout=ref.layout)
        start = self.size(ref.layout.offset) * type_.dtype.itemsize
        return self.view(self.tensor(ref.name), type_, start)

    def define_tensor(self, name: str, tensor: Any) -> None:
        """Enter a result of a call or region; a result that aliases another buffer is read through that one."""
        placement = self.executor.placements.get(name)
        if placement is not None and placement.base is None:
            bind_result(placement.type, tensor, self.memory.geometry, self.symbols)
        self.given[name] = tensor

    def define(self, step: DefineStep) -> int | float | bool:
        if isinstance(step.source, Expr):
            return self.host_value(step.source)
        kind, name, dimension = step.source
        if kind == "argument":
            argument = self.arguments[name]
            value: int | float | bool = argument.item() if hasattr(argument, "item") else argument
            return value
        shape, strides = self.memory.geometry(self.given[name])
        return (shape if kind == "size" else strides)[dimension]

    def host_value(self, expr: Expr) -> int | float | bool:
        buffers = {load.buffer: load.dtype for load in loads(expr)}
        arrays = {name: self.memory.read(self.tensor(name), dtype) for name, dtype in buffers.items()}
        return evaluate_scalar(expr, arrays, self.symbols)

    def region(self, step: RegionStep) -> None:
        outer = self.executor

        def runner(name: str) -> Callable[[Sequence[Any]], list[Any]]:
            plan = outer.plan.subplan(name)
            constants = {**outer.constants, **{v.name: self.tensor(v.name) for v in outer.plan.constants}}
            inner = Executor(plan, outer.launchers, outer.memory, outer.externs, constants=constants)
            return lambda inputs: inner.run(inputs, symbols=self.symbols)

        arguments = [resolve(each, self.tensor, self.strided_view, self.symbols) for each in step.arguments]
        found = run_region(step.kind, list(map(runner, step.plans)), arguments, _Tensors(self.memory))
        for name, tensor in zip(step.results, found, strict=True):
            self.define_tensor(name, tensor)

    def output(self, output: Output) -> Any:
        if isinstance(output, Ref):
            root = memory_root(output.name, self.executor.placements)
            is_input = root in self.arguments and (
                output.name == root or self.type(output.name) == self.type(root)
            )
            return self.given[root] if is_input else self.tensor(output.name)
        if isinstance(output, ScalarRef):
            return self.symbols[output.name]
        return evaluate(output, self.symbols) if isinstance(output, Term) else output


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Operations on tensors of a memory that regions need."""

    memory: Memory

    def stack(self, tensors: Sequence[Any]) -> Any:
        return self.memory.stack(tensors)

    def copy(self, tensor: Any) -> Any:
        return self.memory.copy(tensor)

    def truth(self, value: Any) -> bool:
        return bool(
            value if isinstance(value, bool | int | float) else self.memory.read(value, self._dtype(value))
        )

    def rows(self, tensor: Any) -> Sequence[Any]:
        (count, *shape), (stride, *strides) = self.memory.geometry(tensor)
        dtype = self._dtype(tensor)
        step = stride * dtype.itemsize
        return [self.memory.view(tensor, dtype, shape, strides, row * step) for row in range(count)]

    def _dtype(self, tensor: Any) -> DType:
        """Return a dtype that the elements may have; others that they may have are as wide."""
        return next(iter(self.memory.dtypes(tensor)))
