"""Separation of a matmul from its bias where a generated kernel that reads the sum can add the bias itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.contraction import plain_operands
from litz_ir.dtypes import f32, f64
from litz_ir.loops import (
    Axis,
    ContractionCall,
    Pointwise,
    TensorType,
    Value,
)
from litz_ir.scalar import Load, op
from litz_ir.symbols import Size, symbol
from litz_scheduler import reasons
from litz_scheduler.library.strategy import Candidate, Choice, Rewriting


@dataclass(frozen=True, slots=True)
class UnfusedBias:
    """``addmm`` on a GPU as ``mm`` and a pointwise addition, where only generated kernels read the result.

    The library has more routines for ``mm`` than for ``addmm``, and the readers add the bias in registers. ``f32`` and
    ``f64`` alone: lower precisions would be rounded before the addition.
    """

    name: str = "unfused-bias"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        types = _bias_types(call, rewriting.values)
        if types is None or rewriting.gpu(call.results[0]) is None or call.name in rewriting.in_memory:
            return None
        return Candidate((Choice(call.name, "call", reasons.LIBRARY_BIAS),), lambda: _unfused(call, *types))


def _bias_types(
    addmm: ContractionCall, values: Mapping[str, Value]
) -> tuple[TensorType, str, TensorType] | None:
    """Return the type of the result, the name of the bias and its type; ``None`` where the pass does not apply."""
    operands = plain_operands(addmm)
    bias = None if operands is None else operands[0]
    if bias is None:
        return None
    type_, bias_type = addmm.results[0].type, values[bias].type
    return (type_, bias, bias_type) if type_.dtype in (f32, f64) and bias_type.dtype == type_.dtype else None


def _unfused(
    addmm: ContractionCall, type_: TensorType, bias: str, bias_type: TensorType
) -> tuple[ContractionCall, Pointwise]:
    matmul = Value(f"{addmm.name}.matmul", type_)
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(type_.shape))
    points = tuple(symbol(axis.name) for axis in axes)
    own = points[len(points) - len(bias_type.shape) :]
    index: tuple[Size, ...] = tuple(
        0 if size == 1 else at for size, at in zip(bias_type.shape, own, strict=True)
    )
    body = op("add", Load(matmul.name, points, type_.dtype), Load(bias, index, type_.dtype))
    call = replace(addmm, target="aten.mm.default", results=(matmul,), arguments=addmm.arguments[1:])
    return call, Pointwise(results=addmm.results, axes=axes, bodies=(body,), origin=addmm.origin)
