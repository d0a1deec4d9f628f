"""Cross-CTA reduction of rows: CTAs of a cluster send their states to one another through distributed shared memory.

Each round has a buffer with a slot for every CTA and component, and a barrier that counts the bytes that arrive there.
A CTA sends its state to all CTAs and waits for all states in its own buffer, so no CTA ends while others still send to
it. The one barrier of the whole cluster, which orders the set-up of barriers before the first state that arrives, is
passed while the rows are loaded. No fence waits for other accesses to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType

READS: Mapping[int, str] = MappingProxyType({4: "litz_shared_32", 8: "litz_shared_64"})
"""Functions that read a state of shared memory, by its bytes."""

SLOT_BYTES = 8
"""Bytes of a slot, which holds one component of the state of one CTA."""

BARRIERS, BUFFERS = "litz_arrivals", "litz_states"
"""Names of the arrays in shared memory."""


def can_send(dtypes: Sequence[DType]) -> bool:
    """Return True for components that one store sends: those of 4 or 8 bytes."""
    return all(dtype.itemsize in (4, 8) for dtype in dtypes)


class SharedStates:
    """Writes the rounds of one kernel, of ``size`` CTAs each, which are a power of two and at most a warp's threads."""

    def __init__(self, body: TileEmitter, kernel: str, size: int) -> None:
        self._body = body
        self._kernel = kernel
        self._size = size
        self._rounds: list[int] = []
        self._slots = 0

    def begin(self) -> list[str]:
        """Return the lines at the start of the kernel; none without a round. All rounds must have been written."""
        if not self._rounds:
            return []
        name = f"{self._kernel}_set_up"
        self._body.functions[name] = assembly_function(name, [], _set_up(self._rounds, self._size), "=r")
        return [f"{name}()"]

    def send(self, states: Sequence[tuple[EmittedValue, DType]]) -> list[EmittedValue]:
        """Write a round: send the components of this CTA's state, and return those of all CTAs as vectors."""
        body, writer, number = self._body, self._body.writer, len(self._rounds)
        first, name = self._slots * SLOT_BYTES, f"{self._kernel}_send_{number}"
        dtypes = [dtype for _, dtype in states]
        self._rounds.append(self._size * sum(dtype.itemsize for dtype in dtypes))
        self._slots += self._size * len(states)
        arguments = [f"state_{k}" for k in range(len(states))]
        constraints = ",".join(["=r", *map(constraint, dtypes)])
        code = _round(number, first, dtypes, self._size)
        body.functions[name] = assembly_function(name, arguments, code, constraints)
        sent = ", ".join(typed(value, dtype) for value, dtype in states)
        span = f"tl.arange(0, {self._size}) * {SLOT_BYTES}"
        slots = writer.define("slots", f"{name}({sent}) + {span}", frozenset("r"), writer.depth)
        found = []
        for position, dtype in enumerate(dtypes):
            at = f"{slots.text} + {position * self._size * SLOT_BYTES}"
            bits = f"{READS[dtype.itemsize]}({at})"
            text = f"{bits}.to({triton_type(dtype)}, bitcast=True)"
            found.append(writer.define("states", text, slots.dims, slots.depth))
        return found


def constraint(dtype: DType) -> str:
    """Return the kind of register of an operand."""
    return {(True, 4): "f", (True, 8): "d", (False, 4): "r"}.get((dtype.is_float, dtype.itemsize), "l")


def _set_up(rounds: Sequence[int], size: int) -> list[str]:
    """Return the code that declares buffers and barriers of rounds of so many bytes, and sets the barriers up."""
    bars = range(len(rounds))
    slots = sum(rounds) // 4 * SLOT_BYTES  # no component has fewer than 4 bytes
    return [
        f".shared .align 8 .b64 {BARRIERS}[{len(rounds)}];",
        f".shared .align 8 .b8 {BUFFERS}[{slots}];",
        "{ .reg .pred first; .reg .b32 thread, barrier;",
        f"mov.u32 thread, %tid.x; mov.u32 barrier, {BARRIERS}; setp.eq.u32 first, thread, 0;",
        *(f"@first mbarrier.init.shared::cta.b64 [barrier+{8 * k}], 1;" for k in bars),
        "@first fence.mbarrier_init.release.cluster;",
        *(
            f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier+{8 * k}], {rounds[k]};"
            for k in bars
        ),
        "barrier.cluster.arrive.relaxed.aligned; } mov.u32 $0, 0;",
    ]


def _round(number: int, first: int, dtypes: Sequence[DType], size: int) -> list[str]:
    """Return the code of a round whose buffer starts at byte ``first``."""
    sends = []
    for k, dtype in enumerate(dtypes):
        kind, register = f"b{8 * dtype.itemsize}", f"state{k}"
        to = f"[remote+{k * size * SLOT_BYTES}], {register}, [arrival]"
        sends += [
            f".reg .{kind} {register}; mov.{kind} {register}, ${k + 1};",
            f"@sends st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{kind} {to};",
        ]
    return [
        "{ .reg .pred sends, done; .reg .b32 thread, rank, buffer, barrier, slot, remote, arrival;",
        f"mov.u32 buffer, {BUFFERS}; add.u32 buffer, buffer, {first};",
        f"mov.u32 barrier, {BARRIERS}; add.u32 barrier, barrier, {8 * number};",
        f"mov.u32 thread, %tid.x; setp.lt.u32 sends, thread, {size};",
        f"mov.u32 rank, %cluster_ctarank; mad.lo.u32 slot, rank, {SLOT_BYTES}, buffer;",
        "@sends mapa.shared::cluster.u32 remote, slot, thread;",
        "@sends mapa.shared::cluster.u32 arrival, barrier, thread;",
        *(["barrier.cluster.wait.acquire.aligned;"] if number == 0 else []),
        *sends,
        "waiting: mbarrier.try_wait.parity.shared::cta.b64 done, [barrier], 0; @!done bra waiting;",
        "mov.u32 $0, buffer; }",
    ]


def assembly_function(name: str, arguments: Sequence[str], code: Sequence[str], constraints: str) -> str:
    """Return the text of a function around assembly."""
    lines = "\n".join(f'        "{each} "' for each in code)
    return (
        f"@triton.jit\ndef {name}({', '.join(arguments)}):\n    return tl.inline_asm_elementwise(\n{lines},\n"
        f'        "{constraints}", [{", ".join(arguments)}], tl.int32, False, 1,\n    )'
    )
