"""The Triton of each form of kernel, in text. The cases are in `text/`; `schedule` prints the kernel with the schedule
that it gets, `emit` its Triton, both for `sm_90`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from text_tests import Case, Command, cases, titles
from triton_scheduled import emitted, scheduled

from litz_ir.text import parse_kernel, to_text

CASES = cases(Path(__file__).parent / "text")


def schedule(source: str, arguments: Sequence[str]) -> str:
    """The kernel as it is emitted: schedules decided."""
    assert not arguments
    return to_text(scheduled(parse_kernel(source)))


def emit(source: str, arguments: Sequence[str]) -> str:
    """The kernel's Triton."""
    assert not arguments
    return emitted(parse_kernel(source)).text


COMMANDS: Mapping[str, Command] = {"emit": emit, "schedule": schedule}


@pytest.mark.parametrize("case", CASES, ids=titles(CASES))
def test_a_case(case: Case, check_case: Callable[[Case, Mapping[str, Command]], None]) -> None:
    check_case(case, COMMANDS)
