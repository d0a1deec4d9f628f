"""What may be asked of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """``inline_cost`` is the dearest body (in adds, see the scalar operation table) that is computed again for each of
    several readers; ``inline_loads`` the most elements such a body may read. ``fuse`` off leaves one operation per
    kernel, which is slow and good for finding a fault. ``serial_bytes`` is the traffic below which a kernel stays on
    one thread; ``part_bytes`` the least that one of the parts of a reduction reads. ``linear_flops`` is the size, in
    operations, from which a product of f32 matrices is better run by the host's ``linear`` than by ATen's own routine;
    0 where it is not, or the host has none. ``convolutions`` is true where the host has ``convolution`` and
    ``pack_convolution``.
    """

    inline_cost: int = 4
    inline_loads: int = 1
    fuse: bool = True
    serial_bytes: int = 64 << 10
    part_bytes: int = 16 << 10
    linear_flops: int = 0
    convolutions: bool = False
