"""PyTorch's published tests with litz as the compiler: the harness, on a module of a few tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from upstream import pool, report
from upstream.outcome import FELL_BACK, LITZ, PASSED, SET_ASIDE, SKIPPED, Outcome, read
from upstream.pool import Collected, Pool, Work
from upstream.set_aside import reason_to_set_aside
from upstream.suites import Suite
from upstream.worker import COLLECTED, Task

MODULE = """
from unittest.mock import patch
import litz
import torch
from torch.testing._internal.common_utils import TestCase, a_name_that_torch_dropped

class Tests(TestCase):
    def test_right(self):
        self.assertEqual(torch.compile(lambda x: x.sin() + 1)(torch.ones(3)), torch.ones(3).sin() + 1)

    def test_wrong_everywhere(self):
        self.assertEqual(torch.compile(lambda x: x + 1)(torch.ones(3)), torch.ones(3))

    def test_wrong_under_litz(self):
        def doubled(gm, inputs, **_):
            return lambda *args: [2 * result for result in gm(*args)]

        with patch.object(litz, "compile_fx", doubled):
            self.assertEqual(torch.compile(lambda x: x + 1)(torch.ones(3)), torch.full((3,), 2.0))

    def test_source(self):
        run_and_get_code(torch.sin, torch.ones(3))

    @a_name_that_torch_dropped
    def test_dropped(self):
        raise AssertionError
"""


@pytest.mark.timeout(400)
def test_each_test_is_judged_alone(tmp_path: Path) -> None:
    (tmp_path / "test_few.py").write_text(MODULE)
    set_aside = {}

    def choose(collected: Collected) -> list[Work]:
        set_aside.update({name: reason for name, reason in collected if reason})
        return [(name, (LITZ, "aot_eager")) for name, reason in collected if not reason]

    task = Task(Suite("test_few.py"), tmp_path, tmp_path)
    outcomes = {(o.test.partition("::")[2], o.backend): o for o in Pool(task, 1, 120, choose).outcomes()}
    verdicts = {key: outcome.verdict for key, outcome in outcomes.items()}
    assert verdicts == {
        ("test_right", LITZ): PASSED,
        ("test_wrong_everywhere", LITZ): "wrong",
        ("test_wrong_everywhere", "aot_eager"): "wrong",
        ("test_wrong_under_litz", LITZ): "wrong",
        ("test_wrong_under_litz", "aot_eager"): PASSED,
        ("test_dropped", LITZ): SKIPPED,
    }
    assert set_aside == {"Tests::test_source": "the source that Inductor generates"}


def run_with_a_crash(connection: Connection, task: Task) -> None:
    """Do as a worker does whose process ends in the second of three tests."""
    connection.send((COLLECTED, [("A::first", ""), ("A::crash", ""), ("A::last", "")]))
    for test, (backend, *_) in connection.recv():
        connection.send(("begin", test, backend))
        if test == "A::crash":
            os._exit(3)
        connection.send(("outcome", test, backend, PASSED, "", 0.0))
    connection.send(("end", 0))


def test_tests_after_a_crash_run_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "main", run_with_a_crash)
    task = Task(Suite("test_few.py"), tmp_path, tmp_path)
    outcomes = Pool(task, 1, 120, lambda collected: [(name, (LITZ,)) for name, _ in collected]).outcomes()
    assert [(outcome.test, outcome.verdict, outcome.reason) for outcome in outcomes] == [
        ("A::first", PASSED, ""),
        ("A::crash", "crash", "exit code 3"),
        ("A::last", PASSED, ""),
    ]


def test_a_failure_counts_if_another_compiler_passes_it(tmp_path: Path) -> None:
    suite = "test_indexing"
    rows = [
        Outcome(suite, "A::right", LITZ, PASSED),
        Outcome(suite, "A::left", LITZ, "wrong", "AssertionError: 3 for 4"),
        Outcome(suite, "A::left", "aot_eager", "raises"),
        Outcome(suite, "A::left", "inductor", PASSED),
        Outcome(suite, "A::fallen", LITZ, FELL_BACK),
        Outcome(suite, "A::fallen", "aot_eager", PASSED),
        Outcome(suite, "A::nowhere", LITZ, "raises"),
        Outcome(suite, "A::nowhere", "aot_eager", "raises"),
        Outcome(suite, "A::nowhere", "inductor", "crash"),
        Outcome(suite, "A::not_yet", LITZ, "raises"),
        Outcome(suite, "A::aside", LITZ, SET_ASIDE),
        Outcome(suite, "A::gpu", LITZ, SKIPPED),
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(row.to_line() + "\n" for row in rows))
    row = report.count(read([path]))[suite]
    assert [outcome.test for outcome in row.left] == ["A::fallen", "A::left"]
    assert (row.tests, row.counted, row.right, row.elsewhere, row.unjudged) == (7, 3, 1, 1, 1)
    page = tmp_path / "upstream.md"
    page.write_text("# Page\n\n| suite |\nold\n")
    report.write(page, read([path]))
    assert page.read_text().startswith("# Page\n\n| suite | tests |")
    assert "`test_indexing` | 7 | 1 | 1 | 1 | 3 | 1 | 2 |" in page.read_text()


def test_tests_that_only_configure_inductor_are_not_set_aside() -> None:
    def configured() -> None:
        with torch._inductor.config.patch(implicit_fallbacks=True):  # type: ignore[name-defined]  # noqa: F821
            pass

    def counted() -> None:
        torch._dynamo.utils.counters["inductor"].clear()  # type: ignore[name-defined]  # noqa: F821

    def copied(self: object, value: Callable[[], None] = counted) -> None:
        value()

    assert reason_to_set_aside(configured) == ""
    assert reason_to_set_aside(copied) == "Inductor's counters"
    assert reason_to_set_aside(counted) == "Inductor's counters"
