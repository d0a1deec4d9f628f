"""Prepacked weights, in a library's own layout: results are eager's, and every change of a parameter takes effect."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import litz
from litz_ir.plan import plans_in

IMAGES = torch.randn(2, 8, 12, 12)
REORDER = torch.ops.mkldnn._reorder_convolution_weight


class Block(nn.Module):
    """A convolution, a batch norm with statistics other than zero and one, and an activation."""

    def __init__(
        self, activation: Callable[[torch.Tensor], torch.Tensor] = torch.relu, **options: Any
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, **{"kernel_size": 3, "bias": False, **options})
        self.norm = nn.BatchNorm2d(16)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)
        self.norm.running_mean = torch.randn(16)
        self.norm.running_var = torch.rand(16) + 0.5
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.convolution(x)))


@pytest.fixture(autouse=True)
def prepacked_by_the_library() -> Iterator[None]:
    """Nothing is compiled, and no convolution is computed in tiles of a kernel."""
    torch._dynamo.reset()
    with litz.config.patch(force="tile_flops=0"):
        yield


@pytest.fixture
def prepacked_shapes(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Shapes of the weights prepacked so far, in order."""
    seen: list[torch.Size] = []
    reorder = REORDER.default

    def prepack(weight: torch.Tensor, *rest: Any) -> Any:
        seen.append(weight.shape)
        return reorder(weight, *rest)

    monkeypatch.setattr(REORDER, "default", prepack)
    return seen


def compiled(module: nn.Module) -> Callable[..., Any]:
    def run(*args: torch.Tensor) -> Any:
        with torch.no_grad():
            return function(*args)

    function = torch.compile(module, backend="litz")
    return run


def eager(module: nn.Module, *args: torch.Tensor) -> Any:
    with torch.no_grad():
        return module(*args)


def assert_like_eager(module: nn.Module, *args: torch.Tensor) -> None:
    found, expected = compiled(module)(*args), eager(module, *args)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()


def calls(module: nn.Module, *args: torch.Tensor) -> list[str]:
    with torch.no_grad():
        return [call.target for call in litz.explain(module, *args).calls]


# --- what runs --------------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize(
    "options",
    [
        {}, {"bias": True}, {"padding": 1}, {"stride": 2, "padding": (2, 0)}, {"dilation": 2}, {"groups": 8},
        {"groups": 2, "kernel_size": (1, 3)}, {"kernel_size": 1}, {"kernel_size": 12}, {"padding": "same"},
        {"padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)  # fmt: skip
def test_every_kind_of_window(options: dict[str, Any]) -> None:
    block = Block(**options).eval()
    assert calls(block, IMAGES) == ["convolution", "prepack_convolution"]
    assert_like_eager(block, IMAGES)


@pytest.mark.wide_vectors
@pytest.mark.parametrize("activation", [F.hardswish, F.silu, torch.sigmoid], ids=lambda each: each.__name__)
def test_an_activation_that_the_routine_applies(activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = nn.Sequential(Block(activation, padding=1), nn.Conv2d(16, 4, 1)).eval()
    with torch.no_grad():
        report = litz.explain(module, IMAGES)
    launched = [name for kernel in report.kernels for name in kernel.operations]
    assert not any(activation.__name__ in name for name in launched)
    assert_like_eager(module, IMAGES)


@pytest.mark.parametrize(
    "activation", [torch.relu, F.relu6, F.hardsigmoid, F.hardswish, F.silu, torch.sigmoid, torch.tanh, F.gelu]
)
def test_a_nan_stays(activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = nn.Sequential(Block(activation, padding=1), nn.Conv2d(16, 4, 1, bias=False)).eval()
    images = IMAGES.clone()
    images[0, 0, 3, 3], images[1, 2, 7, 7] = torch.nan, torch.inf
    found, expected = compiled(module)(images), eager(module, images)
    assert_close(found.isnan(), expected.isnan())
    assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


class Residual(nn.Module):
    """Blocks whose inputs are read several times, a squeeze, a pool, and a result that is returned midway."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Block(padding=1)
        self.second = Block(F.hardswish, padding=1)
        self.second.convolution = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(8, 16, 1)
        self.squeeze = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16 * 36, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.second(self.first(x)) + self.shortcut(x))
        y = y * torch.sigmoid(self.squeeze(y.mean((2, 3), keepdim=True)))
        middle = F.max_pool2d(y, 2)
        return self.head(middle.flatten(1)), middle


@pytest.mark.parametrize(
    "images", [IMAGES, IMAGES.to(memory_format=torch.channels_last), IMAGES[:1, :, ::2, 1:7]]
)
def test_a_network(images: torch.Tensor) -> None:
    module = Residual().eval()
    if images.shape[-1] == 6:
        module.head = nn.Linear(16 * 9, 5)
    for found, expected in zip(compiled(module)(images), eager(module, images), strict=True):
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.stride() == expected.stride()


def test_readers_that_need_eagers_strides() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.convolution(x)
            return y, y.view(2, -1)[:, 5:9], torch.sort(y, 1)[0], y.transpose(1, 3) + 1

    module = Cut().eval()
    for found, expected in zip(compiled(module)(IMAGES), eager(module, IMAGES), strict=True):
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize(
    "module",
    [
        nn.ConvTranspose2d(8, 4, 3), nn.Conv2d(8, 4, 3).double(), nn.Conv2d(8, 4, 3).bfloat16(),
    ],
    ids=["transposed", "f64", "bf16"],
)  # fmt: skip
def test_other_convolutions_fall_back_to_aten(module: nn.Module) -> None:
    images = IMAGES.to(next(module.parameters()).dtype)
    assert calls(module.eval(), images) == ["aten.convolution.default"]
    assert_close(compiled(module)(images), eager(module, images))


def test_training_prepacks_nothing() -> None:
    report = litz.explain(Block(padding=1).train(), IMAGES, backward=True)
    assert {call.target for call in report.calls} == {
        "aten.convolution.default",
        "aten.convolution_backward.default",
    }


def test_it_can_be_turned_off() -> None:
    with litz.config.patch(prepack_weights=False):
        assert calls(Block().eval(), IMAGES) == ["aten.convolution.default"]


@pytest.mark.wide_vectors
def test_the_frozen_region_is_a_plan_of_its_own() -> None:
    with torch.no_grad():
        report = litz.explain(Block().eval(), IMAGES)
    subplans = [plan.name for plan in plans_in(report.graphs[0].plan)][1:]
    assert subplans == [f"{report.graphs[0].name}_frozen"]
    (region,) = report.graphs[0].regions
    assert (region.kind, region.frozen_bytes) == ("frozen", 4 * (16 * 8 * 3 * 3 + 16))
    assert f"{region.frozen_bytes} B until a parameter changes" in " ".join(str(report).split())
    assert "library.convolution" in {decision.reason.key for decision in report.decisions}


# --- when a parameter changes -----------------------------------------------------------------------------


def twice(parameter: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.mul_(2.0)


def replaced(module: Block) -> None:
    module.convolution.weight = nn.Parameter(torch.randn_like(module.convolution.weight))


def one_step(module: Block) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    module(IMAGES).sum().backward()
    optimizer.step()


def other_memory(module: Block) -> None:
    module.convolution.weight.data = torch.randn_like(module.convolution.weight)


def new_statistics(module: Block) -> None:
    module.train()(IMAGES)
    module.eval()


CHANGES: dict[str, Callable[[Block], object]] = {
    "in place": lambda module: twice(module.convolution.weight),
    "a vector in place": lambda module: twice(module.norm.weight),
    "load_state_dict": lambda module: module.load_state_dict(Block(padding=1).state_dict()),
    "load_state_dict by assignment": lambda m: m.load_state_dict(Block(padding=1).state_dict(), assign=True),
    "an optimiser": one_step,
    "another parameter": replaced,
    "data in place": lambda module: module.convolution.weight.data.mul_(2.0),
    "other data": other_memory,
    "statistics of a batch": new_statistics,
    "another dtype and back": lambda module: module.half().float(),
}


@pytest.mark.wide_vectors
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, prepacked_shapes: list[torch.Size]) -> None:
    module = Block(padding=1).eval()
    run = compiled(module)
    for _ in range(3):
        assert_close(run(IMAGES), eager(module, IMAGES), rtol=1e-4, atol=1e-5)
    assert len(prepacked_shapes) == 1, "a weight that did not change is not prepacked again"
    CHANGES[name](module)
    for _ in range(2):
        assert_close(run(IMAGES), eager(module, IMAGES), rtol=1e-4, atol=1e-5)
    assert len(prepacked_shapes) == 2


@pytest.mark.wide_vectors
@pytest.mark.parametrize("freezing", [False, True])
def test_weights_made_in_inference_mode_have_no_version_and_are_prepacked_if_nothing_writes_to_them(
    freezing: bool, prepacked_shapes: list[torch.Size]
) -> None:
    with torch.inference_mode():
        module = Block(padding=1).eval()
        run = torch.compile(module, backend="litz", options={"freezing": freezing})
        for _ in range(2):
            assert_close(run(IMAGES), module(IMAGES), rtol=1e-4, atol=1e-5)
            if not freezing:
                module.convolution.weight[3, 3, 1, 1] += 1.0
    assert len(prepacked_shapes) == freezing


def test_one_graph_with_many_weights_keeps_each(prepacked_shapes: list[torch.Size]) -> None:
    blocks = [nn.Conv2d(8, 8, 3, padding=1).eval() for _ in range(4)]

    @torch.compile(backend="litz")
    def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.conv2d(x, weight, bias, padding=1))

    for block in blocks:
        torch._dynamo.mark_static_address(block.weight)
        torch._dynamo.mark_static_address(block.bias)
    with torch.no_grad():
        for _ in range(2):
            for block in blocks:
                found = apply(IMAGES, block.weight, block.bias)
                assert_close(found, torch.relu(block(IMAGES)), rtol=1e-4, atol=1e-5)
    assert len(prepacked_shapes) <= len(blocks)


@pytest.mark.wide_vectors
def test_frozen_results_are_freed_with_their_parameters(prepacked_shapes: list[torch.Size]) -> None:
    first, second = (Block(padding=1).eval() for _ in range(2))
    run = compiled(first)
    run(IMAGES)
    gone = weakref.ref(first.convolution.weight)
    first.load_state_dict(copy.deepcopy(second.state_dict()), assign=True)
    run(IMAGES)
    gc.collect()
    assert gone() is None, "a prepacked weight does not keep its parameter alive"
    assert len(prepacked_shapes) == 2


# --- other values computed from frozen parameters ----------------------------------------------------------


def test_casts_of_weights_are_kept() -> None:
    module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    x = torch.randn(16, 32)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: torch.Tensor = module(x)
            return result

    with torch.no_grad():
        report = litz.explain(run, x)
        (region,) = report.graphs[0].regions
        assert region.frozen_bytes == 2 * (32 * 64 + 64 + 64 * 8 + 8)
        assert "library.frozen" in {decision.reason.key for decision in report.decisions}
        function = torch.compile(run, backend="litz")
        for _ in range(2):
            assert_close(function(x), run(x), rtol=2e-2, atol=2e-2)
        twice(module[0].weight)
        assert_close(function(x), run(x), rtol=2e-2, atol=2e-2)


@pytest.mark.wide_vectors
def test_frozen_parameters_are_not_looked_after(prepacked_shapes: list[torch.Size]) -> None:
    module = Block(padding=1).eval()
    with litz.config.patch(freezing=True), torch.no_grad():
        function = torch.compile(module, backend="litz")
        first = function(IMAGES)
        assert_close(first, module(IMAGES), rtol=1e-4, atol=1e-5)
        twice(module.convolution.weight)
        assert_close(function(IMAGES), first)
        module.convolution.weight = nn.Parameter(torch.randn_like(module.convolution.weight))
        assert_close(function(IMAGES), module(IMAGES), rtol=1e-4, atol=1e-5)
    assert len(prepacked_shapes) == 2, "another parameter is another argument"


@pytest.mark.wide_vectors
@pytest.mark.parametrize("frozen", [False, True])
def test_the_explanation_says_which_constants_are_folded(frozen: bool) -> None:
    module = Block(padding=1).eval()
    with litz.config.patch(freezing=frozen), torch.no_grad():
        report = litz.explain(module, IMAGES)
    (region,) = report.graphs[0].regions
    assert region.frozen == frozen and region.parameters > 1
    assert region.constant_folded == (("convolution.scale", 1), ("prepack_convolution", 1))
    until = "for good, since the option freezing is on" if frozen else "until a parameter changes"
    text = " ".join(str(report).split())
    assert f"{region.frozen_bytes} B {until}; computed from {region.parameters} parameters by" in text
    assert "1 x convolution.scale, 1 x prepack_convolution" in text


class Narrowed(nn.Module):
    """A parameter that is returned as a view of a narrower copy, beside a result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.weight.bfloat16().t(), x + 1


def test_a_returned_view_of_a_copy_is_the_callers_own() -> None:
    model = Narrowed()
    compiled = torch.compile(model, backend="litz")
    with torch.no_grad():
        first, _ = compiled(torch.ones(3))
        first.zero_()
        second, _ = compiled(torch.ones(3))
    assert torch.equal(second, model.weight.bfloat16().t())
