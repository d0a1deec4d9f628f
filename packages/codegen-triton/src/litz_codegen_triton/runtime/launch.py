"""Loading cubins and launching them on torch's current stream, through the CUDA driver's own functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from litz_codegen_triton.emit.blocks import tiling
from litz_codegen_triton.runtime.compile import CompiledKernel
from litz_ir.errors import KernelError, ToolchainError
from litz_ir.plan.kernel import Kernel
from litz_ir.symbols.term import evaluate
from litz_ir.target.protocol import LaunchFunction

torch: ModuleType | None
try:
    import torch
except ImportError:  # plans can be made and compiled without it
    torch = None

_WARP = 32
_ALIGNED = 15
"""The bits of an address that are zero where it is a multiple of 16."""
_STATIC_SHARED = 48 << 10
_MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``; above the static limit a kernel has to ask for it."""
_INVALID_CONTEXT = 201
"""``CUDA_ERROR_INVALID_CONTEXT``: the driver's answer in a thread where nothing has made a context current."""


def current_chip() -> str | None:
    """The name of the current device's chip, ``None`` where there is no NVIDIA GPU."""
    if torch is None or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


class LaunchModule:
    """Compiled kernels on the current device; a ``Module`` as ``litz_ir.target.protocol`` has it.

    The kernels take their buffers to be aligned to 16 bytes. ``unaligned`` makes one of that name that does not, and is
    called when buffers are met that are not. Raises ``ToolchainError`` when there is no driver or it refuses a cubin.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledKernel],
        kernels: Mapping[str, Kernel],
        processors: int,
        unaligned: Callable[[str], CompiledKernel],
    ) -> None:
        self._driver = _driver()
        if torch is None:
            raise ToolchainError(
                "kernels run on torch's stream", hint="pip install litz-codegen-triton[runtime]"
            )
        self._context = _primary_context(self._driver, torch.cuda.current_device())
        self._driver.cuCtxSetCurrent(self._context)
        self._stream = torch.cuda.current_stream
        self._modules: list[ctypes.c_void_p] = []
        self._processors = processors
        self._kernels = dict(kernels)
        self._unaligned = unaligned
        self._any_alignment: dict[str, LaunchFunction] = {}
        self._functions = {
            name: self._checked(name, self._launcher(found)) for name, found in compiled.items()
        }

    def function(self, kernel: str) -> LaunchFunction:
        """The launcher of a kernel; raises ``KeyError``."""
        return self._functions[kernel]

    def _load(self, compiled: CompiledKernel) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _must(
            self._driver, self._driver.cuModuleLoadData(ctypes.byref(module), compiled.cubin), compiled.name
        )
        self._modules.append(module)
        entry = compiled.entry.encode()
        _must(
            self._driver,
            self._driver.cuModuleGetFunction(ctypes.byref(function), module, entry),
            compiled.name,
        )
        if compiled.shared > _STATIC_SHARED:
            code = self._driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, compiled.shared)
            _must(self._driver, code, compiled.name)
        return function

    def _checked(self, name: str, aligned: LaunchFunction) -> LaunchFunction:
        """A launcher that turns to the other binary where an address asks for it."""

        def run(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            if not any(address & _ALIGNED for address in addresses):
                aligned(addresses, symbols)
                return
            if name not in self._any_alignment:
                self._any_alignment[name] = self._launcher(self._unaligned(name))
            self._any_alignment[name](addresses, symbols)

        return run

    def _launcher(self, compiled: CompiledKernel) -> LaunchFunction:
        function, kernel = self._load(compiled), self._kernels[compiled.name]
        programs = tiling(kernel, self._processors).programs
        names = [info.name for info in kernel.symbols]
        kinds: list[Any] = [
            ctypes.c_double if info.kind == "float" else ctypes.c_int64 for info in kernel.symbols
        ]
        hidden = compiled.parameters - len(kernel.parameters) - len(kernel.symbols)
        if hidden < 0:
            raise ToolchainError(
                f"kernel {kernel.name} takes fewer arguments than its plan passes", hint="build it again"
            )
        threads = compiled.warps * _WARP
        driver, stream, context = self._driver, self._stream, self._context

        def launch(count: int, block: Any) -> int:
            on = ctypes.c_void_p(stream().cuda_stream)
            code: int = driver.cuLaunchKernel(
                function, count, 1, 1, threads, 1, 1, compiled.shared, on, block, None
            )
            return code

        def run(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            count = programs if isinstance(programs, int) else evaluate(programs, _integers(names, symbols))
            if count == 0:
                return
            slots: list[Any] = [ctypes.c_void_p(address) for address in addresses]
            slots += [kind(value) for kind, value in zip(kinds, symbols)]
            slots += [ctypes.c_void_p(0)] * hidden
            block = (ctypes.c_void_p * len(slots))(*map(ctypes.addressof, slots))
            code = launch(count, block)
            if code == _INVALID_CONTEXT:
                driver.cuCtxSetCurrent(context)
                code = launch(count, block)
            if code:
                raise KernelError(
                    f"launching {kernel.name}: {_explained(driver, code)}", code=code, node=kernel.name
                )

        return run


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ToolchainError(
            "no CUDA driver on this machine", hint="kernels can be compiled here, but only a GPU runs them"
        ) from error


def _primary_context(driver: Any, ordinal: int) -> ctypes.c_void_p:
    """The context of a device that torch works in. torch makes it current in a thread with its first call to the CUDA
    runtime there; in a thread of autograd's, where memory may come from torch's cache, litz's call may be the first."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    code = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), ordinal)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    )
    if code:
        raise ToolchainError(f"the CUDA driver gives no context: {_explained(driver, code)}")
    return context


def _must(driver: Any, code: int, name: str) -> None:
    if code:
        raise ToolchainError(f"the CUDA driver refused kernel {name}: {_explained(driver, code)}")


def _explained(driver: Any, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode()} ({code})"


def _integers(names: Sequence[str], symbols: Sequence[int | float]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(names, symbols) if not isinstance(value, float)}
