"""Reductions and scans over the last axis of arrays.

Sums, products and Welford's moments of floats are computed in ``f64`` and rounded once: the meaning is the nearest
value. Integers wrap at their own width. A user-given combiner combines neighbours in order, as associativity allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from litz_ir.dtypes import DType, b1
from litz_ir.errors import GraphError
from litz_ir.interp.body import BodyEvaluator, PointGrid
from litz_ir.interp.encoding import Array, compute_type, round_to
from litz_ir.interp.scalar import apply
from litz_ir.loops.nodes import Combiner, UserCombiner
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr

Values = Sequence[Array]
CombineFunction = Callable[[Values, Values], list[Array]]


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
        if isinstance(combiner, UserCombiner):
            found = _reduce_by_body(combiner, values, symbols)
        else:
            found = _reduce_by_name(combiner.name, values, sources)
        return [convert(value, dtype) for value, dtype in zip(found, results, strict=True)]


def scan_last(
    combiner: Combiner,
    values: Values,
    sources: Sequence[DType],
    results: Sequence[DType],
    symbols: Mapping[str, int | float],
) -> list[Array]:
    """The inclusive running combination along the last axis, or the sorted axis; shapes do not change."""
    with np.errstate(all="ignore"):
        if isinstance(combiner, UserCombiner):
            running = _prefixes(values, lambda a, b: evaluate_params(combiner.body, (*a, *b), symbols))
            found = evaluate_params(combiner.finish, running, symbols)
        else:
            found = _scan_by_name(combiner.name, values, sources)
        shape = values[0].shape
        return [convert(np.broadcast_to(v, shape), dtype) for v, dtype in zip(found, results, strict=True)]


def convert(value: Array, dtype: DType) -> Array:
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


def extreme(dtype: DType, largest: bool) -> Array:
    """The largest or smallest value of a dtype, infinities included."""
    if dtype.is_float:
        return np.asarray(np.inf if largest else -np.inf, compute_type(dtype))
    if dtype.is_bool:
        return np.asarray(largest)
    info = np.iinfo(compute_type(dtype))
    return np.asarray(info.max if largest else info.min, compute_type(dtype))


# --- reductions ---------------------------------------------------------------------------------------------


def _reduce_by_name(name: str, values: Values, sources: Sequence[DType]) -> list[Array]:
    x, dtype = values[0], sources[0]
    match name:
        case "sum":
            return [np.asarray(np.sum(_widened(x, dtype), axis=-1, dtype=_widened(x, dtype).dtype))]
        case "prod":
            return [np.asarray(np.prod(_widened(x, dtype), axis=-1, dtype=_widened(x, dtype).dtype))]
        case "min" | "max":
            ufunc = np.maximum if name == "max" else np.minimum
            return [np.asarray(ufunc.reduce(x, axis=-1, initial=extreme(dtype, name == "min")))]
        case "any":
            return [np.asarray((x != 0).any(axis=-1))]
        case "all":
            return [np.asarray((x != 0).all(axis=-1))]
        case "xor":
            return [np.asarray(np.bitwise_xor.reduce(x, axis=-1))]
        case "argmin" | "argmax":
            return _reduce_position(name == "argmax", x, values[1], dtype)
        case "welford":
            wide = x.astype(np.float64)
            count = np.full(x.shape[:-1], float(x.shape[-1]))
            mean = wide.sum(axis=-1) / np.maximum(count, 1)
            return [mean, ((wide - mean[..., None]) ** 2).sum(axis=-1), count]
        case "online_softmax":
            peak = np.maximum.reduce(x, axis=-1, initial=extreme(dtype, False))
            return [peak, np.exp(x.astype(np.float64) - peak[..., None]).sum(axis=-1)]
        case "softmax_sum":
            peak = np.maximum.reduce(x, axis=-1, initial=extreme(dtype, False))
            base = np.where(np.isfinite(peak), peak, 0)
            weights = np.exp(x.astype(np.float64) - base[..., None])
            return [peak, weights.sum(axis=-1), (weights * values[1].astype(np.float64)).sum(axis=-1)]
    raise GraphError(f"unknown combiner {name!r}")


def _widened(x: Array, dtype: DType) -> Array:
    """The operand as sums use it: floats in ``f64``, bools as integers, integers at their own width."""
    if dtype.is_float:
        return x.astype(np.float64)
    return x.astype(np.int64) if dtype.is_bool else x


def _reduce_position(largest: bool, x: Array, position: Array, dtype: DType) -> list[Array]:
    """The extreme value and the smallest position at which it occurs; NaN wins over numbers."""
    ufunc = np.maximum if largest else np.minimum
    best = ufunc.reduce(x, axis=-1, initial=extreme(dtype, not largest))
    tied = x == best[..., None]
    if dtype.is_float:
        tied |= np.isnan(x) & np.isnan(best)[..., None]
    last = np.iinfo(position.dtype).max
    return [best, np.minimum.reduce(np.where(tied, position, last), axis=-1, initial=last)]


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


# --- scans --------------------------------------------------------------------------------------------------


def _scan_by_name(name: str, values: Values, sources: Sequence[DType]) -> list[Array]:
    x, dtype = values[0], sources[0]
    match name:
        case "sum":
            return [np.add.accumulate(_widened(x, dtype), axis=-1)]
        case "prod":
            return [np.multiply.accumulate(_widened(x, dtype), axis=-1)]
        case "min":
            return [np.minimum.accumulate(x, axis=-1)]
        case "max":
            return [np.maximum.accumulate(x, axis=-1)]
        case "any":
            return [np.logical_or.accumulate(x != 0, axis=-1)]
        case "all":
            return [np.logical_and.accumulate(x != 0, axis=-1)]
        case "xor":
            return [np.bitwise_xor.accumulate(x, axis=-1)]
        case "argmin" | "argmax":
            return _prefixes(values, lambda a, b: _better(name == "argmax", a, b, dtype))
        case "welford":
            wide = x.astype(np.float64)
            start = (wide, np.zeros_like(wide), np.ones_like(wide))
            return _prefixes(start, _merge_moments)
        case "online_softmax":
            wide = x.astype(np.float64)
            return _prefixes((wide, np.exp(wide - wide)), _merge_softmax)
        case "softmax_sum":
            wide, value = (each.astype(np.float64) for each in values)
            weight = np.where(np.isneginf(wide), 0.0, np.exp(wide - wide))
            return _prefixes((wide, weight, weight * value), _merge_softmax)
        case "sort":
            return [np.sort(x, axis=-1)[..., ::-1]]
    raise GraphError(f"unknown combiner {name!r}")


def _prefixes(values: Values, combine: CombineFunction) -> list[Array]:
    """Inclusive prefixes by doubling distances (Hillis and Steele, 1986), which preserves the order of operands."""
    running = [np.array(v) for v in values]
    distance = 1
    while distance < running[0].shape[-1]:
        merged = combine([r[..., :-distance] for r in running], [r[..., distance:] for r in running])
        running = [np.concatenate([r[..., :distance], m], axis=-1) for r, m in zip(running, merged)]
        distance *= 2
    return running


def _better(largest: bool, a: Values, b: Values, dtype: DType) -> list[Array]:
    keep = apply("ge" if largest else "le", [a[0], b[0]], dtype, b1)
    if dtype.is_float:
        keep = (keep & ~np.isnan(b[0])) | np.isnan(a[0])
    return [np.where(keep, x, y) for x, y in zip(a, b)]


def _merge_moments(a: Values, b: Values) -> list[Array]:
    """Merge (mean, sum of squared differences, count) of two parts (Chan, Golub and LeVeque, 1979)."""
    count = a[2] + b[2]
    delta = b[0] - a[0]
    return [a[0] + delta * b[2] / count, a[1] + b[1] + delta * delta * a[2] * b[2] / count, count]


def _merge_softmax(a: Values, b: Values) -> list[Array]:
    """Merge a maximum, and sums relative to it, of two parts."""
    peak = np.maximum(a[0], b[0])
    shares = [np.where(v[1] == 0, 0.0, np.exp(v[0] - peak)) for v in (a, b)]
    return [peak, *(x * shares[0] + y * shares[1] for x, y in zip(a[1:], b[1:]))]
