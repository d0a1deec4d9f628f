"""OpenCL devices: the one to use, and what kernels need of it."""

from __future__ import annotations

import pyopencl as cl

from litz_ir.errors import ToolchainError

_INSTALL = "install the OpenCL driver of your device, or PoCL for the CPU: Debian's package pocl-opencl-icd"


def open_queue() -> cl.CommandQueue:
    """Return a queue, in a context of its own, of the first device that litz's kernels can use; raises
    :class:`ToolchainError` with what the others lack if there is no such device."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:  # the loader finds no driver
        raise ToolchainError(f"there is no OpenCL platform: {error}", hint=_INSTALL) from error
    devices = [device for platform in platforms for device in platform.get_devices()]
    capable = [device for device in devices if not device_lacks(device)]
    if not capable:
        found = (
            "; ".join(f"{device.name} lacks {device_lacks(device)}" for device in devices) or "none at all"
        )
        raise ToolchainError(f"there is no OpenCL device that litz can use: {found}", hint=_INSTALL)
    return cl.CommandQueue(cl.Context(capable[:1]))


def check_queue(queue: cl.CommandQueue) -> None:
    """Raise :class:`ToolchainError` if kernels cannot run on a queue, with what it or its device lacks."""
    lacks = device_lacks(queue.device)
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        lacks = "an order of commands"  # a kernel reads what those before it wrote
    if lacks:
        raise ToolchainError(
            f"the OpenCL queue of {queue.device.name} lacks {lacks}",
            hint="leave the queue out, or make another",
        )


def device_lacks(device: cl.Device) -> str:
    """Return what a device lacks that kernels need; empty if it lacks nothing.

    Functions of ``f32`` are computed in ``f64`` and rounded, as litz defines them, and small results are not
    flushed to zero. OpenCL requires this of ``f64``, but not of ``f32``.
    """
    single = cl.device_fp_config.DENORM | cl.device_fp_config.INF_NAN | cl.device_fp_config.ROUND_TO_NEAREST
    if not device.double_fp_config:
        return "double precision (cl_khr_fp64)"
    if device.single_fp_config & single != single:
        return "denormal numbers, infinities or rounding to nearest in single precision"
    return ""
