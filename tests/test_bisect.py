"""Bisection names the transformation that makes a program fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from injected_faults import FAULTS, example, program, short, wrong_graph_pass, wrong_kernel
from torch import nn

import litz
from litz.artifact import Artifact
from litz.debugging.comparison import Program
from litz.debugging.probe import Experiment, ProbedGraph, Prober
from litz.passes import Passes
from litz_ir.errors import NothingFails
from litz_ir.loops import LoopGraph, map_bodies
from litz_ir.passes import FUEL_KINDS, PassContext
from litz_ir.scalar import Op, Scalar, build, transform
from litz_scheduler.realise import Inline

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

EXPECTED = {
    "wrong_fx_pass": ("fx-pass", "fx.remove_no_ops", "relu"),
    "wrong_graph_pass": ("graph-pass", "unit-reductions", "sigmoid"),
    "wrong_fusion": ("fusion", "exp + group of", "exp"),
    "wrong_memory": ("memory", "sum_2", "sum_2"),
    "wrong_kernel": ("kernel", "tanh", "tanh"),
}
"""Stage of each fault, part of its name, and the start of the name of an operation at fault."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bisect")


@pytest.fixture(autouse=True)
def folder(kept: Path) -> Iterator[Path]:
    """The cache folder: bisection finds binaries there, but no graphs."""
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(kept), verify=False, fallback="warn"):
        yield kept


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch.setattr)
    # Where the CPU's tanh rounds otherwise than eager's, the exponential makes more of it than the default allows.
    found = litz.bisect(short, example(), rtol=1e-4, atol=1e-4)
    stage, name, operation = EXPECTED[fault]
    assert found.stage == stage and name in found.name, found
    assert any(each.startswith(operation) for each in found.operations) and found.graph == "inference 0"
    assert any("injected_faults.py" in line and operation in line for line in found.lines), found
    assert "not close" in found.failure and found.failure.splitlines()[0] in str(found)


def test_a_pass_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: Inline, data: LoopGraph, context: PassContext) -> LoopGraph:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Inline, "apply", apply)
    found = litz.bisect(lambda x: (x.sin() + 1).sum(), (torch.ones(4),))
    assert (found.stage, found.name) == ("graph-pass", "inline")
    assert "a defect" in found.failure


@dataclass(frozen=True)
class OfTheProgram:
    """A pass of the program over AOT graphs that replaces one operator by another."""

    name: str
    old: Any
    new: Any

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=self.old):
            node.target = self.new

    def uuid(self) -> str:
        return self.name


@dataclass(frozen=True)
class OverLoops:
    """A pass of the program over loop graphs that makes every maximum a minimum."""

    name: str = "minima"
    ulp: int = 0
    before: str = "inline"

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        def other(node: Scalar) -> Scalar:
            return (
                build.op("minimum", *node.args) if isinstance(node, Op) and node.name == "maximum" else node
            )

        return data.with_operations(
            tuple(map_bodies(each, lambda body: transform(body, other)) for each in data.operations)
        )

    def uuid(self) -> str:
        return self.name


@pytest.mark.parametrize("stage", ["joint_before", "post_grad_after", "loops"])
def test_a_pass_of_the_program_is_named(stage: str) -> None:
    aten = torch.ops.aten
    harmless = OfTheProgram("harmless", aten.tan.default, aten.sin.default)
    wrong = OfTheProgram("wrong", aten.sin.default, aten.cos.default)
    passes = Passes(post_grad_before=(harmless,)) + (
        Passes(loops=(OverLoops(),)) if stage == "loops" else Passes(**{stage: (wrong,)})
    )
    x = torch.linspace(-1, 1, 8)
    with litz.config.patch(passes=passes):
        found = litz.bisect(lambda x: torch.sin(torch.maximum(x, -x)) + 1, (x,))
    assert found.stage == "user-pass"
    assert found.name == f"{'minima' if stage == 'loops' else 'wrong'} of the stage {stage}"
    assert "which the program or an installed package adds" in str(found)


def test_the_backward_is_searched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_graph_pass(monkeypatch.setattr)
    module = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2)).requires_grad_()
    found = litz.bisect(module, (torch.ones(2, 4),), backward=True)
    assert (found.stage, found.name) == ("graph-pass", "unit-reductions")
    assert found.graph in ("forward 0", "backward 1")


def test_a_check_judges_instead_of_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_kernel(monkeypatch.setattr)
    x = torch.ones(3)

    def right(compiled: Callable[..., torch.Tensor]) -> bool:
        return bool(compiled(x)[0] < 0.8)

    found = litz.bisect(lambda x: torch.tanh(x), check=right)
    assert found.stage == "kernel" and found.operations == ("tanh",)


def test_a_program_that_works_is_refused() -> None:
    with pytest.raises(NothingFails, match="works"):
        litz.bisect(lambda x: x + 1, (torch.ones(3),))


def test_random_numbers_and_mutated_arguments_are_the_same_in_each_run() -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        return x.add_(torch.rand(3))

    x = torch.ones(3)
    with pytest.raises(NothingFails):
        litz.bisect(draws, (x,))
    assert torch.equal(x, torch.ones(3))


def probed(experiment: Experiment) -> ProbedGraph:
    """The graph of the program, compiled in an experiment."""
    judge = Prober(
        Program(program, example()), litz.config.current(), lambda run: run(*example()) is not None
    )
    return judge.run(experiment).graphs[0]


def artifact(graph: ProbedGraph) -> Artifact:
    assert graph.compiled is not None and graph.compiled.artifact is not None
    return graph.compiled.artifact


def test_fuel_counts_and_limits_each_kind() -> None:
    whole = probed(Experiment())
    assert sum(node.op == "call_function" for node in whole.gm.graph.nodes) > 30
    assert {kind for kind in FUEL_KINDS if whole.fuel.spent[kind]} == set(FUEL_KINDS)
    none = probed(Experiment(1, dict.fromkeys(FUEL_KINDS, 0)))
    assert not any(none.fuel.spent.values())
    two = probed(Experiment(1, {"fusion": 2}))
    assert two.fuel.spent["fusion"] == whole.fuel.spent["fusion"][:2]
    kernels = [len(artifact(each).plan.kernels) for each in (whole, two, none)]
    assert kernels[0] < kernels[1] < kernels[2]


def test_a_limited_graph_is_not_cached(folder: Path) -> None:
    before = sorted((folder / "graphs").glob("*"))
    found = probed(Experiment(1, {"fusion": 0}))
    assert artifact(found).uncacheable
    assert sorted((folder / "graphs").glob("*")) == before
