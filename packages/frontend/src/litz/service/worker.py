"""Program of a child process that compiles graphs: it schedules them, emits their sources and builds these.

A conversation per graph, one JSON object a line: a request with a loop graph or with sources; the plan and its sources;
the sources to build; one line for each that is built, and their paths. The error of a stage ends it.

The program imports neither torch nor litz, whose import loads torch, and so is run by the path of this file. It ends
when the process that started it closes the pipe or ends.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from litz_ir.device import Device
from litz_ir.errors import CompileTimeout, LitzError, stage
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan, launches_on
from litz_ir.serial import from_json, to_json
from litz_ir.target import PreparedTarget, SchedulingTarget, SourceUnit, Target, load_target
from litz_scheduler import SchedulerOptions, default_passes, schedule

HOOKS: Mapping[str, str] = {"verify": "litz_ir.verifier", "check": "litz_ir.passes.check"}
"""Modules of the hooks between passes that a request can ask for."""

_UNBOUNDED = resource.getrlimit(resource.RLIMIT_AS)
"""Bounds of the address space that the process was started with, which hold between two requests."""

_POLL_SECONDS = 2.0
"""Seconds between two looks at the parent, for the case that a third process keeps the pipe open."""

Message = dict[str, Any]
"""A line of a conversation."""


class Conversation:
    """The lines from and to the parent. A thread reads, and ends the process where the parent has ended."""

    def __init__(self, requests: int, answers: BinaryIO) -> None:
        self._requests = requests
        self._answers = answers
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._parent = os.getppid()
        threading.Thread(target=self._read, name="litz-requests", daemon=True).start()

    def receive(self) -> Message:
        """Return the next line of the parent; raise ``MemoryError`` where there was no memory for it."""
        line = self._lines.get()
        if line is None:
            raise MemoryError
        found: Message = json.loads(line)
        return found

    def send(self, message: Message) -> None:
        """Write one line."""
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.flush()

    def _read(self) -> None:
        """Read lines until the parent closes the pipe or ends."""
        rest = b""
        while True:
            ready, _, _ = select.select([self._requests], [], [], _POLL_SECONDS)
            if ready:
                try:
                    data = os.read(self._requests, 1 << 20)
                    if not data:
                        os._exit(0)
                    *lines, rest = (rest + data).split(b"\n")
                except MemoryError:
                    self._lines.put(None)  # the parent kills the process once it is told
                    return
                for line in lines:
                    self._lines.put(line)
            elif os.getppid() != self._parent:
                os._exit(0)


def _hook(name: str) -> Callable[[str, object, object], None]:
    """Return a hook between passes by its name."""
    module = import_module(HOOKS[name])
    if name == "check":
        checked: Callable[[str, object, object], None] = module.check_hook
        return checked
    return lambda _name, _before, after: module.verify(after)


def _options(data: Message) -> SchedulerOptions:
    """Return the scheduler's options of a request, in which sets are lists."""
    given: dict[str, Any] = {
        name: frozenset(each) if isinstance(each, list) else each for name, each in data.items()
    }
    return SchedulerOptions(**given)


def _planned(graph: LoopGraph, request: Message, targets: Mapping[str, Target]) -> Plan:
    """Schedule a loop graph, and its kernels."""
    context = PassContext({Device(kind): target.capabilities() for kind, target in targets.items()})
    passes, hooks = default_passes(_options(request["options"])), tuple(map(_hook, request["hooks"]))
    with stage("schedule"):
        plan = schedule(graph, context, passes=passes, verified=True, hooks=hooks)
        for target in targets.values():
            plan = target.schedule(plan) if isinstance(target, SchedulingTarget) else plan
    return plan


def _sources(plan: Plan, targets: Mapping[str, Target]) -> list[tuple[str, SourceUnit]]:
    """Emit the sources of a plan, each with its kind of devices."""
    found = []
    for kind, target in targets.items():
        own = launches_on(kind, plan)
        if own.kernels:
            with stage("emit"):
                found += [(kind, unit) for unit in target.emit(own)]
    return found


def _unit(data: Message) -> SourceUnit:
    """Return the source of JSON data."""
    name, language, text = (str(data[key]) for key in ("name", "language", "text"))
    return SourceUnit(name, language, text, tuple(data["kernels"]), tuple(data["flags"]))


def _built(unit: SourceUnit, target: Target, folder: Path) -> str:
    """Build a source in a folder of its own, and return the path."""
    try:
        folder.mkdir()
        with stage("compile"):
            return str(target.build(unit, folder))
    except CompileTimeout as error:
        error.kernels = unit.kernels
        raise
    except MemoryError:
        _bound_memory(0)  # telling of it takes memory too
        raise


def _bound_memory(limit: int) -> None:
    """Bound the bytes of address space, of compilers too; 0 for the bounds that the process was started with."""
    _, hard = _UNBOUNDED
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard) if limit else _UNBOUNDED)


def _require_memory(limit: int) -> None:
    """Raise ``MemoryError`` where the process takes more than ``limit`` bytes of address space already."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # no Linux
        return
    if limit and pages * resource.getpagesize() > limit:
        raise MemoryError


def _started_pool(threads: int, limit: int) -> ThreadPoolExecutor:
    """Return a pool whose threads have started. They start without the bound: ``Thread.start`` waits for ever for a
    thread that has no memory to begin."""
    pool, gate = ThreadPoolExecutor(max_workers=threads), threading.Barrier(threads)
    _bound_memory(0)
    try:
        for each in [pool.submit(gate.wait) for _ in range(threads)]:
            each.result()
    finally:
        _bound_memory(limit)
    return pool


def _build_all(
    jobs: Sequence[tuple[str, SourceUnit]],
    targets: Mapping[str, Target],
    order: Message,
    talk: Conversation,
    limit: int,
) -> None:
    """Build the sources that an order names, at most ``threads`` at once, and send their paths."""
    folder, threads, start = Path(order["folder"]), int(order["threads"]), time.perf_counter()
    wanted = [int(k) for k in order["build"]]
    if threads > 1 and wanted:
        for target in targets.values():
            if isinstance(target, PreparedTarget):
                target.prepare()
    pool = _started_pool(max(1, min(threads, len(wanted))), limit)
    try:
        made = {pool.submit(_built, jobs[k][1], targets[jobs[k][0]], folder / str(k)): k for k in wanted}
        for future in as_completed(made):
            future.result()
            talk.send({"built": made[future]})
    finally:
        pool.shutdown(cancel_futures=True)
    paths = [future.result() for future in made]
    talk.send({"paths": paths, "seconds": {"compile": time.perf_counter() - start}})


def _answer(request: Message, talk: Conversation) -> None:
    """Hold the conversation about one graph."""
    limit = int(request["memory"])
    _require_memory(limit)
    _bound_memory(limit)
    targets = {kind: load_target(kind, arguments) for kind, arguments in request["targets"]}
    start = time.perf_counter()
    if "loops" in request:
        graph = from_json(request["loops"])
        assert isinstance(graph, LoopGraph)
        plan = _planned(graph, request, targets)
        planned = time.perf_counter()
        # Plans are sent before sources are emitted, so that an error of a kernel is traced to its operations.
        talk.send({"plan": to_json(plan), "seconds": {"schedule": planned - start}})
        jobs = _sources(plan, targets)
        seconds = {"emit": time.perf_counter() - planned}
        talk.send({"units": [{**asdict(unit), "kind": kind} for kind, unit in jobs], "seconds": seconds})
    else:
        jobs = [(str(each["kind"]), _unit(each)) for each in request["units"]]
        talk.send({"units": [], "seconds": {}})
    _build_all(jobs, targets, talk.receive(), talk, limit)


def _error_data(error: Exception) -> Message:
    """Return an error as JSON data, with its traceback as text."""
    if not isinstance(error, LitzError):
        kind = "MemoryError" if isinstance(error, MemoryError) else "InternalError"
        return {"error": kind, "fields": {}, "message": repr(error), "traceback": traceback.format_exc()}
    cause = error.__cause__
    kind = "MemoryError" if isinstance(cause, MemoryError) else type(error).__name__
    # Notes are part of the traceback.
    plain = {name: value for name, value in vars(error).items() if name not in ("origin", "__notes__")}
    return {
        "error": kind, "fields": plain, "message": error.message, "origin": asdict(error.origin),
        "traceback": traceback.format_exc(),
    }  # fmt: skip


def main(requests: int, answers: int) -> None:
    """Answer requests until the parent has no more; texts that compilers print do not reach the pipe."""
    talk = Conversation(requests, os.fdopen(answers, "wb"))
    while True:
        request = talk.receive()
        try:
            _answer(request, talk)
        except Exception as error:
            _bound_memory(0)
            talk.send(_error_data(error))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:3]))
