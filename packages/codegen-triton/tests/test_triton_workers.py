"""Worker processes that compile kernels: their results, their errors, their end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import triton_corpus
from triton_scheduled import emitted

from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.workers import Pool, Worker
from litz_ir.errors import CompileFailed, CompileTimeout


def source() -> KernelSource:
    return emitted(triton_corpus.cases()[0].kernel)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def test_a_worker_builds_the_same_as_this_process(worker: Worker, tmp_path: Path) -> None:
    built = CompiledKernel.from_bytes(worker.build(source(), "sm_90", tmp_path).read_bytes())
    expected = compile_source(source(), "sm_90", tmp_path)
    assert built == replace(expected, ptx="")


def test_a_worker_tells_why_and_goes_on(worker: Worker, tmp_path: Path) -> None:
    broken = replace(source(), text=source().text.replace("tl.store", "tl.stor"))
    with pytest.raises(CompileFailed, match="failed to compile") as caught:
        worker.build(broken, "sm_90", tmp_path)
    assert "stor" in caught.value.output
    assert worker.build(source(), "sm_90", tmp_path).exists()


def test_a_compilation_that_takes_too_long_fails(tmp_path: Path) -> None:
    hasty = Worker(seconds=0.01)
    with pytest.raises(CompileTimeout, match="took longer"):
        hasty.build(source(), "sm_90", tmp_path)
    hasty.close()


@pytest.mark.parametrize("answer", ["", "no answer"])
def test_a_worker_that_dies_is_followed_by_another(worker: Worker, tmp_path: Path, answer: str) -> None:
    code = f"import sys; sys.stdin.readline(); print({answer!r}, flush=True); sys.exit(1)"
    command = [sys.executable, "-c", code]
    worker._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with pytest.raises(CompileFailed, match="ended") as caught:
        worker.build(source(), "sm_90", tmp_path)
    assert not isinstance(caught.value, CompileTimeout)
    assert worker.build(source(), "sm_90", tmp_path).exists()


def test_a_pool_builds_in_parallel(tmp_path: Path) -> None:
    pool = Pool(1)
    kernels = [replace(source(), name=source().name, text=f"# {k}\n{source().text}") for k in range(3)]
    found: list[Path] = []

    def build(number: int) -> None:
        found.append(pool.build(kernels[number], "sm_90", tmp_path / str(number)))

    threads = [threading.Thread(target=build, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in pool.workers:
        each.close()
    assert sorted(path.parent.name for path in found) == ["0", "1", "2"]
