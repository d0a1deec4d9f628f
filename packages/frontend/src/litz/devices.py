"""torch's GPUs: their kind of device, and torch's functions for them.

No other module of the frontend names that kind, or calls these functions under another name. GPUs of another vendor
need a target, whose entry point has the name of torch's kind of device, and their names here: torch's modules of
devices define the same functions.
"""

from __future__ import annotations

from torch import cuda as gpu

__all__ = ["GPU", "KINDS", "gpu", "is_gpu"]

GPU = "cuda"
"""Kind of the devices that are GPUs, as torch and the entry point of their target name it."""

KINDS = ("cpu", GPU)
"""Kinds of devices that torch itself, and therefore the host, can allocate on and that plain graphs run on."""


def is_gpu(kind: str) -> bool:
    """Report whether devices of a kind are GPUs: they run asynchronously, have streams and events, and are numbered."""
    return kind == GPU
