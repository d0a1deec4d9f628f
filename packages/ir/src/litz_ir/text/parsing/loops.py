"""Parser of loop graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from litz_ir.device import CPU, Device
from litz_ir.loops.nodes import (
    Assert,
    Axis,
    Collective,
    Combiner,
    ComplexValue,
    ContractionCall,
    Extern,
    HostScalar,
    LayoutRequirement,
    LoopGraph,
    Mutation,
    NamedCombiner,
    Operation,
    Pointwise,
    Random,
    Reduction,
    Region,
    RegionKind,
    Scan,
    Scatter,
    ScatterMode,
    Sort,
    TensorType,
    UserCombiner,
    Value,
    View,
)
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS
from litz_ir.scalar.node import Expr
from litz_ir.text.lexer import Stream, Token, read_whole, separated
from litz_ir.text.parsing.bodies import BodyParser
from litz_ir.text.parsing.types import (
    arguments,
    asserted_error,
    axes,
    declaration,
    one_part,
    output,
    parse_input,
    result_name,
    symbols,
    tail,
    tensor_type,
    term,
)
from litz_ir.text.scope import DTypeScope

_ResultNames = tuple[tuple[str, str | None], ...]
"""Results to the left of ``=``: name, and the version that the result replaces."""

SCATTER_MODES: tuple[str, ...] = get_args(ScatterMode)
"""Names of scatter modes."""
_LAYOUT_REQUIREMENTS: tuple[str, ...] = get_args(LayoutRequirement)
_CONTRACTIONS = ("matmul", "convolution", "attention")
REGIONS = get_args(RegionKind)
"""Names of region kinds."""


def parse_graph(text: str) -> LoopGraph:
    """Parse the text form of a loop graph; raises :class:`ParseError`."""
    return read_whole(text, graph)


def graph(stream: Stream) -> LoopGraph:
    """Parse a loop graph.

    ``graph name on device (inputs) frozen (inputs) donated (inputs) -> (outputs) saved (outputs) { symbols constants
    operations }``. The parts ``on``, ``frozen``, ``donated`` and ``saved`` are optional.
    """
    stream.expect("graph")
    name = stream.name("the graph's name")
    device = stream.device() if stream.accept("on") else CPU
    inputs = separated(stream, lambda: parse_input(stream, device))
    frozen = separated(stream, stream.value) if stream.accept("frozen") else ()
    donated = separated(stream, stream.value) if stream.accept("donated") else ()
    stream.expect("->")
    outputs = separated(stream, lambda: output(stream))
    saved = separated(stream, stream.value) if stream.accept("saved") else ()
    stream.expect("{")
    table = symbols(stream)
    constants: list[Value] = []
    while stream.accept("const"):
        constants.append(declaration(stream, device))
    scope = DTypeScope()
    scope.declare_symbols(table)
    scope.declare((*inputs, *constants))
    operations: list[Operation] = []
    while not stream.accept("}"):
        operation = _OperationParser(stream, scope, device).operation()
        operations.append(operation)
        scope.define(operation)
    return LoopGraph(
        name, table, inputs, tuple(constants), tuple(operations), outputs, frozen, donated, saved
    )


class _OperationParser:
    """Parser of one operation."""

    def __init__(self, stream: Stream, scope: DTypeScope, device: Device) -> None:
        self.stream = stream
        self.scope = scope
        self.device = device

    def operation(self) -> Operation:
        """An operation: ``results = kind …`` with its token and its origin."""
        stream = self.stream
        names = self._result_names()
        token = stream.token
        word = stream.name("an operation")
        kind, _, variant = word.partition(".")
        rule = _RULES.get(kind)
        if rule is None or token.kind != "name":
            stream.fail(f"unknown operation {word!r}; known: {', '.join(_RULES)}", token)
        make, fields = rule(self, names, variant, token)
        order = stream.name("a token") if stream.accept("token") else ""
        return make(**fields, token=order, origin=stream.origin())

    def _result_names(self) -> _ResultNames:
        stream = self.stream
        if stream.token.kind != "value":
            return ()
        names = [result_name(stream)]
        while stream.accept(","):
            names.append(result_name(stream))
        stream.expect("=")
        return tuple(names)

    # --- parts

    def _values(self, names: _ResultNames, types: list[TensorType]) -> tuple[Value, ...]:
        self._check_count(names, types)
        return tuple(
            Value(name, type_, replaces) for (name, replaces), type_ in zip(names, types, strict=True)
        )

    def _check_count(self, names: _ResultNames, types: list[TensorType]) -> None:
        if len(names) != len(types):
            self.stream.fail(f"{len(names)} results, but {len(types)} types")

    def results(self, names: _ResultNames) -> tuple[Value, ...]:
        """Result types: ``-> type, complex type``, or nothing for an operation without results."""
        types: list[TensorType] = []
        made: list[type[Value]] = []
        while self.stream.accept("," if types else "->"):
            made.append(ComplexValue if self.stream.accept("complex") else Value)
            types.append(tensor_type(self.stream, self.device))
        self._check_count(names, types)
        return tuple(
            make(name, type_, replaces)
            for make, (name, replaces), type_ in zip(made, names, types, strict=True)
        )

    def typed_axes(
        self, names: _ResultNames, scan_position: int | None = None
    ) -> tuple[tuple[Value, ...], tuple[Axis, ...], tuple[Axis, ...]]:
        """Results, axes and inner axes: ``f32[i0: 4 | r0: 5]`` or ``[i0: 4 | r0: 5] -> types``.

        The results of a scan have the inner axis too, at ``scan_position``.
        """
        stream = self.stream
        dtype = stream.dtype() if stream.at_dtype() else None
        outer, inner = axes(stream)
        if dtype is None:
            return self.results(names), outer, inner or ()
        sizes = [axis.size for axis in outer]
        if scan_position is not None and inner:
            sizes.insert(scan_position, inner[0].size)
        layout, device = tail(stream, tuple(sizes), self.device)
        return self._values(names, [TensorType(dtype, tuple(sizes), layout, device)]), outer, inner or ()

    def bodies(self, results: tuple[Value, ...] = ()) -> tuple[Expr, ...]:
        """A block of bodies."""
        return BodyParser(self.stream, self.scope).block(tuple(value.type.dtype for value in results))

    def one_body(self) -> Expr:
        """A block of one body."""
        token = self.stream.token
        found = self.bodies()
        if len(found) != 1:
            self.stream.fail(f"expected one expression, found {len(found)}", token)
        return found[0]

    # --- operations: each method returns the class and its fields

    def pointwise(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        results, outer, inner = self.typed_axes(names)
        if inner:
            self.stream.fail("a pointwise operation has no axes after '|'", token)
        return Pointwise, {"results": results, "axes": outer, "bodies": self.bodies(results)}

    def reduce(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        results, outer, inner = self.typed_axes(names)
        fields = {"combiner": combiner(self.stream, self.scope, variant, token), "bodies": self.bodies()}
        return Reduction, {"results": results, "axes": outer, "reduce_axes": inner, **fields}

    def scan(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        self.stream.expect("dimension")
        dimension = self.stream.integer()
        results, outer, inner = self.typed_axes(names, dimension)
        if len(inner) != 1:
            self.stream.fail("a scan has one axis after '|'", token)
        fields = {"combiner": combiner(self.stream, self.scope, variant, token), "bodies": self.bodies()}
        return Scan, {
            "results": results,
            "axes": outer,
            "scan_axis": inner[0],
            "dimension": dimension,
            **fields,
        }

    def scatter(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        stream = self.stream
        if variant not in SCATTER_MODES:
            stream.fail(f"unknown scatter mode {variant!r}; known: {', '.join(SCATTER_MODES)}", token)
        outer = one_part(stream)
        results = self.results(names)
        stream.expect("{")
        parser = BodyParser(stream, self.scope)
        parser.lets()
        base = stream.value()
        index = parser.terms()
        stream.expect("=")
        body = parser.expression(results[0].type.dtype if results else None)
        stream.expect("}")
        fields = {
            "base": base,
            "axes": outer,
            "index": index,
            "body": body,
            "mode": cast(ScatterMode, variant),
        }
        return Scatter, {"results": results, **fields}

    def view(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        stream = self.stream
        results, outer, _ = self.typed_axes(names)
        stream.expect("{")
        parser = BodyParser(stream, self.scope)
        parser.lets()
        base = stream.value()
        index = parser.terms()
        stream.expect("}")
        given = None
        if stream.accept("given"):
            stream.expect("strides")
            given = separated(stream, lambda: term(stream))
        return View, {
            "results": results,
            "base": base,
            "axes": outer,
            "index": index,
            "aliases": variant != "copy",
            "base_strides": given,
        }

    def sort(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        stream = self.stream
        source = stream.value()
        stream.expect("dimension")
        dimension = stream.integer()
        fields = {"descending": stream.accept("descending"), "stable": not stream.accept("unstable")}
        return Sort, {"results": self.results(names), "source": source, "dimension": dimension, **fields}

    def mutate(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        target = self.stream.value()
        self.stream.expect("with")
        source = self.stream.value()
        return Mutation, {"results": self.results(names), "target": target, "source": source}

    def region(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        stream = self.stream
        if variant not in REGIONS:
            stream.fail(f"unknown region {variant!r}; known: {', '.join(REGIONS)}", token)
        given, attributes = arguments(stream)
        if attributes:
            stream.fail("a region takes no named arguments", token)
        results = self.results(names)
        stream.expect("{")
        graphs: list[LoopGraph] = []
        while not stream.accept("}"):
            graphs.append(graph(stream))
        return Region, {"results": results, "kind": variant, "subgraphs": tuple(graphs), "arguments": given}

    def check(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        results = self.results(names)
        condition = self.one_body()
        return Assert, {
            "results": results,
            "condition": condition,
            "error": asserted_error(self.stream),
            "message": self.stream.string("a message"),
        }

    def host(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        symbol = self.stream.name("a symbol")
        results = self.results(names)
        return HostScalar, {"results": results, "symbol": symbol, "body": self.one_body()}

    def call(self, names: _ResultNames) -> dict[str, Any]:
        """The fields that all calls have."""
        stream = self.stream
        target = stream.name("a routine")
        given, attributes = arguments(stream)
        fields: dict[str, Any] = {"target": target, "arguments": given, "attributes": attributes}
        fields["results"] = self.results(names)
        for word in ("mutates", "aliases"):
            if stream.accept(word):
                fields[word] = separated(stream, self._pair)
        if stream.accept("need"):
            fields["layout_requirement"] = stream.word("a layout requirement", _LAYOUT_REQUIREMENTS)
        if stream.accept("silent"):
            fields["unreturned"] = separated(stream, stream.value)
        fields["unpack"] = stream.accept("unpack")
        if stream.accept("flops"):
            fields["flops"] = term(stream)
        return fields

    def _pair(self) -> tuple[str, str]:
        first = self.stream.value()
        self.stream.expect("->")
        return first, self.stream.value()

    def extern(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        fields = self.call(names)
        return Extern, {**fields, "reason": self.stream.string() if self.stream.accept("reason") else ""}

    def contraction(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        if variant not in _CONTRACTIONS:
            self.stream.fail(f"unknown contraction {variant!r}; known: {', '.join(_CONTRACTIONS)}", token)
        return ContractionCall, {
            **self.call(names),
            "kind": cast(Literal["matmul", "convolution", "attention"], variant),
        }

    def random(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        return Random, self.call(names)

    def collective(self, names: _ResultNames, variant: str, token: Token) -> _ParsedOperation:
        return Collective, self.call(names)


_ParsedOperation = tuple[type[Operation], dict[str, Any]]
"""Class of an operation, and its fields."""
_RULES: Mapping[str, Callable[[_OperationParser, _ResultNames, str, Token], _ParsedOperation]] = (
    MappingProxyType(
        {
            "pointwise": _OperationParser.pointwise,
            "reduce": _OperationParser.reduce,
            "scan": _OperationParser.scan,
            "scatter": _OperationParser.scatter,
            "view": _OperationParser.view,
            "sort": _OperationParser.sort,
            "mutate": _OperationParser.mutate,
            "extern": _OperationParser.extern,
            "contraction": _OperationParser.contraction,
            "random": _OperationParser.random,
            "collective": _OperationParser.collective,
            "region": _OperationParser.region,
            "assert": _OperationParser.check,
            "host": _OperationParser.host,
        }
    )
)


def combiner(stream: Stream, scope: DTypeScope, name: str, token: Token) -> Combiner:
    """The combiner called ``name``; after ``combine`` follow its identity, body and finish."""
    if name in REDUCTION_KINDS:
        return NamedCombiner(name)
    if name != "combine":
        stream.fail(f"unknown combiner {name!r}; known: {', '.join((*REDUCTION_KINDS, 'combine'))}", token)
    stream.expect("from")
    identity = BodyParser(stream, scope).block()
    inside = scope.combining(tuple(expr.dtype for expr in identity))
    stream.expect("by")
    body = BodyParser(stream, inside).block()
    stream.expect("to")
    return UserCombiner(body, identity, BodyParser(stream, inside).block())
