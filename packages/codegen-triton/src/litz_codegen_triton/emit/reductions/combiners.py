"""Combiners on tiles: the components of a state, the function that merges two states, and the results of a state.

The state of a reduction or a scan is one tile per component: one for sums and the like, (value, index) for
``argmax``, (mean, squares, count) for Welford's method, (maximum, sum) for the online softmax, (maximum, sum, weighted
sum) for ``softmax_sum``. Points outside the loop nest have the identity, so merging two states needs no mask.

A kind of reduction without a row here is written by its definition: the merge becomes a function like a user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.settings import EmitSettings
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import Form, triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, compute_dtype, extreme_value, i32
from litz_ir.loops import SORT, Combiner, NamedCombiner, StateDefinition, UserCombiner
from litz_ir.scalar import Const, Expr, Param, cast, const, substitute_params


@dataclass(frozen=True, slots=True)
class Spelling:
    """A kind of reduction in Triton, over floats or over integers; a format is empty where Triton has none."""

    function: str
    """The name of the function that merges two states: components of the first, then of the second."""
    step: str = ""
    """A format of the merge of two components ``{0}`` and ``{1}``."""
    whole: str = ""
    """A format of the reduction of ``{0}`` along ``{axis}``."""
    running: str = ""
    """A format of the scan of ``{0}`` along ``{axis}``."""
    state: tuple[int | str, ...] = (0,)
    """The state of a point: positions among its values, and literals."""


_SUM = Spelling("litz_add", "{0} + {1}", "tl.sum({0}, {axis})", "tl.cumsum({0}, {axis})")
_PROD = Spelling("litz_mul", "{0} * {1}", "", "tl.cumprod({0}, {axis})")
_INT_MIN = Spelling("litz_int_min", "tl.minimum({0}, {1})", "tl.min({0}, {axis})")
_INT_MAX = Spelling("litz_int_max", "tl.maximum({0}, {1})", "tl.max({0}, {axis})")
_ARGMIN = Spelling("litz_argmin", state=(0, 1))
_ARGMAX = Spelling("litz_argmax", state=(0, 1))

FLOAT_SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        "sum": _SUM,
        "prod": _PROD,
        "min": Spelling("litz_min", "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
        "max": Spelling("litz_max", "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
        "argmin": _ARGMIN,
        "argmax": _ARGMAX,
        "welford": Spelling("litz_welford", state=(0, "0.0", "1.0")),
        # A score is relative to itself until tiles are reduced; see ``softmax``.
        "online_softmax": Spelling("litz_online_softmax", state=(0, "1.0")),
        "softmax_sum": Spelling("litz_softmax_sum", state=(0, "1.0", 1)),
    }
)
"""The rows of kinds over floats."""
INTEGER_SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        "sum": _SUM,
        "prod": _PROD,
        "min": _INT_MIN,
        "max": _INT_MAX,
        "any": _INT_MAX,
        "all": _INT_MIN,
        "xor": Spelling("litz_xor", "{0} ^ {1}", "tl.xor_sum({0}, {axis})"),
        "argmin": _ARGMIN,
        "argmax": _ARGMAX,
        "sort": Spelling("", running="litz_sort({0}, {axis})"),
    }
)
"""The rows of kinds over integers and bools."""


@dataclass(frozen=True, slots=True)
class CombinerSpec:
    """A combiner of given values, spelt in Triton; a format is empty where Triton has none."""

    dtypes: tuple[DType, ...]
    """The dtype of each component of a state."""
    identity: tuple[str, ...]
    """The identity of each component, as a literal."""
    function: str
    """The name of the function that merges two states: components of the first, then of the second."""
    state: tuple[Expr | str, ...]
    """The state of a point: expressions and literals."""
    step: str = ""
    """A format of the merge of two components ``{0}`` and ``{1}``."""
    whole: str = ""
    """A format of the reduction of ``{0}`` along ``{axis}``."""
    running: str = ""
    """A format of the scan of ``{0}`` along ``{axis}``."""


def combiner_spec(combiner: Combiner, values: Sequence[Expr], function: str = "") -> CombinerSpec:
    """Return the Triton spelling of a combiner of values.

    ``function`` names the merge function of a combiner without a row.
    """
    found = written_out(combiner, values)
    if found is not None:
        own, state = found
        dtypes = tuple(expr.dtype for expr in own.identity)
        return CombinerSpec(dtypes, tuple(map(_literal_text, own.identity)), function, state)
    assert isinstance(combiner, NamedCombiner)
    row, identity = _spellings(values[0].dtype)[combiner.name], _identity(combiner, values)
    return CombinerSpec(
        tuple(expr.dtype for expr in identity),
        tuple(map(_literal_text, identity)),
        row.function,
        tuple(values[each] if isinstance(each, int) else each for each in row.state),
        row.step,
        row.whole,
        row.running,
    )


def written_out(combiner: Combiner, values: Sequence[Expr]) -> tuple[UserCombiner, tuple[Expr, ...]] | None:
    """Return a combiner without a row as a user combiner, with the state of a point; ``None`` if it has a row."""
    if isinstance(combiner, UserCombiner):
        return combiner, tuple(values)
    if combiner.name in _spellings(values[0].dtype):
        return None
    definition = _tile_definition(combiner, _state_dtypes(values))
    operands = tuple(cast(value, _state_dtype(value.dtype)) for value in values)
    state = tuple(substitute_params(each, operands) for each in definition.initial)
    return UserCombiner(definition.merge, definition.identity, definition.components), state


def _spellings(dtype: DType) -> Mapping[str, Spelling]:
    return FLOAT_SPELLINGS if dtype.is_float else INTEGER_SPELLINGS


def _state_dtype(dtype: DType) -> DType:
    """Return the dtype of a state: i32 for bools and short integers, as in Triton's own, f32 for narrow floats."""
    if dtype.is_bool or (dtype.is_integer and dtype.bits < 32):
        return i32
    return compute_dtype(dtype)


def _identity(combiner: NamedCombiner, values: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the identity; of a sort, the last key in descending order."""
    if combiner == SORT:
        state = _state_dtype(values[0].dtype)
        return (const(extreme_value(state, largest=False), state),)
    return _tile_definition(combiner, _state_dtypes(values)).identity


def _state_dtypes(values: Sequence[Expr]) -> tuple[DType, ...]:
    return tuple(_state_dtype(value.dtype) for value in values)


@cache
def _tile_definition(combiner: NamedCombiner, dtypes: tuple[DType, ...]) -> StateDefinition:
    """Return the definition of a kind on tiles, whose states have neither bools nor short integers."""
    found = combiner.kind.definition(dtypes)
    states = tuple(map(_state_dtype, found.dtypes))
    narrow = [
        cast(Param(position, state), dtype)
        for position, (state, dtype) in enumerate(zip(states * 2, found.dtypes * 2, strict=True))
    ]
    merge = (substitute_params(each, narrow) for each in found.merge)
    identity, initial, merged = (
        tuple(cast(each, state) for each, state in zip(part, states, strict=True))
        for part in (found.identity, found.initial, merge)
    )
    return StateDefinition(identity, initial, merged)


def _literal_text(expr: Expr) -> str:
    """Return the text of an identity's component."""
    assert isinstance(expr, Const), "an identity is a literal"
    if expr.dtype.is_float and abs(float(expr.value)) == float("inf"):
        return 'float("inf")' if float(expr.value) > 0 else 'float("-inf")'
    return repr(expr.value)


def initial_state(body: TileEmitter, found: CombinerSpec) -> tuple[EmittedValue, ...]:
    """Write the state of one point, a tile per component."""
    written = []
    for expr, dtype in zip(found.state, found.dtypes):
        if isinstance(expr, str):
            written.append(EmittedValue(expr, literal=True))
            continue
        value = body.value(expr)
        text = casts.cast(typed(value, expr.dtype), compute_dtype(expr.dtype), dtype, body.form)
        written.append(EmittedValue(text, value.dims, value.depth))
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
