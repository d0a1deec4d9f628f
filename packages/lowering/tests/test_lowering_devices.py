"""Graphs on a GPU, traced without one: what is on the CPU beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from litz_ir.loops.nodes import Extern, HostScalar, LoopGraph, Random
from litz_ir.loops.verify import verify_graph
from litz_lowering import LoweringOptions, correct_metadata, lower


def lowered(program: Callable[..., object], *beside: Tensor) -> LoopGraph:
    shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
    with FakeTensorMode(shape_env=shapes, static_shapes=True) as mode:
        given = (torch.empty(4, 6, device="cuda"), *(mode.from_tensor(each) for each in beside))
        traced = make_fx(program)(*given)
    correct_metadata(traced)
    graph = lower(traced, options=LoweringOptions(fallback="error")).graph
    verify_graph(graph)
    return graph


def calls(graph: LoopGraph) -> list[str]:
    return [o.target for o in graph.operations if isinstance(o, Extern | Random)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_number_on_the_cpu_is_passed_to_kernels_by_value(dtype: torch.dtype) -> None:
    graph = lowered(lambda x, s: x * s + 1, torch.ones((), dtype=dtype))
    assert [type(o) for o in graph.operations].count(HostScalar) == 1
    assert calls(graph) == []


def test_an_integer_on_the_cpu_is_copied() -> None:
    assert calls(lowered(lambda x, n: x * n, torch.ones((), dtype=torch.int64))) == ["aten._to_copy.default"]


def test_what_is_computed_on_the_cpu_is_a_call() -> None:
    graph = lowered(lambda x, s: (x * (s * 2), s + 1), torch.ones(()))
    assert calls(graph) == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_a_new_tensor_on_the_cpu_is_made_there() -> None:
    assert calls(lowered(lambda x: (x + 1, torch.full_like(x, 3, device="cpu")))) == [
        "aten.full_like.default"
    ]


def test_indices_on_the_cpu_are_copied() -> None:
    graph = lowered(lambda x, i: torch.ops.aten.index.Tensor(x, [i]), torch.tensor([0, 2]))
    assert calls(graph) == ["aten._to_copy.default"]


def test_an_operator_of_a_copying_name_gets_its_indices_copied() -> None:
    graph = Graph()  # by hand: torch's own kernel for fake tensors asks for a GPU
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


def test_counts_are_integers_whatever_they_are_counts_of() -> None:
    graph = lowered(lambda x, n: torch.bincount(n, minlength=2), torch.ones(5, dtype=torch.int8))
    (count,) = (v for o in graph.operations for v in o.results if v.name == "bincount")
    assert str(count.type.dtype) == "i64"
