"""The last use of each buffer, through the views and versions that share its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.loops import Output, Ref
from litz_ir.plan import Placement, Step, memory_root, touched_by


def last_uses(steps: Iterable[Step], placements: Mapping[str, Placement]) -> dict[str, int]:
    """Return the position of the last step that accesses each memory root."""
    found: dict[str, int] = {}
    for position, step in enumerate(steps):
        for name in touched_by(step):
            found[memory_root(name, placements)] = position
    return found


def escaping(outputs: Iterable[Output], placements: Mapping[str, Placement]) -> set[str]:
    """Return the memory roots that the caller receives, whose memory is not reused."""
    return {memory_root(output.name, placements) for output in outputs if isinstance(output, Ref)}
