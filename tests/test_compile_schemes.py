"""Compilation in child processes: results are eager's, and the end, hang or hunger of a child costs one graph."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.testing import assert_close

import litz
from litz.capture import aot_backend
from litz.schemes import isolated
from litz.service.child import PROGRAM, _error_of
from litz.service.pool import ChildPool
from litz.service.service import CompileService
from litz.service.worker import _error_data
from litz_ir import extension
from litz_ir.errors import CompileTimeout, InternalError, ProcessFailed
from litz_ir.scalar import ScalarOp, ops_table

pytestmark = pytest.mark.sampled  # it compiles whole programs

X = torch.linspace(-1, 1, 36).reshape(6, 6)


def program(x: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(x * 2, -1) @ x).sigmoid().sum(0)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CompileService]:
    """Give the scheme a service of its own, without binaries of other tests."""
    made = CompileService()
    monkeypatch.setattr(isolated, "compile_service", lambda: made)
    monkeypatch.setattr(
        aot_backend, "trace_log", logging.Logger("quiet")
    )  # a watched compilation needs this process
    torch._dynamo.reset()
    with litz.config.patch(compile_scheme="subprocess", cache_dir=str(tmp_path)):
        yield made
    made.close()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], CompileService]]:
    """Return a function that gives the scheme children with a fault."""
    services = []

    def make(fault: str) -> CompileService:
        made = CompileService(children=ChildPool(str(Path(__file__).with_name("faulty_child.py"))))
        services.append(made)
        monkeypatch.setenv("CHILD_FAULT", fault)
        monkeypatch.setenv("LITZ_WORKER", PROGRAM)
        monkeypatch.setattr(isolated, "compile_service", lambda: made)
        return made

    monkeypatch.setattr(aot_backend, "trace_log", logging.Logger("quiet"))
    torch._dynamo.reset()
    with litz.config.patch(compile_scheme="subprocess", cache_dir=str(tmp_path)):
        yield make
    for each in services:
        each.close()


def alive(pid: int) -> bool:
    """Report whether a process runs, zombies not included."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait for a condition, and report whether it holds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_child_compiles_several_graphs_and_the_cache_has_them(service: CompileService) -> None:
    with litz.config.patch(fallback="error"):
        model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
        compiled, x = torch.compile(model, backend="litz"), torch.randn(4, 8, requires_grad=True)
        found, wanted = compiled(x), model(x)
        assert_close(found, wanted)
        gradients = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (found, wanted)]
        assert_close(*gradients)
        pids = service.children.pids()
        assert len(pids) == 1 and pids[0] != os.getpid()
        assert_close(torch.compile(program, backend="litz")(X), program(X))
        assert service.children.pids() == pids, "the child is reused"
        service.children.close()
        torch._dynamo.reset()
        before = counters["litz"]["cache_hits"]
        assert_close(torch.compile(program, backend="litz")(X), program(X))
        assert counters["litz"]["cache_hits"] == before + 1
        assert service.children.pids() == [], "no child is needed for what the cache has"


def test_a_program_with_many_open_files_has_children(service: CompileService) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
        while not opened or opened[-1] < 1100:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        with litz.config.patch(fallback="error", compile_timeout=1e9):
            assert_close(torch.compile(program, backend="litz")(X), program(X))
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert service.children.pids()


def test_plans_and_sources_are_those_of_this_process(service: CompileService) -> None:
    reports = []
    for scheme in ("in_process", "subprocess"):
        with litz.config.patch(compile_scheme=scheme, cache=False, fallback="error"):
            reports.append(litz.explain(program, X))
    first, second = reports
    assert [k.source for g in first.graphs for k in g.kernels] == [
        k.source for g in second.graphs for k in g.kernels
    ]
    decided = [[(d.stage, d.verdict) for g in r.graphs for d in g.decisions] for r in reports]
    assert decided[0] == decided[1] != []
    assert service.children.pids()


def test_symbolic_sizes_and_mutations(service: CompileService) -> None:
    def step(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum(0))
        return x.t() * total[:, None]

    compiled = torch.compile(step, backend="litz", dynamic=True)
    for rows in (3, 5, 9):
        x, own, other = torch.randn(rows, 4), torch.zeros(4), torch.zeros(4)
        assert_close(compiled(x, own), step(x, other))
        assert_close(own, other)
    assert service.children.pids()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("killed", "SIGKILL"),
        ("segmentation_fault", "SIGSEGV"),
        ("polite_end", "good bye"),
        ("garbage", "no JSON"),
        ("other_file", "named other files"),
        ("refused", "no plan today"),
    ],
)
def test_the_end_of_a_child_is_reported_and_its_graph_runs_as_aten(
    faulty: Callable[[str], CompileService], fault: str, says: str, caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:  # fmt: skip
    service = faulty(fault)
    with caplog.at_level(logging.WARNING, "litz"):
        assert_close(torch.compile(program, backend="litz")(X), program(X))
    (record,) = caplog.records
    assert says in record.message and "runs as ATen" in record.message
    (report,) = (tmp_path / "reports").iterdir()
    assert says in (report / "error.txt").read_text()
    assert (report / "repro.py").exists()
    kind = InternalError if fault == "refused" else ProcessFailed
    with litz.config.patch(fallback="error"), pytest.raises(Exception, match=says) as caught:
        torch._dynamo.reset()
        torch.compile(program, backend="litz")(X)
    causes = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(each, kind) for each in causes)
    assert all(map(alive, service.children.pids()))


def test_text_that_a_child_prints_is_no_answer(faulty: Callable[[str], CompileService]) -> None:
    faulty("babbling")
    with litz.config.patch(fallback="error"):
        assert_close(torch.compile(program, backend="litz")(X), program(X))


def test_a_hanging_child_is_killed_with_its_compilers(
    faulty: Callable[[str], CompileService], caplog: pytest.LogCaptureFixture
) -> None:
    service = faulty("hang_with_compiler")
    seen: set[int] = set()

    def look() -> None:
        assert until(lambda: bool(service.children.pids()))
        (pid,) = service.children.pids()
        children = Path(f"/proc/{pid}/task")

        def started() -> bool:
            found = [each.read_text().split() for each in children.glob("*/children")]
            seen.update(int(each) for one in found for each in one)
            return bool(seen)

        until(started)
        seen.add(pid)

    watcher = threading.Thread(target=look)
    watcher.start()
    start = time.monotonic()
    with litz.config.patch(compile_timeout=4.0), caplog.at_level(logging.WARNING, "litz"):
        assert_close(torch.compile(program, backend="litz")(X), program(X))
    watcher.join()
    assert time.monotonic() - start < 30
    assert "did not finish" in caplog.text and "compile_timeout" in caplog.text
    assert len(seen) >= 2
    assert until(lambda: not any(map(alive, seen)))


def test_a_hungry_child_is_bounded(
    faulty: Callable[[str], CompileService], caplog: pytest.LogCaptureFixture
) -> None:
    faulty("hungry")
    with litz.config.patch(compile_memory=4.0), caplog.at_level(logging.WARNING, "litz"):
        assert_close(torch.compile(program, backend="litz")(X), program(X))
    assert "compile_memory" in caplog.text


@pytest.mark.parametrize("limit", [0.05, 0.2, 0.4])
def test_a_child_that_served_a_graph_tells_of_a_lower_bound(limit: float, service: CompileService) -> None:
    torch.compile(program, backend="litz")(X)
    start = time.monotonic()
    with litz.config.patch(compile_memory=limit, compile_timeout=60.0, fallback="error"):
        try:
            torch.compile(lambda x: x.exp() - 1, backend="litz")(X)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            assert "compile_memory" in str(error.inner_exception), error
        else:
            assert limit > 0.05, "a process of Python has more address space"
    assert time.monotonic() - start < 40


def test_after_a_fault_the_next_graph_has_a_new_child(service: CompileService) -> None:
    torch.compile(program, backend="litz")(X)
    (first,) = service.children.pids()
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not alive(first))
    with litz.config.patch(fallback="error"):
        assert_close(torch.compile(lambda x: x.exp() - 1, backend="litz")(X), X.exp() - 1)
    (second,) = service.children.pids()
    assert second != first


def test_a_program_with_operations_of_its_own_is_compiled_here(
    service: CompileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ScalarOp("softplus", 1, accepts="float", cost=20)
    monkeypatch.setitem(ops_table._TABLE, row.name, row)
    assert extension.registered() == (row.name,)
    with litz.config.patch(fallback="error"):
        assert_close(torch.compile(program, backend="litz")(X), program(X))
    assert service.children.pids() == []


def test_threads_that_compile_first_have_one_service() -> None:
    """Also in a forked process, whose service is another one."""
    program = """
import os, sys, threading
from litz.service.service import compile_service

def services():
    found, ready = [], threading.Barrier(16)
    def ask():
        ready.wait()
        found.append(compile_service())
    threads = [threading.Thread(target=ask) for _ in range(16)]
    for each in threads: each.start()
    for each in threads: each.join()
    return set(map(id, found))

sys.setswitchinterval(1e-7)
own = services()
pid = os.fork()
if not pid:
    forked = services()
    os._exit(0 if len(forked) == 1 and forked != own else 1)
assert len(own) == 1 and not os.waitpid(pid, 0)[1]
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_error_with_notes_comes_from_a_child_as_it_is() -> None:
    error = CompileTimeout("too slow", hint="wait")
    error.kernels = ("k0", "k1")
    error.add_note("a note")
    try:
        raise error
    except CompileTimeout as caught:
        found = _error_of(json.loads(json.dumps(_error_data(caught))))
    assert isinstance(found, CompileTimeout) and (found.message, found.hint) == ("too slow", "wait")
    assert found.kernels == ("k0", "k1") and "a note" in "".join(found.__notes__)


@pytest.mark.parametrize("limit", [1, 2])
def test_several_threads_compile_within_the_bound(service: CompileService, limit: int) -> None:
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            with litz.config.patch(
                compile_scheme="subprocess", fallback="error", compile_threads=limit, cache=False
            ):
                x = torch.randn(3 + k, 5)
                function = torch.compile(lambda x: (x + k).tanh().sum(1), backend="litz", dynamic=False)
                assert_close(function(x), (x + k).tanh().sum(1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert 1 <= len(service.children.pids()) <= limit


ENDING = """
import os, sys, threading, time
import torch, litz
from litz.service.service import compile_service
def program(x):
    return torch.softmax(x * 2, -1).sum(0)
x = torch.randn(4, 4)
if sys.argv[1] == "idle":
    torch.compile(program, backend="litz")(x)
    print(*compile_service().children.pids(), flush=True)
else:
    from litz.service import service
    from litz.service.pool import ChildPool
    made = service.CompileService(children=ChildPool(sys.argv[2]))
    import litz.schemes.isolated as isolated
    isolated.compile_service = lambda: made
    import atexit
    thread = threading.Thread(target=lambda: torch.compile(program, backend="litz")(x), daemon=True)
    atexit.register(thread.join)  # runs after the next: Python may crash where it ends with a thread inside torch
    atexit.register(made.close)
    thread.start()
    while not made.children.pids():
        time.sleep(0.02)
    print(*made.children.pids(), flush=True)
    if sys.argv[1] == "killed":
        time.sleep(600)
"""


@pytest.mark.parametrize("how", ["idle", "exit", "killed"])
def test_children_end_with_their_parent(how: str, tmp_path: Path) -> None:
    faulty_child = str(Path(__file__).with_name("faulty_child.py"))
    variables = {
        "LITZ_COMPILE_SCHEME": "subprocess", "LITZ_CACHE_DIR": str(tmp_path), "CHILD_FAULT": "hang",
        "LITZ_WORKER": PROGRAM,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", ENDING, how, faulty_child],
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        (pid,) = map(int, parent.stdout.readline().split())
        if how == "killed":
            parent.kill()
        assert parent.wait(60) == (-signal.SIGKILL if how == "killed" else 0)
    assert until(lambda: not alive(pid))


BAR = """
import sys, time
import torch, litz
from litz.service import progress
from litz_codegen_cpp.target import CpuTarget
progress.DELAY = 0.1
build = CpuTarget.build
def slow(*args):
    time.sleep(1.0)
    return build(*args)
CpuTarget.build = slow
torch.compile(lambda x: torch.softmax(x * 2, -1).sum(0), backend="litz")(torch.randn(4, 4))
print("rich" in sys.modules)
"""


@pytest.mark.parametrize(("terminal", "wanted"), [(True, "1"), (True, "0"), (False, "1")])
def test_a_long_compilation_shows_a_bar_on_a_terminal(terminal: bool, wanted: str, tmp_path: Path) -> None:
    variables = {
        "LITZ_PROGRESS_BAR": wanted,
        "LITZ_CACHE_DIR": str(tmp_path),
        "TERM": "xterm",
        "COLUMNS": "80",
    }
    reading, writing = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", BAR]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=writing, env={**os.environ, **variables}, text=True
    ) as done:
        os.close(writing)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(reading, 1 << 16):
                shown += data
        os.close(reading)
        assert done.stdout is not None
        assert done.stdout.read().split() == [str(terminal and wanted == "1")]
    if terminal and wanted == "1":
        assert b"litz compiles: graph 1 of 1" in shown and b"unit 0 of 1" in shown
        assert shown.rstrip().endswith((b"\x1b[2K", b"\x1b[?25h"))
    else:
        assert b"litz" not in shown


def test_the_variable_of_inductor_sets_the_number_of_threads() -> None:
    command = [sys.executable, "-c", "import litz; print(litz.config.compile_threads)"]
    variables = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "3"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("3", "")
