"""The line map of compiled graphs, and the symbols of their libraries, which name kernels to other tools."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import litz
from litz.loading import Compiled
from litz.profiling.line_map import SourceLines, source_lines
from litz.testing import fresh_cache
from litz_ir.target import SourceUnit

HERE = Path(__file__).name


def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x * 0.125, -1)
    z = y @ w
    return torch.relu(z).sum(), z.sin()


FIRST = model.__code__.co_firstlineno
"""Number of the line that begins the model."""


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(256, 1024), torch.randn(1024, 128)


def test_every_kernel_has_its_lines_in_the_sources_and_in_the_program() -> None:
    x, w = arguments()
    with fresh_cache():
        reports = [litz.explain(model, x, w).graphs[0] for _ in range(2)]
    assert [graph.cached for graph in reports] == [False, True]
    for graph in reports:
        for kernel in graph.kernels:
            source = kernel.source
            assert source is not None
            own = graph.units[source.unit].splitlines()[source.first - 1 : source.last]
            assert any(line.startswith(f'extern "C" int64_t {kernel.kernel.name}(') for line in own)
        mapped = {kernel.operations: kernel.locations for kernel in graph.kernels if kernel.operations}
        (softmax,) = [where for operations, where in mapped.items() if "mul" in operations]
        (sine,) = [where for operations, where in mapped.items() if operations == ("sin",)]
        assert [re.sub(r".*/", "", each) for each in softmax] == [f"{HERE}:{FIRST + 1}"]
        assert [re.sub(r".*/", "", each) for each in sine] == [f"{HERE}:{FIRST + 3}"]
        (call,) = graph.calls
        assert call.location.endswith(f"{HERE}:{FIRST + 2}")
    assert [k.source for k in reports[0].kernels] == [k.source for k in reports[1].kernels]


def test_targets_need_not_say_where_kernels_are() -> None:
    alone = SourceUnit("alone", "c", "one\ntwo\n", ("k",))
    several = SourceUnit("several", "c", "one\ntwo\n", ("a", "b"))
    assert source_lines([several, alone]) == {"k": SourceLines(1, 1, 2)}


def libraries(x: torch.Tensor, w: torch.Tensor) -> dict[Path, tuple[str, ...]]:
    """The libraries of the model's graph, each with its kernels."""
    found: dict[Path, tuple[str, ...]] = {}

    def observe(compiled: Compiled) -> None:
        assert compiled.artifact is not None
        artifact = compiled.artifact
        found.update(
            (path, unit.kernels) for unit, path in zip(artifact.units, artifact.binaries, strict=True)
        )

    torch._dynamo.reset()
    torch.compile(model, backend=lambda gm, inputs: litz.compile_fx(gm, inputs, observers=(observe,)))(x, w)
    return found


def test_symbols_have_the_names_of_kernels() -> None:
    found = libraries(*arguments())
    assert sum(len(kernels) for kernels in found.values()) >= 3
    for path, kernels in found.items():
        library = ctypes.CDLL(str(path))
        for name in kernels:
            assert ctypes.cast(library[name], ctypes.c_void_p).value, "a profiler finds it by this name"


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_loops_of_threads_are_named_after_their_kernels() -> None:
    for path, kernels in libraries(*arguments()).items():
        printed = subprocess.run(["nm", "--demangle", str(path)], capture_output=True, text=True, check=True)
        functions = [
            line.split(maxsplit=2)[2] for line in printed.stdout.splitlines() if re.match(r"\w+ [tT] ", line)
        ]
        # One function of a unit divides the ranges of all kernels.
        loops = [name for name in functions if "_range(" in name and not name.startswith("litz::")]
        assert loops, "a kernel runs on several threads"
        for name in loops:
            assert any(kernel in name for kernel in kernels), name
