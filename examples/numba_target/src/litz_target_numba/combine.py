"""Named combiners: their accumulators, and the update by one more element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from litz_ir.dtypes import DType, b1, compute_dtype, f64
from litz_ir.loops import NamedCombiner
from litz_ir.scalar import Const
from litz_target_numba.ops_table import operation
from litz_target_numba.spelling import cast, literal

_OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "sum": "add",
        "prod": "mul",
        "min": "minimum",
        "max": "maximum",
        "any": "bit_or",
        "all": "bit_and",
        "xor": "bit_xor",
    }
)
"""Kinds of one accumulator, and the scalar operation that updates it."""
_FUNCTIONS = frozenset({"argmin", "argmax", "welford", "online_softmax"})
"""Kinds that a function of :mod:`litz_target_numba.functions.combining` updates."""
_IN_DOUBLE = frozenset({"sum", "prod", "welford", "online_softmax"})
"""Kinds that accumulate floats in ``float64``."""

SPELLED = frozenset({*_OPERATIONS, *_FUNCTIONS})
"""Kinds with a spelling here; the others are written out by their definitions."""


def accumulators(combiner: NamedCombiner, values: Sequence[DType]) -> list[tuple[DType, str]]:
    """Return dtype and identity of each accumulator, which becomes a result, over values of these dtypes.

    Floats below 32 bits are accumulated as ``float32`` or wider: some have no infinity to begin a minimum
    with.
    """
    wide = combiner.name in _IN_DOUBLE
    dtypes = tuple(f64 if wide and dtype.is_float else compute_dtype(dtype) for dtype in values)
    identity = combiner.kind.definition(dtypes).identity
    return [(each.dtype, literal(each.value, each.dtype)) for each in identity if isinstance(each, Const)]


def update(name: str, states: Sequence[str], values: Sequence[str], dtypes: Sequence[DType]) -> str:
    """Return the statement that adds an element, ``values`` of ``dtypes``, to the accumulators of a
    combiner."""
    targets = ", ".join(states)
    if name in _FUNCTIONS:
        return f"{targets} = {name}({targets}, {', '.join(values)})"
    spelled, dtype, value = _OPERATIONS[name], compute_dtype(dtypes[0]), values[0]
    if dtype.is_bool and name in ("sum", "prod"):
        spelled = "bit_or" if name == "sum" else "bit_and"
    if not dtype.is_bool and name in ("any", "all"):
        dtype, value = b1, f"({cast(value, dtype, b1)})"
    return f"{targets} = {operation(spelled, [targets, value], dtype, dtype)}"
