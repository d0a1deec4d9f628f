"""Rates of a library's routines on a machine, and of loops in their place, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.target.field_checks import Check, accepts, at_least, check_fields, finite, nonempty_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineModel:
    """Measured rates of a library's contractions on a machine, and of the loops that may take their place.

    Shares are of ``DeviceModel.matrix_rate``. A target states them with the machine on which they were measured.
    """

    measured_on: str
    """Machine and library of the numbers."""

    matmul_share: float
    """The share that matmuls reach whose rows are loaded in whole vectors."""

    unaligned_matmul_shares: tuple[tuple[int, float], ...]
    """The share that matmuls reach whose rows are aligned to so many elements alone, by these elements. Other matmuls
    are taken for aligned ones."""

    matmul_loop_share: float
    """The share that a matmul as a loop reaches, whose result has rows of any length."""

    grouped_share: float
    """The share that convolutions in groups reach, zeros included."""

    group_slowness: float
    """Time in which the library pads a byte of an activation to groups of a power of two, by that in which memory moves
    one."""

    narrow_share: float
    """The share that convolutions over few channels reach, which the library pads to a vector."""

    narrow_gradient_share: float
    """Likewise the gradients of their weights."""

    narrow_columns: int
    """Output channels that the library computes at least at a time in these."""

    narrow_slowness: float
    """Time in which the library pads a byte of their input, by that in which memory moves one."""

    gathered_flops: float
    """Operations at ``DeviceModel.flop_rate`` that take as long as a loop's gathering of an element of an operand."""

    depthwise_taps: int
    """Most filter points of a depthwise convolution with a stride, and of a gradient of its input, that is quicker as a
    loop."""

    fused_depthwise_taps: int
    """Most filter points of one without a stride as a loop, which saves a pass over the result for its reader."""

    depthwise_sums: tuple[int, int, int]
    """Least and most filter points, and most output points of a batch element, of gradients of depthwise weights with a
    stride that are quicker as a sum for each filter point."""

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_PAIRS = accepts(
    lambda value: (
        isinstance(value, tuple)
        and all(
            isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is int and type(pair[1]) is float
            for pair in value
        )
    ),
    "a tuple of pairs of an int and a float",
)
_COUNTS = accepts(
    lambda value: isinstance(value, tuple) and len(value) == 3 and all(type(each) is int for each in value),
    "a tuple of three ints",
)
_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "measured_on": nonempty_text(),
        "matmul_share": finite(),
        "unaligned_matmul_shares": _PAIRS,
        "matmul_loop_share": finite(),
        "grouped_share": finite(),
        "group_slowness": finite(or_zero=True),
        "narrow_share": finite(),
        "narrow_gradient_share": finite(),
        "narrow_columns": at_least(1),
        "narrow_slowness": finite(or_zero=True),
        "gathered_flops": finite(or_zero=True),
        "depthwise_taps": at_least(0),
        "fused_depthwise_taps": at_least(0),
        "depthwise_sums": _COUNTS,
    }
)
"""The check of each field."""
