"""Minimisation finds the few operations that a fault breaks, and writes a repro that runs alone."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from injected_faults import FAULTS, OTHERS, example, program, short
from torch.fx import GraphModule, symbolic_trace

import litz
from litz.debugging.replay import propagate
from litz.debugging.shrink import operations, plainer_dtypes, smaller_sizes
from litz_ir.errors import ConfigError, NothingFails

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("minify")


@pytest.fixture(autouse=True)
def folder(kept: Path) -> Iterator[Path]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(kept), verify=False, fallback="warn"):
        yield kept


Captured = tuple[GraphModule, Sequence[Any]]


@pytest.fixture
def captured() -> Captured:
    """The program as Dynamo captures it."""
    found = captured_from(program)
    assert len(operations(found[0])) >= 30
    return found


def captured_from(function: Callable[..., Any]) -> Captured:
    """A function of the example's arguments as Dynamo captures it."""
    found: list[Captured] = []

    def keep(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
        found.append((gm, inputs))
        return gm

    torch.compile(function, backend=keep)(*example())
    return found[0]


def repeated(folder: Path, fault: str) -> subprocess.CompletedProcess[str]:
    """Run a repro in a new process, with or without the fault."""
    paths = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    environment = {**os.environ, "INJECTED_FAULT": fault, "PYTHONPATH": paths}
    command = [sys.executable, "repro.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_graph_shrinks(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INJECTED_FAULT", fault)
    found = litz.minify(
        *captured_from(short), check="wrong", modules=["injected_faults"], into=tmp_path / "small", seconds=90
    )
    assert found.failure == "wrong" and found.before >= 12 and found.after <= 6, found
    FAULTS[fault](monkeypatch.setattr)  # this process has injected_faults already, without the variable
    monkeypatch.chdir(found.folder)
    monkeypatch.syspath_prepend(found.folder)
    monkeypatch.delitem(sys.modules, "graph", raising=False)
    with pytest.raises(AssertionError, match=r"result 0.* is off by"):
        runpy.run_path("repro.py", run_name="__main__")
    assert "no failure" not in capsys.readouterr().out


def test_the_repro_of_a_fault_that_is_mended_passes(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INJECTED_FAULT", "wrong_kernel")
    found = litz.minify(*captured, check="wrong", modules=["injected_faults"])
    assert found.after == 1 and str(found.folder / "repro.py") in str(found)
    done = repeated(found.folder, "")
    assert (done.returncode, done.stdout.strip()) == (0, "no failure"), done.stderr


def test_a_crash_shrinks(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INJECTED_FAULT", "raising")
    found = litz.minify(*captured, modules=["injected_faults"])
    assert (found.failure, found.after) == ("ZeroDivisionError in lower", 1), found
    assert "ZeroDivisionError: injected" in repeated(found.folder, "raising").stderr


@pytest.mark.parametrize(
    ("fault", "failure"), [("ending_the_process", "the process ended by signal 11"), ("hanging", "timeout")]
)
def test_graphs_that_end_the_process_or_hang_shrink(
    fault: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INJECTED_FAULT", fault)
    gm = symbolic_trace(lambda x: torch.tanh(x).cos())
    found = litz.minify(gm, [torch.ones(2)], modules=["injected_faults"], timeout=8, seconds=60)
    assert found.failure == failure and found.after < 2, found


def test_a_slow_graph_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INJECTED_FAULT", "slow")
    gm = symbolic_trace(lambda x: (torch.tanh(x.sin()) + x).cos())
    found = litz.minify(gm, [torch.ones(4, 4)], check="slow", ratio=5, modules=["injected_faults"])
    assert (found.failure, found.after) == ("TooSlow", 1)
    assert "times as long as in eager" in repeated(found.folder, "slow").stderr


def test_the_folder_of_a_report_shrinks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "litz"):
        OTHERS["raising"](patch.setattr)
        torch.compile(program, backend="litz")(*example())
    report = next(m for m in caplog.messages if "report: " in m).rpartition("report: ")[2]
    monkeypatch.setenv("INJECTED_FAULT", "raising")
    found = litz.minify(report, modules=["injected_faults"])
    assert (found.failure, found.after) == ("ZeroDivisionError in lower", 1), found
    assert "aten.tanh" in (found.folder / "graph.py").read_text()


def test_a_function_judges_in_this_process() -> None:
    gm = symbolic_trace(lambda x: ((x.sin() + 1).exp() * 2).cos())

    def fails(gm: GraphModule, inputs: Sequence[Any]) -> bool:
        return any("exp" in str(node.target) for node in operations(gm))

    found = litz.minify(gm, [torch.ones(8, 6)], check=fails)
    assert (found.failure, found.after) == ("check", 1)
    assert "2, 2" in (found.folder / "graph.py").read_text()


WRONG_PASS = """
from dataclasses import dataclass

import litz
from litz.passes import Passes
from litz_ir.loops import map_bodies
from litz_ir.scalar import Op, build, transform


@dataclass(frozen=True)
class SinForCos:
    name: str = "sin-for-cos"
    ulp: int = 0
    before: str = "inline"

    def apply(self, data, context):
        def other(node):
            return build.op("sin", *node.args) if isinstance(node, Op) and node.name == "cos" else node

        operations = (map_bodies(each, lambda body: transform(body, other)) for each in data.operations)
        return data.with_operations(tuple(operations))

    def uuid(self):
        return self.name


litz.config.passes = Passes(loops=(SinForCos(),))
"""


def test_a_pass_of_the_program_is_in_force_where_a_module_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_pass.py").write_text(WRONG_PASS)
    monkeypatch.syspath_prepend(str(tmp_path))
    gm = symbolic_trace(lambda x: (x.exp() + 1).cos().tanh())
    with pytest.raises(NothingFails):
        litz.minify(gm, [torch.ones(4)], check="wrong")
    with litz.config.patch(passes=litz.config.passes):  # the module sets the option in this process too
        found = litz.minify(
            gm, [torch.ones(4)], check="wrong", modules=["wrong_pass"], into=tmp_path / "small"
        )
    assert (found.failure, found.after) == ("wrong", 1)
    assert "cos" in (found.folder / "graph.py").read_text()


def test_a_graph_that_works_and_wrong_arguments_are_refused(tmp_path: Path) -> None:
    gm = symbolic_trace(lambda x: x.sin())
    with pytest.raises(NothingFails, match="by itself does not fail"):
        litz.minify(gm, [torch.ones(2)])
    with pytest.raises(ConfigError, match="without its inputs"):
        litz.minify(gm)
    with pytest.raises(ConfigError, match="no folder of a report"):
        litz.minify(tmp_path)
    with pytest.raises(ConfigError, match="no name of a module"):
        litz.minify(gm, [torch.ones(2)], modules=["os; print(1)"])
    with pytest.raises(ConfigError, match="does not start"):
        litz.minify(gm, [torch.ones(2)], modules=["no_such_module"])
    with pytest.raises(ConfigError, match="exists"):
        litz.minify(gm, [torch.ones(2)], check=lambda gm, inputs: True, into=tmp_path)


def test_sizes_and_dtypes_become_plain() -> None:
    gm = symbolic_trace(lambda x, y: (x.reshape(6, 35) @ y.to(torch.float64)).t().expand(3, 210 // 10, 6))
    propagate(gm, [torch.ones(30, 7, dtype=torch.float64), torch.ones(35, 21, requires_grad=True)])
    small = smaller_sizes(gm, lambda candidate: candidate)
    shapes = [tuple(node.meta["val"].shape) for node in small.graph.nodes if node.op == "placeholder"]
    assert shapes == [(30, 7), (35, 2)], "the sizes of a reshape hang together"
    plain = plainer_dtypes(gm, lambda candidate: candidate)
    values = [node.meta["val"] for node in plain.graph.nodes if node.op == "placeholder"]
    assert {each.dtype for each in values} == {torch.float32} and not any(v.requires_grad for v in values)
