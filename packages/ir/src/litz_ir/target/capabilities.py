"""Capabilities of a device, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType
from litz_ir.errors import TargetError
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS
from litz_ir.scalar.ops_table import BUILT_IN, OPS
from litz_ir.target.device_model import DeviceModel


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

    def __post_init__(self) -> None:
        for name, (check, expected) in _CHECKS.items():
            value = getattr(self, name)
            if not check(value):
                raise TargetError(
                    f"{name} is {value!r:.80}, but {expected} belongs there",
                    hint="see litz_ir.target.Capabilities",
                )

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
    def is_gpu(self) -> bool:
        """True for a device whose kernels run as thread blocks on SMs."""
        return self.model.sm_count > 0


COMBINING_MODES = ("add", "mul", "min", "max")
"""Modes of stores that combine a value with the element in memory."""

_Check = tuple[Callable[[object], bool], str]
"""A function that is true for a right value, and words for what belongs there."""


def _instance(kind: type, expected: str) -> _Check:
    return lambda value: isinstance(value, kind), expected


def _at_least(low: int) -> _Check:
    return lambda value: type(value) is int and value >= low, f"an int of at least {low}"


def _flag() -> _Check:
    return lambda value: type(value) is bool, "True or False"


def _dtypes() -> _Check:
    return (
        lambda value: isinstance(value, frozenset) and all(isinstance(each, DType) for each in value),
        "a frozenset of dtypes",
    )


def _names(known: Collection[str], table: str, further: str = "") -> _Check:
    return (
        lambda value: (
            value is None
            or (isinstance(value, frozenset) and all(each in known or each == further for each in value))
        ),
        f"None or a frozenset of names of {table}",
    )


_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        "name": _instance(str, "a string"),
        "device": _instance(Device, "a Device"),
        "model": _instance(DeviceModel, "a DeviceModel"),
        "scratch_bytes": _at_least(0),
        "max_tile_elements": _at_least(0),
        "max_statements": _at_least(1),
        "forward_progress": _flag(),
        "graph_capture": _flag(),
        "max_subkernels": _at_least(1),
        "dtypes": _dtypes(),
        "atomics": _dtypes(),
        "operations": _names(OPS, "litz_ir.scalar.OPS"),
        "combiners": _names(REDUCTION_KINDS, "litz_ir.loops.REDUCTION_KINDS and user", "user"),
        "scans": _flag(),
        "combining_stores": _names(COMBINING_MODES, "add, mul, min and max"),
        "faults": _flag(),
        "index_bits": (lambda value: type(value) is int and value in (32, 64), "32 or 64"),
        "fp8_matmul": _flag(),
        "nested_reductions": _flag(),
        "max_sorted_row": _at_least(0),
    }
)
"""The check of each field."""
