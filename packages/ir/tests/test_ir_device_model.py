"""The numbers of machines: each says where it comes from, and the derived ones follow."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields

from litz_ir.target import Capabilities, DeviceModel

GPU = DeviceModel(sm_count=16, warp_size=32, max_threads=1024, registers=1 << 16, thread_registers=255)


def test_every_number_names_its_source() -> None:
    (body,) = ast.parse(inspect.getsource(DeviceModel)).body
    assert isinstance(body, ast.ClassDef)
    documented = {
        each.target.id: following.value.value
        for each, following in zip(body.body, body.body[1:])
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }
    assert set(documented) == {field.name for field in fields(DeviceModel)}
    assert [
        name for name, text in documented.items() if "Source:" not in str(text) and "source:" not in str(text)
    ] == []


def test_warps_follow_from_threads_and_registers() -> None:
    assert (GPU.max_warps, GPU.full_register_warps) == (32, 8)
    assert DeviceModel().max_warps == 1


def test_a_device_with_sms_is_a_gpu() -> None:
    assert Capabilities("gpu", model=GPU).is_gpu
    assert not Capabilities("cpu", model=DeviceModel(threads=64)).is_gpu
