"""Matmuls as loops: on a GPU, on request, so that prologues and epilogues fuse with them; on a CPU those of few rows,
and on request all of them, so that the order of their sums does not depend on the number of rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from litz_ir.contraction import F8, MATMULS, MatmulCall, matmul_call
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import (
    ContractionCall,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Value,
)
from litz_ir.scalar import Expr, Load, cast, const, op
from litz_ir.symbols import Size, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.few_rows import MOST_ROWS
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.matmul.grouped_gemm import grouped_gemm_loops, row_groups_of
from litz_scheduler.library.strategy import Candidate, Choice, Rewriting
from litz_scheduler.options import SchedulerOptions

_NOTES: Mapping[str, str] = MappingProxyType(
    {"mul_tf32": "TF32", "mul_f8": "fp8", "mul_f8_fast": "fp8, fast"}
)
"""The note on precision in the explanation of a generated matmul, by the scalar operation that multiplies."""

_MAX_16_BIT_ROWS = 4
"""The most rows of a matmul with a matrix of 16-bit floats that no loop computes: libraries multiply more rows in the
time of one, with instructions for pairs of such floats (8 rows, AVX-512: 0.66 of oneDNN's rate, 4 rows: 1.2)."""

_PAIR_FEATURES: Mapping[DType, str] = MappingProxyType({bf16: "avx512_bf16"})
"""The feature of a CPU whose kernels use such instructions too, by dtype."""


@dataclass(frozen=True, slots=True)
class GeneratedMatmuls:
    """Matmuls on a GPU, and on a CPU those of few rows or under ``batch_invariant``, as sums and pointwise epilogues.

    The accumulator is f32, or i32 for integers; the result is rounded once, as a library does.
    """

    options: SchedulerOptions
    """``generated_matmuls`` selects the calls on a GPU, ``few_rows_bytes`` and ``batch_invariant`` those on a CPU;
    ``matmul_precision`` sets the rounding of f32 operands."""
    name: str = "generated-matmuls"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        machine = rewriting.machine(call.results[0]) if call.target in MATMULS else None
        if machine is None or (machine.is_gpu and not self._is_requested(call)):
            return None
        known = matmul_call(call, rewriting.values)
        everywhere = machine.is_gpu or self.options.batch_invariant
        if known is None or not (everywhere or self._has_few_rows(known, rewriting.computed, machine)):
            return None
        multiply = self._multiplication(known, machine)
        rewrite = partial(matmul_loops, call, known, multiply)
        if known.offsets is not None:
            groups = row_groups_of(call, known, rewriting.graph.symbols)
            if groups is None:
                return None
            rewrite = partial(grouped_gemm_loops, groups, known, multiply)
        on_cpu = reasons.LIBRARY_INVARIANT if self.options.batch_invariant else reasons.LIBRARY_FEW_ROWS
        reason = reasons.LIBRARY_GENERATED if machine.is_gpu else on_cpu
        choices = (Choice(call.name, "generate", reason),)
        return Candidate(choices, rewrite, note=_NOTES.get(multiply, ""))

    def _is_requested(self, operation: ContractionCall) -> bool:
        return self.options.generates(operation.name, operation.origin.node)

    def _has_few_rows(self, call: MatmulCall, computed: Collection[str], device: Capabilities) -> bool:
        """Return whether a CPU's time for a matmul is that of reading B, whose columns are contiguous in memory."""
        if not self.options.few_rows_bytes:
            return False
        type_ = call.b.type
        if len(call.result.type.shape) != 2 or call.accumulator != f32 or call.offsets is not None:
            return False
        rows, by_k = call.a.type.shape[0], type_.layout.strides[-1 if call.b_transposed else 0]
        stored = call.b.name not in computed
        as_is = stored and type_.dtype in (bf16, f16)
        in_pairs = _PAIR_FEATURES.get(type_.dtype) in device.features
        limit = _MAX_16_BIT_ROWS if as_is and not in_pairs else MOST_ROWS
        few = isinstance(rows, int) and 0 < rows <= limit and call.a.type.layout.strides[-1] == 1 == by_k
        sizes = [size for size in type_.shape if isinstance(size, int)]
        known = few and len(sizes) == len(type_.shape)
        # Before a call, a matrix that loops compute is written to memory first.
        least = self.options.few_rows_bytes if stored else 0
        return known and math.prod(sizes) * type_.dtype.itemsize >= least

    def _multiplication(self, call: MatmulCall, device: Capabilities) -> str:
        """Return the scalar operation that multiplies elements with the precision of a library's matmul."""
        dtype = call.a.type.dtype
        if dtype in F8 and device.fp8_matmul:
            return "mul_f8_fast" if call.fast else "mul_f8"
        return "mul_tf32" if dtype == f32 and self.options.matmul_precision == "tf32" else "mul"


def matmul_loops(operation: ContractionCall, call: MatmulCall, multiply: str) -> tuple[Operation, ...]:
    """Return the sum over K, and the loop that applies the epilogue and rounds once."""
    type_, epilogue = call.result.type, call.epilogue
    layout = replace(type_.layout, fixed=False)
    total = Value(f"{operation.name}.sum", replace(type_, dtype=call.accumulator, layout=layout))
    if epilogue.is_identity and type_.dtype == call.accumulator:
        return (_sum(operation, call, call.result, multiply),)
    axes = element_axes(type_)
    points = tuple(symbol(axis.name) for axis in axes)
    body: Expr = Load(total.name, points, call.accumulator)
    if epilogue.alpha != 1:
        body = op("mul", body, const(epilogue.alpha, f32))
    for scale in epilogue.scales:
        body = op("mul", body, _broadcast(scale, points))
    if epilogue.bias is not None:
        bias = _broadcast(epilogue.bias, points)
        body = op("add", body, bias if epilogue.beta == 1 else op("mul", bias, const(epilogue.beta, f32)))
    rounded = Pointwise(
        results=operation.results, axes=axes, bodies=(cast(body, type_.dtype),), origin=operation.origin
    )
    return _sum(operation, call, total, multiply), rounded


def _sum(operation: ContractionCall, call: MatmulCall, total: Value, multiply: str) -> Reduction:
    """Return the sum over K of A times B, multiplied by the scalar operation ``multiply``."""
    nest = call.nest(multiply)
    return Reduction(
        results=(total,), axes=nest.outer, reduce_axes=nest.k, combiner=NamedCombiner("sum"), bodies=(nest.summand,),
        origin=operation.origin,
    )  # fmt: skip


def _broadcast(value: Value, points: tuple[Size, ...]) -> Expr:
    """Return the f32 element of a value at a point of the result, with PyTorch's broadcasting."""
    shape = value.type.shape
    own = points[len(points) - len(shape) :]
    index = tuple(0 if size == 1 else at for size, at in zip(shape, own, strict=True))
    return cast(Load(value.name, index, value.type.dtype), f32)
