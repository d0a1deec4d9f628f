"""Compilation of a graph by a child process of this one, from a loop graph or from sources to binaries."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from litz.artifact import unit_data, unit_from
from litz.cache.key import NOTHING, registered_with
from litz.pipeline import Job, Progress, Stages
from litz.service.child import Child, Message
from litz.service.service import CompileService
from litz_ir.errors import ProcessFailed, stage
from litz_ir.plan import Plan
from litz_ir.serial import from_json, to_json
from litz_ir.target import TransferableTarget
from litz_lowering import LoweredGraph

_EXTENSION = "litz_ir.extension"
"""Module by which packages add operations and reductions, which children do not have."""

_GIB = 1 << 30


def obstacle(stages: Stages) -> str:
    """Return the reason that a child cannot compile the graph as this process would; empty where it can."""
    users, added, targets = stages.cache.passes, stages.instruments, stages.targets.by_kind.values()
    if users.loops or users.plan:
        return "passes of the program run over its loop graph or plan"
    if added.hooks or added.fuel is not None or added.timings is not None:
        return "a debugging tool watches it"
    if not all(isinstance(each, TransferableTarget) for each in targets):
        return "a target cannot be made in another process"
    extension = sys.modules.get(_EXTENSION)
    if registered_with(targets) != NOTHING or (extension is not None and extension.registered()):
        return "something is registered with litz in this process"
    return ""


@dataclass(slots=True)
class RemoteCompilation:
    """The stages of one graph that a child runs; for one thread, and one use."""

    stages: Stages
    """Stages of the graph, whose cache gets the binaries."""

    service: CompileService
    """The children, and the bound on units."""

    left: float = 0.0
    """Seconds of the time limit that are left."""

    def planned_and_built(
        self, lowered: LoweredGraph, progress: Progress
    ) -> tuple[Plan, tuple[Job, ...], tuple[Path, ...]]:
        """Return plan, sources and binaries of a loop graph; ``progress`` receives the plan.

        Raises ``ProcessFailed`` and the errors of the stages.
        """
        stages = self.stages
        options = {
            name: sorted(each) if isinstance(each, frozenset) else each
            for name, each in asdict(stages.options()).items()
        }
        hooks = [name for name in ("verify", "check") if getattr(stages.config, name)]
        request: Message = {"loops": to_json(lowered.graph), "options": options, "hooks": hooks}
        with stage("compile"), self._child() as child:
            self._send(child, request)
            plan = from_json(str(self._received(child)["plan"]))
            if not isinstance(plan, Plan):
                raise ProcessFailed(
                    f"a child process answered with a {type(plan).__name__} instead of a plan"
                )
            plan = progress.plan = stages.with_decisions(lowered, plan)
            found = self._received(child)["units"]
            by_kind = stages.targets.by_kind
            jobs = tuple((unit_from(each), by_kind[each["kind"]]) for each in found)
            self._build(child, jobs)
        return plan, jobs, stages.compile(jobs)

    def built(self, jobs: Sequence[Job]) -> tuple[Path, ...]:
        """Return the binaries of sources; raise ``ProcessFailed`` and the errors of builds."""
        kinds = {id(target): kind for kind, target in self.stages.targets.by_kind.items()}
        units = [{**unit_data(unit), "kind": kinds[id(target)]} for unit, target in jobs]
        with stage("compile"):
            if any(self.stages.cache.find(*job) is None for job in jobs):
                with self._child() as child:
                    self._send(child, {"units": units})
                    self._received(child)
                    self._build(child, jobs)
        return self.stages.compile(jobs)

    def _child(self) -> Any:
        """Return the context of a child of the service."""
        return self.service.children.child(self.stages.parallel_units)

    def _send(self, child: Child, request: Message) -> None:
        """Send a request with what all of them have."""
        config, targets = self.stages.config, self.stages.targets.by_kind
        self.left = config.compile_timeout
        arguments = [
            (kind, dict(target.arguments()))
            for kind, target in targets.items()
            if isinstance(target, TransferableTarget)
        ]
        child.send({**request, "targets": arguments, "memory": int(config.compile_memory * _GIB)})

    def _received(self, child: Child) -> Message:
        """Return the next answer, which takes what it took from the time limit; its stages are timed."""
        start = time.monotonic()
        found = child.receive(self.left)
        self.left = max(0.0, self.left - (time.monotonic() - start))
        for name, seconds in found.get("seconds", {}).items():
            self.stages.timings.add(str(name), float(seconds))
        return found

    def _build(self, child: Child, jobs: Sequence[Job]) -> None:
        """Have a child build the sources that the cache lacks, and add the binaries to it."""
        stages = self.stages
        missing = [k for k, job in enumerate(jobs) if stages.cache.find(*job) is None]
        share = partial(self.service.budget.share, len(missing), stages.parallel_units)
        with share() as threads, tempfile.TemporaryDirectory(prefix="litz-") as folder:
            child.send({"build": missing, "threads": threads, "folder": folder})
            found = self._received(child)
            while "paths" not in found:
                found = self._received(child)
            paths = [Path(str(each)) for each in found["paths"]]
            if len(paths) != len(missing) or not all(each.is_relative_to(folder) for each in paths):
                raise ProcessFailed("a child process named other files than it was asked to build")
            for k, path in zip(missing, paths, strict=True):
                stages.cache.add_binary(*jobs[k], path)
