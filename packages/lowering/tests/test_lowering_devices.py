"""Graphs on a GPU, traced without one, with tensors on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from litz_ir import to_text
from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Extern, HostScalar, LoopGraph, Random, Ref
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, correct_metadata, decompositions, gpus_of, lower
from litz_lowering.types.devices import Devices


def lowered(
    program: Callable[..., object], *cpu_tensors: Tensor, table: Mapping[Any, Any] | None = None
) -> LoopGraph:
    shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
    with FakeTensorMode(shape_env=shapes, static_shapes=True) as mode:
        given = (torch.empty(4, 6, device="cuda"), *(mode.from_tensor(each) for each in cpu_tensors))
        traced = make_fx(program, decomposition_table=table)(*given)
    correct_metadata(traced)
    graph = lower(traced, options=LoweringOptions(fallback="error")).graph
    verify(graph)
    return graph


def calls(graph: LoopGraph) -> list[str]:
    return [o.target for o in graph.operations if isinstance(o, Extern | Random)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_number_on_the_cpu_is_passed_to_kernels_by_value(dtype: torch.dtype) -> None:
    graph = lowered(lambda x, s: x * s + 1, torch.ones((), dtype=dtype))
    assert [type(o) for o in graph.operations].count(HostScalar) == 1
    assert calls(graph) == []


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.int64, "int"), (torch.uint8, "int"), (torch.bool, "bool")]
)
def test_integers_and_bools_are_passed_by_value(dtype: torch.dtype, kind: str) -> None:
    graph = lowered(lambda x, n: x * n, torch.ones((), dtype=dtype))
    assert [type(o) for o in graph.operations].count(HostScalar) == 1
    assert [info.kind for info in graph.symbols] == [kind]
    assert calls(graph) == []


def test_a_64_bit_unsigned_scalar_is_copied() -> None:
    assert calls(lowered(lambda x, n: x * n, torch.ones((), dtype=torch.uint64))) == ["aten._to_copy.default"]


def test_a_known_scalar_is_a_literal() -> None:
    graph = lowered(lambda x: x * torch.tensor(2.5) + torch.full((), 3))
    assert calls(graph) == [] and not list(graph.symbols)
    assert not any(isinstance(o, HostScalar) for o in graph.operations)


def test_operations_on_the_cpu_are_loops_on_the_cpu() -> None:
    graph = lowered(lambda x, s: (x * (s * 2), s + 1), torch.ones(()))
    assert calls(graph) == []
    made = {o.name: o.results[0].type.device for o in graph.operations if o.results}
    assert [str(made[name]) for name in ("mul", "mul_1", "add")] == ["cpu", "cuda", "cpu"]


@pytest.mark.parametrize("table", [None, decompositions()], ids=["as written", "decomposed"])
def test_optimizer_steps_on_the_cpu_stay_on_the_cpu(table: Mapping[Any, Any] | None) -> None:
    def program(x: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        steps = torch._foreach_add([one, other], 1)
        powers = torch._foreach_pow(0.9, steps)
        between = torch._foreach_lerp(steps, powers, 0.5)
        bias = torch._foreach_sqrt(torch._foreach_neg(torch._foreach_sub(powers, 1)))
        return x / bias[0], *steps, *powers, *between, *bias, torch.lerp(one, other, powers[0])

    graph = lowered(program, torch.ones(()), torch.ones(()), table=table)
    values = graph.values()
    made = [str(values[each.name].type.device) for each in graph.outputs if isinstance(each, Ref)]
    assert made == ["cuda", *["cpu"] * 9]
    assert calls(graph) == []


def test_copies_between_devices_are_calls() -> None:
    graph = lowered(lambda x, c: (x.cpu() + c, c.to(x.device, non_blocking=True) * x), torch.ones(6))
    assert calls(graph) == ["aten._to_copy.default"] * 2
    there = next(o for o in graph.operations if o.name == "_to_copy_1")
    assert isinstance(there, Extern) and dict(there.attributes)["non_blocking"] is True


def test_a_factory_with_a_cpu_device_creates_on_the_cpu() -> None:
    graph = lowered(lambda x: (x + 1, torch.full_like(x, 3, device="cpu"), torch.rand_like(x, device="cpu")))
    assert calls(graph) == ["aten.rand_like.default"], "the GPU tensor is not copied"


def test_pinned_memory_is_allocated_by_a_call() -> None:
    graph = Graph()  # built by hand, since pinned memory needs a GPU
    x = graph.placeholder("x")
    made = graph.call_function(torch.ops.aten.zeros.default, ([4],), {"pin_memory": True})
    graph.output((x, made))
    with FakeTensorMode():
        x.meta["val"], made.meta["val"] = torch.empty(4, device="cuda"), torch.empty(4)
    assert calls(lower(GraphModule({}, graph), options=LoweringOptions(fallback="error")).graph) == [
        "aten.zeros.default"
    ]


def test_a_complex_number_on_the_cpu_is_copied() -> None:
    graph = lowered(lambda x, z: x * z, torch.ones((), dtype=torch.complex64))
    assert calls(graph) == ["aten._to_copy.default"]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (5, 3)])
def test_gpus_are_numbered_in_order_of_use(first: int, second: int) -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x * 2).to(y.device) + y, torch.rand(6, device=y.device), torch.zeros(6, device=y.device)

    with FakeTensorMode():
        given = torch.empty(6, device=f"cuda:{first}"), torch.empty(6, device=f"cuda:{second}")
        traced = make_fx(program)(*given)
    graph = lower(traced, options=LoweringOptions(fallback="error")).graph
    verify(graph)
    assert gpus_of(traced) == (torch.device("cuda", first), torch.device("cuda", second))
    assert [str(o.results[0].type.device) for o in graph.operations] == ["cuda", *["cuda:1"] * 4]
    asked = [dict(o.attributes)["device"] for o in graph.operations if isinstance(o, Extern | Random)]
    assert asked == [Device("cuda", 1)] * 2


def test_a_gpu_without_an_index_is_that_of_the_result() -> None:
    devices = Devices((torch.device("cuda:2"), torch.device("cuda:0")))
    assert devices.of(torch.device("cuda"), torch.device("cuda:0")) == Device("cuda", 1)
    assert devices.of(torch.device("cuda")) == Device("cuda")
    assert devices.of(torch.device("cpu"), torch.device("cuda:0")) == Device("cpu")
    with pytest.raises(UnsupportedOperation, match="no tensor of the graph is on cuda:1"):
        devices.of(torch.device("cuda:1"))


def test_indices_on_the_cpu_are_copied() -> None:
    graph = lowered(lambda x, i: torch.ops.aten.index.Tensor(x, [i]), torch.tensor([0, 2]))
    assert calls(graph) == ["aten._to_copy.default"]


def test_indices_of_index_copy_are_copied() -> None:
    graph = Graph()  # built by hand, since torch's meta kernel needs a GPU
    x, index = graph.placeholder("x"), graph.placeholder("index")
    copied = graph.call_function(torch.ops.aten.index_copy.default, (x, 0, index, x))
    graph.output((copied,))
    with FakeTensorMode():
        x.meta["val"] = copied.meta["val"] = torch.empty(4, 6, device="cuda")
        index.meta["val"] = torch.empty(4, dtype=torch.int64)
    made = lower(GraphModule({}, graph), options=LoweringOptions(fallback="error")).graph
    assert calls(made) == ["aten._to_copy.default"]


def test_dropout_on_a_gpu_draws_as_eager_does() -> None:
    graph = lowered(lambda x: torch.ops.aten.native_dropout(x, 0.5, True))
    assert calls(graph) == ["aten.native_dropout.default"]


def test_counts_are_int64() -> None:
    graph = lowered(lambda x, n: torch.bincount(n, minlength=2), torch.ones(5, dtype=torch.int8))
    (count,) = (v for o in graph.operations for v in o.results if v.name == "bincount")
    assert str(count.type.dtype) == "i64"


def test_a_division_by_a_number_multiplies_by_its_reciprocal() -> None:
    text = to_text(
        lowered(lambda x: (x / 784, x.double() / 0.3, x / 0, torch.div(x, 3, rounding_mode="floor")))
    )
    assert f"* {np.float32(1) / np.float32(784)}" in text and f"* {1 / 0.3}" in text
    # A floor division multiplies what is left without the remainder.
    assert "* inf" in text and f"* {float(np.float32(1) / np.float32(3))}" in text
    assert "/ 784.0" in to_text(lowered(lambda x: torch._foreach_div([x], 784))), (
        "its kernel for lists divides"
    )
    assert "/" not in text


def test_remainders_by_numbers_round_them_to_the_dtype_of_the_result() -> None:
    rounded = str(float(np.float16(0.1)))
    for program in (lambda x: x.half() % 0.1, lambda x: torch.fmod(x.half(), 0.1)):
        assert rounded in to_text(lowered(program))
    assert rounded not in to_text(lowered(lambda x: x.half() + 0.1))
