"""Grouping of consecutive launches of a host program into native calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from litz.host.emit.code import Code, code, joined, tuple_of
from litz.host.emit.launch_dependencies import launch_dependencies
from litz.host.emit.names import Names
from litz.host.emit.tensors import TensorVariables
from litz.host.program import MemoryLocation, Segment
from litz_ir.device import Device
from litz_ir.plan import Kernel, Launch, launched_on
from litz_ir.symbols import Size


class Segments:
    """Launches not emitted yet, and the native calls emitted so far (``done``)."""

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        names: Names,
        tensors: TensorVariables,
        lines: list[Code],
        *,
        shapes: bool = False,
    ) -> None:
        """With ``shapes``, calls are given the shapes of the buffers too."""
        self.done: list[Segment] = []
        self._shapes = shapes
        self._kernels = kernels
        self._names = names
        self._tensors = tensors
        self._lines = lines
        self._pending: list[Launch] = []

    def launch(self, step: Launch) -> None:
        """Add a launch to the segment, or start another one on another device."""
        if self._pending and self._device(step) != self._device(self._pending[-1]):
            self.flush()
        self._pending.append(step)

    def flush(self) -> None:
        """Emit the pending launches as one native call."""
        if self._pending:
            self._emit()
        self._pending = []

    def _device(self, launch: Launch) -> Device:
        """Return the device of a launch."""
        return launched_on(launch, self._tensors.placements)

    def _emit(self) -> None:
        """Emit the pending launches."""
        name = self._names.routine(f"segment_{len(self.done)}")
        buffers: dict[MemoryLocation, int] = {}
        symbols: dict[Size, int] = {}
        launches = []
        for launch in self._pending:
            where = tuple(buffers.setdefault(self._tensors.memory(b), len(buffers)) for b in launch.buffers)
            which = tuple(symbols.setdefault(s, len(symbols)) for s in launch.symbols)
            launches.append((launch.kernel, where, which))
        waiting = launch_dependencies(self._pending, self._kernels, self._tensors.region)
        given = tuple(tuple(map(self._tensors.given, launch.buffers)) for launch in self._pending)
        device = self._device(self._pending[0])
        self.done.append(
            Segment(name, tuple(buffers), tuple(symbols), tuple(launches), waiting, given, device)
        )
        self._lines.append(code("# {}", joined(launch.kernel for launch in self._pending)))
        parts = [tuple_of(self._addresses(tuple(buffers)))]
        if symbols or self._shapes:
            parts.append(self._names.terms(symbols))
        if self._shapes:
            types = (self._tensors.placements[b].type for launch in self._pending for b in launch.buffers)
            parts.append(tuple_of(self._names.terms(type_.shape) for type_ in types))
        self._lines.append(code("{}({})", name, joined(parts)))

    def _addresses(self, locations: Sequence[MemoryLocation]) -> Iterator[Code]:
        """Yield the address of each location; an owner of several is evaluated once."""
        owners = Counter(replace(location, offset=0) for location in locations)
        defined: set[MemoryLocation] = set()
        for location in locations:
            owner = replace(location, offset=0)
            address = self._tensors.address(owner)
            if owners[owner] > 1:
                name = self._names.address(location.owner)
                address = Code(name) if owner in defined else code("({} := {})", name, address)
                defined.add(owner)
            yield (
                address
                if location.offset == 0
                else code("{} + {}", address, self._names.term(location.offset))
            )
