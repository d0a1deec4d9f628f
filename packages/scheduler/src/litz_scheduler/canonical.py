"""Equal kernels are one kernel: names that do not matter are replaced by positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from litz_ir.loops import Axis, Operation, TensorType
from litz_ir.plan import Access, Accumulate, Kernel, Parameter, Phase, ScanStore, Schedule, Statement, Store
from litz_ir.scalar import Expr, Indirect, Load, Scalar, map_indirects, substitute_expr, transform
from litz_ir.symbols import Size, SymbolTable, free_symbols, substitute, symbol
from litz_scheduler.kernels import KernelBody
from litz_scheduler.loop_order import LoopNest, bodies_of, nodes_of, terms_of


@dataclass(frozen=True, slots=True)
class CanonicalKernel:
    """A kernel under a neutral name, and what its parameters and symbols stand for here."""

    kernel: Kernel
    buffers: tuple[str, ...]
    symbols: tuple[str, ...]


def canonicalize(
    body: KernelBody,
    schedule: Callable[[LoopNest], Schedule],
    type_of: Callable[[str], TensorType],
    memory_of: Callable[[str], str],
    table: SymbolTable,
) -> CanonicalKernel:
    """Name parameters ``p0, p1, …``, locals ``l0, …``, accumulators ``a0, …`` and axes ``i0, …``, ``r0, …`` in order of
    appearance; symbols keep their names, since what is known of them is part of the kernel."""
    names = _Names(body, type_of, memory_of)
    nest = names.nest(body.nest)
    used = _symbols(nest, table)
    kernel = Kernel(
        name="",
        parameters=tuple(names.parameters.values()),
        symbols=tuple(replace(table[name], hint=None, source="") for name in used),
        outer=nest.outer,
        scratch=tuple(replace(local, name=names.locals[local.name]) for local in body.scratch),
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
        self.locals: dict[str, str] = {local.name: f"l{k}" for k, local in enumerate(body.scratch)}
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
        return LoopNest(outer, tuple(phases))

    def _rename_axes(self, axes: tuple[Axis, ...], prefix: str) -> tuple[Axis, ...]:
        renamed = tuple(Axis(f"{prefix}{k}", axis.size) for k, axis in enumerate(axes))
        self.axes.update((old.name, symbol(new.name)) for old, new in zip(axes, renamed, strict=True))
        return renamed

    def _buffer(self, name: str, store: bool) -> str:
        if name in self.locals:
            return self.locals[name]
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
        """Axes are renamed first, all at once: a name may be old for one axis and new for another."""
        return self._renamed(substitute_expr(body, self.axes, self._moved))

    def _term(self, term: Size) -> Size:
        def change(atom: Indirect) -> Size:
            return atom.of(self._renamed(atom.value))

        return map_indirects(substitute(term, self.axes), change)

    def _renamed(self, body: Expr) -> Expr:
        """Bodies share what they are made of, and a name stays what it is: each node is renamed once."""
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
                if reads_itself and statement.buffer not in self.locals:
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
    """The plan's symbols that the nest uses, in the table's order."""
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


def kernel_title(operations: Iterable[Operation]) -> str:
    """A readable name: what was fused, in order, without repeats."""
    words: list[str] = []
    for operation in operations:
        called = operation.origin.operation.split(".")
        word = called[1] if len(called) > 1 else re.sub(r"_?\d+$", "", operation.name)
        word = re.sub(r"\W+", "_", word).strip("_")
        if word and word not in words:
            words.append(word)
    return "_".join(words[:TITLE_WORDS])[:TITLE_LENGTH].strip("_") or "kernel"
