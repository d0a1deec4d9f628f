"""CUDA graph capture and replay on a model of streams: the work that a replay waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import litz.cuda_graphs.cuda_graph
from litz.cuda_graphs.cuda_graph import CudaGraphCapture


class Stream:
    """Work in order; ``done`` is everything that is complete when the last of it is."""

    def __init__(self, device: int = 0) -> None:
        self.done: set[str] = set()

    def ask(self, what: str) -> frozenset[str]:
        """Add work; return everything that is complete before it starts."""
        before = frozenset(self.done)
        self.done.add(what)
        return before

    def wait_stream(self, other: Stream) -> None:
        self.done |= other.done

    def wait_event(self, event: Event) -> None:
        self.done |= event.done


class Event:
    def __init__(self) -> None:
        self.done: set[str] = set()

    def record(self, stream: Stream) -> None:
        self.done = set(stream.done)


class Buffer:
    """Memory that streams use."""

    def __init__(self) -> None:
        self.users: list[Stream] = []

    def record_stream(self, stream: Stream) -> None:
        self.users.append(stream)


class Device:
    """Stands for ``torch.cuda``."""

    def __init__(self) -> None:
        self.now = Stream()
        self.captures = False
        self.replays: list[tuple[object, frozenset[str]]] = []
        self.Stream, self.Event = Stream, Event

    def CUDAGraph(self) -> Any:
        graph = SimpleNamespace(capture_begin=lambda **how: None, capture_end=lambda: None)

        def replay() -> None:
            self.replays.append((graph, self.now.ask(f"replay {len(self.replays)}")))

        graph.replay = replay
        return graph

    def current_stream(self) -> Stream:
        return self.now

    def is_current_stream_capturing(self) -> bool:
        return self.captures

    @contextmanager
    def stream(self, other: Stream) -> Iterator[None]:
        before, self.now = self.now, other
        yield
        self.now = before


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(litz.cuda_graphs.cuda_graph, "gpu", made)
    return made


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=12))
def test_memory_is_overwritten_only_after_all_its_readers(order: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        device = Device()
        patch.setattr(litz.cuda_graphs.cuda_graph, "gpu", device)
        capture, streams = CudaGraphCapture(0), [Stream() for _ in range(3)]
        replays = [capture.capture(lambda args: [], [])[0] for _ in range(2)]
        buffers: list[Any] = [Buffer(), Buffer()]
        last: dict[int, str] = {}
        first: dict[int, Stream] = {}
        for number, (which, stream) in enumerate(order):
            with device.stream(streams[stream]):
                replays[which].wait([buffers[which]])
                copied = device.now.ask(f"copy arguments {number}")
                replays[which].run()
                device.now.ask(f"read results {number}")
            _, before = device.replays[-1]
            assert last.get(which, "") in {"", *copied}, "what read the last results has run"
            made_on = first.setdefault(which, streams[stream])
            assert streams[stream] in (made_on, *buffers[which].users), "memory is free once this has run"
            last[which] = f"read results {number}"
            assert {f"replay {k}" for k in range(number)} <= before, "workspaces are shared"


def test_replays_on_one_stream_wait_for_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, results = CudaGraphCapture(0).capture(lambda args: [torch.ones(1)], [])
    monkeypatch.setattr(Stream, "wait_stream", lambda self, other: pytest.fail("it waited"))
    monkeypatch.setattr(Stream, "wait_event", lambda self, event: pytest.fail("it waited"))
    for _ in range(3):
        replay.wait([])
        replay.run()
    assert len(device.replays) == 3 and len(results) == 1


def test_a_stream_being_captured_is_not_free(device: Device) -> None:
    capture = CudaGraphCapture(0)
    assert capture.is_free()
    device.captures = True
    assert not capture.is_free()
