"""Channels-last inside compiled graphs: values, strides and gradients stay eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.testing import assert_close

import litz
import litz.compilation
import litz.pipeline
from litz.artifact import Artifact
from litz.capture.layouts import saved_in_any_layout
from litz_ir.errors import CodegenError

LAST = torch.channels_last


class Net(nn.Module):
    """A layer between two convolutions for which layout propagation chooses channels-last."""

    def __init__(self, middle: nn.Module, channels: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.middle = middle
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.other = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.silu(self.norm(self.first(x)))
        return F.silu(self.other(self.second(self.middle(y))))


class Both(nn.Module):
    """Two branches, concatenated by channels and summed."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(32, 16, 1), nn.Conv2d(32, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((self.one(x), self.two(x)), 1) + x


class Gate(nn.Module):
    """Squeeze and excitation: channels scaled by a function of the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Conv2d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.scale(x.mean((2, 3), keepdim=True)))


class Divided(nn.Module):
    """An activation of channels in groups: its gradient reads the convolution through a view that divides them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(32, 32, 5, padding=2, groups=32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.first(x).unflatten(1, (4, 8))).flatten(1, 2)


MIDDLES: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv2d(32, 32, 1),
    "strided": lambda: nn.Conv2d(32, 32, 3, stride=2),
    "groups": lambda: nn.Conv2d(32, 32, 3, groups=4, dilation=2),
    "transposed": lambda: nn.ConvTranspose2d(32, 32, 3, stride=2),
    "max pool": lambda: nn.MaxPool2d(3, 2, 1),
    "average pool": lambda: nn.AvgPool2d(2),
    "joined": Both,
    "gate": Gate,
    "dropout": lambda: nn.Dropout(0.0),
    "norm of groups": lambda: nn.GroupNorm(4, 32),
    "divided": Divided,
    "upsampled": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "viewed": lambda: nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (28, 28))),
}


CallsByGraph = dict[str, list[str]]


@pytest.fixture(params=["traced", "cached"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bool]:
    """True where the graph comes from the cache, false where it is traced."""
    with litz.config.patch(cache=True, cache_dir=str(tmp_path), fallback="error"):
        yield request.param == "cached"
    torch._dynamo.reset()


@pytest.fixture
def channels_last_calls(monkeypatch: pytest.MonkeyPatch) -> CallsByGraph:
    """The calls with channels-last inputs, by forward and backward graph."""
    found: CallsByGraph = {}
    load = litz.pipeline.load_tuned

    def noting(artifact: Artifact, name: str, *args: Any, **kwargs: Any) -> object:
        calls = [d.subject for d in artifact.plan.decisions if d.reason.key == "library.channels_last"]
        found[name.partition("_")[0]] = calls
        return load(artifact, name, *args, **kwargs)

    monkeypatch.setattr(litz.pipeline, "load_tuned", noting)
    return found


def step(function: Callable[..., Any], module: nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    """Run a training step and return results, gradients and buffers."""
    module.zero_grad(set_to_none=True)
    given = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.is_floating_point())
    y = function(given)
    (y.float() * torch.arange(y.numel()).view_as(y).sin()).sum().backward()
    return [y.detach(), given.grad, *(each.grad for each in module.parameters()), *module.buffers()]


def assert_like_eager(module: nn.Module, x: torch.Tensor, again: bool = False, **options: Any) -> None:
    torch._dynamo.reset()
    twin = copy.deepcopy(module)
    if again:
        other = copy.deepcopy(module)
        step(torch.compile(other, backend="litz"), other, x)
        torch._dynamo.reset()
    expected = step(module, module, x)
    found = step(torch.compile(twin, backend="litz", **options), twin, x)
    bounds = {"rtol": 5e-2, "atol": 0.3} if x.dtype == torch.bfloat16 else {"rtol": 2e-3, "atol": 2e-3}
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is None or theirs is None:
            continue
        assert_close(mine, theirs, **bounds)
        each = zip(mine.shape, mine.stride(), theirs.stride(), strict=True)
        assert all(size == 1 or a == b for size, a, b in each), (mine.shape, mine.stride(), theirs.stride())


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize(
    ("middle", "given"),
    [
        *((middle, "contiguous") for middle in MIDDLES),
        *((middle, "channels-last") for middle in ("plain", "max pool", "joined", "viewed")),
    ],
)
def test_a_training_step(middle: str, given: str, channels_last_calls: CallsByGraph) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 32, 28, 28)
    if given == "channels-last":
        x = x.contiguous(memory_format=LAST)
    with litz.config.patch(cache=False, fallback="error"):
        assert_like_eager(Net(MIDDLES[middle]()), x)
    assert channels_last_calls.keys() == {"forward", "backward"}
    if given == "contiguous":
        assert channels_last_calls["backward"]


@pytest.mark.wide_vectors
def test_a_step_from_the_cache(again: bool, channels_last_calls: CallsByGraph) -> None:
    torch.manual_seed(0)
    assert_like_eager(Net(Both()), torch.randn(4, 32, 28, 28), again)
    assert again or (channels_last_calls["forward"] and channels_last_calls["backward"])


def test_bf16(channels_last_calls: CallsByGraph) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ReLU(), nn.Conv2d(32, 32, 1)
    ).bfloat16()
    with litz.config.patch(cache=False, fallback="error"):
        assert_like_eager(module, torch.randn(4, 32, 28, 28, dtype=torch.bfloat16))


@pytest.mark.wide_vectors
@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int, channels_last_calls: CallsByGraph) -> None:
    torch.manual_seed(0)
    kind: Any = nn.Conv3d if rank == 3 else nn.Conv1d
    module = nn.Sequential(kind(32, 32, 3, groups=32), nn.ReLU(), kind(32, 32, 3, groups=32))
    with litz.config.patch(cache=False, fallback="error"):
        assert_like_eager(module, torch.randn(4, 32, *(12,) * rank))
    assert bool(channels_last_calls["backward"]) == (rank == 3)


def test_sizes_that_are_not_known_stay_as_eager_has_them(channels_last_calls: CallsByGraph) -> None:
    torch.manual_seed(0)
    with litz.config.patch(cache=False, fallback="error"):
        assert_like_eager(Net(nn.Identity()), torch.randn(4, 32, 28, 28), dynamic=True)
    assert not channels_last_calls["forward"] and not channels_last_calls["backward"]


def test_what_is_saved_is_kept_and_what_is_returned_too_is_promised(
    channels_last_calls: CallsByGraph,
) -> None:
    class Showing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.silu(self.norm(self.first(x)))
            return torch.cat((y, F.silu(self.other(self.second(self.middle(y))))))

    torch.manual_seed(0)
    module, x = Showing(nn.Conv2d(32, 32, 1)), torch.randn(4, 32, 28, 28)
    kept: list[torch.Tensor] = []

    def save(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor.clone(memory_format=torch.preserve_format)

    with litz.config.patch(cache=False, fallback="error"):
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            assert_like_eager(module, x)
        module.zero_grad()
        y = torch.compile(module, backend="litz")(x)
        y.square().sum().backward(retain_graph=True)
        first = [each.grad.clone() for each in module.parameters() if each.grad is not None]
        module.zero_grad()
        y.square().sum().backward()
    for mine, theirs in zip(module.parameters(), first, strict=True):
        assert mine.grad is not None
        assert_close(mine.grad, theirs)
    assert kept


def test_hooks_keep_what_is_saved_as_eager_has_it(again: bool) -> None:
    """Hooks that write to files and read from them get eager's strides too."""
    torch.manual_seed(0)
    module, x = Net(Both()), torch.randn(4, 32, 28, 28)
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.contiguous(), lambda saved: saved):
        assert_like_eager(module, x, again)


def test_a_backward_that_runs_as_it_came_gets_what_it_was_traced_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = litz.compilation.Compilation.run

    def failing(self: Any) -> Any:
        if self.name.startswith("backward"):
            raise CodegenError("nothing")
        return run(self)

    torch.manual_seed(0)
    monkeypatch.setattr(litz.compilation.Compilation, "run", failing)
    with litz.config.patch(cache=False, fallback="silent"):
        assert_like_eager(
            Net(nn.Sequential(nn.Conv2d(32, 32, 1), nn.Flatten(2), nn.Unflatten(2, (28, 28)))),
            torch.randn(4, 32, 28, 28),
        )


def test_a_tensor_that_is_read_as_a_view_of_divided_dimensions_may_have_any_layout() -> None:
    def any_layout(read: Callable[[torch.Tensor], torch.Tensor]) -> frozenset[str]:
        y = torch.empty(4, 32, 28, 28)
        forward = make_fx(lambda x: (x + 1, x * 2))(y)
        (results,) = next(iter(reversed(forward.graph.nodes))).args
        backward = make_fx(lambda saved: saved_read(saved, read))(y)
        (given,) = (node for node in backward.graph.nodes if node.op == "placeholder")
        given.name = results[1].name
        return saved_in_any_layout(forward, backward, 1)

    def saved_read(saved: torch.Tensor, read: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return read(saved) * 3

    assert any_layout(lambda y: y)
    assert any_layout(lambda y: y.view(2, 2, 4, 8, 28, 28, 1))
    assert any_layout(lambda y: y.view(4, 4, 8, 28, 28).view(4, 2, 16, 28, 28))
    for read in (
        lambda y: y.view(128, 28, 28),
        lambda y: y.view(4, 32, 784),
        lambda y: y.view(4, 28, 32, 28),
        lambda y: y.view(8, 16, 28, 28),
        lambda y: y.view(4, 4, 8, 28, 28).view(16, 8, 28, 28),
        lambda y: y.transpose(0, 1),
    ):
        assert not any_layout(read)
