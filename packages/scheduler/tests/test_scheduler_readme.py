"""The examples in the README run as they stand, one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_examples_schedule_a_softmax_as_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in BLOCK.findall(README.read_text(encoding="utf-8")):
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("plan softmax on cpu")
    assert "1 launch of 1 kernel, 0 calls, 1 storage" in printed
    names_of_passes = next(line for line in printed.splitlines() if "fuse-attention" in line)
    assert "split-scans" in names_of_passes and "split-reductions" not in names_of_passes
    assert printed.endswith("the plans are equal\n")
