"""Generated programs of regions inside regions; `nox -s fuzz -- --kind regions` runs more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from differential.judge_regions import judge_regions
from differential.regions import Block, Line, RegionProgram, regions_of, smaller_regions
from differential.shrinker import shrunk

SAMPLE = {"forward": (1, 15), "gradients": (27, 35)}
"""Seeds of the sample, by the way that their programs are run."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", SAMPLE)
def test_drawn_regions_do_as_eager_does(mode: str) -> None:
    for seed in SAMPLE[mode]:
        drawn = regions_of(seed)
        assert drawn.mode == mode, f"seed {seed} is run otherwise"
        verdict = judge_regions(drawn)
        assert verdict.fault == "none", f"{verdict.message}\nseed {seed}\n{drawn.as_text()}"


def test_a_seed_always_gives_the_same_regions() -> None:
    drawn = [regions_of(seed) for seed in range(40)]
    assert drawn == [regions_of(seed) for seed in range(40)]
    assert max(map(_depth, (each.body for each in drawn))) == 4
    for name in (
        "torch.cond",
        "while_loop(",
        "scan(",
        "map_rows(",
        "associative_scan(",
        "nested_compile",
        "checkpoint(",
    ):
        assert any(name in each.source() for each in drawn), f"no program has {name}"


def _depth(block: Block) -> int:
    inner = [_depth(each) + 1 for line in block.lines for each in line.functions]
    return max([*inner, *(1 for line in block.lines if "associative_scan" in line.text)], default=0)


def test_a_wrong_program_is_made_smaller() -> None:
    inner = Block("f1", ("a",), (Line("t1", "a.sin()"), Line("t2", "a.cos()")), "t2 * 2")
    outer = Block("f2", ("a",), (Line("t3", "torch.cond(k[0] > 3, f1, f1, (a,))", (inner, inner)),), "t3 + 1")
    lines = (Line("t4", "x + 1"), Line("t5", "torch.cond(k[1] > 3, f2, f2, (x,))", (outer, outer)))
    drawn = RegionProgram(Block("program", ("x", "r", "w", "k"), lines, "t5"), dynamic=True)

    def wrong(program: RegionProgram) -> bool:
        return "a.cos()" in program.source()

    small = shrunk(drawn, smaller_regions, wrong, budget=60)
    assert not small.dynamic and "a.sin()" not in small.source() and "x + 1" not in small.source()
    assert wrong(small) and _depth(small.body) == 2


def test_a_wrong_region_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = replace(regions_of(1), mode="forward")
    monkeypatch.setattr(
        "litz.compile_fx", lambda graph, inputs: lambda *arguments: tuple(2 * r for r in graph(*arguments))
    )
    assert judge_regions(drawn).fault == "litz"
