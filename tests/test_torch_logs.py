"""Torch's log artifacts show graphs that litz compiles, each in a process of its own, and nothing when they are off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch

def program(x):
    return torch.softmax(x * 2, -1), x.sort(-1).values

torch.compile(program, backend="litz")(torch.randn(8, 40))
"""


def logged(artifacts: str, folder: Path) -> str:
    """The standard error of a process that compiles a program with some artifacts on."""
    environment = {
        **os.environ,
        "LITZ_CACHE_DIR": str(folder),
        **({"TORCH_LOGS": artifacts} if artifacts else {}),
    }
    script = folder / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr


EXPECTED = {
    "output_code": ["inference_0: c++ of k0_", "exp(", "host program", "def "],
    "kernel_code": ["inference_0: kernel k0_", "fuses", "program.py:5"],
    "fusion": ["kernel k0_", "fusion: fuse", "it reads a value that the group computes"],
    "schedule": ["memory: allocate", "plan", 'on cpu "'],
    "perf_hints": ["aten.sort.default runs as its ATen kernel"],
    "caching": ["inference_0: compiled (", "schedule "],
    "pre_grad_graphs": ["inference_0: class", "torch.softmax(", "program.py:5"],
    "post_grad_graphs": ["torch.ops.aten._softmax", "program.py:5"],
    "ir_pre_fusion": ["graph inference_0(", "= reduce.max", "aten._softmax.default"],
    "ir_post_fusion": ["group g0", "register "],
    "loop_ordering": ["kernel k0_", "runs over i0: 8, then r0: 40 inside", "program.py:5"],
    "compute_dependencies": ["reads ", "aten.sort", "program.py:5"],
    "inductor_metrics": ["1 kernels, 1 launches, 1 library calls"],
}
"""Artifacts, and words that each shows of the program."""


@pytest.fixture(scope="module")
def first_and_second(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The standard error of two processes one after another, of which the second finds the graph in the cache."""
    folder = tmp_path_factory.mktemp("logs")
    return logged(",".join(EXPECTED), folder), logged("caching,output_code,ir_pre_fusion", folder)


@pytest.mark.sampled
@pytest.mark.parametrize("artifact", EXPECTED)
def test_an_artifact_shows_its_part_of_a_graph(artifact: str, first_and_second: tuple[str, str]) -> None:
    lines = [line for line in first_and_second[0].splitlines() if f"[__{artifact}]" in line]
    for part in EXPECTED[artifact]:
        assert any(part in line for line in lines), first_and_second[0][-3000:]


def test_a_fallback_is_named_once(first_and_second: tuple[str, str]) -> None:
    hints = [
        line for line in first_and_second[0].splitlines() if "[__perf_hints]" in line and "aten.sort" in line
    ]
    assert len(hints) == 1, hints


def test_a_graph_from_the_cache_is_logged_too(first_and_second: tuple[str, str]) -> None:
    _, second = first_and_second
    assert "inference_0: found in the cache" in second
    assert "host program" in second
    (form,) = [line for line in second.splitlines() if "[__ir_pre_fusion]" in line]
    assert "keeps plans and sources alone: LITZ_CACHE=0 shows it" in form
    assert "[__fusion]" not in second, "an artifact that is off is not logged"


def test_without_artifacts_nothing_is_logged(tmp_path: Path) -> None:
    assert "litz: " not in logged("", tmp_path)
