"""A pytest plugin: every graph that a test lowers is emitted for every target and left as records.

Records go to the folder `REPLAY_RECORDS`, a file for each process with a line of JSON for each graph and target.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

import litz_lowering
from litz_ir.loops import LoopGraph
from litz_lowering import LoweredGraph
from litz_scheduler import SchedulerOptions
from replay.records import TARGETS, headers, records_of

FOLDER = Path(os.environ["REPLAY_RECORDS"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

GRAPHS_PER_TEST = 16
"""Most graphs to record of one test; further ones come from random programs and are left out."""

# Drawn by a seed of the command line: derandomised draws depend on a test's own text, which a change may rewrite.
settings.register_profile(
    "replay",
    derandomize=False,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class Recorder:
    """Writes the records of graphs, by the test that is running and the number of the graph in it."""

    def __init__(self) -> None:
        self.options = SchedulerOptions()
        self.file = (FOLDER / f"{WORKER or 'main'}.jsonl").open("a", encoding="utf-8")
        self.begin("")

    def begin(self, test: str) -> None:
        """Number the graphs of a test from 0."""
        self.test = test
        self.graphs: list[LoopGraph] = []

    def add(self, graph: LoopGraph) -> None:
        """Emit a graph for every target, unless the test had an equal one."""
        if len(self.graphs) == GRAPHS_PER_TEST or graph in self.graphs:
            return
        for target in TARGETS:
            key = f"{self.test} graph {len(self.graphs)} {target}"
            self.write(key, records_of(graph, target, self.options))
        self.graphs.append(graph)

    def write(self, key: str, records: list[Any]) -> None:
        """Write the records of one graph on one target."""
        self.file.write(json.dumps({"key": key, "records": records}) + "\n")

    @contextmanager
    def scheduling(self, options: SchedulerOptions) -> Iterator[None]:
        """Schedule graphs under the options of the block."""
        before, self.options = self.options, options
        try:
            yield
        finally:
            self.options = before


RECORDER = Recorder()
_lower = litz_lowering.lower


def lower_and_record(*args: Any, **how: Any) -> LoweredGraph:
    """Lower a graph and record it."""
    found = _lower(*args, **how)
    RECORDER.add(found.graph)
    return found


litz_lowering.lower = lower_and_record  # before any test imports it


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Number the graphs of each test from 0."""
    RECORDER.begin(item.nodeid)


def pytest_sessionfinish() -> None:
    """Write the headers, in one process, and close the file."""
    if not WORKER:
        for name, record in headers().items():
            RECORDER.write(name, [record])
    RECORDER.file.close()
