"""`litz.bench` on the CPU, and on stand-ins for CUDA events and the profiler."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import litz
import litz.timing
from litz.timing import LEAST_CALLS, WARM_CALLS, sampler


def test_a_call_is_timed_by_the_clock() -> None:
    calls: list[float] = []

    def work(seconds: float) -> None:
        calls.append(seconds)
        time.sleep(seconds)

    found = litz.bench(work, 0.002, seconds=0.05)
    assert found.clock == "host" and 0.002 <= found.low <= found.median <= found.high
    assert len(calls) == found.calls + WARM_CALLS and found.calls >= LEAST_CALLS
    assert found.rate(1000) == 1000 / found.median
    assert str(found).endswith("calls by host)")


def test_a_minimum_of_calls_is_made_without_time() -> None:
    assert litz.bench(torch.ones, 3, seconds=0.0).calls == LEAST_CALLS


@pytest.mark.parametrize("clock", ["events", "profiler"])
def test_a_missing_clock_is_refused(clock: litz.timing.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=f"nothing can be timed by {clock}"):
        litz.bench(torch.ones, 3, clock=clock)


class Device:
    """A stand-in for a GPU that notes its calls in order; each event is a second after the previous one."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.time = 0.0

    def event(self, enable_timing: bool) -> SimpleNamespace:
        made = SimpleNamespace(synchronize=lambda: self.seen.append("wait"))

        def record() -> None:
            self.time += 1.0
            made.at = self.time
            self.seen.append("event")

        made.record = record
        made.elapsed_time = lambda later: 1e3 * (later.at - made.at)
        return made


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    zero = SimpleNamespace(zero_=lambda: found.seen.append("flush"))

    def empty(nbytes: int, **_: object) -> SimpleNamespace:
        assert nbytes >= 4 * (50 << 20)
        return zero

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    properties = SimpleNamespace(L2_cache_size=50 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    monkeypatch.setattr("litz.timing.torch.empty", empty)
    return found


@pytest.mark.parametrize("flush", [True, False])
def test_the_cache_is_emptied_before_the_first_event(device: Device, flush: bool) -> None:
    sample = sampler("events", flush=flush)
    assert sample(lambda: device.seen.append("call")) == 1.0
    assert device.seen == ["flush"] * flush + ["event", "call", "event", "wait"]


def test_the_profiler_counts_gpu_activities(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def event(kind: str, micro: float, named: bool = False) -> SimpleNamespace:
        return SimpleNamespace(
            device_type=SimpleNamespace(name=kind),
            time_range=SimpleNamespace(elapsed_us=lambda: micro),
            is_user_annotation=named,
        )

    class Profile:
        def __init__(self, activities: list[object]) -> None:
            device.seen.append("profile")

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None:
            device.seen.append("end")

        def events(self) -> list[SimpleNamespace]:
            kernels = [event("CUDA", 3.0), event("CUDA", 4.0)]
            return [event("CPU", 50.0), *kernels, event("CUDA", 9.0, named=True)]

    monkeypatch.setattr("litz.timing.profile", Profile)
    call: Callable[[], object] = lambda: device.seen.append("call")  # noqa: E731  one line is enough
    assert sampler("profiler")(call) == pytest.approx(7e-6)
    assert device.seen == ["flush", "profile", "call", "end"]
