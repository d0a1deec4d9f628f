"""Dependencies between the launches of a segment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from litz_ir.plan import Kernel, Launch, ScanStore, Statement, Store, leaf_kernels
from litz_ir.scalar import Checked, Expr, Indirect, indirects, indirects_in, walk


def launch_dependencies(
    launches: Sequence[Launch], kernels: Mapping[str, Kernel], memory: Callable[[str], str]
) -> tuple[bool, ...]:
    """Return, for each launch, whether it accesses memory of an earlier one since the last launch that waited.

    ``memory`` returns one name for all buffers that may overlap. Two reads are independent. A launch after a kernel
    that may fail waits too, since it must not run after a failure.
    """
    found: list[bool] = []
    read: set[str] = set()
    written: set[str] = set()
    fails = {name: may_fail(kernels[name]) for name in {launch.kernel for launch in launches}}
    risky = False
    for launch in launches:
        kernel = kernels[launch.kernel]
        uses = [(memory(b), p.access) for p, b in zip(kernel.parameters, launch.buffers, strict=True)]
        writes = {name for name, access in uses if access != "in"}
        reads = {name for name, access in uses if access != "out"}
        wait = risky or not writes.isdisjoint(read | written) or not reads.isdisjoint(written)
        if wait:
            read, written = set(), set()
        found.append(wait)
        read |= reads
        written |= writes
        risky = fails[launch.kernel]
    return tuple(found)


def may_fail(kernel: Kernel) -> bool:
    """Report whether the kernel, or a subkernel, checks values or allocates memory at run time."""
    if any(not isinstance(local.size, int) for local in kernel.scratch):
        return True
    return checks_values(kernel) or bool(indirect_indices(kernel))


def checks_values(kernel: Kernel) -> bool:
    """Report whether the kernel checks values that are no indices."""
    return any(isinstance(node, Checked) for node in walk(*_values(kernel)))


def indirect_indices(kernel: Kernel) -> list[Indirect]:
    """Return the indirect indices of a kernel's loads and stores."""
    statements = _statements(kernel)
    offsets = [each.offset for each in statements if isinstance(each, Store)]
    offsets += [offset for each in statements if isinstance(each, ScanStore) for _, offset in each.targets]
    read = [atom for node in walk(*_values(kernel)) for atom in indirects(node)]
    return read + [atom for offset in offsets for atom in indirects_in(offset)]


def _statements(kernel: Kernel) -> list[Statement]:
    """Return the statements of a kernel and its subkernels."""
    return [each for own in leaf_kernels(kernel) for phase in own.phases for each in phase.statements]


def _values(kernel: Kernel) -> list[Expr]:
    """Return the values that a kernel's statements compute."""
    statements = _statements(kernel)
    return [v for each in statements for v in ((each.value,) if isinstance(each, Store) else each.values)]
