"""Launching, on a driver of the test's own: it has contexts by thread, as CUDA's has."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import triton_corpus

from litz_codegen_triton.runtime import launch
from litz_codegen_triton.runtime.compile import CompiledKernel
from litz_ir.errors import KernelError


class Driver:
    """Succeeds at everything, but launches only in threads with a current context; ``broken``: nowhere."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.launches = 0
        self._thread = threading.local()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def cuCtxSetCurrent(self, context: object) -> int:
        self._thread.context = context
        return 0

    def cuLaunchKernel(self, *_: object) -> int:
        if self.broken or not hasattr(self._thread, "context"):
            return 201
        self.launches += 1
        return 0


def launched(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Launch a kernel in this thread and in a new one; what they raised."""
    stream = SimpleNamespace(cuda_stream=0)
    cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda: stream)
    monkeypatch.setattr(launch, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(launch, "_driver", lambda: driver)
    kernel = next(case.kernel for case in triton_corpus.cases() if not case.kernel.symbols)
    built = CompiledKernel(kernel.name, b"", "entry", 4, 0, len(kernel.parameters))
    module = launch.LaunchModule({kernel.name: built}, {kernel.name: kernel}, 132, lambda _: built)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            module.function(kernel.name)([16] * len(kernel.parameters), [])
        except KernelError as error:
            raised.append(error)

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


def test_a_thread_that_has_no_context_yet_gets_the_one_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    assert launched(driver, monkeypatch) == []
    assert driver.launches == 2


def test_a_context_that_stays_invalid_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = launched(Driver(broken=True), monkeypatch)
    assert [getattr(error, "code", None) for error in raised] == [201, 201]
