"""Running the programs beside these tests in a process whose Triton interprets kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def lines_by_case(program: str | Path, *arguments: str, seconds: float) -> Mapping[str, dict[str, Any]]:
    """What a program prints, a line of JSON for each case, by the case's name."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}
