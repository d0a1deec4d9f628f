"""Kernels of training steps at real sizes have thread blocks for all SMs of a GPU, and no serial loop over a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import pytest
import torch
import torch.nn.functional as F
from scheduled_for_gpu import ScheduledForGpu
from torch import Tensor, nn

from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.plan import Launch, Plan

pytestmark = pytest.mark.sampled  # it compiles whole programs

MACHINE = replace(chip_capabilities("sm_90"), device=CPU)
LARGE = 4 << 20
"""Bytes of all buffers of a kernel that has to occupy the device."""


class Rms(nn.Module):
    """An RMS norm in f32, as models of transformers write it, or scaled by one plus a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (normal * (1.0 + self.weight)).type_as(x)


class Sandwich(nn.Module):
    """An MLP with norms before and after it, one of which normalises what the other gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after, self.last = Rms(width), Rms(width), Rms(width)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.after(self.down(F.gelu(self.up(self.before(x)), approximate="tanh")))
        return self.last(x)


class Depthwise(nn.Module):
    """A depthwise convolution, a layer norm of its channels and an MLP of them, scaled and added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.convolution(x).permute(0, 2, 3, 1))
        return x + self.scale * self.down(F.gelu(self.up(inner))).permute(0, 3, 1, 2)


class Patches(nn.Module):
    """Patches of an image, normalised, in shifted windows of 7 x 7, and merged four to one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.first, self.second, self.third = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
            nn.LayerNorm(4 * width),
        )
        self.inner, self.reduction = nn.Linear(width, width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.patches(x).permute(0, 2, 3, 1))
        shifted = torch.roll(self.second(x), (-3, -3), (1, 2))
        batch, high, wide, width = shifted.shape
        windows = shifted.view(batch, high // 7, 7, wide // 7, 7, width).transpose(2, 3)
        back = self.inner(windows).transpose(2, 3).reshape(batch, high, wide, width)
        x = x + torch.roll(back, (3, 3), (1, 2))
        merged = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], dim=-1)
        return self.reduction(self.third(merged))


class Groups(nn.Module):
    """Two convolutions with group norms and SiLU, added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, width), nn.GroupNorm(32, width)
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.silu(self.second(self.one(F.silu(self.first(x))))))


class Batches(nn.Module):
    """Two convolutions with batch norms, the second scaled by squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.first, self.second = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.squeeze, self.excite = nn.Conv2d(width, 8, 1), nn.Conv2d(8, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first(self.one(x)))
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(inner, 1)))))
        return x + self.second(self.two(inner * gate))


class Residual(nn.Module):
    """A layer norm, an MLP and what it reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def images(*shape: int) -> Tensor:
    """Return random images, channels-last."""
    return torch.randn(shape).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "norms of norms": (
        lambda: nn.Sequential(Sandwich(512), Sandwich(512)),
        lambda: torch.randn(2, 2048, 512),
    ),
    "depthwise convolution": (
        lambda: Depthwise(96).to(memory_format=torch.channels_last),
        lambda: images(4, 96, 56, 56),
    ),
    "patches": (lambda: Patches(96), lambda: images(4, 3, 224, 224)),
    "columns far apart": (
        lambda: nn.Sequential(Residual(512), Residual(512)),
        lambda: torch.randn(4, 512, 1500).transpose(1, 2).requires_grad_(),
    ),
    "group norms": (lambda: Groups(64), lambda: images(4, 64, 64, 64)),
    "batch norms": (
        lambda: Batches(64).to(memory_format=torch.channels_last),
        lambda: images(8, 64, 56, 56),
    ),
}


def idle(plan: Plan) -> Iterator[str]:
    """Yield large kernels with thread blocks for less than half of the SMs, or with a loop over a whole row."""
    kernels = {kernel.name: kernel for kernel in schedule_plan(plan, MACHINE).kernels}
    for step in plan.steps:
        if not isinstance(step, Launch) or step.kernel not in kernels:
            continue
        types = [plan.placement(name).type for name in step.buffers]
        moved = sum(each.dtype.itemsize * prod(map(int, each.shape)) for each in types)
        if moved < LARGE:
            continue
        source = emit_kernel(kernels[step.kernel])
        programs = int(source.grid_size) * getattr(kernels[step.kernel].schedule, "cluster", 1)
        if programs < MACHINE.model.sm_count // 2:
            yield f"{step.kernel} has {programs} thread blocks for {moved} bytes"
        if "for row in range(" in source.text:
            yield f"{step.kernel} sums rows serially"


@pytest.mark.parametrize("name", CASES)
def test_large_kernels_occupy_the_device(name: str) -> None:
    build, make = CASES[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, backend = build(), ScheduledForGpu(MACHINE, load=None)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.compile(model, backend=backend)(make())
    found.float().square().mean().backward()
    assert backend.plans.keys() == {"forward", "backward"}
    assert [each for plan in backend.plans.values() for each in idle(plan)] == []
