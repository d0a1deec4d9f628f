"""Parser of schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast, get_args

from litz_ir.plan.schedule import (
    Attention,
    CpuLoops,
    Foreach,
    InnerTile,
    LaunchOrder,
    LookbackScan,
    Matmul,
    Operand,
    Schedule,
    Tile,
    TileLoops,
    TileRequest,
)
from litz_ir.text.parsing.lexer import Stream, read_whole
from litz_ir.text.parsing.types import separated


def parse_schedule(text: str) -> Schedule:
    """Parse the text form of a schedule; raises :class:`ParseError`."""
    return read_whole(text, schedule)


def schedule(stream: Stream) -> Schedule:
    """The name of a form, then its fields in order."""
    return _FORMS[stream.word("the form of a schedule", tuple(_FORMS))](stream)


def _cpu_loops(stream: Stream) -> CpuLoops:
    return CpuLoops(
        parallel=_names(stream, "parallel"),
        vector=_name(stream) if stream.accept("vector") else None,
        lanes=_number(stream, "lanes", 0),
        unroll=_number(stream, "unroll", 1),
        grain=_number(stream, "grain", 1),
    )


def _tile_request(stream: Stream) -> TileRequest:
    return TileRequest(
        cluster=_number(stream, "cluster", 1),
        segment=_number(stream, "segment", 0),
        blocks=separated(stream, lambda: _block(stream)) if stream.accept("blocks") else (),
        warps=_number(stream, "warps", 4),
        stages=_number(stream, "stages", 0),
        grid=_number(stream, "grid", 0),
        descriptors=stream.accept("descriptors"),
        row_cluster=_number(stream, "row_cluster", 1),
    )


def _tile_loops(stream: Stream) -> TileLoops:
    stream.expect("outer")
    outer = separated(stream, lambda: _tile(stream))
    stream.expect("inner")
    inner = separated(stream, lambda: None if stream.accept("point") else _inner(stream))
    return TileLoops(
        outer,
        inner,
        warps=_required(stream, "warps"),
        stages=_number(stream, "stages", 1),
        cluster=_number(stream, "cluster", 1),
        row_cluster=_number(stream, "row_cluster", 1),
        prefetch=_prefetch(stream),
        index_bits=_number(stream, "index_bits", 64),
    )


def _matmul(stream: Stream) -> Matmul:
    return Matmul(
        batch=_names(stream, "batch"),
        rows=_tile(stream, "rows"),
        columns=_tile(stream, "columns"),
        summed=_tile(stream, "summed"),
        warps=_required(stream, "warps"),
        stages=_required(stream, "stages"),
        grid=_number(stream, "grid", 0),
        descriptors=separated(stream, lambda: _operand(stream)) if stream.accept("descriptors") else (),
        prefetch=_prefetch(stream),
        group=_number(stream, "group", 1),
        index_bits=_number(stream, "index_bits", 64),
    )


def _attention(stream: Stream) -> Attention:
    return Attention(
        batch=_names(stream, "batch"),
        rows=_tile(stream, "rows"),
        columns=_tile(stream, "columns"),
        summed=_inner(stream, "summed"),
        warps=_required(stream, "warps"),
        stages=_required(stream, "stages"),
        prefetch=_prefetch(stream),
        order=_order(stream) if stream.accept("order") else "batch",
        descriptors=stream.accept("descriptors"),
        index_bits=_number(stream, "index_bits", 64),
    )


def _lookback_scan(stream: Stream) -> LookbackScan:
    return LookbackScan(
        segment=_required(stream, "segment"),
        warps=_required(stream, "warps"),
        index_bits=_number(stream, "index_bits", 64),
    )


def _foreach(stream: Stream) -> Foreach:
    return Foreach(warps=_required(stream, "warps"), index_bits=_number(stream, "index_bits", 64))


_FORMS: Mapping[str, Callable[[Stream], Schedule]] = MappingProxyType(
    {
        "cpu_loops": _cpu_loops,
        "tile_request": _tile_request,
        "tile_loops": _tile_loops,
        "matmul": _matmul,
        "attention": _attention,
        "lookback_scan": _lookback_scan,
        "foreach": _foreach,
    }
)


def _prefetch(stream: Stream) -> tuple[int, ...]:
    return separated(stream, stream.integer) if stream.accept("prefetch") else ()


def _order(stream: Stream) -> LaunchOrder:
    return cast(LaunchOrder, stream.word("an order of thread blocks", get_args(LaunchOrder)))


def _operand(stream: Stream) -> Operand:
    return cast(Operand, stream.word("an operand", get_args(Operand)))


def _inner(stream: Stream, word: str = "") -> InnerTile:
    tile = _tile(stream, word)
    return InnerTile(
        tile.axes,
        tile.block,
        persistent=stream.accept("persistent"),
        serial=_names(stream, "serial"),
        evict_first=_buffers(stream, "evict_first"),
        evict_last=_buffers(stream, "evict_last"),
    )


def _tile(stream: Stream, word: str = "") -> Tile:
    """A tile: ``(axis, axis: block)``, after ``word`` if it is given."""
    if word:
        stream.expect(word)
    stream.expect("(")
    axes: list[str] = []
    while not (stream.at(")") or stream.at(":")):
        axes.append(_name(stream))
        if not stream.accept(","):
            break
    block = stream.integer() if stream.accept(":") else 1
    stream.expect(")")
    return Tile(tuple(axes), block)


def _names(stream: Stream, word: str) -> tuple[str, ...]:
    return separated(stream, lambda: _name(stream)) if stream.accept(word) else ()


def _buffers(stream: Stream, word: str) -> tuple[str, ...]:
    return separated(stream, stream.value) if stream.accept(word) else ()


def _name(stream: Stream) -> str:
    return stream.name("an axis")


def _block(stream: Stream) -> tuple[str, int]:
    name = _name(stream)
    stream.expect(":")
    return name, stream.integer()


def _number(stream: Stream, word: str, default: int) -> int:
    return stream.integer() if stream.accept(word) else default


def _required(stream: Stream, word: str) -> int:
    stream.expect(word)
    return stream.integer()
