"""Program of a child process that compiles graphs and has the fault that the variable ``CHILD_FAULT`` names.

It is litz's own program with one function replaced, run by the path of this file.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import litz_ir

PROGRAM = Path(os.environ["LITZ_WORKER"])
spec = importlib.util.spec_from_file_location("worker", PROGRAM)
assert spec is not None and spec.loader is not None and litz_ir
worker: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
planned, built = worker._planned, worker._built


def killed(*args: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault(*args: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(*args: Any) -> Any:
    time.sleep(600)


def hang_with_compiler(*args: Any) -> Any:
    subprocess.run(["sleep", "600"], start_new_session=True)


def hungry(*args: Any) -> Any:
    return bytearray(64 << 30)


def babbling(*args: Any) -> Any:
    print("some text of a compiler", flush=True)
    os.write(1, b"\xff{}\n")
    return planned(*args)


def garbage(*args: Any) -> Any:
    os.write(int(sys.argv[2]), b"no answer\n")
    return planned(*args)


def other_file(*args: Any) -> Any:
    built(*args)
    return "/etc/passwd"


def polite_end(*args: Any) -> Any:
    print("good bye", flush=True)
    os._exit(3)


def refused(*args: Any) -> Any:
    raise ValueError("no plan today")


FAULT = os.environ["CHILD_FAULT"]
setattr(worker, "_built" if FAULT in ("other_file", "hang_with_compiler") else "_planned", globals()[FAULT])
worker.main(*(int(each) for each in sys.argv[1:3]))
