"""Generated modules that are called several times and written in between; `nox -s fuzz -- --kind module` runs more."""

from __future__ import annotations

import pytest
import torch
from differential.judge_modules import judge_module
from differential.modules import ModuleProgram, module_of, module_programs, smaller_modules
from differential.programs import Base, Input, Program, Statement
from differential.shrinker import shrunk
from hypothesis import given, settings

from litz.host.runtime import frozen_results as kept

pytestmark = pytest.mark.sampled  # it compiles whole programs

SEEDS = 8


def test_drawn_modules_do_as_eager_does() -> None:
    compared = 0
    for seed in range(SEEDS):
        drawn = module_of(seed)
        verdict = judge_module(drawn)
        assert verdict.fault != "litz", f"{verdict.message}\nseed {seed}\n{drawn.as_text()}"
        compared += verdict.fault == "none"
    assert compared >= SEEDS // 2, "most modules are fit to be compared"


@settings(max_examples=2)
@given(module_programs())
def test_modules_that_hypothesis_draws_do_as_eager_does(drawn: ModuleProgram) -> None:
    verdict = judge_module(drawn)
    assert verdict.fault != "litz", f"{verdict.message}\n{drawn.as_text()}"


def test_a_seed_always_gives_the_same_module() -> None:
    assert [module_of(seed) for seed in range(10)] == [module_of(seed) for seed in range(10)]


def convolution() -> ModuleProgram:
    """A weight that is prepacked, and written through ``.data`` before the third call."""
    bases = (Base("b0", 1 * 4 * 8 * 8, torch.float32, 1), Base("b1", 8 * 4 * 3 * 3, torch.float32, 2))
    inputs = (
        Input("a0", "b0", (1, 4, 8, 8), (256, 64, 8, 1), 0),
        Input("a1", "b1", (8, 4, 3, 3), (36, 9, 3, 1), 0),
    )
    statements = (
        Statement("a0 + 1", target="t1"),
        Statement("F.conv2d(t1, a1, padding=1)", target="t2"),
    )
    program = Program(bases, inputs, statements, ("t2", "t1"), "no_grad")
    writes = ((), ("a0.zero_()",), ("m.a1.data.copy_(fill(m.a1, 3))",), ())
    return ModuleProgram(program, ("a1",), (), (), (), writes, (2, 2, 2, 2))


@pytest.mark.wide_vectors
def test_what_is_stale_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge_module(convolution()).fault == "none"
    monkeypatch.setattr(kept.StoredResults, "holds", lambda self, tensors: True)
    verdict = judge_module(convolution())
    assert verdict.fault == "litz" and verdict.message.startswith("call 2")


def test_a_module_is_made_smaller() -> None:
    def wrong(drawn: ModuleProgram) -> bool:
        return "m.a1.data" in str(drawn.writes) and "t2" in drawn.program.outputs

    small = shrunk(convolution(), smaller_modules, wrong, budget=12)
    assert small.writes == ((), (), ("m.a1.data.copy_(fill(m.a1, 3))",), ())
    assert small.program.outputs == ("t2",)
