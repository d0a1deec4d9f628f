"""Seconds of contractions on a GPU by a library's routines, and by loops in their place, from a machine's numbers."""

from __future__ import annotations

from math import prod

from litz_ir.contraction import Convolution
from litz_ir.loops import TensorType
from litz_ir.target import DeviceModel, RoutineModel
from litz_scheduler.analysis.cost import static_bytes


def matmul_seconds(m: int, n: int, k: int, share: float, model: DeviceModel) -> float:
    """Return the seconds of a matmul that reaches a share of the peak rate."""
    return 2 * m * n * k / (share * model.matrix_rate)


def unaligned_matmul_share(alignment: int, routines: RoutineModel) -> float:
    """Return the share of the peak rate that the library reaches where rows are aligned to so many elements."""
    return dict(routines.unaligned_matmul_shares).get(alignment, routines.matmul_share)


def bias_seconds(type_: TensorType, model: DeviceModel) -> float:
    """Return the seconds of the library's kernel that adds a bias to a convolution's result, or sums its gradient."""
    return model.launch_seconds + static_bytes(type_) / model.memory_rate


def padded_convolution_seconds(convolution: Convolution, routines: RoutineModel, model: DeviceModel) -> float:
    """Return the seconds of a convolution, or of its weight's gradient, whose channels the library pads to vectors."""
    x = convolution.input.type
    batch, _, *points = convolution.output.type.shape
    rows = prod(size for size in (batch, *points) if isinstance(size, int))
    outputs, channels, *taps = (size for size in convolution.weight.type.shape if isinstance(size, int))
    vector = model.vector_bytes // x.dtype.itemsize
    padded = -(-channels // vector) * vector
    flops = 2 * rows * prod(taps) * padded * max(outputs, routines.narrow_columns)
    gradient = convolution.computed == "weight"
    share = routines.narrow_gradient_share if gradient else routines.narrow_share
    copied = static_bytes(x) * (1 + padded / channels)
    copies = routines.narrow_slowness * copied / model.memory_rate + model.launch_seconds
    return flops / (share * model.matrix_rate) + copies


def gathered_convolution_seconds(
    convolution: Convolution, routines: RoutineModel, model: DeviceModel
) -> float:
    """Return the seconds of a loop that gathers the elements of a convolution over few channels."""
    batch, _, *points = convolution.output.type.shape
    rows = prod(size for size in (batch, *points) if isinstance(size, int))
    outputs, channels, *taps = (size for size in convolution.weight.type.shape if isinstance(size, int))
    gathered = rows * prod(taps) * channels * -(-outputs // (2 * routines.narrow_columns))
    return routines.gathered_flops * gathered / model.flop_rate
