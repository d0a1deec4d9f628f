"""The native launcher in compiled graphs: found in the cache, and the values of kernels that it launches."""

from __future__ import annotations

import ctypes
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from launched_on_cpu import HostDriver, LaunchedCpu, stand_in
from torch.testing import assert_close

import litz
from litz import loading, pipeline
from litz.cache import libraries
from litz.capture import aot
from litz.compilation import compilation
from litz.settings import Config
from litz.targets import TargetSet
from litz_codegen_cpp.target import CpuTarget
from litz_ir.plan import Kernel
from litz_ir.target import SourceUnit

pytest.importorskip("triton")
target_module = pytest.importorskip("litz_codegen_triton.target")
native = pytest.importorskip("litz_codegen_triton.runtime.native_launcher")
pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")

INT, POINTER = ctypes.c_uint, ctypes.c_void_p
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, *[INT] * 7, POINTER, POINTER, POINTER)
MOST_ARGUMENTS = 64


class NativeHostDriver(HostDriver, ctypes.CDLL):
    """The driver of the tests as a native library. ``errors`` are the exceptions that kernels raised."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        run = self.cuLaunchKernel

        def launch(handle: int, *arguments: Any) -> int:
            block = (ctypes.c_void_p * MOST_ARGUMENTS).from_address(arguments[-2])
            try:
                return run(handle, *arguments[:-2], block, None)
            except BaseException as error:
                self.errors.append(error)
                return 1

        self.cuLaunchKernel = LAUNCH(launch)
        for name in ("cuLaunchKernelEx", "cuMemsetD8Async", "cuCtxSetCurrent", "cuTensorMapEncodeTiled"):
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0))


class NativelyLaunchedCpu(LaunchedCpu):
    """The CPU as a target whose kernels the native launcher launches."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = NativeHostDriver()

    def launcher_unit(self) -> SourceUnit:
        unit: SourceUnit = native.launcher_unit()
        return unit

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        if unit.language == native.LANGUAGE:
            built: Path = native.build_launcher(unit, folder)
            return built
        return super().build(unit, folder)

    def load(  # type: ignore[override]  # another module
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> Any:
        *own, last = zip(units, binaries, strict=True)
        assert last[0].language == native.LANGUAGE
        module = super().load([unit for unit, _ in own], [path for _, path in own], kernels)
        module.maker = native.launcher_maker(last[1])
        assert module.maker is not None and module.entry_points is not None
        return module


@pytest.fixture(autouse=True)
def options(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "cache"), fallback="error", verify=False):
        yield


def programs() -> dict[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]]:
    def training(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm((x @ w).relu() + b, (48,))
        (y.softmax(-1) * y).sum().backward()
        assert x.grad is not None and w.grad is not None and b.grad is not None
        found = torch.cat([x.grad.flatten(), w.grad.flatten(), b.grad.flatten()])
        x.grad = w.grad = b.grad = None
        return found

    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((32, 40), (40, 48), (48,))]
    return {
        "inference": (lambda x: ((x.sin() + 1) @ x.t()).softmax(-1).t() * x.sum(), [torch.randn(24, 24)]),
        "offset": (lambda x: (x.exp() - x.mean(0)).cumsum(1), [torch.randn(200)[3:195].view(8, 24)]),
        "training": (training, leaves),
    }


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["inference", "offset", "training"])
def test_values_are_those_of_eager(name: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = NativelyLaunchedCpu()
    stand_in(monkeypatch)
    monkeypatch.setattr("litz_codegen_triton.runtime.launch.zeroed_words", lambda _: 0)
    for module in (compilation, aot):
        monkeypatch.setattr(module, "targets_for", lambda *_: TargetSet({"cpu": made}))
    function, inputs = programs()[name]
    if name == "training":

        def run(*args: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.layer_norm((args[0] @ args[1]).relu() + args[2], (48,))
            return (y.softmax(-1) * y).sum()

        compiled = torch.compile(run, backend="litz", dynamic=dynamic)
        wanted = function(*inputs)
        for _ in range(2):
            grads = torch.autograd.grad(compiled(*inputs), inputs)
            assert_close(torch.cat([each.flatten() for each in grads]), wanted, rtol=1e-5, atol=1e-5)
    else:
        compiled = torch.compile(function, backend="litz", dynamic=dynamic)
        for _ in range(2):
            assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)
    assert made.driver.launched and not made.driver.errors


def test_it_is_built_once_and_found_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    target, config = target_module.CudaTarget("sm_90"), litz.config.current()
    first = libraries.Launchers()
    found = first.of(target, config)
    assert found is not None and found[0] == target.launcher_unit()
    monkeypatch.setattr(target_module, "build_launcher", None)
    assert first.of(target, config) == found
    assert libraries.Launchers().of(target, config) == found
    assert libraries.Launchers().of(CpuTarget(), config) is None


def test_it_is_built_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made, threads = NativelyLaunchedCpu(), []

    def build(unit: SourceUnit, folder: Path) -> Path:
        if unit.language == native.LANGUAGE:
            threads.append(threading.current_thread())
        return NativelyLaunchedCpu.build(made, unit, folder)

    stand_in(monkeypatch)
    monkeypatch.setattr(made, "build", build)
    fresh = libraries.Launchers()
    for module in (pipeline, loading):
        monkeypatch.setattr(module, "launchers", fresh)
    for module in (compilation, aot):
        monkeypatch.setattr(module, "targets_for", lambda *_: TargetSet({"cpu": made}))
    x = torch.randn(24, 24)
    for count in (1, 2):
        torch._dynamo.reset()
        with litz.config.patch(compile_threads=count, cache=False):
            assert_close(torch.compile(torch.add, backend="litz")(x, count), x + count)
        fresh.__init__()  # type: ignore[misc]  # it is built anew
    alone, parallel = threads
    assert alone is threading.main_thread() is not parallel


def test_without_a_compiler_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    target, launchers = target_module.CudaTarget("sm_90", compiler="false"), libraries.Launchers()
    with caplog.at_level(logging.INFO, "litz"):
        assert launchers.of(target, Config()) is None
        assert launchers.of(target, Config()) is None
    assert sum("launched by Python" in record.getMessage() for record in caplog.records) == 1
