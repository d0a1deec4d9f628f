"""What the libraries that torch was built with are good at on this machine."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from litz_ir.target import Capabilities

CPU_INFO = Path("/proc/cpuinfo")

LINEAR_FLOPS = 4 << 20
"""From here on oneDNN's product is faster than MKL's where MKL leaves half of every register unused: 1.4 times at this
size, twice at ten times as much (AMD Zen 5, f32, one thread); below, its call costs ten microseconds more."""


def linear_flops(cpu: Capabilities | None) -> int:
    """The operations from which a product of f32 matrices is better run by oneDNN than by ATen; 0 for never.

    MKL has AVX-512 code for Intel's processors alone. Where torch has another BLAS, or a user chose the precision of
    products or turned oneDNN off, ATen decides.
    """
    if cpu is None or cpu.vector_bytes < 64 or vendor(CPU_INFO) == "GenuineIntel":
        return 0
    chosen = torch.get_float32_matmul_precision() != "highest"
    return LINEAR_FLOPS if _has_onednn() and torch.backends.mkl.is_available() and not chosen else 0


def has_convolutions(cpu: Capabilities | None) -> bool:
    """True when oneDNN is at hand on a CPU that its convolutions are written for."""
    return cpu is not None and cpu.vector_bytes >= 32 and _has_onednn()


def _has_onednn() -> bool:
    """True where torch has oneDNN and the user did not turn it off."""
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


@functools.cache
def vendor(path: Path) -> str:
    """Who made the CPU, as the system says; empty where it does not."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
