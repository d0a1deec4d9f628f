"""Pool of processes that compile kernels in parallel; threads would not help, since Triton holds the GIL."""

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

from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import write_compiled
from litz_codegen_triton.runtime.worker import compile_request
from litz_ir.errors import CompileFailed, CompileTimeout, ToolchainError

TIME_LIMIT = 300.0
"""Time limit for one kernel in seconds; compilation of a pathological one is abandoned."""

_MAX_PROCESSES = 8
"""Most processes that compile, this one included."""

_START = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from litz_codegen_triton.runtime.worker import main
main()
"""
"""Python code of a worker process, which gets this process's ``sys.path``."""


class Worker:
    """A process that compiles kernels, started by :meth:`start` or at its first kernel.

    ``seconds`` is the time limit for one kernel.
    """

    def __init__(self, seconds: float = TIME_LIMIT) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start the process unless it runs, and return it."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-c", _START, json.dumps(sys.path)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        return self._process

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """Compile a kernel and return the path of its binary.

        Raises ``CompileFailed``, ``CompileTimeout`` at the time limit, and ``ToolchainError``.
        """
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def abort() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds, abort)
        timer.start()
        try:
            process.stdin.write(json.dumps(compile_request(source, chip, folder, aligned=True)) + "\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            # A later answer of the process could belong to this request.
            self.close()
            outcome = f"took longer than {self._seconds:.0f} s" if late.is_set() else "ended"
            raise (CompileTimeout if late.is_set() else CompileFailed)(
                f"the process that compiled kernel {source.name} {outcome}",
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
        """Kill the process, if it runs."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # a request that it did not read
                process.communicate()


class _ThisProcess:
    """Compiles one kernel at a time in this process, which needs no start."""

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        return write_compiled(compile_source(source, chip, folder), folder)


class Pool:
    """This process and ``count`` workers as one compiler. It is thread-safe."""

    def __init__(self, count: int) -> None:
        self.workers = [Worker() for _ in range(count)]
        # This process comes first. Last in, first out prefers workers that have started to those that have not.
        self._free: queue.LifoQueue[Worker | _ThisProcess] = queue.LifoQueue()
        for worker in reversed(self.workers):
            self._free.put(worker)
        self._free.put(_ThisProcess())

    def start(self) -> None:
        """Start all workers, so that they are ready before the first kernel is."""
        for worker in self.workers:
            worker.start()

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """Compile a kernel in a free process and return the path of its binary.

        Raises ``CompileFailed`` and ``ToolchainError``.
        """
        builder = self._free.get()
        try:
            return builder.build(source, chip, folder)
        finally:
            self._free.put(builder)


@functools.cache
def shared_pool() -> Pool:
    """Return this process's pool: one compiling process a core, at most ``_MAX_PROCESSES``."""
    return Pool(max(0, min(_MAX_PROCESSES, len(os.sched_getaffinity(0))) - 1))
