"""Padding."""

from __future__ import annotations

import pytest
import torch
from lowering_graphs import check, converted, operations

aten = torch.ops.aten
X = torch.randn(2, 3, 4, 5)
DTYPES = [torch.float32, torch.bfloat16, torch.int32]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_constant_pad(dtype: torch.dtype) -> None:
    pads = [(1, 2), (0, 1, 2, 0), (-1, 2, 1, -2), (0, 0, 0, 0, 1, 0, 0, 3), (-2, -3), ()]
    found = check(lambda x: [aten.constant_pad_nd(x, pad, 3) for pad in pads], converted(X, dtype))
    assert operations(found) == ["Pointwise"] * len(pads)


def test_constant_pad_of_nothing_and_of_other_layouts() -> None:
    check(lambda x: aten.constant_pad_nd(x, (1, 1), 2.0), torch.empty(2, 0))
    check(lambda x: aten.constant_pad_nd(x, (1, 1, 1, 1)), X.to(memory_format=torch.channels_last))
    check(lambda x: aten.constant_pad_nd(x, (1, 1, -1, 2)), X, dynamic=True)


PADS = {1: (1, 2), 2: (2, 1, 0, 3), 3: (1, 0, 2, 3, 1, 1)}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reflection_and_replication(rank: int, dtype: torch.dtype) -> None:
    x = converted(torch.randn(2, 3, 4, 5, 6) if rank == 3 else X if rank == 2 else X[0], dtype)
    pad = PADS[rank]
    reflect, replicate = (getattr(aten, f"{kind}_pad{rank}d") for kind in ("reflection", "replication"))
    check(lambda x: (reflect(x, pad), reflect(x, (-1, *pad[1:]))), x)
    if dtype.is_floating_point:
        check(lambda x: (replicate(x, pad), replicate(x, tuple(4 * p for p in pad))), x)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_gradients(rank: int, kind: str) -> None:
    x = torch.randn(2, 3, 4, 5, 6) if rank == 3 else X if rank == 2 else X[0]
    grad = torch.randn_like(getattr(aten, f"{kind}_pad{rank}d")(x, PADS[rank]))
    backward = getattr(aten, f"{kind}_pad{rank}d_backward")
    check(lambda g, x: backward(g, x, PADS[rank]), grad, x)


def test_reflection_with_symbolic_sizes() -> None:
    check(lambda x: aten.reflection_pad2d(x, (2, 1, 0, 3)), X, dynamic=True)
