"""Current devices of graphs on several GPUs, on a stand-in for CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from litz.host.runtime.graph_devices import first_gpu, on_current_device


class Cuda:
    """A stand-in that notes the current device."""

    def __init__(self) -> None:
        self.current = 0

    @contextmanager
    def device(self, ordinal: int) -> Iterator[None]:
        before, self.current = self.current, ordinal
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setattr(torch.cuda, "device", made.device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return made


def test_a_graph_is_compiled_with_its_device_current(cuda: Cuda) -> None:
    with first_gpu(map(torch.device, ("cpu", "cuda:1", "cuda:0"))):
        assert cuda.current == 1
    assert cuda.current == 0
    with first_gpu([torch.device("cpu")]):
        assert cuda.current == 0


def test_a_call_runs_on_the_device_that_it_was_loaded_on(cuda: Cuda) -> None:
    seen: list[int] = []

    def call(args: list[Any]) -> list[Any]:
        seen.append(cuda.current)
        return []

    with cuda.device(1):
        run = on_current_device(call)
        run([])
    run([])
    assert seen == [1, 1]
    assert cuda.current == 0
