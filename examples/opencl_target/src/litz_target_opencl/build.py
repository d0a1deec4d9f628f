"""Compile sources to object files, link them, and launch their kernels on buffers."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from threading import Lock

import numpy as np
import pyopencl as cl

from litz_ir.errors import CompileFailed, KernelError, TargetError, ToolchainError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.plan import Kernel
from litz_ir.symbols import evaluate
from litz_ir.target import BufferArgument, BufferFunction
from litz_target_opencl.emit import entry_point, parallel_axes, workspaces

FLAGS = ("-cl-std=CL1.2", "-w")
WORKSPACE_BYTES = 64 << 20
"""Most bytes of workspaces in one launch: further work items run in launches of their own."""
_link: Callable[[cl.Context, Sequence[cl.Program]], cl.Program] = cl.link_program
_build_info: Callable[[cl.Program, cl.Device, cl.program_build_info], str] = cl.Program.get_build_info
_READ_WRITE, _COPIED = cl.mem_flags.READ_WRITE, cl.mem_flags.COPY_HOST_PTR
_Argument = cl.Buffer | np.generic


def compile_source(name: str, text: str, queue: cl.CommandQueue, folder: Path) -> Path:
    """Compile a source into an object file in ``folder``, named after its content and the device; raises
    :class:`CompileFailed`."""
    device = queue.device
    parts = (device.name, device.version, device.driver_version, *FLAGS, text)
    stem = re.sub(r"\W", "_", name, flags=re.ASCII)[:64]
    out = folder / f"{stem}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}.o"
    program = cl.Program(queue.context, text)
    try:
        with warnings.catch_warnings():
            # pyopencl warns that it has no cache for programs that are compiled and linked.
            warnings.filterwarnings("ignore", "Pre-build attribute access", UserWarning)
            program.compile(FLAGS)
    except cl.Error as error:
        log = _build_info(program, device, cl.program_build_info.LOG)
        raise CompileFailed(f"{name} does not compile: {error}", command=FLAGS, output=log) from error
    (binary,) = program.binaries
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{stem}-", delete=False) as file:
        file.write(binary)
    os.replace(file.name, out)
    return out


class OpenClModule:
    """Linked kernels. Their functions may be called from several threads at once."""

    def __init__(
        self, binaries: Sequence[Path], kernels: Mapping[str, Kernel], queue: cl.CommandQueue
    ) -> None:
        """Link object files; raises :class:`ToolchainError` for a file that is none."""
        self._kernels, self._queue = kernels, queue
        context, devices = queue.context, [queue.device]
        try:
            objects = [cl.Program(context, devices, [binary.read_bytes()]) for binary in binaries]
            self._programs = [_link(context, [each]) for each in objects]
        except (cl.Error, OSError) as error:
            raise ToolchainError(f"a built object does not link: {error}", hint="build it again") from error

    def function(self, kernel: str) -> BufferFunction:
        """Return the launcher of a kernel; raises ``KeyError``."""
        for program in self._programs:
            if entry_point(kernel) in program.kernel_names.split(";"):
                native = cl.Kernel(program, entry_point(kernel))
                return BufferFunction(_Launcher(self._kernels[kernel], native, self._queue).run)
        raise KeyError(kernel)


class _Launcher:
    """The launch of one kernel. Its arguments belong to the kernel, so one thread at a time sets them."""

    def __init__(self, kernel: Kernel, native: cl.Kernel, queue: cl.CommandQueue) -> None:
        self.kernel, self.native, self.queue = kernel, native, queue
        self.axes, self.workspaces = parallel_axes(kernel), workspaces(kernel)
        arguments = 2 * len(kernel.parameters) + len(kernel.symbols) + len(self.workspaces)
        self.finds_faults = native.num_args > arguments
        # PoCL has the arrays of all work items of a group on one stack.
        self.group = (1,) if len(self.workspaces) < len(kernel.scratch) else None
        self.lock = Lock()

    def run(self, buffers: Sequence[BufferArgument], symbols: Sequence[int | float]) -> None:
        """Launch the kernel, and wait for it if it finds faults; raises those, :class:`TargetError` for bytes
        that it cannot take, and :class:`KernelError`."""
        kernel = self.kernel
        known = {info.name: int(v) for info, v in zip(kernel.symbols, symbols) if info.kind != "float"}
        items = prod(evaluate(axis.size, known) for axis in self.axes)
        if not items:
            return
        arguments: list[_Argument] = list(self.buffer_arguments(buffers))
        for info, value in zip(kernel.symbols, symbols, strict=True):
            arguments.append(np.float64(value) if info.kind == "float" else np.int64(value))
        sizes = [evaluate(array.size, known) * array.dtype.itemsize for array in self.workspaces]
        at_once = min(items, max(1, WORKSPACE_BYTES // max(1, sum(sizes)))) if sizes else items
        try:
            arguments += [cl.Buffer(self.queue.context, _READ_WRITE, max(at_once * n, 1)) for n in sizes]
            code = self.launch(items, at_once, arguments)
        except cl.Error as error:
            message = f"{kernel.name} was not launched: {error}"
            raise KernelError(
                message, code=error.code, node=kernel.name, hint="run smaller batches"
            ) from error
        if code:
            raise fault_error(BY_CODE[code], kernel.name)

    def buffer_arguments(self, buffers: Sequence[BufferArgument]) -> Iterator[_Argument]:
        """Yield memory and first element of each buffer."""
        for parameter, each in zip(self.kernel.parameters, buffers, strict=True):
            if each.memory.context != self.queue.context:
                raise TargetError(
                    f"{parameter.name} is in another OpenCL context than its kernel",
                    node=self.kernel.name,
                    hint="keep buffers in a ClMemory of the queue that the target uses",
                )
            end = each.offset + each.nbytes
            if each.offset < 0 or end > each.memory.size or each.offset % parameter.dtype.itemsize:
                raise TargetError(
                    f"{parameter.name}, of {parameter.dtype}, cannot be bytes {each.offset} to {end} of a "
                    f"buffer of {each.memory.size} bytes",
                    node=self.kernel.name,
                    hint="begin at a multiple of the dtype's size, and end inside the buffer",
                )
            yield from (each.memory, np.int64(each.offset // parameter.dtype.itemsize))

    def launch(self, items: int, at_once: int, arguments: Sequence[_Argument]) -> int:
        """Launch the work items, ``at_once`` of them at a time; returns the code of a fault, or 0."""
        code = np.zeros(1, np.int32)
        flag = cl.Buffer(self.queue.context, _READ_WRITE | _COPIED, hostbuf=code)
        with self.lock:
            for position, argument in enumerate((*arguments, flag) if self.finds_faults else arguments):
                self.native.set_arg(position, argument)
            for first in range(0, items, at_once):
                size = (min(at_once, items - first),)
                cl.enqueue_nd_range_kernel(self.queue, self.native, size, self.group, (first,))
        if self.finds_faults:
            cl.enqueue_copy(self.queue, code, flag)
        return int(code[0])
