"""What programs that scan parts of rows tell one another, in any order in which they may run.

A program is a generator that yields between any two accesses to memory. So many have a place on a processor at a time,
as on a GPU, and keep it until they end; which of them goes on next is drawn.
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
from litz_ir.plan.verify_kernel import verify_kernel
from litz_ir.scalar.build import const, op
from litz_ir.scalar.expr import Param
from litz_ir.text import parse_kernel, print_kernel

WINDOW = 4
WRITTEN = 1 << 32


@dataclass
class Memory:
    """The counter and the words of each row, by half and by part; a row's results by part."""

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


def program(memory: Memory, totals: list[list[float]], own: int | None) -> Iterator[None]:
    """Take a part, tell what it comes to, learn what is before it. With a number of its ``own`` it asks no counter."""
    number, memory.counter = memory.counter, memory.counter + 1
    number = number if own is None else own
    yield
    row, part = number % memory.rows, number // memory.rows
    place = part % WINDOW

    def publish(value: float) -> Iterator[None]:
        for half, word in enumerate(halves(value)):
            memory.words[row, half, part + 1] = word
            yield

    if place != WINDOW - 1:
        yield from publish(totals[row][part])
    before = 0.0
    for at in range(part - place, part + 1):
        words = [0, 0]
        while at > 0 and not all(words):
            for half in range(MAX_WORDS_PER_VALUE):
                words[half] = memory.words.get((row, half, at), 0)
                yield
        if at > 0:
            before += whole(*words)
    if place == WINDOW - 1:
        yield from publish(before + totals[row][part])
    memory.found[row, part] = before + totals[row][part]


def ran(
    rows: int,
    totals: list[list[float]],
    places: int,
    draw: Callable[[int], int],
    numbers: Sequence[int | None] = (),
    steps: int = 200_000,
) -> Memory:
    """The memory after all programs have run, ``draw`` choosing among those that have a place. ``numbers`` are those
    that they have without a counter, in the order in which they begin."""
    memory = Memory(rows)
    waiting = list(numbers) or [None] * (rows * len(totals[0]))
    running: list[Iterator[None]] = []
    for _ in range(steps):
        while waiting and len(running) < places:
            running.append(program(memory, totals, waiting.pop(0)))
        if not running:
            return memory
        chosen = draw(len(running))
        if next(running[chosen], "ended") == "ended":
            del running[chosen]
    raise AssertionError("programs wait for one another for ever")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 3),
    number=st.integers(1, 14),
    places=st.integers(1, 9),
    random=st.randoms(),
    skew=st.integers(1, 5),
)
def test_every_order_of_programs_gives_the_same_bits(
    rows: int, number: int, places: int, random: Random, skew: int
) -> None:
    totals = [[0.1 + 0.37 * part * 3.0 ** (part % 5) + row for part in range(number)] for row in range(rows)]

    def draw(running: int) -> int:
        return int(running * random.random() ** skew)  # the larger, the longer late programs stand still

    first = ran(rows, totals, 1, lambda _: 0)
    assert ran(rows, totals, places, draw).found == first.found
    for (row, part), value in first.found.items():
        assert value == pytest.approx(sum(totals[row][: part + 1]), rel=1e-12)


def test_the_last_of_those_that_have_a_place_may_go_first() -> None:
    totals = [[1.0] * 11]
    for places in (2, 5, 11):
        # The latest goes on until it waits; then it is the turn of the one before.
        order = count()
        latest = partial(lambda order, number: -1 - next(order) // 7 % number, order)
        found = ran(1, totals, places, latest).found
        assert found == {(0, part): part + 1.0 for part in range(11)}


def test_without_a_counter_programs_could_wait_for_ever() -> None:
    totals = [[1.0] * 6]
    numbers = tuple(reversed(range(6)))
    assert len(ran(1, totals, 6, lambda number: 0, numbers=(0, 1, 2, 3, 4, 5)).found) == 6
    with pytest.raises(AssertionError, match="for ever"):
        ran(1, totals, 5, lambda number: 0, numbers=numbers, steps=2000)


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


def test_scratch_has_words_for_each_part() -> None:
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
    ("kernel", "what"),
    [
        (running_sum("tile_request segment 48"), "power of two"),
        (
            running_sum("tile_request segment 64", "%o[i0*1000 + r0] = %x[i0*1000 + r0];"),
            "one scan along one axis and nothing else",
        ),
    ],
)
def test_what_cannot_be_scanned_in_parts_is_refused(kernel: Kernel, what: str) -> None:
    with pytest.raises(VerifyError, match=what):
        verify_kernel(kernel)


def test_values_that_fit_no_word_stay_with_one_program() -> None:
    kernel = running_sum("tile_request segment 64")
    (phase,), (statement,) = kernel.phases, kernel.phases[0].statements
    assert isinstance(statement, ScanStore)
    for dtype, fits in ((f16, False), (f32, True), (f64, True)):
        total = op("add", Param(0, dtype), Param(1, dtype))
        own = replace(statement, combiner=UserCombiner((total,), (const(0.0, dtype),), (Param(0, dtype),)))
        assert (lookback_scan_of((replace(phase, statements=(own,)),)) is not None) == fits
