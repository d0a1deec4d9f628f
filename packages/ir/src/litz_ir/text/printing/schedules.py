"""Printer of schedules."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.plan.schedule import (
    Attention,
    CpuLoops,
    Foreach,
    InnerTile,
    LookbackScan,
    Matmul,
    Schedule,
    Tile,
    TileLoops,
    TileRequest,
)
from litz_ir.text.spelling import name_text, value_text


def print_schedule(schedule: Schedule) -> str:
    """The text form of a schedule: the name of its form, then the fields that differ from their defaults."""
    match schedule:
        case CpuLoops():
            words = _cpu_loops(schedule)
        case TileRequest():
            words = _tile_request(schedule)
        case TileLoops():
            words = _tile_loops(schedule)
        case Matmul():
            words = _matmul(schedule)
        case Attention():
            words = _attention(schedule)
        case LookbackScan():
            words = ["lookback_scan", f"segment {schedule.segment}", f"warps {schedule.warps}"]
        case Foreach():
            words = ["foreach", f"warps {schedule.warps}"]
    if not isinstance(schedule, CpuLoops | TileRequest):
        words += _number("index_bits", schedule.index_bits, 64)
    return " ".join(words)


def _cpu_loops(schedule: CpuLoops) -> list[str]:
    return [
        "cpu_loops",
        *_names("parallel", schedule.parallel),
        *([] if schedule.vector is None else [f"vector {name_text(schedule.vector)}"]),
        *_number("lanes", schedule.lanes, 0),
        *_number("unroll", schedule.unroll, 1),
        *_number("grain", schedule.grain, 1),
    ]


def _tile_request(schedule: TileRequest) -> list[str]:
    blocks = ", ".join(f"{name_text(axis)}: {block}" for axis, block in schedule.blocks)
    return [
        "tile_request",
        *_number("cluster", schedule.cluster, 1),
        *_number("segment", schedule.segment, 0),
        *([f"blocks({blocks})"] if blocks else []),
        *_number("warps", schedule.warps, 4),
        *_number("stages", schedule.stages, 0),
        *_number("grid", schedule.grid, 0),
        *(["descriptors"] if schedule.descriptors else []),
        *_number("row_cluster", schedule.row_cluster, 1),
    ]


def _tile_loops(schedule: TileLoops) -> list[str]:
    return [
        "tile_loops",
        f"outer({', '.join(map(_tile, schedule.outer))})",
        f"inner({', '.join('point' if each is None else _inner(each) for each in schedule.inner)})",
        f"warps {schedule.warps}",
        *_number("stages", schedule.stages, 1),
        *_number("cluster", schedule.cluster, 1),
        *_number("row_cluster", schedule.row_cluster, 1),
        *_prefetch(schedule),
    ]


def _matmul(schedule: Matmul) -> list[str]:
    return [
        "matmul",
        *_names("batch", schedule.batch),
        f"rows{_tile(schedule.rows)}",
        f"columns{_tile(schedule.columns)}",
        f"summed{_tile(schedule.summed)}",
        f"warps {schedule.warps}",
        f"stages {schedule.stages}",
        *_number("grid", schedule.grid, 0),
        *_names("descriptors", schedule.descriptors),
        *_prefetch(schedule),
        *_number("group", schedule.group, 1),
    ]


def _attention(schedule: Attention) -> list[str]:
    return [
        "attention",
        *_names("batch", schedule.batch),
        f"rows{_tile(schedule.rows)}",
        f"columns{_tile(schedule.columns)}",
        f"summed{_inner(schedule.summed)}",
        f"warps {schedule.warps}",
        f"stages {schedule.stages}",
        *_prefetch(schedule),
        *([f"order {schedule.order}"] if schedule.order != "batch" else []),
        *(["descriptors"] if schedule.descriptors else []),
    ]


def _prefetch(schedule: TileLoops | Matmul | Attention) -> list[str]:
    return [f"prefetch({', '.join(map(str, schedule.prefetch))})"] if schedule.prefetch else []


def _inner(inner: InnerTile) -> str:
    persistent = ["persistent"] if inner.persistent else []
    words = [
        *persistent,
        *_names("serial", inner.serial),
        *_buffers("evict_first", inner.evict_first),
        *_buffers("evict_last", inner.evict_last),
    ]
    return " ".join([_tile(Tile(inner.axes, inner.block)), *words])


def _tile(tile: Tile) -> str:
    block = f": {tile.block}" if tile.block != 1 else ""
    return f"({', '.join(map(name_text, tile.axes))}{block})"


def _names(word: str, names: Sequence[str]) -> list[str]:
    return [f"{word}({', '.join(map(name_text, names))})"] if names else []


def _buffers(word: str, names: Sequence[str]) -> list[str]:
    return [f"{word}({', '.join(map(value_text, names))})"] if names else []


def _number(word: str, number: int, default: int) -> list[str]:
    return [f"{word} {number}"] if number != default else []
