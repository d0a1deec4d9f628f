"""Triton kernels of a module of lowering's tests: eager's values in the interpreter, and a cubin for each. `nox -s
corpus` does so with all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from litz_codegen_triton.emit import KernelSource
from litz_codegen_triton.runtime import compile_source
from litz_ir.errors import CompileFailed

ROOT = Path(__file__).resolve().parent.parent
CHOSEN = ["repeat"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of lowering's tests, after these passed with Triton kernels in Triton's interpreter."""
    folder = tmp_path_factory.mktemp("sources")
    tests = [str(ROOT / "packages" / "lowering" / "tests" / f"test_lowering_{name}.py") for name in CHOSEN]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "triton_instead",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            *tests,
        ],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "TRITON_INSTEAD_SOURCES": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return folder


def test_kernels_compute_what_eager_computes_and_compile(sources: Path, tmp_path: Path) -> None:
    found = sorted(sources.glob("*.json"))
    assert len(found) > 5
    refused = []
    for source in (KernelSource(**json.loads(path.read_text())) for path in found):
        try:
            compile_source(source, "sm_90", tmp_path)
        except CompileFailed as error:
            refused.append(f"{source.name}: {error.output[-300:]}")
    assert not refused, "\n".join(refused)
