"""Run a script of this folder in a process and on cache folders of its own, and read the JSON line that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

Row = dict[str, Any]


def answer(script: str, arguments: list[str], folder: str, threads: int, limit: float) -> Row:
    """Run a script and return its row; a failure, or no answer within `limit` seconds, is a row with `failure`."""
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "LITZ_CACHE_DIR": f"{folder}/litz",
        "XDG_CACHE_HOME": f"{folder}/other",
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, str(HERE / script), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failure": f"no answer within {limit:.0f} s"}
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failure": said[-1][:300]}
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return row
