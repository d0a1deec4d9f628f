"""Copies of memory that are made again, in stream order, once the memory has changed.

Two kernels that belong to no plan: one compares words of the memory with their last values and writes a stamp where one
differs, the other reads the stamp, and copies if it is that of this call. The host waits for neither.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litz_codegen_triton.capabilities import COPY_KINDS, NVIDIA
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.driver import INVALID_CONTEXT, Driver
from litz_codegen_triton.runtime.native_launcher import NativeKernel, NativeSegment
from litz_ir.errors import KernelError
from litz_ir.target import MemoryCopy

if TYPE_CHECKING:
    from litz_codegen_triton.emit import KernelSource

COMPARE, COPY = "litz_compare_words", "litz_copy_again"
"""Names of the kernels."""

WORDS = 1024
"""Words that a thread block compares."""

RANK = 4
"""Dimensions of a copy in the table."""

COPYING_BLOCKS = 264
"""Thread blocks that copy, two for each SM of a Hopper GPU; others divide the work too."""

_TEXTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    COMPARE: (
        f"""\
import triton
import triton.language as tl


@triton.jit
def {COMPARE}(addresses_ptr, values_ptr, changed_ptr, stamp, count):
    # values_ptr has the word at each address as it was; changed_ptr gets the stamp where one differs
    BLOCK: tl.constexpr = {WORDS}
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    address = tl.load(addresses_ptr + at, mask=mask, other=0)
    now = tl.load(address.to(tl.pointer_type(tl.int32)), mask=mask, other=0)
    before = tl.load(values_ptr + at, mask=mask, other=0)
    differs = mask & (now != before)
    tl.store(values_ptr + at, now, mask=differs)
    tl.store(changed_ptr + at * 0, stamp, mask=differs)
""",
        ("*i64", "*i32", "*i64", "i64", "i64"),
    ),
    COPY: (
        f"""\
import triton
import triton.language as tl


@triton.jit
def {COPY}(table_ptr, changed_ptr, stamp, count):
    # a row of table_ptr: source, target, elements, kind, three inner sizes, four strides of each side
    BLOCK: tl.constexpr = 1024
    if tl.load(changed_ptr) == stamp:
        for number in range(0, count):
            row = table_ptr + number * 16
            source = tl.load(row)
            target = tl.load(row + 1)
            elements = tl.load(row + 2)
            kind = tl.load(row + 3)
            n1 = tl.load(row + 4)
            n2 = tl.load(row + 5)
            n3 = tl.load(row + 6)
            for start in range(tl.program_id(0) * BLOCK, elements, tl.num_programs(0) * BLOCK):
                at = start + tl.arange(0, BLOCK).to(tl.int64)
                mask = at < elements
                i3 = at % n3
                i2 = at // n3 % n2
                i1 = at // (n3 * n2) % n1
                i0 = at // (n3 * n2 * n1)
                a = i0 * tl.load(row + 7) + i1 * tl.load(row + 8) + i2 * tl.load(row + 9) + i3 * tl.load(row + 10)
                b = i0 * tl.load(row + 11) + i1 * tl.load(row + 12) + i2 * tl.load(row + 13) + i3 * tl.load(row + 14)
                if kind == 0:
                    half = tl.load(source.to(tl.pointer_type(tl.int16)) + a, mask=mask)
                    tl.store(target.to(tl.pointer_type(tl.int16)) + b, half, mask=mask)
                else:
                    whole = tl.load(source.to(tl.pointer_type(tl.float32)) + a, mask=mask)
                    if kind == 1:
                        tl.store(target.to(tl.pointer_type(tl.float32)) + b, whole, mask=mask)
                    elif kind == 2:
                        tl.store(target.to(tl.pointer_type(tl.bfloat16)) + b, whole.to(tl.bfloat16), mask=mask)
                    else:
                        tl.store(target.to(tl.pointer_type(tl.float16)) + b, whole.to(tl.float16), mask=mask)
""",
        ("*i64", "*i64", "i64", "i64"),
    ),
}
"""Source and signature of each kernel."""


def copying_sources(made: Callable[..., KernelSource]) -> tuple[KernelSource, ...]:
    """Return the sources of both kernels; ``made`` makes a ``KernelSource``."""
    return tuple(
        made(
            name=name, text=text, signature=signature, divisible=(), warps=4, asserts=False, grid_size=1,
            contract=False,
        )
        for name, (text, signature) in _TEXTS.items()
    )  # fmt: skip


def table_row(copy: MemoryCopy) -> list[int]:
    """Return the numbers that describe a copy to the kernel. Raises ``KeyError`` for dtypes that it does not copy."""
    missing = RANK - len(copy.sizes)
    sizes = (1,) * missing + copy.sizes
    source, target = ((0,) * missing + strides for strides in copy.strides)
    elements = 1
    for size in sizes:
        elements *= size
    return [copy.source, copy.target, elements, COPY_KINDS[copy.dtypes], *sizes[1:], *source, *target, 0]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A kernel that is loaded on the device."""

    handle: int
    threads: int
    shared_bytes: int
    hidden: int
    """Pointers that Triton adds after the arguments of the source."""


class CopyLauncher:
    """Both kernels, loaded on a device by its ``driver``. ``stream`` returns the handle of the current stream.

    ``native`` returns the call of kernels that the native launcher makes, ``None`` where there is none.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledKernel],
        driver: Driver,
        stream: Callable[[], int],
        native: NativeSegment = lambda kernels, python, failed: None,
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._native = native
        self._kernels = {name: self._loaded(compiled[name]) for name in (COMPARE, COPY)}

    def copies(
        self, words: Sequence[int], copies: Sequence[MemoryCopy], memory: Callable[[list[int]], Any]
    ) -> Callable[[], None]:
        """Return the function that ``CopyingModule.copies`` describes.

        ``memory`` makes a tensor of ``i64`` numbers on the device. The function's first call notes the words alone; its
        calls raise ``KernelError`` where the driver returns an error.
        """
        addresses, table = memory(list(words)), memory([each for copy in copies for each in table_row(copy)])
        values, changed = memory([0] * -(-len(words) // 2)), memory([0])
        referenced = (addresses, table, values, changed)
        stamps, first, order = itertools.count(1), [True], threading.Lock()
        compare = self._launch_of(COMPARE, -(-len(words) // WORDS))
        copy = self._launch_of(COPY, COPYING_BLOCKS)
        at, rows, before, flag = (each.data_ptr() for each in referenced)

        def again() -> None:
            with order:  # no comparison of another thread comes between both kernels
                stamp = next(stamps)
                compare((at, before, flag), (stamp, len(words)))
                if first:
                    first.clear()  # the copies are new
                else:
                    copy((rows, flag), (stamp, len(copies)))

        again.memory = referenced  # type: ignore[attr-defined]  # lives as long as the function
        return again

    def _launch_of(self, name: str, count: int) -> Callable[[Sequence[int], Sequence[int]], None]:
        """Return the launch of a kernel in ``count`` thread blocks, given addresses and numbers."""
        kernel = self._kernels[name]
        numbers = ((0, False), (1, False))
        buffers = tuple(range(len(_TEXTS[name][1]) - len(numbers)))
        made = NativeKernel(
            kernel.handle,
            kernel.threads,
            kernel.shared_bytes,
            1,
            -1,
            kernel.hidden,
            buffers,
            numbers,
            (count, 0),
        )

        def launch(addresses: Sequence[int], values: Sequence[int]) -> None:
            self._launch(name, count, (*addresses, *values))

        return self._native([made], launch, lambda number, code: self._fail(name, code)) or launch

    def _fail(self, name: str, code: int) -> None:
        """Raise the exception for a launch that the driver failed with an error code."""
        raise KernelError(f"launching {name}: {self._driver.describe_error(code)}", code=code, node=name)

    def _launch(self, name: str, count: int, values: Sequence[int]) -> None:
        """Launch a kernel on the current stream."""
        kernel = self._kernels[name]
        arguments = [ctypes.c_int64(value) for value in (*values, *[0] * kernel.hidden)]
        block = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        given = (
            kernel.handle,
            count,
            1,
            1,
            kernel.threads,
            1,
            1,
            kernel.shared_bytes,
            self._stream(),
            block,
            None,
        )
        code = self._driver.launch(*given)
        if code == INVALID_CONTEXT:
            self._driver.make_current()
            code = self._driver.launch(*given)
        if code:
            self._fail(name, code)

    def _loaded(self, compiled: CompiledKernel) -> _Loaded:
        """Load a kernel."""
        handle = self._driver.load(compiled.cubin, compiled.entry, compiled.shared_bytes, compiled.name)
        hidden = compiled.parameters - len(_TEXTS[compiled.name][1])
        return _Loaded(handle, compiled.warps * NVIDIA.warp_size, compiled.shared_bytes, hidden)
