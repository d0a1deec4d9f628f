"""Generated programs against eager, in a fixed number; `nox -s fuzz` runs more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from differential.generator import COMPLEX, program_of, programs
from differential.judge import check, judge
from differential.programs import Base, Input, Program
from differential.run import KINDS, ON_DEVICES, Row, options, slices
from differential.shrinker import shrunk, smaller_programs
from hypothesis import given, settings
from torch import Tensor

pytestmark = pytest.mark.sampled  # it compiles whole programs

Step = Callable[[Tensor], Tensor]
CHUNK, CHUNKS = 10, 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_programs_do_as_eager_does(chunk: int) -> None:
    compared = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        program = program_of(seed)
        verdict = judge(program)
        assert verdict.fault != "litz", f"{verdict.message}\n{program.as_test(f'program_of_seed_{seed}')}"
        compared += verdict.fault == "none"
    assert compared >= CHUNK // 2, "most programs are fit to be compared"


def test_generated_programs_over_complex_tensors_do_as_eager_does() -> None:
    compared = 0
    for seed in range(CHUNK):
        program = program_of(seed, COMPLEX)
        verdict = judge(program)
        assert verdict.fault != "litz", (
            f"{verdict.message}\n{program.as_test(f'complex_program_of_seed_{seed}')}"
        )
        compared += verdict.fault == "none"
    assert compared >= CHUNK // 2, "most programs are fit to be compared"


@settings(max_examples=2)
@given(programs())
def test_programs_that_hypothesis_draws_do_as_eager_does(program: Program) -> None:
    verdict = judge(program)
    assert verdict.fault != "litz", f"{verdict.message}\n{program.as_test('drawn_program')}"


def test_a_seed_always_gives_the_same_program() -> None:
    assert [program_of(seed) for seed in range(20)] == [program_of(seed) for seed in range(20)]


def test_a_program_that_goes_wrong_is_made_smaller() -> None:
    program = next(p for p in map(program_of, range(100)) if any(".flip(" in s.text for s in p.statements))

    def wrong(candidate: Program) -> bool:
        return any(".flip(" in statement.text for statement in candidate.statements)

    small = shrunk(program, smaller_programs, wrong, budget=150)
    assert wrong(small) and len(small.statements) == 1 and len(small.outputs) == 1
    assert ".flip(" in small.as_test("small")


def test_a_run_goes_on_where_it_was_stopped() -> None:
    done = [Row(0, 50), Row(100, 120)]
    assert list(slices(0, 120, done, 50)) == [(50, 100)]
    assert list(slices(0, 130, done, 50)) == [(50, 100), (100, 130)]


def test_a_kind_does_not_take_the_rows_of_another_for_its_own() -> None:
    files = [options(["--kind", kind]).out for kind in KINDS]
    files += [options(["--kind", kind, "--device", "cuda"]).out for kind in ON_DEVICES]
    assert len(set(files)) == len(files) and files[0] == Path("build/fuzz-real.jsonl")
    assert options(["--kind", "module", "--out", "rows.jsonl"]).out == Path("rows.jsonl")
    with pytest.raises(SystemExit):
        options(["--kind", "module", "--device", "cuda"])


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (lambda x: x + 1, lambda x: x + 2, "values differ"),
        (lambda x: (x + 1).t().contiguous().t(), lambda x: x + 1, "strides"),
        (lambda x: x.view(4, 3), lambda x: x.view(4, 3).clone(), "memory shared"),
        (lambda x: x.add_(1) * 1, lambda x: x + 1, "input 0"),
    ],
)
def test_the_judge_sees_each_kind_of_difference(mine: Step, theirs: Step, said: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (mine(x) if torch.compiler.is_compiling() else theirs(x),)

    with pytest.raises(AssertionError, match=said):
        check(program, [Base("b", 12, torch.float32, 1)], [Input("x", "b", (3, 4), (4, 1), 0)])
