"""Copies in joint graphs: a forward saves what an activation returns once, with a dropout of nothing behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from litz_lowering import decompositions, partition
from litz_lowering.joint_copies import remove_copies

aten = torch.ops.aten
ROWS, WIDTH = 12, 40
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def saved_by(function: Function, *given: Tensor, dynamic: bool = False) -> int:
    """The elements that a forward saves besides its inputs; results and gradients are eager's."""
    kept: list[int] = []

    def divided(joint: GraphModule, inputs: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
        forward, backward = partition(joint, inputs, **options)
        (output,) = (node for node in forward.graph.nodes if node.op == "output")
        made = [each for each in output.args[0][options["num_fwd_outputs"] :] if each.op != "placeholder"]
        kept.extend(each.meta["val"].numel() for each in made if isinstance(each.meta["val"], Tensor))
        return forward, backward

    def backend(gm: GraphModule, inputs: Any) -> Any:
        def compiled(graph: GraphModule, _: Any) -> Any:
            return make_boxed_func(graph.forward)

        how: dict[str, Any] = {
            "partition_fn": divided,
            "decompositions": dict(decompositions(recomputed=True)),
        }
        return aot_module_simplified(gm, inputs, fw_compiler=compiled, **how)

    torch._dynamo.reset()
    results = []
    for call in (function, torch.compile(function, backend=backend, dynamic=dynamic)):
        own = [each.detach().clone().requires_grad_() for each in given]
        result = call(*own)
        result.square().sum().backward()
        results.append([result, *(each.grad for each in own)])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    return sum(int(each) for each in kept)


def plain(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.relu(x @ first) @ second


def dropped(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.dropout(F.relu(x @ first), 0.0, training=True) @ second


def widened(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return F.relu(x @ first).double().to(x.dtype) @ second


def shown(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    made = F.relu(x @ first)
    return torch.cat([made.clone() @ second, made.clone()], 1)


def given() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(ROWS, 8), torch.randn(8, WIDTH), torch.randn(WIDTH, 8)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [dropped, widened, shown])
def test_an_activation_is_saved_once(function: Function, dynamic: bool) -> None:
    assert saved_by(function, *given(), dynamic=dynamic) <= saved_by(plain, *given(), dynamic=dynamic)


def copies(function: Callable[[Tensor], Any], x: Tensor) -> int:
    """The copies that are left of a function."""
    gm = make_fx(function, tracing_mode="fake")(x)
    remove_copies(gm.graph)
    gm.graph.lint()
    torch.testing.assert_close(gm(x), function(x), rtol=0, atol=0)
    return sum(node.target in (aten.clone.default, aten._to_copy.default) for node in gm.graph.nodes)


def test_copies_that_can_be_observed_stay() -> None:
    x = torch.randn(4, 6)
    assert copies(lambda a: a.exp().clone() * 2, x) == 0
    assert copies(lambda a: a.clone() * 2, x) == 1, "an input may be overwritten later"
    assert copies(lambda a: a.exp().clone(), x) == 1, "a result has memory of its own"
    assert copies(lambda a: a.exp().clone().view(24), x) == 1, "as a view of it has"
    assert copies(lambda a: a.exp().t().clone(memory_format=torch.contiguous_format) * 2, x) == 1
    assert copies(lambda a: a.exp().bfloat16().float() * 2, x) == 2, "it rounds"
    assert copies(lambda a: a.exp().double().bfloat16() * 2, x) == 2
    assert copies(lambda a: a.exp().bfloat16().half().bfloat16() * 2, x) == 3, "f16 holds fewer values"

    def overwritten(a: Tensor) -> Tensor:
        made = a.exp()
        other = made.clone()
        other.add_(1)
        return made * other

    assert copies(overwritten, x) == 1
