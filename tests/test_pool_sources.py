"""Pooling kernels: sources do not grow with the window. Lowering's tests look at their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from litz_codegen_cpp.emit import emit_plan
from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.target import Capabilities
from litz_lowering import lower
from litz_scheduler import schedule

aten = torch.ops.aten

TRAITS = Capabilities("avx512", CPU)
# The graphs are captured on the CPU, so a GPU's traits are given to that device.
GPU = Capabilities(
    "sm_90",
    CPU,
    chip_model("sm_90"),
    atomics=SUPPORTED,
    max_tile_elements=32768,
    max_subkernels=64,
)

SMALL, LARGE = (2, 3), (8, 13)
"""Window sizes of the tests, in each dimension."""

Pooling = Callable[[int, int], tuple[Callable[..., Any], tuple[Tensor, ...]]]
"""Return a function and its arguments, for a window size and a rank."""


def image(rank: int) -> Tensor:
    return torch.zeros(1, 2, *(18, 17, 16)[:rank])


def windows(size: int, rank: int) -> tuple[list[int], list[int], list[int]]:
    """Window size, stride and padding: windows that overlap, and reach into the padding."""
    return [size] * rank, [2] * rank, [1] * rank


def average(size: int, rank: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    pool = getattr(aten, f"avg_pool{rank}d")
    return lambda x: pool(x, *windows(size, rank), True, True), (image(rank),)


def average_of_what_is_inside(size: int, rank: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    pool = getattr(aten, f"avg_pool{rank}d")
    return lambda x: pool(x, *windows(size, rank), True, False), (image(rank),)


def average_backward(size: int, rank: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    rest = (*windows(size, rank), True, True, None)
    grad = getattr(aten, f"avg_pool{rank}d")(image(rank), *rest)
    return lambda g, x: getattr(aten, f"avg_pool{rank}d_backward")(g, x, *rest), (grad, image(rank))


def largest(size: int, rank: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    pool = getattr(aten, f"max_pool{rank}d_with_indices")
    return lambda x: pool(x, *windows(size, rank), 1, True), (image(rank),)


def largest_backward(size: int, rank: int) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    rest = (*windows(size, rank), [1] * rank, True)
    pool = getattr(aten, f"max_pool{rank}d_with_indices")
    grad, places = pool(image(rank), *rest)
    backward = getattr(aten, f"max_pool{rank}d_with_indices_backward")
    return lambda g, x, i: backward(g, x, *rest, i), (grad, image(rank), places)


POOLS: dict[str, tuple[Pooling, int]] = {
    "avg_pool1d": (average, 1),
    "avg_pool3d": (average, 3),
    **{f"avg_pool{rank}d, padding not counted": (average_of_what_is_inside, rank) for rank in (2, 3)},
    **{f"avg_pool{rank}d_backward": (average_backward, rank) for rank in (2, 3)},
    **{f"max_pool{rank}d": (largest, rank) for rank in (2, 3)},
    **{f"max_pool{rank}d_backward": (largest_backward, rank) for rank in (2, 3)},
}


def sources(graph: LoopGraph) -> Iterator[str]:
    """Return the C++ source of a graph, and its Triton kernels."""
    yield "\n".join(unit.text for unit in emit_plan(schedule(graph, PassContext({CPU: TRAITS})), 16, ()))
    plan = schedule_plan(schedule(graph, PassContext({CPU: GPU})), GPU)
    yield "\n".join(emit_kernel(kernel).text for kernel in plan.kernels)


def written(name: str, size: int, tracing: str) -> list[str]:
    make, rank = POOLS[name]
    function, arguments = make(size, rank)
    return list(sources(lower(make_fx(function, tracing_mode=tracing)(*arguments)).graph))


@pytest.mark.sampled
@pytest.mark.parametrize("tracing", ["fake", "symbolic"])
@pytest.mark.parametrize("name", POOLS)
def test_a_larger_window_makes_no_longer_kernel(name: str, tracing: str) -> None:
    small = [max(map(len, texts)) for texts in zip(*(written(name, size, tracing) for size in SMALL))]
    for size in LARGE:
        for text, usual in zip(written(name, size, tracing), small, strict=True):
            # Of several forms of a loop (with or without masks, in one tile or many) a larger one may be another.
            assert len(text) < 2 * usual, (
                f"windows of {size}: {len(text)} characters, {usual} for a small one"
            )


@pytest.mark.parametrize("name", POOLS)
def test_no_expression_of_symbolic_sizes_grows_with_the_product_of_dimensions(name: str) -> None:
    for text in written(name, 8, "symbolic"):
        assert max(map(len, text.splitlines())) < 800
