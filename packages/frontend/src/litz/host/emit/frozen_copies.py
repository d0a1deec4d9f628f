"""The results of a frozen region on a GPU as copies of its arguments, read from its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from litz.devices import is_gpu
from litz.host.program import FrozenCopy
from litz_ir.dtypes import DType
from litz_ir.loops import Axis, Ref, Value
from litz_ir.plan import Allocate, Free, Kernel, Launch, Plan, RegionStep, Statement, Store, invocations_of
from litz_ir.scalar import Const, Expr, Index, Load, Masked, Op, const, substitute_expr
from litz_ir.symbols import Size, Symbol, coefficient, substitute

MAX_RANK = 4
"""Most dimensions of a copy."""


def frozen_copies(plan: Plan) -> tuple[FrozenCopy, ...]:
    """Return a plan's results as copies of its inputs; empty where one of them is computed in another way."""
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    inputs = {each.name: number for number, each in enumerate(plan.inputs) if isinstance(each, Value)}
    outputs = {each.name: number for number, each in enumerate(plan.outputs) if isinstance(each, Ref)}
    found: dict[int, FrozenCopy] = {}
    for step in plan.steps:
        if isinstance(step, Launch):
            for each in _launched(kernels[step.kernel], step.buffers):
                copy = each.copy(inputs, outputs)
                if copy is None or copy.result in found:
                    return ()
                found[copy.result] = copy
        elif not isinstance(step, Allocate | Free):
            return ()
    complete = len(found) == len(plan.outputs) and not plan.symbols
    return tuple(found[number] for number in sorted(found)) if complete else ()


def has_frozen_copies(plan: Plan, kind: str) -> bool:
    """Report whether a plan has a frozen region on GPUs of a kind whose results are copies."""
    steps = (each for each in plan.steps if isinstance(each, RegionStep) and each.kind == "frozen")
    own = [
        each for each in steps if all(plan.placement(name).type.device.kind == kind for name in each.results)
    ]
    return is_gpu(kind) and any(frozen_copies(plan.subplan(name)) for each in own for name in each.plans)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A statement that stores to a buffer at each point of some axes."""

    statement: Statement
    axes: tuple[Axis, ...]
    buffers: Mapping[str, str]
    """Buffer of the plan for each parameter of the kernel."""
    dtypes: Mapping[str, DType]
    """Dtype of each parameter."""

    def copy(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> FrozenCopy | None:
        """Return the statement as a copy; ``None`` for others."""
        store = self.statement
        if not isinstance(store, Store) or store.mode != "set":
            return None
        target = outputs.get(self.buffers[store.buffer])
        limits: dict[str, int] = {}
        load = _copied(store.value, limits)
        source = None if load is None else inputs.get(self.buffers[load.buffer])
        if load is None or source is None or target is None:
            return None
        sizes: list[int] = []
        strides: list[tuple[int, int]] = []
        for axis in self.axes:
            pair = coefficient(load.index[0], axis.name), coefficient(store.offset, axis.name)
            read, written = pair
            if not isinstance(axis.size, int) or not isinstance(read, int) or not isinstance(written, int):
                return None
            if axis.size != 1:
                sizes.append(min(axis.size, limits.get(axis.name, axis.size)))
                strides.append((read, written))
        begin, end = _start(load.index[0], self.axes), _start(store.offset, self.axes)
        if begin is None or end is None or any(0 in pair for pair in strides) or len(sizes) > MAX_RANK:
            return None
        sides = tuple(each for each, _ in strides), tuple(each for _, each in strides)
        return FrozenCopy(
            source, target, (load.dtype, self.dtypes[store.buffer]), (begin, end), tuple(sizes), sides
        )


def _launched(kernel: Kernel, buffers: tuple[str, ...]) -> Iterator[_Stored]:
    """Yield the statements that a launch runs."""
    given = dict(zip((each.name for each in kernel.parameters), buffers, strict=True))
    if not kernel.subkernels:
        yield from _stored(kernel, given, {})
        return
    for own, invocation in invocations_of(kernel):
        names = (each.name for each in own.parameters)
        chosen = {name: given[at] for name, at in zip(names, invocation.buffers, strict=True)}
        yield from _stored(
            own, chosen, dict(zip((i.name for i in own.symbols), invocation.symbols, strict=True))
        )


def _stored(kernel: Kernel, buffers: Mapping[str, str], sizes: Mapping[str, Size]) -> Iterator[_Stored]:
    """Yield the statements of a kernel, with values in place of its symbols."""
    dtypes = {parameter.name: parameter.dtype for parameter in kernel.parameters}
    for phase in kernel.phases:
        axes = tuple(Axis(axis.name, substitute(axis.size, sizes)) for axis in (*kernel.outer, *phase.axes))
        for statement in phase.statements:
            if isinstance(statement, Store) and sizes:
                offset, value = substitute(statement.offset, sizes), substitute_expr(statement.value, sizes)
                statement = replace(statement, offset=offset, value=value)
            yield _Stored(statement, axes, buffers, dtypes)


def _copied(value: Expr, limits: dict[str, int]) -> Load | None:
    """Return the load whose element a value has, cast at most once; ``None`` for other values.

    ``limits`` gets the sizes below which axes must be; elsewhere the value is zero.
    """
    casts = 0
    while not isinstance(value, Load):
        if isinstance(value, Op) and value.name == "cast":
            (value,) = value.args
            casts += 1
        elif (
            isinstance(value, Masked)
            and value.other == const(0, value.dtype)
            and _limited(value.cond, limits)
        ):
            value = value.body
        else:
            return None
    return value if casts <= 1 else None


def _limited(condition: Expr, limits: dict[str, int]) -> bool:
    """Add the sizes to ``limits`` below which a condition holds; report whether it says nothing else."""
    match condition:
        case Op(name="bit_and" | "and" | "logical_and", args=parts):
            return all(_limited(part, limits) for part in parts)
        case Op(
            name="lt", args=(Index(term=Symbol(name=name)), Index(term=int(size)) | Const(value=int(size)))
        ):
            limits[name] = min(size, limits.get(name, size))
            return True
    return False


def _start(offset: Size, axes: tuple[Axis, ...]) -> int | None:
    """Return the offset at the first point; ``None`` where it is unknown."""
    first = substitute(offset, dict.fromkeys((axis.name for axis in axes), 0))
    return first if isinstance(first, int) else None
