"""Bounds of symbolic sizes, by which kernels of a GPU have indices of 32 bits: guards, growth, and who has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx import GraphModule

import litz
import litz_lowering

LARGEST = 1 << 30


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let graphs on the CPU be bounded as those on a GPU."""
    monkeypatch.setattr(litz_lowering, "gpus_of", lambda gm: (torch.device("cuda", 0),))


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], CompileCounterWithBackend]:
    """Return a function compiled by litz for sizes that may change, and the counter of its compilations."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("litz")
    return torch.compile(function, backend=counter, dynamic=True), counter


def outer(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] * y[None, :]).sin()


@pytest.mark.usefixtures("on_a_gpu")
def test_a_graph_is_compiled_again_for_sizes_beyond_its_bounds() -> None:
    call, counter = counted(lambda x: x.sin() * 2)
    for rows, count in ((1 << 10, 1), (1 << 20, 1), (3, 1)):
        x = torch.randn(rows)
        torch.testing.assert_close(call(x), x.sin() * 2)
        assert counter.frame_count == count
    call, counter = counted(outer)
    # Both sizes may grow by the square root of 2^30 / (1,024 * 2,048), which is 22.6.
    for sizes, count in (((1024, 2048), 1), ((4, 22 * 2048), 1), ((4, 23 * 2048), 2), ((22 * 1024, 5), 2)):
        given = [torch.randn(size) for size in sizes]
        torch.testing.assert_close(call(*given), outer(*given))
        assert counter.frame_count == count


@pytest.mark.usefixtures("on_a_gpu")
def test_gradients_have_the_bounds_of_their_joint_graph() -> None:
    call, counter = counted(outer)
    for sizes, count in (((1024, 2048), 1), ((33 * 1024, 3), 2)):
        given = [torch.randn(size, requires_grad=True) for size in sizes]
        (expected,), (found,) = (
            torch.autograd.grad(function(*given).sum(), given[:1]) for function in (outer, call)
        )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert counter.frame_count == count


@pytest.mark.usefixtures("on_a_gpu")
def test_sizes_with_bounds_of_their_own_keep_them() -> None:
    call, counter = counted(lambda x: x * 2)
    x = torch.randn(64, 8)
    torch._dynamo.mark_dynamic(x, 0, min=4, max=1 << 20)
    call(x)
    call(torch.randn(1 << 17, 8))
    assert counter.frame_count == 1


def test_graphs_on_a_cpu_have_no_bounds() -> None:
    call, counter = counted(outer)
    for sizes in ((1024, 2048), (4, 33 * 1024)):
        call(*[torch.randn(size) for size in sizes])
    assert counter.frame_count == 1


@pytest.mark.usefixtures("on_a_gpu")
def test_graphs_whose_guards_nobody_reads_have_no_bounds() -> None:
    found: list[Any] = []

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        (env,) = {each.node.shape_env for each in inputs if isinstance(each, torch.SymInt)}
        compiled = litz.standalone_compile(gm, inputs, dynamic_shapes="from_tracing_context")
        found.extend(each.upper for each in env.var_to_range.values())
        return compiled

    torch._dynamo.reset()
    torch.compile(outer, backend=backend, dynamic=True)(torch.randn(8), torch.randn(9))
    assert len(found) == 2 and all(upper > LARGEST for upper in found)


@pytest.mark.parametrize(("least", "rows"), [(False, 1 << 12), (True, 3 << 28)])
def test_growth_fills_the_largest_tensor_and_is_at_least_two(least: bool, rows: int) -> None:
    bounds: list[int] = []

    def compiler(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        litz_lowering.bound_sizes(gm)
        (env,) = {each.node.shape_env for each in inputs if isinstance(each, torch.SymInt)}
        bounds.extend(int(each.upper) for each in env.var_to_range.values())
        return gm

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return torch._dynamo.backends.common.aot_autograd(fw_compiler=compiler)(gm, inputs)

    torch._dynamo.reset()
    x = torch.empty(1, dtype=torch.uint8).expand(rows)
    torch.compile(lambda x: x[:3] + x.shape[0], backend=backend, dynamic=True)(x)
    assert bounds == [2 * rows if least else LARGEST]
