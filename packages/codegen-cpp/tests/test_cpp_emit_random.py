"""Random kernels against the interpreter: hoisted, common, masked and gathered values in every combination."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cpp_kernels import I0, I1, R0, Array, Axes, Case, kernel, modes
from test_cpp_emit import launch, load_all

from litz_codegen_cpp.runtime.call import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.dtypes import f32, i64
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, CpuLoops, Statement, Store
from litz_ir.scalar import Expr, Indirect, Scalar
from litz_ir.scalar.build import cast, const, index, load, masked, op, where
from litz_ir.symbols import Size, evaluate, floordiv, minimum, mod, symbol

EXTENTS = {"i0": 5, "i1": 37, "r0": 50}
LENGTH = 300
KERNELS = 40


class Maker:
    """Draws expressions over some axes; every load is in range wherever its conditions hold."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def offset(self, axes: list[str]) -> Size:
        """A term with values in ``[0, LENGTH)``."""
        name, other = self.draw.choice(axes), self.draw.choice(axes)
        x, size = symbol(name), EXTENTS[name]
        choices: list[Size] = [
            x, size - 1 - x, x * 3, self.draw.randrange(LENGTH), minimum(x * 2, 9),
            floordiv(x + self.draw.randrange(3), self.draw.choice([2, 7, 16])),
            mod(x + self.draw.randrange(40), self.draw.choice([5, 16, 32])),
            x * 2 + symbol(other),
        ]  # fmt: skip
        return self.draw.choice(choices)

    def load(self, axes: list[str]) -> Expr:
        """An element of an input, here and there through an index that is loaded."""
        if self.draw.random() < 0.15:
            position = load("at", (self.offset(axes),), i64)
            checked = Indirect(position, LENGTH, True, self.draw.choice(["raised", "clamped"]))
            return load("x", (checked,), f32)
        return load(self.draw.choice("xyz"), (self.offset(axes),), f32)

    def condition(self, axes: list[str]) -> Expr:
        if self.draw.random() < 0.3:
            return op("gt", self.load(axes), const(0.0, f32))
        name = self.draw.choice(axes)
        term = self.draw.choice([symbol(name), symbol(name) + 1, floordiv(symbol(name), 3)])
        return op(
            self.draw.choice(["lt", "ge", "eq"]), index(term), const(self.draw.randrange(EXTENTS[name]), i64)
        )

    def value(self, axes: list[str], depth: int, scalars: tuple[str, ...] = ()) -> Expr:
        kind = self.draw.random()
        if depth == 0 or kind < 0.2:
            leaves = [
                const(1.5, f32),
                cast(index(self.offset(axes)), f32),
                *(Scalar(name, f32) for name in scalars),
            ]
            return self.draw.choice([*leaves, *(self.load(axes) for _ in range(4))])
        a, b = (self.value(axes, depth - 1, scalars) for _ in range(2))
        if kind < 0.35:
            name = self.draw.choice(axes)
            first = self.draw.randrange(1, EXTENTS[name])
            body = op("add", load("x", (symbol(name) - first,), f32), a)
            return masked(op("ge", index(symbol(name)), const(first, i64)), body, b)
        if kind < 0.5:
            return masked(self.condition(axes), a, b)
        if kind < 0.6:
            return where(self.condition(axes), a, b)
        if kind < 0.7:
            return op(self.draw.choice(["neg", "abs", "tanh"]), a)
        return op(self.draw.choice(["add", "sub", "minimum", "maximum"]), a, b)


def random_case(number: int) -> list[Case]:
    """A kernel of one to three phases over two outer axes, in every vector mode."""
    draw = random.Random(number)
    maker = Maker(draw)
    outer, inner = ["i0", "i1"], ["i0", "i1", "r0"]
    at = (I0 * 37 + I1) * 50 + R0
    phases: list[tuple[Axes, list[Statement]]] = []
    scalars: tuple[str, ...] = ()
    if number % 3:
        kind = NamedCombiner(draw.choice(["sum", "max"]))
        reduce = Accumulate((("s", f32),), kind, (op("tanh", maker.value(inner, draw.randrange(4))),))
        phases.append(([("r0", 50)], [reduce, Store("w", at, maker.value(inner, 2))]))
        scalars = ("s",)
    if number % 3 == 2:
        sum_of_both = op("add", load("w", (at,), f32), maker.value(inner, 2, scalars))
        phases.append(([("r0", 50)], [Store("v", at, sum_of_both)]))
    phases.append(([], [Store("o", I0 * 37 + I1, maker.value(outer, draw.randrange(1, 5), scalars))]))
    made = kernel(
        f"random_{number}", "x y z at : o w+ v", [("i0", 5), ("i1", 37)], phases, dtypes={"at": i64},
        schedule=CpuLoops(tuple(outer[: draw.randrange(3)]), unroll=draw.choice([1, 2, 3]), grain=draw.choice([1, 20])),
    )  # fmt: skip
    fill = {"at": lambda random, length: random.integers(0, LENGTH, length)}
    lengths = {**dict.fromkeys(("x", "y", "z", "at"), LENGTH), "o": 185, "w": 9250, "v": 9250}
    return modes(Case(made, lengths, ({},), fill, 2e-5), scalar=None, inner="r0", outer="i1")


CASES = [case for number in range(KERNELS) for case in random_case(number)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"))
    return load_all(target, [case.kernel for case in CASES], tmp_path_factory.mktemp("random"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_random_kernel_equals_the_interpreter(compiled: CpuModule, case: Case) -> None:
    def fresh() -> dict[str, Array]:
        buffers = case.buffers({}, 1)
        for name in "owv":
            buffers[name][:] = 0
        return buffers

    wanted, found = fresh(), fresh()
    run_kernel(case.kernel, wanted, {})
    launch(compiled, case, found, {})
    for name in "owv":
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_offsets_stay_in_range() -> None:
    maker = Maker(random.Random(0))
    for _ in range(200):
        term = maker.offset(["i0", "i1", "r0"])
        for corner in (dict.fromkeys(EXTENTS, 0), {name: size - 1 for name, size in EXTENTS.items()}):
            assert 0 <= evaluate(term, corner) < LENGTH
