"""Combiners on tiles: the components of a state, the function that merges two states, and the results of a state.

The state of a reduction or a scan is one tile per component: one for sums and the like, (value, index) for
``argmax``, (mean, squares, count) for Welford's method, (maximum, sum) for the online softmax, (maximum, sum, weighted
sum) for ``softmax_sum``. Points outside the loop nest have the identity, so merging two states needs no mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.settings import EmitSettings
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import Form, triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, compute_dtype, i32, i64
from litz_ir.loops import Combiner, NamedCombiner, UserCombiner
from litz_ir.scalar import Const, Expr, Param

_LAST_INDEX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CombinerSpec:
    """A combiner over values of given dtypes, spelt in Triton. A format is empty where Triton has no such spelling."""

    dtypes: tuple[DType, ...]
    """The dtype of each component of a state."""
    identity: tuple[str, ...]
    """The identity of each component, as a literal."""
    function: str
    """The name of the function that merges two states: components of the first, then of the second."""
    step: str = ""
    """A format of the merge of two components ``{0}`` and ``{1}``."""
    whole: str = ""
    """A format of the reduction of ``{0}`` along ``{axis}``."""
    running: str = ""
    """A format of the scan of ``{0}`` along ``{axis}``."""


# By combiner: identity, function, step, whole, running.
_FLOATS: Mapping[str, tuple[str, str, str, str, str]] = {
    "sum": ("0.0", "litz_add", "{0} + {1}", "tl.sum({0}, {axis})", "tl.cumsum({0}, {axis})"),
    "prod": ("1.0", "litz_mul", "{0} * {1}", "", "tl.cumprod({0}, {axis})"),
    "min": ('float("inf")', "litz_min", "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "", ""),
    "max": ('float("-inf")', "litz_max", "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "", ""),
}
# By combiner: function, step, whole, running.
_INTEGERS: Mapping[str, tuple[str, str, str, str]] = {
    "sum": ("litz_add", "{0} + {1}", "tl.sum({0}, {axis})", "tl.cumsum({0}, {axis})"),
    "prod": ("litz_mul", "{0} * {1}", "", "tl.cumprod({0}, {axis})"),
    "min": ("litz_int_min", "tl.minimum({0}, {1})", "tl.min({0}, {axis})", ""),
    "max": ("litz_int_max", "tl.maximum({0}, {1})", "tl.max({0}, {axis})", ""),
    "any": ("litz_int_max", "tl.maximum({0}, {1})", "tl.max({0}, {axis})", ""),
    "all": ("litz_int_min", "tl.minimum({0}, {1})", "tl.min({0}, {axis})", ""),
    "xor": ("litz_xor", "{0} ^ {1}", "tl.xor_sum({0}, {axis})", ""),
    "sort": ("", "", "", "litz_sort({0}, {axis})"),
}


def _state_dtype(dtype: DType) -> DType:
    """Return the dtype of a state: i32 for bools and short integers, as in Triton's own, f32 for narrow floats."""
    if dtype.is_bool or (dtype.is_integer and dtype.bits < 32):
        return i32
    return compute_dtype(dtype)


def _extreme(dtype: DType, largest: bool) -> str:
    """Return the largest or least value of a dtype as a literal, an infinity for floats."""
    if dtype.is_float:
        return 'float("inf")' if largest else 'float("-inf")'
    top = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
    return str(top if largest else (-top - 1 if dtype.kind == "int" else 0))


def _integer_identity(kind: str, state: DType) -> str:
    """Return the identity of a combiner of integers, as a literal."""
    match kind:
        case "min":
            return _extreme(state, True)
        case "max" | "sort":
            return _extreme(state, False)
        case "all" | "prod":
            return "1"
        case _:
            return "0"


def combiner_spec(combiner: Combiner, dtypes: Sequence[DType], function: str = "") -> CombinerSpec:
    """Return the Triton spelling of a combiner over values of these dtypes.

    ``function`` names the merge function of a :class:`UserCombiner`.
    """
    if isinstance(combiner, UserCombiner):
        own = tuple(expr.dtype for expr in combiner.identity)
        return CombinerSpec(own, tuple(_literal_text(expr) for expr in combiner.identity), function)
    state = _state_dtype(dtypes[0])
    match combiner.name:
        case "argmin" | "argmax":
            worst = _extreme(state, combiner.name == "argmin")
            return CombinerSpec((state, i64), (worst, str(_LAST_INDEX)), f"litz_{combiner.name}")
        case "welford":
            return CombinerSpec((state,) * 3, ("0.0",) * 3, "litz_welford")
        case "online_softmax":
            return CombinerSpec((state,) * 2, ('float("-inf")', "0.0"), "litz_online_softmax")
        case "softmax_sum":
            return CombinerSpec((state,) * 3, ('float("-inf")', "0.0", "0.0"), "litz_softmax_sum")
        case name if state.is_float:
            identity, merge, step, whole, running = _FLOATS[name]
            return CombinerSpec((state,), (identity,), merge, step, whole, running)
        case name:
            return CombinerSpec((state,), (_integer_identity(name, state),), *_INTEGERS[name])


def _literal_text(expr: Expr) -> str:
    """Return the text of an identity's component."""
    assert isinstance(expr, Const), "an identity is a literal"
    if expr.dtype.is_float and abs(float(expr.value)) == float("inf"):
        return _extreme(expr.dtype, float(expr.value) > 0)
    return repr(expr.value)


def initial_state(
    body: TileEmitter, combiner: Combiner, found: CombinerSpec, values: Sequence[Expr]
) -> tuple[EmittedValue, ...]:
    """Write the state of one point, a tile per component."""
    written = []
    for expr, dtype in zip(values, found.dtypes):
        value = body.value(expr)
        text = casts.cast(typed(value, expr.dtype), compute_dtype(expr.dtype), dtype, body.form)
        written.append(EmittedValue(text, value.dims, value.depth))
    if isinstance(combiner, NamedCombiner) and combiner.name == "welford":
        written += [EmittedValue("0.0", literal=True), EmittedValue("1.0", literal=True)]
    elif isinstance(combiner, NamedCombiner) and combiner.name == "online_softmax":
        written.append(EmittedValue("1.0", literal=True))
    elif isinstance(combiner, NamedCombiner) and combiner.name == "softmax_sum":
        written.insert(1, EmittedValue("1.0", literal=True))
    return tuple(written)


def combiner_results(
    body: TileEmitter, combiner: Combiner, state: Sequence[EmittedValue], found: CombinerSpec
) -> tuple[tuple[EmittedValue, DType], ...]:
    """Write the results of a state, each with its dtype."""
    if isinstance(combiner, NamedCombiner) or _finishes_as_it_is(combiner):
        return tuple(zip(state, found.dtypes))
    names = [body.writer.names.fresh("finished") for _ in combiner.finish]
    body.writer.line(
        f"{', '.join(names)} = {found.function}_finish({', '.join(value.text for value in state)})"
    )
    values = (EmittedValue(name, state[0].dims, body.writer.depth) for name in names)
    return tuple(zip(values, (expr.dtype for expr in combiner.finish)))


def _finishes_as_it_is(combiner: UserCombiner) -> bool:
    """True where the results are the components of the state."""
    same = tuple(Param(k, expr.dtype) for k, expr in enumerate(combiner.identity))
    return combiner.finish == same


def converted(body: TileEmitter, value: EmittedValue, source: DType, result: DType) -> EmittedValue:
    """Convert a result from the dtype of the state to that of the result."""
    text = casts.cast(typed(value, source), source, result, body.form)
    return value if text == value.text else body.writer.define("result", text, value.dims, value.depth)


def combine_functions(name: str, combiner: UserCombiner, form: Form) -> tuple[str, ...]:
    """Return the source of a user's merge function, and of its finish function unless results are the state itself."""
    count = combiner.inputs
    merge = _function(name, [f"{state}{k}" for state in "ab" for k in range(count)], combiner.body, form)
    if _finishes_as_it_is(combiner):
        return (merge,)
    return merge, _function(f"{name}_finish", [f"a{k}" for k in range(count)], combiner.finish, form)


def _function(name: str, params: Sequence[str], results: Sequence[Expr], form: Form) -> str:
    """Return the source of a function that computes expressions of its parameters."""
    body = TileEmitter(EmitSettings(form, {}, {}, frozenset(), {}, False), ())
    body.params = tuple(EmittedValue(body.writer.names.fresh(param)) for param in params)
    returned = [typed(body.value(expr), expr.dtype) for expr in results]
    lines = [*body.writer.scopes[0].lines, f"return {', '.join(returned)}"]
    return f"@triton.jit\ndef {name}({', '.join(params)}):\n" + "\n".join(f"    {line}" for line in lines)


def last_column(body: TileEmitter, name: str, dtype: DType) -> str:
    """Return the text of the column of a scanned tile's last valid point, as the sum of a tile that is zero elsewhere.

    The last column of the tile itself may differ: its points past the end are the identity, and a user's combiner
    need not leave a state unchanged when the identity is on its right.
    """
    zero = "0.0" if dtype.is_float else "0"
    axis = len(body.tile.dims) - 1
    return f"{keep_dims(body, f'tl.sum(tl.where({body.masks.last}, {name}, {zero}), {axis})')}.to({triton_type(dtype)})"


def keep_dims(body: TileEmitter, text: str) -> str:
    """Return the text of a reduced tile with the reduced dimension as one of size 1."""
    axis = len(body.tile.dims) - 1
    return text + (f"[{':, ' * axis}None]" if axis else "")
