"""Launches, on a fake driver that has a current context per thread, as CUDA's has."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import triton_corpus
from triton_scheduled import scheduled, tiled

from litz_codegen_triton.runtime import driver as driver_api
from litz_codegen_triton.runtime import launch
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_ir.errors import CompileFailed, KernelError, OutOfMemory, ToolchainError
from litz_ir.plan import Kernel
from litz_ir.symbols import evaluate, mul, symbol
from litz_ir.target import ByteRange, LazyModule
from litz_ir.text import parse_plan


class Driver:
    """A driver that records launches; they fail in a thread without a current context, and everywhere if ``broken``."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.launches = 0
        self._thread = threading.local()

        def launch(*arguments: object) -> int:
            if self.broken or not hasattr(self._thread, "context"):
                return 201
            self.launches += 1
            self.seen.append(arguments)
            return 0

        def launch_configured(configuration: Any, *arguments: object) -> int:
            # what ctypes.byref refers to is given back once the launch returns
            given = configuration._obj
            attributes = [(a.id, tuple(a.value[:3])) for a in given.attributes[: given.count]]
            self.configured.append((tuple(given.grid), tuple(given.threads), given.stream, attributes))
            return launch(configuration, *arguments)

        self.seen: list[tuple[Any, ...]] = []
        self.configured: list[tuple[Any, ...]] = []
        self.cuLaunchKernel = launch
        self.cuLaunchKernelEx = launch_configured

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def cuCtxSetCurrent(self, context: object) -> int:
        self._thread.context = context
        return 0


def loaded(driver: Driver, kernels: list[Kernel], monkeypatch: pytest.MonkeyPatch) -> launch.LaunchModule:
    """Return a module of kernels; binaries for any alignment have 64 threads, the others 128."""
    stream = SimpleNamespace(cuda_stream=7)
    cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda _: stream)
    monkeypatch.setattr(launch, "torch", SimpleNamespace(cuda=cuda, _C=None))
    monkeypatch.setattr(launch, "cuda_library", lambda: driver)
    by_name = {each.name: scheduled(each) for each in kernels}

    def built(name: str, warps: int) -> CompiledKernel:
        return CompiledKernel(name, b"", "entry", warps, 0, arity(by_name[name]) + 1)

    return launch.LaunchModule(
        {name: built(name, 4) for name in by_name}, by_name, lambda name: built(name, 2)
    )


def arity(kernel: Kernel) -> int:
    return len(kernel.parameters) + len(kernel.symbols)


def launched(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Launch a kernel in this thread and in a new one, and return the errors that they raised."""
    kernel = next(case.kernel for case in triton_corpus.cases() if not case.kernel.symbols)
    module = loaded(driver, [kernel], monkeypatch)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            module.function(kernel.name)([16] * len(kernel.parameters), [])
        except KernelError as error:
            raised.append(error)

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


def test_a_thread_that_has_no_context_yet_gets_the_one_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    assert launched(driver, monkeypatch) == []
    assert driver.launches == 2


def test_a_context_that_stays_invalid_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = launched(Driver(broken=True), monkeypatch)
    assert [getattr(error, "code", None) for error in raised] == [201, 201]


def words(block: Any, count: int) -> list[int]:
    """Return the 64-bit values to which the first addresses of a launch's argument block point."""
    return [ctypes.c_uint64.from_address(block[k]).value for k in range(count)]


def bits(value: int | float) -> int:
    """Return the bits of a symbol's value as a kernel gets it."""
    content = struct.pack("=d" if isinstance(value, float) else "=q", value)
    return int.from_bytes(content, sys.byteorder)


def test_a_run_of_kernels_is_launched_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = triton_corpus.cases()
    fixed = next(case for case in cases if not case.kernel.symbols)
    sized = next(case for case in cases if case.kernel.symbols)
    kernels = [fixed.kernel, sized.kernel]
    driver = Driver()
    module = loaded(driver, kernels, monkeypatch)
    run = module.segment([kernel.name for kernel in kernels]).run
    counts = [len(kernel.parameters) for kernel in kernels]
    addresses = [16 * (k + 1) for k in range(sum(counts))]
    symbols = [sized.symbols[info.name] for info in sized.kernel.symbols]
    integers = {name: int(value) for name, value in sized.symbols.items()}
    programs = [evaluate(tiled(kernel).grid_size, integers) for kernel in kernels]
    run(addresses, symbols)
    assert [(seen[1], seen[4], seen[8]) for seen in driver.seen] == [(count, 128, 7) for count in programs]
    first, second = (seen[9] for seen in driver.seen)
    assert words(first, counts[0]) == addresses[: counts[0]]
    assert words(second, counts[1] + len(symbols)) == [*addresses[counts[0] :], *map(bits, symbols)]


def test_addresses_that_are_not_aligned_get_a_kernel_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [case.kernel for case in triton_corpus.cases() if not case.kernel.symbols][:2]
    driver = Driver()
    run = loaded(driver, kernels, monkeypatch).segment([kernel.name for kernel in kernels]).run
    first, second = (len(kernel.parameters) for kernel in kernels)
    run([16] * (first + second))
    run([16] * first + [16] * (second - 1) + [24])
    assert [seen[4] for seen in driver.seen] == [128, 128, 128, 64]


def test_kernels_with_a_cluster_reduction_are_launched_as_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(case.kernel for case in triton_corpus.cases() if case.name == "softmax_in_cluster_of_2")
    driver = Driver()
    run = loaded(driver, [kernel], monkeypatch).segment([kernel.name]).run
    addresses = [16 * (k + 1) for k in range(len(kernel.parameters))]
    run(addresses)
    cluster_dimension = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert driver.configured == [((10, 1, 1), (128, 1, 1), 7, [(cluster_dimension, (2, 1, 1))])]
    assert words(driver.seen[0][2], len(addresses)) == addresses


def test_the_workspace_of_a_lookback_scan_is_zeroed_before_each_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = next(case.kernel for case in triton_corpus.cases() if case.name == "lookback_argmax")
    driver = Driver()
    run = loaded(driver, [kernel], monkeypatch).segment([kernel.name]).run
    addresses = [16 * (k + 1) for k in range(len(kernel.parameters))]
    order: list[tuple[object, ...]] = []

    def clear(address: Any, value: Any, nbytes: Any, stream: Any) -> int:
        order.append((len(driver.seen), address.value, value.value, nbytes.value, stream.value))
        return 0

    monkeypatch.setattr(driver, "cuMemsetD8Async", clear, raising=False)
    run(addresses)
    run(addresses)
    # Two components of two halves, for each of 5 chunks of 3 rows, and a counter.
    nbytes = 8 * (16 + 2 * 2 * 3 * 5)
    assert order == [(0, addresses[-1], 0, nbytes, 7), (1, addresses[-1], 0, nbytes, 7)]
    assert [(seen[1], seen[4]) for seen in driver.seen] == [(15, 128)] * 2


def test_a_workspace_that_cannot_be_zeroed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(case.kernel for case in triton_corpus.cases() if case.name == "lookback_argmax")
    driver = Driver()
    run = loaded(driver, [kernel], monkeypatch).segment([kernel.name]).run
    monkeypatch.setattr(driver, "cuMemsetD8Async", lambda *_: 1, raising=False)
    with pytest.raises(KernelError, match="lookback_argmax"):
        run([16] * len(kernel.parameters))
    assert driver.seen == []


def test_a_kernel_with_scratch_memory_gets_it_before_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [case.kernel for case in triton_corpus.cases() if not case.kernel.symbols][:2]
    driver = Driver()
    module = loaded(driver, kernels, monkeypatch)
    requests: list[int] = []

    def memory(nbytes: int) -> SimpleNamespace:
        requests.append(nbytes)
        return SimpleNamespace(data_ptr=lambda: 4096 * len(requests))

    monkeypatch.setattr(module, "memory", memory)
    name = kernels[1].name
    module._functions[name] = replace(module._functions[name], scratch=256, hidden=2)
    run = module.segment([kernel.name for kernel in kernels]).run
    counts = [arity(kernel) for kernel in kernels]
    for call in (1, 2):
        run([16] * sum(counts))
        programs = driver.seen[-1][1]
        assert requests == [256 * programs] * call
        first, second = (seen[9] for seen in driver.seen[-2:])
        assert words(first, counts[0] + 1)[-1] == 0
        assert words(second, counts[1] + 2)[-2:] == [4096 * call, 0]


COPIES = """
plan p on cuda "sm_90" (%x: f32[8], %o: f32[8]) -> (%o) {
  buffer %x: f32[8]
  buffer %o: f32[8]
  kernel first(in %a: f32, out %b: f32) {
    schedule tile_request
    outer [i0: 8]
    phase [] { %b[i0] = %a[i0]; }
  }
  kernel second(in %a: f32, out %b: f32) {
    schedule tile_request
    outer [i0: 8]
    phase [] { %b[i0] = %a[i0]; }
  }
  launch first(%x, %o)
  launch second(%x, %o)
}
"""
"""Kernels that copy 32 bytes."""


class HostMemory(Driver):
    """A driver that runs kernels that copy 32 bytes, in host memory; binaries for aligned buffers refuse others."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[int] = []
        note = self.cuLaunchKernel

        def run(*arguments: Any) -> int:
            code = note(*arguments)
            source, target = words(arguments[9], 2)
            assert arguments[4] == 64 or not (source | target) % 16
            ctypes.memmove(target, source, 32)
            return code

        self.cuLaunchKernel = run

    def cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        assert stream.value == 7
        self.moved.append(nbytes.value)
        ctypes.memmove(target.value, source.value, nbytes.value)
        return 0


def refused(name: str) -> CompiledKernel:
    raise CompileFailed(f"no {name}")


def on_host(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, kernels: tuple[Kernel, ...] = parse_plan(COPIES).kernels
) -> tuple[launch.LaunchModule, list[str]]:
    """Return a module that works in host memory and cannot build kernels for unaligned buffers, and its failures."""
    module, told = loaded(driver, list(kernels), monkeypatch), list[str]()

    def memory(nbytes: int) -> SimpleNamespace:
        found = ctypes.create_string_buffer(nbytes + 16)
        return SimpleNamespace(memory=found, data_ptr=lambda: ctypes.addressof(found) + 15 & ~15)

    monkeypatch.setattr(module, "memory", memory)
    monkeypatch.setattr(module, "_unaligned", refused)
    assert isinstance(module, LazyModule)
    module.on_failure(lambda error, instead: told.append(f"{error}: {instead}"))
    return module, told


class Bytes:
    """A block of host memory whose address ``start`` is ``offset`` above a multiple of 16."""

    def __init__(self, content: bytes, offset: int) -> None:
        self.memory = ctypes.create_string_buffer(len(content) + 64)
        self.start = (ctypes.addressof(self.memory) + 15 & ~15) + offset
        ctypes.memmove(self.start, content, len(content))

    def read(self, nbytes: int) -> bytes:
        return ctypes.string_at(self.start, nbytes)


@pytest.mark.parametrize("odd", [(4, 0), (0, 8), (4, 12), (0, 0)])
@pytest.mark.parametrize("extents", [None, [(0, 32)] * 4])
def test_a_kernel_that_cannot_be_built_for_unaligned_buffers_runs_on_copies(
    odd: tuple[int, int], extents: list[ByteRange | None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = HostMemory()
    module, told = on_host(driver, monkeypatch)
    run = module.segment(("first", "second"), extents=extents).run
    source, target = Bytes(bytes(range(40)), odd[0]), Bytes(bytes(40), odd[1])
    last = Bytes(bytes(40), 0)
    for _ in range(2):
        run([source.start, target.start, target.start, last.start])
    assert target.read(40) == last.read(40) == bytes(range(32)) + bytes(8), "nothing else is written"
    count = bool(odd[0]) + 3 * bool(odd[1])
    assert driver.moved == [32] * 2 * count, "unaligned buffers are copied in, and written ones back"
    assert len(told) == (2 if odd[1] else 1 if odd[0] else 0)
    assert all("runs on copies of buffers" in each for each in told)


def test_buffers_at_one_address_are_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = HostMemory()
    module, _ = on_host(driver, monkeypatch)
    both = Bytes(bytes(range(40)), 4)
    module.segment(("first",), extents=[(0, 32), (4, 40)]).run([both.start] * 2)
    (launched,) = driver.seen
    first, second = words(launched[9], 2)
    assert first == second and driver.moved == [40, 40]
    assert both.read(40) == bytes(range(40))


def test_a_buffer_that_begins_within_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = HostMemory()
    module, _ = on_host(driver, monkeypatch)
    whole, target = Bytes(bytes(range(64)), 4), Bytes(bytes(32), 0)
    module.segment(("first",), extents=[(4, 40), None]).run([whole.start, target.start])
    assert target.read(32)[4:] == bytes(range(4, 32)) and driver.moved == [36]


def test_an_unaligned_buffer_of_unknown_length_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in triton_corpus.cases() if case.name == "gather")
    driver = Driver()
    module, _ = on_host(driver, monkeypatch, (case.kernel,))
    monkeypatch.setattr("litz_codegen_triton.runtime.copies._reads_under_conditions", lambda kernel: True)
    symbols = [case.symbols[info.name] for info in case.kernel.symbols]
    with pytest.raises(KernelError, match="of unknown length"):
        module.function(case.kernel.name)([24] * len(case.kernel.parameters), symbols)
    assert not driver.seen


def test_lengths_that_are_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in triton_corpus.cases() if case.kernel.symbols)
    driver, copied = Driver(), list[int]()
    module, _ = on_host(driver, monkeypatch, (case.kernel,))
    monkeypatch.setattr(module, "copy", lambda target, source, nbytes: copied.append(nbytes))
    (name,) = {info.name for info in case.kernel.symbols[:1]}
    symbols = [case.symbols[info.name] for info in case.kernel.symbols]
    extents: list[ByteRange | None] = [(0, mul(4, symbol(name)))] * len(case.kernel.parameters)
    module.segment((case.kernel.name,), extents=extents).run([24] * len(case.kernel.parameters), symbols)
    assert set(copied) == {4 * int(symbols[0])} and len(driver.seen) == 1


def test_without_a_failure_callback_the_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = HostMemory()
    module = loaded(driver, list(parse_plan(COPIES).kernels), monkeypatch)
    monkeypatch.setattr(module, "_unaligned", refused)
    for _ in range(2):
        with pytest.raises(CompileFailed, match="no first"):
            module.function("first")([20, 32])
    assert not driver.seen


def test_code_is_brought_to_the_device_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.cuFuncLoad = lambda function: 2  # type: ignore[attr-defined]
    with pytest.raises(ToolchainError, match="could not load kernel first"):
        loaded(driver, list(parse_plan(COPIES).kernels), monkeypatch)


def test_a_launch_that_runs_out_of_memory_raises_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    module = loaded(driver, list(parse_plan(COPIES).kernels), monkeypatch)
    driver.cuLaunchKernel = lambda *_: 2  # type: ignore[assignment]
    module.driver.launch = driver.cuLaunchKernel
    with pytest.raises(OutOfMemory, match="launching first"):
        module.function("first")([16, 32])


@pytest.mark.parametrize(("size", "asked"), [(1, False), (8, False), (16, True)])
def test_clusters_of_more_than_eight_thread_blocks_are_permitted(size: int, asked: bool) -> None:
    library, given = Driver(), []
    library.cuFuncSetAttribute = lambda _, attribute, value: given.append((attribute, value)) or 0
    driver_api.Driver(library, 0).load(b"", "entry", 7, "kernel", size)
    # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    assert ((14, 1) in given) == asked
