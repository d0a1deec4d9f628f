"""Casts of weights that a backward on a GPU pads: it casts the parameter again, and the forward saves no cast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from litz_lowering import partition

aten = torch.ops.aten
CLASSES, WIDTH = 2051, 512


def joint(primals: list[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    """A linear layer of bf16 autocast and its gradients, as AOTAutograd traces them."""
    (x, weight), (gradient,) = primals, tangents
    narrow = aten._to_copy.default(weight, dtype=torch.bfloat16)
    seen = aten.t.default(narrow)
    result = aten.mm.default(x, seen)
    of_weight = aten.mm.default(aten.t.default(gradient), x)
    of_x = aten.mm.default(gradient, aten.t.default(seen))
    return [result, of_x, aten._to_copy.default(of_weight, dtype=torch.float32)]


def divided(classes: int, device: str, parameters: list[int]) -> tuple[GraphModule, GraphModule, list[Any]]:
    """The forward and the backward of a layer, and the tensors that it saves."""
    with FakeTensorMode():
        x = torch.empty(16, WIDTH, device=device, dtype=torch.bfloat16)
        weight = torch.empty(classes, WIDTH, device=device)
        gradient = torch.empty(16, classes, device=device, dtype=torch.bfloat16)
        gm = make_fx(lambda a, b, c: joint([a, b], [c]))(x, weight, gradient)
    for node, name in zip(gm.graph.nodes, ("primals_1", "primals_2", "tangents_1"), strict=False):
        node.name = node.target = name
    gm.recompile()
    options = {"num_fwd_outputs": 1, "static_lifetime_input_indices": parameters}
    forward, backward = partition(gm, [[x, weight], [gradient]], **options)
    output = next(node for node in forward.graph.nodes if node.op == "output")
    saved = [each for each in output.args[0][1:] if isinstance(each, Node)]
    return forward, backward, [each.meta["val"] for each in saved]


def test_a_padded_weight_is_cast_again_and_not_saved() -> None:
    forward, backward, saved = divided(CLASSES, "cuda", [1])
    assert {(each.dtype, tuple(each.shape)) for each in saved} == {
        (torch.bfloat16, (16, WIDTH)),
        (torch.float32, (CLASSES, WIDTH)),
    }
    torch.manual_seed(0)
    x, weight, gradient = torch.randn(16, WIDTH), torch.randn(CLASSES, WIDTH), torch.randn(16, CLASSES)
    given = (x.bfloat16(), weight, gradient.bfloat16())
    result, *kept = forward(*given[:2])
    for found, wanted in zip(
        (result, *backward(*kept, given[2])), joint([*given[:2]], [given[2]]), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("classes", "device", "parameters"),
    [(2048, "cuda", [1]), (CLASSES, "cpu", [1]), (CLASSES, "cuda", []), (515, "cuda", [1])],
    ids=["aligned", "on a CPU", "no parameter", "small"],
)
def test_other_casts_are_saved(classes: int, device: str, parameters: list[int]) -> None:
    _, _, saved = divided(classes, device, parameters)
    assert all(each.dtype == torch.bfloat16 for each in saved)
    assert any(classes in each.shape for each in saved)
