"""The graph itself, and the control flow that holds graphs."""

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


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A scalar argument of the graph. ``symbol`` is what it binds; when ``term`` is given the argument is that term of
    other symbols and binds nothing."""

    name: str
    kind: Literal["int", "float", "bool"]
    symbol: str | None = None
    term: Size | None = None


@dataclass(frozen=True, slots=True)
class ObjectInput:
    """An argument that only calls can use: a generator, a script object, ``None``."""

    name: str
    kind: str = "object"


Input = Value | ComplexValue | ScalarInput | ObjectInput
Output = Ref | ComplexRef | ScalarRef | Size | float | bool | None


@dataclass(frozen=True, slots=True)
class LoopGraph:
    """Inputs, constants, operations in program order (eager's order) and outputs.

    ``constants`` are tensors that travel beside the graph by name; an output is a value, a term, a literal or ``None``.
    ``frozen`` names the inputs that are likely the same tensors, with the same elements, call after call: parameters.
    ``donated`` names inputs that nobody reads after the graph has run: it may write what it likes over them.
    ``saved`` names outputs that nobody looks at but who was told the strides that they come with: these may be others
    than eager's.
    """

    name: str
    symbols: SymbolTable
    inputs: tuple[Input, ...]
    constants: tuple[Value, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    frozen: tuple[str, ...] = ()
    donated: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()

    def values(self) -> dict[str, Value]:
        """Every value by name."""
        found = {v.name: v for v in (*self.inputs, *self.constants) if isinstance(v, Value)}
        for operation in self.operations:
            found.update((v.name, v) for v in operation.results)
        return found

    def named(self) -> dict[str, Operation]:
        """Every operation by name, in order; those that define no value are told apart by a number."""
        found: dict[str, Operation] = {}
        met: dict[str, int] = {}
        for operation in self.operations:
            name = called = operation.name
            while name in found and not operation.results:
                met[called] = met.get(called, 0) + 1
                name = f"{called[:-1]} {met[called]}>"
            found[name] = operation
        return found

    def with_operations(self, operations: tuple[Operation, ...]) -> LoopGraph:
        """The same graph around other operations."""
        return replace(self, operations=operations)
