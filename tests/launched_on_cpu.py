"""The CPU as a target whose kernels are launched as on a GPU: by the launcher module, through a driver of the tests
that runs them in the host's memory. Binaries for aligned buffers refuse others."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from litz_codegen_cpp.runtime import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_triton.runtime import CompiledKernel, launch
from litz_ir.plan import Kernel
from litz_ir.target import SourceUnit

ANYWHERE = " anywhere"
"""Suffix of the name of an entry point that takes buffers at any address."""


class HostDriver:
    """Stand-in for CUDA's driver that loads, launches and copies; ``launched`` are the entry points that it ran."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.copied = 0
        self._loaded: list[tuple[CpuModule, Mapping[str, Kernel]]] = []
        self._entries: list[str] = [""]

        def run(handle: int, *arguments: Any) -> int:
            self._launch(self._entries[handle], arguments[-2])
            return 0

        self.cuLaunchKernel = run

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def given(self, module: CpuModule, kernels: Mapping[str, Kernel]) -> int:
        """Have kernels launched by a module; the number by which entry points know it."""
        self._loaded.append((module, kernels))
        return len(self._loaded) - 1

    def cuModuleGetFunction(self, function: Any, module: object, entry: bytes) -> int:
        self._entries.append(entry.decode())
        function._obj.value = len(self._entries) - 1
        return 0

    def cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: object) -> int:
        self.copied += nbytes.value
        ctypes.memmove(target.value, source.value, nbytes.value)
        return 0

    def _launch(self, entry: str, block: Any) -> None:
        self.launched.append(entry)
        number, _, name = entry.removesuffix(ANYWHERE).partition(" ")
        module, kernels = self._loaded[int(number)]
        kernel = kernels[name]
        count = len(kernel.parameters)
        words = [ctypes.c_uint64.from_address(block[k]).value for k in range(count + len(kernel.symbols))]
        addresses = words[:count]
        assert entry.endswith(ANYWHERE) or not any(each % 16 for each in addresses), "it takes aligned ones"
        pairs = zip(kernel.symbols, words[count:], strict=True)
        symbols = [
            struct.unpack("=d" if i.kind == "float" else "=q", struct.pack("=Q", w))[0] for i, w in pairs
        ]
        module.function(name)(addresses, symbols)


class LaunchedCpu(CpuTarget):
    """``fault`` stands in for the build of a kernel for buffers at any address, where there is one."""

    def __init__(self, fault: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.driver = HostDriver()
        self.fault = fault

    def load(  # type: ignore[override]  # another module
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> launch.LaunchModule:
        names = [name for unit in units for name in unit.kernels]
        number = self.driver.given(super().load(units, binaries, kernels), kernels)

        def compiled(name: str, suffix: str = "") -> CompiledKernel:
            arity = len(kernels[name].parameters) + len(kernels[name].symbols)
            return CompiledKernel(name, b"", f"{number} {name}{suffix}", 1, 0, arity)

        def unaligned(name: str) -> CompiledKernel:
            return compiled(name, ANYWHERE) if self.fault is None else self.fault()

        launch.cuda_library = lambda: self.driver
        return launch.LaunchModule({name: compiled(name) for name in names}, kernels, unaligned)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the launcher module take the host for its device."""
    stream = SimpleNamespace(cuda_stream=0)
    cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda _: stream)
    empty = torch.empty

    def allocate(nbytes: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        return empty(nbytes, dtype=dtype)

    host = SimpleNamespace(cuda=cuda, _C=None, empty=allocate, uint8=torch.uint8)
    monkeypatch.setattr(launch, "torch", host)
    monkeypatch.setattr(launch, "cuda_library", None)
    monkeypatch.setattr(launch, "grid_size", lambda *_: 1)
