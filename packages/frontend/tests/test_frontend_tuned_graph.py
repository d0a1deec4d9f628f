"""Calls of a tuned graph, over a fake loader and search: order, capture and threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from litz.artifact import TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.loading import Loader
from litz.reports.failures import Failures
from litz.settings import Config
from litz.tuning.search import TileSearch
from litz.tuning.tuned_graph import TunedGraph


class FakeLoader:
    """A loader and a search that note their calls; the search is over after ``calls`` calls."""

    def __init__(self, calls: int = 1, kind: str = "cpu") -> None:
        self.seen: list[str] = []
        self.found: dict[str, TunedTiles] = {}
        self.spent = 0.0
        self.name = "fake"
        self.failures = Failures(Config())
        self.artifact = SimpleNamespace(
            plan=SimpleNamespace(device=SimpleNamespace(kind=kind), name="g", kernels=())
        )
        self._left = calls

    def call(self) -> Callable[[list[Any]], Sequence[Any]]:
        return partial(self._note, "plain")

    def begun(self) -> bool:
        return True

    def run(self, args: list[Any]) -> Sequence[Any]:
        self._left -= 1
        return self._note("search", args)

    @property
    def over(self) -> bool:
        return self._left == 0

    def with_cuda_graphs(self, call: Callable[..., Any]) -> Callable[[list[Any]], Sequence[Any]]:
        assert self.over, "nothing is captured before"
        return partial(self._note, "captured")

    def tuned(self) -> TunedGraph:
        return TunedGraph(
            cast(Loader, self), cast(TileSearch, self), ArtifactCache(None, None), lambda: lambda _: 0.0
        )

    def _note(self, what: str, args: list[Any]) -> Sequence[Any]:
        self.seen.append(what)
        return []


@pytest.fixture(autouse=True)
def no_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tuning change nothing: the plan of a fake loader has no kernels."""
    monkeypatch.setattr("litz.tuning.tuned_graph.changes", lambda *_: {})


def test_capture_waits_for_the_end_of_the_search() -> None:
    fake = FakeLoader(calls=2)
    call = fake.tuned()
    for _ in range(5):
        call([])
    assert fake.seen == ["plain", "search", "search", "captured", "captured"]


def test_calls_that_are_being_captured_do_not_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    fake = FakeLoader(kind="cuda")
    call = fake.tuned()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for _ in range(3):
        call([])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    call([])
    assert fake.seen == ["plain", "plain", "plain", "search"]


def test_other_threads_do_not_wait_for_the_search() -> None:
    fake = FakeLoader()
    call = fake.tuned()
    call([])
    inside = fake.run

    def searching(args: list[Any]) -> Sequence[Any]:
        other = threading.Thread(target=call, args=([],))
        other.start()
        other.join(timeout=20)
        return inside(args)

    fake.run = searching  # type: ignore[method-assign]  # another thread calls meanwhile
    call([])
    call([])
    assert fake.seen == ["plain", "plain", "search", "captured"]
