"""Entries of PyTorch's operator database, with their dtypes, families and tolerances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    ReductionOpInfo,
    ShapeFuncInfo,
    SpectralFuncInfo,
    UnaryUfuncInfo,
)

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "f32": torch.float32,
        "f64": torch.float64,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "i64": torch.int64,
        "i32": torch.int32,
        "i16": torch.int16,
        "i8": torch.int8,
        "u8": torch.uint8,
        "bool": torch.bool,
        "c64": torch.complex64,
        "c128": torch.complex128,
    }
)
"""The dtypes by the names that options and results use."""

ENTRIES: Mapping[str, Any] = MappingProxyType(
    {entry.full_name: entry for entry in common_methods_invocations.op_db}
)
"""The database's entries by full name, a variant's name after the operator's."""


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


# Entries that draw random numbers seed inside what is compiled, which Dynamo cannot trace: every run here is seeded
# from outside.
vars(common_methods_invocations)["wrapper_set_seed"] = _called

PREFIXES = ("nn.functional", "linalg", "fft", "special", "masked", "sparse", "signal")
KINDS = (
    (SpectralFuncInfo, "fft"),
    (UnaryUfuncInfo, "unary"),
    (BinaryUfuncInfo, "binary"),
    (ReductionOpInfo, "reduction"),
    (ShapeFuncInfo, "shape"),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work: an entry for one dtype on a device, all by name."""

    entry: str
    dtype: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest allowed difference of two values: `absolute + relative * |expected|`."""

    absolute: float
    relative: float


DEFAULT = {
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.float32: Tolerance(1e-5, 1.3e-6),
    torch.bfloat16: Tolerance(1e-5, 1.6e-2),
    torch.float16: Tolerance(1e-5, 1e-3),
    torch.complex64: Tolerance(1e-5, 1.3e-6),
    torch.complex128: Tolerance(1e-7, 1e-7),
}
"""Tolerances of `torch.testing.assert_close`, by dtype."""


def units(patterns: list[str], dtypes: list[str], device: str = "cpu") -> Iterator[Unit]:
    """Yield the units of the entries whose name one of `patterns` (shell's wildcards) matches, f32 first."""
    for dtype in dtypes:
        for name, entry in ENTRIES.items():
            known = DTYPES[dtype] in entry.supported_dtypes(device)
            if known and any(fnmatchcase(name, pattern) for pattern in patterns):
                yield Unit(name, dtype, device)


def family(name: str) -> str:
    """Return the family that an entry is counted in."""
    for prefix in PREFIXES:
        if name.startswith(f"{prefix}."):
            return prefix
    for kind, label in KINDS:
        if isinstance(ENTRIES[name], kind):
            return label
    return "other"


def tolerance(unit: Unit, dtype: torch.dtype) -> Tolerance:
    """Return the widest tolerance that the entry asks for in torch's own tests of operators on the device."""
    found = DEFAULT.get(dtype, Tolerance(0.0, 0.0))
    for decoration in ENTRIES[unit.entry].decorators:
        if getattr(decoration, "cls_name", None) != "TestCommon":
            continue
        if getattr(decoration, "device_type", None) not in (None, unit.device):
            continue
        for inner in decoration.decorators:
            if isinstance(inner, toleranceOverride) and dtype in inner.d:
                asked = inner.d[dtype]
                found = Tolerance(max(found.absolute, asked.atol), max(found.relative, asked.rtol))
    return found
