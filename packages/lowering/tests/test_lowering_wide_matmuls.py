"""Matmuls of narrow operands that are cast to f32 at once: the library writes f32, on request and where it can."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.dtypes import f32
from litz_lowering import LoweringOptions, lower

Program = Callable[..., object]
ON = LoweringOptions(wide_matmuls=frozenset({"cpu"}))


def calls(program: Program, inputs: Sequence[Tensor], options: LoweringOptions = ON) -> list[str]:
    """Lower a program; return the targets of its matmuls, those with an f32 result first."""
    graph = lower(make_fx(program, tracing_mode="fake")(*inputs), options=options).graph
    found = [each for each in graph.operations if getattr(each, "target", "").startswith("aten.mm")]
    assert all(each.results[0].type.dtype == f32 for each in found if each.target == "aten.mm.dtype")  # type: ignore[attr-defined]
    return [each.target for each in found]  # type: ignore[attr-defined]


def mm(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten.mm.default(x, y)


def wide(x: Tensor) -> Tensor:
    return torch.ops.aten._to_copy.default(x, dtype=torch.float32)


G, X = torch.ones(16, 8, dtype=torch.bfloat16), torch.ones(16, 24, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "program",
    [
        lambda g, x: wide(mm(g.t(), x)),
        lambda g, x: wide(mm(x.t(), g).t()) + 1,
        lambda g, x: wide(mm(g.t(), x).t().t()).t(),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_library_writes_f32(program: Program, dtype: torch.dtype) -> None:
    given = (G.to(dtype), X.to(dtype))
    assert calls(program, given) == ["aten.mm.dtype"]
    assert calls(program, given, LoweringOptions()) == ["aten.mm.default"]


def read_twice(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    found = mm(g.t(), x)
    return wide(found), found


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (read_twice, (G, X)),
        (lambda g, x: wide(mm(g.t(), x).relu()), (G, X)),
        (lambda g, x: mm(g.t(), x).double(), (G, X)),
        (lambda g, x: wide(mm(g.t(), x)), (G.double(), X.double())),
        (lambda g, x: wide(mm(g.t(), x)), (G[:, :7], X)),
        (lambda g, x: wide(mm(g.t(), x)), (G[:0], X[:0])),
    ],
)
def test_others_are_rounded_first(program: Program, given: Sequence[Tensor]) -> None:
    assert calls(program, given) == ["aten.mm.default"]
