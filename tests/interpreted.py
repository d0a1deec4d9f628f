"""Run the programs of this folder in a process with Triton's interpreter, and read the kernels that they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from litz_codegen_triton.emit import KernelSource


def lines_by_case(program: str | Path, *arguments: str, seconds: float) -> Mapping[str, dict[str, Any]]:
    """Run a program that prints a line of JSON for each case, and return the lines by the case's name."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


def found_by(program: str, seconds: float) -> Callable[..., Mapping[str, dict[str, Any]]]:
    """Make the fixture of a program's line for each case that the module's tests are of, whose kernels it leaves in
    the folder ``sources``."""

    @pytest.fixture(scope="module")
    def found(request: pytest.FixtureRequest, sources: Path) -> Mapping[str, dict[str, Any]]:
        return lines_by_case(program, str(sources), *cases_in(request, "name"), seconds=seconds)

    return found


def cases_in(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """Return the values of a parameter in the module's selected tests that use the fixture."""
    parameters = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path
        and isinstance(item, pytest.Function)
        and request.fixturename in item.fixturenames
    ]
    values: list[Any] = []  # of which some have no hash
    for each in parameters:
        if each[parameter] not in values:
            values.append(each[parameter])
    return values


def assert_form(case: Any, seen: Mapping[str, Any]) -> None:
    """Assert that a function's plan has the calls, the kernels and the matmuls among them that its case says."""
    assert Counter(seen["calls"]) == Counter(case.calls)
    assert (seen["dot_kernels"], seen["kernels"]) == (case.dot_kernels, case.kernels)


def sources_of(folder: Path, case: str, count: int) -> Iterator[KernelSource]:
    """Return the kernels of a case that a program has left in a folder."""
    for number in range(count):
        yield KernelSource(**json.loads((folder / f"{case}_{number}.json").read_text()))
