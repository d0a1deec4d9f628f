"""Parser of kernels."""

from __future__ import annotations

from typing import cast, get_args

from litz_ir.dtypes import DType
from litz_ir.loops.nodes import Axis, ScatterMode
from litz_ir.plan.kernel import (
    Access,
    Accumulate,
    Invocation,
    Kernel,
    Parameter,
    Phase,
    ScanStore,
    ScratchArray,
    Statement,
    Store,
    Subkernel,
)
from litz_ir.plan.schedule import CpuLoops, Schedule
from litz_ir.scalar.node import Expr
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size
from litz_ir.text.lexer import Stream, Token, read_whole, separated
from litz_ir.text.parsing.bodies import BodyParser
from litz_ir.text.parsing.loops import SCATTER_MODES, combiner
from litz_ir.text.parsing.types import info, one_part, term
from litz_ir.text.schedules import schedule
from litz_ir.text.scope import DTypeScope

_ACCESS = get_args(Access)


def parse_kernel(text: str) -> Kernel:
    """Parse the text form of a kernel; raises :class:`ParseError`."""
    return read_whole(text, kernel)


def kernel(stream: Stream) -> Kernel:
    """A kernel: ``kernel name(parameters) { symbols schedule outer scratch phases }``.

    A horizontally fused kernel is ``kernel name(parameters) { symbols subkernels }``; ``invoke (…)`` lines follow each
    subkernel.
    """
    stream.expect("kernel")
    name = stream.name("the kernel's name")
    parameters = separated(stream, lambda: _parameter(stream))
    stream.expect("{")
    infos: list[SymbolInfo] = []
    if stream.accept("symbols"):
        stream.expect("{")
        while not stream.accept("}"):
            infos.append(info(stream))
    own: Schedule = schedule(stream) if stream.accept("schedule") else CpuLoops()
    outer: tuple[Axis, ...] = one_part(stream) if stream.accept("outer") else ()
    arrays: list[ScratchArray] = []
    while stream.accept("scratch"):
        arrays.append(_scratch_array(stream))
    scope = DTypeScope()
    scope.declare_symbols(infos)
    scope.buffers.update((parameter.name, parameter.dtype) for parameter in parameters)
    scope.buffers.update((array.name, array.dtype) for array in arrays)
    phases: list[Phase] = []
    subkernels: list[Subkernel] = []
    while not stream.accept("}"):
        if stream.at("kernel"):
            subkernels.append(_subkernel(stream))
            continue
        phases.append(_phase(stream, scope))
        for statement in phases[-1].statements:
            if isinstance(statement, Accumulate):
                scope.scalars.update(statement.results)
    return Kernel(name, parameters, tuple(infos), outer, tuple(arrays), tuple(phases), own, tuple(subkernels))


def _subkernel(stream: Stream) -> Subkernel:
    own = kernel(stream)
    invocations: list[Invocation] = []
    while stream.accept("invoke"):
        given = separated(stream, lambda: stream.value() if stream.token.kind == "value" else term(stream))
        names = tuple(each for each in given if isinstance(each, str))
        invocations.append(Invocation(names, tuple(each for each in given if not isinstance(each, str))))
    return Subkernel(own, tuple(invocations))


def _parameter(stream: Stream) -> Parameter:
    access = cast(Access, stream.word("an access", _ACCESS))
    name = stream.value()
    stream.expect(":")
    dtype = stream.dtype()
    return Parameter(name, dtype, access, stream.integer() if stream.accept("align") else 1)


def _scratch_array(stream: Stream) -> ScratchArray:
    name = stream.value()
    stream.expect(":")
    dtype = stream.dtype()
    stream.expect("[")
    size = term(stream)
    stream.expect("]")
    return ScratchArray(name, dtype, size)


def _phase(stream: Stream, scope: DTypeScope) -> Phase:
    stream.expect("phase")
    axes = one_part(stream)
    stream.expect("{")
    parser = BodyParser(stream, scope)
    parser.lets()
    statements: list[Statement] = []
    while not stream.accept("}"):
        statements.append(_statement(stream, parser))
        stream.expect(";")
    return Phase(axes, tuple(statements))


def _statement(stream: Stream, parser: BodyParser) -> Statement:
    token = stream.token
    if token.kind == "value":
        return _store(stream, parser)
    results: list[tuple[str, DType]] = []
    while stream.token.kind == "scalar":
        name = stream.scalar()
        stream.expect(":")
        results.append((name, stream.dtype()))
        if not stream.accept(","):
            stream.expect("=")
            break
    token = stream.token
    word, _, combiner_name = stream.name("a statement").partition(".")
    if word == "scan" and not results:
        return _scan(stream, parser, combiner_name, token)
    if word != "reduce":
        stream.fail("expected a store (%x[…] = …), reduce.… or scan.…", token)
    kind = combiner(stream, parser.scope, combiner_name, token)
    return Accumulate(tuple(results), kind, _values(stream, parser))


def _store(stream: Stream, parser: BodyParser) -> Store:
    buffer, offset = _element(stream, parser)
    mode: ScatterMode = "set"
    if not stream.at("="):
        mode = cast(ScatterMode, stream.word("'=' or a scatter mode", SCATTER_MODES))
    stream.expect("=")
    return Store(buffer, offset, parser.expression(parser.scope.buffers.get(buffer)), mode)


def _element(stream: Stream, parser: BodyParser) -> tuple[str, Size]:
    buffer = stream.value()
    stream.expect("[")
    offset = parser.term()
    stream.expect("]")
    return buffer, offset


def _scan(stream: Stream, parser: BodyParser, combiner_name: str, token: Token) -> ScanStore:
    kind = combiner(stream, parser.scope, combiner_name, token)
    values = _values(stream, parser)
    stream.expect("->")
    targets: list[tuple[str, Size]] = []
    while stream.token.kind == "value":
        targets.append(_element(stream, parser))
        if not stream.accept(","):
            break
    return ScanStore(kind, values, tuple(targets))


def _values(stream: Stream, parser: BodyParser) -> tuple[Expr, ...]:
    """A block whose expressions may use the phase's lets."""
    return separated(stream, parser.expression, start="{", stop="}")
