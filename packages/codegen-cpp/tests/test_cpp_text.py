"""The C++ of each form of kernel, in text. The cases are in `text/`; the command `emit` takes the number of f32 lanes
of a vector register, 1 for none: `# RUN: emit 16`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from text_tests import Case, Command, cases, titles

from litz_codegen_cpp.emit.kernel import emit_kernel
from litz_ir.text import parse_kernel

CASES = cases(Path(__file__).parent / "text")


def emitted(source: str, arguments: Sequence[str]) -> str:
    """The C++ of a kernel, without what its unit adds."""
    (lanes,) = arguments
    return emit_kernel(parse_kernel(source), int(lanes)).text


COMMANDS: Mapping[str, Command] = {"emit": emitted}


@pytest.mark.parametrize("case", CASES, ids=titles(CASES))
def test_a_case(case: Case, check_case: Callable[[Case, Mapping[str, Command]], None]) -> None:
    check_case(case, COMMANDS)
