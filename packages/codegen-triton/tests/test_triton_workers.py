"""Worker processes that compile kernels: their results, their errors, their end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import triton_corpus
from triton_scheduled import emitted

from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.fork_server import ForkServer
from litz_codegen_triton.runtime.workers import Pool, Worker, shared_pool
from litz_ir.errors import CompileFailed, CompileTimeout


def source() -> KernelSource:
    return emitted(triton_corpus.cases()[0].kernel)


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def worker(server: ForkServer) -> Iterator[Worker]:
    made = Worker(server)
    yield made
    made.close()


def test_a_worker_builds_the_same_as_this_process(worker: Worker, tmp_path: Path) -> None:
    built = CompiledKernel.from_bytes(worker.build(source(), "sm_90", tmp_path).read_bytes())
    time.sleep(1.1)  # binaries contain the second in which their source was written
    expected = compile_source(source(), "sm_90", tmp_path)
    assert built == replace(expected, ptx="")


def test_a_worker_tells_why_and_goes_on(worker: Worker, tmp_path: Path) -> None:
    broken = replace(source(), text=source().text.replace("tl.store", "tl.stor"))
    with pytest.raises(CompileFailed, match="failed to compile") as caught:
        worker.build(broken, "sm_90", tmp_path)
    assert "stor" in caught.value.output
    assert worker.build(source(), "sm_90", tmp_path).exists()


def test_a_compilation_that_takes_too_long_fails(server: ForkServer, tmp_path: Path) -> None:
    hasty = Worker(server, seconds=0.01)
    for _ in range(2):  # the server has not made the worker yet, or it has
        with pytest.raises(CompileTimeout, match="took longer"):
            hasty.build(source(), "sm_90", tmp_path)
    hasty.close()


def test_a_kernel_that_takes_too_long_ends_its_worker_alone(
    server: ForkServer, worker: Worker, tmp_path: Path
) -> None:
    worker.build(source(), "sm_90", tmp_path)
    other = Worker(server)
    other.build(source(), "sm_90", tmp_path)
    other._seconds = 0.001
    with pytest.raises(CompileTimeout, match="took longer"):
        other.build(source(), "sm_90", tmp_path)
    before = worker._process
    assert worker.build(source(), "sm_90", tmp_path).exists() and worker._process is before
    assert server._process is not None and server._process.poll() is None
    other.close()


def test_a_worker_that_dies_is_followed_by_another(worker: Worker, tmp_path: Path) -> None:
    worker.build(source(), "sm_90", tmp_path)
    assert worker._process is not None
    before = worker._process._pid
    worker._process.kill()
    while not worker._process.has_ended():
        pass
    assert worker.build(source(), "sm_90", tmp_path).exists()
    assert worker._process._pid not in (0, before)


@pytest.mark.parametrize("answer", ["", "no number\n", "1\n", "1\nno answer\n"])
def test_a_worker_that_dies_with_a_kernel_fails_it(
    worker: Worker, tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = worker._started()
    file = tmp_path / "answers"
    file.write_text(answer)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    process.stdout.close()
    process.stdout = file.open()
    with pytest.raises(CompileFailed, match="ended") as caught:
        worker.build(source(), "sm_90", tmp_path)
    assert not isinstance(caught.value, CompileTimeout)
    assert worker.build(source(), "sm_90", tmp_path).exists()


def test_a_server_that_dies_is_followed_by_another(server: ForkServer, tmp_path: Path) -> None:
    first, second = Worker(server), Worker(server)
    first.build(source(), "sm_90", tmp_path)
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    for each in (first, second):  # the first goes on, the second is forked by another server
        assert each.build(source(), "sm_90", tmp_path).exists()
        each.close()


def test_a_pool_builds_in_parallel_in_other_processes(tmp_path: Path) -> None:
    pool = Pool(2)
    pool.start()
    kernels = [replace(source(), name=source().name, text=f"# {k}\n{source().text}") for k in range(4)]
    found: list[Path] = []

    def build(number: int) -> None:
        found.append(pool.build(kernels[number], "sm_90", tmp_path / str(number)))

    threads = [threading.Thread(target=build, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {each._process._pid for each in pool.workers if each._process is not None}
    pool.close()
    assert sorted(path.parent.name for path in found) == ["0", "1", "2", "3"]
    assert len(ids) == len(pool.workers) and os.getpid() not in ids


@pytest.mark.parametrize("count", [0, 2])
def test_a_pool_that_is_not_started_compiles_here(tmp_path: Path, count: int) -> None:
    pool = Pool(count)
    if not count:
        pool.start()
    built = pool.build(source(), "sm_90", tmp_path)
    assert CompiledKernel.from_bytes(built.read_bytes()).name == source().name
    assert not any(each._process for each in pool.workers)


def test_a_forked_process_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = shared_pool()
    assert shared_pool() is own
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert shared_pool() is not own
