"""Tests of the device in eager: memory that the CPU cannot access, operators, devices, streams and events."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from litz_device_toy import device_module
from litz_device_toy._C import host_address


def test_torch_knows_the_device_without_an_import_of_it() -> None:
    code = "import torch; print(torch.ones(2, device='toy').toy(1).device, torch.toy.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "toy:1 2\n", done.stderr


def test_the_cpu_cannot_read_its_memory() -> None:
    code = (
        "import ctypes, torch; x = torch.ones(4, device='toy'); print('made', flush=True); "
        "ctypes.string_at(x.data_ptr(), 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "made\n" and done.returncode < 0, "it ends by a signal"


def test_a_launch_takes_memory_of_the_current_device_alone() -> None:
    here, there = torch.ones(1, device="toy"), torch.ones(1, device="toy:1")
    assert host_address(here.data_ptr()) != here.data_ptr()
    with pytest.raises(ValueError, match="is no address of the device"):
        host_address(torch.ones(1).data_ptr())
    with pytest.raises(ValueError, match="of device 1, device 0 is current"):
        host_address(there.data_ptr())
    with device_module.device(1):
        assert host_address(there.data_ptr()) and torch.empty(1, device="toy").device.index == 1


def test_freed_memory_is_used_again() -> None:
    addresses = {torch.empty(1 << 20, device="toy").data_ptr() for _ in range(100)}
    assert len(addresses) == 1
    whole = [torch.empty(1 << 28, dtype=torch.uint8, device="toy") for _ in range(8)]
    with pytest.raises(torch.OutOfMemoryError, match="has no 4294967296 bytes left in one block"):
        torch.empty(1 << 32, dtype=torch.uint8, device="toy")
    del whole
    torch.empty((1 << 32) - (1 << 26), dtype=torch.uint8, device="toy")


def test_operators_views_and_storages_in_eager() -> None:
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    there = x.to("toy")
    for function in (
        lambda x: (x @ x.T).softmax(-1),
        lambda x: x.t()[1:, ::2].contiguous(),
        lambda x: x.clone().t().mul_(2),
        lambda x: torch.stack([x, x + 1]).double(),
        lambda x: x.unfold(1, 2, 2),
        lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2)).mul(2j)),
        lambda x: nn.functional.conv_transpose2d(x[None, None], x[None, None, :2, :2], stride=2),
        lambda x: x.sort(descending=True).values,
        lambda x: x.bfloat16().sum(0),
    ):
        found = function(there)
        assert found.device.type == "toy"
        assert_close(found.cpu(), function(x))
    grown = torch.empty(0, device="toy").resize_(100).fill_(3)
    grown.untyped_storage().resize_(4000)
    assert grown[5].item() == 3 and grown.untyped_storage().nbytes() == 4000
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    assert_close(torch.load(file), there)


def test_a_convolution_trains_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    model, x = nn.Conv2d(2, 4, 3, groups=2), torch.randn(2, 2, 8, 8)
    gradients = []
    for device in ("cpu", "toy:1"):
        model.to(device).zero_grad()
        model(x.to(device)).square().sum().backward()
        gradients.append([each.grad.cpu() for each in model.parameters() if each.grad is not None])
    assert_close(*gradients)


def test_streams_events_and_devices() -> None:
    stream = torch.Stream(device="toy:1")
    with stream:
        assert torch.accelerator.current_stream("toy:1") == stream
    assert torch.accelerator.current_stream("toy:1") != stream
    first, last = (torch.Event(device="toy", enable_timing=True) for _ in range(2))
    first.record()
    last.record()
    torch.accelerator.current_stream().wait_event(last)
    last.synchronize()
    assert last.query() and first.elapsed_time(last) >= 0
    with pytest.raises(IndexError, match="there is no device toy:7"):
        device_module.set_device(7)
