"""What may be asked of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """``inline_cost`` is the dearest body (in adds, see the scalar operation table) that is computed again for each of
    several readers; ``inline_loads`` the most elements such a body may read. ``fuse`` off leaves one operation per
    kernel, which is slow and good for finding a fault. ``serial_bytes`` is the traffic below which a kernel stays on
    one thread.
    """

    inline_cost: int = 4
    inline_loads: int = 1
    fuse: bool = True
    serial_bytes: int = 64 << 10
