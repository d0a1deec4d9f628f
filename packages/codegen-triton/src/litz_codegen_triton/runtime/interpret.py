"""Kernels in Triton's interpreter: what their text computes, found out without a GPU.

Triton decides when it is imported whether functions are interpreted, so this works in a process that was started with
``TRITON_INTERPRET=1``. Kernels are written in their interpreted form (see ``emit.ops_table``). Programs run one after
the other, shuffled, since a GPU promises no order: what one must not see of another shows. Where they wait for one
another, all of them run up to the first meeting, then from the start up to the next one, and so on: what they wrote
into scratch before a meeting is there when they come to it again. Only those that go on from what others before them
found run in order.
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

from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
from litz_codegen_triton.runtime.modules import load_function
from litz_ir.errors import KernelError, TargetError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.host import Executor, Memory
from litz_ir.interp import Externs
from litz_ir.plan import WORD_BYTES, Kernel, Plan, scan_segment, zeroed_words
from litz_ir.symbols import evaluate
from litz_ir.target import LaunchFunction

_FAULT = re.compile(r"fault (\d+): ")


class Pointer:
    """An address that the interpreter takes for a tensor; ``dtype`` is the element type in Triton's spelling."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        """The address."""
        return self.address

    # What the interpreter does to move tensors to the host and back: nothing, they are there.

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, size: int, device: str) -> Pointer:
        return Pointer(self.address, self.dtype)

    def set_(self, source: Pointer, offset: int, size: object, stride: object) -> None:
        return None

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()

    def copy_(self, source: Pointer) -> None:
        return None


class InterpretedModule:
    """Kernels that run in the interpreter on host memory; a ``KernelModule`` as ``litz_ir.target.protocol`` has it.

    Source texts are written to ``folder``. Raises ``TargetError`` in a process whose Triton compiles.
    """

    def __init__(self, kernels: Mapping[str, Kernel], folder: Path) -> None:
        self.kernels = dict(kernels)
        self.folder = folder

    def function(self, kernel: str) -> LaunchFunction:
        """The launcher of a kernel on buffer addresses and symbol values; raises ``KeyError``."""
        found = self.kernels[kernel]
        source = emit_kernel(found, form="interpreted")
        function = load_function(source.text, source.name, self.folder)
        if not isinstance(function, InterpretedFunction):
            raise TargetError(
                "Triton compiles in this process",
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
    values = {info.name: value for info, value in zip(kernel.symbols, symbols, strict=True)}
    programs = evaluate(
        source.grid_size, {name: int(v) for name, v in values.items() if not isinstance(v, float)}
    )
    if programs == 0:
        return
    arguments = [
        Pointer(address, kind.removeprefix("*")) for address, kind in zip(addresses, source.signature)
    ]  # fmt: skip
    _clear(kernel, addresses, {name: int(v) for name, v in values.items() if not isinstance(v, float)})
    # A flag is an integer argument, as in the compiled form.
    values_given = [int(value) if isinstance(value, bool) else value for value in symbols]
    order = list(range(programs))
    if not scan_segment(kernel.schedule):
        random.Random(f"{kernel.name} {programs}").shuffle(order)
    options = interpreter_builder.options
    # Index checks are device asserts, which only debug mode looks at.
    interpreter_builder.options = InterpreterOptions(debug=source.asserts, sanitize_overflow=False)
    try:
        with _in_order(order):
            for until in range(1, source.cluster_barriers + 1):
                function[(programs,)](*arguments, *values_given, until)
            last = (source.cluster_barriers + 1,) if source.cluster_barriers else ()
            function[(programs,)](*arguments, *values_given, *last)
    except Exception as error:
        # The interpreter wraps whatever went wrong, failed checks included, into its own error.
        failed = _FAULT.search(str(error))
        if failed is not None:
            raise fault_error(BY_CODE[int(failed.group(1))], kernel.name) from error
        raise KernelError(f"kernel {kernel.name} failed in Triton's interpreter: {error}", code=1) from error
    finally:
        interpreter_builder.options = options


@contextmanager
def _in_order(order: Sequence[int]) -> Iterator[None]:
    """Have the interpreter run a grid's programs in this order."""
    begin = interpreter_builder.set_grid_idx
    interpreter_builder.set_grid_idx = lambda x, y, z: begin(order[x], y, z)
    try:
        yield
    finally:
        interpreter_builder.set_grid_idx = begin


def _clear(kernel: Kernel, addresses: Sequence[int], sizes: Mapping[str, int]) -> None:
    """Zero what has to be zero of a kernel's scratch when it begins."""
    for parameter, address in zip(kernel.parameters, addresses, strict=True):
        if parameter.access == "workspace":
            ctypes.memset(address, 0, evaluate(zeroed_words(kernel), sizes) * WORD_BYTES)


def run_kernel(
    kernel: Kernel, buffers: Mapping[str, Any], symbols: Mapping[str, int | float], folder: Path
) -> None:
    """Run one kernel in the interpreter on NumPy arrays in memory form, one per parameter, as
    ``litz_ir.interp.kernel.run_kernel`` does; outputs are written in place."""
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
    """Run a plan with its kernels in the interpreter; its outputs as the executor gives them.

    ``memory`` is NumPy's unless another one is given, whose tensors are in the host's memory too.
    """
    module = InterpretedModule({kernel.name: kernel for kernel in plan.kernels}, folder)
    launchers = {name: module.function(name) for name in module.kernels}
    return Executor(plan, launchers, memory, externs, constants=constants).run(inputs)
