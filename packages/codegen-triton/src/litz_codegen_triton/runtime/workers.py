"""Compiling kernels side by side: Triton holds Python's lock while it compiles, so each takes a process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

from litz_codegen_triton.emit.kernel import KernelSource
from litz_codegen_triton.runtime.compile import compile_source, write_compiled
from litz_codegen_triton.runtime.worker import request_of
from litz_ir.errors import CompileFailed, CompileTimeout, ToolchainError

SECONDS = 300.0
"""The longest that a kernel may take: pathological ones are refused instead of waited for."""

MOST = 8
"""The most processes, this one among them."""

_START = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from litz_codegen_triton.runtime.worker import main
main()
"""
"""What a worker runs. It looks for modules where this process does."""


class Worker:
    """A process that compiles, started with the first thing that it is given, or before by :meth:`start`."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """The process, running."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-c", _START, json.dumps(sys.path)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        return self._process

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """The file of a compiled kernel. Raises ``CompileFailed``, and ``CompileTimeout`` where that takes too long."""
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds, give_up)
        timer.start()
        try:
            process.stdin.write(json.dumps(request_of(source, chip, folder, aligned=True)) + "\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            # What it would answer next might be to another question.
            self.close()
            what = f"took longer than {self._seconds:.0f} s" if late.is_set() else "ended"
            raise (CompileTimeout if late.is_set() else CompileFailed)(
                f"the process that compiled kernel {source.name} {what}",
                command=("triton.compile", chip),
                output="",
                hint=f"the source is in {folder / (source.name + '.py')}",
            ) from error
        finally:
            timer.cancel()
        if "path" in found:
            return Path(found["path"])
        if "command" in found:
            raise CompileFailed(
                found["message"], command=tuple(found["command"]), output=found["output"], hint=found["hint"]
            )
        raise ToolchainError(found["message"], hint=found["hint"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # a request that it never read
                process.communicate()


class _Here:
    """This process, which compiles one kernel at a time as well as any worker, and needs no starting."""

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        return write_compiled(compile_source(source, chip, folder), folder)


class Pool:
    """This process and ``count`` workers. Threads may share it."""

    def __init__(self, count: int) -> None:
        self.workers = [Worker() for _ in range(count)]
        # The one that is there is asked first; a worker that was started comes back in front of one that was not.
        self._free: queue.LifoQueue[Worker | _Here] = queue.LifoQueue()
        for worker in reversed(self.workers):
            self._free.put(worker)
        self._free.put(_Here())

    def start(self) -> None:
        """Start the workers, which then are ready when the first kernels are."""
        for worker in self.workers:
            worker.start()

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """The file of a compiled kernel, made by whoever is free. Raises ``CompileFailed``."""
        builder = self._free.get()
        try:
            return builder.build(source, chip, folder)
        finally:
            self._free.put(builder)


@functools.cache
def shared_pool() -> Pool:
    """The pool of this process: as many workers as there are cores for them."""
    return Pool(max(0, min(MOST, len(os.sched_getaffinity(0))) - 1))
