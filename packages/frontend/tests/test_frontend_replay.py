"""Graphs that are recorded and replayed: what is read where, and that nothing a caller holds is overwritten.

The recorder is one of the CPU: to repeat a call is to make it again, and to copy what it gives over what it gave.
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
from litz.cuda_graphs.eligibility import ROUTINES, overwritten, shared_with_inputs
from litz.cuda_graphs.memory import copied, fill
from litz.cuda_graphs.runner import MAX_CAPTURES, WARMUP_CALLS, CudaGraphRunner
from litz.host.load import HostFunction
from litz_ir.plan import Plan
from litz_ir.text import parse_plan
from litz_scheduler.graph_partition.obstacles import obstacle


@dataclass
class Repetition:
    """Repeats a call, and says so to ``told``."""

    told: list[str]
    again: Callable[[], None]

    def wait(self, buffers: Sequence[Tensor]) -> None:
        self.told.append(f"wait with {len(buffers)}")

    def run(self) -> None:
        self.told.append("run")
        self.again()


class Recorder:
    """Counts recordings and replays; a recording reads the very tensors that it was made with."""

    def __init__(self) -> None:
        self.recordings = 0
        self.replays = 0
        self.given: list[list[Tensor]] = []
        self.made: list[list[Tensor]] = []
        self.told: list[str] = []
        self.free = True

    def is_free(self) -> bool:
        return self.free

    def capture(self, call: HostFunction, args: list[Any]) -> tuple[Repetition, list[Any]]:
        self.recordings += 1
        self.given.append(list(args))
        before = [copied([each])[0] for each in args]
        with torch.inference_mode(False), torch.no_grad():  # a replay fills them, in any mode
            kept, results = list(args), list(call(list(args)))
        self.made.append([each[...] for each in results if each is not None])
        # A recording computes nothing.
        fill(kept, before)

        def replay() -> None:
            self.replays += 1
            for old, new in zip(results, call(list(kept)), strict=True):
                if old is not None:
                    fill([old], [new])

        return Repetition(self.told, replay), results


def graph(function: Callable[..., Sequence[Any]]) -> HostFunction:
    """A function of tensors as a compiled graph is called: with a list, which it empties."""

    def call(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        return function(*given)

    return call


MUCH, NOTHING = 1 << 20, 0
"""What calls take for themselves at once: so much that two recordings take more than copies of results, or less."""

doubled = graph(lambda x, w: [x * w, None, x + w])


def test_what_lies_still_is_read_where_it_lies_and_the_rest_is_copied() -> None:
    recorder = Recorder()
    run = CudaGraphRunner(doubled, recorder, MUCH)
    w, kept = torch.randn(4), []
    for _ in range(WARMUP_CALLS + 4):
        x = torch.randn(4)
        kept.append(x)
        args = [x, w]
        first, nothing, second = run(args)
        assert args == [] and nothing is None
        assert_close((first, second), (x * w, x + w))
        del first, second
    assert (recorder.recordings, recorder.replays) == (1, 4)
    buffer, read = recorder.given[0]
    assert buffer.data_ptr() not in {each.data_ptr() for each in kept}
    assert read.data_ptr() == w.data_ptr()
    w.mul_(2)
    assert_close(run([kept[0], w])[0], kept[0] * w)


def test_what_somebody_else_records_is_called_as_it_is() -> None:
    recorder, x = Recorder(), torch.randn(4)
    run = CudaGraphRunner(doubled, recorder, MUCH)
    recorder.free = False
    for _ in range(WARMUP_CALLS + 2):
        assert_close(run([x, x])[0], x * x)
    assert recorder.recordings == 0
    recorder.free = True
    for _ in range(WARMUP_CALLS + 2):
        assert_close(run([x, x])[0], x * x)
    recorder.free = False
    assert_close(run([x, x])[0], x * x)
    assert (recorder.recordings, recorder.replays) == (1, 2) and not run.obstacle


def test_arguments_are_copied_once_what_reads_the_last_ones_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    run, kept = CudaGraphRunner(doubled, recorder, MUCH), [torch.randn(4) for _ in range(WARMUP_CALLS + 3)]

    def told(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        recorder.told += ["copy"] * len(targets)
        fill(targets, sources)

    for number, x in enumerate(kept):
        if number > WARMUP_CALLS:
            monkeypatch.setattr("litz.cuda_graphs.runner.fill", told)
        recorder.told.clear()
        run([x, kept[0]])
    assert recorder.told == ["wait with 1", "copy", "run"]


@pytest.mark.parametrize(("peak", "recordings"), [(MUCH, 2), (NOTHING, 3)])
def test_results_that_are_held_stay_what_they_are(peak: int, recordings: int) -> None:
    recorder = Recorder()
    run = CudaGraphRunner(doubled, recorder, peak)
    w, held = torch.randn(4), []
    for _ in range(WARMUP_CALLS + 5):
        x = torch.randn(4)
        result = run([x, w])[0]
        held.append((result.view(2, 2), x * w))
    assert recorder.recordings == recordings, "the last copies the result out"
    for result, expected in held:
        assert_close(result, expected.view(2, 2))


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_two_recordings_take_turns_where_the_last_result_is_held(peak: int) -> None:
    recorder, x = Recorder(), torch.randn(6)
    run, places = CudaGraphRunner(graph(lambda x: [x * 2, x[:2] + 1]), recorder, peak), set()
    y: Tensor | None = None
    for number in range(WARMUP_CALLS + 12):
        x.fill_(number)
        before = y
        y = run([x])[0]
        assert_close(y, x * 2)
        if before is not None:
            assert_close(before, (x - 1) * 2)
            if number > WARMUP_CALLS + 1:
                places.add(y.data_ptr())
        del before
    taken = {each.data_ptr() for results in recorder.made for each in results}
    assert recorder.recordings == 2
    assert (places <= taken) is (peak == NOTHING), "copies lie elsewhere"
    assert recorder.replays == 12


def test_recordings_that_take_turns_follow_an_argument_that_moves() -> None:
    recorder, x = Recorder(), torch.randn(6)
    run = CudaGraphRunner(graph(lambda x: [x * 2]), recorder, NOTHING)
    for _ in range(WARMUP_CALLS + 5):
        y = run([x])[0]
    assert recorder.recordings == 2
    others = [torch.randn(6) for _ in range(5)]
    for each in others:
        y = run([each])[0]
        assert_close(y, each * 2)
    assert recorder.recordings == 4, "both read it in a buffer from then on"


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_one_result_over_the_other_of_another_call(peak: int) -> None:
    """``g(f(x))``: what ``f`` gave is read by ``g`` while ``f`` runs again."""
    f, g = (CudaGraphRunner(graph(lambda x: [x.sin()]), Recorder(), peak) for _ in range(2))
    x = torch.randn(8)
    for _ in range(8):
        once = f([x])[0]
        twice = f([once])[0]
        assert_close((once, twice, g([twice])[0]), (x.sin(), x.sin().sin(), x.sin().sin().sin()))


def test_results_are_tensors_of_their_own() -> None:
    run = CudaGraphRunner(graph(lambda x: [x + 1]), Recorder(), MUCH)
    x = torch.zeros(3)
    for _ in range(WARMUP_CALLS + 3):
        result = run([x])[0]
        assert not result._is_view()
        assert_close(result.requires_grad_().detach(), x + 1)


def test_results_are_of_the_mode_in_which_they_are_asked_for() -> None:
    run = CudaGraphRunner(graph(lambda x: [x + 1, None]), Recorder(), MUCH)
    x = torch.zeros(3)
    for _ in range(WARMUP_CALLS):
        run([x])
    with torch.inference_mode():
        run([x])
        held, nothing = run([x])
        assert held.is_inference() and nothing is None
        del held
    result = run([x])[0]
    assert not result.is_inference()
    assert_close((result.requires_grad_() * 2).detach(), (x + 1) * 2)


def test_an_argument_that_moves_is_copied_from_then_on() -> None:
    recorder = Recorder()
    run = CudaGraphRunner(graph(lambda x: [x * 3]), recorder, MUCH)
    x = torch.randn(4)
    for _ in range(WARMUP_CALLS + 2):
        run([x])
    others = [torch.randn(4) for _ in range(4)]
    for each in others:
        assert_close(run([each])[0], each * 3)
    assert recorder.recordings == 2


def test_what_the_call_changes_is_changed() -> None:
    def change(x: Tensor) -> Sequence[Any]:
        x.add_(1)
        return []

    run = CudaGraphRunner(graph(change), Recorder(), MUCH, overwritten=frozenset({0}))
    for _ in range(WARMUP_CALLS + 3):
        x = torch.zeros(4)
        run([x])
        assert_close(x, torch.ones(4))


def test_a_result_in_an_argument_s_memory_is_there() -> None:
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


def test_a_graph_whose_results_are_somewhere_else_every_time_runs_as_it_is() -> None:
    recorder = Recorder()
    run = CudaGraphRunner(graph(lambda *xs: [each * 2 for each in xs]), recorder, MUCH)
    fixed = [torch.randn(2) for _ in range(MAX_CAPTURES + 3)]
    for moving in range(len(fixed)):
        fixed[moving] = torch.randn(2)
        for _ in range(WARMUP_CALLS + 1):
            found = run(list(fixed))
            assert_close(tuple(found), tuple(each * 2 for each in fixed))
    assert recorder.recordings == MAX_CAPTURES
    assert "somewhere else" in run.obstacle


def test_a_graph_that_cannot_be_recorded_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Recorder):
        def capture(self, call: HostFunction, args: list[Any]) -> tuple[Repetition, list[Any]]:
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


def test_what_a_plan_says() -> None:
    made = plan("launch k(%x, %y) call matmul(%x, %x)")
    assert obstacle(made, ROUTINES) == ""
    assert overwritten(made) == {1}
    assert shared_with_inputs(made) == {1: 1}


@pytest.mark.parametrize(
    ("why", "made"),
    [
        ("not run on a GPU", lambda: plan(device="on cuda -> on cpu")),
        ("checks values", lambda: plan('check { true } "no"')),
        ("cannot be captured", lambda: plan("call somebody.s_routine(%x)")),
        ("by position", lambda: plan("call strided(%x, [2], [1], 3)")),
        ("is on the CPU", lambda: plan("call aten.a.b(%y)", place="%y: f32[8]\n -> %y: f32[8] on cpu\n")),
        ("is not a tensor", lambda: plan(number="%y: f32[8]) -> %y: f32[8], $n: int)")),
    ],
)
def test_what_cannot_be_recorded(why: str, made: Callable[[], Plan]) -> None:
    assert why in obstacle(made(), ROUTINES)


@pytest.mark.parametrize("peak", [MUCH, NOTHING])
def test_results_that_share_memory_share_it_in_their_copies(peak: int) -> None:
    def rows(x: Tensor) -> Sequence[Any]:
        made = x * 2
        return [made, made.t(), made.view(torch.int32)[1:]]

    run, held = CudaGraphRunner(graph(rows), Recorder(), peak), []
    for _ in range(WARMUP_CALLS + 4):
        x = torch.randn(3, 4)
        held.append((run([x]), rows(x)))
    for found, expected in held:
        assert_close(found, expected)
        assert len({each.untyped_storage().data_ptr() for each in found}) == 1
        assert found[2].data_ptr() - found[0].data_ptr() == 16
    assert len({found[0].data_ptr() for found, _ in held}) == len(held)


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
