"""Gradients that AOTAutograd traces as calls of eager's operators, since torch's decompositions differ from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.nn.functional import interpolate, multilabel_margin_loss

import litz
import litz_lowering

Resize = Callable[[Tensor], Tensor]

RESIZES: dict[str, tuple[Resize, tuple[int, ...]]] = {
    "nearest": (lambda x: interpolate(x * 2, scale_factor=2).sin(), (2, 3, 5, 7)),
    "nearest by a scale": (lambda x: interpolate(x, scale_factor=1.7), (2, 3, 5, 7)),
    "nearest exact": (lambda x: interpolate(x, size=(4, 9), mode="nearest-exact"), (2, 3, 5, 7)),
    "nearest in rows": (lambda x: interpolate(x, size=11), (2, 3, 7)),
    "linear": (lambda x: interpolate(x, scale_factor=3, mode="linear"), (2, 3, 7)),
    "bilinear": (lambda x: interpolate(x * 2, scale_factor=2, mode="bilinear").sin(), (2, 3, 5, 7)),
    "bilinear at corners": (
        lambda x: interpolate(x, size=(9, 4), mode="bilinear", align_corners=True), (2, 3, 5, 7)
    ),
    "bilinear of one row": (lambda x: interpolate(x, size=(1, 3), mode="bilinear"), (2, 3, 1, 7)),
    "bicubic": (lambda x: interpolate(x, scale_factor=(1.5, 2), mode="bicubic"), (2, 3, 5, 7)),
    "trilinear": (lambda x: interpolate(x, scale_factor=2, mode="trilinear"), (2, 3, 3, 5, 4)),
    "nearest in volumes": (lambda x: interpolate(x, size=(4, 7, 3)), (2, 3, 3, 5, 4)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", RESIZES)
def test_gradients_of_resizing_are_eagers(name: str, last: bool, dynamic: bool) -> None:
    resize, shape = RESIZES[name]
    x = torch.randn(shape)
    if last and len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    expected = resize(x)
    tangent = torch.randn_like(expected)
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(resize, backend="litz", fullgraph=True, dynamic=dynamic)(x)
        (own,) = torch.autograd.grad(found, x, tangent)
    (eager,) = torch.autograd.grad(expected, x, tangent)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(own, eager, check_stride=not dynamic)


def test_gradients_of_resizing_in_bf16_are_not_rounded_at_each_corner() -> None:
    x = torch.randn(2, 3, 5, 7, dtype=torch.bfloat16, requires_grad=True)

    def resize(x: Tensor) -> Tensor:
        return interpolate(x, scale_factor=2, mode="bilinear")

    found, expected = torch.compile(resize, backend="litz")(x), resize(x)
    tangent = torch.randn_like(expected)
    (own,), (eager,) = (torch.autograd.grad(each, x, tangent) for each in (found, expected))
    torch.testing.assert_close(own, eager, rtol=0, atol=0)


def test_labels_after_the_first_negative_one_are_no_targets() -> None:
    logits, labels = torch.randn(3, 7, requires_grad=True), torch.tensor([3, 0, -1, 1, 2, 5, 6]).expand(3, 7)

    def loss(logits: Tensor) -> Tensor:
        return multilabel_margin_loss(logits, labels)

    own, eager = torch.compile(loss, backend="litz")(logits), loss(logits)
    torch.testing.assert_close(own, eager)
    for each in zip(torch.autograd.grad(own, logits), torch.autograd.grad(eager, logits), strict=True):
        torch.testing.assert_close(*each)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_autocast_on_a_gpu_resizes_in_f32(mode: str) -> None:
    with FakeTensorMode(), enable_python_dispatcher(), litz_lowering.whole_gradients():
        x = torch.empty(2, 3, 8, 8, dtype=torch.bfloat16, device="cuda")
        assert interpolate(x, scale_factor=2.0, mode=mode).dtype == torch.bfloat16
        torch.set_autocast_enabled("cuda", True)  # torch.autocast refuses a device that is not there
        try:
            for size in ({"scale_factor": 2.0}, {"size": (5, 7)}):
                assert interpolate(x, mode=mode, **size).dtype == torch.float32
                assert interpolate(x.double(), mode=mode, **size).dtype == torch.float64
        finally:
            torch.set_autocast_enabled("cuda", False)


def test_torchs_kernels_are_restored() -> None:
    op = torch.ops.aten.upsample_bilinear2d.vec
    before = dict(op.py_kernels)
    with litz_lowering.whole_gradients():
        with litz_lowering.whole_gradients():
            pass
        assert (
            op.py_kernels[DispatchKey.CompositeImplicitAutograd]
            != before[DispatchKey.CompositeImplicitAutograd]
        )
    assert op.py_kernels == before
