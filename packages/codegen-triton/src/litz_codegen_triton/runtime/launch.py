"""Launch compiled kernels on torch's current stream.

A segment of consecutive kernels is one call: a loop over argument arrays that were laid out when it was made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from struct import Struct
from types import MappingProxyType, ModuleType
from typing import Any

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.indexing.grid import grid_size
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.copies import ALIGNED, AlignedCopies
from litz_codegen_triton.runtime.driver import INVALID_CONTEXT, OUT_OF_MEMORY, Driver, cuda_library
from litz_codegen_triton.runtime.frozen_copies import CopyLauncher
from litz_codegen_triton.runtime.loaded_kernel import ArgumentArrays, LoadedKernel, described_words
from litz_codegen_triton.runtime.native_launcher import (
    MOST_DESCRIPTORS,
    NativeKernel,
    description,
    launcher_maker,
    native_kernels,
)
from litz_ir.errors import KernelError, OutOfMemory, ToolchainError
from litz_ir.plan import WORD_BYTES, Kernel, launched_cluster, scan_segment, zeroed_words
from litz_ir.symbols import evaluate, mul
from litz_ir.target import ByteRange, FailureCallback, LaunchFunction, MemoryCopy, raise_failure

NO_KERNELS: Mapping[str, CompiledKernel] = MappingProxyType({})
"""No kernels."""

torch: ModuleType | None
try:
    import torch
except ImportError:  # plans can be compiled without torch
    torch = None


def current_chip() -> str | None:
    """Return the compute capability of the current device, such as ``sm_90``; ``None`` without an NVIDIA GPU."""
    if torch is None or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


class LaunchModule:
    """Compiled kernels on the current device; implements ``SegmentModule`` and ``LazyModule`` of ``litz_ir.target``.

    The kernels need buffers that are aligned to 16 bytes. ``unaligned`` compiles the kernel of a name without that
    promise; it is called when the first unaligned buffer arrives. If it fails, the kernel runs on aligned copies.
    Raises ``ToolchainError`` without torch or a CUDA driver, or when the driver cannot load a cubin.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledKernel],
        kernels: Mapping[str, Kernel],
        unaligned: Callable[[str], CompiledKernel],
        copying: Mapping[str, CompiledKernel] = NO_KERNELS,
        launcher: Path | None = None,
    ) -> None:
        """``copying`` are the kernels of ``CopyLauncher``, or none. ``launcher`` is the library of the native launcher;
        without it Python makes each launch."""
        if torch is None:
            raise ToolchainError(
                "kernels are launched on torch's stream, and torch is not installed",
                hint="pip install litz-codegen-triton[runtime]",
            )
        library = cuda_library()
        self.device = torch.cuda.current_device()
        self.driver = Driver(library, self.device)
        self._kernels = dict(kernels)
        self._unaligned = unaligned
        self._any_alignment: dict[str, LoadedKernel | None] = {}
        self._on_failure: FailureCallback = raise_failure
        self._functions = {name: self._loaded(found) for name, found in compiled.items()}
        self._copying = copying
        self.maker = None if launcher is None else launcher_maker(launcher)
        self.entry_points = self.driver.entry_points()

    def function(self, kernel: str) -> LaunchFunction:
        """Return the launcher of one kernel. Raises ``KeyError``."""
        return self.segment((kernel,)).run

    def segment(
        self,
        names: Sequence[str],
        waits: Sequence[bool] | None = None,
        extents: Sequence[ByteRange | None] | None = None,
    ) -> NativeLaunches:
        """Return the launcher of consecutive kernels. ``waits`` is ignored: on one stream each kernel waits for those
        before it. ``extents`` are the byte ranges of all buffers, kernel by kernel. Raises ``KeyError``."""
        return NativeLaunches(self, [self._functions[name] for name in names], extents)

    def copies(self, words: Sequence[int], copies: Sequence[MemoryCopy]) -> Callable[[], None] | None:
        """Return a function that keeps copies up to date, as ``CopyingModule`` says; ``None`` without its kernels."""
        if not self._copying:
            return None
        launcher = CopyLauncher(self._copying, self.driver, _stream_of(self.device), self.native)
        return launcher.copies(words, copies, self._numbers)

    def native(
        self,
        kernels: Sequence[NativeKernel],
        python: Callable[..., None],
        failed: Callable[[int, int], None],
    ) -> Callable[..., None] | None:
        """Return the native call of kernels, as ``NativeSegment`` says."""
        if self.maker is None or self.entry_points is None:
            return None
        described = description(kernels, self.entry_points)
        return self.maker(described, _stream_function(), self.device, python, failed)

    def _numbers(self, values: list[int]) -> Any:
        """Return a tensor of ``i64`` numbers on the device."""
        assert torch is not None
        return torch.tensor(values, dtype=torch.int64).to(f"cuda:{self.device}")

    def on_failure(self, told: FailureCallback) -> None:
        """Register the callback for kernels that cannot be compiled for unaligned buffers; by default it raises."""
        self._on_failure = told

    def memory(self, nbytes: int) -> Any:
        """Allocate device memory on torch's stream, as a ``uint8`` tensor aligned to 512 bytes."""
        assert torch is not None
        return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{self.device}")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy device memory on torch's stream. Raises ``KernelError``."""
        code = self.driver.copy(target, source, nbytes, _stream_of(self.device)())
        if code == INVALID_CONTEXT:
            self.driver.make_current()
            code = self.driver.copy(target, source, nbytes, _stream_of(self.device)())
        if code:
            raise _driver_error(self.driver, f"copying {nbytes} bytes", code)

    def any_alignment(self, name: str) -> LoadedKernel | None:
        """Return a kernel compiled for unaligned buffers, compiling it at the first call.

        Returns ``None`` if that fails; the failure is reported once.
        """
        if name not in self._any_alignment:
            self._any_alignment[name] = self._rebuilt(name)
        return self._any_alignment[name]

    def _rebuilt(self, name: str) -> LoadedKernel | None:
        try:
            return self._loaded(self._unaligned(name))
        except Exception as error:
            self._on_failure(
                error, f"{name} runs on copies of buffers whose address is no multiple of 16 bytes"
            )
            return None

    def _loaded(self, compiled: CompiledKernel) -> LoadedKernel:
        kernel = self._kernels[compiled.name]
        hidden = compiled.parameters - len(kernel.parameters) - len(kernel.symbols)
        hidden -= described_words(compiled.descriptors)
        if hidden < 0:
            raise ToolchainError(
                f"the binary of kernel {kernel.name} takes fewer arguments than its plan passes",
                hint="build it again",
            )
        threads, cluster = compiled.warps * NVIDIA.warp_size, launched_cluster(kernel.schedule)
        handle = self.driver.load(
            compiled.cubin, compiled.entry, compiled.shared_bytes, compiled.name, cluster
        )
        accesses = [each.access for each in kernel.parameters]
        cleared = accesses.index("workspace") if scan_segment(kernel.schedule) else -1
        return LoadedKernel(
            kernel, handle, threads, compiled.shared_bytes, hidden, cluster, cleared, compiled.scratch,
            compiled.descriptors,
        )  # fmt: skip


class NativeLaunches:
    """Launcher of consecutive kernels; implements ``litz_ir.target.NativeCall``.

    Argument arrays are reused, one set per concurrent call: the driver copies arguments before a launch returns.
    """

    def __init__(
        self,
        module: LaunchModule,
        functions: Sequence[LoadedKernel],
        extents: Sequence[ByteRange | None] | None = None,
    ) -> None:
        self._module = module
        self._functions = tuple(functions)
        self._extents = extents
        self._launch = module.driver.launch
        self._stream = _stream_of(module.device)
        kernels = [each.kernel for each in functions]
        self._counts = [(grid_size(kernel), mul(zeroed_words(kernel), WORD_BYTES)) for kernel in kernels]
        fixed = [(a, b) for a, b in self._counts if isinstance(a, int) and isinstance(b, int)]
        self._fixed = fixed if len(fixed) == len(functions) else None
        kinds = [info.kind for kernel in kernels for info in kernel.symbols]
        # Addresses are signed: an empty tensor's pointer is null, and its storage offset is subtracted from it.
        self._addresses = Struct(f"={sum(len(kernel.parameters) for kernel in kernels)}q")
        self._symbols = Struct("=" + "".join("d" if kind == "float" else "q" for kind in kinds))
        self._frames: list[ArgumentArrays] = []

    def run(self, addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        """Launch the kernels on their buffer addresses and symbol values, each concatenated in the kernels' order.

        Raises ``KernelError`` where a launch fails; later kernels are not launched then.
        """
        functions: Sequence[LoadedKernel] = self._functions
        if reduce(or_, addresses, 0) & ALIGNED:
            unaligned = self._for_alignment(addresses)
            if unaligned is None:
                self._run_one_by_one(addresses, symbols)
                return
            functions = unaligned
        # Binaries for any alignment take other arguments than those that load through descriptors.
        own = functions is self._functions or not any(each.descriptors for each in self._functions)
        counts = self._fixed or self._evaluated(symbols)
        stream, launch = self._stream(), self._launch
        frame = self._frame() if own else ArgumentArrays(functions)
        try:
            self._addresses.pack_into(frame.addresses, 0, *addresses)
            self._symbols.pack_into(frame.values, 0, *symbols)
            for number, (each, (count, cleared), block) in enumerate(zip(functions, counts, frame.blocks)):
                if count:
                    if each.scratch:
                        # The allocator gets it back at once; its next user on this stream runs after this kernel.
                        memory = self._module.memory(each.scratch * count)
                        frame.scratch[number] = memory.data_ptr()
                    if each.descriptors:
                        code = frame.maps[number].make(addresses, self._module.driver)
                        if code:
                            self._failed(number, code)
                    if not each.is_plain:
                        code = self._waiting(each, count, cleared, stream, block)
                    else:
                        code = launch(
                            each.handle, count, 1, 1, each.threads, 1, 1, each.shared_bytes, stream, block, None
                        )  # fmt: skip
                    if code:
                        self._retry(code, each, count, cleared, stream, block)
        finally:
            if own:
                self._frames.append(frame)

    def selecting(self, buffers: Sequence[int], symbols: Sequence[int]) -> Callable[..., None]:
        """Return ``run`` for the addresses and symbol values that calls give once: the positions of each kernel's among
        them are ``buffers`` and ``symbols``, concatenated."""

        def call(addresses: Sequence[int], values: Sequence[int | float] = ()) -> None:
            self.run([addresses[k] for k in buffers], [values[k] for k in symbols])

        native = None
        if not any(each.scratch or len(each.descriptors) > MOST_DESCRIPTORS for each in self._functions):
            kernels = native_kernels(self._functions, buffers, symbols, self._fixed)
            native = self._module.native(kernels, call, self._failed)
        if native is None:
            return call if symbols or list(buffers) != list(range(len(buffers))) else self.run
        if self._fixed is not None:
            return native

        last: tuple[Sequence[int | float] | None, Sequence[int]] = None, ()

        def sized(addresses: Sequence[int], values: Sequence[int | float] = ()) -> None:
            nonlocal last
            known, counts = last
            if known != values:
                pairs = self._evaluated([values[k] for k in symbols])
                counts = tuple(chain.from_iterable(pairs))
                last = tuple(values), counts
            native(addresses, values, counts)

        return sized

    def _failed(self, number: int, code: int) -> None:
        """Raise the exception for the launch of a kernel that the driver failed with an error code."""
        name = self._functions[number].kernel.name
        raise _driver_error(self._module.driver, f"launching {name}", code, name)

    def _frame(self) -> ArgumentArrays:
        """Take argument arrays that no other thread uses."""
        try:
            return self._frames.pop()
        except IndexError:
            return ArgumentArrays(self._functions)

    def _waiting(self, each: LoadedKernel, count: int, cleared: int, stream: int, block: Any) -> int:
        """Launch a kernel whose thread blocks wait for each other, after zeroing its workspace; the error code."""
        driver = self._module.driver
        if each.cluster_size > 1:
            return driver.launch_cluster(
                each.handle, count, each.threads, each.shared_bytes, stream, block, each.cluster_size
            )
        scratch = ctypes.c_uint64.from_address(block[each.cleared]).value
        code = driver.clear(scratch, cleared, stream)
        return code or self._plainly(each, count, stream, block)

    def _plainly(self, each: LoadedKernel, count: int, stream: int, block: Any) -> int:
        return self._launch(
            each.handle, count, 1, 1, each.threads, 1, 1, each.shared_bytes, stream, block, None
        )

    def _retry(
        self, code: int, function: LoadedKernel, count: int, cleared: int, stream: int, block: Any
    ) -> None:
        """Launch again after making the context current, if none was. Raises ``KernelError`` for another error."""
        driver = self._module.driver
        if code == INVALID_CONTEXT:
            driver.make_current()
            if function.is_plain:
                code = self._plainly(function, count, stream, block)
            else:
                code = self._waiting(function, count, cleared, stream, block)
        if code:
            name = function.kernel.name
            raise _driver_error(driver, f"launching {name}", code, name)

    def _for_alignment(self, addresses: Sequence[int]) -> list[LoadedKernel] | None:
        """Return for each kernel a binary that takes its addresses; ``None`` where one has no such binary."""
        remaining = iter(addresses)
        found = []
        for each in self._functions:
            own = [next(remaining) for _ in each.kernel.parameters]
            unaligned = reduce(or_, own, 0) & ALIGNED
            chosen = self._module.any_alignment(each.kernel.name) if unaligned else each
            if chosen is None:
                return None
            found.append(chosen)
        return found

    def _run_one_by_one(self, addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
        """Launch each kernel alone, on aligned copies of its buffers where no binary takes them as they are."""
        all_extents = self._extents or [None] * len(addresses)
        remaining = iter(addresses), iter(all_extents), iter(symbols)
        for each in self._functions:
            kernel = each.kernel
            own = [next(remaining[0]) for _ in kernel.parameters]
            extents = [next(remaining[1]) for _ in kernel.parameters]
            values = [next(remaining[2]) for _ in kernel.symbols]
            alone = NativeLaunches(self._module, [each])
            if not reduce(or_, own, 0) & ALIGNED or self._module.any_alignment(kernel.name) is not None:
                alone.run(own, values)
                continue
            named = {info.name: value for info, value in zip(kernel.symbols, values, strict=True)}
            module = self._module
            copies = AlignedCopies(kernel, own, extents, named, module.memory, module.copy)
            copies.fill()
            alone.run(copies.addresses, values)
            copies.write_back()

    def _evaluated(self, symbols: Sequence[int | float]) -> list[tuple[int, int]]:
        """Evaluate each kernel's grid size, and bytes of workspace to zero, for the values of its symbols."""
        remaining = iter(symbols)
        counts = []
        for each, (count, nbytes) in zip(self._functions, self._counts, strict=True):
            own = {info.name: next(remaining) for info in each.kernel.symbols}
            integers = {name: int(value) for name, value in own.items() if not isinstance(value, float)}
            counts.append((evaluate(count, integers), evaluate(nbytes, integers)))
        return counts


def _driver_error(driver: Driver, action: str, code: int, node: str = "") -> KernelError:
    """Return the exception for an action that the driver failed with an error code."""
    kind = OutOfMemory if code == OUT_OF_MEMORY else KernelError
    return kind(f"{action}: {driver.describe_error(code)}", code=code, node=node)


def _stream_of(device: int) -> Callable[[], int]:
    """Return a function that reads the handle of torch's current stream on a device."""
    stream_of = _stream_function()
    return lambda: stream_of(device)


def _stream_function() -> Callable[[int], int]:
    """Return the function from a device to the handle of torch's current stream there."""
    assert torch is not None
    found: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    current = torch.cuda.current_stream
    return found if found is not None else lambda device: int(current(device).cuda_stream)
