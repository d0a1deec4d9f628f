"""Capabilities of a device, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS
from litz_ir.scalar.ops_table import BUILT_IN, OPS
from litz_ir.target.device_model import DeviceModel
from litz_ir.target.field_checks import (
    Check,
    accepts,
    at_least,
    check_fields,
    flag,
    instance,
    names_of,
    nonempty_text,
)
from litz_ir.target.routine_model import RoutineModel

DeviceClass = Literal["cpu", "gpu"]
"""A class of devices: ``gpu`` for those whose kernels run as thread blocks on SMs, ``cpu`` for all others."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a device, and about its target's kernels, that passes may test; they never test names."""

    name: str
    """Name for reports and cache keys (``"avx512"``, ``"sm_90"``)."""
    device: Device = CPU
    """Kind of device."""
    model: DeviceModel = field(default_factory=DeviceModel)
    """Numbers of the machine."""
    scratch_bytes: int = 0
    """Most bytes of scratch arrays for one outer point; 0 for a target without scratch arrays."""
    max_tile_elements: int = 0
    """Most elements of a thread block's tile; 0 for a target without tiles."""
    max_statements: int = 512
    """Most statements that are emitted for one kernel body, which bounds compile time."""
    forward_progress: bool = False
    """True if a thread block may wait for another one that has started, as a look-back scan does."""
    graph_capture: bool = False
    """True if launches can be captured, and replayed by one call of the host, as CUDA graphs are."""
    max_subkernels: int = 1
    """Most invocations of a horizontally fused kernel; 1 for a target without horizontal fusion."""
    dtypes: frozenset[DType] = frozenset(ALL)
    """Dtypes that kernels can load, store and compute with."""
    atomics: frozenset[DType] = frozenset()
    """Dtypes of which a combining store may be atomic."""
    operations: frozenset[str] | None = None
    """Scalar operations that kernels compute, names of ``litz_ir.scalar.OPS``; ``None`` for all of litz's own."""
    combiners: frozenset[str] | None = None
    """Kinds of reductions that kernels combine by, names of ``litz_ir.loops.REDUCTION_KINDS``, and ``user`` for
    combiners given by expressions; ``None`` for all of them."""
    scans: bool = True
    """True if kernels scan: combine the elements up to and including each one."""
    combining_stores: frozenset[str] | None = None
    """Modes of stores that combine a value with the element in memory: ``add``, ``mul``, ``min`` and ``max``; ``None``
    for all of them."""
    faults: bool = True
    """True if kernels report values that they refuse, such as an index out of range."""
    index_bits: int = 64
    """Bits of the integers that kernels index memory and count loops with: 64 or 32."""
    fp8_matmul: bool = False
    """True if the device multiplies 8-bit floats at its own precision (``mul_f8``)."""
    nested_reductions: bool = False
    """True if bodies may contain nested reductions."""
    max_sorted_row: int = 0
    """Longest row that a scan may sort; 0 for a target without sorting scans."""
    features: frozenset[str] = frozenset()
    """Optional instructions that kernels may use beyond those for which ``name`` stands (``"avx512_vnni"``)."""
    panel_columns: int = 0
    """Columns of a panel of prepacked weights, by which kernels compute convolutions in tiles; 0 for a target that does
    not (:func:`litz_ir.contraction.tiled_sum`)."""
    blocked_attention: bool = False
    """True where sums over scores that :class:`litz_ir.plan.CpuAttention` describes run in blocks of rows and keys.
    Attention then becomes such sums; scores of what is not matched are stored."""
    copies: frozenset[tuple[DType, DType]] = frozenset()
    """Pairs of dtypes, of source and target, in which modules of the device keep copies of memory up to date
    (:class:`litz_ir.target.CopyingModule`)."""
    routines: RoutineModel | None = None
    """Rates of the host's library on the device; ``None`` leaves contractions to it that loops could take over."""

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)

    def computes(self, operation: str) -> bool:
        """Return whether kernels compute a scalar operation."""
        return operation in (BUILT_IN if self.operations is None else self.operations)

    def combines(self, combiner: str) -> bool:
        """Return whether kernels combine by a kind of reductions, or by ``user`` combiners."""
        return self.combiners is None or combiner in self.combiners

    def stores(self, mode: str) -> bool:
        """Return whether kernels run a combining store of a mode."""
        return self.combining_stores is None or mode in self.combining_stores

    @property
    def device_class(self) -> DeviceClass:
        """The class of the device."""
        return "gpu" if self.is_gpu else "cpu"

    @property
    def is_gpu(self) -> bool:
        """True for a device whose kernels run as thread blocks on SMs."""
        return self.model.sm_count > 0


COMBINING_MODES = ("add", "mul", "min", "max")
"""Modes of stores that combine a value with the element in memory."""

_DTYPES = accepts(
    lambda value: isinstance(value, frozenset) and all(isinstance(each, DType) for each in value),
    "a frozenset of dtypes",
)
_PAIRS = accepts(
    lambda value: (
        isinstance(value, frozenset)
        and all(
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(each, DType) for each in pair)
            for pair in value
        )
    ),
    "a frozenset of pairs of dtypes",
)
_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "name": nonempty_text(),
        "device": instance(Device, "a Device"),
        "features": instance(frozenset, "a frozenset of names"),
        "model": instance(DeviceModel, "a DeviceModel"),
        "scratch_bytes": at_least(0),
        "max_tile_elements": at_least(0),
        "max_statements": at_least(1),
        "forward_progress": flag(),
        "graph_capture": flag(),
        "max_subkernels": at_least(1),
        "dtypes": _DTYPES,
        "atomics": _DTYPES,
        "operations": names_of(OPS, "litz_ir.scalar.OPS"),
        "combiners": names_of(REDUCTION_KINDS, "litz_ir.loops.REDUCTION_KINDS and user", "user"),
        "scans": flag(),
        "combining_stores": names_of(COMBINING_MODES, "add, mul, min and max"),
        "faults": flag(),
        "index_bits": accepts(lambda value: type(value) is int and value in (32, 64), "32 or 64"),
        "fp8_matmul": flag(),
        "nested_reductions": flag(),
        "blocked_attention": flag(),
        "max_sorted_row": at_least(0),
        "panel_columns": at_least(0),
        "copies": _PAIRS,
        "routines": accepts(
            lambda value: value is None or isinstance(value, RoutineModel), "None or a RoutineModel"
        ),
    }
)
"""The check of each field."""
