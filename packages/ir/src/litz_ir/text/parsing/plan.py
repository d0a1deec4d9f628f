"""Parser of plans."""

from __future__ import annotations

from typing import Literal, cast

from litz_ir.loops.nodes import RegionKind, Value
from litz_ir.plan.kernel import Kernel, KernelOrigin
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
)
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.text.lexer import Stream, read_whole, separated
from litz_ir.text.parsing.bodies import BodyParser
from litz_ir.text.parsing.fused import decisions
from litz_ir.text.parsing.kernel import kernel
from litz_ir.text.parsing.loops import REGIONS
from litz_ir.text.parsing.types import (
    arguments,
    asserted_error,
    declaration,
    output,
    parse_input,
    symbols,
    term,
)
from litz_ir.text.scope import DTypeScope

_SOURCES = ("size", "stride", "argument")


def parse_plan(text: str) -> Plan:
    """Parse the text form of a plan; raises :class:`ParseError`."""
    return read_whole(text, plan)


def plan(stream: Stream) -> Plan:
    """A plan: ``plan name on device "capability" (inputs) donated (inputs) -> (outputs) { … }``."""
    stream.expect("plan")
    name = stream.name("the plan's name")
    stream.expect("on")
    device = stream.device()
    capability = stream.string("the capability's name")
    inputs = separated(stream, lambda: parse_input(stream, device))
    donated = separated(stream, stream.value) if stream.accept("donated") else ()
    stream.expect("->")
    outputs = separated(stream, lambda: output(stream))
    stream.expect("{")
    table = symbols(stream)
    constants: list[Value] = []
    while stream.accept("const"):
        constants.append(declaration(stream, device))
    storages: list[Storage] = []
    while stream.accept("storage"):
        storage = stream.name("a storage")
        stream.expect(":")
        nbytes = term(stream)
        storages.append(Storage(storage, nbytes, stream.device() if stream.accept("on") else device))
    buffers: list[tuple[str, Placement]] = []
    while stream.accept("buffer"):
        value = declaration(stream, device)
        buffers.append((value.name, _placement(stream, value)))
    peak = term(stream) if stream.accept("peak") else 0
    kernels: list[Kernel] = []
    while stream.at("kernel"):
        kernels.append(kernel(stream))
    subplans: list[Plan] = []
    while stream.at("plan"):
        subplans.append(plan(stream))
    scope = DTypeScope()
    scope.declare_symbols(table)
    scope.declare((*inputs, *constants))
    scope.buffers.update((name, placement.type.dtype) for name, placement in buffers)
    steps: list[Step] = []
    while not (stream.at("}") or stream.at("decision")):
        steps.append(_step(stream, scope))
    parsed_decisions = decisions(stream)
    stream.expect("}")
    return Plan(
        name=name, device=device, capability=capability, symbols=table, inputs=inputs, constants=tuple(constants),
        buffers=tuple(buffers), storages=tuple(storages), kernels=tuple(kernels), steps=tuple(steps), outputs=outputs,
        peak=peak, decisions=parsed_decisions, subplans=tuple(subplans), donated=donated,
    )  # fmt: skip


def _placement(stream: Stream, value: Value) -> Placement:
    storage = stream.name("a storage") if stream.accept("in") else None
    offset = term(stream) if stream.accept("at") else 0
    return Placement(value.type, storage, offset, stream.value() if stream.accept("shares") else None)


def _step(stream: Stream, scope: DTypeScope) -> Step:
    token = stream.token
    names: list[str | None] = []
    while stream.token.kind == "value" or stream.at("_"):
        names.append(None if stream.accept("_") else stream.value())
        if not stream.accept(","):
            stream.expect("=")
            break
    if stream.accept("call"):
        return _call(stream, tuple(names))
    if stream.token.kind == "name" and stream.token.text.startswith("region."):
        results = tuple(name for name in names if name is not None)
        if len(results) != len(names):
            stream.fail("a region names all its results", token)
        return _region(stream, results)
    if names:
        stream.expected("a call or a region")
    if stream.accept("allocate"):
        return Allocate(stream.name("a storage"))
    if stream.accept("free"):
        return Free(stream.name("a storage or a value"))
    if stream.accept("launch"):
        return _launch(stream)
    if stream.accept("define"):
        return _define(stream, scope)
    if stream.accept("check"):
        condition = _body(stream, scope)
        error = asserted_error(stream)
        message = stream.string("a message")
        return CheckStep(condition, message, error, stream.origin())
    stream.expected("a step (allocate, free, launch, call, define, check, region)")


def _body(stream: Stream, scope: DTypeScope) -> Expr:
    token = stream.token
    found = BodyParser(stream, scope).block()
    if len(found) != 1:
        stream.fail(f"expected one expression, found {len(found)}", token)
    return found[0]


def _launch(stream: Stream) -> Launch:
    name = stream.name("a kernel")
    stream.expect("(")
    buffers: list[str] = []
    while stream.token.kind == "value":
        buffers.append(stream.value())
        if not stream.accept(","):
            break
    values: list[Size] = []
    if stream.accept(";"):
        values.append(term(stream))
        while stream.accept(","):
            values.append(term(stream))
    stream.expect(")")
    origins: list[KernelOrigin] = []
    while stream.accept("for"):
        operation = stream.name("an operation")
        invocation = stream.integer() if stream.accept("invocation") else 0
        origins.append(KernelOrigin(operation, stream.origin(), invocation))
    return Launch(name, tuple(buffers), tuple(values), tuple(origins))


def _call(stream: Stream, names: tuple[str | None, ...]) -> CallStep:
    target = stream.name("a routine")
    given, attributes = arguments(stream)
    unpack = stream.accept("unpack")
    pairs = separated(stream, stream.value) if stream.accept("complex") else ()
    reason = stream.string("a reason") if stream.accept("reason") else ""
    return CallStep(target, given, attributes, names, unpack, reason, stream.origin(), pairs)


def _define(stream: Stream, scope: DTypeScope) -> DefineStep:
    symbol = stream.name("a symbol")
    if not stream.accept("from"):
        return DefineStep(symbol, _body(stream, scope))
    kind = cast(Literal["size", "stride", "argument"], stream.word("a source", _SOURCES))
    position = stream.integer()
    stream.expect("of")
    return DefineStep(symbol, (kind, stream.value(), position))


def _region(stream: Stream, names: tuple[str, ...]) -> RegionStep:
    token = stream.advance()
    kind = token.text.partition(".")[2]
    if kind not in REGIONS:
        stream.fail(f"unknown region {kind!r}; known: {', '.join(REGIONS)}", token)
    given, attributes = arguments(stream)
    if attributes:
        stream.fail("a region takes no named arguments", token)
    stream.expect("{")
    plans: list[str] = []
    while not stream.accept("}"):
        plans.append(stream.name("a subplan"))
        stream.accept(",")
    return RegionStep(cast(RegionKind, kind), tuple(plans), given, names, stream.origin())
