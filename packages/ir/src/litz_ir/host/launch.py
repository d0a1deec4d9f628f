"""Functions that launch a kernel: on addresses, or on buffers with their lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from litz_ir.errors import TargetError

LaunchFunction = Callable[[Sequence[int], Sequence[int | float]], None]
"""A function that runs a kernel on buffer addresses and symbol values; raises ``KernelError`` for an error code."""


@dataclass(frozen=True, slots=True)
class BufferArgument:
    """A buffer of a launch, as memory of the host and the bytes in it that the buffer takes."""

    memory: Any
    """Memory that holds the buffer, in the host's representation (:meth:`litz_ir.host.memory.Memory.buffer`); for
    NumPy's host an array of bytes."""
    offset: int
    """Bytes from the start of ``memory`` to the buffer's start."""
    nbytes: int
    """Bytes of the buffer, from ``offset``."""


@dataclass(frozen=True, slots=True)
class BufferFunction:
    """A launch function that takes buffers: for devices whose memory has no addresses, and for checks of bounds.

    A target whose module returns one is given :class:`BufferArgument` instead of addresses.
    """

    run: Callable[[Sequence[BufferArgument], Sequence[int | float]], None]
    """Function that runs the kernel on its buffers and symbol values; raises ``KernelError`` for an error code."""


Launcher = LaunchFunction | BufferFunction
"""A function that launches a kernel."""


def address_function(launcher: Launcher, kernel: str) -> LaunchFunction:
    """The launcher of a kernel, for a host that passes addresses alone; raises :class:`TargetError` for another."""
    if isinstance(launcher, BufferFunction):
        raise TargetError(
            f"{kernel} takes buffers with their lengths, and this host passes addresses",
            hint="run the plan by litz_ir.host.executor.Executor, whose memory the device can hold",
        )
    return launcher
