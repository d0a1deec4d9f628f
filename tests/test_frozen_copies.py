"""Copies of a GPU's parameters that are kept from call to call: which results are copies, and when they are made."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule
from torch.nn import functional as F

from litz.host.emit.frozen_copies import frozen_copies, has_frozen_copies
from litz.host.program import FrozenCopy
from litz.host.runtime.frozen_copies import FrozenCopies
from litz.host.runtime.gpus import ONE_GPU
from litz.host.runtime.native import NativeBinder
from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU, Device
from litz_ir.dtypes import bf16, f32
from litz_ir.passes import PassContext
from litz_ir.plan import Plan, RegionStep
from litz_ir.target import MemoryCopy, raise_failure
from litz_lowering import decompositions, lower
from litz_scheduler import schedule

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = replace(chip_capabilities("sm_90"), device=CPU)


def planned(function: Callable[..., Any], *args: torch.Tensor) -> Plan:
    """Return the GPU plan of a function of an activation and parameters."""
    found: list[Plan] = []

    def compile_(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        graph = lower(gm, frozen=names[1:]).graph
        found.append(schedule_plan(schedule(graph, PassContext({CPU: MACHINE})), MACHINE))
        return gm

    with torch.no_grad():
        aot_function(function, fw_compiler=compile_, decompositions=decompositions())(*args)
    return found[0]


def frozen_plan(plan: Plan) -> Plan:
    """Return the subplan of the frozen region."""
    (step,) = (each for each in plan.steps if isinstance(each, RegionStep))
    assert step.kind == "frozen"
    return plan.subplan(step.plans[0])


def copied(copy: FrozenCopy, argument: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Make a copy as the device does, element by element, and return the result."""
    flat, target = argument.as_strided((argument.numel(),), (1,)), result.as_strided((result.numel(),), (1,))
    source, at = (torch.full((), start).expand(copy.sizes).clone() for start in copy.starts)
    for dimension, size in enumerate(copy.sizes):
        shape = [1] * len(copy.sizes)
        shape[dimension] = size
        steps = torch.arange(size).view(shape)
        source, at = source + steps * copy.strides[0][dimension], at + steps * copy.strides[1][dimension]
    target[at.flatten()] = flat[source.flatten()].to(result.dtype)
    return result


def narrow(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16)


def layers(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, filters: torch.Tensor, head: torch.Tensor
) -> Any:
    """Return results of a linear layer, a convolution in channels-last, and a head whose rows are padded."""
    h = F.linear(narrow(x), narrow(w), narrow(b))
    image = h.view(8, 32, 8, 8).contiguous(memory_format=torch.channels_last)
    return F.conv2d(image, narrow(filters), padding=1), F.linear(h.relu(), narrow(head)).exp()


def test_weights_that_a_library_reads_are_copies_of_parameters() -> None:
    given = [torch.randn(*shape) for shape in ((8, 1024), (2048, 1024), (2048,), (32, 32, 3, 3), (999, 2048))]
    plan = planned(layers, *given)
    frozen = frozen_plan(plan)
    copies = frozen_copies(frozen)
    assert len(copies) == len(frozen.outputs) == 4
    assert {each.dtypes for each in copies} == {(f32, bf16)}
    arguments = {value.name: tensor for value, tensor in zip(plan.inputs, given, strict=True)}
    for copy, output in zip(copies, frozen.outputs, strict=True):
        argument = arguments[frozen.inputs[copy.argument].name]
        type_ = frozen.placement(output.name).type
        result = torch.empty_strided(type_.shape, type_.layout.strides, dtype=torch.bfloat16).zero_()
        made = copied(copy, argument, result)
        expected = torch.zeros_like(made)
        expected[tuple(map(slice, argument.shape))] = narrow(argument)
        assert torch.equal(made, expected)


def test_a_plan_has_frozen_copies_on_its_gpu_alone() -> None:
    plan = planned(lambda x, w: narrow(x) @ narrow(w), torch.randn(8, 1024), torch.randn(1024, 1024))
    assert frozen_copies(frozen_plan(plan))
    assert not has_frozen_copies(plan, "cpu"), "the graph is on a CPU in this test"
    assert not has_frozen_copies(plan, "cuda")


def test_results_that_are_no_copies_are_not_frozen() -> None:
    plan = planned(lambda x, w: narrow(x) @ narrow(w), torch.randn(8, 1024), torch.randn(1024, 1024))
    frozen = frozen_plan(plan)
    (kernel,) = frozen.kernels
    (phase,) = kernel.phases
    (store,) = phase.statements
    added = replace(store, mode="add")  # type: ignore[call-arg]
    assert not frozen_copies(
        replace(frozen, kernels=(replace(kernel, phases=(replace(phase, statements=(added,)),)),))
    )


def rounded_twice(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, k: torch.Tensor) -> Any:
    """Return results of weights that are no copies: rounded and widened again, masked by a triangle, repeated."""
    triangle, repeated = narrow(torch.tril(v)), narrow(k.expand(4, -1, -1))
    return x @ narrow(w).float(), narrow(x) @ triangle, torch.bmm(narrow(x).expand(4, -1, -1), repeated)


def test_parameters_in_other_forms_are_computed_in_every_call() -> None:
    weights = [torch.randn(1024, 1024) for _ in range(3)]
    plan = planned(rounded_twice, torch.randn(8, 1024), *weights)
    assert not any(isinstance(each, RegionStep) for each in plan.steps)


def test_what_a_caller_gets_is_computed_in_every_call() -> None:
    plan = planned(lambda x, w: (x + 1, narrow(w).t()), torch.randn(8), torch.randn(1024, 1100))
    assert not any(isinstance(each, RegionStep) for each in plan.steps)


class Module:
    """A module that keeps copies, as a device does, in memory of the host."""

    def __init__(self) -> None:
        self.calls = 0
        self.made = 0

    def copies(self, words: Sequence[int], copies: Sequence[MemoryCopy]) -> Callable[[], None] | None:
        values: list[int] = []
        assert all(word % 4 == 0 for word in words)

        def again() -> None:
            self.calls += 1
            now = [ctypes.c_int32.from_address(word).value for word in words]
            if values and now != values:
                self.made += 1
                for copy in copies:
                    (count,) = copy.sizes
                    source = (ctypes.c_float * count).from_address(copy.source)
                    target = (ctypes.c_float * count).from_address(copy.target)
                    numpy.frombuffer(target, numpy.float32)[:] = numpy.frombuffer(source, numpy.float32)
            values[:] = now

        return again


class LoadedModule(Module):
    def function(self, kernel: str) -> Callable[..., None]:
        raise AssertionError(f"{kernel} is not launched")


def test_each_device_has_the_copies_of_its_own_module() -> None:
    first, second = LoadedModule(), LoadedModule()
    devices = {Device("cuda"): first, Device("cuda", 1): second}
    binder = NativeBinder(devices, {}, ONE_GPU, None)
    assert binder.copies(Device("cuda")) == first.copies
    assert binder.copies(Device("cuda", 1)) == second.copies
    assert binder.copies(CPU) is None


class Stream:
    cuda_stream = 1


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The current stream, outside of a capture."""
    found = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: found)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


class Copier:
    """A frozen region that copies its argument, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, args: list[Any]) -> list[torch.Tensor]:
        self.calls += 1
        (source,) = args
        args.clear()
        return [source.detach().clone()]


SIZE = 3000
COPY = FrozenCopy(0, 0, (f32, f32), (0, 0), (SIZE,), ((1,), (1,)))


def frozen_copies_of(function: Copier, module: Module, **options: Any) -> FrozenCopies:
    return FrozenCopies(function, (COPY,), module.copies, raise_failure, **options)


def test_copies_are_reused_until_the_host_or_the_device_sees_a_change(stream: Stream) -> None:
    weight, function, module = torch.randn(SIZE), Copier(), Module()
    copies = frozen_copies_of(function, module)
    first = copies([weight])[0]
    assert copies([weight])[0] is first and function.calls == 1
    weight.data.mul_(2)
    assert copies([weight])[0] is first, "copied again in place"
    assert torch.equal(first, weight) and (function.calls, module.made) == (1, 1)
    with torch.no_grad():
        weight.add_(1)
    second = copies([weight])[0]
    assert second is not first and torch.equal(second, weight) and function.calls == 2
    weight.data = torch.randn(SIZE)
    assert torch.equal(copies([weight])[0], weight) and function.calls == 3
    assert torch.equal(copies([torch.ones(SIZE)])[0], torch.ones(SIZE)) and function.calls == 4


def test_small_tensors_are_compared_whole(stream: Stream) -> None:
    weight, function, module = torch.zeros(900), Copier(), Module()
    copies = FrozenCopies(function, (replace(COPY, sizes=(900,)),), module.copies, raise_failure)
    copies([weight])
    weight.data[431] = 1.0
    assert torch.equal(copies([weight])[0], weight) and function.calls == 1


def test_calls_on_other_streams_and_captures_store_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, function, module = torch.randn(SIZE), Copier(), Module()
    copies = frozen_copies_of(function, module)
    first = copies([weight])[0]
    for number in range(2, 6):
        stream.cuda_stream = 2
        assert copies([weight])[0] is not first and function.calls == number
        stream.cuda_stream = 1
        assert copies([weight])[0] is first
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert copies([weight])[0] is not first


def test_copies_follow_to_the_stream_that_is_used(stream: Stream) -> None:
    weight, function, module = torch.randn(SIZE), Copier(), Module()
    copies = frozen_copies_of(function, module)
    copies([weight])
    stream.cuda_stream = 2
    copies([weight])
    second = copies([weight])[0]
    assert copies([weight])[0] is second and function.calls == 3
    weight.data.mul_(2)
    assert torch.equal(copies([weight])[0], weight) and function.calls == 3


def test_copies_of_frozen_parameters_are_never_made_again(stream: Stream) -> None:
    weight, function, module = torch.randn(SIZE), Copier(), Module()
    copies = frozen_copies_of(function, module, frozen=True)
    first = copies([weight])[0]
    with torch.no_grad():
        weight.add_(1)
    assert copies([weight])[0] is first and (function.calls, module.calls) == (1, 0)


def test_tensors_without_versions_and_modules_that_cannot_copy(stream: Stream) -> None:
    function, module = Copier(), Module()
    with torch.inference_mode():
        weight = torch.randn(SIZE)
    copies = frozen_copies_of(function, module)
    copies([weight])
    copies([weight])
    assert (function.calls, module.calls) == (2, 0)
    other = FrozenCopies(function, (COPY,), lambda words, copies: None, raise_failure)
    plain = torch.randn(SIZE)
    assert torch.equal(other([plain])[0], plain) and torch.equal(other([plain])[0], plain)


def test_copies_live_no_longer_than_their_parameters(stream: Stream) -> None:
    weight, function, module = torch.randn(SIZE), Copier(), Module()
    copies = frozen_copies_of(function, module)
    copies([weight])
    assert len(copies._entries) == 1
    del weight
    assert not copies._entries


def test_a_failure_is_reported_and_the_region_computed(stream: Stream) -> None:
    told: list[str] = []
    function = Copier()

    def fails(words: Sequence[int], copies: Sequence[MemoryCopy]) -> Callable[[], None]:
        raise RuntimeError("no memory")

    copies = FrozenCopies(function, (COPY,), fails, lambda error, text: told.append(f"{error}: {text}"))
    weight = torch.randn(SIZE)
    assert torch.equal(copies([weight])[0], weight)
    assert told == ["no memory: the frozen region is computed in every call"]
