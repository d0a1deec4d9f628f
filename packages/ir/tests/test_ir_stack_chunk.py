"""Calls in a chunk of their own of the interpreter's stack: results, errors, and no memory mapped for every call."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from litz_ir.stack_chunk import in_own_chunk

resource = pytest.importorskip("resource")
CALLS, FEW = 1000, 300
DEPTHS = range(0, 160)


def leaf(number: int) -> int:
    return number


def chain(number: int) -> int:
    return leaf(number) + 1


def faults() -> int:
    """Return the number of page faults of this process so far."""
    found: int = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return found


def busy() -> int:
    """Return the page faults of many calls."""
    before = faults()
    for number in range(CALLS):
        chain(number)
    return faults() - before


def deep(depth: int, work: Callable[[], int]) -> int:
    return work() if depth == 0 else deep(depth - 1, work)


def test_no_depth_maps_memory_for_every_call() -> None:
    assert max(deep(depth, lambda: in_own_chunk(busy)) for depth in DEPTHS) < FEW


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 14), reason="other interpreters were not measured")
def test_some_depth_does_without() -> None:
    # Otherwise the interpreter keeps its chunks, and the module can go.
    assert max(deep(depth, busy) for depth in DEPTHS) >= CALLS


def test_results_and_errors_are_those_of_the_function() -> None:
    assert in_own_chunk(lambda: in_own_chunk(lambda: 3)) == 3
    with pytest.raises(ValueError, match="no"):
        in_own_chunk(lambda: int("no"))


def test_frames_that_do_not_fit_get_chunks_of_their_own() -> None:
    def sum_of(number: int) -> int:
        return number + sum_of(number - 1) if number else 0

    count = sys.getrecursionlimit() - len_of_stack() - 50
    assert in_own_chunk(lambda: sum_of(count)) == count * (count + 1) // 2


def len_of_stack() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count
