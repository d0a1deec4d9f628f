"""Comments of emitted kernels: the user's lines that they compute."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.origin import abbreviated_list, describe_locations
from litz_ir.plan import Kernel, KernelOrigin, Subkernel


def kernel_comments(kernel: Kernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """Return comments that give the user's lines of the fused operations, or the results of those without lines."""
    known = [f"# {each.operation}: {each.origin.describe()}" for each in origins if each.origin]
    others = [each.operation for each in origins if not each.origin]
    if not origins:
        others = [parameter.name for parameter in kernel.parameters if parameter.access in ("out", "inout")]
    lines = [*known, f"# computes {', '.join(others)}"] if others else known
    return list(dict.fromkeys(line.replace("\n", " ") for line in lines))


def subkernel_comments(subkernel: Subkernel, origins: Sequence[KernelOrigin]) -> list[str]:
    """Return comments that give the number of a subkernel's invocations, and their user's lines or their results."""
    count = len(subkernel.invocations)
    lines = describe_locations(each.origin for each in origins)
    others = [each.operation for each in origins if not each.origin]
    if others:
        lines = (*lines, f"computes {abbreviated_list(others)}")
    found = [f"{count} loop{'s' if count > 1 else ''}", *lines]
    return [f"# {line}".replace("\n", " ") for line in found]
