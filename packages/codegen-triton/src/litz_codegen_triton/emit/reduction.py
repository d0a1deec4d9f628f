"""Reductions over a tile, at once or in a loop, and the combining functions that scans share with them.

While a reduction runs its *state* is one tile per component: one for sums and the like, (value, index) for ``argmax``,
(mean, squares, count) for Welford's method, (maximum, sum) for the online softmax. Points outside the loop nest are
given the identity, so merging two states needs no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import Body, Setting, Write
from litz_codegen_triton.emit.ops_table import Form, triton_type
from litz_codegen_triton.emit.text import Value
from litz_ir.dtypes import DType, compute_dtype, i32, i64
from litz_ir.loops.nodes import Combine, Combiner, Kind
from litz_ir.plan.kernel import Accumulate
from litz_ir.scalar.expr import Const, Expr, Param

_LAST_INDEX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How states are merged: their dtypes and identities, the function that merges two of them, and where they exist
    the spellings of merging (``step``), of a whole reduction and of a scan."""

    dtypes: tuple[DType, ...]
    identity: tuple[str, ...]
    function: str
    step: str = ""
    whole: str = ""
    running: str = ""


_FLOATS: Mapping[str, tuple[str, str, str, str, str]] = {
    "sum": ("0.0", "litz_add", "{0} + {1}", "tl.sum({0}, {axis})", "tl.cumsum({0}, {axis})"),
    "prod": ("1.0", "litz_mul", "{0} * {1}", "", "tl.cumprod({0}, {axis})"),
    "min": ('float("inf")', "litz_min", "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "", ""),
    "max": ('float("-inf")', "litz_max", "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "", ""),
}
_INTEGERS: Mapping[str, tuple[str, str, str, str]] = {
    "sum": ("litz_add", "{0} + {1}", "tl.sum({0}, {axis})", "tl.cumsum({0}, {axis})"),
    "prod": ("litz_mul", "{0} * {1}", "", "tl.cumprod({0}, {axis})"),
    "min": ("litz_int_min", "tl.minimum({0}, {1})", "tl.min({0}, {axis})", ""),
    "max": ("litz_int_max", "tl.maximum({0}, {1})", "tl.max({0}, {axis})", ""),
    "any": ("litz_int_max", "tl.maximum({0}, {1})", "tl.max({0}, {axis})", ""),
    "all": ("litz_int_min", "tl.minimum({0}, {1})", "tl.min({0}, {axis})", ""),
    "xor": ("litz_xor", "{0} ^ {1}", "tl.xor_sum({0}, {axis})", ""),
}


def _state_dtype(dtype: DType) -> DType:
    """Bools and short integers are combined in 32 bits, as Triton's own reductions do; narrow floats in ``f32``."""
    if dtype.is_bool or (dtype.is_integer and dtype.bits < 32):
        return i32
    return compute_dtype(dtype)


def _extreme(dtype: DType, largest: bool) -> str:
    if dtype.is_float:
        return 'float("inf")' if largest else 'float("-inf")'
    top = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
    return str(top if largest else (-top - 1 if dtype.kind == "int" else 0))


def _integer_identity(kind: str, state: DType) -> str:
    match kind:
        case "min":
            return _extreme(state, True)
        case "max":
            return _extreme(state, False)
        case "all" | "prod":
            return "1"
        case _:
            return "0"


def recipe(combiner: Combiner, dtypes: Sequence[DType], function: str = "") -> Recipe:
    """How to merge states of a combiner over values that have these dtypes; ``function`` names the merging function of
    a :class:`Combine`."""
    if isinstance(combiner, Combine):
        own = tuple(expr.dtype for expr in combiner.identity)
        return Recipe(own, tuple(_literal_text(expr) for expr in combiner.identity), function)
    state = _state_dtype(dtypes[0])
    match combiner.name:
        case "argmin" | "argmax":
            worst = _extreme(state, combiner.name == "argmin")
            return Recipe((state, i64), (worst, str(_LAST_INDEX)), f"litz_{combiner.name}")
        case "welford":
            return Recipe((state,) * 3, ("0.0",) * 3, "litz_welford")
        case "online_softmax":
            return Recipe((state,) * 2, ('float("-inf")', "0.0"), "litz_online_softmax")
        case name if state.is_float:
            identity, merge, step, whole, running = _FLOATS[name]
            return Recipe((state,), (identity,), merge, step, whole, running)
        case name:
            return Recipe((state,), (_integer_identity(name, state),), *_INTEGERS[name])


def _literal_text(expr: Expr) -> str:
    assert isinstance(expr, Const), "an identity is a literal"
    if expr.dtype.is_float and abs(float(expr.value)) == float("inf"):
        return _extreme(expr.dtype, float(expr.value) > 0)
    return repr(expr.value)


def lift(body: Body, combiner: Combiner, found: Recipe, values: Sequence[Expr]) -> tuple[Value, ...]:
    """The state of a single point."""
    written = []
    for expr, dtype in zip(values, found.dtypes):
        value = body.value(expr)
        text = casts.cast(body.typed(value, expr.dtype), compute_dtype(expr.dtype), dtype, body.form)
        written.append(Value(text, value.dims, value.depth))
    if isinstance(combiner, Kind) and combiner.name == "welford":
        written += [Value("0.0", literal=True), Value("1.0", literal=True)]
    elif isinstance(combiner, Kind) and combiner.name == "online_softmax":
        written.append(Value("1.0", literal=True))
    return tuple(written)


def finish(
    body: Body, combiner: Combiner, state: Sequence[Value], found: Recipe
) -> tuple[tuple[Value, DType], ...]:
    """The results that a state stands for, with their dtypes."""
    if isinstance(combiner, Kind) or _finishes_as_it_is(combiner):
        return tuple(zip(state, found.dtypes))
    names = [body.writer.names.fresh("finished") for _ in combiner.finish]
    body.writer.line(
        f"{', '.join(names)} = {found.function}_finish({', '.join(value.text for value in state)})"
    )
    values = (Value(name, state[0].dims, body.writer.depth) for name in names)
    return tuple(zip(values, (expr.dtype for expr in combiner.finish)))


def _finishes_as_it_is(combiner: Combine) -> bool:
    same = tuple(Param(k, expr.dtype) for k, expr in enumerate(combiner.identity))
    return combiner.finish == same


def converted(body: Body, value: Value, source: DType, result: DType) -> Value:
    """A result in the dtype that is wanted of it."""
    text = casts.cast(body.typed(value, source), source, result, body.form)
    return value if text == value.text else body.writer.define("result", text, value.dims, value.depth)


def combine_functions(name: str, combiner: Combine, form: Form) -> tuple[str, ...]:
    """The source of the function that merges two states of a user-given combination, and of the one that makes results
    of a state where that takes more than naming them."""
    count = combiner.inputs
    merge = _function(name, [f"{side}{k}" for side in "ab" for k in range(count)], combiner.body, form)
    if _finishes_as_it_is(combiner):
        return (merge,)
    return merge, _function(f"{name}_finish", [f"a{k}" for k in range(count)], combiner.finish, form)


def _function(name: str, params: Sequence[str], results: Sequence[Expr], form: Form) -> str:
    body = Body(Setting(form, {}, {}, frozenset(), {}, False, ()))
    body.params = tuple(Value(body.writer.names.fresh(param)) for param in params)
    returned = [body.typed(body.value(expr), expr.dtype) for expr in results]
    lines = [*body.writer.scopes[0].lines, f"return {', '.join(returned)}"]
    return f"@triton.jit\ndef {name}({', '.join(params)}):\n" + "\n".join(f"    {line}" for line in lines)


def last_column(body: Body, name: str, dtype: DType) -> str:
    """The last column of a tile: the sum of one that is zero elsewhere."""
    zero = "0.0" if dtype.is_float else "0"
    axis = len(body.setting.dims) - 1
    return f"{kept(body, f'tl.sum(tl.where({body.masks.last}, {name}, {zero}), {axis})')}.to({triton_type(dtype)})"


def kept(body: Body, text: str) -> str:
    """A reduced tile, its dimension kept."""
    axis = len(body.setting.dims) - 1
    return text + (f"[{':, ' * axis}None]" if axis else "")


class Reduction:
    """One ``Accumulate`` of a phase that varies along ``every`` dimensions of the tile, ``r`` among them."""

    def __init__(self, body: Body, statement: Accumulate, every: frozenset[str], function: str) -> None:
        self.body = body
        self.statement = statement
        self.combiner = statement.combiner
        dtypes = [dtype for _, dtype in statement.results]
        if isinstance(self.combiner, Kind) and self.combiner.name in ("argmin", "argmax", "any", "all"):
            dtypes = [expr.dtype for expr in statement.values]
        self.recipe = recipe(self.combiner, dtypes, function)
        self.every = every
        self.accumulators: tuple[Value, ...] = ()

    @property
    def _name(self) -> str:
        return self.statement.results[0][0]

    @property
    def _axis(self) -> int:
        return len(self.body.setting.dims) - 1

    def tile(self, value: Value, component: int) -> Value:
        """A component of the state on the whole tile, the identity where no point is."""
        body, dtype = self.body, self.recipe.dtypes[component]
        identity = self.recipe.identity[component]
        if value.literal and value.text == identity:
            text = f"tl.full({body.shape(self.every)}, {identity}, {triton_type(dtype)})"
            return Value(text, self.every, value.depth)
        text, dims, depth = body.typed(value, dtype), value.dims, value.depth
        tail = body.masks.tails.get("r")
        if tail is not None:
            text, dims, depth = (
                f"tl.where({tail.text}, {text}, {identity})",
                dims | tail.dims,
                max(depth, tail.depth),
            )
        if dims != self.every:
            text = f"tl.broadcast_to({text}, {body.shape(self.every)})"
        return Value(text, self.every, max(depth, body.writer.depth))

    def tiles(self) -> tuple[Value, ...]:
        """The state of the points of the current tile, each component under a name."""
        state = lift(self.body, self.combiner, self.recipe, self.statement.values)
        return tuple(self._named(self.tile(value, k), "tile") for k, value in enumerate(state))

    def _named(self, value: Value, base: str) -> Value:
        if value.text.isidentifier():
            return value
        return self.body.writer.define(base, value.text, value.dims, value.depth)

    @property
    def _ordered(self) -> bool:
        # Nobody promised that a user-given combination is commutative.
        return isinstance(self.combiner, Combine)

    def begin(self) -> None:
        """Write the accumulators, before the loop opens."""
        body = self.body
        dims = self.every - {"r"} if self._ordered else self.every
        shape = body.shape(dims) if dims else "[]"
        self.accumulators = tuple(
            body.writer.define(
                f"{self._name}_acc", f"tl.full({shape}, {identity}, {triton_type(dtype)})", dims, body.writer.depth
            )
            for dtype, identity in zip(self.recipe.dtypes, self.recipe.identity)
        )  # fmt: skip

    def step(self) -> list[Write]:
        """Write the merging of one tile into the accumulators, inside the loop; nothing is to be stored."""
        names = [value.text for value in self.accumulators]
        tiles = [value.text for value in (self._in_order() if self._ordered else self.tiles())]
        if self.recipe.step:
            merged = self.recipe.step.format(names[0], tiles[0])
        else:
            merged = f"{self.recipe.function}({', '.join(names + tiles)})"
        self.body.writer.line(f"{', '.join(names)} = {merged}")
        return []

    def end(self) -> None:
        """Write the reduction of the accumulators, after the loop, and define the results."""
        if isinstance(self.combiner, Kind) and self.combiner.name == "online_softmax":
            top, total = (value.text for value in self.accumulators)
            self._softmax(top, lambda base: f"{total} * tl.exp({top} - {base})")
        elif self._ordered:
            self._results(self.accumulators)
        else:
            self._results(self._reduced([value.text for value in self.accumulators]))

    def at_once(self, points: int) -> None:
        """Write the reduction of a phase of so many points that one tile covers, and define the results."""
        name = self.combiner.name if isinstance(self.combiner, Kind) else ""
        if name == "online_softmax":
            state = lift(self.body, self.combiner, self.recipe, self.statement.values)
            top = self._named(self.tile(state[0], 0), "tile").text
            self._softmax(top, lambda base: f"tl.exp({top} - {base})")
        elif name == "welford":
            self._two_passes(points)
        elif self._ordered:
            self._results(self._in_order())
        else:
            self._results(self._reduced([value.text for value in self.tiles()]))

    def empty(self) -> None:
        """Define the results of a reduction over no point."""
        depth = self.body.writer.depth
        self._results(
            [
                self.body.writer.define(
                    "empty", f"tl.full([], {identity}, {triton_type(dtype)})", frozenset(), depth
                )
                for dtype, identity in zip(self.recipe.dtypes, self.recipe.identity)
            ]
        )

    def single(self) -> None:
        """Define the results of a phase of one point."""
        state = lift(self.body, self.combiner, self.recipe, self.statement.values)
        self._results(
            [
                self._named(replace(value, text=self.body.typed(value, dtype), literal=False), "single")
                for value, dtype in zip(state, self.recipe.dtypes)
            ]
        )

    def _reduced(self, tiles: Sequence[str]) -> list[Value]:
        if self.recipe.whole:
            return [self._define(self._name, self.recipe.whole.format(tiles[0], axis=self._axis))]
        if len(tiles) == 1:
            return [self._define(self._name, f"tl.reduce({tiles[0]}, {self._axis}, {self.recipe.function})")]
        names = [self.body.writer.names.fresh("reduced") for _ in tiles]
        call = f"tl.reduce(({', '.join(tiles)}), {self._axis}, {self.recipe.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        return [self._define(f"{self._name}_{k}", name) for k, name in enumerate(names)]

    def _in_order(self) -> list[Value]:
        """The tile combined from left to right, which a reduction tree does not promise."""
        tiles = [value.text for value in self.tiles()]
        names = [self.body.writer.names.fresh("scanned") for _ in tiles]
        operands = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
        call = f"tl.associative_scan({operands}, {self._axis}, {self.recipe.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        dims, depth = self.every - {"r"}, self.body.writer.depth
        return [
            self.body.writer.define("reduced", last_column(self.body, name, dtype), dims, depth)
            for name, dtype in zip(names, self.recipe.dtypes)
        ]

    def _define(self, base: str, text: str) -> Value:
        """A name for a reduced tile."""
        return self.body.writer.define(
            base, kept(self.body, text), self.every - {"r"}, self.body.writer.depth
        )

    def _softmax(self, top: str, scaled: Callable[[str], str]) -> None:
        maximum = self._define("maximum", f"tl.reduce({top}, {self._axis}, litz_max)")
        base = f"litz_finite_or_zero({maximum.text})"
        total = self._define("total", f"tl.sum({scaled(base)}, {self._axis})")
        self._results([maximum, total])

    def _two_passes(self, points: int) -> None:
        """Mean, then squares: exact where the row is at hand, and cheaper than merging."""
        body, dtype = self.body, self.recipe.dtypes[0]
        (value, *_) = lift(body, self.combiner, self.recipe, self.statement.values)
        tile = self._named(self.tile(value, 0), "tile").text
        total = self._define("total", f"tl.sum({tile}, {self._axis})")
        mean = body.writer.define("mean", f"{total.text} / {float(points)}", total.dims, total.depth)
        delta = Value(f"{tile} - {mean.text}", self.every, total.depth)
        masked = self._named(self.tile(delta, 0), "delta").text
        squares = self._define("squares", f"tl.sum({masked} * {masked}, {self._axis})")
        count = f"tl.full([], {float(points)}, {triton_type(dtype)})"
        self._results([mean, squares, body.writer.define("count", count, frozenset(), total.depth)])

    def _results(self, state: Sequence[Value]) -> None:
        done = finish(self.body, self.combiner, state, self.recipe)
        for (name, dtype), (value, source) in zip(self.statement.results, done):
            self.body.scalars[name] = (converted(self.body, value, source, dtype), dtype)
