"""Compiled graphs under torch's profiler: events of graphs, kernels and library calls in Chrome traces, with their
operations, the user's lines and shapes; without a profiler calls are made as before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from launched_on_cpu import LaunchedCpu, stand_in
from torch.profiler import ProfilerActivity, profile

import litz
import litz.profiling.calls as calls
from litz.targets import TargetSet

GRAPH = "litz graph "


@dataclass(frozen=True)
class Seen:
    """An event of a Chrome trace."""

    name: str
    thread: int
    begin: float
    end: float
    facts: dict[str, Any]

    def inside(self, other: Seen) -> bool:
        return self.thread == other.thread and other.begin <= self.begin and self.end <= other.end


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache_dir=str(tmp_path / "cache"), fallback="error"):
        yield


def traced(work: Callable[[], object], folder: Path, **options: Any) -> list[Seen]:
    """The ranges of a Chrome trace of some work."""
    options = {"record_shapes": True, **options}
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        work()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [
        Seen(each["name"], each["tid"], each["ts"], each["ts"] + each["dur"], each.get("args", {}))
        for each in events
        if each.get("cat") == "cpu_op"
    ]


def named(events: list[Seen], start: str) -> list[Seen]:
    return [each for each in events if each.name.startswith(start)]


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 0.125, -1)
    z = y @ w
    return torch.relu(z) + z.sin()


FIRST = model.__code__.co_firstlineno
"""Number of the line that begins the model."""


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(48, 96), torch.randn(96, 32, requires_grad=True)


def test_events_of_forward_and_backward_cold_and_warm(tmp_path: Path) -> None:
    x, w = arguments()
    wanted = model(x, w)
    (gradient,) = torch.autograd.grad(wanted.sum(), w)
    for _ in ("cold", "warm"):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="litz")
        before, results = training_step(compiled, x, w), list[torch.Tensor]()
        events = traced(partial(training_step, compiled, x, w, results), tmp_path)
        torch.testing.assert_close(results, [wanted.detach(), gradient])
        assert all(map(torch.equal, results, before)), "events change no value"

        forward, backward = named(events, GRAPH)
        assert forward.name.startswith(GRAPH + "forward") and backward.name.startswith(GRAPH + "backward")
        assert forward.facts["shapes"] == "float32[48, 96], float32[96, 32]"

        (softmax,) = named(events, "k0_softmax")
        assert softmax.inside(forward) and not softmax.inside(backward)
        assert softmax.name == f"k0_softmax: mul, _softmax_max, _softmax_exp and 2 more ({place(1)})"
        facts = softmax.facts
        assert facts["kernel"] == "k0_softmax" and facts["operations"].split()[0] == "mul"
        assert f"{place(1)}: y = torch.softmax(x * 0.125, -1)" in facts["lines"]
        assert facts["shapes"] == "float32[48, 96] -> float32[48, 96]"

        first, second = named(events, "aten.mm.default")
        assert first.name == f"aten.mm.default: mm ({place(2)})"
        assert first.facts["routine"] == "aten.mm.default" and first.facts["reason"]
        assert first.facts["Input Dims"][:2] == [[48, 96], [96, 32]]
        assert first.inside(forward) and second.inside(backward)
        inner = named(events, "aten::mm")
        assert [any(own.inside(call) for own in inner) for call in (first, second)] == [True, True]

        kernels = [each for each in events if "kernel" in each.facts]
        assert {each.inside(forward) for each in kernels} == {True, False}
        assert all(each.inside(forward) or each.inside(backward) for each in kernels)
        order = sorted([*kernels, first, second], key=lambda each: each.begin)
        assert all(a.end <= b.begin for a, b in pairwise(order)), "steps follow each other"


def training_step(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    w: torch.Tensor,
    found: list[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The result of a function and its gradient by ``w``, added to ``found``."""
    found = [] if found is None else found
    result = function(x, w)
    found += [result.detach(), *torch.autograd.grad(result.sum(), w)]
    return found


def place(line: int) -> str:
    """A line of the model as event names show it."""
    return f"{Path(__file__).name}:{FIRST + line}"


def test_names_tell_what_runs_where_shapes_are_not_asked_for(tmp_path: Path) -> None:
    compiled = torch.compile(model, backend="litz")
    x, w = arguments()
    compiled(x, w)
    events = traced(lambda: compiled(x, w), tmp_path, record_shapes=False)
    (softmax,) = named(events, "k0_softmax: mul")
    assert "shapes" not in softmax.facts and place(1) in softmax.name


def test_dynamic_sizes_are_numbers(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: torch.softmax(x, -1), backend="litz", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 24)
        events = traced(lambda: compiled(x), tmp_path)  # noqa: B023  it is called at once
        (kernel,) = [each for each in events if "kernel" in each.facts]
        assert kernel.facts["shapes"] == f"float32[{rows}, 24] -> float32[{rows}, 24]"
        assert torch.allclose(compiled(x), torch.softmax(x, -1))


def test_lines_that_a_trace_cannot_quote_are_kept(tmp_path: Path) -> None:
    def quoted(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * (2 if "\\" in "a\"\\" else 3)  # fmt: skip

    compiled = torch.compile(quoted, backend="litz")
    x = torch.randn(7)
    events = traced(lambda: compiled(x), tmp_path)
    (kernel,) = [each for each in events if "kernel" in each.facts]
    assert "return x.sin() * (2 if '//' in 'a/'//' else 3)" in kernel.facts["lines"]


def test_the_plain_call_is_used_when_the_profiler_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[str] = []
    event = calls.Event

    def count(name: str, *given: Any) -> Any:
        observed.append(name)
        return event(name, *given)

    monkeypatch.setattr(calls, "Event", count)
    compiled = torch.compile(lambda x: x.sin() + 1, backend="litz")
    x = torch.randn(9)
    wanted = compiled(x)
    assert not observed
    assert len(named(traced(lambda: compiled(x), tmp_path), GRAPH)) == 1 == len(observed)
    assert torch.equal(compiled(x), wanted) and len(observed) == 1
    with profile(activities=[ProfilerActivity.CPU]):
        assert torch.equal(compiled(x), wanted)
    assert len(observed) == 2, "another profiler sees it too"


def test_a_profiler_with_a_schedule() -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="litz")
    x, seen = torch.randn(9), list[str]()
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)

    def ready(profiler: Any) -> None:
        seen.extend(each.name for each in profiler.events())

    with profile(activities=[ProfilerActivity.CPU], schedule=schedule, on_trace_ready=ready) as profiler:
        for _ in range(4):
            compiled(x)
            profiler.step()
    assert sum(name.startswith(GRAPH) for name in seen) == 1


def test_arenas_are_seen_as_memory(tmp_path: Path) -> None:
    compiled = torch.compile(model, backend="litz")
    x, w = arguments()
    compiled(x, w)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = compiled(x, w)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    changes = [each["args"]["Bytes"] for each in events if each.get("name") == "[memory]"]
    assert 4 * 48 * 96 in changes, "the softmax"
    assert sum(changes) >= result.nbytes, "what is returned or saved is not freed"


def test_prepacked_weights_are_prepacked_once(tmp_path: Path) -> None:
    layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    compiled = torch.compile(layer, backend="litz")
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad(), litz.config.patch(force="tile_flops=0"):
        wanted = layer(x)
        compiled(x)
        events = traced(lambda: compiled(x), tmp_path)
        assert named(events, "convolution: ") and not named(events, "prepack_convolution")
        torch.testing.assert_close(compiled(x), wanted)
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="litz")
        first = traced(lambda: compiled(x), tmp_path)
        assert named(first, "prepack_convolution: "), "a first call under the profiler shows it"
        assert not named(traced(lambda: compiled(x), tmp_path), "prepack_convolution")
        torch.testing.assert_close(compiled(x), wanted)


def test_branches_have_events(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))
        return result

    compiled = torch.compile(program, backend="litz")
    x = torch.ones(30)
    for given, operation in ((x, "sin"), (-x, "cos")):
        events = traced(lambda: compiled(given), tmp_path)  # noqa: B023  it is called at once
        operations = [each.facts.get("operations", "") for each in events]
        assert sum(operation in each.split() for each in operations) == 1
        torch.testing.assert_close(compiled(given), program(given))


def test_threads_under_one_profiler(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="litz")
    x = torch.randn(40)
    wanted, found = compiled(x), list[torch.Tensor]()

    def work() -> None:
        threads = [threading.Thread(target=lambda: found.append(compiled(x))) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    traced(work, tmp_path)
    assert len(found) == 4 and all(torch.equal(each, wanted) for each in found)


def test_a_failure_to_make_events_costs_the_events_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with litz.config.patch(fallback="warn"):
        compiled = torch.compile(lambda x: x.sin() + 1, backend="litz")
        x = torch.randn(9)
        wanted = compiled(x)

        def refuse(*_: object) -> None:
            raise MemoryError("injected")

        monkeypatch.setattr("litz.profiling.events.StepEvents.__init__", refuse)
        events = traced(lambda: compiled(x), tmp_path)
        assert len(named(events, GRAPH)) == 1 and not any("kernel" in each.facts for each in events)
        assert torch.equal(compiled(x), wanted)
    assert "the profiler does not see the steps of inference" in caplog.text


def test_launches_as_on_a_gpu_are_inside_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    target = LaunchedCpu()
    monkeypatch.setattr("litz.compilation.compilation.targets_for", lambda *_: TargetSet({"cpu": target}))
    monkeypatch.setattr("litz.capture.aot.targets_for", lambda *_: TargetSet({"cpu": target}))
    compiled = torch.compile(model, backend="litz")
    x, w = torch.randn(48, 96), torch.randn(96, 32)
    wanted = compiled(x, w)
    open_ranges: list[list[str]] = []
    inside: list[str] = []

    class Noted:
        """An event that notes the launches inside it."""

        def __init__(self, name: str, *_: object) -> None:
            self.name = name

        def __enter__(self) -> None:
            inside.append(self.name)

        def __exit__(self, *_: object) -> None:
            inside.pop()

    launch = target.driver._launch

    def launched(entry: str, block: Any) -> None:
        open_ranges.append([*inside, entry.rpartition(" ")[2]])
        launch(entry, block)

    monkeypatch.setattr(target.driver, "_launch", launched)
    monkeypatch.setattr(calls, "Event", Noted)
    monkeypatch.setattr("litz.profiling.events.Event", Noted)
    with profile(activities=[ProfilerActivity.CPU]):
        assert torch.equal(compiled(x, w), wanted)
    assert len(open_ranges) >= 2
    for graph, kernel, entry in open_ranges:
        assert graph.startswith(GRAPH) and kernel.startswith(f"{entry}: ")
    assert open_ranges[0][1:] == [
        f"k0_softmax: mul, _softmax_max, _softmax_exp and 2 more ({place(1)})", "k0_softmax"
    ]  # fmt: skip
