"""Vector loops divided at borders: the segments, and the results of divided kernels against the interpreter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cpp_kernels import I0, I1, Array, Case, kernel, modes
from test_cpp_emit import launch, load_all

from litz_codegen_cpp.emit.kernel import emit_kernel
from litz_codegen_cpp.emit.loops.borders import Segment, segments
from litz_codegen_cpp.runtime.call import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.dtypes import f32, i64
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, CpuLoops, Phase, ScanStore, Statement, Store
from litz_ir.scalar import Expr, Load, Scalar
from litz_ir.scalar.build import const, index, load, logical_and, masked, op, where
from litz_ir.symbols import Range, Size, Term, add, floordiv, maximum, mod, mul, symbol

LANES = 16
ROW = 150
X = symbol("i1")


def reflected(x: Size, size: int) -> Size:
    last = add(maximum(x, mul(x, -1)), 1 - size)
    return add(size - 1, mul(maximum(last, mul(last, -1)), -1))


def compared(name: str, term: Size, bound: int) -> Expr:
    return op(name, index(term), const(bound, i64))


def found(value: Expr, size: Size = ROW) -> tuple[Segment, ...]:
    phase = Phase((), (Store("o", X, value),))
    return segments((phase,), Axis("i1", size), {"i0": Range(0, 4)}, LANES)


def borders(value: Expr, size: int = ROW) -> list[int]:
    return [each.low for each in found(value, size)]


def test_padding_has_three_segments() -> None:
    inside = logical_and(compared("ge", X, 2), compared("lt", X, ROW - 3))
    made = found(masked(inside, load("x", (add(X, -2),), f32), const(0.0, f32)))
    assert [(each.low, each.high) for each in made] == [(0, 2), (2, ROW - 3), (ROW - 3, ROW)]
    values = [statement.value for each in made for statement in each.phases[0].statements]
    assert values == [const(0.0, f32), load("x", (add(X, -2),), f32), const(0.0, f32)]


def test_an_index_that_turns_is_linear_in_each_segment() -> None:
    made = found(load("x", (reflected(add(X, -2), ROW - 4),), f32))
    assert len(made) == 3
    for each in made:
        (statement,) = each.phases[0].statements
        assert isinstance(statement.value, Load)
        (term,) = statement.value.index
        assert isinstance(term, Term) and term.is_polynomial


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("slope", [1, -1, 2, -2])
def test_every_comparison_is_constant_between_borders(name: str, slope: int) -> None:
    term = add(mul(X, slope), 100 if slope < 0 else 0)
    value = where(compared(name, term, 71), load("x", (X,), f32), load("y", (X,), f32))
    made = found(value)
    assert len(made) == 2
    assert {type(statement.value) for each in made for statement in each.phases[0].statements} == {Load}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (load("x", (X,), f32), ROW),
        (where(compared("lt", add(X, mul(I0, 7)), 50), load("x", (X,), f32), const(0.0, f32)), ROW),
        (where(compared("lt", X, 5), load("x", (X,), f32), const(0.0, f32)), 12),
        (load("x", (mod(X, 3),), f32), ROW),
        (load("x", (floordiv(X, 16),), f32), ROW),
    ],
)
def test_loops_that_stay_whole(value: Expr, size: int) -> None:
    assert found(value, size) == ()


def test_scans_and_combined_stores_stay_whole() -> None:
    value = where(compared("lt", X, 70), load("x", (X,), f32), const(0.0, f32))
    for statement in (
        ScanStore(NamedCombiner("sum"), (value,), (("o", X),)),
        Store("o", X, value, "add"),
    ):
        phase = Phase((Axis("i1", ROW),), (statement,))
        assert segments((phase,), Axis("i1", ROW), {}, LANES) == ()
    assert found(value, symbol("n")) == ()


# --- compiled kernels ---------------------------------------------------------------------------------------


class Maker:
    """Draws values with borders along a row of :data:`ROW` elements, whose loads are in range."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def offset(self, x: Size) -> Size:
        low = self.draw.randrange(9)
        choices: list[Size] = [
            x, reflected(add(x, -low), ROW - 2 * low), mod(add(x, self.draw.randrange(ROW)), ROW),
            maximum(add(x, -low), 0), mod(x, 64), floordiv(x, 50), add(ROW - 1, mul(x, -1)),
        ]  # fmt: skip
        return self.draw.choice(choices)

    def value(self, x: Size, depth: int) -> Expr:
        if depth == 0:
            return load(self.draw.choice("xy"), (self.offset(x),), f32)
        a, b = (self.value(x, depth - 1) for _ in range(2))
        bound = self.draw.choice([self.draw.randrange(ROW), 16 * self.draw.randrange(9)])
        condition = compared(self.draw.choice(["lt", "le", "gt", "ge", "eq", "ne"]), x, bound)
        match self.draw.randrange(5):
            case 0:
                return where(condition, a, b)
            case 1:
                return masked(condition, a, b)
            case 2:
                body = load("x", (add(x, -bound),), f32)
                return masked(compared("ge", x, bound), body, a)
            case 3:
                return masked(logical_and(condition, compared("ge", mul(x, 2), bound)), a, b)
        return op("sub", a, b)


def random_cases(number: int) -> list[Case]:
    maker = Maker(random.Random(number))
    depth = maker.draw.randrange(1, 4)
    if number % 2:
        outer, at = [("i0", 5), ("i1", ROW)], I0 * ROW + I1
        statements: list[Statement] = [Store("o", at, maker.value(X, depth))]
        parallel = ("i0", "i1")[: maker.draw.randrange(3)]
        made = kernel(
            f"outer_{number}", "x y : o", outer, [([], statements)], schedule=CpuLoops(parallel, grain=1)
        )
        return modes(Case(made, {"x": ROW, "y": ROW, "o": 5 * ROW}, ({},), tolerance=2e-5), vector="i1")
    r, total = symbol("r0"), (("s", f32),)
    phases = [
        ([("r0", ROW)], [Accumulate(total, NamedCombiner("sum"), (maker.value(r, depth),)),
                         Store("o", I0 * ROW + r, maker.value(r, depth))]),
        ([], [Store("t", I0, Scalar("s", f32))]),
    ]  # fmt: skip
    made = kernel(f"inner_{number}", "x y : o t", [("i0", 5)], phases, schedule=CpuLoops(("i0",), grain=1))
    return modes(Case(made, {"x": ROW, "y": ROW, "o": 5 * ROW, "t": 5}, ({},), tolerance=2e-5), vector="r0")


CASES = [case for number in range(60) for case in random_cases(number)]


def test_most_of_the_kernels_are_divided() -> None:
    divided = 0
    for case in CASES:
        made = case.kernel
        assert isinstance(made.schedule, CpuLoops)
        vector = made.schedule.vector
        axis = next(each for each in (*made.outer, *made.phases[0].axes) if each.name == vector)
        divided += bool(segments(made.phases[:1], axis, {}, LANES))
    assert divided > len(CASES) // 3


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"))
    return load_all(target, [case.kernel for case in CASES], tmp_path_factory.mktemp("borders"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_divided_kernels_equal_the_interpreter(compiled: CpuModule, case: Case) -> None:
    wanted, given = case.buffers({}), case.buffers({})
    run_kernel(case.kernel, wanted, {})
    launch(compiled, case, given, {})
    for name in wanted:
        found_here: Array = given[name]
        np.testing.assert_allclose(found_here, wanted[name], rtol=2e-5, atol=2e-4, err_msg=name)


def test_a_short_segment_runs_point_by_point() -> None:
    inside = compared("ge", X, 2)
    value = masked(inside, load("x", (add(X, -2),), f32), load("y", (X,), f32))
    made = kernel(
        "padded", "x y : o", [("i0", 5), ("i1", ROW)], [([], [Store("o", I0 * ROW + I1, value)])],
        schedule=CpuLoops(("i0",), "i1"),
    )  # fmt: skip
    text = emit_kernel(made, LANES).text
    assert "for (int64_t i1 = 0; i1 < 2; ++i1)" in text
    assert "masked" not in text
