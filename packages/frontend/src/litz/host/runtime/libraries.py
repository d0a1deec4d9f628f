"""Library routines that are worth calling on this machine."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from litz_ir.target import Capabilities

_CPU_INFO = Path("/proc/cpuinfo")
"""File of Linux that names the CPU's vendor."""

LINEAR_FLOPS = 4 << 20
"""Size, in operations, from which oneDNN multiplies f32 matrices faster than MKL on CPUs where MKL uses half of each
vector register. Measured on AMD Zen 5 with one thread: 1.4 times as fast at this size, twice as fast at ten times
this size; below it, the call of oneDNN costs ten microseconds more."""


def linear_flops(cpu: Capabilities | None) -> int:
    """Return the size, in operations, from which oneDNN multiplies f32 matrices faster than ATen; 0 for never.

    MKL has AVX-512 code for Intel's CPUs alone. ATen decides where torch has another BLAS, or the user chose the
    precision of matmuls or disabled oneDNN.
    """
    if cpu is None or cpu.model.vector_bytes < 64 or vendor(_CPU_INFO) == "GenuineIntel":
        return 0
    chosen = torch.get_float32_matmul_precision() != "highest"
    return LINEAR_FLOPS if _has_onednn() and torch.backends.mkl.is_available() and not chosen else 0


FEW_ROWS_BYTES = 256 << 10
"""Bytes of a matrix from which a matmul of up to eight rows takes a loop less time than a call of ATen."""


def few_rows_bytes(cpu: Capabilities | None) -> int:
    """Return the bytes of a matrix from which a loop multiplies few rows with it; 0 for never, without vectors."""
    return FEW_ROWS_BYTES if cpu is not None and cpu.model.vector_bytes >= 32 else 0


def attention_width(cpu: Capabilities | None) -> int:
    """Return the most elements of a head for which kernels compute calls of attention in f32; 0 without vectors.

    Where MKL uses whole registers, ATen's kernel is as quick from 128 elements on.
    """
    if cpu is None or cpu.model.vector_bytes < 32:
        return 0
    return 96 if vendor(_CPU_INFO) == "GenuineIntel" else 256


def narrow_attention_width(cpu: Capabilities | None) -> int:
    """Return the same for bf16 and f16, which oneDNN multiplies on Intel's CPUs by instructions for such floats."""
    return 0 if vendor(_CPU_INFO) == "GenuineIntel" else attention_width(cpu)


def has_convolutions(cpu: Capabilities | None) -> bool:
    """Report whether oneDNN is available, on a CPU with the vectors that its convolutions need."""
    return cpu is not None and cpu.model.vector_bytes >= 32 and _has_onednn()


def _has_onednn() -> bool:
    """Report whether torch has oneDNN and the user did not disable it."""
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


@functools.cache
def vendor(path: Path) -> str:
    """Return the CPU's vendor as Linux gives it; empty where that is unknown."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
