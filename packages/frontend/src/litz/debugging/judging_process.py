"""The other side of the worker: it is started, asked, and started again where it ends or takes too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from litz.debugging.replay import Replay
from litz.debugging.verdict import Check
from litz_ir.errors import ConfigError

_WORKER = "litz.debugging.worker"
"""Module that the process runs."""


@dataclass(slots=True)
class JudgingProcess:
    """A process for many graphs; it inherits this process's import path and environment."""

    modules: Sequence[str] = ()
    """Modules that it imports first, such as those that register operators."""

    timeout: float = 120.0
    """Most seconds for one graph, after which the process is ended."""

    restarts: int = 0
    """Number of processes that ended or were ended."""

    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def failure(self, graph: Path, replay: Replay, check: Check, ratio: float) -> str:
        """Return the kind of the failure of a written graph: that of :func:`litz.debugging.verdict.failure`, or the end
        of the process by a signal, or ``timeout``.

        Raises :class:`~litz_ir.errors.ConfigError` where the process does not start, since a module is not found.
        """
        request = {"graph": str(graph), "replay": asdict(replay), "check": check, "ratio": ratio}
        process = self._process or self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended(process)
        waiting = select.poll()  # select.select takes no descriptor above 1023
        waiting.register(process.stdout, select.POLLIN)
        if not waiting.poll(1e3 * self.timeout):
            self.close()
            self.restarts += 1
            return "timeout"
        answer = process.stdout.readline()
        return str(json.loads(answer)) if answer else self._ended(process)

    def close(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def _ended(self, process: subprocess.Popen[str]) -> str:
        """Return the kind of the end of the process."""
        code = process.wait()
        self.close()
        self.restarts += 1
        return f"the process ended by signal {-code}" if code < 0 else f"the process ended with {code}"

    def _started(self) -> subprocess.Popen[str]:
        """Start the process, and return it once it is ready."""
        path = os.pathsep.join(each for each in sys.path if each)
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER, *self.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert process.stdout is not None
        if not process.stdout.readline():
            end = self._ended(process)
            raise ConfigError(
                f"the process that tries graphs does not start: {end}",
                hint=f"python -m {' '.join([_WORKER, *self.modules])} shows why",
            )
        return process
