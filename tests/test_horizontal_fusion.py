"""Horizontal fusion for lists of tensors of many shapes, compiled for a GPU without one: few launches, with eager's
results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.adamw import adamw as step_all

import litz.pipeline
from litz.artifact import Artifact, TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.explain.explanation import Explanation
from litz.explain.graphs import graph_report
from litz.host.emit.source import host_program
from litz.loading import Compiled, loader_of
from litz.settings import Config
from litz.targets import TargetSet
from litz.tuning.applied import applied
from litz.tuning.launches import planned_launches
from litz.tuning.tunable_kernels import tunable_kernels
from litz_codegen_triton.target import CudaTarget
from litz_ir.errors import CompileFailed
from litz_ir.host import Executor
from litz_ir.plan import Launch, Plan, invocations_of, schedules_of
from litz_ir.target import SourceUnit
from litz_ir.verifier import verify

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
from lowering_check import to_array, to_tensor

Program = Callable[..., Sequence[Tensor]]
SHAPES = ((96, 64), (64,), (64, 192), (192,), (64, 64), (64,), (50, 64), (7,), (64, 256), (256,), (1, 3), ())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Compile a program of GPU tensors, with kernels for sm_90."""

    def load(artifact: Artifact, *_: Any, **__: Any) -> Compiled:
        return Compiled(lambda args: (), artifact)

    def compile_(program: Program, *given: Tensor, **options: Any) -> Compiled:
        with FakeTensorMode():
            fakes = [torch.empty(each.shape, dtype=each.dtype, device="cuda") for each in given]
            gm = make_fx(functionalize(program))(*fakes)
        for node in gm.graph.nodes:
            node.meta["stack_trace"] = 'File "user.py", line 7, in step\n    program(*lists)'
        config = Config(cache=False, fallback="error").replaced(options)
        return Compilation(gm, "lists", config, ArtifactCache.open(config)).run()

    monkeypatch.setattr(litz.pipeline, "load_tuned", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    return compile_


@pytest.fixture
def planned(compiled: Callable[..., Compiled]) -> Callable[..., Plan]:
    """Return the plan of a program."""

    def plan(program: Program, *given: Tensor) -> Plan:
        found = compiled(program, *given).artifact
        assert found is not None
        verify(found.plan)
        return found.plan

    return plan


def loops(plan: Plan) -> list[int]:
    """Return the number of loops of each launch."""
    launched = (step.kernel for step in plan.steps if isinstance(step, Launch))
    return [len(invocations_of(plan.kernel(name))) or 1 for name in launched]


def assert_as_eager(plan: Plan, program: Program, given: Sequence[Tensor]) -> None:
    expected = program(*[each.clone() for each in given])
    found = Executor(plan).run([to_array(each) for each in given])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(to_tensor(np.array(mine)), theirs, rtol=2e-5, atol=1e-6)


def lists(count: int, seed: int = 0) -> list[Tensor]:
    """Return lists of tensors of many shapes, one after another."""
    torch.manual_seed(seed)
    return [torch.rand(shape) + 0.1 for _ in range(count) for shape in SHAPES]


def divided(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    return [list(tensors[k : k + len(SHAPES)]) for k in range(0, len(tensors), len(SHAPES))]


def adamw(*tensors: Tensor) -> Sequence[Tensor]:
    parameters, gradients, means, squares, steps = (list(each) for each in divided(tensors))
    steps = [step.sum() for step in steps]
    on_gpu = parameters[0].is_cuda  # where the steps may be too
    step_all(
        parameters, gradients, means, squares, [], steps, foreach=True, capturable=on_gpu, amsgrad=False,
        beta1=0.9, beta2=0.99, lr=1e-3, weight_decay=0.01, eps=1e-8, maximize=False,
    )  # fmt: skip
    return [*parameters, *means, *squares]


def clipped(*gradients: Tensor) -> Sequence[Tensor]:
    """Return gradients scaled so that their norm is 1."""
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))))
    return torch._foreach_mul(list(gradients), 1.0 / total)


def casts(*weights: Tensor) -> Sequence[Tensor]:
    return [weight.to(torch.bfloat16).float() for weight in weights]


@pytest.mark.parametrize(
    ("program", "count", "most"),
    [(adamw, 5, 4), (clipped, 1, 6), (casts, 1, 1)],
    ids=["adamw", "clipped", "casts"],
)
def test_lists_of_many_shapes_are_few_launches(
    program: Program, count: int, most: int, planned: Callable[..., Plan]
) -> None:
    given = lists(count)
    plan = planned(program, *given)
    assert_as_eager(plan, program, given)
    found = loops(plan)
    assert len(found) <= most and sum(found) >= len(SHAPES)


def test_fused_kernels_that_move_much_in_one_launch_are_tuned(
    compiled: Callable[..., Compiled], planned: Callable[..., Plan]
) -> None:
    target, given = CudaTarget("sm_90"), lists(1)
    plan = planned(casts, *given)
    (site,) = planned_launches(plan)
    assert site.nbytes == 2 * 4 * sum(each.numel() for each in given)
    assert tunable_kernels(plan, target) == (), "it takes as long to launch it"
    sizes = [(1 << 20) + 16 * k for k in range(4)]
    large = compiled(casts, *map(torch.empty, sizes)).artifact
    assert large is not None and loops(large.plan) == [4]
    (subject,) = tunable_kernels(large.plan, target)
    assert subject.kernel.subkernels and subject.seconds == pytest.approx(
        target.seconds(2 * 4 * sum(sizes), 0, 0)
    )
    other = target.candidates(subject.kernel)[1]
    choice = TunedTiles(schedules_of(other), 1.0, 2.0, schedules_of(subject.kernel))
    made = applied(large, {subject.kernel.name: choice}, target, ArtifactCache(None, None))
    verify(made.plan)
    assert made.plan.kernel(subject.kernel.name) == other
    assert made.units != large.units and host_program(made.plan) == host_program(large.plan)
    loader = loader_of(made, "lists", TargetSet({"cuda": target}), Config())
    said = graph_report(Compiled(lambda args: (), made, loader=loader)).kernels[0]
    assert said.tiles == target.described(other) != target.described(subject.kernel)
    assert said.tuned == f"was {target.described(subject.kernel)}, 2.00 times as long"


def several(x: Tensor, y: Tensor, z: Tensor) -> Sequence[Tensor]:
    """A program with three kinds of loops, one of them twice."""
    return [x.exp(), y.sin(), z.exp(), y.sum(0)]


SEVERAL = (torch.rand(40), torch.rand(6, 5), torch.rand(24))


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str], bool]) -> None:
    """Let sources fail to build where ``refused`` is true of them."""
    build = CudaTarget.build

    def building(self: CudaTarget, unit: SourceUnit, folder: Path) -> Path:
        if refused(unit.text):
            raise CompileFailed("refused by the test")
        return build(self, unit, folder)

    monkeypatch.setattr(CudaTarget, "build", building)


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        (lambda text: "tl.sin" in text, {"aten.sin.default"}),
        (lambda text: "tl.exp" in text, {"aten.exp.default"}),
        (
            lambda text: "tl.exp" in text and "tl.sin" in text,
            {"aten.exp.default", "aten.sin.default", "aten.sum.dim_IntList"},
        ),
    ],
    ids=["one loop", "loops that are alike", "none of them alone"],
)
def test_failures_in_a_fused_kernel_fall_back_to_aten(
    refused: Callable[[str], bool],
    left: set[str],
    compiled: Callable[..., Compiled],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse(monkeypatch, refused)
    found = compiled(several, *SEVERAL, fallback="silent").artifact
    assert found is not None
    assert {each.target for each in found.fallbacks} == left


def test_a_fused_kernel_is_explained_by_kinds_of_loops(compiled: Callable[..., Compiled]) -> None:
    (report,) = graph_report(compiled(several, *SEVERAL)).kernels
    assert [part.invocations for part in report.subkernels] == [2, 1, 1]
    assert report.subkernels[1].lines == ("sin (aten.sin.default) at user.py:7: program(*lists)",)
    many = graph_report(compiled(casts, *lists(1)))
    (report,) = many.kernels
    assert sum(part.invocations for part in report.subkernels) == len(SHAPES)
    (part, *_) = report.subkernels
    assert len(part.operations) == 2 * part.invocations > 6 and len(part.lines) == 1, (
        "from one line of the user's"
    )
    text = str(Explanation((many,)))
    assert f"12 loops in one launch, of {len(report.subkernels)} kinds" in text
    assert f"and {2 * part.invocations - 3}" in text
    # The source says so too, at the function of each kind.
    comments = "".join(f"    # {line}\n" for line in (f"{part.invocations} loops", *part.lines))
    assert comments in many.units[0]
