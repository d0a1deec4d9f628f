"""Memory that the C library keeps for the next call."""

from __future__ import annotations

import pytest
import torch

from litz.host.runtime.torch_memory import keep_freed_memory


def test_the_thresholds_are_raised_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block a graph divided the heap, which grew by 8 MB with each."""
    allocated: list[int] = []
    monkeypatch.setattr(torch, "UntypedStorage", allocated.append)
    keep_freed_memory.cache_clear()
    keep_freed_memory()
    keep_freed_memory()
    assert len(allocated) == 1
