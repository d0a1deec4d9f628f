"""The loop graph while it grows: operations in order, names in use, and which version of a value is the newest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Axis, Call, HostScalar, Operation, Region, Value, View
from litz_ir.symbols import Range, Simplifier, extent, free_symbols
from litz_lowering.symbols_io import SymbolReader
from litz_lowering.values import Tensor

Offset = int | torch.SymInt


def offset_of(value: torch.Tensor) -> Offset:
    """At which element of its storage a tensor starts by its metadata; a complex number is two elements."""
    return value.storage_offset() * (2 if value.is_complex() else 1)


class GraphBuilder:
    """The operations of the graph so far, the names in use, and the symbols that operations gave a value (``bound``).

    Mutable; one per lowering.
    """

    def __init__(self, reserved: Iterable[str], symbols: SymbolReader) -> None:
        self.operations: list[Operation] = []
        self.symbols = symbols
        self._taken = set(reserved)
        self._claimed: set[str] = set()
        self._counts: dict[str, int] = {}
        self._simplifiers: dict[tuple[Axis, ...], Simplifier] = {}
        self._newer: dict[str, Tensor] = {}
        self._views: dict[str, View] = {}
        self._shared: dict[str, str] = {}
        self._producers: dict[str, Operation] = {}
        self.bound: set[str] = set()
        self._starts: dict[str, tuple[Tensor, Offset, Offset]] = {}

    def unique(self, wanted: str, *, own: bool = False) -> str:
        """A name not in use. ``own``: the node whose name ``wanted`` is asks, so its own reservation does not count."""
        if own and wanted not in self._claimed:
            self._claimed.add(wanted)
            return wanted
        name = wanted
        while name in self._taken or name in self._claimed:
            self._counts[wanted] = self._counts.get(wanted, 0) + 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._claimed.add(name)
        return name

    def append(self, operation: Operation) -> None:
        """Add an operation at the end of the program."""
        self.operations.append(operation)
        self._producers.update((value.name, operation) for value in operation.results)
        if isinstance(operation, View) and operation.aliases:
            self._views[operation.name] = operation
        if isinstance(operation, HostScalar):
            self.bound.add(operation.symbol)
        if isinstance(operation, Call):
            overwritten = dict(operation.mutates)
            self._shared.update((result, overwritten.get(base, base)) for result, base in operation.aliases)
        if isinstance(operation, Call | Region):
            for value in operation.results:
                for dim, size in enumerate(value.type.shape):
                    self.bound |= free_symbols(size)
                    for name in free_symbols(size):
                        self.symbols.sourced(name, f"{value.name}.size({dim})")

    def root(self, name: str) -> str:
        """The oldest value whose memory ``name`` may share, through views, versions and calls."""
        while True:
            view = self._views.get(name)
            producer = self._producers.get(name)
            old = next((v.replaces for v in producer.results if v.name == name), None) if producer else None
            base = view.base if view is not None else old or self._shared.get(name)
            if base is None:
                return name
            name = base

    def starts(self, tensor: Tensor, start: Offset, told: Offset) -> None:
        """Note at which element of its storage a tensor that is no view starts in eager; ``told`` is what its metadata
        says, which is wrong for some operators. A complex number is two elements."""
        self._starts[tensor.name] = (Tensor(tensor.value), start, told)

    def owner(self, tensor: Tensor) -> tuple[Tensor, Offset]:
        """Through views, the tensor in whose memory a tensor is (itself, if it is no view), and at which element of
        its storage that one starts."""
        name = tensor.name
        while name in self._views:
            name = self._views[name].base
        if name in self._starts:
            return self._starts[name][:2]
        operation = self._producers.get(name)
        values = operation.results if operation is not None else ()
        return next((Tensor(value) for value in values if value.name == name), tensor), 0

    def reshapes(self, tensor: Tensor) -> bool:
        """True for a view that has another shape or layout than the memory that it shows."""
        home = self.owner(tensor)[0].type
        return (home.shape, home.layout.strides) != (tensor.shape, tensor.type.layout.strides)

    def is_placed_copy(self, name: str) -> bool:
        """True for a value that a rule made, and noted where in its storage it starts."""
        return name in self._starts and name in self._producers

    def start(self, tensor: Tensor, told: Offset) -> Offset:
        """At which element of its storage a tensor starts in eager, when its metadata says ``told``."""
        known = self._starts.get(self.root(tensor.name))
        if known is None:
            return told
        owner, start, wrong = known
        return told + (start - wrong) * owner.dtype.bits // tensor.dtype.bits

    def producer(self, name: str) -> Operation | None:
        """The operation that defines value ``name``; None for inputs and constants."""
        return self._producers.get(name)

    def owns(self, name: str) -> bool:
        """True when the memory of value ``name`` is that of no other value before it."""
        return name not in self._views and name not in self._shared

    def replaced(self, name: str, version: Tensor) -> None:
        """Reads of value ``name`` that follow are reads of ``version``, which overwrote it.

        Raises :class:`UnsupportedOperation` when the memory is that of another value: its readers would miss the write.
        """
        if name in self._views or name in self._shared:
            raise UnsupportedOperation(
                f"%{name} is a view, and is written to in place",
                hint="functionalise the graph first, as AOTAutograd does",
            )
        self._newer[name] = version

    def current(self, tensor: Tensor) -> Tensor:
        """The newest version of a tensor. A view of memory that was overwritten is taken anew."""
        if not self._newer:
            return tensor
        newer = self._newer.get(tensor.name)
        if newer is not None:
            return self.current(newer)
        if self._shared.get(tensor.name) in self._newer:
            raise UnsupportedOperation(
                f"%{tensor.name} is read after its memory was overwritten under another name"
            )
        view = self._views.get(tensor.name)
        if view is None:
            return tensor
        base = self.current(Tensor(Value(view.base, tensor.type)))
        if base.name == view.base:
            return tensor
        again = replace(tensor.value, name=self.unique(tensor.name))
        self.append(replace(view, results=(again,), base=base.name))
        self._newer[tensor.name] = Tensor(again)
        return Tensor(again)

    def simplifier(self, axes: tuple[Axis, ...]) -> Simplifier:
        """The simplifier under the ranges of these axes and of all symbols."""
        found = self._simplifiers.get(axes)
        if found is None:
            ranges: dict[str, Range] = {**self.symbols.ranges(), **{a.name: extent(a.size) for a in axes}}
            found = self._simplifiers[axes] = Simplifier(ranges)
        return found
