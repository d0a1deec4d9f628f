"""Fixed samples of PyTorch's operator database in f32, with those that once were wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opinfo.entries import Unit, units
from opinfo.outcome import GOOD, Place
from opinfo.worker import Task, judgements, prepared

SAMPLE = [unit.entry for unit in units(["*"], ["f32"])][4::9]

INVALID = SAMPLE[3::12]
"""Entries of which invalid inputs, and inputs without elements, are run too."""

ONCE_WRONG: dict[str, tuple[Unit, Place]] = {
    "the copy of a scalar's window was a view": (Unit("unfold_copy", "f32"), ("forward", 0)),
    "an index from an earlier phase was taken for one per vector": (
        Unit("cumprod", "f32"),
        ("gradient", 0),
    ),
    "a transposed result of symbolic sizes was contiguous": (Unit("rot90", "f32"), ("dynamic", 0)),
    "a channels-last result of symbolic sizes was contiguous": (Unit("to", "f32"), ("dynamic", 1)),
    "the rule for a norm failed on a symbolic order": (Unit("norm", "f32"), ("dynamic", 0)),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with prepared(str(tmp_path_factory.mktemp("cache"))):
        yield


def failures(task: Task) -> list[str]:
    """Return the differences from eager, a line each."""
    outcomes = [judge() for _, judge in judgements(task)]
    assert outcomes, "there are samples"
    return [f"{o.mode} {o.index}: {o.verdict}: {o.reason}" for o in outcomes if o.verdict not in GOOD]


@pytest.mark.sampled
@pytest.mark.parametrize("entry", SAMPLE)
def test_as_eager(entry: str) -> None:
    assert failures(Task(Unit(entry, "f32"), {"forward": 2})) == []


@pytest.mark.parametrize("fault", ONCE_WRONG)
def test_what_was_wrong_is_right(fault: str) -> None:
    unit, (mode, index) = ONCE_WRONG[fault]
    assert failures(Task(unit, {mode: index + 1}, only=frozenset({(mode, index)}))) == []


@pytest.mark.parametrize("entry", INVALID)
def test_invalid_inputs_and_those_without_elements(entry: str) -> None:
    assert failures(Task(Unit(entry, "f32"), {"errors": 3, "empty": 2})) == []
