"""The page `docs/profiling.md` shows the events that its program leaves in a trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "profiling.md").read_text(encoding="utf-8")


def block(label: str) -> str:
    """The code block under a label."""
    found = re.search(rf"<!-- {label} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The events of operators in the trace of the page's program, by time."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "model.py").write_text(block("program"), encoding="utf-8")
    environment = {**os.environ, "LITZ_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "model.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    return sorted((each for each in found if each.get("cat") == "cpu_op"), key=lambda each: float(each["ts"]))


def test_the_events_of_the_page(events: list[dict[str, Any]]) -> None:
    shown, ends = [], 0.0
    for event in events:
        begin, end = event["ts"], event["ts"] + event["dur"]
        if event["name"].startswith("litz graph "):
            ends = end
            shown.append(event["name"])
        elif "kernel" in event["args"] or "routine" in event["args"]:
            assert end <= ends, "it is in the range of its graph"
            shown.append(f"  {event['name']}")
        assert begin <= end
    assert "\n".join(shown) + "\n" == block("events")


def test_the_arguments_of_the_page(events: list[dict[str, Any]]) -> None:
    (softmax,) = (each["args"] for each in events if each["args"].get("kernel") == "k0_softmax")
    for name in ("kernel", "operations", "lines", "shapes"):
        value = softmax[name]
        if name == "lines":
            value = re.sub(r"at \S*model\.py", "at model.py", value)
        assert f"| `{name}` | `{value}` |" in PAGE
