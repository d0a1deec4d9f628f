"""Passes of users over loop graphs and plans, given as an option or by an installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import litz
from litz.passes import Passes
from litz_ir.errors import ConfigError, UserPassError
from litz_ir.loops import LoopGraph, Ref, map_bodies
from litz_ir.passes import PassContext
from litz_ir.plan import CpuLoops, Plan
from litz_ir.scalar import Expr, Op, build, transform

pytestmark = pytest.mark.sampled  # it compiles whole programs


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "kept"), fallback="error"):
        yield


def program(x: Tensor) -> Tensor:
    return torch.sin(x) * 2 + 1


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-2.0, 2.0, torch.Size(shape).numel()).reshape(shape)


def to_cos(node: Expr) -> Expr:
    return build.op("cos", *node.args) if isinstance(node, Op) and node.name == "sin" else node


@dataclass(frozen=True)
class SinToCos:
    """A pass over loop graphs that changes a function."""

    identifier: object = "sin to cos"
    before: str = ""
    name: str = "sin-to-cos"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        changed = (map_bodies(each, lambda body: transform(body, to_cos)) for each in data.operations)
        return data.with_operations(tuple(changed))

    def uuid(self) -> object:
        return self.identifier


@dataclass(frozen=True)
class OneThread:
    """A pass over plans that takes threads away from kernels."""

    name: str = "one-thread"
    ulp: int = 0

    def apply(self, data: Plan, context: PassContext) -> Plan:
        kernels = tuple(
            replace(each, schedule=replace(each.schedule, parallel=()))
            if isinstance(each.schedule, CpuLoops)
            else each
            for each in data.kernels
        )
        return replace(data, kernels=kernels)

    def uuid(self) -> object:
        return "1"


@dataclass(frozen=True)
class Wrong:
    """A pass that is wrong in one of three ways."""

    how: str
    name: str = "wrong"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> Any:
        if self.how == "raises":
            raise ZeroDivisionError("by nothing")
        return None if self.how == "returns" else replace(data, outputs=(Ref("gone"),))

    def uuid(self) -> object:
        return self.how


@pytest.mark.parametrize("before", ["", "inline", "device-support"])
def test_a_pass_over_loop_graphs(before: str) -> None:
    with litz.config.patch(passes=Passes(loops=(SinToCos(before=before),))):
        found = torch.compile(program, backend="litz")(numbers(8))
        reports = [litz.explain(program, numbers(8)) for _ in range(2)]
    torch.testing.assert_close(found, torch.cos(numbers(8)) * 2 + 1)
    assert reports[1].graphs[0].cached
    for report in reports:
        assert [(each.stage, each.subject, each.verdict) for each in report.passes] == [
            ("passes.loops", "sin-to-cos", "changed")
        ]
        assert "pass of loops: changed sin-to-cos" in str(report)


def test_functions_of_higher_order_operators_have_loop_graphs_too() -> None:
    def branched(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: x - 1, (x,))

    with litz.config.patch(passes=Passes(loops=(SinToCos(),))):
        found = torch.compile(branched, backend="litz")(numbers(8) + 2)
    torch.testing.assert_close(found, torch.cos(numbers(8) + 2))


def test_a_pass_over_plans() -> None:
    x = numbers(300, 400)
    before = litz.explain(program, x)
    with litz.config.patch(passes=Passes(plan=(OneThread(),))):
        report = litz.explain(program, x)
        torch.testing.assert_close(torch.compile(program, backend="litz")(x), program(x))
    parallel = [
        [
            each.kernel.schedule.parallel
            for each in found.kernels
            if isinstance(each.kernel.schedule, CpuLoops)
        ]
        for found in (before, report)
    ]
    assert any(parallel[0]) and parallel[1] == [()] * len(parallel[0])
    assert [(each.stage, each.verdict) for each in report.passes] == [("passes.plan", "changed")]


def test_identifiers_and_names_in_keys_and_switches() -> None:
    def cached(*items: SinToCos, **options: Any) -> bool:
        with litz.config.patch(passes=Passes(loops=items), **options):
            return litz.explain(program, numbers(8)).graphs[0].cached

    assert [cached(SinToCos(1)), cached(SinToCos(1)), cached(SinToCos(2))] == [False, True, False]
    assert not cached(SinToCos(1, before="inline")), "the place of a pass is part of the key"
    assert [cached(), cached(SinToCos(1), disable_passes="sin-to-cos")] == [False, True]
    with litz.config.patch(passes=Passes(loops=(SinToCos(None),))):
        assert "uuid() of the pass sin-to-cos" in litz.explain(program, numbers(8)).graphs[0].uncacheable


SAID = {
    "raises": "the pass wrong of the stage loops failed: ZeroDivisionError: by nothing",
    "returns": "the pass wrong of the stage loops failed: TypeError: it returned a NoneType for a LoopGraph",
    "unverified": r"the pass wrong of the stage loops failed: \[",
}


@pytest.mark.parametrize("how", SAID)
@pytest.mark.parametrize("fallback", ["warn", "error"])
def test_an_error_of_a_pass_names_it_and_is_always_raised(how: str, fallback: str) -> None:
    with (
        litz.config.patch(passes=Passes(loops=(Wrong(how),)), fallback=fallback),
        pytest.raises(Exception, match=SAID[how]) as caught,
    ):
        torch.compile(program, backend="litz")(numbers(8))
    assert isinstance(
        caught.value.__cause__ or caught.value, UserPassError | torch._dynamo.exc.BackendCompilerFailed
    )


def test_names_that_clash_or_are_unknown_are_refused() -> None:
    cases: dict[str, Callable[[], Passes]] = {
        "two passes are called 'sin-to-cos'": lambda: Passes(loops=(SinToCos(), SinToCos())),
        "two passes are called 'inline'": lambda: Passes(loops=(replace(SinToCos(), name="inline"),)),
        "no pass is called 'inlin'": lambda: Passes(loops=(SinToCos(before="inlin"),)),
    }
    for said, passes in cases.items():
        with (
            litz.config.patch(passes=passes(), fallback="warn"),
            pytest.raises(Exception, match=said) as caught,
        ):
            torch.compile(program, backend="litz")(numbers(8))
        assert isinstance(caught.value, ConfigError | torch._dynamo.exc.BackendCompilerFailed)


# --- installed packages -------------------------------------------------------------------------------------

VENDOR = """
import torch
from litz_ir.loops import map_bodies
from litz_ir.scalar import Op, build, transform

class Vendors:
    stage, name, ulp = "loops", "vendors", 0

    def apply(self, data, context):
        def change(node):
            return build.op("cos", *node.args) if isinstance(node, Op) and node.name == "sin" else node

        bodies = (map_bodies(each, lambda body: transform(body, change)) for each in data.operations)
        return data.with_operations(tuple(bodies))

    def uuid(self):
        return "IDENTIFIER"

class OverGraphs:
    stage, name = "post_grad_after", "over-graphs"

    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            node.target = torch.ops.aten.tanh.default

    def uuid(self):
        return "IDENTIFIER"

over_graphs = OverGraphs()
"""

PROGRAM = """
import json, torch, litz

def program(x):
    return torch.sin(x) + torch.exp(x)

report = litz.explain(program, torch.zeros(8))
value = torch.compile(program, backend="litz")(torch.zeros(8))[0].item()
passes = [f"{each.stage} {each.verdict} {each.subject}" for each in report.passes]
print(json.dumps({"value": value, "passes": passes, "cached": report.graphs[0].cached}))
"""


def run(folder: Path, entries: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process in which the package of a vendor is installed."""
    metadata = folder / "vendor-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entries)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "LITZ_CACHE_DIR": str(folder / "cache"), **variables}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)


def test_passes_of_installed_packages(tmp_path: Path) -> None:
    entries = "[litz.passes]\nloops = vendor:Vendors\ngraphs = vendor:over_graphs\n"

    def found(identifier: str, **variables: str) -> dict[str, Any]:
        (tmp_path / "vendor.py").write_text(VENDOR.replace("IDENTIFIER", identifier))
        done = run(tmp_path, entries, **variables)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report

    both = ["passes.post_grad_after changed over-graphs", "passes.loops changed vendors"]
    assert found("1") == {"value": 1.0, "passes": both, "cached": False}
    assert found("1") == {"value": 1.0, "passes": both, "cached": True}
    assert not found("2")["cached"]
    without = found("2", LITZ_DISABLE_PASSES="vendors,over-graphs")
    assert without == {"value": 1.0, "passes": [], "cached": False}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("vendor:nothing", "the pass own of vendor cannot be loaded: AttributeError"),
        ("vendor:VENDOR", "has the stage None"),
    ],
)
def test_a_package_that_offers_no_pass_is_named(entry: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.py").write_text("VENDOR = 3\n")
    done = run(tmp_path, f"[litz.passes]\nown = {entry}\n")
    assert done.returncode == 1 and said in done.stderr


def test_bisection_names_a_pass_of_the_program() -> None:
    with litz.config.patch(passes=Passes(loops=(SinToCos(),))):
        found = litz.bisect(program, (numbers(8),))
    assert found.stage == "user-pass" and "stage loops" in found.name


def test_the_self_check_finds_what_a_pass_makes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with litz.config.patch(passes=Passes(loops=(SinToCos(),)), self_check="first", fallback="warn"):
        compiled = torch.compile(program, backend="litz")
        found = [compiled(numbers(8)) for _ in range(2)]
    for each in found:
        torch.testing.assert_close(each, program(numbers(8)))
    assert any("sin" in record.message and "run as ATen" in record.message for record in caplog.records)
