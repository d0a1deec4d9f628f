"""Borders of a graph: placeholders, constants, outputs, origins, symbols and errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lowering_check import AtenTable, check, to_array, to_tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.errors import UnsupportedOperation
from litz_ir.interp import run_graph
from litz_ir.loops import HostScalar, ObjectInput, Ref, ScalarInput, Value
from litz_ir.text import from_text, to_text
from litz_ir.verifier import verify
from litz_lowering import lower


def graph_of(fn: Any, *args: Any, mode: str = "fake") -> GraphModule:
    """ATen graph of ``fn``."""
    return make_fx(fn, tracing_mode=mode)(*args)


def test_text_form_round_trips() -> None:
    lowered = lower(
        graph_of(lambda x, y: torch.softmax(x @ y, -1).t()[1:] * 2, torch.randn(4, 8), torch.randn(8, 6))
    )
    assert from_text(to_text(lowered.graph)) == lowered.graph


def test_placeholders_of_every_kind() -> None:
    graph = torch.fx.Graph()
    x, size, scale, flag, none, generator, number = (graph.placeholder(n) for n in "x n s f z g k".split())
    with torch._subclasses.FakeTensorMode():
        x.meta["val"] = torch.empty(3, 4)
        total = graph.call_function(torch.ops.aten.mul.Tensor, (x, scale))
        total.meta["val"] = torch.empty(3, 4)
    size.meta["val"], scale.meta["val"], flag.meta["val"], none.meta["val"] = 4, 2.5, True, None
    generator.meta["val"], number.meta["val"] = torch.Generator(), object()
    graph.output((total, size, none))
    lowered = lower(GraphModule(torch.nn.Module(), graph))
    verify(lowered.graph)
    kinds = [type(i) for i in lowered.graph.inputs]
    assert kinds == [Value, ScalarInput, ScalarInput, ScalarInput, ObjectInput, ObjectInput, ObjectInput]
    data = torch.randn(3, 4)
    found = run_graph(
        lowered.graph, [to_array(data), 4, 2.5, True, None, torch.Generator(), object()], {}, {}
    )
    torch.testing.assert_close(to_tensor(found[0]), data * 2.5)
    assert found[1:] == [4, None]


def test_outputs_of_every_kind() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    with torch._subclasses.FakeTensorMode():
        x.meta["val"] = torch.empty(3)
        doubled = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
        doubled.meta["val"] = torch.empty(3)
    graph.output((x, doubled, doubled, None, 3, 1.5, [x, doubled]))
    lowered = lower(GraphModule(torch.nn.Module(), graph))
    verify(lowered.graph)
    assert lowered.graph.outputs == (
        Ref("x"), Ref("mul_tensor"), Ref("mul_tensor"), None, 3, 1.5, Ref("x"), Ref("mul_tensor"),
    )  # fmt: skip


def test_graphs_of_constants_only_and_without_inputs() -> None:
    graph = graph_of(lambda: (torch.ones(3) * 2, torch.arange(4)))
    lowered = lower(graph)
    verify(lowered.graph)
    ones, count = run_graph(lowered.graph, [], {}, {})
    assert ones.tolist() == [2.0, 2.0, 2.0] and count.tolist() == [0, 1, 2, 3]


def constant_graph(tensor: torch.Tensor, *, twice: bool = False) -> GraphModule:
    """``x + constant``, the constant stored as an attribute, or as two if ``twice``."""
    graph, root = torch.fx.Graph(), torch.nn.Module()
    root.register_buffer("constant", tensor)
    root.register_buffer("again", tensor)
    x = graph.placeholder("x")
    with torch._subclasses.FakeTensorMode() as mode:
        x.meta["val"] = torch.empty(tensor.shape)
        result = x
        for name in ("constant", "again") if twice else ("constant",):
            constant = graph.get_attr(name)
            constant.meta["val"] = mode.from_tensor(tensor)
            result = graph.call_function(torch.ops.aten.add.Tensor, (result, constant))
            result.meta["val"] = torch.empty(tensor.shape)
    graph.output((result,))
    return GraphModule(root, graph)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_tiny_constants_are_inlined(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    tensor, x = (torch.randn(shape, generator=generator) for _ in range(2))
    lowered = lower(constant_graph(tensor))
    assert not lowered.constants and not lowered.graph.constants
    (found,) = run_graph(lowered.graph, [to_array(x)], {}, {})
    torch.testing.assert_close(to_tensor(found), x + tensor)


def test_larger_constants_are_named_once() -> None:
    tensor, x = torch.randn(5, 6), torch.randn(5, 6)
    lowered = lower(constant_graph(tensor, twice=True))
    verify(lowered.graph)
    assert list(lowered.constants) == ["constant"] and len(lowered.graph.constants) == 1
    (found,) = run_graph(lowered.graph, [to_array(x)], {"constant": to_array(tensor)}, {})
    torch.testing.assert_close(to_tensor(found), x + tensor + tensor)


def test_aliases_of_inputs_and_duplicates_are_returned() -> None:
    x = torch.randn(3, 4)
    check(lambda x: (x, x), x)
    check(lambda x: (x.view(12), x.t(), x[1:], x + 0), x)


def test_symbols_carry_ranges_hints_and_sources() -> None:
    lowered = check(lambda x: x * x.shape[0] + 1, torch.randn(7, 6), dynamic=True)
    table = lowered.graph.symbols
    assert all(info.low == 2 and info.hint in (6, 7) for info in table)
    assert all("argument" in info.source or "size(" in info.source for info in table)


def test_symbolic_floats() -> None:
    check(
        lambda x: x * (x.shape[0] / 3) + math.sqrt(2.0) * x.shape[1] ** 0.5, torch.randn(5, 7), dynamic=True
    )


def test_values_read_from_tensors() -> None:
    def run(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n.item()

    graph = graph_of(run, torch.randn(3), torch.tensor(2.5), mode="symbolic")
    lowered = lower(graph)
    verify(lowered.graph)
    assert any(isinstance(op, HostScalar) for op in lowered.graph.operations)
    x = torch.randn(3)
    (found,) = run_graph(lowered.graph, [to_array(x), to_array(torch.tensor(2.5))], {}, {})
    torch.testing.assert_close(to_tensor(found), x * 2.5)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export's own
def test_origins_name_the_users_line_and_module() -> None:
    class Block(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) + 1  # the line to be named

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x)

    exported = torch.export.export(Model(), (torch.randn(3),)).run_decompositions({})
    lowered = lower(exported.graph_module)
    (relu, add) = lowered.graph.operations
    assert relu.origin.file == __file__ and "the line to be named" in relu.origin.source
    assert relu.origin.module == "block" and relu.origin.operation == "aten.relu.default"
    assert add.origin.line == relu.origin.line


def test_nodes_without_metadata_and_methods_are_refused() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(3)
    graph.output(graph.call_function(torch.ops.aten.relu.default, (x,)))
    with pytest.raises(UnsupportedOperation, match="no metadata"):
        lower(GraphModule(torch.nn.Module(), graph))
    traced = torch.fx.symbolic_trace(lambda x: x.relu())
    for node in traced.graph.nodes:
        node.meta["val"] = torch.empty(3)
    with pytest.raises(UnsupportedOperation, match="call_method") as error:
        lower(traced)
    assert error.value.node == "relu"


def test_sparse_tensors_are_refused_clearly() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.eye(3).to_sparse()
    graph.output((x,))
    with pytest.raises(UnsupportedOperation, match="not supported"):
        lower(GraphModule(torch.nn.Module(), graph))


def test_rules_that_fail_name_their_node() -> None:
    graph = graph_of(lambda x: torch.relu(x), torch.randn(3))
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.args = ("not a tensor",)
    with pytest.raises(UnsupportedOperation, match=r"rule for aten\.relu\.default failed") as error:
        lower(graph)
    assert error.value.node == "relu" and "force_extern" in error.value.hint


def test_cpu_scalars_are_moved_to_the_device() -> None:
    with torch._subclasses.FakeTensorMode():
        x, scale = torch.empty(4, 8, device="cuda"), torch.empty(())
        graph = make_fx(lambda x, s: (x * s).cpu())(x, scale)
    lowered = lower(graph)
    verify(lowered.graph)
    assert [f.reason for f in lowered.fallbacks] == ["the copy is between devices"]
    results = [value for operation in lowered.graph.operations for value in operation.results]
    assert [str(value.type.device) for value in results] == ["cuda", "cuda", "cpu"]


def test_no_ops_are_read_through() -> None:
    graph = graph_of(lambda x: x.detach().view(3, 4).expand(3, 4).exp(), torch.randn(3, 4))
    assert [op.name for op in lower(graph).graph.operations] == ["exp"]
    returned = graph_of(lambda x: x.view(3, 4), torch.randn(3, 4))
    assert len(lower(returned).graph.operations) == 1, "a returned view is a tensor of its own"


def test_the_graph_module_is_not_changed() -> None:
    graph = graph_of(lambda x: x.detach().view(3, 4).exp(), torch.randn(3, 4))
    before = str(graph.graph)
    lower(graph)
    assert str(graph.graph) == before


def test_lowering_twice_gives_equal_graphs() -> None:
    graph = graph_of(lambda x: torch.nn.functional.layer_norm(x, (4,)).softmax(-1), torch.randn(3, 4))
    assert lower(graph).graph == lower(graph).graph


def test_data_dependent_sizes_stay_symbols() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].exp() + 1

    x = torch.randn(20)
    lowered = lower(graph_of(run, x, mode="symbolic"))
    verify(lowered.graph)
    assert any("size(0)" in info.source and info.name.startswith("u") for info in lowered.graph.symbols)
    (found,) = run_graph(lowered.graph, [to_array(x)], {}, AtenTable())
    torch.testing.assert_close(to_tensor(found), run(x))


def test_inputs_without_metadata_are_refused() -> None:
    graph = torch.fx.Graph()
    graph.output((graph.placeholder("x"),))
    with pytest.raises(UnsupportedOperation, match="input x has no metadata"):
        lower(GraphModule(torch.nn.Module(), graph))


def test_scalar_inputs_are_not_taken_for_axes() -> None:
    graph = torch.fx.Graph()
    x, scale = graph.placeholder("x"), graph.placeholder("i0")
    with torch._subclasses.FakeTensorMode():
        x.meta["val"], scale.meta["val"] = torch.empty(3), 2.0
        result = graph.call_function(torch.ops.aten.mul.Tensor, (x, scale))
        result.meta["val"] = torch.empty(3)
    graph.output((result,))
    lowered = lower(GraphModule(torch.nn.Module(), graph))
    verify(lowered.graph)
    data = torch.randn(3)
    (found,) = run_graph(lowered.graph, [to_array(data), 2.5], {}, {})
    torch.testing.assert_close(to_tensor(found), data * 2.5)
