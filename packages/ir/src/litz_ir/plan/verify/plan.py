"""The invariants of a plan. Each is a ``check_*`` function that raises :class:`VerifyError` under its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from litz_ir.device import Device
from litz_ir.dtypes import DType, b1
from litz_ir.loops.nodes import (
    Argument,
    Ref,
    ScalarInput,
    ScalarRef,
    StridedRef,
    Value,
    sizes_in,
)
from litz_ir.loops.verify_state import SCALAR_DTYPES
from litz_ir.plan.horizontal_fusion import conflicting_buffer, invocations_of
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
    Storage,
    plans_in,
)
from litz_ir.plan.verify.contents import check_contents
from litz_ir.plan.verify.launched_kernels import check_kernel_devices, check_kernel_names, verify_kernels
from litz_ir.plan.verify.memory import check_reused_memory, check_storage_overlap
from litz_ir.plan.verify.types import check_types
from litz_ir.scalar.expr import loads
from litz_ir.scalar.node import Expr
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, verify_bodies
from litz_ir.symbols.polynomials import add
from litz_ir.symbols.proofs import Predicate, Prover
from litz_ir.symbols.term import Size, Term

_STAGE = "plan"
T = TypeVar("T")


def verify_plan(plan: Plan) -> None:
    """Check every invariant of a plan, its kernels and its subplans; raises :class:`VerifyError`."""
    location = ErrorLocation(_STAGE, plan.name)
    check_types(plan, _STAGE)
    verify_kernels(plan)
    check_kernel_names(plan, location)
    _check_donated(plan, location)
    _check_plan_names(plan, location)
    for branch in plan.subplans:
        verify_plan(branch)
    state = _start(plan, location)
    prover = Prover(plan.symbols)
    for name, placement in plan.buffers:
        _check_placement(name, placement, state, prover)
    for step in plan.steps:
        _verify_step(step, state)
    check_kernel_devices(plan, location)
    _check_outputs(state, location)
    check_contents(plan, _STAGE)
    check_storage_overlap(plan)
    check_reused_memory(plan, prover)


def _check_plan_names(plan: Plan, location: ErrorLocation) -> None:
    """A plan and all its subplans, those of subplans included, have different names."""
    unique("plans", [(each.name, each) for each in plans_in(plan)], location)


@dataclass(slots=True)
class _State:
    """Values that exist at some step of the plan."""

    plan: Plan
    kernels: dict[str, Kernel]
    storages: dict[str, Storage]
    buffers: dict[str, Placement]
    symbols: set[str]
    """Symbols that have a value."""
    scalars: dict[str, tuple[DType, ...]]
    """Dtypes in which bodies may read each symbol."""
    live_storages: set[str] = field(default_factory=set)
    """Storages that are allocated."""
    live_values: set[str] = field(default_factory=set)
    """Inputs, constants and results of calls that have not been freed."""
    objects: set[str] = field(default_factory=set)
    """Names of object inputs."""

    def root(self, name: str, location: ErrorLocation) -> str:
        """The buffer at the end of the alias chain of ``name``; fails if the chain has a cycle or a missing buffer."""
        visited = {name}
        while (base := self.buffers[name].base) is not None:
            if base not in self.buffers:
                location.fail("placement", f"%{name} shares the memory of %{base}, which is not placed")
            if base in visited:
                location.fail("placement", f"the alias chain of %{base} is a cycle")
            visited.add(base)
            name = base
        return name


def _start(plan: Plan, location: ErrorLocation) -> _State:
    """The state before the first step."""
    later = {step.symbol for step in plan.steps if isinstance(step, DefineStep)}
    known = [info for info in plan.symbols if info.name not in later]
    state = _State(
        plan,
        unique("kernels", [(kernel.name, kernel) for kernel in plan.kernels], location),
        unique("storages", [(storage.name, storage) for storage in plan.storages], location),
        unique("buffers", list(plan.buffers), location),
        {info.name for info in known},
        {info.name: SCALAR_DTYPES[info.kind] for info in known},
    )
    for item in (*plan.inputs, *plan.constants):
        if isinstance(item, Value):
            state.live_values.add(item.name)
        elif isinstance(item, ScalarInput):
            state.symbols.add(item.symbol or item.name)
            state.scalars.setdefault(item.symbol or item.name, SCALAR_DTYPES[item.kind])
        else:
            state.objects.add(item.name)
    return state


def unique(kind: str, items: list[tuple[str, T]], location: ErrorLocation) -> dict[str, T]:
    """The items by name; fails if two have one name."""
    found: dict[str, T] = {}
    for name, item in items:
        if name in found:
            location.fail("defined-once", f"two {kind} are called {name}")
        found[name] = item
    return found


def _verify_step(step: Step, state: _State) -> None:
    match step:
        case Allocate():
            _check_allocate(step, state)
        case Free():
            _check_free(step, state)
        case Launch():
            _check_launch(step, state)
        case CallStep():
            location = ErrorLocation(_STAGE, f"call {step.target}", step.origin)
            _check_arguments((*step.arguments, *(value for _, value in step.attributes)), state, location)
            _check_results(tuple(name for name in step.results if name is not None), state, location)
        case DefineStep():
            _check_define(step, state)
        case CheckStep():
            location = ErrorLocation(_STAGE, "check", step.origin)
            _check_host_body(step.condition, state, location)
            if step.condition.dtype != b1:
                location.fail("result-dtype", f"the condition is {step.condition.dtype}, b1 expected")
        case RegionStep():
            location = ErrorLocation(_STAGE, f"region.{step.kind}", step.origin)
            _check_arguments(step.arguments, state, location)
            _check_branches(step, state, location)
            _check_results(step.results, state, location)


# --- memory ---------------------------------------------------------------------------------------------


def _check_placement(name: str, placement: Placement, state: _State, prover: Prover) -> None:
    """A buffer lies in a storage of the plan that is on its device and large enough, or shares the memory of a
    base, or neither.
    """
    location = ErrorLocation(_STAGE, name)
    state.root(name, location)
    if placement.storage is None:
        return
    if placement.base is not None:
        location.fail(
            "placement", f"%{name} is in {placement.storage} and shares the memory of %{placement.base}"
        )
    storage = state.storages.get(placement.storage)
    if storage is None:
        location.fail("placement", f"%{name} is in {placement.storage}, which is not a storage of the plan")
    if storage.device != placement.type.device:
        location.fail(
            "placement", f"%{name} is on {placement.type.device}, but its storage is on {storage.device}"
        )
    end = add(placement.offset, placement.nbytes)
    if prover.prove(Predicate("lt", storage.nbytes, end)) is True:
        location.fail(
            "storage-size", f"%{name} ends at byte {end} of {storage.name}, which has {storage.nbytes} bytes"
        )


def _check_allocate(step: Allocate, state: _State) -> None:
    """An allocated storage belongs to the plan and is free before."""
    location = ErrorLocation(_STAGE, f"allocate {step.storage}")
    if step.storage not in state.storages:
        location.fail("allocate", f"{step.storage} is not a storage of the plan")
    if step.storage in state.live_storages:
        location.fail("allocate", f"{step.storage} is allocated already")
    state.live_storages.add(step.storage)


def _check_free(step: Free, state: _State) -> None:
    """A freed name is an allocated storage, or a value that an earlier step defined."""
    if step.name in state.live_storages:
        state.live_storages.discard(step.name)
    elif step.name in state.live_values:
        state.live_values.discard(step.name)
    else:
        ErrorLocation(_STAGE, f"free {step.name}").fail(
            "free", f"{step.name} is not allocated, and no step defines it"
        )


def _check_live(name: str, state: _State, location: ErrorLocation) -> None:
    """A buffer that a step names is placed, and its memory exists at that step."""
    if name not in state.buffers:
        location.fail("placed", f"%{name} has no placement")
    root = state.root(name, location)
    storage = state.buffers[root].storage
    if storage is not None and storage not in state.live_storages:
        location.fail("live", f"%{name} is in {storage}, which is not allocated here")
    if storage is None and root not in state.live_values:
        location.fail("live", f"%{root} is not defined here, or freed before", "a step must define it first")


# --- steps ----------------------------------------------------------------------------------------------


def _check_launch(step: Launch, state: _State) -> None:
    """A launch passes each parameter a live buffer of its dtype, all on one device, and each symbol a value."""
    origin = step.origins[0].origin if step.origins else ErrorLocation(_STAGE).origin
    location = ErrorLocation(_STAGE, f"launch {step.kernel}", origin)
    kernel = state.kernels.get(step.kernel)
    if kernel is None:
        location.fail("launch", f"{step.kernel} is not a kernel of the plan")
    if len(step.buffers) != len(kernel.parameters):
        location.fail(
            "launch",
            f"the kernel has {len(kernel.parameters)} parameters, but {len(step.buffers)} buffers are passed",
        )
    if not step.buffers:
        location.fail("launch", "it has no buffer, so its device is unknown")
    if len(step.symbols) != len(kernel.symbols):
        location.fail(
            "launch",
            f"the kernel has {len(kernel.symbols)} symbols, but {len(step.symbols)} values are passed",
        )
    devices: dict[Device, str] = {}
    for parameter, name in zip(kernel.parameters, step.buffers, strict=True):
        _check_live(name, state, location)
        given = state.buffers[name].type
        if given.dtype != parameter.dtype:
            location.fail(
                "launch",
                f"%{parameter.name} is {parameter.dtype}, but is passed %{name}, which is {given.dtype}",
            )
        devices.setdefault(given.device, name)
    if len(devices) > 1:
        where = " and ".join(f"%{name} on {device}" for device, name in devices.items())
        location.fail("launch", f"the buffers are on different devices: {where}")
    for term in step.symbols:
        _check_symbols(term, state, location)
    wrong = next(
        (each for each in step.origins if each.invocation >= max(1, len(invocations_of(kernel)))), None
    )
    if wrong is not None:
        location.fail(
            "launch",
            f"{wrong.operation} is the origin of invocation {wrong.invocation}, which {kernel.name} does not have",
        )
    written = conflicting_buffer(kernel, [state.root(name, location) for name in step.buffers])
    if written is not None:
        location.fail("independent", f"an invocation writes %{written}, and another one touches its memory")


def _check_symbols(term: Size, state: _State, location: ErrorLocation) -> None:
    """The symbols of a term have values at that step."""
    unknown = term.free_symbols - state.symbols if isinstance(term, Term) else frozenset()
    if unknown:
        location.fail("free-symbols", f"{', '.join(sorted(unknown))} has no value here")


def _check_arguments(arguments: tuple[Argument, ...], state: _State, location: ErrorLocation) -> None:
    """Buffers among the arguments are live; scalars and symbols have values."""
    for argument in arguments:
        match argument:
            case tuple():
                _check_arguments(argument, state, location)
            case Ref():
                if argument.name not in state.objects:
                    _check_live(argument.name, state, location)
            case StridedRef():
                _check_live(argument.name, state, location)
                for size in sizes_in(argument):
                    _check_symbols(size, state, location)
            case ScalarRef():
                _check_scalar(argument, state, location)
            case Term():
                _check_symbols(argument, state, location)


def _check_scalar(argument: ScalarRef, state: _State, location: ErrorLocation) -> None:
    """A scalar argument has a value at that step."""
    if argument.name not in state.scalars:
        location.fail("scalar-known", f"${argument.name} is an argument, but not defined before")


def _check_results(names: tuple[str, ...], state: _State, location: ErrorLocation) -> None:
    """A result of a call is placed and not defined before."""
    for name in names:
        if name not in state.buffers:
            location.fail("placed", f"%{name} has no placement")
        if name in state.live_values:
            location.fail("defined-once", f"%{name} is defined twice")
        state.live_values.add(name)


def _check_donated(plan: Plan, location: ErrorLocation) -> None:
    """Donated inputs are tensors."""
    tensors = {item.name for item in plan.inputs if isinstance(item, Value)}
    for name in plan.donated:
        if name not in tensors:
            location.fail("donated", f"%{name} is donated, but is not a tensor input of the plan")


def _check_branches(step: RegionStep, state: _State, location: ErrorLocation) -> None:
    """A region runs at least one plan, and those that it runs are subplans."""
    if not step.plans:
        location.fail("region", "it runs no plan", "name the subplans of its kind")
    known = {each.name for each in state.plan.subplans}
    for name in step.plans:
        if name not in known:
            location.fail("region", f"{name} is not a subplan of the plan")


def _check_define(step: DefineStep, state: _State) -> None:
    """A symbol is defined once, from a dimension or stride that exists or from a body of the symbol's kind."""
    location = ErrorLocation(_STAGE, f"define {step.symbol}")
    if step.symbol in state.symbols:
        location.fail("defined-once", f"{step.symbol} has a value already")
    info = state.plan.symbols.get(step.symbol)
    if isinstance(step.source, Expr):
        _check_host_body(step.source, state, location)
        if info is not None and step.source.dtype not in SCALAR_DTYPES[info.kind]:
            location.fail(
                "result-dtype", f"{step.symbol} is a {info.kind}, but its body is {step.source.dtype}"
            )
        state.scalars[step.symbol] = (step.source.dtype,)
    else:
        kind, name, position = step.source
        if kind != "argument":
            _check_live(name, state, location)
            rank = len(state.buffers[name].type.shape)
            if position not in range(rank):
                location.fail(
                    "define", f"the source is {kind} {position} of %{name}, which has {rank} dimensions"
                )
        if info is not None:
            state.scalars[step.symbol] = SCALAR_DTYPES[info.kind]
    state.symbols.add(step.symbol)


def _check_host_body(body: Expr, state: _State, location: ErrorLocation) -> None:
    """A body on the host reads live buffers, by logical index, and symbols that have values."""
    read = tuple(dict.fromkeys(load.buffer for load in loads(body)))
    for name in read:
        _check_live(name, state, location)
    types = {name: state.buffers[name].type for name in read}
    scope = BodyScope(
        buffers={name: BufferInfo(type_.dtype, type_.shape) for name, type_ in types.items()},
        names=frozenset(state.symbols),
        ranges=state.plan.symbols.ranges(),
        scalars=state.scalars,
    )
    verify_bodies((body,), scope, location)


def _check_outputs(state: _State, location: ErrorLocation) -> None:
    """The outputs of the plan are live after its last step."""
    _check_arguments(state.plan.outputs, state, location)
