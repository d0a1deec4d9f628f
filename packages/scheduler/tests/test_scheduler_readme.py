"""The example in the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_example_schedules_a_softmax_as_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = BLOCK.findall(README.read_text(encoding="utf-8"))
    exec(compile(block, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("plan softmax on cpu")
    assert "1 launch of 1 kernel, 0 calls, 1 storage" in printed
