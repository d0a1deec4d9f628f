"""Resampling, decomposed by AOTAutograd or as one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lowering_check import AtenTable, check_gradients, compare, to_array, to_tensor
from lowering_graphs import check, lowered, operations, reasons
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from litz_ir.interp import run_graph
from litz_ir.verifier import verify
from litz_lowering import decompositions, lower
from litz_lowering.rules.indexing.known_index import Stair, fit

aten = torch.ops.aten
interpolate = torch.nn.functional.interpolate
X = torch.randn(2, 3, 7, 8)
WAYS: list[dict[str, Any]] = [
    {"scale_factor": 2, "mode": "nearest"},
    {"size": (9, 20), "mode": "nearest"},
    {"size": (3, 5), "mode": "nearest-exact"},
    {"scale_factor": 2, "mode": "bilinear"},
    {"size": (5, 19), "mode": "bilinear", "align_corners": True},
    {"scale_factor": (2, 1.5), "mode": "bicubic"},
]


@pytest.mark.parametrize("way", WAYS)
def test_interpolation_needs_no_index_tensor(way: dict[str, Any]) -> None:
    found = check(lambda x: interpolate(x, **way), X)
    assert "indirect" not in str(found.graph.operations).lower()


@pytest.mark.parametrize("way", WAYS[:5])
def test_gradients_are_gathered(way: dict[str, Any]) -> None:
    found = check(torch.func.grad(lambda x: interpolate(x, **way).square().sum()), X)
    assert "Scatter" not in operations(found)


def test_interpolation_with_symbolic_sizes() -> None:
    check(lambda x: interpolate(x, scale_factor=2, mode="nearest"), X, dynamic=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "way", [{"scale_factor": 0.5}, {"size": (9, 3), "align_corners": True}, {"size": (2, 20)}]
)
def test_antialiasing(mode: str, way: dict[str, Any]) -> None:
    check_gradients(lambda x: interpolate(x, mode=mode, antialias=True, **way), X, atol=1e-5)


@pytest.mark.skipif(not hasattr(aten, "_upsample_lanczos2d_aa"), reason="torch 2.12 has it")
@pytest.mark.parametrize("size", [[4, 3], [12, 9]])
def test_antialiasing_by_lanczos(size: list[int]) -> None:
    check(lambda x: aten._upsample_lanczos2d_aa(x, size, False), X, atol=1e-5)


def test_antialiasing_of_integers_falls_back() -> None:
    x = (X * 50 + 100).to(torch.uint8)
    found = lowered(lambda x: interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True), x)
    assert [f.target for f in found.fallbacks] == ["aten._upsample_bilinear2d_aa.default"]


def _undecomposed(function: Callable[..., Any], x: torch.Tensor) -> list[str]:
    """Capture ``function`` below autograd, where nothing is decomposed, check it, and return the reasons of
    fallbacks."""
    found = lower(make_fx(function, tracing_mode="real", decomposition_table=decompositions())(x))
    verify(found.graph)
    results = run_graph(found.graph, [to_array(x)], {}, AtenTable())
    for result, want in zip(results, tree_leaves(function(x)), strict=True):
        compare("result", to_tensor(np.asarray(result)), want, 1e-5, 1e-5, 2e-2)
    return reasons(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [(14, 16), (9, 20), (5, 3), (7, 1)])
def test_undecomposed_operators(dtype: torch.dtype, size: tuple[int, int]) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        nearest = [aten.upsample_nearest2d(x, size), aten._upsample_nearest_exact2d(x, size)]
        return [*nearest, *(aten.upsample_bilinear2d(x, size, corners) for corners in (False, True))]

    assert not _undecomposed(function, X.to(dtype))


def test_undecomposed_operators_by_scale_and_in_other_ranks() -> None:
    assert not _undecomposed(lambda x: aten.upsample_nearest2d.vec(x, None, [2.0, 1.7]), X)
    assert not _undecomposed(lambda x: aten.upsample_bilinear2d(x, [10, 13], False, 1.5, 1.7), X)
    assert not _undecomposed(lambda x: aten.upsample_nearest1d(x, [13]), X[0])
    assert not _undecomposed(lambda x: aten.upsample_linear1d(x, [13], False), X[0])
    assert not _undecomposed(lambda x: aten.upsample_nearest3d(x, [2, 9, 4]), X[None])
    assert not _undecomposed(lambda x: aten.upsample_trilinear3d(x, [2, 9, 4], False), X[None])


@pytest.mark.parametrize(
    "stair",
    [
        Stair(9, 1, 0, 1),
        Stair(12, 1, 0, 2),
        Stair(14, 1, -1, 2, low=0),
        Stair(14, 1, 1, 2, low=1, high=6),
        Stair(20, 7, 3, 13),
        Stair(5, 3, 1, 1),
        Stair(6, 1, -2, 1, low=0, high=2),
    ],
)
def test_a_staircase_is_fitted_and_inverted(stair: Stair) -> None:
    values = stair.values()
    found = fit(values)
    assert found is not None
    assert (found.values() == values).all()
    assert [found.term(i) for i in range(stair.count)] == values.tolist()
    size = int(values.max()) + 2
    inverse = found.inverse(size)
    assert inverse is not None
    for value in range(size):
        reached = [inverse.position(value, number) for number in range(inverse.extent)]
        assert set(np.flatnonzero(values == value).tolist()) <= set(reached)


def test_values_that_are_no_staircase() -> None:
    assert fit(np.array([0, 2, 1])) is None
    assert fit(np.array([0, 0, 0, 5, 6, 7, 7, 40])) is None
    assert fit(np.array([], dtype=np.int64)) is None
