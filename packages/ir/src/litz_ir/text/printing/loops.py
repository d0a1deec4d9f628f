"""Printer of loop graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from litz_ir.device import CPU, Device
from litz_ir.loops.nodes import (
    Assert,
    Axis,
    Call,
    Collective,
    Combiner,
    ContractionCall,
    Extern,
    HostScalar,
    LoopGraph,
    Mutation,
    Operation,
    Pointwise,
    Random,
    Reduction,
    Region,
    Scan,
    Scatter,
    Sort,
    UserCombiner,
    Value,
    View,
)
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.text.printing.bodies import BodyPrinter, print_term
from litz_ir.text.printing.types import (
    INDENT,
    WIDTH,
    argument_text,
    arguments_text,
    axes_text,
    braced,
    declaration,
    default_device,
    device_text,
    error_text,
    indented,
    input_text,
    symbols_lines,
    tail_text,
    value_name,
    value_type_text,
)
from litz_ir.text.scope import DTypeScope
from litz_ir.text.spelling import name_text, origin_text, string_text, value_text


def print_graph(graph: LoopGraph) -> str:
    """The text form of a loop graph, which :func:`litz_ir.text.parse_graph` parses."""
    return "\n".join(graph_lines(graph)) + "\n"


def graph_lines(graph: LoopGraph) -> list[str]:
    """The lines of a loop graph, not indented."""
    device = default_device(value.type for value in graph.values().values())
    scope = DTypeScope()
    scope.declare_symbols(graph.symbols)
    scope.declare((*graph.inputs, *graph.constants))
    lines = symbols_lines(graph.symbols)
    lines += [f"const {declaration(value, device)}" for value in graph.constants]
    for operation in graph.operations:
        lines += _operation_lines(operation, scope, device)
        scope.define(operation)
    inputs = ", ".join(input_text(item, device) for item in graph.inputs)
    outputs = ", ".join(map(argument_text, graph.outputs))
    device_part = "" if device == CPU else f" on {device_text(device)} "
    marks = named_values("frozen", graph.frozen) + named_values("donated", graph.donated)
    saved = named_values("saved", graph.saved)
    return [
        f"graph {name_text(graph.name)}{device_part}({inputs}){marks} -> ({outputs}){saved} {{",
        *indented(lines),
        "}",
    ]


def named_values(mark: str, names: tuple[str, ...]) -> str:
    """A marked subset of inputs or outputs, after the list of all: `` frozen (%a, %b)``."""
    return f" {mark} ({values_text(names)})" if names else ""


def _operation_lines(operation: Operation, scope: DTypeScope, device: Device) -> list[str]:
    """The lines of an operation: its results, its kind and its fields."""
    printer = _OperationPrinter(scope, device, _opening(operation))
    lines = printer.lines(operation)
    if operation.token:
        lines[-1] += f" token {name_text(operation.token)}"
    origin = origin_text(operation.origin)
    if origin:
        lines[-1] += f"  {origin}"
    return lines


def _opening(operation: Operation) -> str:
    results = ", ".join(map(value_name, operation.results))
    return f"{results} = " if results else ""


class _OperationPrinter:
    """Printer of one operation after its ``opening``, the names of its results."""

    def __init__(self, scope: DTypeScope, device: Device, opening: str) -> None:
        self.scope = scope
        self.device = device
        self.opening = opening

    def lines(self, operation: Operation) -> list[str]:
        match operation:
            case Pointwise():
                shape = tuple(axis.size for axis in operation.axes)
                head = f"pointwise {self._typed(operation.results, shape, operation.axes)}"
                return self._block(head, self._bodies(operation.bodies, operation.results))
            case Reduction():
                return self._reduction(operation)
            case Scan():
                return self._scan(operation)
            case Scatter():
                return self._scatter(operation)
            case View():
                return self._view(operation)
            case Sort():
                flags = (" descending" if operation.descending else "") + (
                    "" if operation.stable else " unstable"
                )
                head = f"sort {value_text(operation.source)} dimension {operation.dimension}{flags}"
            case Mutation():
                head = f"mutate {value_text(operation.target)} with {value_text(operation.source)}"
            case Call():
                return [self.opening + self._call(operation)]
            case Region():
                head = f"region.{operation.kind}{arguments_text(operation.arguments)}{self._types(operation.results)}"
                graphs = [line for graph in operation.subgraphs for line in graph_lines(graph)]
                return [f"{self.opening}{head} {{", *indented(graphs), "}"]
            case Assert():
                lines = self._block(
                    f"assert{self._types(operation.results)}", self._bodies((operation.condition,))
                )
                lines[-1] += f" {error_text(operation.error)}{string_text(operation.message)}"
                return lines
            case HostScalar():
                head = f"host {name_text(operation.symbol)}{self._types(operation.results)}"
                return self._block(head, self._bodies((operation.body,)))
            case _:
                raise TypeError(f"no text form for an operation of type {type(operation).__name__}")
        return [self.opening + head + self._types(operation.results)]

    # --- fields

    def _types(self, results: Sequence[Value]) -> str:
        return f" -> {', '.join(value_type_text(value, self.device) for value in results)}" if results else ""

    def _typed(
        self,
        results: Sequence[Value],
        shape: Sequence[Size],
        axes: Sequence[Axis],
        inner: Sequence[Axis] = (),
    ) -> str:
        """Axes and result types; as one, ``f32[i0: 4]``, if there is one result of the loop's shape."""
        if len(results) == 1 and results[0].type.shape == tuple(shape):
            type_ = results[0].type
            return f"{type_.dtype}{axes_text(axes, inner)}{tail_text(type_, self.device)}"
        return axes_text(axes, inner) + self._types(results)

    def _block(self, head: str, block: list[str]) -> list[str]:
        return [f"{self.opening}{head} {block[0]}", *block[1:]]

    def _bodies(
        self, bodies: tuple[Expr, ...], results: Sequence[Value] = (), scope: DTypeScope | None = None
    ) -> list[str]:
        """A block of bodies; literals of the results' dtypes do not state them."""
        printer = BodyPrinter(bodies, scope or self.scope)
        expected = [value.type.dtype for value in results[: len(bodies)]]
        expected_or_none = [*expected, *[None] * (len(bodies) - len(expected))]
        texts = [printer.root(body, dtype) for body, dtype in zip(bodies, expected_or_none, strict=True)]
        return braced(printer.lets(), texts, width=WIDTH - len(self.opening) - 2 * len(INDENT))

    def _combined(self, head: str, combiner: Combiner, block: list[str]) -> list[str]:
        """The bodies of a user combiner, if any, before the bodies that it combines."""
        if not isinstance(combiner, UserCombiner):
            return self._block(head, block)
        return [f"{self.opening}{head}", *indented([*combine_lines(combiner, self.scope), *block])]

    def _reduction(self, operation: Reduction) -> list[str]:
        shape = tuple(axis.size for axis in operation.axes)
        typed = self._typed(operation.results, shape, operation.axes, operation.reduce_axes)
        head = f"reduce.{combiner_name(operation.combiner)} {typed}"
        return self._combined(head, operation.combiner, self._bodies(operation.bodies))

    def _scan(self, operation: Scan) -> list[str]:
        sizes = [axis.size for axis in operation.axes]
        sizes.insert(operation.dimension, operation.scan_axis.size)
        typed = self._typed(operation.results, sizes, operation.axes, (operation.scan_axis,))
        head = f"scan.{combiner_name(operation.combiner)} dimension {operation.dimension} {typed}"
        return self._combined(head, operation.combiner, self._bodies(operation.bodies))

    def _element(self, printer: BodyPrinter, buffer: str, index: tuple[Size, ...]) -> str:
        return f"{value_text(buffer)}[{', '.join(map(printer.term, index))}]"

    def _scatter(self, operation: Scatter) -> list[str]:
        printer = BodyPrinter((operation.body,), self.scope, operation.index)
        expected = operation.results[0].type.dtype if operation.results else None
        element = self._element(printer, operation.base, operation.index)
        text = f"{element} = {printer.root(operation.body, expected)}"
        head = f"scatter.{operation.mode} {axes_text(operation.axes)}{self._types(operation.results)}"
        return self._block(head, braced(printer.lets(), [text], width=WIDTH - len(head)))

    def _view(self, operation: View) -> list[str]:
        printer = BodyPrinter((), self.scope, operation.index)
        element = self._element(printer, operation.base, operation.index)
        shape = tuple(axis.size for axis in operation.axes)
        kind = "view" if operation.aliases else "view.copy"
        head = f"{kind} {self._typed(operation.results, shape, operation.axes)}"
        given = operation.base_strides
        tail = "" if given is None else f" given strides({', '.join(map(print_term, given))})"
        lines = self._block(head, braced(printer.lets(), [element], width=WIDTH))
        return [*lines[:-1], lines[-1] + tail]

    def _call(self, operation: Call) -> str:
        text = f"{_call_word(operation)} {name_text(operation.target)}"
        text += arguments_text(operation.arguments, operation.attributes) + self._types(operation.results)
        for word, pairs in (("mutates", operation.mutates), ("aliases", operation.aliases)):
            if pairs:
                text += f" {word}({', '.join(f'{value_text(a)} -> {value_text(b)}' for a, b in pairs)})"
        if operation.layout_requirement != "any":
            text += f" need {operation.layout_requirement}"
        if operation.unreturned:
            text += f" silent({values_text(operation.unreturned)})"
        if operation.unpack:
            text += " unpack"
        if operation.flops != 0:
            text += f" flops {print_term(operation.flops)}"
        if isinstance(operation, Extern) and operation.reason:
            text += f" reason {string_text(operation.reason)}"
        return text


def values_text(names: Iterable[str]) -> str:
    """The text of buffers' names: ``%a, %b``."""
    return ", ".join(map(value_text, names))


def combiner_name(combiner: Combiner) -> str:
    """The word after ``reduce.`` and ``scan.``."""
    return "combine" if isinstance(combiner, UserCombiner) else combiner.name


def combine_lines(combiner: UserCombiner, scope: DTypeScope) -> list[str]:
    """The lines of a user combiner: ``from { identity } by { body } to { finish }``."""
    parameters_scope = scope.combining(tuple(expr.dtype for expr in combiner.identity))
    lines: list[str] = []
    for word, bodies, known in (
        ("from", combiner.identity, scope),
        ("by", combiner.body, parameters_scope),
        ("to", combiner.finish, parameters_scope),
    ):
        printer = BodyPrinter(bodies, known)
        block = braced(printer.lets(), [printer.root(body) for body in bodies], width=WIDTH - 2 * len(INDENT))
        lines += [f"{word} {block[0]}", *block[1:]]
    return lines


def _call_word(operation: Call) -> str:
    match operation:
        case Extern():
            return "extern"
        case ContractionCall():
            return f"contraction.{operation.kind}"
        case Random():
            return "random"
        case Collective():
            return "collective"
    raise TypeError(f"no text form for a call of type {type(operation).__name__}")
