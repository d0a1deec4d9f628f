"""Scaling: scheduling work grows nearly linearly with the operations, and equal layers share their kernels."""

from __future__ import annotations

import cProfile
import math
from collections.abc import Callable

import pytest
from scheduler_builder import CPU_LIKE, Builder

from litz_ir.device import CPU
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.scalar import op
from litz_scheduler import schedule

MAX_EXPONENT = 1.1
"""The largest accepted exponent of the growth of work with the number of operations."""


def chain(count: int) -> LoopGraph:
    b = Builder()
    x = b.input(64, 32)
    value = x
    for k in range(count):
        value = b.op("mul", value, x) if k % 3 else b.op("exp", value)
    return b.build(value)


def layers(count: int) -> LoopGraph:
    """Matmul, softmax, residual, norm: 14 operations a layer."""
    b = Builder()
    x = b.input(64, 32)
    for _ in range(max(count // 14, 1)):
        matmul = b.mm(x, b.input(32, 32))
        powers = b.op("exp", b.op("sub", matmul, b.max(matmul, 1)))
        total = b.op("add", x, b.op("div", powers, b.sum(powers, 1)))
        centred = b.op("sub", total, b.scale(b.sum(total, 1), 1 / 32))
        x = b.op("div", centred, b.scale(b.sum(b.op("mul", centred, centred), 1), 1 / 32, 1.0))
    return b.build(x)


def readers(count: int) -> LoopGraph:
    """Many readers of one value, all returned."""
    b = Builder()
    x = b.input(64, 32)
    return b.build(*(b.op("exp", b.scale(x, float(k))) for k in range(count // 2)))


def updates(count: int) -> LoopGraph:
    """Two operations for each parameter that is updated in place."""
    b = Builder()
    rate = b.input(1)
    for _ in range(count // 2):
        weight, gradient = b.input(64), b.input(64)
        b.copy_(weight, b.pointwise(lambda w, g, r: op("sub", w, op("mul", g, r)), weight, gradient, rate))
    return b.build()


def planned(graph: LoopGraph) -> Plan:
    return schedule(graph, PassContext({CPU: CPU_LIKE}))


def calls(graph: LoopGraph) -> int:
    """The number of function calls: a measure of work that is the same on every machine."""
    profile = cProfile.Profile()
    profile.runcall(planned, graph)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("family", [chain, layers, readers, updates])
def test_work_is_nearly_linear(family: Callable[[int], LoopGraph]) -> None:
    sizes = (500, 4000)
    found = [calls(family(size)) for size in sizes]
    exponent = math.log(found[1] / found[0]) / math.log(sizes[1] / sizes[0])
    assert exponent <= MAX_EXPONENT, f"{dict(zip(sizes, found, strict=True))} calls: exponent {exponent:.2f}"


def test_equal_layers_share_kernels() -> None:
    few, many = planned(layers(14 * 3)), planned(layers(14 * 30))
    assert {kernel.name for kernel in few.kernels} == {kernel.name for kernel in many.kernels}
    assert few.kernels == many.kernels


def test_equal_updates_share_kernels() -> None:
    assert len(planned(updates(400)).kernels) <= 2


def test_small_graphs_take_a_few_kernels_only() -> None:
    assert [len(planned(chain(size)).kernels) for size in (10, 100)] == [1, 1]
