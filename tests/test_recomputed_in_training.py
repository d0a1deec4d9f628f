"""Training on GPUs decomposes norms, softmax and some activations, so that a backward recomputes parts of them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

import litz.stage_options
from litz.testing import fresh_cache
from litz_lowering import decompositions, partition


class Program(nn.Module):
    """Norms, activations, attention and a loss, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rms, self.group, self.batch = (
            nn.LayerNorm(64), nn.RMSNorm(64), nn.GroupNorm(2, 8), nn.BatchNorm2d(8)
        )  # fmt: skip
        self.up, self.down, self.head = nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(64, 100)
        self.convolution = nn.Conv2d(1, 8, 3, bias=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        h = x + self.down(F.hardswish(self.up(self.layer(x))))
        h = h + self.down(F.leaky_relu(self.up(self.rms(h))))
        attention = torch.softmax(h @ h.transpose(-1, -2), -1) @ h
        h = h + F.mish(attention) + F.softplus(h) + F.elu(h) + F.hardsigmoid(h) + F.relu6(h)
        loss = F.cross_entropy(self.head(h).flatten(0, 1), labels)
        image = F.hardtanh(self.group(F.hardswish(self.batch(self.convolution(image)))))
        return loss + image.square().mean()


def _inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(4, 32, 64), torch.randint(0, 100, (128,)), torch.randn(4, 1, 12, 12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_gradients_are_eagers(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litz.stage_options, "trains_on_gpu", lambda inputs: torch.is_grad_enabled())
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, reference = Program(), Program()
    reference.load_state_dict(model.state_dict())
    inputs = _inputs()
    with fresh_cache(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        torch.compile(model, backend="litz", fullgraph=True)(*inputs).backward()
        reference(*inputs).backward()
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    for (name, found), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert found.grad is not None and expected.grad is not None
        error = (found.grad - expected.grad).norm() / expected.grad.norm()
        assert error <= limit, name
    for one, other in zip(model.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=limit, atol=limit)


def _saved_bytes(recomputed: bool) -> int:
    """Bytes of what the forward of a program saves besides its inputs, each storage once."""
    found: dict[int, int] = {}

    def divide(joint: GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[GraphModule, GraphModule]:
        forward, backward = partition(joint, inputs, **options)
        (results,) = next(iter(reversed(forward.graph.nodes))).args
        for node in results[options["num_fwd_outputs"] :]:
            value = node.meta["val"]
            if isinstance(value, torch.Tensor) and node.op != "placeholder":
                storage = value.untyped_storage()
                found[storage._cdata] = storage.nbytes()
        return forward, backward

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Any:
        return aot_module_simplified(
            gm, inputs, fw_compiler=lambda graph, _: graph, partition_fn=divide,
            decompositions=dict(decompositions(recomputed=recomputed)),
        )  # fmt: skip

    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.compile(Program(), backend=backend)(*_inputs())
    return sum(found.values())


def test_less_is_saved() -> None:
    whole, part = _saved_bytes(False), _saved_bytes(True)
    assert part <= 0.9 * whole, (part, whole)
