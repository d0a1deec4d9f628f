"""Canonical names in kernels, so that kernels which differ in names alone are one kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from litz_ir.loops import Axis, Operation, TensorType
from litz_ir.plan import Access, Accumulate, Kernel, Parameter, Phase, ScanStore, Schedule, Statement, Store
from litz_ir.scalar import Expr, Indirect, Load, Scalar, map_indirects, substitute_expr, transform
from litz_ir.symbols import Size, SymbolTable, free_symbols, substitute, symbol
from litz_scheduler.analysis.kernels import KernelBody
from litz_scheduler.analysis.loop_order import LoopNest, bodies_of, nodes_of, terms_of


@dataclass(frozen=True, slots=True)
class CanonicalKernel:
    """A kernel with canonical names, and the arguments of one of its launches."""

    kernel: Kernel
    """The kernel, without a name."""
    buffers: tuple[str, ...]
    """The buffer for each parameter."""
    symbols: tuple[str, ...]
    """The symbols that it uses, in the order of the symbol table."""


def canonicalize(
    body: KernelBody,
    schedule: Callable[[LoopNest], Schedule],
    type_of: Callable[[str], TensorType],
    memory_of: Callable[[str], str],
    table: SymbolTable,
) -> CanonicalKernel:
    """Name parameters, scratch arrays, accumulators and axes of a kernel in order of appearance.

    The names are ``p0, p1, …``, ``l0, …``, ``a0, …``, and ``i0, …`` and ``r0, …``. Symbols are not renamed, because
    their ranges are part of the kernel.
    """
    names = _Names(body, type_of, memory_of)
    nest = names.nest(body.nest)
    used = _symbols(nest, table)
    kernel = Kernel(
        name="",
        parameters=tuple(names.parameters.values()),
        symbols=tuple(replace(table[name], hint=None, source="") for name in used),
        outer=nest.outer,
        scratch=tuple(replace(array, name=names.scratch[array.name]) for array in body.scratch),
        phases=nest.phases,
        schedule=schedule(nest),
    )
    return CanonicalKernel(kernel, tuple(names.parameters), used)


class _Names:
    def __init__(
        self, body: KernelBody, type_of: Callable[[str], TensorType], memory_of: Callable[[str], str]
    ) -> None:
        self.type_of = type_of
        self.memory_of = memory_of
        self.parameters: dict[str, Parameter] = {}
        self.scratch: dict[str, str] = {array.name: f"l{k}" for k, array in enumerate(body.scratch)}
        self.scalars: dict[str, str] = {}
        self.axes: dict[str, Size] = {}
        self._moved: dict[Expr, Expr] = {}
        self._named: dict[Any, Any] = {}

    def nest(self, nest: LoopNest) -> LoopNest:
        outer = self._rename_axes(nest.outer, "i")
        inner = self._rename_axes(nest.inner, "r")
        phases = []
        for phase in nest.phases:
            own = inner if phase.axes else ()
            phases.append(Phase(own, tuple(self._statement(s) for s in phase.statements)))
        return LoopNest(outer, tuple(phases), nest.along_sum)

    def _rename_axes(self, axes: tuple[Axis, ...], prefix: str) -> tuple[Axis, ...]:
        renamed = tuple(Axis(f"{prefix}{k}", axis.size) for k, axis in enumerate(axes))
        self.axes.update((old.name, symbol(new.name)) for old, new in zip(axes, renamed, strict=True))
        return renamed

    def _buffer(self, name: str, store: bool) -> str:
        if name in self.scratch:
            return self.scratch[name]
        name = self.memory_of(name)
        known = self.parameters.get(name)
        if known is None:
            access: Access = "out" if store else "in"
            known = Parameter(f"p{len(self.parameters)}", self.type_of(name).dtype, access)
            self.parameters[name] = known
        elif (known.access == "in") == store and known.access != "inout":
            self.parameters[name] = replace(known, access="inout")
        return known.name

    def _expr(self, body: Expr) -> Expr:
        """Return a body with canonical names.

        Axes are renamed simultaneously, because one axis may get the old name of another.
        """
        return self._renamed(substitute_expr(body, self.axes, self._moved))

    def _term(self, term: Size) -> Size:
        def change(atom: Indirect) -> Size:
            return atom.of(self._renamed(atom.value))

        return map_indirects(substitute(term, self.axes), change)

    def _renamed(self, body: Expr) -> Expr:
        """Return a body with buffers and accumulators renamed; nodes that bodies share are renamed once."""
        return transform(body, self._rename, memo=self._named)

    def _rename(self, node: Expr) -> Expr:
        if isinstance(node, Load):
            return Load(self._buffer(node.buffer, False), node.index, node.dtype)
        if isinstance(node, Scalar) and node.name in self.scalars:
            return Scalar(self.scalars[node.name], node.dtype)
        return node

    def _statement(self, statement: Statement) -> Statement:
        values = tuple(self._expr(value) for value in bodies_of(statement))
        match statement:
            case Store():
                offset = self._term(statement.offset)
                reads_itself = statement.mode != "set"
                if reads_itself and statement.buffer not in self.scratch:
                    self._buffer(statement.buffer, False)
                return Store(self._buffer(statement.buffer, True), offset, values[0], statement.mode)
            case Accumulate():
                results = []
                for name, dtype in statement.results:
                    self.scalars[name] = f"a{len(self.scalars)}"
                    results.append((self.scalars[name], dtype))
                return Accumulate(tuple(results), statement.combiner, values)
            case ScanStore():
                targets = tuple((self._buffer(b, True), self._term(t)) for b, t in statement.targets)
                return ScanStore(statement.combiner, values, targets)


def _symbols(nest: LoopNest, table: SymbolTable) -> tuple[str, ...]:
    """Return the symbols of the table that the nest uses, in the order of the table."""
    axes = nest.outer + nest.inner
    names: set[str] = set()
    for axis in axes:
        names |= free_symbols(axis.size)
    for phase in nest.phases:
        names.update(*map(free_symbols, terms_of(phase.statements)))
        names.update(*(body.free_symbols for each in phase.statements for body in bodies_of(each)))
        names.update(node.name for node in nodes_of(phase.statements) if isinstance(node, Scalar))
    own = {axis.name for axis in axes}
    return tuple(info.name for info in table if info.name in names - own)


TITLE_WORDS, TITLE_LENGTH = 6, 60
"""The most words and characters in the title of a kernel."""


def kernel_title(operations: Iterable[Operation]) -> str:
    """Return a readable kernel name: the ATen operators that are fused, in order, each once."""
    words: list[str] = []
    for operation in operations:
        called = operation.origin.operation.split(".")
        word = called[1] if len(called) > 1 else re.sub(r"_?\d+$", "", operation.name)
        word = re.sub(r"\W+", "_", word).strip("_")
        if word and word not in words:
            words.append(word)
    return "_".join(words[:TITLE_WORDS])[:TITLE_LENGTH].strip("_") or "kernel"
