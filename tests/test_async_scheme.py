"""Compilation behind calls: a graph runs as ATen until it is compiled, with equal results before, at and after that."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from test_compile_schemes import alive, program, until
from torch import nn
from torch._dynamo.utils import counters
from torch.testing import assert_close

import litz
import litz.pipeline
from litz.capture import aot, aot_backend
from litz.schemes import behind, isolated
from litz.service import waiting
from litz.service.background import Background
from litz.service.child import PROGRAM
from litz.service.pool import ChildPool
from litz.service.service import CompileService
from litz_ir.errors import CodegenError, ProcessFailed

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

X = torch.linspace(-1, 1, 36).reshape(6, 6)
FAULTY = str(Path(__file__).with_name("faulty_child.py"))


class Paused:
    """A service whose thread begins to work when it is told to."""

    def __init__(self, service: CompileService) -> None:
        self.service = service
        self._go = threading.Event()

    def pause(self) -> None:
        """Make the thread wait before it compiles anything."""
        self._go.clear()
        self.service.background.submit(lambda: bool(self._go.wait(60)))

    def release(self) -> None:
        """Let the thread compile everything."""
        self._go.set()
        assert self.service.background.wait(60)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Paused]]:
    """Return a function that gives the scheme a service of its own, whose children may have a fault."""
    made: list[Paused] = []

    def build(fault: str = "") -> Paused:
        if fault:
            monkeypatch.setenv("CHILD_FAULT", fault)
            monkeypatch.setenv("LITZ_WORKER", PROGRAM)
        service = CompileService(children=ChildPool(FAULTY) if fault else ChildPool())
        monkeypatch.setattr(isolated, "compile_service", lambda: service)
        monkeypatch.setattr(behind, "compile_service", lambda: service)
        monkeypatch.setattr(waiting, "compile_service", lambda: service)
        made.append(Paused(service))
        return made[-1]

    monkeypatch.setattr(aot_backend, "trace_log", logging.Logger("quiet"))  # of a trace that watches graphs
    torch._dynamo.reset()
    counters["litz"].clear()
    with litz.config.patch(compile_scheme="async", cache_dir=str(tmp_path)):
        yield build
    for each in made:
        each._go.set()
        each.service.close()


@pytest.fixture
def paused(make: Callable[..., Paused]) -> Paused:
    """Return a service that is paused."""
    found = make()
    found.pause()
    return found


def test_a_graph_runs_as_aten_until_it_is_compiled(paused: Paused) -> None:
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(program, backend="litz", fullgraph=True)
        assert_close(compiled(X), program(X), rtol=0, atol=0)
        assert counters["litz"]["graphs"] == 0
        paused.release()
        assert (counters["litz"]["graphs"], counters["litz"]["aten_graphs"]) == (1, 0)
        for _ in range(3):
            assert_close(compiled(X), program(X))
        torch._dynamo.reset()
        paused.pause()  # the cache has it now
        assert_close(torch.compile(program, backend="litz")(X), program(X))
        assert counters["litz"]["cache_hits"] == 1


def test_the_compiled_graph_is_the_one_of_this_process(
    paused: Paused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without AOTAutograd's wrapper where the graph is plain, and with kernels."""
    ran = []
    real = aot.run_in_aten

    def noted(gm: torch.fx.GraphModule) -> Callable[..., object]:
        call = real(gm)
        return lambda args: (ran.append(gm), call(args))[1]

    for module in (aot, litz.compilation.compilation):
        monkeypatch.setattr(module, "run_in_aten", noted)
    compiled = torch.compile(program, backend="litz")
    compiled(X)
    assert len(ran) == 1
    paused.release()
    assert_close(compiled(X), program(X))
    assert len(ran) == 1
    assert counters["litz"]["kernels"] > 0


def gradients(call: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(call(x).square().sum(), list(model.parameters())))


def test_training_before_at_and_after_the_swap(paused: Paused) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    compiled, wanted = torch.compile(model, backend="litz"), gradients(model, model, X)
    with litz.config.patch(fallback="error"):
        assert_close(gradients(compiled, model, X), wanted)
        early = compiled(X).square().sum()  # a forward by ATen, whose backward is compiled when it runs
        torch.autograd.grad(early, list(model.parameters()), retain_graph=True)
        paused.release()
        assert counters["litz"]["graphs"] == 2
        for _ in range(2):
            assert_close(
                list(torch.autograd.grad(early, list(model.parameters()), retain_graph=True)), wanted
            )
            assert_close(gradients(compiled, model, X), wanted)
        torch._dynamo.reset()
        paused.pause()
        assert_close(gradients(torch.compile(model, backend="litz"), model, X), wanted)
        assert counters["litz"]["cache_hits"] == 2


def test_results_that_a_plan_lays_out_otherwise_have_the_traced_strides(paused: Paused) -> None:
    """The backward was traced, and is compiled, for eager's strides."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rows = x.exp().sum(0, keepdim=True).expand(4, 6)
        return (rows * w).sin() * rows.cumsum(0)

    compiled = torch.compile(function, backend="litz")
    w = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    x = X.double().requires_grad_()
    wanted = torch.autograd.grad(function(x, w).sum(), (x, w))
    with litz.config.patch(fallback="error"):
        assert_close(torch.autograd.grad(compiled(x, w).sum(), (x, w)), wanted)
        paused.release()
        for _ in range(2):
            assert_close(torch.autograd.grad(compiled(x, w).sum(), (x, w)), wanted)


def test_symbolic_sizes_mutations_and_views(paused: Paused) -> None:
    def step(x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total.add_(x.sum(0))
        return x.t() * total[:, None], total[1:]

    compiled = torch.compile(step, backend="litz", dynamic=True)
    with litz.config.patch(fallback="error"):
        for number, rows in enumerate((3, 5, 9, 4)):
            if number == 2:
                paused.release()
            x, own, other = torch.randn(rows, 4), torch.zeros(4), torch.zeros(4)
            for found, wanted in zip(compiled(x, own), step(x, other), strict=True):
                assert_close(found, wanted)
            assert_close(own, other)
    assert counters["litz"]["graphs"] == 1


def test_random_numbers_are_eagers_on_both_sides_of_the_swap(paused: Paused) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    compiled = torch.compile(noisy, backend="litz")
    for call in (noisy, compiled, compiled):
        torch.manual_seed(3)
        found = [call(X), call(X)]
        if call is noisy:
            wanted = found
        assert_close(found, wanted)
        paused.release()


def test_threads_call_a_graph_while_it_is_swapped(paused: Paused) -> None:
    compiled, wanted, failures = torch.compile(program, backend="litz"), program(X), []
    compiled(X)
    stop, calls = threading.Event(), [0] * 4

    def work(k: int) -> None:
        try:
            while not stop.is_set():
                assert_close(compiled(X), wanted)
                calls[k] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    paused.release()
    after = list(calls)
    assert until(lambda: bool(failures) or all(now > then for now, then in zip(calls, after, strict=True)))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert counters["litz"]["graphs"] == 1


def test_the_end_of_a_child_is_reported_and_the_graph_stays_aten(
    make: Callable[[str], Paused], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    paused = make("segmentation_fault")
    compiled = torch.compile(program, backend="litz")
    with caplog.at_level(logging.WARNING, "litz"):
        compiled(X)
        paused.release()
    (record,) = caplog.records
    assert "SIGSEGV" in record.message and "runs as ATen" in record.message
    assert len(list((tmp_path / "reports").iterdir())) == 1
    assert_close(compiled(X), program(X), rtol=0, atol=0)
    assert counters["litz"]["aten_graphs"] == 1


def test_the_next_call_raises_where_failures_are_errors(make: Callable[[str], Paused]) -> None:
    paused = make("segmentation_fault")
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(program, backend="litz")
        assert_close(compiled(X), program(X))
        paused.release()
        for _ in range(2):
            with pytest.raises(ProcessFailed, match="SIGSEGV"):
                compiled(X)


def test_an_operation_that_cannot_be_emitted_runs_as_aten_in_the_compiled_graph(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, lower = litz.pipeline.Stages.artifact, litz.pipeline.Stages.lower
    failed: list[int] = []
    threads: list[threading.Thread] = []

    def lowered(self: litz.pipeline.Stages, forced: frozenset[str]) -> object:
        threads.append(threading.current_thread())
        return lower(self, forced)

    def broken(self: litz.pipeline.Stages, *args: object) -> object:
        if not failed:
            failed.append(1)
            raise CodegenError("no code today", node="sigmoid")
        return real(self, *args)

    monkeypatch.setattr(litz.pipeline.Stages, "artifact", broken)
    monkeypatch.setattr(litz.pipeline.Stages, "lower", lowered)
    compiled = torch.compile(program, backend="litz")
    with caplog.at_level(logging.WARNING, "litz"):
        compiled(X)
        paused.release()
        assert counters["litz"]["graphs"] == 0
        assert_close(compiled(X), program(X), rtol=0, atol=0)  # by ATen, after it was lowered again
        assert litz.wait(60)
    assert threads == [threading.current_thread()] * 2
    assert "sigmoid run as ATen instead" in caplog.text
    assert_close(compiled(X), program(X))
    assert (counters["litz"]["graphs"], counters["litz"]["aten_graphs"]) == (1, 0)


def test_lowering_again_adds_no_guards(paused: Paused, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = litz.pipeline.Stages.lower
    rounds: list[int] = []

    def specialised(self: litz.pipeline.Stages, forced: frozenset[str]) -> object:
        rounds.append(1)
        if len(rounds) > 1:
            size = next(n.meta["val"].shape[0] for n in self.captured.gm.graph.nodes if n.name == "sigmoid")
            assert isinstance(size, torch.SymInt) and int(size) == X.shape[0]  # a guard
        return lower(self, forced)

    def broken(self: litz.pipeline.Stages, *args: object) -> object:
        raise CodegenError("no code today", node="sigmoid")

    monkeypatch.setattr(litz.pipeline.Stages, "artifact", broken)
    monkeypatch.setattr(litz.pipeline.Stages, "lower", specialised)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sigmoid().cos()

    compiled = torch.compile(function, backend="litz", dynamic=True)
    compiled(X)
    paused.release()
    compiled(X)
    assert litz.wait(60) and len(rounds) == 2
    larger = torch.cat([X, X])
    for _ in range(2):
        assert_close(compiled(larger), function(larger), rtol=0, atol=0)
    assert (counters["litz"]["graphs"], counters["litz"]["aten_graphs"]) == (1, 1)


def test_waiting_ends_with_the_compilations_or_with_the_time(paused: Paused) -> None:
    compiled = torch.compile(program, backend="litz")
    compiled(X)
    assert not litz.wait(0.01)
    paused._go.set()
    assert litz.wait() and litz.wait(0)
    assert counters["litz"]["graphs"] == 1
    assert_close(compiled(X), program(X))


@pytest.mark.parametrize("promise", ["nan_asserts", "deterministic", "batch_invariant", "size_asserts"])
def test_graphs_with_promises_that_aten_does_not_keep_are_compiled_at_once(
    paused: Paused, promise: str
) -> None:
    with litz.config.patch(**{promise: True}):
        assert_close(torch.compile(program, backend="litz")(X), program(X))
    assert counters["litz"]["graphs"] == 1


def test_explanations_are_of_compiled_graphs(paused: Paused) -> None:
    (graph,) = litz.explain(program, X).graphs
    assert graph.kernels


def test_the_thread_ends_with_its_work_and_accepts_none_after_its_end() -> None:
    background, done = Background(), []
    background.submit(lambda: done.append(1))
    assert background.wait(10)
    background.submit(lambda: done.append(2))
    assert background.wait(10)
    background.close()
    background.submit(lambda: done.append(3))
    assert background.wait(10) and done == [1, 2]
    assert not [each for each in threading.enumerate() if each.name == "litz-compile"]


ENDING = """
import sys, time
import torch, litz
from litz.service.pool import ChildPool
from litz.service.service import compile_service
if sys.argv[1]:
    compile_service().children._program = sys.argv[1]
def program(x):
    return torch.softmax(x * 2, -1).sum(0)
x = torch.randn(4, 4)
compiled = torch.compile(program, backend="litz")
torch.testing.assert_close(compiled(x), program(x))
while not compile_service().children.pids():
    time.sleep(0.02)
print(*compile_service().children.pids(), flush=True)
"""


@pytest.mark.parametrize("fault", ["", "hang"])
def test_a_program_ends_while_its_graphs_are_compiled(fault: str, tmp_path: Path) -> None:
    variables = {"LITZ_COMPILE_SCHEME": "async", "LITZ_CACHE_DIR": str(tmp_path)}
    if fault:
        variables |= {"CHILD_FAULT": fault, "LITZ_WORKER": PROGRAM}
    done = subprocess.run(
        [sys.executable, "-c", ENDING, FAULTY if fault else ""],
        capture_output=True, text=True, timeout=120, env={**os.environ, **variables}, check=True,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if "LITZ_WORKER" not in line]
    assert until(lambda: not alive(int(done.stdout)))
    assert not (tmp_path / "reports").exists()
