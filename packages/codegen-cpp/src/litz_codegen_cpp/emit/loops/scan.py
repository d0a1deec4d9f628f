"""Scans in C++: a running combination along the last axis of a phase, stored after every point."""

from __future__ import annotations

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.loops.reduction import Accumulator, accumulator
from litz_ir.dtypes import DType
from litz_ir.plan import ScanStore


class ScanWriter:
    """Writes a ``ScanStore`` statement; its state is declared anew before every run of the last axis."""

    def __init__(self, body: ExpressionEmitter, statement: ScanStore, *, across: bool) -> None:
        self.body = body
        self.statement = statement
        self.across = across
        self.running: Accumulator | None = None

    def start(self) -> None:
        """Declare the state, at the innermost scope."""
        registers = self.body.context.registers if self.across else 1
        self.running = accumulator(
            self.body,
            self.statement.combiner,
            self.statement.values,
            registers=registers,
            across=self.across,
            along=False,
            scan=True,
        )
        self.running.declare()

    def step(self) -> None:
        """Combine one more element."""
        assert self.running is not None
        self.running.add(self.statement.values)

    def store(self) -> None:
        """Store the running results."""
        assert self.running is not None
        results = self.running.results(tuple(self._dtype(buffer) for buffer, _ in self.statement.targets))
        for (buffer, offset), value in zip(self.statement.targets, results):
            self.body.memory.store(buffer, offset, value)

    def _dtype(self, buffer: str) -> DType:
        return self.body.context.buffers[buffer].dtype
