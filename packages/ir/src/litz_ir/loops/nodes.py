"""The loop graph: what lowering hands to the scheduler.

Buffers are values in single-assignment form: a name is defined once, by an input, a constant or an operation. A
mutation defines a new version (a new name) of its target, and every read names the version it wants, so order is
data: an operation runs after what defines its reads, a mutation after every read of the version it overwrites, and
operations that share a ``token`` in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType
from litz_ir.loops.layout import Layout, contiguous
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.scalar.expr import Expr, indirects_in, loads
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, Term

# --- types and values -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype, logical shape, memory layout and device of a buffer."""

    dtype: DType
    shape: tuple[Size, ...]
    layout: Layout
    device: Device = CPU


def tensor_type(dtype: DType, *shape: Size, device: Device = CPU) -> TensorType:
    """A contiguous type, its layout free to change."""
    return TensorType(dtype, shape, contiguous(shape), device)


@dataclass(frozen=True, slots=True)
class Value:
    """A named buffer. ``replaces`` is set on a new version: the name of the version that it overwrites in place."""

    name: str
    type: TensorType
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ComplexValue(Value):
    """Pairs (real, imaginary) on a last dimension of two that come from outside as a complex tensor: an input, or the
    result of a call. Whoever runs the graph reads the complex tensor's memory as such pairs; nothing is copied."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable and its extent: it runs over ``[0, size)``."""

    name: str
    size: Size


# --- arguments of calls ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """A value passed to a call."""

    name: str


@dataclass(frozen=True, slots=True)
class ComplexRef(Ref):
    """Pairs (real, imaginary) on a last dimension of two, passed to a call or returned as a complex tensor over the
    same memory."""


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a value's memory passed to a call as a tensor of its own, so that the call can overwrite it there.

    ``layout`` counts elements from the value's first one; it goes by eager's strides of the value.
    """

    name: str
    shape: tuple[Size, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """A float or bool symbol passed to a call; integer symbols are passed as terms."""

    name: str


@dataclass(frozen=True, slots=True)
class Keyword:
    """A name that belongs to the caller's vocabulary: ``Keyword("memory_format", "channels_last")``."""

    kind: str
    name: str


Argument = (
    Ref | ComplexRef | Window | ScalarRef | Keyword | DType | Device | Size | float | bool | complex | str | None
    | tuple["Argument", ...]
)  # fmt: skip
Attributes = tuple[tuple[str, Argument], ...]


def references(argument: Argument) -> Iterator[str]:
    """The values that an argument reads."""
    if isinstance(argument, Ref | Window):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from references(item)


def sizes_in(argument: Argument) -> Iterator[Size]:
    """The sizes and index terms in an argument."""
    if isinstance(argument, Term):
        yield argument
    elif isinstance(argument, Window):
        yield from (*argument.shape, *argument.layout.strides, argument.layout.offset)
    elif isinstance(argument, tuple):
        for item in argument:
            yield from sizes_in(item)


def complex_references(argument: Argument) -> Iterator[str]:
    """The values that an argument passes as complex tensors."""
    if isinstance(argument, ComplexRef):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from complex_references(item)


# --- reductions -----------------------------------------------------------------------------------------

ReductionName = Literal[
    "sum", "prod", "min", "max", "any", "all", "xor", "argmin", "argmax", "welford", "online_softmax"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """A named way to combine. What goes in and comes out:

    ``sum prod min max any all xor``: one value to one. ``argmin argmax``: (value, index) to (value, index); the first
    index wins ties and NaN wins over numbers. ``welford``: one value to (mean, sum of squared differences, count).
    ``online_softmax``: one value to (maximum, sum of exponentials relative to it). ``min`` and ``max`` propagate NaN.
    """

    name: ReductionName

    @property
    def inputs(self) -> int:
        return 2 if self.name in ("argmin", "argmax") else 1

    @property
    def results(self) -> int:
        return {"argmin": 2, "argmax": 2, "welford": 3, "online_softmax": 2}.get(self.name, 1)


@dataclass(frozen=True, slots=True)
class Combine:
    """A user-given associative combination over tuples of ``n`` values.

    ``body`` holds ``n`` expressions over ``Param(0..n-1)`` (what is accumulated) and ``Param(n..2n-1)`` (the new
    element); ``identity`` ``n`` literals; ``finish`` expressions over ``Param(0..n-1)`` that make the results.
    """

    body: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    finish: tuple[Expr, ...]

    @property
    def inputs(self) -> int:
        return len(self.identity)

    @property
    def results(self) -> int:
        return len(self.finish)


Combiner = Kind | Combine
ScatterMode = Literal["set", "add", "mul", "min", "max"]

# --- operations -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Base of all operations. ``results`` are the values it defines; ``token`` orders it among others of that token."""

    results: tuple[Value, ...]
    origin: Origin = field(default=UNKNOWN, compare=False)
    token: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values read, each once, in order of appearance."""
        return ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token that orders it: its own, and for control flow those of what happens inside."""
        return (self.token,) if self.token else ()

    @property
    def name(self) -> str:
        """The first result's name, which identifies the operation in a graph."""
        return self.results[0].name if self.results else f"<{type(self).__name__.lower()}>"


def _load_names(bodies: tuple[Expr, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(load.buffer for load in loads(*bodies)))


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """``results[k][axes] = bodies[k]``, for every point of the axes."""

    axes: tuple[Axis, ...]
    bodies: tuple[Expr, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return _load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Reduction(Operation):
    """``results[k][axes] = combine over reduce_axes of bodies``; over no point it is the identity."""

    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    combiner: Combiner
    bodies: tuple[Expr, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return _load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scan(Operation):
    """``results[k][axes, scan_axis] = combine over the points up to and including this one along scan_axis``.

    The results' dimensions are ``axes`` with the scanned one at position ``dimension``.
    """

    axes: tuple[Axis, ...]
    scan_axis: Axis
    dimension: int
    combiner: Combiner
    bodies: tuple[Expr, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return _load_names(self.bodies)


@dataclass(frozen=True, kw_only=True)
class Scatter(Operation):
    """A copy of ``base`` in which ``body`` is combined into element ``index`` for every point of the axes, in row-major
    order of the points (so the last write wins under ``set``). ``index`` is a logical index of the result."""

    base: str
    axes: tuple[Axis, ...]
    index: tuple[Size, ...]
    body: Expr
    mode: ScatterMode = "set"

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.base, *_load_names((self.body,)), *index_reads(self.index))))


@dataclass(frozen=True, kw_only=True)
class Sort(Operation):
    """(sorted values, their positions) of ``source`` along ``dimension``; positions are ``i64``."""

    source: str
    dimension: int
    descending: bool = False
    stable: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True)
class View(Operation):
    """``result[axes] = base[index]``: the same elements under another index. Eager's result shares memory with the
    base; ``aliases`` is false where it is a copy (``reshape`` of what cannot be viewed). A result of another dtype of
    the same width shows the same bits."""

    base: str
    axes: tuple[Axis, ...]
    index: tuple[Size, ...]
    aliases: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.base,)


@dataclass(frozen=True, kw_only=True)
class Mutation(Operation):
    """Overwrite ``target`` with ``source`` (same shape and dtype): the result is the target's next version."""

    target: str
    source: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target, self.source)


Need = Literal["any", "dense", "exact"]


@dataclass(frozen=True, kw_only=True)
class Call(Operation):
    """Base of operations that run as one call of a named routine.

    ``mutates`` names the values (among those referenced) that the call overwrites, each paired with the result that is
    its new version; ``aliases`` pairs results with the value whose memory they share. ``need`` is what the routine
    wants of its arguments' layouts; ``exact`` means eager's strides. ``unpack`` is true when the routine returns a
    tuple or list, even of one; ``silent`` names the results that it does not return (new versions of what it
    overwrites).
    """

    results: tuple[Value | ComplexValue, ...]
    target: str
    arguments: tuple[Argument, ...]
    attributes: Attributes = ()
    mutates: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    need: Need = "any"
    unpack: bool = False
    silent: tuple[str, ...] = ()
    flops: Size = 0

    @property
    def reads(self) -> tuple[str, ...]:
        both = (*self.arguments, *(value for _, value in self.attributes))
        return tuple(dict.fromkeys(references(both)))


@dataclass(frozen=True, kw_only=True)
class Extern(Call):
    """Any other routine of the host, by name: ``target`` is an ATen overload or an entry of the extern table.
    ``reason`` says why nothing was generated for it."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Contraction(Call):
    """Matrix products, convolutions and attention, by what they mean: ``kind`` is ``matmul``, ``convolution`` or
    ``attention``. The scheduler picks how a target realises it; ``target`` is the extern that always can."""

    kind: Literal["matmul", "convolution", "attention"]


@dataclass(frozen=True, kw_only=True)
class Random(Call):
    """A draw from the host's own generator, in program order: it carries the token ``rng``."""


@dataclass(frozen=True, kw_only=True)
class Collective(Call):
    """Communication between ranks; never reordered: it carries the token ``collective``."""


RegionKind = Literal["cond", "while_loop", "while_stack", "scan", "invoke"]


@dataclass(frozen=True, kw_only=True)
class Region(Operation):
    """Structured control flow over subgraphs; ``litz_ir.interp.regions`` says what each kind's arguments are.

    Its results have memory of their own: they share none with an argument. Arguments are passed in eager's layout.
    """

    kind: RegionKind
    subgraphs: tuple[LoopGraph, ...]
    arguments: tuple[Argument, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(references(self.arguments)))

    @cached_property
    def _inner_tokens(self) -> tuple[str, ...]:
        inside = (token for graph in self.subgraphs for each in graph.operations for token in each.tokens)
        return tuple(dict.fromkeys(inside))

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().tokens, *self._inner_tokens)))


AssertedError = Literal["RuntimeError", "IndexError"]


@dataclass(frozen=True, kw_only=True)
class Assert(Operation):
    """Raise ``message`` unless ``condition`` (a 0-d ``b1`` body) holds; it carries the token ``assert``.

    ``error`` is the class of Python's that eager raises.
    """

    condition: Expr
    message: str
    error: AssertedError = "RuntimeError"

    @property
    def reads(self) -> tuple[str, ...]:
        return _load_names((self.condition,))


@dataclass(frozen=True, kw_only=True)
class HostScalar(Operation):
    """Define ``symbol`` once per call from a 0-d body: what index terms cannot express, or data (``item``)."""

    symbol: str
    body: Expr

    @property
    def reads(self) -> tuple[str, ...]:
        return _load_names((self.body,))

    @property
    def name(self) -> str:
        return self.symbol


def index_reads(terms: tuple[Size, ...]) -> Iterator[str]:
    """The buffers read by the indirect indices in ``terms``."""
    for term in terms:
        for atom in indirects_in(term):
            yield from _load_names((atom.value,))


# --- the graph ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A scalar argument of the graph. ``symbol`` is what it binds; when ``term`` is given the argument is that term of
    other symbols and binds nothing."""

    name: str
    kind: Literal["int", "float", "bool"]
    symbol: str | None = None
    term: Size | None = None


@dataclass(frozen=True, slots=True)
class OpaqueInput:
    """An argument that only calls can use: a generator, a script object, ``None``."""

    name: str
    kind: str = "object"


Input = Value | ComplexValue | ScalarInput | OpaqueInput
Output = Ref | ComplexRef | ScalarRef | Size | float | bool | None


@dataclass(frozen=True, slots=True)
class LoopGraph:
    """Inputs, constants, operations in program order (eager's order) and outputs.

    ``constants`` are tensors that travel beside the graph by name; an output is a value, a term, a literal or ``None``.
    """

    name: str
    symbols: SymbolTable
    inputs: tuple[Input, ...]
    constants: tuple[Value, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]

    def values(self) -> dict[str, Value]:
        """Every value by name."""
        found = {v.name: v for v in (*self.inputs, *self.constants) if isinstance(v, Value)}
        for operation in self.operations:
            found.update((v.name, v) for v in operation.results)
        return found

    def named(self) -> dict[str, Operation]:
        """Every operation by name, in order; those that define no value are told apart by a number."""
        found: dict[str, Operation] = {}
        for operation in self.operations:
            name, count = operation.name, 1
            while name in found and not operation.results:
                name, count = f"{operation.name[:-1]} {count}>", count + 1
            found[name] = operation
        return found

    def with_operations(self, operations: tuple[Operation, ...]) -> LoopGraph:
        """The same graph around other operations."""
        return replace(self, operations=operations)
