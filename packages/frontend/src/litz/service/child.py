"""A child process that compiles graphs: it is spawned, asked, and killed where it ends, hangs or answers nonsense."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from litz_ir import errors
from litz_ir.errors import LitzError, ProcessFailed
from litz_ir.origin import Origin

PROGRAM = str(Path(__file__).with_name("worker.py"))
"""File of the child's program."""

_START = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv.pop(1))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Python code that gives the child this process's ``sys.path``, which its program's folder does not join."""

_SHOWN = 4000
"""Characters of the child's printed text that an error quotes."""

_END_SECONDS = 5.0
"""Most seconds between the last answer of a process and its end."""

_LONGEST_WAIT = 1e6
"""Most seconds that one answer is waited for: the system counts milliseconds in 32 bits."""

Message = dict[str, Any]
"""A line of a conversation."""


@dataclass(slots=True)
class Child:
    """A process that compiles one graph at a time; started at its first request. One thread at a time uses it."""

    program: str = PROGRAM
    """File of its program."""

    asked: bool = field(default=False, init=False)
    """True in a conversation, which the child expects to go on."""

    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _answers: int = field(default=-1, init=False)
    _printed: IO[bytes] | None = field(default=None, init=False)
    _rest: bytes = field(default=b"", init=False)

    @property
    def pid(self) -> int | None:
        """Process id; ``None`` while it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def send(self, message: Message) -> None:
        """Write one line, to a new process where none runs; raise ``ProcessFailed``."""
        process = self._started()
        assert process.stdin is not None
        self.asked = True
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._failed(self._end()) from error

    def receive(self, seconds: float) -> Message:
        """Return the next line, which must come within ``seconds``.

        Raises ``ProcessFailed`` where the process ends, is late, or writes no JSON object, and kills it; raises the
        error that the child reports.
        """
        line = self._line(time.monotonic() + seconds, seconds)
        try:
            found = json.loads(line)
        except ValueError as error:
            raise self._failed(f"answered with {line[:60]!r}, which is no JSON") from error
        if not isinstance(found, dict):
            raise self._failed(f"answered with {line[:60]!r}, which is no object")
        self.asked = "error" not in found and "paths" not in found
        if "error" not in found:
            return found
        if found["error"] == "MemoryError":
            # What is left of the process after that is uncertain.
            raise self._failed("ran out of the memory that the option compile_memory or the machine allows")
        raise _error_of(found)

    def kill(self) -> None:
        """Kill the process and those that it started; who waits for its answer gets an error."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for pid in (*_descendants(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and those that it started, if it runs."""
        self.kill()
        process, self._process = self._process, None
        if process is None:
            return
        process.wait()
        with contextlib.suppress(OSError):  # a request that it did not read
            if process.stdin is not None:
                process.stdin.close()
        os.close(self._answers)
        if self._printed is not None:
            self._printed.close()
        self._rest, self.asked = b"", False

    def _line(self, end: float, seconds: float) -> bytes:
        """Return the next line; raise ``ProcessFailed``."""
        waiting = select.poll()  # select.select takes no descriptor above 1023
        waiting.register(self._answers, select.POLLIN)
        while b"\n" not in self._rest:
            left = min(max(0.0, end - time.monotonic()), _LONGEST_WAIT)
            if not waiting.poll(1e3 * left):
                raise self._failed(
                    f"did not finish in the {seconds:.3g} s that were left",
                    "raise the option compile_timeout, if the graph is worth it",
                )
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise self._failed(self._end())
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process, which is started unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._answers, writing = os.pipe()
        self._printed = tempfile.TemporaryFile()
        own, answers = json.dumps(sys.path), str(writing)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, own, self.program, "0", answers],
                stdin=subprocess.PIPE,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(writing,),
                start_new_session=True,  # an interrupt of the terminal ends the program first, then its children
            )
        except OSError as error:
            os.close(self._answers)
            self._printed.close()
            raise ProcessFailed(f"a process that compiles graphs does not start: {error}") from error
        finally:
            os.close(writing)
        return self._process

    def _end(self) -> str:
        """Return a description of the end of the process."""
        assert self._process is not None
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code >= 0:
            return f"ended with status {code}"
        known = {each.value: each.name for each in signal.Signals}
        return f"was ended by signal {known.get(-code, -code)}"

    def _failed(self, what: str, hint: str = "") -> ProcessFailed:
        """Kill the process and return an error that quotes what it printed last."""
        text = ""
        if self._printed is not None:
            size = self._printed.seek(0, os.SEEK_END)
            self._printed.seek(max(0, size - _SHOWN))
            text = self._printed.read().decode(errors="replace").strip()
        self.close()
        return ProcessFailed(
            f"the process that compiled the graph {what}" + (f"; it printed:\n{text}" if text else ""),
            hint=hint or "the option compile_scheme='in_process' compiles without a child process",
        )


def _error_of(data: Message) -> LitzError:
    """Return the error that a child reported, of its own class where that is one of litz's."""
    kind = getattr(errors, str(data["error"]), LitzError)
    if not (isinstance(kind, type) and issubclass(kind, LitzError)):
        kind = LitzError
    found = kind.__new__(kind, data["message"])
    vars(found).update({"message": data["message"], "stage": kind.stage, "node": "", "hint": ""})
    tuples = {name: tuple(v) if isinstance(v, list) else v for name, v in data["fields"].items()}
    vars(found).update(tuples, origin=Origin(**data.get("origin", {})))
    found.add_note(f"In the child process:\n{data['traceback']}")
    return found


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that these have; none where Linux's /proc is missing.

    Compilers run in sessions of their own, so that a signal to a process group would not reach them.
    """
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for each in map(int, path.read_text().split()):
                yield from _descendants(each)
                yield each
