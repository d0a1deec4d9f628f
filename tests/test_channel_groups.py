"""Group norms of channels-last tensors compute eager's values, statistics and gradients."""

from __future__ import annotations

import pytest
import torch
from compared_with_eager import agrees, values
from torch.nn import functional as F

LAST = torch.channels_last


@pytest.mark.sampled
@pytest.mark.parametrize("groups", [1, 2, 6, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_group_norm_of_adjacent_channels(groups: int, dtype: torch.dtype, dynamic: bool) -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normal, mean, rstd = torch.native_group_norm(
            x, w, b, x.shape[0], 12, x.shape[2] * x.shape[3], groups, 1e-5
        )
        return normal, mean.float(), rstd.float()

    x = (values(3, 12, 7, 5, dtype=dtype) + 3).to(memory_format=LAST)
    agrees(program, x, values(12, dtype=dtype), values(12, dtype=dtype), dynamic=dynamic)


def test_group_norm_before_an_activation_and_without_weights() -> None:
    x = values(2, 64, 9, 9).to(memory_format=LAST)
    agrees(lambda x: F.silu(F.group_norm(x, 8)) + x, x)
    agrees(lambda x: F.group_norm(x[:, :, :1, :1], 8), x)
