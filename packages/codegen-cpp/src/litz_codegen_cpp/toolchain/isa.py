"""Instruction sets that kernels are compiled for, chosen by the CPU's flags without a trial build."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from litz_ir.errors import ToolchainError

CPU_INFO = Path("/proc/cpuinfo")
"""The file in which Linux lists the CPU's flags."""


@dataclass(frozen=True, slots=True)
class Isa:
    """One instruction set."""

    name: str
    """Its name: ``avx512``, ``avx2``, ``neon`` or ``scalar``."""
    vector_bytes: int
    """Bytes of a vector register."""
    lanes: int
    """Lanes of a kernel's vectors, whatever their element type."""
    flags: tuple[str, ...]
    """Compiler flags, as GCC and Clang spell them."""
    features: frozenset[str] = frozenset()
    """Features of the CPU beyond the base set."""
    machine: str = ""
    """The architecture that has it, as :func:`machine_name` names it; empty for the base of any."""


_AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt", "-mmovbe")
_AVX512_FLAGS = (
    "-mavx512f",
    "-mavx512bw",
    "-mavx512cd",
    "-mavx512dq",
    "-mavx512vl",
    "-mprefer-vector-width=512",
)

AVX512 = Isa("avx512", 64, 16, (*_AVX2_FLAGS, *_AVX512_FLAGS), machine="x86_64")
AVX2 = Isa("avx2", 32, 8, _AVX2_FLAGS, machine="x86_64")
NEON = Isa("neon", 16, 4, (), machine="aarch64")
SCALAR = Isa("scalar", 16, 4, ())
"""Nothing beyond the architecture's base; four lanes, which the compiler maps to what the base has."""

_MACHINE_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}
_BY_NAME = {isa.name: isa for isa in (AVX512, AVX2, NEON, SCALAR)}
_NEEDS_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "popcnt", "movbe"})
_NEEDS_AVX512 = _NEEDS_AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_OPTIONAL_AVX512 = {"avx512_bf16": "-mavx512bf16", "avx512_vnni": "-mavx512vnni"}


def machine_name(machine: str) -> str:
    """Return an architecture's one name, of those that systems and compilers have for it."""
    return _MACHINE_NAMES.get(machine.lower(), machine)


def by_name(name: str) -> Isa:
    """Return the set called ``name`` without optional features; raises :class:`ToolchainError`."""
    if name not in _BY_NAME:
        known = ", ".join(sorted(_BY_NAME))
        raise ToolchainError(f"unknown instruction set {name!r}", hint=f"use one of {known}")
    return _BY_NAME[name]


def step_down(isa: Isa) -> Isa | None:
    """Return the next simpler set, for a compiler that does not support ``isa``; None below the last."""
    if isa.features:
        return _BY_NAME[isa.name]
    return {"avx512": AVX2, "avx2": SCALAR, "neon": SCALAR}.get(isa.name)


def runnable(isa: Isa) -> tuple[str, ...]:
    """Return the names of the sets that a machine with ``isa`` runs, best first, without optional features."""
    names: list[str] = []
    each: Isa | None = by_name(isa.name)
    while each is not None:
        names.append(each.name)
        each = step_down(each)
    return tuple(names)


def from_flags(machine: str, flags: Iterable[str]) -> Isa:
    """Return the best set for a CPU of architecture ``machine`` (as ``platform.machine()``) with ``flags``."""
    present, machine = frozenset(flags), machine_name(machine)
    if machine == NEON.machine:
        return NEON
    if machine != AVX2.machine:
        return SCALAR
    if present >= _NEEDS_AVX512:
        features = present.intersection(_OPTIONAL_AVX512)
        extra = tuple(_OPTIONAL_AVX512[feature] for feature in sorted(features))
        return replace(AVX512, flags=(*AVX512.flags, *extra), features=features)
    return AVX2 if present >= _NEEDS_AVX2 else SCALAR


def cpu_flags(cpu_info: Path = CPU_INFO) -> frozenset[str]:
    """Return the CPU's flags as Linux names them; empty where the system does not list them."""
    try:
        text = cpu_info.read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def detect() -> Isa:
    """Return the best set for the CPU that runs this process."""
    return from_flags(platform.machine(), cpu_flags())
