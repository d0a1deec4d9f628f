"""Convolutions in tiles: a routine computes a tile of sums, and the other phases run while it is in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from litz_codegen_cpp.capabilities import PANEL_VECTORS
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.epilogue_rows import epilogue_rows
from litz_codegen_cpp.emit.loops.phases import step_text, vector_loop
from litz_ir.contraction import TiledSum
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate
from litz_ir.symbols import product

_HEADERS = {"copies": "library/copied_sums", "panels": "library/tiled_sums", "channels": "library/tiled_sums"}
"""The header with the routines of each kind of tiles."""
_ADJACENT, _STRIDES = (3, 5, 7), (1, 2)
"""Lengths of rows of filters, and pixels' distances in them, for which elements are read once for all pixels."""


class TiledLoops:
    """Writes loops over tiles; ``begin`` and ``end`` name a thread's range of tiles."""

    def __init__(
        self, body: ExpressionEmitter, tiled: TiledSum, grain: int, rest: Callable[[], None]
    ) -> None:
        self.body = body
        self.fewest = grain
        self.context = body.context
        self.tiled = tiled
        self.rest = rest
        kernel = self.context.kernel
        (self.statement,) = kernel.phases[0].statements
        self._kind = tiled.tiles
        body.headers.add(_HEADERS[self._kind])
        self._tiles = ""

    def write(self) -> None:
        """Write the loops at the innermost scope."""
        context = self.context
        fresh, line = context.names.fresh, context.scopes.line
        of, tiles = self._describe(pointers=True)
        sums, tile, at, pixel = fresh("sums"), fresh("tile"), fresh("at"), fresh("pixel")
        line(f"alignas(64) float {sums}[TILE_FLOATS];")
        later = "" if self.tiled.depthwise else self._later()
        with context.scopes.block(f"for (int64_t {tile} = begin; {tile} < end; ++{tile}) {{"):
            line(f"const tile_range {at} = tile_of_{self._kind}({of}, {tiles}, {tile});")
            line(f"{self._routine()}({of}, {at}, {sums}{later});")
            opening = f"for (int64_t {pixel} = {at}.begin; {pixel} < {at}.end; ++{pixel}) {{"
            with context.scopes.block(opening) as scope:
                self._decode(pixel, scope.axes)
                row = fresh("row")
                line(f"const float* {row} = {sums} + ({pixel} - {at}.begin) * {at}.step - {at}.first;")
                self._channels(row, at)

    def count(self) -> str:
        """Return the number of tiles, at the innermost scope."""
        _, tiles = self._describe(pointers=False)
        third = "" if self._kind == "panels" else f" * {tiles}.chunks"
        self._tiles = f"{tiles}.rows * {tiles}.columns{third}"
        return self._tiles

    def grain(self) -> str:
        """Return the least number of tiles for a thread."""
        kernel = self.context.kernel
        points = product(axis.size for axis in kernel.outer)
        return f"tile_grain({self._tiles}, {points}, {self.fewest})"

    def _later(self) -> str:
        """Define the rows that are accessed after the sums; return them as the last arguments of the routine."""
        context = self.context
        rows = epilogue_rows(context.kernel, self.tiled)
        if not rows:
            return ""
        name = context.names.fresh("later")
        texts = (
            _braced((f"(const float*){context.buffers[each.buffer].pointer} + {each.start}", each.step))
            for each in rows
        )
        context.scopes.line(f"const pixel_rows {name}[] = {_braced(texts)};")
        return f", {name}, {len(rows)}"

    def _routine(self) -> str:
        """Return the routine that computes a tile."""
        tiled = self.tiled
        steps = tiled.stride(tiled.pixels[-1]), tiled.stride(tiled.inner[-1])
        length, stride = _size(tiled.inner[-1]), steps[0] // steps[1] if steps[1] else 0
        across = [w for w in tiled.windows if w.inner == 2 or w.pixel == 2]
        shared = all(w.inner == 2 and w.pixel == 2 and w.stride == stride * w.dilation for w in across)
        adjacent = (
            tiled.depthwise and length in _ADJACENT and stride in _STRIDES and steps[0] == stride * steps[1]
        )
        if adjacent and shared and all(w.dilation > 0 for w in across):
            return f"sum_adjacent<{length}, {stride}, {_size(tiled.pixels[-1])}>"
        return f"sum_{self._kind}"

    def _describe(self, *, pointers: bool) -> tuple[str, str]:
        """Define the sum and its tiles; return their names."""
        tiled, context = self.tiled, self.context
        of, tiles = context.names.fresh("work"), context.names.fresh("tiles")
        windows = [(w.pixel, w.inner, w.stride, w.dilation, w.padding, w.limit) for w in tiled.windows]
        source, weight = "nullptr", "nullptr"
        if pointers:
            source = f"{context.buffers[tiled.source.buffer].pointer} + {tiled.start}"
            weight = context.buffers[tiled.weight.buffer].pointer
        fields = [
            *(
                _braced(numbers)
                for axes in (tiled.pixels, tiled.inner)
                for numbers in (map(_size, axes), map(tiled.stride, axes))
            ),
            str(_size(tiled.channel)),
            str(len(windows)),
            _braced(map(_braced, windows)),
            source,
            weight,
        ]
        context.scopes.line(f"const tiled_sum {of} = {_braced(fields)};")
        context.scopes.line(f"const auto {tiles} = tiles_of_{self._kind}({of});")
        return of, tiles

    def _decode(self, pixel: str, axes: dict[str, str]) -> None:
        """Define the axes of pixels at the number of a pixel."""
        inner = 1
        for axis in reversed(self.tiled.pixels):
            if axis is None:
                continue
            name = self.context.axis_names[axis.name]
            text = pixel if inner == 1 else f"{pixel} / {inner}"
            inner *= _size(axis)
            first = axis is next(each for each in self.tiled.pixels if each is not None)
            self.context.scopes.line(
                f"const int64_t {name} = {text if first else f'{text} % {_size(axis)}'};"
            )
            axes[axis.name] = name

    def _channels(self, row: str, at: str) -> None:
        """Write the loops over the channels of a pixel: whole steps, then single vectors."""
        axis, lanes = self.tiled.channel, self.context.lanes
        registers = PANEL_VECTORS
        size, step = _size(axis), step_text(registers)
        limit = f"{at}.last"
        if size % (registers * lanes):
            limit = self.context.names.fresh("whole")
            length = f"({at}.last - {at}.first)"
            self.context.scopes.line(f"const int64_t {limit} = {at}.first + {length} / {step} * {step};")
        with self._loop(row, f"{at}.first", limit, step, registers, None):
            self.rest()
        if size % (registers * lanes):
            end = f"{at}.last" if size % lanes else None
            with self._loop(row, limit, f"{at}.last", LANES, 1, end):
                self.rest()

    @contextmanager
    def _loop(
        self, row: str, first: str, stop: str, step: str, registers: int, end: str | None
    ) -> Iterator[None]:
        """Open a loop over channels in which the sum is known."""
        context = self.context
        with vector_loop(self.body, self.tiled.channel, first, stop, step, registers, end):
            context.point = context.scopes.top
            channel = context.axis_names[self.tiled.channel.name]
            assert isinstance(self.statement, Accumulate)
            texts = tuple(
                f"load({row} + {channel}{f' + {number} * {LANES}' if number else ''})"
                for number in range(registers)
            )
            total = context.define("sum", texts, f32, context.scopes.top, varying=True)
            ((name, dtype),) = self.statement.results
            context.scopes.remember(("scalar", name), self.body.converted(total, dtype))
            yield


def _braced(values: object) -> str:
    assert hasattr(values, "__iter__")
    return "{" + ", ".join(map(str, values)) + "}"


def _size(axis: Axis | None) -> int:
    size = 1 if axis is None else axis.size
    assert isinstance(size, int)
    return size
