"""Every kernel of the corpus in Triton's interpreter, in a process of its own, against the reference interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton.language as tl
import triton_corpus
from triton.runtime.interpreter import ReduceOps, ScanOps

from litz_codegen_triton.runtime.interpreted_reductions import whole_tensors

HERE = Path(__file__).parent
CASES = triton_corpus.cases()


def run_interpreted(program: Path, *arguments: str) -> list[dict[str, str]]:
    """Return the lines of JSON that a program prints in a process with Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    return {line["case"]: line["difference"] for line in run_interpreted(HERE / "triton_corpus.py")}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_kernel_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", [case.name for case in triton_corpus.of_no_order()])
def test_kernels_that_depend_on_the_order_of_ctas_differ(name: str, differences: Mapping[str, str]) -> None:
    assert "differ" in differences[name]


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def composed(ops: ReduceOps | ScanOps) -> SimpleNamespace:
    """The composition of affine functions of 64-bit integers, whose order matters, as a combiner."""

    def fn(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
        x, y, z, w = (each.handle.data for each in (a, b, c, d))
        return ops.to_tensor(x * z, tl.int64), ops.to_tensor(y * z + w, tl.int64)

    return SimpleNamespace(fn=fn)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1,), 0), ((8,), 0), ((8,), None), ((4, 1), 1), ((4, 8), 0), ((4, 8), 1), ((2, 4, 8), 1)],
)
@pytest.mark.parametrize("keep_dims", [False, True])
def test_whole_tensors_are_combined_as_single_elements_are(
    shape: tuple[int, ...], axis: int | None, keep_dims: bool
) -> None:
    random = np.random.default_rng(0)
    numbers = [random.integers(-3, 4, shape) for _ in range(2)]
    found = {}
    for manner in (contextlib.nullcontext, whole_tensors):
        reduction = ReduceOps(axis, None, keep_dims)
        reduction.combine_fn = composed(reduction)
        operands = tuple(reduction.to_tensor(each, tl.int64) for each in numbers)
        with manner():
            results = list(reduction.apply(operands))
            if axis is not None:
                scan = ScanOps(axis, composed(reduction), reverse=keep_dims)
                results += scan.apply(operands)
        found[manner] = [each.handle.data for each in results]
    for one, other in zip(*found.values(), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)
