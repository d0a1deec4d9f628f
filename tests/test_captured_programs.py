"""Generated modules as programs write them; `nox -s fuzz -- --kind captured` runs more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from differential.captured.draw import captured_of
from differential.captured.judge import judge_captured
from differential.captured.program import Call, CapturedProgram
from differential.captured.session import run
from differential.shrinker import shrunk

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

SEEDS = range(5)


@pytest.fixture(autouse=True)
def without_cache() -> Iterator[None]:
    """Compile every graph."""
    with litz.config.patch(cache=False):
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_a_captured_program_does_as_eager_does(seed: int) -> None:
    program = captured_of(seed)
    verdict = judge_captured(program)
    assert verdict.fault != "litz", f"{verdict.message}\nseed {seed}\n{program.as_text()}"


def test_programs_that_are_saved_are_ones_that_torch_saves() -> None:
    saved = (program for program in map(captured_of, range(1000)) if program.saved)
    faults = [judge_captured(program).fault for program in islice(saved, 4)]
    assert faults.count("none") >= 2 and set(faults) <= {"none", "rejected"}


def test_a_seed_always_gives_the_same_program() -> None:
    assert [captured_of(seed) for seed in range(20)] == [captured_of(seed) for seed in range(20)]


def test_most_programs_are_ones_that_eager_runs() -> None:
    accepted = 0
    for seed in range(40):
        try:
            run(captured_of(seed), lambda module: module)
        except Exception:
            continue
        accepted += 1
    assert accepted >= 36


def test_a_difference_is_reported_and_made_smaller() -> None:
    arguments = ("filled((3, 4), 1)", "filled((4,), 2)", "torch.tensor([0])", "2", "0.5", "True", "[]", "{}")
    call = Call(arguments, (), "no_grad")
    attributes = ("self.k, self.s, self.last = 1, 0.5, None", "self.count = self.seen = torch.tensor(0.0)")
    wrong = "t2 = t1 * 3 if torch.compiler.is_compiling() else t1 * 2"
    program = CapturedProgram(
        (*attributes, "self.v = nn.Parameter(filled((4,), 3))"),
        ("t1 = a + n", wrong, "t3 = b - 1"),
        ("t3", "t2"),
        (call, call),
        None,
    )
    verdict = judge_captured(program)
    assert verdict.fault == "torch" and verdict.message.startswith("call 0: result 1")
    smaller = CapturedProgram.smaller
    small = shrunk(program, smaller, lambda p: judge_captured(p).fault == "torch", budget=8)
    assert small.results == ("t2",) and len(small.calls) == 1
