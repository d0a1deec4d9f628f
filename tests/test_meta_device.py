"""Calls over tensors of the device ``meta``, by which users find shapes without memory."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn


def test_a_model_on_meta_gives_shapes_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
        x = torch.empty(4, 5, requires_grad=True)
    with caplog.at_level(logging.WARNING, "litz"):
        found = torch.compile(model, backend="litz", fullgraph=True)(x)
        found.sum().backward()
    assert (found.device.type, found.shape, found.dtype) == ("meta", (4, 3), torch.float32)
    assert x.grad is not None and (x.grad.device.type, x.grad.shape) == ("meta", (4, 5))
    assert [each.shape for each in model.parameters()] == [
        each.grad.shape for each in model.parameters() if each.grad is not None
    ]
    assert not caplog.records


def test_a_value_on_meta_in_a_graph_of_the_cpu() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, torch.empty(x.shape[0], 3, device="meta") + 1

    doubled, made = torch.compile(f, backend="litz")(torch.arange(4.0))
    assert doubled.tolist() == [0, 2, 4, 6] and (made.device.type, made.shape) == ("meta", (4, 3))
