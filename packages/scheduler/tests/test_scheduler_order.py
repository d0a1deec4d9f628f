"""Precedence of groups: the bit masks agree with a search of the graph, merged groups included."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from litz_scheduler.legality.precedence import Precedence


class Model:
    """The same graph as plain sets of edges between representatives."""

    def __init__(self) -> None:
        self.edges: set[tuple[int, int]] = set()
        self.into: dict[int, int] = {}

    def find(self, number: int) -> int:
        while self.into[number] != number:
            number = self.into[number]
        return number

    def before(self, first: int, second: int) -> bool:
        seen, stack = {first}, [first]
        while stack:
            here = stack.pop()
            for parent, child in self.edges:
                if self.find(parent) == here and self.find(child) not in seen:
                    seen.add(self.find(child))
                    stack.append(self.find(child))
        return first != second and second in seen


@st.composite
def histories(draw: st.DrawFn) -> tuple[Precedence, Model]:
    """Groups added, ordered and merged as fusion does it, which never makes a cycle."""
    order, model = Precedence(), Model()
    for _ in range(draw(st.integers(1, 9))):
        number = order.add()
        model.into[number] = number
        alive = sorted({model.find(n) for n in model.into})
        for _ in range(draw(st.integers(0, 3))):
            parent, child = draw(st.sampled_from(alive)), draw(st.sampled_from(alive))
            if parent != child and not order.before(child, parent):
                order.require(child, {parent})
                model.edges.add((parent, child))
        first, second = draw(st.sampled_from(alive)), draw(st.sampled_from(alive))
        clear = not order.before(second, first) and not order.between(first, order.parents(second))
        if first != second and clear and draw(st.booleans()):
            order.merge(second, first)
            model.into[first] = second
    return order, model


@given(histories())
def test_masks_agree_with_a_search(history: tuple[Precedence, Model]) -> None:
    order, model = history
    alive = sorted({model.find(n) for n in model.into})
    for first in alive:
        assert order.find(first) == first
        for second in alive:
            if first != second:
                assert order.before(first, second) == model.before(first, second)


@given(histories())
def test_the_order_holds_every_group_once_after_its_parents(history: tuple[Precedence, Model]) -> None:
    order, model = history
    found = order.in_order(lambda number: -number)
    assert sorted(found) == sorted({model.find(n) for n in model.into})
    for place, number in enumerate(found):
        assert not any(model.before(number, earlier) for earlier in found[:place])


def test_ready_groups_come_in_the_order_of_their_positions() -> None:
    order = Precedence()
    for _ in range(4):
        order.add()
    order.require(1, {3})
    assert order.in_order(lambda number: number) == [0, 2, 3, 1]
