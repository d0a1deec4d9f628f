"""Matmuls of inference over prepacked weights: results are eager's, and changed weights are read again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import litz
from litz.host.runtime.torch_memory import LastingMemory, lasting


@pytest.fixture(autouse=True)
def every_size() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with litz.config.patch(force="linear_flops=1"):
        yield


def compiled(module: nn.Module, *args: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = torch.compile(module, backend="litz", dynamic=False)(*args)
    return found


def calls(module: nn.Module, *args: torch.Tensor) -> list[str]:
    with torch.no_grad():
        return [call.target for call in litz.explain(module, *args).calls]


def assert_like_double(module: nn.Module, *args: torch.Tensor) -> None:
    """Compare with eager in f64: as close as eager in f32 is, up to a factor of four."""
    with torch.no_grad():
        eager = module(*args)
        found = compiled(module, *args)
        exact = module.double()(*(each.double() for each in args))
        module.float()
    assert found.stride() == eager.stride()
    bound = 4 * (eager - exact).abs().max().item() + 1e-6
    assert (found - exact).abs().max().item() <= bound


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        (9, 16, 1),
        (16, 1, 40),
        (17, 33, 32),
        (128, 512, 65),
        (239, 40, 96),
        (31, 1300, 48),
        (15, 2048, 40),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_sizes(rows: int, depth: int, columns: int, bias: bool) -> None:
    module = nn.Linear(depth, columns, bias=bias)
    x = torch.randn(rows, depth)
    assert_like_double(module, x)


class Block(nn.Module):
    """Layers with an activation, a residual and a norm, over a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(64, 200), nn.Linear(200, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.down(F.gelu(self.up(x))) + x)


def test_block_without_calls() -> None:
    module, x = Block().eval(), torch.randn(3, 20, 64)
    assert_like_double(module, x)
    assert calls(module, x) == []


class Heads(nn.Module):
    """Attention, whose heads are joined before a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (4, 16)).transpose(1, 2) for each in self.inputs(x).chunk(3, -1))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_joined_heads() -> None:
    assert_like_double(Heads().eval(), torch.randn(2, 40, 64))


class Transposed(nn.Module):
    """A weight with a row for each summed element, and rows that are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(48, 80)), nn.Parameter(torch.randn(80))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.t(), self.weight) + torch.addmm(self.bias, x[:48].t(), self.weight)


def test_transposed_operands() -> None:
    assert_like_double(Transposed().eval(), torch.randn(48, 30))


def test_padded_rows() -> None:
    module, wide = nn.Linear(48, 40), torch.randn(30, 64)
    assert_close(compiled(module, wide[:, 8:56]), module(wide[:, 8:56]).detach(), rtol=1e-4, atol=1e-5)


def test_overwritten_rows() -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(48, 40)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 2
            rows = y.view(30, 48)
            first = self.layer(rows)
            y.add_(1)
            return first, self.layer(rows)

    module, x = Overwrites().eval(), torch.randn(5, 6, 48)
    with torch.no_grad():
        expected = module(x)
        found = torch.compile(module, backend="litz")(x)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_special_values(value: float) -> None:
    module, x = nn.Linear(40, 33), torch.randn(20, 40)
    x[3, 5] = value
    with torch.no_grad():
        module.weight[32, 7] = value
        expected = module(x)
    assert_close(compiled(module, x), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_changed_weights() -> None:
    module, x = nn.Linear(512, 300), torch.randn(16, 512)
    run = torch.compile(module, backend="litz", dynamic=False)
    with torch.no_grad():
        run(x)
        module.weight.mul_(2)
        assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)
        module.load_state_dict(nn.Linear(512, 300).state_dict())
        assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)


def test_one_weight_for_two_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.relu(self.layer(x)))

    module, x = Twice().eval(), torch.randn(20, 64)
    assert_like_double(module, x)
    with torch.no_grad():
        names = [name for each in litz.explain(module, x).kernels for name in each.operations]
    assert sum(name.endswith(".prepacked") for name in names) == 1


def test_rows_of_unknown_number() -> None:
    module = nn.Linear(64, 64)
    run = torch.compile(module, backend="litz", dynamic=True)
    with torch.no_grad():
        for rows in (20, 33):
            x = torch.randn(rows, 64)
            assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)


def test_prepacking_off_and_batch_invariant() -> None:
    module, x = nn.Linear(64, 64), torch.randn(20, 64)
    with litz.config.patch(prepack_weights=False):
        assert calls(module, x) == ["linear"]
    torch._dynamo.reset()
    with litz.config.patch(batch_invariant=True):
        assert_close(compiled(module, x), module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0,), (5,), (1024, 1024), (3000, 2000)])
def test_lasting_memory(shape: tuple[int, ...]) -> None:
    memory = LastingMemory()
    strides = torch.empty(shape).stride()
    tensors = [memory.empty(shape, strides, torch.float32) for _ in range(3)]
    for number, each in enumerate(tensors):
        each.fill_(number)
    for number, each in enumerate(tensors):
        assert each.shape == shape and each.stride() == strides and each.data_ptr() % 16 == 0
        assert bool((each == number).all())


def test_lasting_memory_is_freed_with_its_tensors() -> None:
    first = lasting.empty((1 << 20,), (1,), torch.float32).fill_(1.0)
    second = lasting.empty((1 << 23,), (1,), torch.float32).fill_(2.0)
    del first
    assert bool((second == 2.0).all())


class Rotated(nn.Module):
    """A projection whose halves of each head are rotated, then one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.out = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = self.key(x).unflatten(-1, (4, 16)).transpose(1, 2).chunk(2, dim=-1)
        heads = torch.cat([-high, low], dim=-1)
        return self.out(heads.transpose(1, 2).flatten(2))


def test_matmuls_whose_columns_are_divided_stay_calls() -> None:
    """Fused with loops over heads they would have no tiles: a Llama was twice as slow."""
    module, x = Rotated().eval(), torch.randn(2, 32, 64)
    assert calls(module, x) == ["linear"]
    torch._dynamo.reset()
    assert_like_double(module, x)
