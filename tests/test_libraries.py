"""Routines of the libraries that torch is built with: the calls that they run, and their results against ATen's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import litz
from litz.host.runtime.libraries import LINEAR_FLOPS, linear_flops, vendor
from litz_ir.target import Capabilities, DeviceModel

Function = Callable[..., torch.Tensor]


@pytest.fixture
def eager_to_use_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``linear`` run every matmul that it can, on any machine."""
    monkeypatch.setattr("litz.stage_options.linear_flops", lambda cpu: 1)


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    """Reset Dynamo, so that another shape gives another graph instead of symbolic sizes."""
    torch._dynamo.reset()


def calls(function: Function, *args: torch.Tensor) -> list[str]:
    return [call.target for call in litz.explain(function, *args).calls]


def matmul_and_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b + 1.0


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.nn.functional.linear(x, w, b))


FACTORS = {
    "rows": (torch.randn(24, 40), torch.randn(40, 56)),
    "columns": (torch.randn(40, 24).t(), torch.randn(56, 40).t()),
    "parts of rows": (torch.randn(24, 90)[:, 7:47], torch.randn(90, 56)[:40]),
    "parts of columns": (torch.randn(90, 24)[7:47].t(), torch.randn(90, 40)[:56].t()),
    "an offset": (torch.randn(24 * 40 + 3)[3:].view(24, 40), torch.randn(40, 56)),
}


@pytest.mark.usefixtures("eager_to_use_linear")
@pytest.mark.parametrize("name", FACTORS)
def test_linear_takes_every_layout_of_a_matrix(name: str) -> None:
    a, b = FACTORS[name]
    assert calls(matmul_and_add, a, b) == ["linear"]
    result = torch.compile(matmul_and_add, backend="litz")(a, b)
    assert_close(result, matmul_and_add(a, b), rtol=1e-5, atol=1e-5)
    assert result.stride() == matmul_and_add(a, b).stride()


@pytest.mark.usefixtures("eager_to_use_linear")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.randn(1, 40).expand(24, 40), torch.randn(40, 56)),
        (torch.randn(24, 80)[:, ::2], torch.randn(40, 56)),
        (torch.randn(4, 40), torch.randn(40, 56)),
        (torch.randn(24, 0), torch.randn(0, 56)),
        (torch.randn(24, 40), torch.randn(40, 90)[:, :56]),
        (torch.randn(256, 256), torch.randn(512, 512)[:, :256].t()),
        (torch.randn(24, 40, dtype=torch.float64), torch.randn(40, 56, dtype=torch.float64)),
        (torch.randn(24, 40).bfloat16(), torch.randn(40, 56).bfloat16()),
    ],
    ids=[
        "overlapping rows",
        "gaps in rows",
        "few rows",
        "no elements",
        "gaps in a weight",
        "gaps in a transposed weight",
        "f64",
        "bf16",
    ],
)
def test_other_matmuls_fall_back_to_aten(a: torch.Tensor, b: torch.Tensor) -> None:
    assert calls(matmul_and_add, a, b) == ["aten.mm.default"]
    assert_close(torch.compile(matmul_and_add, backend="litz")(a, b), matmul_and_add(a, b))


@pytest.mark.usefixtures("eager_to_use_linear")
def test_a_bias_with_gaps_falls_back_to_aten() -> None:
    x, w, b = torch.randn(24, 40), torch.randn(56, 40), torch.randn(112)
    assert calls(layer, x, w, b[:56]) == ["linear"]
    assert calls(layer, x, w, b[::2]) == ["aten.addmm.default"]
    assert_close(torch.compile(layer, backend="litz")(x, w, b[::2]), layer(x, w, b[::2]))


@pytest.mark.usefixtures("eager_to_use_linear")
def test_a_weight_that_was_overwritten_is_read_anew() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        transposed = w.t()
        w.mul_(2.0)
        return x @ transposed

    x, w = torch.randn(24, 40), torch.randn(56, 40)
    expected = function(x, w.clone())
    assert_close(torch.compile(function, backend="litz")(x, w), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("eager_to_use_linear")
def test_gradients_and_rows_of_any_number() -> None:
    compiled = torch.compile(layer, backend="litz", dynamic=True)
    for rows in (24, 9, 33, 0):
        given = [torch.randn(s, requires_grad=True) for s in ((rows, 40), (56, 40), (56,))]
        copies = [each.detach().clone().requires_grad_() for each in given]
        compiled(*given).sum().backward()
        layer(*copies).sum().backward()
        for each, copy in zip(given, copies, strict=True):
            assert_close(each.grad, copy.grad, rtol=1e-5, atol=1e-4)


def test_linear_is_used_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = (Capabilities("cpu", model=DeviceModel(vector_bytes=nbytes)) for nbytes in (64, 32))
    monkeypatch.setattr("litz.host.runtime.libraries.vendor", lambda path: "AuthenticAMD")
    assert linear_flops(wide) == LINEAR_FLOPS
    assert linear_flops(narrow) == linear_flops(None) == 0
    with monkeypatch.context() as without:
        without.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        assert linear_flops(wide) == 0
    monkeypatch.setattr("litz.host.runtime.libraries.vendor", lambda path: "GenuineIntel")
    assert linear_flops(wide) == 0


def test_who_made_the_cpu(tmp_path: Path) -> None:
    known = tmp_path / "cpuinfo"
    known.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 2\n")
    assert vendor(known) == "AuthenticAMD"
    assert vendor(tmp_path / "absent") == ""


@pytest.mark.usefixtures("eager_to_use_linear")
def test_a_weight_that_is_a_part_of_another_matrix_is_that_part() -> None:
    def function(matrix: torch.Tensor) -> torch.Tensor:
        weight = matrix[:9]
        return torch.nn.functional.linear(torch.cat([weight, weight]), weight)

    matrix = torch.randn(33, 33)
    assert calls(function, matrix) == ["linear"]
    assert_close(torch.compile(function, backend="litz")(matrix), function(matrix), rtol=1e-5, atol=1e-5)
