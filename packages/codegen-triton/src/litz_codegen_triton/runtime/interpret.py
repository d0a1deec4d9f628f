"""Run emitted kernels in Triton's interpreter, on host memory and without a GPU.

Triton decides at import whether functions are interpreted, so the process must have started with
``TRITON_INTERPRET=1``. Kernels are emitted in their interpreted form (see ``emit.ops_table``).

Thread blocks run one after another, in shuffled order: a GPU promises none, so a wrong dependency shows. Those of a
cluster wait for each other. All of them run up to the first cluster barrier, then again from the start up to the
second, and so on; data that they wrote to the workspace before a barrier is there in the next run, and what else they
wrote is undone, as it may lie where they read. The thread blocks of a look-back scan run in order.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triton.runtime.interpreter import InterpretedFunction, InterpreterOptions, interpreter_builder

from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.interpreted_reductions import whole_tensors
from litz_codegen_triton.runtime.modules import load_function
from litz_ir.errors import KernelError, TargetError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.host import Executor, Memory
from litz_ir.interp import Externs
from litz_ir.plan import WORD_BYTES, Kernel, Plan, scan_segment, workspace_words, zeroed_words
from litz_ir.symbols import evaluate
from litz_ir.target import LaunchFunction

_FAULT = re.compile(r"fault (\d+): ")


class _Pointer:
    """An address in the form of a tensor, for the interpreter; ``dtype`` is the element type in Triton's spelling."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    # Methods by which the interpreter copies tensors to the host and back; the memory is on the host already.

    def untyped_storage(self) -> _Pointer:
        return self

    def cpu(self) -> _Pointer:
        return self

    def new_empty(self, size: int, device: str) -> _Pointer:
        return _Pointer(self.address, self.dtype)

    def set_(self, source: _Pointer, offset: int, size: object, stride: object) -> None:
        return None

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()

    def copy_(self, source: _Pointer) -> None:
        return None


class InterpretedModule:
    """Kernels that run in the interpreter on host memory; implements ``litz_ir.target.KernelModule``.

    Source texts are written to ``folder``.
    """

    def __init__(self, kernels: Mapping[str, Kernel], folder: Path) -> None:
        self.kernels = dict(kernels)
        self.folder = folder

    def function(self, kernel: str) -> LaunchFunction:
        """Return a kernel's launcher, which takes buffer addresses and symbol values.

        Raises ``KeyError`` for an unknown kernel, and ``TargetError`` in a process whose Triton compiles.
        """
        found = self.kernels[kernel]
        source = emit_kernel(found, form="interpreted")
        function = load_function(source.text, source.name, self.folder)
        if not isinstance(function, InterpretedFunction):
            raise TargetError(
                "Triton's interpreter is off in this process",
                hint="set TRITON_INTERPRET=1 before Triton is first imported",
            )

        def launch(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            _launch(found, source, function, addresses, symbols)

        return launch


def _launch(
    kernel: Kernel,
    source: KernelSource,
    function: Any,
    addresses: Sequence[int],
    symbols: Sequence[int | float],
) -> None:
    """Run all thread blocks of a launch. Raises ``KernelError``, and the error of a failed bounds check."""
    values = {info.name: value for info, value in zip(kernel.symbols, symbols, strict=True)}
    sizes = {name: int(v) for name, v in values.items() if not isinstance(v, float)}
    grid_size = evaluate(source.grid_size, sizes)
    if grid_size == 0:
        return
    pointers = [
        _Pointer(address, kind.removeprefix("*")) for address, kind in zip(addresses, source.signature)
    ]  # fmt: skip
    _clear(kernel, addresses, sizes)
    workspace = _workspace(kernel, addresses, sizes)
    # A bool is an integer argument, as in the compiled form.
    numbers = [int(value) if isinstance(value, bool) else value for value in symbols]
    order = list(range(grid_size))
    if not scan_segment(kernel.schedule):
        random.Random(f"{kernel.name} {grid_size}").shuffle(order)
    options = interpreter_builder.options
    # Bounds checks are device asserts, which run in debug mode alone.
    interpreter_builder.options = InterpreterOptions(debug=source.asserts, sanitize_overflow=False)
    try:
        with _in_order(order), whole_tensors():
            for barrier in range(1, source.cluster_barriers + 1):
                with _undone(workspace):
                    function[(grid_size,)](*pointers, *numbers, barrier)
            last = (source.cluster_barriers + 1,) if source.cluster_barriers else ()
            function[(grid_size,)](*pointers, *numbers, *last)
    except Exception as error:
        # The interpreter wraps every exception, failed device asserts included, into an error of its own.
        failed = _FAULT.search(str(error))
        if failed is not None:
            raise fault_error(BY_CODE[int(failed.group(1))], kernel.name) from error
        raise KernelError(f"kernel {kernel.name} failed in Triton's interpreter: {error}", code=1) from error
    finally:
        interpreter_builder.options = options


@contextmanager
def _in_order(order: Sequence[int]) -> Iterator[None]:
    """Have the interpreter run the thread blocks of a grid in this order."""
    begin = interpreter_builder.set_grid_idx
    interpreter_builder.set_grid_idx = lambda x, y, z: begin(order[x], y, z)
    try:
        yield
    finally:
        interpreter_builder.set_grid_idx = begin


@contextmanager
def _undone(kept: range) -> Iterator[None]:
    """Undo, at the end of the block, what thread blocks stored at addresses outside of ``kept``."""
    store = interpreter_builder.create_masked_store
    replaced: list[tuple[Any, Any, Any]] = []

    def create(pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        inside = (pointers.data >= kept.start) & (pointers.data < kept.stop)
        if not (inside | (mask.data == 0)).all():
            before = interpreter_builder.create_masked_load(pointers, mask, None, None, None, False)
            replaced.append((pointers, before, mask))
        return store(pointers, value, mask, *options)

    interpreter_builder.create_masked_store = create
    try:
        yield
    finally:
        interpreter_builder.create_masked_store = store
    for pointers, before, mask in reversed(replaced):
        store(pointers, before, mask, None, None)


def _workspace(kernel: Kernel, addresses: Sequence[int], sizes: Mapping[str, int]) -> range:
    """Return the addresses of a kernel's workspace."""
    for parameter, address in zip(kernel.parameters, addresses, strict=True):
        if parameter.access == "workspace":
            return range(address, address + evaluate(workspace_words(kernel), sizes) * WORD_BYTES)
    return range(0)


def _clear(kernel: Kernel, addresses: Sequence[int], sizes: Mapping[str, int]) -> None:
    """Zero the words of a kernel's workspace that have to be zero when it starts."""
    for parameter, address in zip(kernel.parameters, addresses, strict=True):
        if parameter.access == "workspace":
            ctypes.memset(address, 0, evaluate(zeroed_words(kernel), sizes) * WORD_BYTES)


def run_kernel(
    kernel: Kernel, buffers: Mapping[str, Any], symbols: Mapping[str, int | float], folder: Path
) -> None:
    """Run one kernel in the interpreter on NumPy arrays, one per parameter, and write its outputs in place.

    Arrays and symbols have the form that ``litz_ir.interp.run_kernel`` takes.
    """
    launch = InterpretedModule({kernel.name: kernel}, folder).function(kernel.name)
    addresses = [int(buffers[parameter.name].ctypes.data) for parameter in kernel.parameters]
    launch(addresses, [symbols[info.name] for info in kernel.symbols])


def run_plan(
    plan: Plan,
    inputs: Sequence[Any],
    folder: Path,
    *,
    memory: Memory | None = None,
    externs: Externs | None = None,
    constants: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Run a plan with its kernels in the interpreter and return the executor's outputs.

    ``memory`` allocates tensors in host memory, by default NumPy arrays.
    """
    module = InterpretedModule({kernel.name: kernel for kernel in plan.kernels}, folder)
    launchers = {name: module.function(name) for name in module.kernels}
    return Executor(plan, launchers, memory, externs, constants=constants).run(inputs)
