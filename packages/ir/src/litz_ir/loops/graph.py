"""The loop graph, its inputs and outputs, and higher-order operators over subgraphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from litz_ir.loops.arguments import Argument, ComplexRef, Ref, ScalarRef, references
from litz_ir.loops.operations import Operation
from litz_ir.loops.values import ComplexValue, Value
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size

RegionKind = Literal["cond", "while_loop", "while_stack", "scan", "invoke", "frozen"]
"""Kind of a higher-order operator.

``invoke`` runs its subgraph; ``frozen`` does too, and its results are reused until a parameter changes.
"""


@dataclass(frozen=True, kw_only=True)
class Region(Operation):
    """A higher-order operator (HOP) over subgraphs.

    :mod:`litz_ir.interp.regions` defines the arguments of each kind. Arguments are passed in eager's layout; results
    share no memory with them.
    """

    kind: RegionKind
    """Kind of the operator."""
    subgraphs: tuple[LoopGraph, ...]
    """Its subgraphs, in the order of its kind."""
    arguments: tuple[Argument, ...]
    """Arguments, in the order of its kind."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers among the arguments, each once."""
        return tuple(dict.fromkeys(references(self.arguments)))

    @cached_property
    def _inner_tokens(self) -> tuple[str, ...]:
        inside = (token for graph in self.subgraphs for each in graph.operations for token in each.tokens)
        return tuple(dict.fromkeys(inside))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The operation's own token and those of the operations in its subgraphs."""
        return tuple(dict.fromkeys((*super().tokens, *self._inner_tokens)))


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number that the graph is given."""

    name: str
    """Name of the input."""
    kind: Literal["int", "float", "bool"]
    """Kind of the number."""
    symbol: str | None = None
    """Symbol that the argument binds."""
    term: Size | None = None
    """Term over other symbols that the argument equals; it then binds no symbol."""


@dataclass(frozen=True, slots=True)
class ObjectInput:
    """An argument that only calls can use: a generator, a script object, ``None``."""

    name: str
    """Name of the input."""
    kind: str = "object"
    """Kind of the object, such as ``generator``."""


Input = Value | ComplexValue | ScalarInput | ObjectInput
"""An input of a graph: a tensor, a number, or an object that is passed on to calls."""
Output = Ref | ComplexRef | ScalarRef | Size | float | bool | None
"""An output of a graph: a buffer, a term, a symbol, a literal or ``None``."""


@dataclass(frozen=True, slots=True)
class LoopGraph:
    """Tensor operations as loops and calls, in single-assignment form and program order."""

    name: str
    """Name of the graph."""
    symbols: SymbolTable
    """Symbols of the graph and of the enclosing graphs that it uses."""
    inputs: tuple[Input, ...]
    """Arguments of the graph, in order."""
    constants: tuple[Value, ...]
    """Tensors that the graph refers to by name and that are stored outside it."""
    operations: tuple[Operation, ...]
    """Operations in the order of eager's program."""
    outputs: tuple[Output, ...]
    """Results of the graph, in order."""
    frozen: tuple[str, ...] = ()
    """Inputs that are likely the same tensors with the same elements in each call: parameters."""
    donated: tuple[str, ...] = ()
    """Inputs that are not read after the graph has run, so that it may overwrite their memory: all bytes up to the next
    multiple of ``litz_ir.device.STORAGE_ALIGNMENT``."""
    saved: tuple[str, ...] = ()
    """Outputs that only the backward reads, whose strides may differ from eager's."""

    def values(self) -> dict[str, Value]:
        """Every buffer by name."""
        found = {v.name: v for v in (*self.inputs, *self.constants) if isinstance(v, Value)}
        for operation in self.operations:
            for value in operation.results:
                found[value.name] = value
        return found

    def named(self) -> dict[str, Operation]:
        """Every operation by name, in order; operations without results get distinct names by a number."""
        found: dict[str, Operation] = {}
        repeats: dict[str, int] = {}
        for operation in self.operations:
            name = base_name = operation.name
            while name in found and not operation.results:
                repeats[base_name] = repeats.get(base_name, 0) + 1
                name = f"{base_name[:-1]} {repeats[base_name]}>"
            found[name] = operation
        return found

    def with_operations(self, operations: tuple[Operation, ...]) -> LoopGraph:
        """The same graph with other operations."""
        return replace(self, operations=operations)
