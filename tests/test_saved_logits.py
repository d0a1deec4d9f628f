"""Logits that a forward saves for its backward: padded for a GPU's library, read through views, and stored once more as
their gradient alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scheduled_for_gpu import ScheduledForGpu
from torch import Tensor, nn

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.tables.routines import routines_of
from litz_ir.device import CPU
from litz_ir.target import Capabilities

# Matrix units that are slow make small matmuls worth padding.
MODEL = replace(chip_model("sm_90"), matrix_rate=10**9)
MACHINE = Capabilities(
    "sm_90", CPU, MODEL, atomics=SUPPORTED, max_tile_elements=32768, routines=routines_of("sm_90")
)
CLASSES, WIDTH = 37, 24


class Head(nn.Module):
    """A layer and the cross-entropy of its classes."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES, bias=bias)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        logits = self.last(torch.tanh(self.first(x)))
        return F.cross_entropy(logits.view(-1, CLASSES).float(), labels.view(-1))


def _step(call: Callable[..., Tensor], model: nn.Module, *args: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss = call(*args)
    loss.backward()
    return [loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_the_gradient_of_padded_logits_takes_their_memory(bias: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, backend = Head(bias).bfloat16(), ScheduledForGpu(MACHINE)
    x, labels = torch.randn(4, 8, WIDTH).bfloat16(), torch.randint(0, CLASSES, (4, 8))
    labels[0, :3] = -100
    found = _step(torch.compile(model, backend=backend), model, x, labels)
    expected = _step(model, model, x, labels)
    exact = _step(model.float(), model, x.float(), labels)
    for one, other, right in zip(found, expected, exact, strict=True):
        off, own = ((each.float() - right).norm() for each in (one, other))
        assert off <= 1.5 * own + 1e-3 * right.norm()
    large = {}
    for kind, plan in backend.plans.items():
        shapes = {
            name: each.type for name, each in plan.buffers if each.type.shape[-1:] in ((CLASSES,), (40,))
        }
        large[kind] = {
            name: each for name, each in shapes.items() if len(each.shape) == 2 and each.shape[0] == 32
        }
    assert large["forward"] and large["backward"]
    for each in (*large["forward"].values(), *large["backward"].values()):
        assert each.layout.strides == (40, 1), "no gradient without padding beside it"
        assert each.dtype.itemsize == 2, "no one-hot rows in f32"
    assert len(backend.plans["backward"].donated) >= 1
