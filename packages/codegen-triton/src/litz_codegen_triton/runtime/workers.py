"""Pool of processes that compile kernels in parallel; threads would not help, since Triton holds the GIL."""

from __future__ import annotations

import functools
import json
import os
import queue
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.emit.source.tensor_descriptors import descriptors_text
from litz_codegen_triton.runtime.compiled_kernel import write_compiled
from litz_codegen_triton.runtime.fork_server import Forked, ForkServer
from litz_ir.errors import CompileFailed, CompileTimeout, ToolchainError

TIME_LIMIT = 300.0
"""Time limit for one kernel in seconds; compilation of a pathological one is abandoned."""

_MAX_PROCESSES = 16
"""Most processes that compile."""

_COMPILE = "litz_codegen_triton.runtime.compile"
"""Module that compiles kernels in this process, and imports Triton; loaded where no other process does that."""


def compile_request(source: KernelSource, chip: str, folder: Path, *, aligned: bool) -> dict[str, Any]:
    """Build the request to compile a kernel into a file in ``folder``."""
    return {
        "name": source.name, "text": source.text, "signature": source.signature, "divisible": source.divisible,
        "warps": source.warps, "asserts": source.asserts, "contract": source.contract, "chip": chip,
        "folder": str(folder), "aligned": aligned, "descriptors": descriptors_text(source.descriptors),
    }  # fmt: skip


class Worker:
    """A process that compiles kernels, forked by a server at its first kernel.

    ``seconds`` is the time limit for one kernel.
    """

    def __init__(self, server: ForkServer, seconds: float = TIME_LIMIT) -> None:
        self._server = server
        self._seconds = seconds
        self._process: Forked | None = None

    def _started(self) -> Forked:
        """Return the process, a new one unless it runs."""
        if self._process is None or self._process.has_ended():
            self.close()
            self._process = self._server.fork()
        return self._process

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """Compile a kernel and return the path of its binary.

        Raises ``CompileFailed``, ``CompileTimeout`` at the time limit, and ``ToolchainError``.
        """
        try:
            process = self._started()
        except OSError as error:
            raise ToolchainError(
                f"no process can be started to compile kernel {source.name}: {error}",
                hint="set compile_threads to 1, and kernels are compiled in this process",
            ) from error
        late = threading.Event()

        def abort() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds, abort)
        timer.start()
        try:
            process.stdin.write(json.dumps(compile_request(source, chip, folder, aligned=True)) + "\n")
            process.stdin.flush()
            found = json.loads(process.answer())
        except (BrokenPipeError, ValueError) as error:
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
            process.close()


class Pool:
    """``count`` workers as one compiler, which compiles in this process until it is started. It is thread-safe."""

    def __init__(self, count: int) -> None:
        self._server = ForkServer()
        self._started = False
        self._alone = threading.Lock()
        self.workers = [Worker(self._server) for _ in range(count)]
        # Last in, first out prefers workers that have compiled a kernel to those that were not forked yet.
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in reversed(self.workers):
            self._free.put(worker)

    def start(self) -> None:
        """Start the process that forks workers, so that it is ready before the first kernel is."""
        if self.workers:
            self._server.start()
            self._started = True

    def build(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """Compile a kernel in a free process and return the path of its binary.

        Raises ``CompileFailed`` and ``ToolchainError``.
        """
        if not self._started:
            return self._built_here(source, chip, folder)
        builder = self._free.get()
        try:
            return builder.build(source, chip, folder)
        finally:
            self._free.put(builder)

    def _built_here(self, source: KernelSource, chip: str, folder: Path) -> Path:
        """Compile a kernel in this process, one at a time."""
        module: Any = import_module(_COMPILE)
        with self._alone:
            built = module.compile_source(source, chip, folder)
        return write_compiled(built, folder)

    def close(self) -> None:
        """Kill the workers and the process that forks them."""
        for worker in self.workers:
            worker.close()
        self._server.close()
        self._started = False


def shared_pool() -> Pool:
    """Return this process's pool: one compiling process a core, at most ``_MAX_PROCESSES``; a forked process gets one
    of its own."""
    return _pool_of(os.getpid())


@functools.cache
def _pool_of(pid: int) -> Pool:
    """Return the pool of the process with this id."""
    cores = len(os.sched_getaffinity(0))
    return Pool(min(_MAX_PROCESSES, cores) if cores > 1 else 0)
