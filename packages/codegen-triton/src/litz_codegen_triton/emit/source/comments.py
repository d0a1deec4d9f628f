"""Comments of emitted kernels: the user's lines that they compute."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.origin import abbreviated_list, describe_locations
from litz_ir.plan import Kernel, KernelOrigin, Subkernel


def comment(text: str) -> str:
    """Return a comment of one line, whatever characters the names and lines of the user's in its text have."""
    return "# " + "".join(each if each.isprintable() else " " for each in text)


def kernel_comments(kernel: Kernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """Return comments that give the user's lines of the fused operations, or the results of those without lines."""
    known = [comment(f"{each.operation}: {each.origin.describe()}") for each in origins if each.origin]
    others = [each.operation for each in origins if not each.origin]
    if not origins:
        others = [parameter.name for parameter in kernel.parameters if parameter.access in ("out", "inout")]
    lines = [*known, comment(f"computes {', '.join(others)}")] if others else known
    return list(dict.fromkeys(lines))


def subkernel_comments(subkernel: Subkernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """Return comments that give the number of a subkernel's invocations, and their user's lines or their results."""
    count = len(subkernel.invocations)
    lines = describe_locations(each.origin for each in origins)
    others = [each.operation for each in origins if not each.origin]
    if others:
        lines = (*lines, f"computes {abbreviated_list(others)}")
    found = [f"{count} loop{'s' if count > 1 else ''}", *lines]
    return [comment(line) for line in found]
