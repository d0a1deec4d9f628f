"""Scans: running combinations along a phase's last axis, over a tile at once or tile by tile with a carry."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.combiners import (
    CombinerSpec,
    combiner_results,
    combiner_spec,
    converted,
    initial_state,
    last_column,
)
from litz_codegen_triton.emit.lookback_scan import LookbackScanEmitter
from litz_codegen_triton.emit.ops_table import triton_type
from litz_codegen_triton.emit.store import PendingStore
from litz_codegen_triton.emit.text import EmittedValue
from litz_ir.dtypes import DType
from litz_ir.errors import CodegenError
from litz_ir.loops import SORT, NamedCombiner
from litz_ir.plan import ScanStore


class ScanEmitter:
    """One ``ScanStore`` of a phase that varies along ``every`` dimensions of the tile, ``r`` among them."""

    def __init__(self, body: TileEmitter, statement: ScanStore, every: frozenset[str], function: str) -> None:
        self.body = body
        self.statement = statement
        self.every = every
        self.spec: CombinerSpec = combiner_spec(statement.combiner, self._dtypes(), function)
        self.carries: tuple[EmittedValue, ...] = ()

    def _dtypes(self) -> list[DType]:
        combiner = self.statement.combiner
        if isinstance(combiner, NamedCombiner) and combiner.name not in (
            "argmin",
            "argmax",
            "any",
            "all",
            "min",
            "max",
            "xor",
            "sort",
        ):
            return [self.body.setting.parameters[buffer].dtype for buffer, _ in self.statement.targets]
        return [expr.dtype for expr in self.statement.values]

    @property
    def _axis(self) -> int:
        return len(self.body.setting.dims) - 1

    def begin(self) -> None:
        """Write what has been combined so far, before the loop over tiles opens."""
        if self.statement.combiner == SORT:
            raise CodegenError("a row is sorted piece by piece", hint="name a block that covers it")
        body, outer = self.body, self.every - {"r"}
        self.carries = tuple(
            body.writer.define(
                "carry", f"tl.full({body.shape(outer) if outer else '[]'}, {identity}, {triton_type(dtype)})",
                outer, body.writer.depth,
            )
            for dtype, identity in zip(self.spec.dtypes, self.spec.identity)
        )  # fmt: skip

    def tile(self) -> list[PendingStore]:
        """Write the scan of one tile; the stores are left to the caller."""
        body = self.body
        names = self._own()
        if self.carries:
            names = self._going_on([carry.text for carry in self.carries], names)
            for carry, name, dtype in zip(self.carries, names, self.spec.dtypes):
                body.writer.line(f"{carry.text} = {last_column(body, name, dtype)}")
        return self._writes([EmittedValue(name, self.every, body.writer.depth) for name in names])

    def chunk(self, relay: LookbackScanEmitter) -> list[PendingStore]:
        """Write the scan of one program's part of a row; the stores are left to the caller."""
        body = self.body
        names = self._own()
        names = self._going_on(relay.before(self.spec, names), names)
        relay.after(self.spec, names)
        return self._writes([EmittedValue(name, self.every, body.writer.depth) for name in names])

    def _own(self) -> list[str]:
        """The scan of the points at hand alone."""
        state = initial_state(self.body, self.statement.combiner, self.spec, self.statement.values)
        return self._scanned([self._full(value, k) for k, value in enumerate(state)])

    def _going_on(self, before: Sequence[str], names: Sequence[str]) -> list[str]:
        """A scan that goes on from what came before it."""
        body = self.body
        merged = [body.writer.names.fresh("running") for _ in names]
        if body.form == "interpreted" and self.every == {"r"}:
            # The interpreter takes a compared scalar for one of the type that was compared.
            before = [f"tl.broadcast_to({each}, {body.shape(self.every)})" for each in before]
        operands = ", ".join((*before, *names))
        body.writer.line(f"{', '.join(merged)} = {self.spec.function}({operands})")
        return merged

    def _full(self, value: EmittedValue, component: int) -> str:
        body, dtype = self.body, self.spec.dtypes[component]
        text, dims = body.typed(value, dtype), value.dims
        tail = body.masks.tails.get("r")
        if tail is not None:
            # Points past the end leave what was combined as it is.
            text, dims = f"tl.where({tail.text}, {text}, {self.spec.identity[component]})", dims | tail.dims
        if dims != self.every:
            text = f"tl.broadcast_to({text}, {body.shape(self.every)})"
        return body.writer.define("tile", text, self.every, body.writer.depth).text

    def _scanned(self, tiles: Sequence[str]) -> list[str]:
        names = [self.body.writer.names.fresh("scanned") for _ in tiles]
        if self.spec.running:
            call = self.spec.running.format(tiles[0], axis=self._axis)
        else:
            operands = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
            call = f"tl.associative_scan({operands}, {self._axis}, {self.spec.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        return names

    def _writes(self, state: Sequence[EmittedValue]) -> list[PendingStore]:
        body = self.body
        writes = []
        results = combiner_results(body, self.statement.combiner, state, self.spec)
        for (buffer, offset), (value, source) in zip(self.statement.targets, results):
            wanted = body.setting.parameters[buffer].dtype
            stored = converted(body, value, source, wanted)
            writes.append(PendingStore(buffer, stored, body.index.value(offset), offset))
        return writes
