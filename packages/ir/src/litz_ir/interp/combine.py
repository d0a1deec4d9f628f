"""Reductions and scans over the last axis of arrays.

A combiner of the table is computed by the definition of its kind, with floats in ``f64``, and rounded once: the meaning
is the nearest value. Integers wrap at their own width. Kinds that NumPy computes faster, or nearer, have a row in
``numpy_kinds``. A user-given combiner combines neighbours in order, as associativity allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from litz_ir.dtypes import DType, f64
from litz_ir.errors import GraphError
from litz_ir.interp.body import BodyEvaluator, PointGrid
from litz_ir.interp.encoding import Array, compute_type, round_to
from litz_ir.interp.numpy_kinds import NUMPY_REDUCTIONS, NUMPY_SCANS
from litz_ir.loops.nodes import Combiner, UserCombiner
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr

Values = Sequence[Array]
_CombineFunction = Callable[[Values, Values], list[Array]]


def reduce_last(
    combiner: Combiner,
    values: Values,
    sources: Sequence[DType],
    results: Sequence[DType],
    symbols: Mapping[str, int | float],
) -> list[Array]:
    """Combine ``values``, arrays of one shape and of dtypes ``sources``, over their last axis.

    Returns one array for each result, without that axis, rounded to ``results``; the identity if the axis is empty.
    """
    with np.errstate(all="ignore"):
        function = None if isinstance(combiner, UserCombiner) else NUMPY_REDUCTIONS.get(combiner.name)
        if function is None:
            found = _reduce_by_body(*_states(combiner, values, sources, symbols), symbols)
        else:
            found = function(values, sources)
        return [_convert(value, dtype) for value, dtype in zip(found, results, strict=True)]


def scan_last(
    combiner: Combiner,
    values: Values,
    sources: Sequence[DType],
    results: Sequence[DType],
    symbols: Mapping[str, int | float],
) -> list[Array]:
    """The inclusive running combination along the last axis, or the sorted axis; shapes do not change."""
    with np.errstate(all="ignore"):
        function = None if isinstance(combiner, UserCombiner) else NUMPY_SCANS.get(combiner.name)
        if function is None:
            found = _scan_by_body(*_states(combiner, values, sources, symbols), symbols)
        else:
            found = function(values, sources)
        shape = values[0].shape
        return [_convert(np.broadcast_to(v, shape), dtype) for v, dtype in zip(found, results, strict=True)]


def _convert(value: Array, dtype: DType) -> Array:
    """A combined value converted to a dtype."""
    if dtype.is_bool:
        return np.asarray(value != 0)
    return round_to(np.asarray(value), dtype) if dtype.is_float else value.astype(compute_type(dtype))


def evaluate_params(
    bodies: Sequence[Expr], params: Values, symbols: Mapping[str, int | float]
) -> list[Array]:
    """Evaluate bodies over ``Param`` nodes elementwise."""
    shape = np.broadcast_shapes(*(p.shape for p in params)) if params else ()
    body = BodyEvaluator(PointGrid(shape, {}), _no_loads, symbols, params=params)
    return [np.asarray(body.value(expr)) for expr in bodies]


def _no_loads(load: Load, index: tuple[Array, ...], mask: Array | None) -> Array:
    raise GraphError(f"a combiner's body may not read buffers, this one reads {load.buffer}")


def _states(
    combiner: Combiner, values: Values, sources: Sequence[DType], symbols: Mapping[str, int | float]
) -> tuple[UserCombiner, Values]:
    """A combiner by its expressions, with the states of the elements; floats of a named one are in ``f64``."""
    if isinstance(combiner, UserCombiner):
        return combiner, values
    definition = combiner.kind.definition(tuple(f64 if dtype.is_float else dtype for dtype in sources))
    wide = [v.astype(np.float64) if dtype.is_float else v for v, dtype in zip(values, sources, strict=True)]
    states = evaluate_params(definition.initial, wide, symbols)
    shape = np.broadcast_shapes(*(v.shape for v in values))
    own = UserCombiner(definition.merge, definition.identity, definition.components)
    return own, [np.broadcast_to(state, shape) for state in states]


def _reduce_by_body(
    combiner: UserCombiner, values: Values, symbols: Mapping[str, int | float]
) -> list[Array]:
    """Combine neighbours as a tree; an odd last element waits for the next round."""
    shape = values[0].shape[:-1]
    identity = evaluate_params(combiner.identity, (), symbols)
    parts = [np.asarray(v) for v in values]
    while parts[0].shape[-1] > 1:
        even = parts[0].shape[-1] // 2 * 2
        paired = evaluate_params(
            combiner.body, (*(p[..., 0:even:2] for p in parts), *(p[..., 1:even:2] for p in parts)), symbols
        )
        parts = [np.concatenate([new, old[..., even:]], axis=-1) for new, old in zip(paired, parts)]
    start = [np.broadcast_to(i, shape) for i in identity]
    if parts[0].shape[-1] == 1:
        start = evaluate_params(combiner.body, (*start, *(p[..., 0] for p in parts)), symbols)
    return evaluate_params(combiner.finish, start, symbols)


def _scan_by_body(combiner: UserCombiner, values: Values, symbols: Mapping[str, int | float]) -> list[Array]:
    running = _prefixes(values, lambda a, b: evaluate_params(combiner.body, (*a, *b), symbols))
    return evaluate_params(combiner.finish, running, symbols)


def _prefixes(values: Values, combine: _CombineFunction) -> list[Array]:
    """Inclusive prefixes by doubling distances (Hillis and Steele, 1986), which preserves the order of operands."""
    running = [np.array(v) for v in values]
    distance = 1
    while distance < running[0].shape[-1]:
        merged = combine([r[..., :-distance] for r in running], [r[..., distance:] for r in running])
        running = [np.concatenate([r[..., :distance], m], axis=-1) for r, m in zip(running, merged)]
        distance *= 2
    return running
