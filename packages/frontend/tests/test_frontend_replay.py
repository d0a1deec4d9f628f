"""CUDA graph runner: static inputs, copies of others, and results in use, which are never overwritten.

The capture is simulated on the CPU: a replay calls the function again and copies its results over the captured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import litz
from litz.cuda_graphs.eligibility import overwritten, shared_with_inputs
from litz.cuda_graphs.memory import copied, fill
from litz.cuda_graphs.partition import ROUTINES
from litz.cuda_graphs.runner import MAX_CAPTURES, WARMUP_CALLS, CudaGraphRunner
from litz.host.runtime.load import HostFunction
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_ir.text import parse_plan
from litz_scheduler.graph_partition import PartitionGraph
from litz_scheduler.graph_partition.obstacles import obstacle


@dataclass
class FakeReplay:
    """Repeats a call, and appends to ``told``."""

    told: list[str]
    again: Callable[[], None]

    def wait(self, buffers: Sequence[Tensor]) -> None:
        self.told.append(f"wait with {len(buffers)}")

    def run(self) -> None:
        self.told.append("run")
        self.again()


class Recorder:
    """Counts captures and replays; a capture reads the tensors that it was made with."""

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0
        self.given: list[list[Tensor]] = []
        self.made: list[list[Tensor]] = []
        self.told: list[str] = []
        self.free = True

    def is_free(self) -> bool:
        return self.free

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[FakeReplay, list[Any]]:
        self.captures += 1
        self.given.append(list(args))
        before = [copied([each])[0] for each in args]
        with torch.inference_mode(False), torch.no_grad():  # a replay fills them, in any mode
            kept, results = list(args), list(call(list(args)))
        self.made.append([each[...] for each in results if each is not None])
        # A capture computes nothing.
        fill(kept, before)

        def replay() -> None:
            self.replays += 1
            for old, new in zip(results, call(list(kept)), strict=True):
                if old is not None:
                    fill([old], [new])

        return FakeReplay(self.told, replay), results


def graph(function: Callable[..., Sequence[Any]]) -> HostFunction:
    """Return a function of tensors as a compiled graph: called with a list, which it empties."""

    def call(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        return function(*given)

    return call


MUCH, NOTHING = 1 << 20, 0
"""Peak memory of a call, in bytes: above that of copies of its results, or below."""

doubled = graph(lambda x, w: [x * w, None, x + w])


def test_static_inputs_are_read_in_place_and_others_are_copied() -> None:
    capture = Recorder()
    run = CudaGraphRunner(doubled, capture, MUCH)
    w, kept = torch.randn(4), []
    for _ in range(WARMUP_CALLS + 4):
        x = torch.randn(4)
        kept.append(x)
        args = [x, w]
        first, nothing, second = run(args)
        assert args == [] and nothing is None
        assert_close((first, second), (x * w, x + w))
        del first, second
    assert (capture.captures, capture.replays) == (1, 4)
    buffer, read = capture.given[0]
    assert buffer.data_ptr() not in {each.data_ptr() for each in kept}
    assert read.data_ptr() == w.data_ptr()
    w.mul_(2)
    assert_close(run([kept[0], w])[0], kept[0] * w)


def test_during_another_capture_the_call_is_made_directly() -> None:
    capture, x = Recorder(), torch.randn(4)
    run = CudaGraphRunner(doubled, capture, MUCH)
    capture.free = False
    for _ in range(WARMUP_CALLS + 2):
        assert_close(run([x, x])[0], x * x)
    assert capture.captures == 0
    capture.free = True
    for _ in range(WARMUP_CALLS + 2):
        assert_close(run([x, x])[0], x * x)
    capture.free = False
    assert_close(run([x, x])[0], x * x)
    assert (capture.captures, capture.replays) == (1, 2) and not run.obstacle


def test_arguments_are_copied_after_the_previous_replay_has_read_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capture = Recorder()
    run, kept = CudaGraphRunner(doubled, capture, MUCH), [torch.randn(4) for _ in range(WARMUP_CALLS + 3)]

    def told(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        capture.told += ["copy"] * len(targets)
        fill(targets, sources)

    for number, x in enumerate(kept):
        if number > WARMUP_CALLS:
            monkeypatch.setattr("litz.cuda_graphs.runner.fill", told)
        capture.told.clear()
        run([x, kept[0]])
    assert capture.told == ["wait with 1", "copy", "run"]


@pytest.mark.parametrize(("peak", "captures"), [(MUCH, 2), (NOTHING, 3)])
def test_results_in_use_are_not_overwritten(peak: int, captures: int) -> None:
    capture = Recorder()
    run = CudaGraphRunner(doubled, capture, peak)
    w, in_use = torch.randn(4), []
    for _ in range(WARMUP_CALLS + 5):
        x = torch.randn(4)
        result = run([x, w])[0]
        in_use.append((result.view(2, 2), x * w))
    assert capture.captures == captures, "the last copies the result out"
    for result, expected in in_use:
        assert_close(result, expected.view(2, 2))


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_two_captures_alternate_while_the_last_result_is_in_use(peak: int) -> None:
    capture, x = Recorder(), torch.randn(6)
    run, addresses = CudaGraphRunner(graph(lambda x: [x * 2, x[:2] + 1]), capture, peak), set()
    y: Tensor | None = None
    for number in range(WARMUP_CALLS + 12):
        x.fill_(number)
        before = y
        y = run([x])[0]
        assert_close(y, x * 2)
        if before is not None:
            assert_close(before, (x - 1) * 2)
            if number > WARMUP_CALLS + 1:
                addresses.add(y.data_ptr())
        del before
    memory = {each.data_ptr() for results in capture.made for each in results}
    assert capture.captures == 2
    assert (addresses <= memory) is (peak == NOTHING), "copies lie elsewhere"
    assert capture.replays == 12


def test_alternating_captures_follow_an_argument_that_moves() -> None:
    capture, x = Recorder(), torch.randn(6)
    run = CudaGraphRunner(graph(lambda x: [x * 2]), capture, NOTHING)
    for _ in range(WARMUP_CALLS + 5):
        y = run([x])[0]
    assert capture.captures == 2
    others = [torch.randn(6) for _ in range(5)]
    for each in others:
        y = run([each])[0]
        assert_close(y, each * 2)
    assert capture.captures == 4, "both read it in a buffer from then on"


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_a_result_of_one_graph_is_read_by_another(peak: int) -> None:
    """Compute ``g(f(x))``: ``g`` reads a result of ``f`` while ``f`` runs again."""
    f, g = (CudaGraphRunner(graph(lambda x: [x.sin()]), Recorder(), peak) for _ in range(2))
    x = torch.randn(8)
    for _ in range(8):
        once = f([x])[0]
        twice = f([once])[0]
        assert_close((once, twice, g([twice])[0]), (x.sin(), x.sin().sin(), x.sin().sin().sin()))


def test_results_are_not_views() -> None:
    run = CudaGraphRunner(graph(lambda x: [x + 1]), Recorder(), MUCH)
    x = torch.zeros(3)
    for _ in range(WARMUP_CALLS + 3):
        result = run([x])[0]
        assert not result._is_view()
        assert_close(result.requires_grad_().detach(), x + 1)


def test_results_follow_the_inference_mode_of_the_call() -> None:
    run = CudaGraphRunner(graph(lambda x: [x + 1, None]), Recorder(), MUCH)
    x = torch.zeros(3)
    for _ in range(WARMUP_CALLS):
        run([x])
    with torch.inference_mode():
        run([x])
        in_use, nothing = run([x])
        assert in_use.is_inference() and nothing is None
        del in_use
    result = run([x])[0]
    assert not result.is_inference()
    assert_close((result.requires_grad_() * 2).detach(), (x + 1) * 2)


def test_an_argument_that_moves_is_copied_from_then_on() -> None:
    capture = Recorder()
    run = CudaGraphRunner(graph(lambda x: [x * 3]), capture, MUCH)
    x = torch.randn(4)
    for _ in range(WARMUP_CALLS + 2):
        run([x])
    others = [torch.randn(4) for _ in range(4)]
    for each in others:
        assert_close(run([each])[0], each * 3)
    assert capture.captures == 2


def test_overwritten_arguments_are_overwritten() -> None:
    def change(x: Tensor) -> Sequence[Any]:
        x.add_(1)
        return []

    run = CudaGraphRunner(graph(change), Recorder(), MUCH, overwritten=frozenset({0}))
    for _ in range(WARMUP_CALLS + 3):
        x = torch.zeros(4)
        run([x])
        assert_close(x, torch.ones(4))


def test_a_result_in_an_arguments_memory_stays_there() -> None:
    run = CudaGraphRunner(graph(lambda x: [x.t(), x * 2]), Recorder(), MUCH, shared={0: 0})
    kept = [torch.randn(4, 3)[k : k + 2] for k in (0, 0, 1, 2, 0, 1)]
    for x in kept:
        result = run([x])[0]
        assert_close(result, x.t())
        assert result.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("stride", [(0, 1), (1, 0), (0, 0), (4, 1)])
def test_arguments_that_repeat_in_memory(stride: tuple[int, int]) -> None:
    run = CudaGraphRunner(graph(lambda x: [x * 2]), Recorder(), MUCH)
    kept = [torch.randn(20) for _ in range(WARMUP_CALLS + 3)]
    for base in kept:
        x = base.as_strided((3, 4), stride)
        assert_close(run([x])[0], x * 2)


def test_a_graph_whose_results_move_in_every_call_is_not_replayed() -> None:
    capture = Recorder()
    run = CudaGraphRunner(graph(lambda *xs: [each * 2 for each in xs]), capture, MUCH)
    fixed = [torch.randn(2) for _ in range(MAX_CAPTURES + 3)]
    for moving in range(len(fixed)):
        fixed[moving] = torch.randn(2)
        for _ in range(WARMUP_CALLS + 1):
            found = run(list(fixed))
            assert_close(tuple(found), tuple(each * 2 for each in fixed))
    assert capture.captures == MAX_CAPTURES
    assert "other addresses" in run.obstacle


def test_a_graph_that_cannot_be_captured_runs_without_cuda_graphs(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Recorder):
        def capture(self, call: HostFunction, args: list[Any]) -> tuple[FakeReplay, list[Any]]:
            raise RuntimeError("operation not permitted when stream is capturing")

    run, x = CudaGraphRunner(graph(lambda x: [x * 2]), Refusing(), MUCH), torch.randn(3)
    with caplog.at_level("WARNING", logger="litz"):
        for _ in range(WARMUP_CALLS + 3):
            assert_close(run([x])[0], x * 2)
    assert "not permitted" in run.obstacle
    assert len(caplog.records) == 1


PLAN = """
plan p on cuda "sm_90" (%x: f32[8], %y: f32[8]) -> (%o, %v, none) {
  storage s0: 32
  buffer %x: f32[8]
  buffer %y: f32[8]
  buffer %o: f32[8] in s0
  buffer %v: f32[2, 4] shares %y
  kernel k(in %a: f32, out %b: f32) {
    outer [i0: 8]
    phase [] { %b[i0] = %a[i0]; }
  }
  allocate s0
  launch k(%x, %o)
  STEP
}
"""


def plan(step: str = "", **changes: str) -> Plan:
    text = PLAN.replace("STEP", step)
    for change in changes.values():
        old, new = change.split(" -> ")
        assert old in text
        text = text.replace(old, new)
    return parse_plan(text)


def test_properties_of_a_plan() -> None:
    made = plan("launch k(%x, %y) call matmul(%x, %x)")
    assert obstacle(made, ROUTINES) == ""
    assert overwritten(made) == {1}
    assert shared_with_inputs(made) == {1: 1}


@pytest.mark.parametrize(
    ("why", "made"),
    [
        ("checks values", lambda: plan('check { true } "no"')),
        ("cannot be captured", lambda: plan("call somebody.s_routine(%x)")),
        ("by position", lambda: plan("call strided(%x, [2], [1], 3)")),
        ("is on the CPU", lambda: plan("call aten.a.b(%y)", place="%y: f32[8]\n -> %y: f32[8] on cpu\n")),
        ("is not a tensor", lambda: plan(number="%y: f32[8]) -> %y: f32[8], $n: int)")),
    ],
)
def test_obstacles_to_capture(why: str, made: Callable[[], Plan]) -> None:
    assert why in obstacle(made(), ROUTINES)


def test_a_device_without_graph_capture_replays_nothing() -> None:
    steps = plan("launch k(%x, %y) " * 8)
    found = []
    for captures in (True, False):
        machine = Capabilities("sm_90", steps.device, graph_capture=captures)
        found.append(PartitionGraph(ROUTINES).apply(steps, PassContext({steps.device: machine})))
    assert [each.whole for each in found] == [True, False]
    assert found[1].summary == "not replayed: it does not run on a GPU"


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_results_of_one_storage_share_memory_in_copies_too(peak: int) -> None:
    def rows(x: Tensor) -> Sequence[Any]:
        made = x * 2
        return [made, made.t(), made.view(torch.int32)[1:]]

    run, in_use = CudaGraphRunner(graph(rows), Recorder(), peak), []
    for _ in range(WARMUP_CALLS + 4):
        x = torch.randn(3, 4)
        in_use.append((run([x]), rows(x)))
    for found, expected in in_use:
        assert_close(found, expected)
        assert len({each.untyped_storage().data_ptr() for each in found}) == 1
        assert found[2].data_ptr() - found[0].data_ptr() == 16
    assert len({found[0].data_ptr() for found, _ in in_use}) == len(in_use)


def test_arguments_whose_elements_overlap_are_copied() -> None:
    run = CudaGraphRunner(graph(lambda x: [x.sum(0)]), Recorder(), MUCH)
    for _ in range(WARMUP_CALLS + 3):
        x = torch.randn(12).unfold(0, 4, 2)
        assert_close(run([x])[0], x.sum(0))


def test_marks_change_nothing() -> None:
    run, x = CudaGraphRunner(doubled, Recorder(), MUCH), torch.randn(4)
    kept = []
    for number in range(WARMUP_CALLS + 4):
        litz.mark_step_begin()
        kept.append((run([x * number, x])[0], x * number * x))
    for found, expected in kept:
        assert_close(found, expected)


def test_a_result_of_another_dtype_in_an_argument_s_memory() -> None:
    run = CudaGraphRunner(graph(lambda x: [x.view(torch.int32)[1:], x * 2]), Recorder(), MUCH, shared={0: 0})
    kept = [torch.randn(4, 3)[k : k + 2] for k in (0, 0, 1, 2, 0, 1)]
    for x in kept:
        result = run([x])[0]
        assert_close(result, x.view(torch.int32)[1:])
        assert result.data_ptr() == x[1:].data_ptr()
