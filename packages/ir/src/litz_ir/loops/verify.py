"""The invariants of a loop graph. Each is a ``check_*`` function that raises :class:`VerifyError` under its name."""

from __future__ import annotations

from litz_ir.dtypes import b1
from litz_ir.loops.nodes import (
    Assert,
    Call,
    Collective,
    ComplexRef,
    ComplexValue,
    HostScalar,
    LoopGraph,
    Mutation,
    Operation,
    Pointwise,
    Random,
    Reduction,
    Ref,
    Region,
    ScalarInput,
    ScalarRef,
    Scan,
    Scatter,
    Sort,
    Value,
    View,
)
from litz_ir.loops.verify_kinds import (
    check_axes,
    check_call,
    check_combined_dtypes,
    check_combined_shapes,
    check_frozen_region,
    check_host_scalar,
    check_mutation,
    check_pairs,
    check_pointwise_dtypes,
    check_region,
    check_scan_dimension,
    check_scatter,
    check_shapes,
    check_sort,
    check_type,
    check_view,
)
from litz_ir.loops.verify_state import SCALAR_DTYPES, VerifierState
from litz_ir.scalar.verify import ErrorLocation, verify_bodies
from litz_ir.symbols.term import Term

_STAGE = "loop graph"
_TOKENS: dict[type[Operation], str] = {Random: "rng", Collective: "collective", Assert: "assert"}
"""The token that every operation of a class has."""


def verify_graph(graph: LoopGraph) -> None:
    """Check every invariant of a loop graph and of its subgraphs; raises :class:`VerifyError`.

    Each subgraph is checked on its own, since its symbol table has the symbols of the enclosing graph that it uses.
    """
    _verify(graph, VerifierState(graph))


def _verify(graph: LoopGraph, state: VerifierState) -> None:
    location = ErrorLocation(_STAGE, graph.name)
    for item in (*graph.inputs, *graph.constants):
        if isinstance(item, Value):
            _check_defined_once(item, state, location)
            check_type(item, state, location)
            if isinstance(item, ComplexValue):
                check_pairs(item.name, item.type, location)
            state.define(item)
        elif isinstance(item, ScalarInput):
            name = item.symbol or item.name
            state.symbols.add(name)
            state.scalars.setdefault(name, SCALAR_DTYPES[item.kind])
        else:
            state.objects.add(item.name)
    _check_frozen(graph, location)
    _check_donated(graph, location)
    for operation in graph.operations:
        _verify_operation(operation, state)
    _check_outputs(graph, state, location)
    _check_saved(graph, location)


def _verify_operation(operation: Operation, state: VerifierState) -> None:
    location = ErrorLocation(_STAGE, operation.name, operation.origin)
    _check_reads(operation, state, location)
    _check_devices(operation, state, location)
    _check_token(operation, location)
    _verify_kind(operation, state, location)
    for value in operation.results:
        _check_defined_once(value, state, location)
        check_type(value, state, location)
        _check_version(value, state, location)
        state.define(value)
        if value.replaces is not None:
            state.replaced[value.replaces] = operation.name
    if isinstance(operation, HostScalar):
        check_host_scalar(operation, state, location)
        state.symbols.add(operation.symbol)
        state.scalars[operation.symbol] = (operation.body.dtype,)


def _verify_kind(operation: Operation, state: VerifierState, location: ErrorLocation) -> None:
    match operation:
        case Pointwise():
            check_axes(operation.axes, state, location)
            verify_bodies(operation.bodies, state.body_scope(operation.axes), location)
            check_shapes(operation, [axis.size for axis in operation.axes], state, location)
            check_pointwise_dtypes(operation, location)
        case Reduction():
            axes = (*operation.axes, *operation.reduce_axes)
            check_axes(axes, state, location)
            verify_bodies(operation.bodies, state.body_scope(axes), location)
            check_combined_dtypes(operation, location)
            check_combined_shapes(operation, state, location)
        case Scan():
            check_scan_dimension(operation, location)
            axes = (*operation.axes, operation.scan_axis)
            check_axes(axes, state, location)
            verify_bodies(operation.bodies, state.body_scope(axes), location)
            sizes = [axis.size for axis in operation.axes]
            sizes.insert(operation.dimension, operation.scan_axis.size)
            check_shapes(operation, sizes, state, location)
            check_combined_dtypes(operation, location)
        case Scatter():
            check_axes(operation.axes, state, location)
            verify_bodies((operation.body,), state.body_scope(operation.axes), location, operation.index)
            check_scatter(operation, state, location)
        case View():
            check_axes(operation.axes, state, location)
            verify_bodies((), state.body_scope(operation.axes), location, operation.index)
            check_view(operation, state, location)
        case Sort():
            check_sort(operation, state, location)
        case Mutation():
            check_mutation(operation, state, location)
        case Call():
            check_call(operation, state, location)
        case Region():
            check_region(operation, location)
            if operation.kind == "frozen":
                check_frozen_region(operation, state.frozen_values, location)
            for graph in operation.subgraphs:
                verify_graph(graph)
        case Assert():
            verify_bodies((operation.condition,), state.body_scope(), location)
            if operation.condition.dtype != b1:
                location.fail("result-dtype", f"the condition is {operation.condition.dtype}, b1 expected")
        case HostScalar():
            verify_bodies((operation.body,), state.body_scope(), location)


def _check_frozen(graph: LoopGraph, location: ErrorLocation) -> None:
    """Frozen inputs are tensors that no operation overwrites."""
    _check_inputs("frozen", graph.frozen, graph, location)


def _check_donated(graph: LoopGraph, location: ErrorLocation) -> None:
    """Donated inputs are tensors that are not frozen and that no operation overwrites, which the caller would see."""
    _check_inputs("donated", graph.donated, graph, location)
    for name in graph.donated:
        if name in graph.frozen:
            location.fail("donated", f"%{name} is donated, but also frozen, so that the next call reads it")


def _check_inputs(role: str, names: tuple[str, ...], graph: LoopGraph, location: ErrorLocation) -> None:
    """The named inputs are tensors that no operation overwrites."""
    tensors = {item.name for item in graph.inputs if isinstance(item, Value)}
    for name in names:
        if name not in tensors:
            location.fail(role, f"%{name} is {role}, but is not a tensor input of the graph")
    for operation in graph.operations:
        overwritten = {value.replaces for value in operation.results}.intersection(names)
        if overwritten:
            location.fail(
                role, f"%{min(map(str, overwritten))} is {role}, but {operation.name} overwrites it"
            )


# --- names, versions, order -----------------------------------------------------------------------------


def _check_defined_once(value: Value, state: VerifierState, location: ErrorLocation) -> None:
    """A name is defined once."""
    if state.knows(value.name):
        location.fail("defined-once", f"%{value.name} is defined twice", "a new version takes a new name")


def _check_reads(operation: Operation, state: VerifierState, location: ErrorLocation) -> None:
    """A buffer that is read was defined before and has not been overwritten."""
    for name in operation.reads:
        if not state.knows(name):
            location.fail("defined-before-use", f"%{name} is read, but not defined before")
        _check_newest(name, state, location)


def _check_devices(operation: Operation, state: VerifierState, location: ErrorLocation) -> None:
    """An operation other than a call, a region or host work reads and writes on one device."""
    if isinstance(operation, Call | Region | Assert | HostScalar):
        return
    types = [state.values[name].type for name in operation.reads if name in state.values]
    devices = dict.fromkeys(str(type_.device) for type_ in (*types, *(v.type for v in operation.results)))
    if len(devices) > 1:
        text = f"it reads and writes on {' and '.join(devices)}"
        location.fail("devices", text, "copy its inputs to one device by a call before it")


def _check_newest(name: str, state: VerifierState, location: ErrorLocation) -> None:
    """No operation reads a version after it has been overwritten."""
    if name in state.replaced:
        location.fail(
            "version-order",
            f"%{name} is read after {state.replaced[name]} has overwritten it",
            "read the new version, or order the read before",
        )


def _check_version(value: Value, state: VerifierState, location: ErrorLocation) -> None:
    """A new version replaces a value of its dtype and shape that exists and was not replaced before."""
    if value.replaces is None:
        return
    old = state.values.get(value.replaces)
    if old is None:
        location.fail("version", f"%{value.name} replaces %{value.replaces}, which is not defined before")
    if value.replaces in state.replaced:
        first = state.replaced[value.replaces]
        location.fail("version", f"%{value.replaces} is replaced by %{value.name} and, before, by {first}")
    if value.type.dtype != old.type.dtype or not state.equal_shapes(value.type.shape, old.type.shape):
        location.fail(
            "version", f"%{value.name} and %{value.replaces}, which it replaces, differ in dtype or shape"
        )


def _check_token(operation: Operation, location: ErrorLocation) -> None:
    """Operations with side effects have the token of their class."""
    for kind, token in _TOKENS.items():
        if isinstance(operation, kind) and operation.token != token:
            location.fail(
                "token", f"a {kind.__name__} has the token {token!r}, this one has {operation.token!r}"
            )


def _check_outputs(graph: LoopGraph, state: VerifierState, location: ErrorLocation) -> None:
    """Outputs are defined and not overwritten; terms among them use known symbols."""
    for output in graph.outputs:
        if isinstance(output, Ref):
            if not state.knows(output.name):
                location.fail("outputs", f"the graph returns %{output.name}, which is not defined")
            _check_newest(output.name, state, location)
            if isinstance(output, ComplexRef):
                check_pairs(output.name, state.type(output.name, location), location)
        elif isinstance(output, ScalarRef):
            if output.name not in state.scalars:
                location.fail("outputs", f"the graph returns ${output.name}, which is not defined")
        elif isinstance(output, Term) and not output.free_symbols <= state.symbols:
            unknown = ", ".join(sorted(output.free_symbols - state.symbols))
            location.fail("outputs", f"the graph returns {output}, but {unknown} is not defined")


def _check_saved(graph: LoopGraph, location: ErrorLocation) -> None:
    """Saved values are outputs of the graph and plain tensors."""
    returned = {output.name for output in graph.outputs if type(output) is Ref}
    for name in graph.saved:
        if name not in returned:
            location.fail("saved", f"%{name} is saved, but the graph does not return it as a tensor")
