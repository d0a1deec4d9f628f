"""Process that runs tests of a suite under pytest with one compiler, and reports each to its parent."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from upstream.outcome import FELL_BACK, PASSED, SKIPPED
from upstream.suites import Suite

MEMORY = 8 << 30
"""Largest data segment of a process, in bytes: tests of large tensors fail with an error instead of taking all memory
of the machine."""

GPU_TEST = re.compile("GPU|cuda|CUDA|xpu")
"""Pattern of the names of tests that need a GPU."""

COLLECTED = "collected"
LONGEST_REASON = 600


@dataclass(frozen=True, slots=True)
class Task:
    """A suite below the folder `tests`, and the folder of results."""

    suite: Suite
    tests: Path
    results: Path


def main(connection: Connection, task: Task) -> None:
    """Send `("collected", [(test, reason to set it aside)])`, receive pairs of a test and the compilers to run it with,
    then send `("begin", test, compiler)` and `("outcome", test, compiler, verdict, reason, seconds)` for each, until a
    compiler passes the test.

    What is printed goes to a file in the folder of results.
    """
    log = os.open(task.results / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.environ |= {
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
        "TORCHINDUCTOR_CACHE_DIR": str(task.results / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTORCH_TEST_WITH_INDUCTOR": str(int(task.suite.wrapped)),
        "STRICT_DEFAULT": "1",
        "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
    }
    sys.path.insert(0, str(task.tests))
    path = task.tests / task.suite.path
    if path.parent.name != "inductor":
        sys.path.insert(0, str(path.parent))
    try:
        with prepared(task) as compilers:
            switches = ("-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "-W", "ignore")
            plugins = [Listener(task.suite, compilers, connection)]
            code = pytest.main([*switches, f"--rootdir={task.tests}", str(path)], plugins=plugins)
    except Exception as error:
        connection.send(("refused", f"{type(error).__name__}: {error}"[:LONGEST_REASON]))
        raise
    connection.send(("end", int(code)))


@contextlib.contextmanager
def prepared(task: Task) -> Iterator[Any]:
    """Install the compilers, import the suite and give litz a cache folder."""
    # After the environment is set, which these modules read.
    substitution = importlib.import_module("upstream.substitution")
    litz = importlib.import_module("litz")
    compilers = substitution.Compilers()
    compilers.install()
    suite = task.suite
    name = suite.name.replace("/", ".") if suite.path.startswith("inductor/") else Path(suite.name).name
    if suite.claims_gpu:
        substitution.claim_gpu()
    substitution.add_dropped_names(lambda: importlib.import_module(name))
    substitution.leave_out_checks()
    with litz.config.patch(cache_dir=str(task.results / "cache"), fallback="warn"):
        yield compilers


@dataclass(slots=True)
class Listener:
    """Plugin of pytest that selects tests, runs them with one compiler after another and reports them."""

    suite: Suite
    compilers: Any
    connection: Connection
    backends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verdict: str = PASSED
    reason: str = ""
    seconds: float = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Offer the tests to the parent and keep those that it selects."""
        set_aside = importlib.import_module("upstream.set_aside").reason_to_set_aside
        tests = {name_of(item): item for item in items if self._selects(item)}
        offered = [
            (name, set_aside(getattr(item, "obj", None), getattr(item, "cls", None)))
            for name, item in tests.items()
        ]
        self.connection.send((COLLECTED, offered))
        self.backends = dict(self.connection.recv())
        items[:] = [tests[name] for name in self.backends]

    def _selects(self, item: pytest.Item) -> bool:
        return not (self.suite.claims_gpu and GPU_TEST.search(name_of(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test with each of its compilers until it passes or is skipped."""
        name = name_of(item)
        for backend in self.backends[name]:
            self.connection.send(("begin", name, backend))
            self.verdict, self.reason, self.seconds = PASSED, "", 0.0
            self.compilers.select(backend)
            with self.compilers.watching() as made:
                item._initrequest()  # type: ignore[attr-defined]
                runtestprotocol(item, log=True)
            if self.verdict == PASSED and (left := made.fell_back()) is not None:
                self.verdict, self.reason = FELL_BACK, left
            values = (name, backend, self.verdict, self.reason, round(self.seconds, 2))
            self.connection.send(("outcome", *values))
            if self.verdict in (PASSED, SKIPPED):
                break
        return True

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Keep the kind of a failure."""
        self.seconds += call.duration
        raised = call.excinfo
        if raised is None or self.verdict not in (PASSED, SKIPPED):
            return
        text = " ".join(str(raised.value).split())[:LONGEST_REASON] or raised.typename
        if raised.errisinstance(pytest.skip.Exception) or raised.typename == "SkipTest":
            self.verdict, self.reason = SKIPPED, text
        else:
            self.verdict = "wrong" if raised.errisinstance(AssertionError) else "raises"
            self.reason = f"{raised.typename}: {text}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Let tests that are expected to fail be skipped, whatever they do."""
        if hasattr(report, "wasxfail") or "Unexpected success" in str(report.longrepr):
            self.verdict, self.reason = SKIPPED, "expected to fail"
        elif report.skipped and self.verdict == PASSED:
            self.verdict, self.reason = SKIPPED, str(report.longrepr)[-LONGEST_REASON:]
        elif report.failed and self.verdict == PASSED:
            self.verdict, self.reason = "raises", str(report.longrepr)[-LONGEST_REASON:]


def name_of(item: pytest.Item) -> str:
    """Return the class and function of a test."""
    return item.nodeid.partition("::")[2]
