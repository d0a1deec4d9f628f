"""The indices of max pooling that a forward on a GPU saves: a byte or two each, and the gradient is eager's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from litz_lowering.pool_indices import narrow_pool_indices

aten = torch.ops.aten


@dataclass(frozen=True)
class Pool:
    """A pool and its backward, as a joint graph has them."""

    rank: int
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    saved: torch.dtype | None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(getattr(aten, f"max_pool{self.rank}d_with_indices")(x, *self.arguments))

    def __call__(self, x: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        y, indices = self.forward(x)
        backward = getattr(aten, f"max_pool{self.rank}d_with_indices_backward")
        return y, backward(gradient, x, *self.arguments, indices)

    def traced(self, device: str) -> GraphModule:
        with FakeTensorMode():
            x = torch.empty(self.shape, device=device)
            return make_fx(self)(x, torch.empty_like(self.forward(x)[0]))


POOLS = {
    "overlapping": Pool(2, ([3, 3], [2, 2], [1, 1], [1, 1], False), (2, 3, 12, 20), torch.uint8),
    "without a stride": Pool(2, ([2], [], [0], [1], False), (3, 9, 8), torch.uint8),
    "beyond the image": Pool(2, ([3, 2], [2, 3], [1, 0], [1, 1], True), (2, 2, 8, 9), torch.uint8),
    "dilated": Pool(2, ([3, 3], [1, 2], [1, 1], [2, 2], False), (1, 2, 10, 70), torch.int16),
    "volumes": Pool(3, ([2, 3, 3], [2, 2, 1], [1, 1, 0], [1, 1, 1], False), (2, 2, 6, 7, 8), torch.uint8),
    "planes": Pool(3, ([3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], False), (1, 1, 4, 90, 120), torch.int16),
    "too wide": Pool(3, ([3, 1, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1], False), (1, 1, 3, 140, 140), None),
}


@pytest.mark.parametrize("name", POOLS)
def test_the_gradient_is_eagers_and_the_saved_positions_are_narrow(name: str) -> None:
    pool = POOLS[name]
    gm = pool.traced("cuda")
    narrow_pool_indices(gm.graph)
    gm.graph.lint()
    casts = [node.meta["val"].dtype for node in gm.graph.nodes if node.target == aten._to_copy.default]
    assert casts == ([] if pool.saved is None else [pool.saved, torch.int64])
    for node in gm.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    gm.recompile()
    torch.manual_seed(0)
    x = torch.randn(pool.shape)
    x.flatten()[::7] = torch.nan
    gradient = torch.randn_like(pool.forward(x)[0])
    torch.testing.assert_close(gm(x, gradient), pool(x, gradient), rtol=0, atol=0, equal_nan=True)


def test_a_cpu_keeps_the_indices() -> None:
    gm = POOLS["overlapping"].traced("cpu")
    narrow_pool_indices(gm.graph)
    assert not any(node.target == aten._to_copy.default for node in gm.graph.nodes)
