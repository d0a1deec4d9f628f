"""Dependencies between launches of a segment."""

from __future__ import annotations

import pytest

from litz.host.emit.launch_dependencies import indirect_indices, launch_dependencies, may_fail
from litz_ir.dtypes import f32, i64
from litz_ir.loops import Axis
from litz_ir.plan import (
    CpuLoops,
    Invocation,
    Kernel,
    Launch,
    Parameter,
    Phase,
    ScratchArray,
    Store,
    Subkernel,
)
from litz_ir.scalar import Expr, Indirect
from litz_ir.scalar.build import load
from litz_ir.symbols import symbol

I0 = symbol("i0")


def kernel(name: str, value: Expr, *locals_: ScratchArray, access: str = "in") -> Kernel:
    parameters = (Parameter("x", f32, "inout" if access == "inout" else "in"), Parameter("o", f32, "out"))
    phase = Phase((), (Store("o", I0, value),))
    return Kernel(name, parameters, (), (Axis("i0", 8),), locals_, (phase,), CpuLoops())


COPY = kernel("copy", load("x", (I0,), f32))
UPDATE = kernel("update", load("x", (I0,), f32), access="inout")
LOOKUP = kernel("lookup", load("x", (Indirect(load("x", (I0,), i64), 8, True, "raised"),), f32))
KERNELS = {each.name: each for each in (COPY, UPDATE, LOOKUP)}


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ("copy a b, copy a c, copy d e", [False, False, False]),
        ("copy a b, copy b c", [False, True]),
        ("copy a b, copy c b", [False, True]),
        ("copy a b, copy c a", [False, True]),
        ("update a b, copy a c", [False, True]),
        ("update a b, update c d", [False, False]),
        ("copy a b, copy c d, copy b e, copy d f", [False, False, True, False]),
        ("copy a b, copy b c, copy c d", [False, True, True]),
        ("copy a view_of_b, copy b c", [False, True]),
        ("lookup a b, copy c d, copy e f", [False, True, False]),
    ],
)
def test_launches_wait_for_earlier_ones_on_the_same_memory(launches: str, expected: list[bool]) -> None:
    steps = [Launch(name, (x, o)) for name, x, o in (each.split() for each in launches.split(", "))]
    assert list(launch_dependencies(steps, KERNELS, lambda name: name.removeprefix("view_of_"))) == expected


def test_kernels_that_check_or_allocate_may_fail() -> None:
    assert not may_fail(COPY)
    assert may_fail(LOOKUP)
    assert not may_fail(kernel("small", load("x", (I0,), f32), ScratchArray("l", f32, 64)))
    assert may_fail(kernel("large", load("x", (I0,), f32), ScratchArray("l", f32, symbol("n"))))


def test_a_horizontal_fusion_has_the_indirect_indices_of_its_subkernels() -> None:
    subkernels = (
        Subkernel(COPY, (Invocation(("x", "o"), ()),)),
        Subkernel(LOOKUP, (Invocation(("x", "p"), ()),)),
    )
    parameters = (*LOOKUP.parameters, Parameter("p", f32, "out"))
    fused = Kernel("fused", parameters, (), (), (), (), CpuLoops(), subkernels)
    assert may_fail(fused)
    assert indirect_indices(fused) == indirect_indices(LOOKUP)
