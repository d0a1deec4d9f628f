"""Work of compilation grows as the number of operations, counted in calls, which are the same on every machine."""

from __future__ import annotations

import cProfile
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from aten_graphs import FAMILIES, stack
from scaling import LAYERS, Point, exponent, stages

import litz
from litz.targets import TargetSet, targets_for

SIZES = (300, 900)
"""A count of operations beyond the longest kernel, up to which work may grow faster: a kernel of twice the statements
takes more than twice the work."""

STEEPEST = 1.2


def calls(work: Callable[[], object]) -> int:
    """Return the number of calls of Python and C functions by ``work``."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.fixture(scope="module")
def targets() -> TargetSet:
    found = targets_for(("cpu",), litz.config.current())
    stages(FAMILIES["chain"](10), found)  # what is made once is nobody's
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAMILIES)
def test_calls_are_nearly_linear(name: str, targets: TargetSet) -> None:
    graphs = [FAMILIES[name](size) for size in SIZES]
    counts = [calls(partial(stages, gm, targets)) for gm in graphs]
    slope = math.log(counts[1] / counts[0]) / math.log(SIZES[1] / SIZES[0])
    assert slope <= STEEPEST, f"{dict(zip(SIZES, counts, strict=True))} calls: exponent {slope:.2f}"


def test_equal_layers_are_compiled_once(targets: TargetSet) -> None:
    one, many = (stages(stack(depth), targets)[1] for depth in LAYERS)
    assert [unit.text for unit in one] == [unit.text for unit in many]


def test_a_long_chain_is_cut_into_kernels_of_bounded_length(targets: TargetSet) -> None:
    longest = []
    for size in SIZES:
        units = stages(FAMILIES["chain"](size), targets)[1]
        texts = [text for unit in units for text in unit.text.split('extern "C"')]
        longest.append(max(map(len, texts)))
        assert all(unit.text.startswith("#define LITZ_OUTLINE_MATH\n") for unit in units)
    assert longest[1] <= 1.1 * longest[0]


def test_the_exponent_is_fitted_by_least_squares() -> None:
    points = [
        Point("x", size, {"lower": 2e-6 * size**1.5, "emit": 1e-6 * size**1.5}, 1, 1)
        for size in (10, 100, 1000)
    ]
    assert exponent(points) == pytest.approx(1.5)
    assert math.isnan(exponent(points[:2]))
