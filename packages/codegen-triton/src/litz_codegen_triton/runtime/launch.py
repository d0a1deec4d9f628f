"""Launching kernels on torch's current stream: a run of them is a loop over arguments that are ready."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import or_
from struct import Struct
from types import ModuleType
from typing import Any

from litz_codegen_triton.emit.grid import grid_size
from litz_codegen_triton.runtime.compile import CompiledKernel
from litz_codegen_triton.runtime.copies import ALIGNED, AlignedCopies
from litz_codegen_triton.runtime.driver import INVALID_CONTEXT, OUT_OF_MEMORY, Driver, cuda_library
from litz_ir.errors import KernelError, OutOfMemory, ToolchainError
from litz_ir.plan import WORD_BYTES, Kernel, cluster_size, scan_segment, zeroed_words
from litz_ir.symbols import evaluate, mul
from litz_ir.target import ByteRange, FailureCallback, LaunchFunction, raise_failure

torch: ModuleType | None
try:
    import torch
except ImportError:  # plans can be made and compiled without it
    torch = None

_WARP = 32


def current_chip() -> str | None:
    """The name of the current device's chip, ``None`` where there is no NVIDIA GPU."""
    if torch is None or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@dataclass(frozen=True, slots=True)
class _Function:
    """A kernel on the device: the driver's handle, threads per program, bytes of shared memory, how many pointers of
    Triton's own it takes after its arguments, how many programs run at the same time, the place among its arguments of
    the scratch that has to be zero when it begins, -1 where none has to, and the bytes of scratch of a program to which
    the first of Triton's pointers points."""

    kernel: Kernel
    handle: int
    threads: int
    shared: int
    hidden: int
    together: int
    cleared: int = -1
    scratch: int = 0

    @property
    def is_plain(self) -> bool:
        """True for a kernel whose programs do not wait for one another."""
        return self.together == 1 and self.cleared < 0


class LaunchModule:
    """Compiled kernels on the current device; a ``SegmentModule`` and a ``LazyModule`` as ``litz_ir.target.protocol``
    has them.

    The kernels take their buffers to be aligned to 16 bytes. ``unaligned`` makes one of that name that does not, and is
    called when buffers are met that are not. Where it fails, the kernel runs on aligned copies of them. Raises
    ``ToolchainError`` when there is no driver or it refuses a cubin.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledKernel],
        kernels: Mapping[str, Kernel],
        unaligned: Callable[[str], CompiledKernel],
    ) -> None:
        if torch is None:
            raise ToolchainError(
                "kernels run on torch's stream", hint="pip install litz-codegen-triton[runtime]"
            )
        library = cuda_library()
        self.device = torch.cuda.current_device()
        self.driver = Driver(library, self.device)
        self._kernels = dict(kernels)
        self._unaligned = unaligned
        self._any_alignment: dict[str, _Function | None] = {}
        self._told: FailureCallback = raise_failure
        self._functions = {name: self._loaded(found) for name, found in compiled.items()}

    def function(self, kernel: str) -> LaunchFunction:
        """The launcher of a kernel; raises ``KeyError``."""
        return self.segment((kernel,)).run

    def segment(
        self,
        names: Sequence[str],
        waits: Sequence[bool] | None = None,
        extents: Sequence[ByteRange | None] | None = None,
    ) -> NativeLaunches:
        """A run of kernels; raises ``KeyError``. On a stream each waits for those before it, whatever is said."""
        return NativeLaunches(self, [self._functions[name] for name in names], extents)

    def on_failure(self, told: FailureCallback) -> None:
        """Have ``told`` hear of kernels that cannot be built for buffers at any address."""
        self._told = told

    def memory(self, nbytes: int) -> Any:
        """Memory of the device for what is launched next on torch's stream; it begins at a multiple of 512 bytes."""
        assert torch is not None
        return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{self.device}")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy memory of the device on torch's stream; raises ``KernelError``."""
        code = self.driver.copy(target, source, nbytes, _stream_of(self.device)())
        if code == INVALID_CONTEXT:
            self.driver.make_current()
            code = self.driver.copy(target, source, nbytes, _stream_of(self.device)())
        if code:
            raise _refused(self.driver, f"copying {nbytes} bytes", code)

    def any_alignment(self, name: str) -> _Function | None:
        """A kernel built for buffers at any address, when it is first wanted; ``None`` where it cannot be, which is
        told of then."""
        if name not in self._any_alignment:
            self._any_alignment[name] = self._rebuilt(name)
        return self._any_alignment[name]

    def _rebuilt(self, name: str) -> _Function | None:
        try:
            return self._loaded(self._unaligned(name))
        except Exception as error:
            self._told(error, f"{name} runs on copies of buffers that begin at no multiple of 16 bytes")
            return None

    def _loaded(self, compiled: CompiledKernel) -> _Function:
        kernel = self._kernels[compiled.name]
        hidden = compiled.parameters - len(kernel.parameters) - len(kernel.symbols)
        if hidden < 0:
            raise ToolchainError(
                f"kernel {kernel.name} takes fewer arguments than its plan passes", hint="build it again"
            )
        handle = self.driver.load(compiled.cubin, compiled.entry, compiled.shared_bytes, compiled.name)
        threads, together = compiled.warps * _WARP, cluster_size(kernel.schedule)
        accesses = [each.access for each in kernel.parameters]
        cleared = accesses.index("workspace") if scan_segment(kernel.schedule) else -1
        return _Function(
            kernel, handle, threads, compiled.shared_bytes, hidden, together, cleared, compiled.scratch
        )


class _Frame:
    """Arguments of one call: two flat arrays, an address of scratch for each kernel, and for each kernel the addresses
    of its arguments in them."""

    __slots__ = ("_nothing", "addresses", "blocks", "scratch", "values")

    def __init__(self, functions: Sequence[_Function]) -> None:
        buffers = [len(each.kernel.parameters) for each in functions]
        symbols = [len(each.kernel.symbols) for each in functions]
        self.addresses = (ctypes.c_uint64 * max(1, sum(buffers)))()
        self.values = (ctypes.c_uint64 * max(1, sum(symbols)))()
        self._nothing = ctypes.c_uint64(0)
        self.scratch = (ctypes.c_uint64 * len(functions))()
        first, second = ctypes.addressof(self.addresses), ctypes.addressof(self.values)
        nothing, third = ctypes.addressof(self._nothing), ctypes.addressof(self.scratch)
        starts = zip(accumulate([0, *buffers]), accumulate([0, *symbols]), functions, strict=False)
        self.blocks = []
        for number, (at, where, function) in enumerate(starts):
            slots = [first + 8 * (at + k) for k in range(len(function.kernel.parameters))]
            slots += [second + 8 * (where + k) for k in range(len(function.kernel.symbols))]
            slots += [third + 8 * number, *[nothing] * function.hidden][: function.hidden]
            self.blocks.append((ctypes.c_void_p * max(1, len(slots)))(*slots))


class NativeLaunches:
    """Consecutive kernels. Argument arrays are kept and reused, one set per concurrent call: the driver copies what a
    launch is given before it returns."""

    def __init__(
        self,
        module: LaunchModule,
        functions: Sequence[_Function],
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
        # Signed: an empty tensor's pointer is null in PyTorch, and its storage offset is taken off that.
        self._addresses = Struct(f"={sum(len(kernel.parameters) for kernel in kernels)}q")
        self._symbols = Struct("=" + "".join("d" if kind == "float" else "q" for kind in kinds))
        self._frames: list[_Frame] = []

    def run(self, addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        """Launch on the addresses of all kernels' buffers, one after another, and likewise the symbol values.

        Raises ``KernelError`` where the driver refuses a launch; those after it are not made.
        """
        functions: Sequence[_Function] = self._functions
        if reduce(or_, addresses, 0) & ALIGNED:
            found = self._for_alignment(addresses)
            if found is None:
                self._run_one_by_one(addresses, symbols)
                return
            functions = found
        counts = self._fixed or self._evaluated(symbols)
        stream, launch = self._stream(), self._launch
        frame = self._frame()
        try:
            self._addresses.pack_into(frame.addresses, 0, *addresses)
            self._symbols.pack_into(frame.values, 0, *symbols)
            for number, (each, (count, cleared), block) in enumerate(zip(functions, counts, frame.blocks)):
                if count:
                    if each.scratch:
                        # Given back at once: what gets it next on this stream runs after this kernel.
                        memory = self._module.memory(each.scratch * count)
                        frame.scratch[number] = memory.data_ptr()
                    if not each.is_plain:
                        code = self._waiting(each, count, cleared, stream, block)
                    else:
                        code = launch(
                            each.handle, count, 1, 1, each.threads, 1, 1, each.shared, stream, block, None
                        )
                    if code:
                        self._again(code, each, count, cleared, stream, block)
        finally:
            self._frames.append(frame)

    def _frame(self) -> _Frame:
        """Arrays that no other thread is using."""
        try:
            return self._frames.pop()
        except IndexError:
            return _Frame(self._functions)

    def _waiting(self, each: _Function, count: int, cleared: int, stream: int, block: Any) -> int:
        """Launch a kernel whose programs wait for one another, its scratch zeroed before; the driver's code."""
        driver = self._module.driver
        if each.together > 1:
            return driver.launch_cluster(
                each.handle, count, each.threads, each.shared, stream, block, each.together
            )
        scratch = ctypes.c_uint64.from_address(block[each.cleared]).value
        code = driver.clear(scratch, cleared, stream)
        return code or self._plainly(each, count, stream, block)

    def _plainly(self, each: _Function, count: int, stream: int, block: Any) -> int:
        return self._launch(each.handle, count, 1, 1, each.threads, 1, 1, each.shared, stream, block, None)

    def _again(
        self, code: int, function: _Function, count: int, cleared: int, stream: int, block: Any
    ) -> None:
        """Launch in a thread where no context was current, or say why it cannot be done."""
        driver = self._module.driver
        if code == INVALID_CONTEXT:
            driver.make_current()
            if function.is_plain:
                code = self._plainly(function, count, stream, block)
            else:
                code = self._waiting(function, count, cleared, stream, block)
        if code:
            name = function.kernel.name
            raise _refused(driver, f"launching {name}", code, name)

    def _for_alignment(self, addresses: Sequence[int]) -> list[_Function] | None:
        """For each kernel the binary that its addresses ask for; ``None`` where one of them has none."""
        given = iter(addresses)
        found = []
        for each in self._functions:
            own = [next(given) for _ in each.kernel.parameters]
            unaligned = reduce(or_, own, 0) & ALIGNED
            chosen = self._module.any_alignment(each.kernel.name) if unaligned else each
            if chosen is None:
                return None
            found.append(chosen)
        return found

    def _run_one_by_one(self, addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
        """Launch each kernel alone, on aligned copies of its buffers where there is no other binary for them."""
        extents = self._extents or [None] * len(addresses)
        places, values, ends = iter(addresses), iter(symbols), iter(extents)
        for each in self._functions:
            kernel = each.kernel
            own = [next(places) for _ in kernel.parameters]
            reaches = [next(ends) for _ in kernel.parameters]
            given = [next(values) for _ in kernel.symbols]
            alone = NativeLaunches(self._module, [each])
            if not reduce(or_, own, 0) & ALIGNED or self._module.any_alignment(kernel.name) is not None:
                alone.run(own, given)
                continue
            named = {info.name: value for info, value in zip(kernel.symbols, given, strict=True)}
            module = self._module
            copies = AlignedCopies(kernel, own, reaches, named, module.memory, module.copy)
            copies.fill()
            alone.run(copies.addresses, given)
            copies.write_back()

    def _evaluated(self, symbols: Sequence[int | float]) -> list[tuple[int, int]]:
        """How many programs each kernel has, and bytes to zero, its sizes being ``symbols``."""
        given = iter(symbols)
        counts = []
        for each, (count, nbytes) in zip(self._functions, self._counts, strict=True):
            own = {info.name: next(given) for info in each.kernel.symbols}
            integers = {name: int(value) for name, value in own.items() if not isinstance(value, float)}
            counts.append((evaluate(count, integers), evaluate(nbytes, integers)))
        return counts


def _refused(driver: Driver, what: str, code: int, node: str = "") -> KernelError:
    """The error of what the driver does not do."""
    kind = OutOfMemory if code == OUT_OF_MEMORY else KernelError
    return kind(f"{what}: {driver.describe_error(code)}", code=code, node=node)


def _stream_of(device: int) -> Callable[[], int]:
    """What gives the handle of torch's current stream on a device."""
    assert torch is not None
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if quick is not None:
        return lambda: int(quick(device))
    current = torch.cuda.current_stream
    return lambda: int(current(device).cuda_stream)
