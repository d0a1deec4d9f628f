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

STAGE = "loop graph"
TOKENS: dict[type[Operation], str] = {Random: "rng", Collective: "collective", Assert: "assert"}
"""The token that every operation of a class carries."""


def verify_graph(graph: LoopGraph) -> None:
    """Check every invariant of a loop graph and of its subgraphs, each by itself: a subgraph's own table names the
    symbols that it takes from around it. Raises :class:`VerifyError`.
    """
    _verify(graph, VerifierState(graph))


def _verify(graph: LoopGraph, state: VerifierState) -> None:
    place = ErrorLocation(STAGE, graph.name)
    for item in (*graph.inputs, *graph.constants):
        if isinstance(item, Value):
            check_defined_once(item, state, place)
            check_type(item, state, place)
            if isinstance(item, ComplexValue):
                check_pairs(item.name, item.type, place)
            state.define(item)
        elif isinstance(item, ScalarInput):
            name = item.symbol or item.name
            state.symbols.add(name)
            state.scalars.setdefault(name, SCALAR_DTYPES[item.kind])
        else:
            state.objects.add(item.name)
    check_frozen(graph, place)
    check_donated(graph, place)
    for operation in graph.operations:
        _verify_operation(operation, state)
    check_outputs(graph, state, place)
    check_saved(graph, place)


def _verify_operation(operation: Operation, state: VerifierState) -> None:
    place = ErrorLocation(STAGE, operation.name, operation.origin)
    check_reads(operation, state, place)
    check_devices(operation, state, place)
    check_token(operation, place)
    _verify_kind(operation, state, place)
    for value in operation.results:
        check_defined_once(value, state, place)
        check_type(value, state, place)
        check_version(value, state, place)
        state.define(value)
        if value.replaces is not None:
            state.replaced[value.replaces] = operation.name
    if isinstance(operation, HostScalar):
        check_host_scalar(operation, state, place)
        state.symbols.add(operation.symbol)
        state.scalars[operation.symbol] = (operation.body.dtype,)


def _verify_kind(operation: Operation, state: VerifierState, place: ErrorLocation) -> None:
    match operation:
        case Pointwise():
            check_axes(operation.axes, state, place)
            verify_bodies(operation.bodies, state.body_scope(operation.axes), place)
            check_shapes(operation, [axis.size for axis in operation.axes], state, place)
            check_pointwise_dtypes(operation, place)
        case Reduction():
            axes = (*operation.axes, *operation.reduce_axes)
            check_axes(axes, state, place)
            verify_bodies(operation.bodies, state.body_scope(axes), place)
            check_combined_dtypes(operation, place)
            check_combined_shapes(operation, state, place)
        case Scan():
            check_scan_dimension(operation, place)
            axes = (*operation.axes, operation.scan_axis)
            check_axes(axes, state, place)
            verify_bodies(operation.bodies, state.body_scope(axes), place)
            sizes = [axis.size for axis in operation.axes]
            sizes.insert(operation.dimension, operation.scan_axis.size)
            check_shapes(operation, sizes, state, place)
            check_combined_dtypes(operation, place)
        case Scatter():
            check_axes(operation.axes, state, place)
            verify_bodies((operation.body,), state.body_scope(operation.axes), place, operation.index)
            check_scatter(operation, state, place)
        case View():
            check_axes(operation.axes, state, place)
            verify_bodies((), state.body_scope(operation.axes), place, operation.index)
            check_view(operation, state, place)
        case Sort():
            check_sort(operation, state, place)
        case Mutation():
            check_mutation(operation, state, place)
        case Call():
            check_call(operation, state, place)
        case Region():
            check_region(operation, place)
            if operation.kind == "frozen":
                check_frozen_region(operation, state.frozen_values, place)
            for graph in operation.subgraphs:
                verify_graph(graph)
        case Assert():
            verify_bodies((operation.condition,), state.body_scope(), place)
            if operation.condition.dtype != b1:
                place.fail(
                    "result-dtype", f"an assertion's condition is b1, this one is {operation.condition.dtype}"
                )
        case HostScalar():
            verify_bodies((operation.body,), state.body_scope(), place)


def check_frozen(graph: LoopGraph, place: ErrorLocation) -> None:
    """Inputs that are held are tensors, and nothing overwrites them."""
    _check_inputs("held", graph.frozen, graph, place)


def check_donated(graph: LoopGraph, place: ErrorLocation) -> None:
    """Inputs that are donated are tensors that are not held, and nothing overwrites them: that would be seen."""
    _check_inputs("donated", graph.donated, graph, place)
    for name in graph.donated:
        if name in graph.frozen:
            place.fail("donated", f"%{name} is donated, but also held: the next call reads it")


def _check_inputs(what: str, names: tuple[str, ...], graph: LoopGraph, place: ErrorLocation) -> None:
    """The named inputs are tensors that no operation overwrites."""
    tensors = {item.name for item in graph.inputs if isinstance(item, Value)}
    for name in names:
        if name not in tensors:
            place.fail(what, f"%{name} is {what}, but no tensor that the graph is given")
    for operation in graph.operations:
        overwritten = {value.replaces for value in operation.results}.intersection(names)
        if overwritten:
            place.fail(what, f"%{min(map(str, overwritten))} is {what}, but {operation.name} overwrites it")


# --- names, versions, order -----------------------------------------------------------------------------


def check_defined_once(value: Value, state: VerifierState, place: ErrorLocation) -> None:
    """A name is defined once."""
    if state.knows(value.name):
        place.fail("defined-once", f"%{value.name} is defined twice", "a new version takes a new name")


def check_reads(operation: Operation, state: VerifierState, place: ErrorLocation) -> None:
    """What is read was defined before, and is the newest version of its buffer."""
    for name in operation.reads:
        if not state.knows(name):
            place.fail("defined-before-use", f"%{name} is read, but not defined before")
        check_newest(name, state, place)


def check_devices(operation: Operation, state: VerifierState, place: ErrorLocation) -> None:
    """What is no call and no work of the host reads and writes on one device."""
    if isinstance(operation, Call | Region | Assert | HostScalar):
        return
    types = [state.values[name].type for name in operation.reads if name in state.values]
    devices = dict.fromkeys(str(type_.device) for type_ in (*types, *(v.type for v in operation.results)))
    if len(devices) > 1:
        text = f"it reads and writes on {' and '.join(devices)}"
        place.fail("devices", text, "copy what it reads to one of them by a call before")


def check_newest(name: str, state: VerifierState, place: ErrorLocation) -> None:
    """Nothing reads a version after the operation that overwrites it."""
    if name in state.replaced:
        place.fail(
            "version-order",
            f"%{name} is read after {state.replaced[name]} has overwritten it",
            "read the new version, or order the read before",
        )


def check_version(value: Value, state: VerifierState, place: ErrorLocation) -> None:
    """A new version replaces a value that exists, has its dtype and shape, and was not replaced before."""
    if value.replaces is None:
        return
    old = state.values.get(value.replaces)
    if old is None:
        place.fail("version", f"%{value.name} replaces %{value.replaces}, which is not defined before")
    if value.replaces in state.replaced:
        first = state.replaced[value.replaces]
        place.fail("version", f"%{value.replaces} is replaced by %{value.name} and, before, by {first}")
    if value.type.dtype != old.type.dtype or not state.equal_shapes(value.type.shape, old.type.shape):
        place.fail(
            "version", f"%{value.name} and %{value.replaces}, which it replaces, differ in dtype or shape"
        )


def check_token(operation: Operation, place: ErrorLocation) -> None:
    """Operations with an order of their own carry its token."""
    for kind, token in TOKENS.items():
        if isinstance(operation, kind) and operation.token != token:
            place.fail(
                "token", f"a {kind.__name__} carries the token {token!r}, this one has {operation.token!r}"
            )


def check_outputs(graph: LoopGraph, state: VerifierState, place: ErrorLocation) -> None:
    """What the graph returns is defined and the newest version; terms use known symbols."""
    for output in graph.outputs:
        if isinstance(output, Ref):
            if not state.knows(output.name):
                place.fail("outputs", f"the graph returns %{output.name}, which is not defined")
            check_newest(output.name, state, place)
            if isinstance(output, ComplexRef):
                check_pairs(output.name, state.type(output.name, place), place)
        elif isinstance(output, ScalarRef):
            if output.name not in state.scalars:
                place.fail("outputs", f"the graph returns ${output.name}, which is not defined")
        elif isinstance(output, Term) and not output.free_symbols <= state.symbols:
            unknown = ", ".join(sorted(output.free_symbols - state.symbols))
            place.fail("outputs", f"the graph returns {output}, but {unknown} is not defined")


def check_saved(graph: LoopGraph, place: ErrorLocation) -> None:
    """What is saved is what the graph returns as plain tensors."""
    returned = {output.name for output in graph.outputs if type(output) is Ref}
    for name in graph.saved:
        if name not in returned:
            place.fail("saved", f"%{name} is saved, but no tensor that the graph returns")
