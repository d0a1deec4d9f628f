"""The protocol by which thread blocks of a look-back scan communicate, in any order in which they may run.

A thread block is a generator that yields between any two accesses to memory. As on a GPU, only some thread blocks are
resident at a time and stay so until they end; the next one to run is drawn at random.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litz_ir.dtypes import f16, f32, f64
from litz_ir.errors import VerifyError
from litz_ir.loops.nodes import UserCombiner
from litz_ir.plan.cluster import workspace_words, zeroed_words
from litz_ir.plan.kernel import Kernel, ScanStore
from litz_ir.plan.lookback_scan import (
    COUNTER_WORDS,
    MAX_WORDS_PER_VALUE,
    chunk_count,
    lookback_scan_of,
    lookback_words,
)
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.scalar.build import const, op
from litz_ir.scalar.expr import Param
from litz_ir.text import parse_kernel, print_kernel

WINDOW = 4
WRITTEN = 1 << 32


@dataclass
class Memory:
    """The ticket counter, the words of each row by half and chunk, and the results of each row by chunk."""

    rows: int
    counter: int = 0
    words: dict[tuple[int, int, int], int] = field(default_factory=dict)
    found: dict[tuple[int, int], float] = field(default_factory=dict)


def halves(value: float) -> tuple[int, int]:
    low, high = struct.unpack("<II", struct.pack("<d", value))
    return low | WRITTEN, high | WRITTEN


def whole(low: int, high: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<II", low & 0xFFFFFFFF, high & 0xFFFFFFFF))[0]
    return value


def thread_block(memory: Memory, totals: list[list[float]], own: int | None) -> Iterator[None]:
    """Take a chunk, publish its total, and read the totals before it. A block with an ``own`` ticket ignores the
    counter.
    """
    ticket, memory.counter = memory.counter, memory.counter + 1
    ticket = ticket if own is None else own
    yield
    row, chunk = ticket % memory.rows, ticket // memory.rows
    position = chunk % WINDOW

    def publish(value: float) -> Iterator[None]:
        for half, word in enumerate(halves(value)):
            memory.words[row, half, chunk + 1] = word
            yield

    if position != WINDOW - 1:
        yield from publish(totals[row][chunk])
    before = 0.0
    for at in range(chunk - position, chunk + 1):
        words = [0, 0]
        while at > 0 and not all(words):
            for half in range(MAX_WORDS_PER_VALUE):
                words[half] = memory.words.get((row, half, at), 0)
                yield
        if at > 0:
            before += whole(*words)
    if position == WINDOW - 1:
        yield from publish(before + totals[row][chunk])
    memory.found[row, chunk] = before + totals[row][chunk]


def run_all(
    rows: int,
    totals: list[list[float]],
    resident: int,
    draw: Callable[[int], int],
    tickets: Sequence[int | None] = (),
    steps: int = 200_000,
) -> Memory:
    """The memory after all thread blocks have run; ``draw`` chooses one of those that are resident.

    ``tickets`` are fixed ones in the order in which blocks start, in place of the counter.
    """
    memory = Memory(rows)
    waiting = list(tickets) or [None] * (rows * len(totals[0]))
    running: list[Iterator[None]] = []
    for _ in range(steps):
        while waiting and len(running) < resident:
            running.append(thread_block(memory, totals, waiting.pop(0)))
        if not running:
            return memory
        chosen = draw(len(running))
        if next(running[chosen], "ended") == "ended":
            del running[chosen]
    raise AssertionError("thread blocks wait for one another forever")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 3),
    chunks=st.integers(1, 14),
    resident=st.integers(1, 9),
    random=st.randoms(),
    skew=st.integers(1, 5),
)
def test_every_order_of_thread_blocks_gives_the_same_bits(
    rows: int, chunks: int, resident: int, random: Random, skew: int
) -> None:
    totals = [
        [0.1 + 0.37 * chunk * 3.0 ** (chunk % 5) + row for chunk in range(chunks)] for row in range(rows)
    ]

    def draw(running: int) -> int:
        return int(running * random.random() ** skew)  # a larger skew stalls late thread blocks longer

    first = run_all(rows, totals, 1, lambda _: 0)
    assert run_all(rows, totals, resident, draw).found == first.found
    for (row, chunk), value in first.found.items():
        assert value == pytest.approx(sum(totals[row][: chunk + 1]), rel=1e-12)


def test_the_last_resident_block_may_run_first() -> None:
    totals = [[1.0] * 11]
    for resident in (2, 5, 11):
        # The latest block runs until it waits; then the one before it runs.
        order = count()
        latest = partial(lambda order, running: -1 - next(order) // 7 % running, order)
        found = run_all(1, totals, resident, latest).found
        assert found == {(0, chunk): chunk + 1.0 for chunk in range(11)}


def test_fixed_tickets_may_deadlock() -> None:
    totals = [[1.0] * 6]
    tickets = tuple(reversed(range(6)))
    assert len(run_all(1, totals, 6, lambda running: 0, tickets=(0, 1, 2, 3, 4, 5)).found) == 6
    with pytest.raises(AssertionError, match="forever"):
        run_all(1, totals, 5, lambda running: 0, tickets=tickets, steps=2000)


# --- kernels --------------------------------------------------------------------------------------------------


def running_sum(
    schedule: str, body: str = "scan.sum { %x[i0*1000 + r0] } -> %o[i0*1000 + r0];", dtype: str = "f32"
) -> Kernel:
    return parse_kernel(f"""
    kernel k(in %x: {dtype}, out %o: {dtype}, workspace %w: i64) {{
      schedule {schedule}
      outer [i0: 3]
      phase [r0: 1000] {{
        {body}
      }}
    }}""")


def test_the_workspace_has_words_for_each_chunk() -> None:
    kernel = running_sum("tile_request segment 64")
    verify_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert chunk_count(kernel) == 16
    assert (
        lookback_words(kernel)
        == workspace_words(kernel)
        == zeroed_words(kernel)
        == COUNTER_WORDS + 2 * 3 * 16
    )


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (running_sum("tile_request segment 48"), "power of two"),
        (
            running_sum("tile_request segment 64", "%o[i0*1000 + r0] = %x[i0*1000 + r0];"),
            "one scan along one axis and nothing else",
        ),
    ],
)
def test_a_kernel_that_is_no_lookback_scan_is_refused(kernel: Kernel, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_kernel(kernel)


def test_values_that_fit_no_word_have_no_lookback_scan() -> None:
    kernel = running_sum("tile_request segment 64")
    (phase,), (statement,) = kernel.phases, kernel.phases[0].statements
    assert isinstance(statement, ScanStore)
    for dtype, fits in ((f16, False), (f32, True), (f64, True)):
        total = op("add", Param(0, dtype), Param(1, dtype))
        own = replace(statement, combiner=UserCombiner((total,), (const(0.0, dtype),), (Param(0, dtype),)))
        assert (lookback_scan_of((replace(phase, statements=(own,)),)) is not None) == fits
