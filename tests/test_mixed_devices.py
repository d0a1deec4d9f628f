"""Graphs of a GPU and the CPU, compiled where there is no GPU: one plan, whose meaning is eager's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import litz.pipeline
from litz.artifact import Artifact
from litz.cache.artifacts import ArtifactCache
from litz.host.source import host_program
from litz.pipeline import Compilation, Compiled
from litz.settings import Config
from litz_codegen_triton.target import CudaTarget
from litz_ir.device import Device
from litz_ir.errors import UnsupportedOperation
from litz_ir.host.executor import Executor
from litz_ir.plan.program import CallStep, Define, Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
from lowering_check import AtenTable, to_array, to_tensor

HERE = Device("cpu")


def traced(
    program: Callable[..., object], x: Tensor, beside: tuple[Tensor, ...], ordinal: int = 0
) -> GraphModule:
    """The graph of a program whose first argument is on a GPU, the others on the CPU."""
    shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
    with FakeTensorMode(shape_env=shapes, static_shapes=True) as mode:
        there = torch.empty(x.shape, dtype=x.dtype, device=f"cuda:{ordinal}")
        return make_fx(program)(there, *(mode.from_tensor(each) for each in beside))


def compiled(gm: GraphModule, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """What a graph is compiled to, its kernels for sm_90, before anything is loaded."""
    config = Config(cache=False, fallback="error")

    def load(artifact: Artifact, *_: Any, **__: Any) -> Compiled:
        return Compiled(lambda args: (), artifact)

    monkeypatch.setattr(litz.pipeline, "load", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    found = Compilation(gm, "mixed", config, ArtifactCache.open(config)).run().artifact
    assert found is not None
    return found


class OnTheCpu(Mapping[str, Callable[..., Any]]):
    """ATen on arrays, whatever device it is to work on."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        call = AtenTable()[name]
        return lambda *args, **kwargs: call(*map(_here, args), **{k: _here(v) for k, v in kwargs.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _here(argument: Any) -> Any:
    return HERE if isinstance(argument, Device) else argument


def run(plan: Plan, *given: Tensor) -> list[Tensor]:
    """The plan's results by the reference interpreter."""
    found = Executor(plan, externs=OnTheCpu()).run([to_array(each) for each in given])
    return [to_tensor(each) for each in found]


def adam(p: Tensor, step: Tensor, rate: Tensor) -> tuple[Tensor, ...]:
    step = step + 1
    return p - (rate / (1 - torch.pow(0.9, step))) * p.sign() / (p.abs().sqrt() + 1e-8), step


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], tuple[str, ...]]] = {
    "a number by value": (lambda x, s: x * s + 1, (torch.tensor(0.3),), ()),
    "two of them, one in bf16": (
        lambda x, s, t: (x - s) / t, (torch.tensor(0.3, dtype=torch.float64), torch.tensor(1.5).bfloat16()), ()
    ),
    "a number in a row's sum": (lambda x, s: (x * s).sum(-1), (torch.tensor(0.3),), ()),
    "arithmetic beside": (
        adam, (torch.tensor(3.0), torch.tensor(0.01)),
        ("aten.add.Tensor", "aten.pow.Scalar", "aten.rsub.Scalar", "aten.div.Tensor"),
    ),
    "a copy from beside": (lambda x, c: x + c.to(x.device), (torch.randn(6),), ("aten._to_copy.default",)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_plan_computes_what_eager_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, beside, calls = PROGRAMS[name]
    x = torch.randn(4, 6)
    made = compiled(traced(program, x, beside), monkeypatch)
    assert made.plan.device.kind == "cuda"
    assert len(made.binaries) == len(made.units) == len(made.plan.kernels) == 1, (
        "what is on the GPU is one kernel"
    )
    assert tuple(step.target for step in made.plan.steps if isinstance(step, CallStep)) == calls
    wanted = program(x, *beside)
    torch.testing.assert_close(
        run(made.plan, x, *beside), list(wanted) if isinstance(wanted, tuple) else [wanted]
    )


def test_a_number_is_read_once_and_passed_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    program, beside, _ = PROGRAMS["a number by value"]
    made = compiled(traced(program, torch.randn(4, 6), beside), monkeypatch)
    assert sum(isinstance(step, Define) for step in made.plan.steps) == 1
    (kernel,) = made.plan.kernels
    assert [info.kind for info in kernel.symbols] == ["float"]
    assert re.search(r"= float\(\w+\.item\(\)\)", host_program(made.plan).text)


def test_which_gpu_it_is_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        return x * n + torch.arange(6, device=x.device)

    given = torch.randn(4, 6), (torch.tensor(3),)
    first, second = (compiled(traced(program, *given, ordinal=k), monkeypatch) for k in (0, 1))
    assert first.key == second.key and first.plan == second.plan and first.units == second.units
    assert "torch.device('cuda')" in host_program(first.plan).text, "the current one"


def test_several_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        x, y = torch.empty(4, device="cuda:0"), torch.empty(4, device="cuda:1")
        gm = make_fx(lambda x, y: (x + 1, y + 1))(x, y)
    with pytest.raises(UnsupportedOperation, match="cuda:0 and cuda:1 in one graph"):
        compiled(gm, monkeypatch)
