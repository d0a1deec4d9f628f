"""Transient memory of steps: bytes that a routine allocates while it runs, by formulas over its arguments.

The formulas give the bytes that oneDNN 3.x and ATen's attention on the CPU were measured to allocate. A routine
without a formula is assumed to allocate nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from litz_ir.contraction import CONVOLUTION, CONVOLUTION_BACKWARD, convolution_arguments
from litz_ir.device import CPU
from litz_ir.dtypes import bf16, f32
from litz_ir.loops import Ref, TensorType
from litz_ir.plan import CallStep, Placement, Plan, RegionStep, Step
from litz_ir.symbols import SymbolTable
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.library.layout.convolution_layouts import WIDE_FILTER, WIDE_FILTER_SUMS


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor argument, with sizes and strides at their hints."""

    shape: tuple[int, ...]
    """Its sizes."""
    strides: tuple[int, ...]
    """Its strides in elements."""
    bytes: int
    """The bytes of its elements."""
    fast: bool
    """True for f32 and bf16, which oneDNN computes itself."""

    @property
    def rows(self) -> bool:
        """True when elements along the last dimension are adjacent in memory."""
        return self.strides[-1] == 1 or self.shape[-1] == 1

    @property
    def channels_last(self) -> bool:
        """True when elements along the second dimension, and no other, are adjacent in memory."""
        return self.strides[1] == 1 and self.shape[1] != 1


_Operands = Callable[[CallStep], Sequence[str]]
"""A function from a step to the tensors that its formula reads; empty where it has none."""

_Formula = Callable[[Sequence[_Tensor], Sequence[_Tensor], int], int]
"""A function from those tensors, the used results and the number of threads to bytes."""


def transient_bytes(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    subplans: Sequence[Plan],
    symbols: SymbolTable,
    threads: int,
) -> dict[int, int]:
    """Return, by position, the bytes that steps allocate beyond their results, for those that allocate any.

    ``threads`` is the number of threads on which routines of the host run. Symbolic sizes count at their hints.
    """
    peaks = {plan.name: estimate(plan.peak, symbols) for plan in subplans}
    found: dict[int, int] = {}
    for position, step in enumerate(steps):
        if isinstance(step, RegionStep) and step.kind != "frozen":
            results = sum(estimate(placements[name].nbytes, symbols) for name in step.results)
            found[position] = max(0, max(peaks[name] for name in step.plans) - results)
        elif isinstance(step, CallStep) and (nbytes := _workspace(step, placements, symbols, threads)):
            found[position] = nbytes
    return found


def _workspace(
    step: CallStep, placements: Mapping[str, Placement], symbols: SymbolTable, threads: int
) -> int:
    """Return the bytes that a routine on the CPU allocates beyond its results."""
    row = _FORMULAS.get(step.target)
    if row is None:
        return 0
    operands, formula = row
    names = operands(step)
    if not names or any(placements[name].type.device != CPU for name in names):
        return 0
    given = [_tensor(placements[name].type, symbols) for name in names]
    results = [name for name in step.results if name is not None]
    made = [_tensor(placements[name].type, symbols) for name in results]
    return formula(given, made, max(1, threads))


def _convolved(step: CallStep) -> Sequence[str]:
    """Return the names of a convolution's output gradient, where there is one, its input and its weight."""
    given = convolution_arguments(step.target, step.arguments, step.attributes)
    if given is None:
        return ()
    return [each.name for each in (given.grad_output, given.input, given.weight) if each is not None]


def _leading(count: int) -> _Operands:
    """Return a function to the names of the first ``count`` arguments, where all of them are tensors."""

    def names(step: CallStep) -> Sequence[str]:
        found = [each.name for each in step.arguments[:count] if isinstance(each, Ref)]
        return found if len(found) == count else ()

    return names


def _tensor(type_: TensorType, symbols: SymbolTable) -> _Tensor:
    """Return a tensor type with its sizes and strides at their hints."""
    shape = tuple(estimate(size, symbols) for size in type_.shape)
    strides = tuple(estimate(stride, symbols) for stride in type_.layout.strides)
    return _Tensor(shape, strides, prod(shape) * type_.dtype.itemsize, type_.dtype in (f32, bf16))


_PANEL, _FEW, _MANY = 64, 512, 1024
"""oneDNN's GEMM copies panels of B, of this many rows by all columns up to ``_FEW``, else by at most ``_MANY``."""


def _linear(given: Sequence[_Tensor], made: Sequence[_Tensor], threads: int) -> int:
    """Return the bytes of oneDNN's copies of A and of panels of B."""
    x, weight = given
    copied = 0 if x.rows else x.bytes
    if not weight.rows:
        return copied
    columns = weight.shape[-1]
    width = columns if columns <= _FEW else _FEW if columns < _MANY else _MANY
    return copied + threads * _PANEL * width * 4


_PLAIN = 3
"""Up to this many channels oneDNN's convolutions read an input as it is, not in blocks of channels."""


def _convolution(given: Sequence[_Tensor], made: Sequence[_Tensor], threads: int) -> int:
    """Return the bytes of the weight's copy, and of copies of activations that are not channels-last."""
    x, weight = given
    if not x.fast:
        return 0
    if x.channels_last:
        return weight.bytes
    return max(x.bytes + weight.bytes, *(result.bytes for result in made))


_STRIDED = 24 << 10
"""Bytes that a thread takes beyond its part of the output gradient, for input gradients of strided convolutions."""


def _convolution_backward(given: Sequence[_Tensor], made: Sequence[_Tensor], threads: int) -> int:
    """Return the bytes of copies of the weight, its gradient and parts of the batch, or of other activations."""
    gradient, x, weight = given
    if not x.fast:
        return 0
    if x.channels_last:
        alone = weight.shape[1] == 1 and max(weight.shape[2:]) > WIDE_FILTER
        if alone:
            return WIDE_FILTER_SUMS * weight.bytes
        strided = any(2 * out <= size for out, size in zip(gradient.shape[2:], x.shape[2:], strict=True))
        parts = threads * (gradient.bytes // max(1, gradient.shape[0]) + _STRIDED) if strided else 0
        return max(2 * weight.bytes, (0 if weight.channels_last else weight.bytes) + parts)
    return gradient.bytes + (x.bytes if x.shape[1] > _PLAIN else 0)


def _attention_tile(queries: int, keys: int) -> tuple[int, int]:
    """Return the numbers of queries and keys in a tile of ATen's attention."""
    return (256 if queries >= 768 else 64 if queries >= 192 else 32), min(512, keys)


def _attention(given: Sequence[_Tensor], made: Sequence[_Tensor], threads: int) -> int:
    """Return the bytes of a tile of scores and results per thread."""
    query, key = given
    rows, columns = _attention_tile(query.shape[-2], key.shape[-2])
    return threads * rows * (columns + 2 + query.shape[-1]) * 4


def _attention_backward(given: Sequence[_Tensor], made: Sequence[_Tensor], threads: int) -> int:
    """Return the bytes of a tile of scores and of its gradient per thread."""
    _, query, key = given
    rows, columns = _attention_tile(query.shape[-2], key.shape[-2])
    return threads * 2 * rows * columns * 4


_FORMULAS: Mapping[str, tuple[_Operands, _Formula]] = MappingProxyType(
    {
        "linear": (_leading(2), _linear),
        CONVOLUTION: (_convolved, _convolution),
        CONVOLUTION_BACKWARD: (_convolved, _convolution_backward),
        "aten._scaled_dot_product_flash_attention_for_cpu.default": (_leading(2), _attention),
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (
            _leading(3),
            _attention_backward,
        ),
    }
)
"""The formula of each routine, and the tensors that it reads."""
