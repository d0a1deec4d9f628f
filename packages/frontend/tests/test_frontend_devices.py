"""Current devices of graphs on several GPUs or other accelerators, on stand-ins for CUDA and for such a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

from litz.devices import functions_of, other_accelerator
from litz.host.emit.source import host_program
from litz.host.runtime.gpus import Gpus, gpus_among
from litz.host.runtime.graph_devices import device_kinds, first_gpu, on_current_device
from litz.timing import sampler
from litz_ir import from_text
from litz_ir.device import Device
from litz_ir.errors import TargetError, UnsupportedOperation
from litz_ir.plan import Plan


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
        run = on_current_device(call, "cuda")
        run([])
    run([])
    assert seen == [1, 1]
    assert cuda.current == 0


class Accelerator(Cuda):
    """A stand-in for torch's accelerator of a kind that litz has no name for: it notes the current device and waits."""

    kind = "privateuseone"

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    made = Accelerator()
    found = torch.device(Accelerator.kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: made.current)
    monkeypatch.setattr(torch.accelerator, "device_index", made.device)
    monkeypatch.setattr(torch.accelerator, "synchronize", made.synchronize)
    return made


def test_another_accelerator_is_known_by_torch_alone(accelerator: Accelerator) -> None:
    assert other_accelerator() == accelerator.kind
    with first_gpu(map(torch.device, ("cpu", f"{accelerator.kind}:1"))):
        assert accelerator.current == functions_of(accelerator.kind).current() == 1
        run = on_current_device(lambda args: [accelerator.current], accelerator.kind)
    assert run([]) == [1] and accelerator.current == 0
    with pytest.raises(TargetError, match="its accelerator is privateuseone"):
        functions_of("xpu")


def test_a_launch_on_the_second_of_two_accelerators(accelerator: Accelerator) -> None:
    devices = [torch.device(f"{accelerator.kind}:{k}") for k in (1, 0)]
    gpus = gpus_among([torch.device("cpu"), *devices])
    assert gpus == Gpus((1, 0), accelerator.kind)
    seen: list[int] = []
    gpus.with_current(Device(accelerator.kind, 1), lambda: seen.append(accelerator.current))()
    assert seen == [0] and gpus.others() == {1: devices[1]}
    with pytest.raises(UnsupportedOperation, match="different kinds"):
        gpus_among([devices[0], torch.device("cuda:0")])


def test_the_time_of_another_accelerator_ends_when_it_is_idle(accelerator: Accelerator) -> None:
    waits: list[int] = []
    assert sampler("host")(lambda: waits.append(accelerator.waits)) > 0
    assert waits == [1] and accelerator.waits == 2


def test_a_host_program_allocates_on_any_kind_of_device() -> None:
    plan = from_text("""
        plan doubled on privateuseone "any" (%x: f32[4] fixed) -> (%o) {
          storage s: 64
          buffer %x: f32[4] fixed
          buffer %o: f32[4] fixed in s
          kernel double(in %x: f32, out %o: f32) { phase [t0: 4] { %o[t0] = %x[t0] + %x[t0]; } }
          allocate s
          launch double(%x, %o)
        }""")
    assert isinstance(plan, Plan)
    assert "o = empty_on('privateuseone')((4,), (1,), torch.float32)" in host_program(plan).text


def identity_on(device: str, *subgraphs: GraphModule) -> GraphModule:
    """Return a graph that returns its input, a tensor of a device, and has some subgraphs."""
    graph = Graph()
    x = graph.placeholder("x")
    with FakeTensorMode():
        x.meta["val"] = torch.empty(4, device=device)
    named = {f"branch_{k}": subgraph for k, subgraph in enumerate(subgraphs)}
    for name in named:
        graph.create_node("get_attr", name)
    graph.output(x)
    return GraphModule(named, graph)


def test_a_graph_with_subgraphs_has_the_cpu_for_their_numbers() -> None:
    alone = identity_on("cuda")
    assert device_kinds(alone) == ("cuda",)
    assert device_kinds(identity_on("cuda", alone)) == ("cuda", "cpu")
