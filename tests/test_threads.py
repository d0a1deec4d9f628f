"""Compilation and calls from several threads, with one thread pool in the process."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

import litz


def test_one_compiled_function_runs_in_several_threads() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.softmax(x, -1) * x, backend="litz")
    inputs = [torch.randn(64, 257) for _ in range(8)]
    wanted = [torch.softmax(x, -1) * x for x in inputs]
    compiled(inputs[0])
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(50):
                torch.testing.assert_close(compiled(inputs[k]), wanted[k])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_graphs_compile_in_several_threads() -> None:
    torch._dynamo.reset()
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            with litz.config.patch(fallback="error"):
                x = torch.randn(3 + k, 5)
                function = torch.compile(lambda x: (x + k).tanh().sum(1), backend="litz", dynamic=False)
                torch.testing.assert_close(function(x), (x + k).tanh().sum(1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_process_has_one_openmp() -> None:
    torch._dynamo.reset()
    torch.compile(lambda x: x.exp().sum(1), backend="litz")(torch.randn(512, 512))
    maps = Path("/proc/self/maps")
    if maps.exists():
        loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}
        assert len(loaded) == 1


def test_the_thread_count_is_torchs() -> None:
    torch._dynamo.reset()
    before = torch.get_num_threads()
    x = torch.randn(256, 1024)
    compiled = torch.compile(lambda x: torch.softmax(x, -1), backend="litz")
    try:
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(compiled(x))
        assert torch.equal(*results), "rows do not depend on how they are divided"
    finally:
        torch.set_num_threads(before)
