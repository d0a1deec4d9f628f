"""Builder of a loop graph: operations in order, used names, and the newest version of each value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Axis, Call, HostScalar, Operation, Region, Value, View
from litz_ir.symbols import Range, Simplifier, extent, free_symbols
from litz_lowering.contexts.values import Complex, Lowered, Tensor
from litz_lowering.types.symbols_io import SymbolReader

Offset = int | torch.SymInt


def offset_of(value: torch.Tensor) -> Offset:
    """Storage offset of a tensor by its metadata, in elements; a complex element counts as two."""
    return value.storage_offset() * (2 if value.is_complex() else 1)


class GraphBuilder:
    """Operations, names and symbols of a graph under construction.

    Mutable; one per lowering. ``bound`` holds the symbols to which an operation has given a value.
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
        self._offsets: dict[str, tuple[Tensor, Offset, Offset]] = {}

    def unique(self, wanted: str, *, own: bool = False) -> str:
        """Return a name not in use, derived from ``wanted``.

        ``own``: the caller is the node of that name, so its own reservation does not count.
        """
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
        """Append an operation to the program."""
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
                        self.symbols.set_source(name, f"{value.name}.size({dim})")

    def root(self, name: str) -> str:
        """Oldest value whose memory ``name`` may share, through views, versions and calls."""
        while True:
            view = self._views.get(name)
            producer = self._producers.get(name)
            old = next((v.replaces for v in producer.results if v.name == name), None) if producer else None
            base = view.base if view is not None else old or self._shared.get(name)
            if base is None:
                return name
            name = base

    def record_offset(self, tensor: Tensor, offset: Offset, metadata_offset: Offset) -> None:
        """Record the element of its storage at which a tensor that is no view starts in eager.

        ``metadata_offset`` is the offset in its metadata, which is wrong for some operators. A complex element
        counts as two.
        """
        self._offsets[tensor.name] = (Tensor(tensor.value), offset, metadata_offset)

    def owner(self, tensor: Tensor) -> tuple[Tensor, Offset]:
        """Tensor whose memory a view shows, and the storage offset at which that tensor starts.

        A tensor that is no view is its own owner.
        """
        name = tensor.name
        while name in self._views:
            name = self._views[name].base
        if name in self._offsets:
            return self._offsets[name][:2]
        operation = self._producers.get(name)
        values = operation.results if operation is not None else ()
        return next((Tensor(value) for value in values if value.name == name), tensor), 0

    def has_traced_offset(self, name: str) -> bool:
        """True for a value made by a rule whose storage offset was recorded by :meth:`record_offset`."""
        return name in self._offsets and name in self._producers

    def eager_offset(self, tensor: Tensor, metadata_offset: Offset) -> Offset:
        """Storage offset of a tensor in eager, in elements, when its metadata says ``metadata_offset``."""
        known = self._offsets.get(self.root(tensor.name))
        if known is None:
            return metadata_offset
        owner, offset, wrong = known
        return metadata_offset + (offset - wrong) * owner.dtype.bits // tensor.dtype.bits

    def producer(self, name: str) -> Operation | None:
        """Operation that defines value ``name``; None for inputs and constants."""
        return self._producers.get(name)

    def owns(self, name: str) -> bool:
        """True when the memory of value ``name`` belongs to no earlier value."""
        return name not in self._views and name not in self._shared

    def redirect(self, name: str, version: Tensor) -> None:
        """Redirect later reads of value ``name`` to ``version``, which overwrote it.

        Raises :class:`UnsupportedOperation` when ``name`` aliases another value, whose readers would miss the
        write.
        """
        if name in self._views or name in self._shared:
            raise UnsupportedOperation(
                f"%{name} is a view, and is written to in place",
                hint="functionalise the graph first, as AOTAutograd does",
            )
        self._newer[name] = version

    def current(self, tensor: Tensor) -> Tensor:
        """Newest version of a tensor; a view of overwritten memory is made again over the new version.

        Raises :class:`UnsupportedOperation` where the memory was overwritten under another name.
        """
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

    def newest(self, value: Lowered) -> Lowered:
        """Newest version of a tensor, of a complex tensor, or of those in a tuple; other values are returned."""
        if isinstance(value, Tensor):
            return self.current(value)
        if isinstance(value, Complex):
            return Complex(self.current(value.pairs))
        if isinstance(value, tuple):
            return tuple(map(self.newest, value))
        return value

    def simplifier(self, axes: tuple[Axis, ...]) -> Simplifier:
        """Simplifier of index terms under the ranges of ``axes`` and of all symbols."""
        found = self._simplifiers.get(axes)
        if found is None:
            ranges: dict[str, Range] = {**self.symbols.ranges(), **{a.name: extent(a.size) for a in axes}}
            found = self._simplifiers[axes] = Simplifier(ranges)
        return found
