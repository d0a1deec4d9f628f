"""Offsets in an arena: spans that are live at the same step never overlap, and gaps are reused."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from litz_scheduler.memory.arena import ArenaSpan, assign_offsets


@st.composite
def spans(draw: st.DrawFn) -> list[ArenaSpan]:
    found = []
    for _ in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, 30))
        found.append(ArenaSpan(first, first + draw(st.integers(0, 8)), 64 * draw(st.integers(0, 9))))
    return found


def largest_sum(spans: list[ArenaSpan]) -> int:
    """The most bytes live at one step."""
    steps = {span.first for span in spans}
    return max((sum(s.nbytes for s in spans if s.first <= k <= s.last) for k in steps), default=0)


@settings(max_examples=300)
@given(spans=spans(), limit=st.sampled_from([None, 1024, 256]))
def test_spans_never_overlap_in_space_and_time(spans: list[ArenaSpan], limit: int | None) -> None:
    arena = assign_offsets(spans, limit)
    placed = [(s, o) for s, o in zip(spans, arena.offsets, strict=True) if o is not None]
    for k, (a, start) in enumerate(placed):
        assert start % 64 == 0 and start + a.nbytes <= arena.nbytes
        for b, other in placed[:k]:
            empty = 0 in (a.nbytes, b.nbytes)
            apart_in_time = a.last < b.first or b.last < a.first
            assert empty or apart_in_time or start + a.nbytes <= other or other + b.nbytes <= start
    inside = [span for span, _ in placed]
    assert limit is not None or len(placed) == len(spans)
    assert largest_sum(inside) <= arena.nbytes <= sum(span.nbytes for span in inside)
    if limit is not None:
        assert arena.nbytes <= limit
        assert len(placed) == len(spans) or limit < sum(span.nbytes for span in spans)


def test_a_freed_gap_is_taken_before_memory_grows() -> None:
    arena = assign_offsets(
        [
            ArenaSpan(0, 1, 192),
            ArenaSpan(0, 5, 64),
            ArenaSpan(2, 3, 128),
            ArenaSpan(2, 3, 64),
            ArenaSpan(4, 5, 192),
        ],
        1 << 20,
    )
    assert arena.offsets == (0, 192, 0, 128, 0) and arena.nbytes == 256
