"""``litz bench``: a script is run, and each of its graphs is timed as it was captured and as litz compiles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch._guards import CompileContext
from torch.fx import GraphModule

from litz import timing
from litz.capture.compile_fx import compile_fx
from litz.commands.scripts import backend_instead, default_backend, run_script
from litz.configuration import config
from litz.devices import gpu
from litz.explain.captures import Frames
from litz.explain.observation import run_backward
from litz.explain.page.sources import shortened_path
from litz.options import config_from
from litz.self_check.snapshot import copied_leaves
from litz.timing import Timing

Call = Callable[..., Any]
"""A graph as a function."""


@dataclass(frozen=True, slots=True)
class GraphTiming:
    """Times of one graph."""

    compile_id: str
    """Dynamo's name of its compilation, such as ``0/0``."""

    trains: bool
    """True where a backward of the results' sum is part of the time."""

    eager: Timing
    """Times of the graph as Dynamo captured it."""

    compiled: Timing
    """Times of the graph as litz compiled it."""


class _Bench:
    """Times each graph that is compiled through :meth:`backend`, in its first call, on copies of its arguments."""

    def __init__(self, seconds: float) -> None:
        self.timings: list[GraphTiming] = []
        self.frames = Frames()
        self._seconds = seconds

    def backend(
        self,
        gm: GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Call:
        """Compile a graph as litz's backend does; time it in its first call."""
        self.frames.note()
        compiled = compile_fx(gm, inputs, config=config_from(config.current(), mode, options))
        compile_id = str(CompileContext.current_compile_id() or "")
        timed: list[GraphTiming] = []

        def call(*args: Any) -> Any:
            if not timed:
                timed.append(self._timed(gm, compiled, args, compile_id))
                self.timings += timed
            return compiled(*args)

        return call

    def _timed(self, gm: Call, compiled: Call, args: Sequence[Any], compile_id: str) -> GraphTiming:
        """Time a graph and its compiled form, without effect on the arguments or on random numbers."""
        trains = torch.is_grad_enabled() and any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in args
        )
        devices = list(range(gpu.device_count())) if gpu.is_available() and gpu.is_initialized() else []
        with torch.random.fork_rng(devices):
            eager, own = (
                timing.bench(_step(call, trains), *copied_leaves(args), seconds=self._seconds)
                for call in (gm, compiled)
            )
        return GraphTiming(compile_id, trains, eager, own)


def bench(console: Console, script: str, arguments: Sequence[str], seconds: float) -> int:
    """Run a script with litz as the default backend, time its graphs, and print the times.

    ``seconds`` is the time of each measurement. Returns the exit status of the script; an exception that it raises is
    raised again, after the times are printed.
    """
    found = _Bench(seconds)
    try:
        with default_backend(), backend_instead(found.backend):
            return run_script(script, arguments)
    finally:
        _print(console, found)


def _print(console: Console, found: _Bench) -> None:
    """Print a row for each graph."""
    if not found.timings:
        console.print("no graph was called: the script calls no compiled function, or names another backend")
        return
    frames = {frame.compile_id: frame for frame in found.frames.found()}
    table = Table("graph", "function")
    for title in ("eager us", "litz us", "times as fast"):
        table.add_column(title, justify="right")
    for each in found.timings:
        frame = frames.get(each.compile_id)
        where = "" if frame is None else f"{frame.function} {shortened_path(frame.file)}:{frame.line}"
        step = f"{each.compile_id}{' with backward' if each.trains else ''}"
        ratio = each.eager.median / each.compiled.median
        times = (f"{1e6 * own.median:.1f}" for own in (each.eager, each.compiled))
        table.add_row(step, where, *times, f"{ratio:.2f}")
    console.print(table)
    console.print("Graphs are timed alone, on copies of the arguments of their first calls.")


def _step(call: Call, trains: bool) -> Call:
    """Return a call of a graph, with the backward of the results' sum where it trains."""

    def step(*args: Any) -> Any:
        results = call(*args)
        if trains:
            run_backward(results)
        return results

    return step
