"""Triton kernels of the user: calls that stay as they are, with their written arguments known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_functional,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

import litz.cache.key
from litz.cache.key import graph_key
from litz.host.emit.source import host_program
from litz.settings import Config
from litz_codegen_triton.capabilities import CUDA, chip_capabilities
from litz_ir.loops import Extern, LoopGraph, Pointwise
from litz_ir.passes import PassContext
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, lower
from litz_scheduler import schedule


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's own types
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + 1, i < n)


def launch(x: Tensor, out: Tensor) -> Tensor:
    """Return the graph with the kernel as Dynamo and AOTAutograd write it."""
    found = triton_kernel_wrapper_functional(
        kernel_idx=kernel_side_table.add_kernel(add_kernel),
        constant_args_idx=kernel_side_table.add_constant_args({"n": 12, "BLOCK": 16}),
        grid=[(1, 1, 1)],
        tma_descriptor_metadata={},
        kwargs={"x_ptr": x, "out_ptr": out},
        tensors_to_clone=["out_ptr"],
    )
    return found["out_ptr"]


def traced(program: Callable[[Tensor], object]) -> torch.fx.GraphModule:
    with FakeTensorMode():
        return make_fx(program)(torch.empty(12, device="cuda"))


def lowered(program: Callable[[Tensor], object]) -> LoopGraph:
    graph = lower(traced(program), options=LoweringOptions(fallback="error")).graph
    verify(graph)
    return graph


def into_new_memory(x: Tensor) -> Tensor:
    y = x * 2
    return launch(y, torch.empty_like(x)) + y


def into_what_is_read_later(x: Tensor) -> Tensor:
    y = x * 2
    return launch(x, y) + y


def twice(x: Tensor) -> Tensor:
    y = x * 2
    return launch(x, launch(x, y))


@pytest.mark.parametrize(
    ("program", "calls", "loops"), [(into_new_memory, 1, 3), (into_what_is_read_later, 1, 3), (twice, 2, 1)]
)
def test_a_kernel_overwrites_its_argument_or_a_copy(
    program: Callable[[Tensor], Tensor], calls: int, loops: int
) -> None:
    graph = lowered(program)
    externs = [op for op in graph.operations if isinstance(op, Extern)]
    assert [op.target for op in externs] == ["triton_kernel"] * calls
    for op in externs:
        ((old, new),) = op.mutates
        assert op.results[0].name == new and op.results[0].replaces == old and op.unreturned == (new,)
        assert dict(op.attributes).keys() == {"x_ptr", "out_ptr"} and op.layout_requirement == "exact"
    # Three loops: the multiplication, the memory to fill or the copy, the sum.
    assert sum(isinstance(op, Pointwise) for op in graph.operations) == loops


def test_the_host_program_calls_kernels_in_order() -> None:
    graph = lowered(twice)
    plan = schedule(graph, PassContext({CUDA: chip_capabilities("sm_90")}))
    text = host_program(plan).text
    first, second = (line for line in text.splitlines() if "triton_kernel(" in line)
    assert all(line.endswith("x_ptr=x_1, out_ptr=mul)") for line in (first, second)), (
        "both overwrite one memory"
    )
    assert text.index("segment_0(") < text.index(first)


def test_an_operator_made_of_a_kernel_launches_it() -> None:
    def plus_one(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(add_kernel)[(1,)](x, out, 12, BLOCK=16)
        return out

    torch.library.triton_op("litzkernels::plus_one", plus_one, mutates_args=())
    graph = lowered(dispatch_functionalize(lambda x: torch.ops.litzkernels.plus_one(x * 2) + 1))
    (call,) = [op for op in graph.operations if isinstance(op, Extern)]
    assert call.target == "triton_kernel" and call.reason == "the operator is a Triton kernel of the user"


def test_a_cached_graph_with_kernels_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = traced(lambda x: x * 2), traced(into_new_memory)
    before = [graph_key(gm, Config(), ()) for gm in (plain, ours)]
    assert before == [graph_key(gm, Config(), ()) for gm in (plain, ours)]
    monkeypatch.setattr(litz.cache.key, "_PROCESS", "another")
    after = [graph_key(gm, Config(), ()) for gm in (plain, ours)]
    assert before[0] == after[0] and before[1] != after[1]
