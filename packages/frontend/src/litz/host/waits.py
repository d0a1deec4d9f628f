"""Which launches of a run have to wait for those before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from litz_ir.plan.kernel import Kernel, ScanStore, Store
from litz_ir.plan.program import Launch
from litz_ir.scalar.expr import Checked, indirects, indirects_in, walk


def waits(
    launches: Sequence[Launch], kernels: Mapping[str, Kernel], memory: Callable[[str], str]
) -> tuple[bool, ...]:
    """Per launch, whether it meets memory that one before it, since the last that waited, touches too.

    ``memory`` names what a buffer lies in, by one name for all that may overlap. Two that only read do not meet. What
    follows a kernel that may fail waits too, since it must not run then.
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
    """True when the kernel checks values, or asks for memory while it runs."""
    if any(not isinstance(local.size, int) for local in kernel.locals):
        return True
    statements = [statement for phase in kernel.phases for statement in phase.statements]
    values = [v for s in statements for v in ((s.value,) if isinstance(s, Store) else s.values)]
    offsets = [s.offset for s in statements if isinstance(s, Store)]
    offsets += [offset for s in statements if isinstance(s, ScanStore) for _, offset in s.targets]
    return any(
        isinstance(node, Checked) or any(True for _ in indirects(node)) for node in walk(*values)
    ) or any(indirects_in(offset) for offset in offsets)
