"""Views, concatenation and factories against eager, static and symbolic."""

from __future__ import annotations

from typing import Any

import lowering_check
import pytest
import torch
from lowering_check import check
from lowering_graphs import reasons
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule

from litz_ir.loops import View
from litz_lowering import lower


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Integers from 0 in row-major order, of the given shape."""
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count).reshape(shape).to(dtype)


VIEWS: dict[str, Any] = {
    "view": lambda x: (x.view(6, 4, 5), x.view(-1), x.view(2, 60), x.view(2, 3, 2, 10)),
    "flatten": lambda x: (x.flatten(), x.flatten(1, 2), x.unflatten(1, (3, 1))),
    "permute": lambda x: (x.permute(3, 1, 0, 2), x.transpose(1, -1), x.mT, x.movedim(0, 2)),
    "reshape_of_transposed": lambda x: (
        x.transpose(1, 2).reshape(2, -1),
        x.permute(3, 2, 1, 0).reshape(10, 12),
    ),
    "expand": lambda x: (
        x[:, :1].expand(2, 3, 4, 5),
        x[0, 0, 0].expand(7, 5),
        x.sum(1, keepdim=True).expand_as(x),
    ),
    "slice": lambda x: (x[:, 1:], x[..., ::2], x[-1:], x[:, :, 1:3, -3:-1], x[:, 5:], x.narrow(3, 1, 2)),
    "select": lambda x: (x[0], x[:, -1], x[..., 2], x.select(2, 1), x[1, 2, 3, 4]),
    "split": lambda x: (*x.split(2, 2), *x.split([1, 2], 1), *x.chunk(3, 3), *x.tensor_split(2, 3)),
    "unbind": lambda x: (*x.unbind(1), *x[0].unbind(-1)),
    "squeeze": lambda x: (x[:, :1].squeeze(1), x[:1, :1].squeeze(), x.squeeze(0), x[:1, :1].squeeze((0, 1))),
    "unsqueeze": lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None, :, None]),
    "diagonal": lambda x: (
        x.diagonal(0, 2, 3),
        x.diagonal(1, 1, 3),
        x.diagonal(-1, 2, 3),
        torch.diag_embed(x[0, 0]),
    ),
    "unfold": lambda x: (x.unfold(3, 2, 1), x.unfold(2, 3, 1), x.unfold(1, 2, 2)),
    "as_strided": lambda x: (x.as_strided((3, 4), (4, 1)), x.as_strided((2, 2), (1, 5), 7)),
    "contiguous": lambda x: (x.transpose(0, 1).contiguous(), x.contiguous(), x.clone()),
    "channels_last": lambda x: (x.contiguous(memory_format=torch.channels_last),),
    "pixel_shuffle": lambda x: (torch.nn.functional.pixel_shuffle(x.reshape(2, 4, 3, 5), 2),),
    "cat": lambda x: (torch.cat([x, x + 1, x[:, :1]], 1), torch.cat([x[0], x[1]], -1), torch.cat([x, x[:0]])),
    "stack": lambda x: (torch.stack([x, x * 2]), torch.stack([x[0], x[1], x[0]], -1), torch.hstack([x, x])),
    "cat_promotes": lambda x: (torch.cat([x, x.double()]), torch.cat([x.int(), x], 2)),
    "flip": lambda x: (x.flip(0), x.flip(1, 3), torch.rot90(x, 1, (2, 3))),
    "roll": lambda x: (x.roll(1), x.roll((1, -2), (1, 3)), x.roll(7, 2)),
    "triangles": lambda x: (x.tril(), x.triu(1), x.tril(-1), x.triu(-2)),
    "repeat": lambda x: (
        x.repeat(1, 2, 1, 1),
        x[0].repeat(2, 1, 1, 3),
        x.tile((2,)),
        x[:, :1].repeat(1, 3, 1, 1),
    ),
    "scatters": lambda x: (
        torch.select_scatter(x, x[0] * 2, 0, 1),
        torch.slice_scatter(x, x[:, :1], 1, 2, 3),
    ),
    "bitcast": lambda x: (x.view(torch.int32), x.int().view(torch.float32)),
    "view_of_view": lambda x: x.view(6, 20)[1:].t().reshape(4, 25).unsqueeze(1).expand(4, 2, 25),
    "attention_heads": lambda x: (
        x.view(2, 3, 4, 5).transpose(1, 2).reshape(2, 4, 15).view(2, 4, 3, 5).transpose(1, 2)
    ),
}


def test_views_that_are_read() -> None:
    labels = [f"{name} {k}" for name in VIEWS for k in range(len(_tuple(VIEWS[name](numbers(2, 3, 4, 5)))))]
    check(lambda x: [v * 1 for f in VIEWS.values() for v in _tuple(f(x))], numbers(2, 3, 4, 5), labels=labels)


@pytest.mark.parametrize("name", VIEWS)
def test_views_that_are_returned(name: str) -> None:
    check(VIEWS[name], numbers(2, 3, 4, 5))


def _tuple(value: Any) -> Any:
    return value if isinstance(value, tuple | list) else (value,)


DYNAMIC: dict[str, Any] = {
    "flatten": lambda x: x.flatten() + 1,
    "merge_and_split": lambda x: (x.view(x.shape[0] * x.shape[1], -1) * 2).view(x.shape),
    "heads": lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2).reshape(x.shape[0], -1),
    "slice": lambda x: x[:, 1:] + x[:, :-1],
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "expand": lambda x: x[:, :1].expand(x.shape) + x,
    "softmax": lambda x: torch.softmax(x, -1),
    "mean": lambda x: x.mean((0, 2)),
    "arange": lambda x: x[0, :, 0] + torch.arange(x.shape[1]),
    "size_as_number": lambda x: x * x.shape[1] / x.numel(),
    "zeros": lambda x: torch.zeros(x.shape[0], x.shape[1] + 1) + x.sum(),
    "returned_size": lambda x: (x + 1, x.shape[1]),
    "roll": lambda x: x.roll(2, 1),
    "flip": lambda x: x.flip(1),
    "tril": lambda x: x.tril(),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes(name: str) -> None:
    lowered = check(DYNAMIC[name], torch.randn(5, 7, 6), dynamic=True, atol=1e-5)
    assert len(lowered.graph.symbols) >= 2, "sizes remain symbols"


def test_reshape_and_back_is_the_identity() -> None:
    lowered = check(lambda x: x.view(6, 20).view(2, 3, 4, 5) + 1, numbers(2, 3, 4, 5))
    views = [op for op in lowered.graph.operations if isinstance(op, View)]
    assert [str(t) for t in views[0].index] == ["i0//3", "i0 % 3", "i1//5", "i1 % 5"]


FACTORIES: dict[str, Any] = {
    "full": lambda: (torch.full((2, 3), 1.5), torch.full((), 7), torch.full_like(torch.ones(3), 2)),
    "zeros": lambda: (torch.zeros(2, 3), torch.ones(4, dtype=torch.int32), torch.zeros(0)),
    "arange": lambda: (
        torch.arange(5),
        torch.arange(2, 9, 3),
        torch.arange(0.5, 3.0, 0.25),
        torch.arange(5, 0, -2),
        torch.arange(1.7, 9.2, 2.6, dtype=torch.int64),
        torch.arange(9.9, 1, -1.5, dtype=torch.uint8),
    ),
    "linspace": lambda: (torch.linspace(0, 1, 7), torch.linspace(-3, 5, 1), torch.linspace(2, 2.5, 10)),
    "eye": lambda: (torch.eye(3), torch.eye(2, 4, dtype=torch.int64)),
    "scalar": lambda: (torch.scalar_tensor(3.5), torch.full((), 2, dtype=torch.int64)),
    "indices": lambda: (torch.tril_indices(3, 3), torch.ones(3, 3).tril()),
    "window": lambda: (torch.hann_window(8),),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name: str) -> None:
    def run(x: torch.Tensor) -> Any:
        return (x + 1, *FACTORIES[name]())

    check(run, torch.ones(2))


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (1, 1, 1, 1)])
@pytest.mark.parametrize(
    "name", ["flatten", "permute", "unsqueeze", "cat", "stack", "flip", "roll", "repeat"]
)
def test_views_of_small_tensors(name: str, shape: tuple[int, ...]) -> None:
    run = {
        "flatten": lambda x: x.flatten(1), "permute": lambda x: x.permute(3, 0, 1, 2),
        "unsqueeze": lambda x: x.unsqueeze(2), "cat": lambda x: torch.cat([x, x], 2),
        "stack": lambda x: torch.stack([x, x]), "flip": lambda x: x.flip(0, 3), "roll": lambda x: x.roll(1, 0),
        "repeat": lambda x: x.repeat(2, 1, 1, 2),
    }[name]  # fmt: skip
    check(run, numbers(*shape))


def test_strided_and_expanded_inputs() -> None:
    x = numbers(4, 6)[::2, 1::2]
    check(lambda x: (x + 1, x.t().reshape(-1), x.sum(0)), x)
    check(lambda x: (x * 2, x.reshape(-1)), numbers(1, 5).expand(3, 5))


def test_stacks_of_many_tensors_do_not_recurse_too_deeply() -> None:
    x = numbers(3)
    # Python allows 1,000 frames, of which each tensor would take one at least.
    assert not check(lambda x: torch.stack([x, x * 2] * 550), x).fallbacks


def test_cat_of_many_tensors_falls_back() -> None:
    few, many = ([numbers(2, 1 + k % 3) for k in range(n)] for n in (64, 65))
    assert not reasons(check(lambda *xs: torch.cat(xs, 1), *few))
    found = check(lambda *xs: torch.cat(xs, 1), *many, allowed=("aten.cat.default",))
    assert reasons(found) == ["more than 64 tensors are copied one by one in ATen"]


@pytest.mark.parametrize("index", [3, -4])
def test_an_element_behind_the_end_raises_when_it_is_selected(index: int) -> None:
    graph = Graph()  # built by hand: torch 2.11 traces such a call of a tensor on a GPU, and 2.13 refuses it
    x = graph.placeholder("x")
    element = graph.call_function(torch.ops.aten.select.int, (x, 0, index))
    graph.output((graph.call_function(torch.ops.aten.neg.default, (element,)),))
    with FakeTensorMode():
        x.meta["val"], element.meta["val"] = torch.empty(3, 2), torch.empty(2)
        for node in element.users:
            node.meta["val"] = torch.empty(2)
    lowered = lower(GraphModule({}, graph))
    with pytest.raises(Exception, match="out of range"):
        lowering_check.run_graph(lowered.graph, [numbers(3, 2).numpy()])
