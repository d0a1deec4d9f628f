"""Random loop graphs of everything that lowering emits, small enough for the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st
from scheduler_builder import Builder, Terms

from litz_ir.dtypes import f32, f64, i64
from litz_ir.loops import LoopGraph, ReductionName, ScatterMode, UserCombiner, View
from litz_ir.scalar import Expr, Indirect, Load, Param, Scalar, cast, const, op
from litz_ir.symbols import Size, SymbolInfo, SymbolTable, mod, mul, symbol

T = TypeVar("T")
LIMIT = const(8.0, f32)
SIZES = (1, 2, 3, 4, 6)


def clamped(value: Expr) -> Expr:
    """Return ``value`` limited to [-8, 8], so that long bodies stay exact or well conditioned."""
    return op("minimum", op("maximum", value, op("neg", LIMIT)), LIMIT)


BINARY = ("add", "sub", "mul", "minimum", "maximum")


class Drawing:
    """A builder that takes its choices from Hypothesis."""

    def __init__(self, draw: st.DrawFn, symbolic: bool) -> None:
        self.draw = draw
        table = SymbolTable((SymbolInfo("s0", "int", 1, 64, hint=5),)) if symbolic else SymbolTable()
        self.b = Builder("random", table)
        sizes = draw(
            st.lists(st.sampled_from(SIZES if draw(st.integers(0, 9)) else (0, 1, 3)), min_size=1, max_size=3)
        )
        shape: list[Size] = list(sizes)
        if symbolic:
            shape[draw(st.integers(0, len(shape) - 1))] = symbol("s0")
        self.first: Terms = tuple(shape)
        self.b.input(*self.first)
        for _ in range(draw(st.integers(0, 2))):
            self.companion()

    def choose(self, *options: T) -> T:
        return self.draw(st.sampled_from(options))

    def companion(self) -> None:
        """Another input: the same shape, a broadcast or permuted one, or positions."""
        kind = self.choose("same", "row", "ones", "permuted", "positions")
        shape = self.first
        if kind == "positions":
            self.b.input(shape[0], dtype=i64)
        elif kind == "row":
            self.b.input(*shape[1:])
        elif kind == "ones":
            self.b.input(*(1 if self.draw(st.booleans()) else n for n in shape))
        elif kind == "permuted" and all(isinstance(n, int) for n in shape) and len(shape) > 1:
            # Column-major: the first dimension is the fastest.
            steps: list[int] = [1]
            for n in shape[:-1]:
                assert isinstance(n, int)
                steps.append(steps[-1] * max(n, 1))
            self.b.input(*shape, strides=tuple(steps))
        else:
            self.b.input(*shape)

    # --- picking operands --------------------------------------------------------------------------------------------

    def floats(self) -> list[str]:
        return [x for x in self.b.latest if self.b.types[x].dtype == f32]

    def pick(self, wanted: Callable[[str], bool] = lambda x: True) -> str | None:
        found = [x for x in self.floats() if wanted(x)]
        # Later values more often: chains are what the scheduler is about.
        return self.draw(st.sampled_from(found + found[-3:])) if found else None

    def fits(self, x: str) -> list[str]:
        """The values that broadcast with ``x``."""

        def agree(y: str) -> bool:
            tail = list(zip(reversed(self.b.shape(x)), reversed(self.b.shape(y)), strict=False))
            return all(m == n or 1 in (m, n) for m, n in tail)

        return [y for y in self.floats() if agree(y)]

    # --- one operation each ------------------------------------------------------------------------------------------

    def step(self) -> None:
        name = self.choose(
            "binary", "binary", "unary", "chain", "view", "view", "reduce", "reduce", "norm", "softmax", "backward",
            "several", "argmax", "welford", "scan", "scatter", "mm", "mutate", "masked", "gather", "combine", "number",
            "draw_numbers", "host",
        )  # fmt: skip
        x = self.pick()
        if x is not None:
            getattr(self, name)(x)

    def binary(self, x: str) -> str:
        y = self.draw(st.sampled_from(self.fits(x)))
        name = self.choose(*BINARY)
        return self.b.pointwise(lambda a, c: clamped(op(name, a, c)), x, y)

    def unary(self, x: str) -> None:
        if self.draw(st.booleans()):
            self.b.pointwise(lambda a: op("exp", op("minimum", a, const(1.0, f32))), x)
        else:
            self.b.scale(x, 0.5, 1.0)

    def chain(self, x: str) -> None:
        for _ in range(self.draw(st.integers(2, 4))):
            x = self.binary(x)

    def view(self, x: str) -> None:
        shape = self.b.shape(x)
        rank = len(shape)
        kind = self.choose("permute", "flip", "slice", "expand", "flatten", "split", "newaxis")
        dim = self.draw(st.integers(0, max(rank - 1, 0)))
        if kind == "newaxis":
            where = self.draw(st.integers(0, rank))
            self.b.view(x, [*shape[:where], 1, *shape[where:]], lambda a: [*a[:where], *a[where + 1 :]])
        elif kind == "expand":
            self.b.expand(x, 2, *shape)
        elif not rank:
            return
        elif kind == "permute":
            self.b.permute(x, *self.draw(st.permutations(range(rank))))
        elif kind == "flip":
            self.b.flip(x, dim)
        elif kind == "slice":
            size = shape[dim]
            if isinstance(size, int) and size > 1:
                self.b.slice(x, dim, self.draw(st.integers(0, 1)), size, self.draw(st.integers(1, 2)))
        elif kind == "flatten" and rank > 1:
            dim = min(dim, rank - 2)
            self.b.reshape(x, *shape[:dim], mul(shape[dim], shape[dim + 1]), *shape[dim + 2 :])
        elif kind == "split":
            size = shape[dim]
            if isinstance(size, int) and size in (4, 6):
                self.b.reshape(x, *shape[:dim], 2, size // 2, *shape[dim + 1 :])

    def dims(self, x: str) -> list[int]:
        rank = len(self.b.shape(x))
        return sorted(self.draw(st.sets(st.integers(0, rank - 1), min_size=1))) if rank else []

    def reduce(self, x: str) -> None:
        dims = self.dims(x)
        if dims:
            kind: ReductionName = self.choose("sum", "max", "min")
            self.b.reduce(kind, x, dims, self.draw(st.booleans()))

    def norm(self, x: str) -> None:
        """Subtract the mean, scale: two passes, or Welford's."""
        dims = self.dims(x)
        if not dims:
            return
        mean = self.b.scale(self.b.sum(x, *dims), 0.25)
        centred = self.b.pointwise(lambda a, c: clamped(op("sub", a, c)), x, mean)
        spread = self.b.sum(self.b.op("mul", centred, centred), *dims)
        self.b.pointwise(lambda a, c: op("div", a, op("add", c, const(1.0, f32))), centred, spread)

    def softmax(self, x: str) -> None:
        dims = self.dims(x)
        if not dims:
            return
        small = self.b.pointwise(clamped, x)
        top = self.b.max(small, *dims)
        powers = self.b.op("exp", self.b.op("sub", small, top))
        self.b.op("div", powers, self.b.sum(powers, *dims))

    def backward(self, x: str) -> None:
        """Reductions over rows and over columns of the same values, as in the gradient of a norm."""
        if len(self.b.shape(x)) < 2:
            return
        y = self.draw(st.sampled_from(self.fits(x)))
        scaled = self.b.pointwise(lambda a, c: clamped(op("mul", a, c)), x, y)
        rank = len(self.b.shape(scaled))
        rows = self.b.sum(scaled, rank - 1)
        self.b.sum(scaled, 0, keepdim=self.draw(st.booleans()))
        self.b.pointwise(lambda a, c: clamped(op("sub", a, c)), scaled, rows)

    def several(self, x: str) -> None:
        y = self.draw(st.sampled_from(self.fits(x)))
        self.b.several([lambda a, c: clamped(op("add", a, c)), lambda a, c: op("maximum", a, c)], x, y)

    def argmax(self, x: str) -> None:
        dims = self.dims(x)
        # Over values that are exact: rounding must not decide a tie.
        exact = self.b.pointwise(lambda a: op("round", clamped(a)), x)
        if dims and all(self.b.shape(x)[d] != 0 for d in dims):
            self.b.reduce("argmax", exact, dims, self.draw(st.booleans()))

    def welford(self, x: str) -> None:
        dims = self.dims(x)
        if dims and all(self.b.shape(x)[d] != 0 for d in dims):
            self.b.reduce("welford", x, dims, self.draw(st.booleans()))

    def combine(self, x: str) -> None:
        """An associative but not commutative combination: keep the last, count all."""
        dims = self.dims(x)
        if len(dims) != 1:
            return
        last = UserCombiner(body=(Param(1, f32),), identity=(const(0.0, f32),), finish=(Param(0, f32),))
        self.b.reduce("sum", x, dims, self.draw(st.booleans()), last)

    def scan(self, x: str) -> None:
        rank = len(self.b.shape(x))
        if rank:
            summed = self.b.scan(x, self.draw(st.integers(0, rank - 1)))
            self.b.pointwise(clamped, summed)

    def scatter(self, x: str) -> None:
        shape = self.b.shape(x)
        if not shape or 0 in shape:
            return
        y = self.pick(lambda y: len(self.b.shape(y)) == len(shape) and 0 not in self.b.shape(y))
        if y is None:
            return
        base = self.b.shape(y)
        mode: ScatterMode = self.choose("set", "add", "max")
        positions = [
            p for p in self.b.latest if self.b.types[p].dtype == i64 and self.b.shape(p) == shape[:1]
        ]

        def place(a: Terms) -> Terms:
            where = [t if m == n else mod(t, n) for t, m, n in zip(a, shape, base, strict=True)]
            if positions:
                value = Load(positions[0], (a[0],), i64)
                where[0] = Indirect(value, base[0], wrap=True, check="clamped")
            return tuple(where)

        made = self.b.scatter(y, x, place, mode)
        self.b.pointwise(clamped, made)

    def gather(self, x: str) -> None:
        shape = self.b.shape(x)
        positions = [p for p in self.b.latest if self.b.types[p].dtype == i64 and len(self.b.shape(p)) == 1]
        if shape and 0 not in shape and positions:
            self.b.gather(x, self.draw(st.sampled_from(positions)))

    def masked(self, x: str) -> None:
        if self.b.shape(x):
            self.b.pad(x)

    def number(self, x: str) -> None:
        """A value made of indices alone, and its sum with another."""
        if len(self.b.shape(x)):
            numbers = self.b.iota(*self.b.shape(x))
            self.b.pointwise(lambda a, c: clamped(op("add", a, c)), x, numbers)

    def draw_numbers(self, x: str) -> None:
        """Draws in program order, and their sum with another value."""
        drawn = self.b.draw(*self.b.shape(x))
        self.b.pointwise(lambda a, c: clamped(op("add", a, c)), x, drawn)

    def host(self, x: str) -> None:
        """A value that the host reads, checks and uses as a number."""
        rank = len(self.b.shape(x))
        whole = self.b.reduce("max", x, range(rank))[0] if rank else x
        small = self.b.pointwise(clamped, whole)
        self.b.check(small)
        name = self.b.host_scalar(small)
        self.b.pointwise(lambda a: clamped(op("add", a, cast(Scalar(name, f64), f32))), x)

    def mm(self, x: str) -> None:
        if len(self.b.shape(x)) != 2:
            return
        y = self.pick(lambda y: len(self.b.shape(y)) == 2 and self.b.shape(y)[0] == self.b.shape(x)[1])
        if y is None:
            y = self.b.permute(x, 1, 0)
        self.b.pointwise(clamped, self.b.mm(x, y))

    def mutate(self, x: str) -> None:
        """Overwrite ``x`` with something of its shape: computed from it in place, or from other points of it."""
        if any(isinstance(o, View) and o.name == x for o in self.b.operations):
            return
        kind = self.choose("update", "flip", "other", "fill")
        if kind == "fill":
            self.b.fill_(x, 0.5)
            return
        if kind == "flip" and self.b.shape(x):
            source = self.b.flip(x, 0)
        elif kind == "update":
            source = self.b.scale(x, 0.5)
        else:
            same = [y for y in self.floats() if self.b.shape(y) == self.b.shape(x) and y != x]
            if not same:
                return
            source = self.draw(st.sampled_from(same))
        if self.b.shape(source) == self.b.shape(x):
            self.b.copy_(x, source)


@st.composite
def loop_graphs(draw: st.DrawFn, symbolic: bool = False, steps: int = 7) -> LoopGraph:
    """Draw a graph of up to ``steps`` random operations or idioms that returns some of its values."""
    made = Drawing(draw, symbolic)
    for _ in range(draw(st.integers(1, steps))):
        made.step()
    outputs = draw(st.lists(st.sampled_from(made.b.latest[::-1]), min_size=1, max_size=3))
    return made.b.build(*outputs)
