"""Process that has imported Triton and forks workers: they start at once, and share what it has imported and made.

A worker of its own would take as long to start as to compile several kernels, and a program has as many as cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any, TextIO

_START = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from litz_codegen_triton.runtime.fork_server import main
main(int(sys.argv[2]))
"""
"""Python code of the process, which gets this process's ``sys.path`` and its end of a socket."""

_WORKER = "litz_codegen_triton.runtime.worker"
"""Module of workers, which imports Triton; the process that asks for workers needs none."""

_FIRST = """
import triton
import triton.language as tl


@triton.jit
def first(in_ptr, out_ptr):
    index = tl.arange(0, 64)
    value = tl.load(in_ptr + index).to(tl.float32)
    tl.store(out_ptr + index, tl.exp(value - tl.max(value, 0)))
"""
"""A kernel that is compiled before the first worker, for what Triton and LLVM make once in a process."""

_FDS = 2
"""Ends of pipes that come with each request for a worker: those of its input and of its output."""


class Forked:
    """A worker that the server has forked, or will once it has started."""

    def __init__(self, server: ForkServer, stdin: TextIO, stdout: TextIO) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._server = server
        self._pid = 0

    def answer(self) -> str:
        """Return the next line that the worker writes after its id; empty once it has ended."""
        line = self.stdout.readline()
        if self._pid == 0 and line:
            self._pid = int(line)
            line = self.stdout.readline()
        return line

    def has_ended(self) -> bool:
        """Report whether a worker that nothing was asked of has ended."""
        return self._pid != 0 and bool(select([self.stdout], [], [], 0)[0])

    def kill(self) -> None:
        """Kill the worker, or the server where that has not made it yet."""
        if self._pid == 0:
            self._server.close()
            return
        with contextlib.suppress(ProcessLookupError):  # the server ended, and with it the id
            os.kill(self._pid, 9)

    def close(self) -> None:
        """Kill the worker and close its pipes."""
        self.kill()
        for each in (self.stdin, self.stdout):
            with contextlib.suppress(BrokenPipeError):  # a request that it did not read
                each.close()


class ForkServer:
    """The process that forks workers, started by :meth:`start`. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> socket.socket:
        """Start the process unless it runs, and return this process's end of its socket."""
        with self._lock:
            if self._socket is None or self._process is None or self._process.poll() is not None:
                self.close()
                own, its = socket.socketpair()
                with its:
                    number = its.fileno()
                    command = [sys.executable, "-c", _START, json.dumps(sys.path), str(number)]
                    self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(number,))
                self._socket = own
            return self._socket

    def fork(self) -> Forked:
        """Ask for a worker; its first answer waits while the server starts. Raises ``OSError``."""
        its_input, stdin = os.pipe()
        stdout, its_output = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self.start(), [b"f"], [its_input, its_output])
        except OSError:
            os.close(stdin)
            os.close(stdout)
            raise
        finally:
            os.close(its_input)
            os.close(its_output)
        return Forked(self, open(stdin, "w", encoding="utf-8"), open(stdout, encoding="utf-8"))

    def close(self) -> None:
        """Kill the process, if it runs; workers that it has forked end with their pipes."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None


def main(number: int) -> None:
    """Fork a worker for each request that arrives at a socket, until it is closed."""
    worker: Any = import_module(_WORKER)
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
        worker.compile_first(_FIRST, Path(folder))
    connection = socket.socket(fileno=number)
    while True:
        asked, descriptors, *_ = socket.recv_fds(connection, 1, _FDS)
        if not asked:
            return
        if os.fork() == 0:
            connection.close()
            with contextlib.suppress(BrokenPipeError):  # nobody waits for the answer
                worker.serve(*descriptors)
            os._exit(0)
        for each in descriptors:
            os.close(each)
