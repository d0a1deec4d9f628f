"""Convolutions that apply a batch norm, a residual and ReLU, computed by the reference interpreter and torch."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from litz.host.runtime.externs import resolve
from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_ir.device import Device
from litz_ir.interp import run_graph
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.target import Capabilities
from litz_ir.verifier import verify
from litz_lowering import correct_metadata, decompositions, lower
from litz_scheduler import SchedulerOptions
from litz_scheduler.pipeline import graph_passes

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
from lowering_check import to_array, to_tensor

GPU = Capabilities("sm_90", Device("cuda"), chip_model("sm_90"), atomics=SUPPORTED, nested_reductions=True)
BF16 = torch.bfloat16


def norm(x: torch.Tensor, p: list[torch.Tensor]) -> torch.Tensor:
    return F.batch_norm(x, p[0], p[1], p[2], p[3])


def plain(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> torch.Tensor:
    return torch.relu(norm(F.conv2d(x, w[0].to(BF16), padding=1), n[0]))


def residual(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> torch.Tensor:
    y = torch.relu(norm(F.conv2d(x, w[0].to(BF16), padding=1), n[0]))
    return torch.relu(norm(F.conv2d(y, w[1].to(BF16), padding=1), n[1]) + y)


def projected(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> torch.Tensor:
    y = norm(F.conv2d(x, w[0].to(BF16), padding=1), n[0])
    return torch.relu(y + norm(F.conv2d(x, w[1].to(BF16), padding=1), n[1]))


def biased(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> torch.Tensor:
    return torch.relu(F.conv2d(x, w[0].to(BF16), n[0][2].to(BF16), padding=1))


def saved(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
    y = F.conv2d(x, w[0].to(BF16), padding=1)
    return torch.relu(norm(y, n[0])), y * 2


def smooth(x: torch.Tensor, w: list[torch.Tensor], n: list[list[torch.Tensor]]) -> torch.Tensor:
    return F.silu(norm(F.conv2d(x, w[0].to(BF16), padding=1), n[0]))


def _arguments() -> tuple[Any, ...]:
    torch.manual_seed(0)
    x = torch.randn(2, 16, 6, 6).to(BF16).to(memory_format=torch.channels_last)
    weights = [torch.randn(16, 16, 3, 3) * 0.1 for _ in range(2)] + [torch.randn(16, 16, 1, 1) * 0.1]
    norms = [[torch.randn(16), torch.rand(16) + 0.5, torch.randn(16), torch.randn(16)] for _ in range(2)]
    return x, weights, norms


def _pooled(program: Callable[..., Any], arguments: Any) -> list[torch.Tensor]:
    """Results of a program that another convolution reads, so that loops store them in any layout."""
    found, last = program(*arguments), arguments[1][2].to(BF16)
    return [F.conv2d(each, last).amax((2, 3)) for each in (found if isinstance(found, tuple) else (found,))]


def _rewritten(program: Callable[..., Any], *, fused: bool) -> LoopGraph:
    """The graph of a program on a GPU after layouts are chosen."""
    leaves, form = tree_flatten(_arguments())
    with FakeTensorMode(), torch.no_grad():
        on_gpu = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in leaves]
        gm = make_fx(
            lambda *flat: _pooled(program, tree_unflatten(flat, form)), decomposition_table=decompositions()
        )(*on_gpu)
    correct_metadata(gm)
    graph = lower(gm, name="g").graph
    for each in graph_passes(SchedulerOptions(convolution_relu=fused)):
        graph = each.apply(graph, PassContext({GPU.device: GPU}))
        if each.name == "fuse-convolution-relu":
            return graph
    raise AssertionError("the pass is not in the list")


def _calls(graph: LoopGraph) -> list[str]:
    return [str(getattr(each, "target", "")) for each in graph.operations if hasattr(each, "target")]


class Routines(Mapping[str, Callable[..., Any]]):
    """The host's routines over arrays of the interpreter; collects what their fallbacks report."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def __getitem__(self, name: str) -> Callable[..., Any]:
        routine = resolve(name, report=lambda error, instead: self.reports.append(instead))
        return lambda *args, **kwargs: to_array(routine(*map(to_tensor, args), **kwargs))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (plain, ["convolution_relu"]),
        (residual, ["convolution_relu", "convolution_relu"]),
        (projected, ["aten.convolution.default", "convolution_relu"]),
        (biased, ["convolution_relu"]),
        (saved, ["aten.convolution.default"]),
        (smooth, ["aten.convolution.default"]),
    ],
)
def test_the_routine_computes_the_loop(program: Callable[..., Any], expected: list[str]) -> None:
    graph = _rewritten(program, fused=True)
    verify(graph)
    assert _calls(graph) == [*expected, *["aten.convolution.default"] * len(graph.outputs)]
    assert "convolution_relu" not in _calls(_rewritten(program, fused=False))
    arguments, routines = _arguments(), Routines()
    found = run_graph(graph, [to_array(each) for each in tree_leaves(arguments)], {}, routines)
    for one, other in zip(found, _pooled(program, arguments), strict=True):
        torch.testing.assert_close(to_tensor(one), other, rtol=2e-2, atol=5e-2)
    assert len(routines.reports) == expected.count("convolution_relu"), "without cuDNN ATen's operators run"
