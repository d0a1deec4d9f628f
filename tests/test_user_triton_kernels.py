"""Triton kernels of the user: calls that stay as they are, with their written arguments known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._dynamo.utils import counters
from torch._guards import TracingContext, tracing
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import litz
import litz.cache.key
import litz.host.runtime.externs
from litz.cache.key import graph_key
from litz.cache.triton_kernels import is_launch, launch_digest
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


def launch(x: Tensor, out: Tensor, kernel: object = add_kernel) -> Tensor:
    """Return the graph with the kernel as Dynamo and AOTAutograd write it."""
    found = triton_kernel_wrapper_functional(
        kernel_idx=kernel_side_table.add_kernel(kernel),
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


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's own types
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * 2, i < n)


heuristic_kernel = triton.heuristics({"BLOCK": lambda given: 16})(add_kernel)


def fill_the_table() -> None:
    """Give kernels that are added from now on other indices than in another process."""
    kernel_side_table.reset_table()
    kernel_side_table.add_kernel(double_kernel)
    kernel_side_table.add_constant_args({})


def captured(kernel: object, example: Tensor, *, in_place: bool = False, **constants: object) -> GraphModule:
    """Return a graph that launches a kernel, as Dynamo captures it."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = example
    y = graph.call_function(operator.mul, (x, 2))
    out = x if in_place else graph.call_function(torch.empty_like, (y,))
    indices = {
        "kernel_idx": kernel_side_table.add_kernel(kernel),
        "constant_args_idx": kernel_side_table.add_constant_args(constants),
    }
    given = {**indices, "grid": [(1, 1, 1)], "tma_descriptor_metadata": {}}
    graph.call_function(triton_kernel_wrapper_mutation, (), {**given, "kwargs": {"x_ptr": y, "out_ptr": out}})
    graph.output((graph.call_function(operator.mul, (out, 3)),))
    return GraphModule({}, graph)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Names of the kernels that were launched; the CPU computes what the two of this module do."""
    names: list[str] = []

    def launch_on_the_cpu(
        kernel: int, constants: int, grid: object, /, x_ptr: Tensor, out_ptr: Tensor
    ) -> None:
        found = kernel_side_table.get_kernel(kernel)
        assert kernel_side_table.get_constant_args(constants)["BLOCK"] == 16
        names.append(found.__name__)
        out_ptr.copy_(x_ptr + 1 if found is add_kernel else x_ptr * 2)

    monkeypatch.setitem(litz.host.runtime.externs._OWN, "triton_kernel", launch_on_the_cpu)
    with litz.config.patch(cache_dir=str(tmp_path), fallback="error"), torch.no_grad():
        yield names
    kernel_side_table.reset_table()


def called(kernel: object, x: Tensor, *, in_place: bool = False, **constants: object) -> Tensor:
    """Compile a graph with a kernel as Dynamo does, and return its result."""
    mode = FakeTensorMode()
    gm = captured(kernel, mode.from_tensor(x), in_place=in_place, **constants)
    with tracing(TracingContext(mode)):
        compiled = litz.compile_fx(gm, [x])
    (result,) = compiled(x)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize("in_place", [False, True])
def test_a_graph_with_kernels_is_found_without_tracing_it(launched: list[str], in_place: bool) -> None:
    x = torch.randn(12)
    given, wanted = x.clone(), (x * 2 + 1) * 3
    for number in range(2):
        fill_the_table() if number else kernel_side_table.reset_table()
        counters.clear()
        given.copy_(x)
        version = given._version
        torch.testing.assert_close(called(add_kernel, given, in_place=in_place, n=12, BLOCK=16), wanted)
        torch.testing.assert_close(given, x * 2 + 1 if in_place else x)
        assert (given._version > version) == in_place
        assert counters["aot_autograd"]["total"] == 1 - number and counters["litz"]["cache_hits"] == number
    assert launched == ["add_kernel"] * 2


def test_kernels_and_constants_are_found_by_content(launched: list[str]) -> None:
    x = torch.randn(12)
    torch.testing.assert_close(called(add_kernel, x, n=12, BLOCK=16), (x * 2 + 1) * 3)
    counters.clear()
    torch.testing.assert_close(called(double_kernel, x, n=12, BLOCK=16), x * 12)
    called(add_kernel, x, n=11, BLOCK=16)
    assert counters["aot_autograd"]["total"] == 2 and counters["litz"]["cache_hits"] == 0
    assert launched == ["add_kernel", "double_kernel", "add_kernel"]


def test_tuned_kernels_have_their_configs_in_the_digest() -> None:
    def digest(block: int, **hooks: object) -> str | None:
        kernel_side_table.reset_table()
        configs = [triton.Config({"BLOCK": block}, num_warps=4, **hooks)]
        kernel = triton.autotune(configs=configs, key=["n"])(add_kernel)
        gm = captured(kernel, torch.ones(12), n=12)
        return next(launch_digest(node) for node in gm.graph.nodes if is_launch(node))

    assert digest(16) == digest(16) != digest(32) and digest(16) is not None
    assert digest(16, pre_hook=lambda given: None) is None


def test_a_kernel_without_identity_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> list[str]:
        programs = (
            lambda x: x * 2,
            into_new_memory,
            lambda x: launch(x, torch.empty_like(x), heuristic_kernel),
        )
        return [graph_key(traced(each), Config(), ()) for each in programs]

    before = keys()
    fill_the_table()
    monkeypatch.setattr(litz.cache.key, "_PROCESS", "another")
    after = keys()
    assert before[:2] == after[:2] and len({*before, *after}) == 4
