"""Generated programs over numbers that change between calls; `nox -s fuzz -- --kind numbers` runs more."""

from __future__ import annotations

from differential.judge_numbers import judge_numbers
from differential.number_programs import number_program_of

SAMPLE = (0, 6, 11, 14)
"""Seeds, among them a power whose exponent is a float rounded down."""


def test_programs_over_changing_numbers_do_as_eager_does() -> None:
    for seed in SAMPLE:
        program = number_program_of(seed)
        verdict = judge_numbers(program)
        assert verdict.fault == "none", f"{verdict.message}\nseed {seed}\n{program.as_text()}"


def test_a_seed_always_gives_the_same_program() -> None:
    assert [number_program_of(seed) for seed in range(10)] == [number_program_of(seed) for seed in range(10)]
