"""Sums over rows that the CTAs of a cluster divide, in a loop over rows: each CTA sums its columns and sends the sum to
all CTAs.

Each iteration repeats a round (see ``shared_states``), with two buffers and two barriers, for even and odd iterations.
A CTA sends only after all its threads have read the sums of the iteration before: the sum of a tile synchronises them.
So a CTA that has the sums of all CTAs knows that all have read the buffer that it writes next. No CTA ends while others
send to it, since it waits for the sums of all CTAs in each iteration, the last one too.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.reductions.shared_states import (
    BARRIERS,
    BUFFERS,
    READS,
    SLOT_BYTES,
    assembly_function,
    constraint,
)
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType

_ALTERNATING = 2
"""Buffers, and barriers, of a round: for even and for odd iterations."""


class RowSums:
    """Writes the rounds of one kernel, whose clusters have ``size`` CTAs: any number up to 32, as one thread of a CTA
    sends to each."""

    def __init__(self, body: TileEmitter, kernel: str, size: int) -> None:
        self._body = body
        self._kernel = kernel
        self._size = size
        self._slots = 1 << (size - 1).bit_length()
        self._rounds: list[int] = []
        self._bytes = 0

    def begin(self) -> list[str]:
        """Return the lines at the start of the kernel; none without a round. All rounds must have been written."""
        if not self._rounds:
            return []
        name = f"{self._kernel}_set_up"
        self._body.functions[name] = assembly_function(name, [], _set_up(self._rounds, self._bytes), "=r")
        return [f"{name}()"]

    def write(self, summands: Sequence[str], dtype: DType, iteration: str, depth: int) -> list[EmittedValue]:
        """Write a round, see ``RowSumWriter``."""
        writer, functions, count = self._body.writer, self._body.functions, len(summands)
        number, first = len(self._rounds), self._bytes
        self._rounds.append(self._size * count * dtype.itemsize)
        self._bytes += _ALTERNATING * self._slots * count * SLOT_BYTES
        own = [writer.names.fresh("own") for _ in summands]
        if count == 1:
            writer.line(f"{own[0]} = tl.sum({summands[0]})", depth)
        else:
            combine = f"{self._kernel}_add_{count}"
            functions[combine] = _additions(combine, count)
            writer.line(f"{', '.join(own)} = tl.reduce(({', '.join(summands)}), None, {combine})", depth)
        name = f"{self._kernel}_send_{number}"
        arguments = ["iteration", *(f"state_{k}" for k in range(count))]
        constraints = ",".join(["=r", "r", *[constraint(dtype)] * count])
        code = self._round(number, first, dtype, count)
        functions[name] = assembly_function(name, arguments, code, constraints)
        span = f"tl.arange(0, {self._slots})"
        text = f"{name}({', '.join([iteration, *own])}) + {span} * {SLOT_BYTES}"
        slots = writer.define("slots", text, frozenset(), depth)
        found = []
        for position in range(count):
            at = f"{slots.text} + {position * self._slots * SLOT_BYTES}"
            states = f"{READS[dtype.itemsize]}({at}).to({triton_type(dtype)}, bitcast=True)"
            if self._slots != self._size:
                states = f"tl.where({span} < {self._size}, {states}, 0.0)"
            found.append(writer.define("nested", f"tl.sum({states}, 0)", frozenset(), depth))
        return found

    def _round(self, number: int, first: int, dtype: DType, count: int) -> list[str]:
        """Return the code of the kernel's round ``number``, with ``count`` sums of ``dtype`` and buffers from byte
        ``first`` on. Its arguments are the iteration and the sums; its result is the address of the buffer."""
        kind, component = f"b{8 * dtype.itemsize}", self._slots * SLOT_BYTES
        sends = []
        for k in range(count):
            to = f"[remote+{k * component}], state{k}, [arrival]"
            sends += [
                f".reg .{kind} state{k}; mov.{kind} state{k}, ${k + 2};",
                f"@sends st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{kind} {to};",
            ]
        return [
            "{ .reg .pred sends, done, first;",
            ".reg .b32 thread, rank, odd, parity, buffer, barrier, slot, remote, arrival;",
            "and.b32 odd, $1, 1; shr.u32 parity, $1, 1; and.b32 parity, parity, 1;",
            f"mov.u32 buffer, {BUFFERS}; add.u32 buffer, buffer, {first};",
            f"mad.lo.u32 buffer, odd, {count * component}, buffer;",
            f"mov.u32 barrier, {BARRIERS}; add.u32 barrier, barrier, {8 * _ALTERNATING * number};",
            "mad.lo.u32 barrier, odd, 8, barrier;",
            f"mov.u32 thread, %tid.x; setp.lt.u32 sends, thread, {self._size}; setp.eq.u32 first, thread, 0;",
            f"mov.u32 rank, %cluster_ctarank; mad.lo.u32 slot, rank, {SLOT_BYTES}, buffer;",
            "@sends mapa.shared::cluster.u32 remote, slot, thread;",
            "@sends mapa.shared::cluster.u32 arrival, barrier, thread;",
            *sends,
            "waiting: mbarrier.try_wait.parity.shared::cta.b64 done, [barrier], parity; @!done bra waiting;",
            f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], {self._rounds[number]};",
            "mov.u32 $0, buffer; }",
        ]


def _set_up(rounds: Sequence[int], nbytes: int) -> list[str]:
    """Return the code that declares the buffers, of ``nbytes`` in all, and the barriers, and sets the barriers up.

    ``rounds`` has the bytes that arrive at a barrier of each round.
    """
    barriers = [
        (8 * (_ALTERNATING * number + k), size)
        for number, size in enumerate(rounds)
        for k in range(_ALTERNATING)
    ]
    return [
        f".shared .align 8 .b64 {BARRIERS}[{len(barriers)}];",
        f".shared .align 8 .b8 {BUFFERS}[{nbytes}];",
        "{ .reg .pred first; .reg .b32 thread, barrier;",
        f"mov.u32 thread, %tid.x; mov.u32 barrier, {BARRIERS}; setp.eq.u32 first, thread, 0;",
        *(f"@first mbarrier.init.shared::cta.b64 [barrier+{at}], 1;" for at, _ in barriers),
        "@first fence.mbarrier_init.release.cluster;",
        *(
            f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier+{at}], {size};"
            for at, size in barriers
        ),
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; } mov.u32 $0, 0;",
    ]


def _additions(name: str, count: int) -> str:
    """Return the text of a function that adds tuples of ``count`` values."""
    arguments = ", ".join(f"{letter}{k}" for letter in "ab" for k in range(count))
    sums = ", ".join(f"a{k} + b{k}" for k in range(count))
    return f"@triton.jit\ndef {name}({arguments}):\n    return {sums}"
