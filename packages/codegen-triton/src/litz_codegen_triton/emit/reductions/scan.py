"""Emission of scans along a phase's last axis: of a persistent tile, or of a loop of tiles with a carry."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.store import PendingStore
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.reductions.combiners import (
    CombinerSpec,
    combiner_results,
    combiner_spec,
    converted,
    initial_state,
    last_column,
)
from litz_codegen_triton.emit.reductions.lookback_scan import LookbackScanEmitter
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.errors import CodegenError
from litz_ir.loops import SORT
from litz_ir.plan import ScanStore


class ScanEmitter:
    """Writer of one ``ScanStore``.

    ``all_dims`` are the dimensions of the phase's tile, ``r`` among them. ``function`` names the merge function
    that the kernel defines for the combiner; it is empty for others.
    """

    def __init__(
        self, body: TileEmitter, statement: ScanStore, all_dims: frozenset[str], function: str
    ) -> None:
        self.body = body
        self.statement = statement
        self.all_dims = all_dims
        self.spec: CombinerSpec = combiner_spec(statement.combiner, statement.values, function)
        self.carries: tuple[EmittedValue, ...] = ()

    @property
    def _axis(self) -> int:
        return len(self.body.tile.dims) - 1

    def begin(self) -> None:
        """Write the carries, before a loop over tiles. Raises ``CodegenError`` for a sort, which has no carry."""
        if self.statement.combiner == SORT:
            raise CodegenError(
                "a sorted row is larger than the tile", hint="request a block that covers the whole row"
            )
        body, outer = self.body, self.all_dims - {"r"}
        self.carries = tuple(
            body.writer.define(
                "carry", f"tl.full({body.tile.text(outer) if outer else '[]'}, {identity}, {triton_type(dtype)})",
                outer, body.writer.depth,
            )
            for dtype, identity in zip(self.spec.dtypes, self.spec.identity)
        )  # fmt: skip

    def tile(self) -> list[PendingStore]:
        """Write the scan of one tile, which continues from the carries, and return its stores."""
        body = self.body
        names = self._tile_scan()
        if self.carries:
            names = self._continued([carry.text for carry in self.carries], names)
            for carry, name, dtype in zip(self.carries, names, self.spec.dtypes):
                body.writer.line(f"{carry.text} = {last_column(body, name, dtype)}")
        return self._writes([EmittedValue(name, self.all_dims, body.writer.depth) for name in names])

    def chunk(self, lookback: LookbackScanEmitter) -> list[PendingStore]:
        """Write the scan of a thread block's segment of a row, by decoupled look-back, and return its stores."""
        body = self.body
        names = self._tile_scan()
        names = self._continued(lookback.before(self.spec, names), names)
        lookback.after(self.spec, names)
        return self._writes([EmittedValue(name, self.all_dims, body.writer.depth) for name in names])

    def _tile_scan(self) -> list[str]:
        """Write the scan of the tile alone."""
        state = initial_state(self.body, self.spec)
        return self._scanned([self._full(value, k) for k, value in enumerate(state)])

    def _continued(self, before: Sequence[str], names: Sequence[str]) -> list[str]:
        """Combine the state ``before`` the tile with the tile's scan."""
        body = self.body
        merged = [body.writer.names.fresh("running") for _ in names]
        if body.form == "interpreted" and self.all_dims == {"r"}:
            # In Triton's interpreter, comparing scalars gives a scalar of the operands' dtype.
            before = [body.tile.broadcast(each, self.all_dims) for each in before]
        operands = ", ".join((*before, *names))
        body.writer.line(f"{', '.join(merged)} = {self.spec.function}({operands})")
        return merged

    def _full(self, value: EmittedValue, component: int) -> str:
        """Broadcast a component of the state to the whole tile."""
        body, dtype = self.body, self.spec.dtypes[component]
        text, dims = typed(value, dtype), value.dims
        tail = body.masks.tails.get("r")
        if tail is not None:
            # Points past the end are identities, which leave the carry unchanged.
            text, dims = f"tl.where({tail.text}, {text}, {self.spec.identity[component]})", dims | tail.dims
        if dims != self.all_dims:
            text = body.tile.broadcast(text, self.all_dims)
        return body.writer.define("tile", text, self.all_dims, body.writer.depth).text

    def _scanned(self, tiles: Sequence[str]) -> list[str]:
        """Write the scan of the components of a tile along ``r``."""
        names = [self.body.writer.names.fresh("scanned") for _ in tiles]
        if self.spec.running:
            call = self.spec.running.format(tiles[0], axis=self._axis)
        else:
            operands = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
            call = f"tl.associative_scan({operands}, {self._axis}, {self.spec.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        return names

    def _writes(self, state: Sequence[EmittedValue]) -> list[PendingStore]:
        """Convert the state to the results and return their stores."""
        body = self.body
        writes = []
        results = combiner_results(body, self.statement.combiner, state, self.spec)
        for (buffer, offset), (value, source) in zip(self.statement.targets, results):
            dtype = body.setting.parameters[buffer].dtype
            stored = converted(body, value, source, dtype)
            writes.append(PendingStore(buffer, stored, body.index.value(offset), offset))
        return writes
