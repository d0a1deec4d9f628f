"""Run programs, each in a fork of a process that has imported litz and Dynamo, which take most of a short one's time.

``python tests/forked_programs.py PROGRAM ...`` prints a line of JSON for each: its path, its exit code, negative for a
signal, and what it printed.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  programs import these

import litz  # noqa: F401

SECONDS = 150
"""Seconds after which a program is ended."""


def outcomes_of(programs: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """Run programs from a process of its own; the result maps each to its ``code`` and ``text``."""
    command = [sys.executable, __file__, *map(str, programs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return dict(zip(programs, map(json.loads, done.stdout.splitlines()), strict=True))


def run(program: Path) -> dict[str, Any]:
    """Run a program in its folder and return its line."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            _become(program, printed.fileno())
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    return {"program": str(program), "code": os.waitstatus_to_exitcode(status), "text": text}


def _become(program: Path, output: int) -> None:
    """Run a program in this process, which it ends."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(program.parent)
    signal.alarm(SECONDS)
    sys.argv, sys.path[0] = [str(program)], str(program.parent)
    code = 0
    try:
        runpy.run_path(str(program), run_name="__main__")
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(run(Path(name).resolve())), flush=True)
