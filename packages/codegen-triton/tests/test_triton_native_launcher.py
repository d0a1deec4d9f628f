"""The native launcher, built by the C compiler at hand, on a driver of Python functions."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton_corpus
from triton_scheduled import scheduled, tiled

from litz_codegen_triton.runtime import launch, native_launcher
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.frozen_copies import COMPARE, COPY, COPYING_BLOCKS, CopyLauncher
from litz_codegen_triton.runtime.loaded_kernel import described_words
from litz_codegen_triton.runtime.native_launcher import build_launcher, launcher_maker, launcher_unit
from litz_codegen_triton.target import CudaTarget
from litz_ir.dtypes import f32
from litz_ir.errors import CompileFailed, CompilerNotFound, KernelError, OutOfMemory
from litz_ir.plan import Kernel
from litz_ir.symbols import SymbolInfo, evaluate
from litz_ir.target import LaunchingTarget, MemoryCopy, SelectingCall
from litz_ir.text import parse_plan

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)

WORD, INT, POINTER = ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, *[INT] * 7, POINTER, POINTER, POINTER)
CONFIGURED = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, POINTER)
CLEAR = ctypes.CFUNCTYPE(ctypes.c_int, WORD, ctypes.c_ubyte, ctypes.c_size_t, POINTER)
USE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER)
DESCRIBE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, ctypes.c_int, INT, POINTER, *[POINTER] * 4, *[ctypes.c_int] * 4
)
CONTEXT, STREAM = 96, 7


class Recorder(ctypes.CDLL):
    """A library whose functions are native callbacks. A launch notes as many argument words as ``words`` says for its
    handle, and fails in threads without a context and with ``codes``, by handle."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.words: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.loaded = 0
        self.described: list[tuple[int, ...]] = []
        self._thread = threading.local()
        self.cuLaunchKernel = LAUNCH(self._launch)
        self.cuLaunchKernelEx = CONFIGURED(self._launch_configured)
        self.cuMemsetD8Async = CLEAR(self._clear)
        self.cuCtxSetCurrent = USE(self._use)
        self.cuTensorMapEncodeTiled = DESCRIBE(self._describe)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: object) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuModuleGetFunction(self, function: Any, module: object, entry: bytes) -> int:
        self.loaded += 1
        function._obj.value = self.loaded
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        return 0

    def _code(self, handle: int) -> int:
        return self.codes.get(handle, 0) if hasattr(self._thread, "context") else 201

    def _given(self, handle: int, block: int) -> tuple[int, ...]:
        pointers = (ctypes.c_void_p * self.words[handle]).from_address(block)
        return tuple(WORD.from_address(each or 0).value for each in pointers)

    def _launch(
        self, handle: int, grid: int, y: int, z: int, threads: int, ty: int, tz: int, nbytes: int, stream: int,
        block: int, extra: int,
    ) -> int:  # fmt: skip
        code = self._code(handle)
        if not code:
            assert (y, z, ty, tz, extra) == (1, 1, 1, 1, None)
            self.events.append(("launch", handle, grid, threads, nbytes, stream, self._given(handle, block)))
        return code

    def _launch_configured(self, configuration: int, handle: int, block: int, extra: int) -> int:
        grid = tuple((INT * 3).from_address(configuration))
        threads = tuple((INT * 3).from_address(configuration + 12))
        (nbytes,) = (INT * 1).from_address(configuration + 24)
        stream, attributes = (POINTER * 2).from_address(configuration + 32)
        (count,) = (INT * 1).from_address(configuration + 48)
        attribute = tuple((INT * 5).from_address(attributes))
        code = self._code(handle)
        if not code:
            given = (grid, threads, nbytes, stream, count, attribute)
            self.events.append(("cluster", handle, *given, self._given(handle, block)))
        return code

    def _clear(self, address: int, value: int, nbytes: int, stream: int) -> int:
        self.events.append(("clear", address, value, nbytes, stream))
        return 0

    def _describe(
        self, place: int, kind: int, rank: int, address: int | None, extents: int, strides: int, box: int, steps: int,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        if not hasattr(self._thread, "context"):
            return 201
        assert place % 64 == 0
        assert list((INT * rank).from_address(steps)) == [1] * rank
        assert (interleave, promotion, fill) == (0, 2, 0)
        sizes = (*(WORD * rank).from_address(extents), *(WORD * (rank - 1)).from_address(strides))
        tile = tuple((INT * rank).from_address(box))
        WORD.from_address(place).value = len(self.described)
        self.described.append((kind, swizzle, address or 0, *sizes, *tile))
        return self.codes.get(-1, 0)

    def _use(self, context: int) -> int:
        self._thread.context = context if isinstance(context, int) else context.value
        assert self._thread.context == CONTEXT
        return 0


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_launcher(launcher_unit(), tmp_path_factory.mktemp("launcher"))


Loaded = Callable[[Sequence[Kernel]], tuple[Recorder, launch.LaunchModule]]


@pytest.fixture
def load(library: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Load kernels with the native launcher; binaries for any alignment have 64 threads, the others 128."""

    def loaded(kernels: Sequence[Kernel]) -> tuple[Recorder, launch.LaunchModule]:
        driver = Recorder()
        stream = SimpleNamespace(cuda_stream=STREAM)
        cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda _: stream)
        monkeypatch.setattr(launch, "torch", SimpleNamespace(cuda=cuda, _C=None))
        monkeypatch.setattr(launch, "cuda_library", lambda: driver)
        by_name = {each.name: scheduled(each) for each in kernels}

        def built(name: str, warps: int) -> CompiledKernel:
            own = by_name[name]
            return CompiledKernel(name, b"", "entry", warps, 32, len(own.parameters) + len(own.symbols) + 1)

        module = launch.LaunchModule(
            {name: built(name, 4) for name in by_name}, by_name, lambda name: built(name, 2), launcher=library
        )
        for name, each in module._functions.items():
            driver.words[each.handle] = len(by_name[name].parameters) + len(by_name[name].symbols) + 1
        return driver, module

    return loaded


def call_of(module: launch.LaunchModule, names: Sequence[str], *positions: Sequence[int]) -> Any:
    segment = module.segment(names)
    assert isinstance(segment, SelectingCall)
    return segment.selecting(*positions)


def copies() -> list[Kernel]:
    text = "\n".join(
        f"""  kernel {name}(in %a: f32, out %b: f32) {{
    schedule tile_request
    outer [i0: 8]
    phase [] {{ %b[i0] = %a[i0]; }}
  }}"""
        for name in ("first", "second")
    )
    plan = f"""
plan p on cuda "sm_90" (%x: f32[8], %o: f32[8]) -> (%o) {{
  buffer %x: f32[8]
  buffer %o: f32[8]
{text}
  launch first(%x, %o)
  launch second(%x, %o)
}}
"""
    return list(parse_plan(plan).kernels)


@needs_compiler
def test_kernels_get_their_own_among_the_addresses_of_a_call(load: Loaded) -> None:
    driver, module = load(copies())
    run = call_of(module, ["first", "second"], [1, 0, 0, 2], [])
    assert type(run).__name__ == "builtin_function_or_method"
    for _ in range(2):
        assert run((16, 32, 48)) is None
        assert run([16, 32, 48], ()) is None
    one = [
        ("launch", 1, 1, 128, 32, STREAM, (32, 16, 0)),
        ("launch", 2, 1, 128, 32, STREAM, (16, 48, 0)),
    ]
    assert driver.events == one * 4


MATRIX = (0, 9, 3, 2, 128, 4096, 256, 64, 32)
VECTOR = (1, 7, 0, 1, 4096, 32)


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, native_launcher.MOST_DESCRIPTORS + 1])
def test_launches_make_tensor_descriptors(load: Loaded, count: int) -> None:
    driver, module = load(copies())
    described = (MATRIX, VECTOR, *[VECTOR] * count)[:count]
    second = replace(module._functions["second"], descriptors=described)
    module._functions["second"] = second
    driver.words[second.handle] += described_words(described)
    run = call_of(module, ["first", "second"], [0, 1, 1, 0], [])
    native = type(run).__name__ == "builtin_function_or_method"
    assert native == (count <= native_launcher.MOST_DESCRIPTORS)
    made = [(9, 3, 32, 128, 4096, 256, 64, 32), *[(7, 0, 16, 4096, 32)] * count][:count]
    for again in (False, True):
        driver.described.clear()
        driver.events.clear()
        run((16, 32))
        assert driver.described == ([] if again and not native else made), (
            "Python keeps those of the last call"
        )
        words = [word for k, each in enumerate(described) for word in (k, *[0] * (2 * each[3]))]
        assert driver.events == [
            ("launch", 1, 1, 128, 32, STREAM, (16, 32, 0)),
            ("launch", 2, 1, 128, 32, STREAM, (32, 16, *words, 0)),
        ]


@needs_compiler
@pytest.mark.parametrize("count", [1, native_launcher.MOST_DESCRIPTORS + 1])
def test_a_descriptor_that_fails_is_the_failure_of_its_kernel(load: Loaded, count: int) -> None:
    driver, module = load(copies())
    second = replace(module._functions["second"], descriptors=(MATRIX,) * count)
    module._functions["second"] = second
    run = call_of(module, ["first", "second"], [0, 1, 1, 0], [])
    driver.codes[-1] = 1
    with pytest.raises(KernelError, match="second"):
        run((16, 32))
    assert [each[1] for each in driver.events] == [1]


def bits(value: int | float) -> int:
    content = struct.pack("=d" if isinstance(value, float) else "=q", value)
    return int.from_bytes(content, sys.byteorder)


@needs_compiler
def test_symbols_are_integers_or_floats_and_size_the_grid(load: Loaded) -> None:
    sized = next(case for case in triton_corpus.cases() if case.kernel.symbols)
    kernel = sized.kernel
    infos = (*kernel.symbols, SymbolInfo("scale", "float", low=None))
    kernel = replace(kernel, symbols=infos)
    driver, module = load([kernel])
    count, names = len(kernel.parameters), [info.name for info in kernel.symbols]
    # The last of the call's values is the kernel's first symbol.
    order = [len(names) - 1 - k for k in range(len(names))]
    run = call_of(module, [kernel.name], range(count), order)
    addresses = tuple(16 * (k + 1) for k in range(count))
    for times in (1, 2, 2, 1):
        given = {**{name: times * int(value) for name, value in sized.symbols.items()}, "scale": -0.5}
        run(addresses, tuple(given[name] for name in reversed(names)))
        integers = {name: int(value) for name, value in given.items() if name != "scale"}
        grid = evaluate(tiled(kernel).grid_size, integers)
        words = (*addresses, *(bits(given[name]) for name in names), 0)
        assert driver.events.pop() == ("launch", 1, grid, 128, 32, STREAM, words)
    run(addresses, tuple(0 for _ in names))
    assert not driver.events


@needs_compiler
def test_a_cluster_and_a_workspace(load: Loaded) -> None:
    by_name = {case.name: case.kernel for case in triton_corpus.cases()}
    cluster, scan = by_name["softmax_in_cluster_of_2"], by_name["lookback_argmax"]
    driver, module = load([cluster, scan])
    counts = [len(each.parameters) for each in (cluster, scan)]
    run = call_of(module, [cluster.name, scan.name], range(sum(counts)), [])
    addresses = [16 * (k + 1) for k in range(sum(counts))]
    run(addresses)
    clustered = ((10, 1, 1), (128, 1, 1), 32, STREAM, 1, (4, 0, 2, 1, 1))
    nbytes = 8 * (16 + 2 * 2 * 3 * 5)
    assert driver.events == [
        ("cluster", 1, *clustered, (*addresses[: counts[0]], 0)),
        ("clear", addresses[-1], 0, nbytes, STREAM),
        ("launch", 2, 15, 128, 32, STREAM, (*addresses[counts[0] :], 0)),
    ]


@needs_compiler
@pytest.mark.parametrize("descriptors", [(), (MATRIX, VECTOR)])
def test_unaligned_addresses_are_left_to_python(
    descriptors: tuple[tuple[int, ...], ...], load: Loaded
) -> None:
    driver, module = load(copies())
    module._functions["second"] = replace(module._functions["second"], descriptors=descriptors)
    run = call_of(module, ["first", "second"], [0, 1, 1, 2], [])
    driver.words[3] = 3
    run((16, 32, 40))
    assert [(each[1], each[3], each[6]) for each in driver.events] == [
        (1, 128, (16, 32, 0)),
        (3, 64, (32, 40, 0)),
    ]


@needs_compiler
@pytest.mark.parametrize(("code", "error"), [(2, OutOfMemory), (1, KernelError)])
def test_a_launch_that_fails_is_the_last(code: int, error: type[KernelError], load: Loaded) -> None:
    driver, module = load(copies())
    run = call_of(module, ["first", "second", "first"], [0, 1] * 3, [])
    driver.codes[2] = code
    with pytest.raises(error, match="launching second") as raised:
        run((16, 32))
    assert raised.value.code == code
    assert [each[1] for each in driver.events] == [1]


@needs_compiler
@pytest.mark.parametrize("count", [0, 1, native_launcher.MOST_DESCRIPTORS + 1])
def test_a_thread_that_has_no_context_gets_the_one_of_torch(count: int, load: Loaded) -> None:
    driver, module = load(copies())
    first = replace(module._functions["first"], descriptors=(MATRIX,) * count)
    module._functions["first"] = first
    driver.words[first.handle] += described_words(first.descriptors)
    run = call_of(module, ["first", "second"], [0, 1, 1, 2], [])
    threads = [threading.Thread(target=lambda: [run((16, 32, 48)) for _ in range(50)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = sorted((*each[6][:2], len(each[6])) for each in driver.events)
    assert found == [(16, 32, 3 + 5 * count)] * 200 + [(32, 48, 3)] * 200


@needs_compiler
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        (((16,),), ValueError),
        (((16, "a"),), TypeError),
        ((7,), TypeError),
        (((16, 2**70),), OverflowError),
    ],
)
def test_other_arguments_are_errors(arguments: tuple[Any, ...], error: type[Exception], load: Loaded) -> None:
    driver, module = load(copies())
    run = call_of(module, ["first"], [0, 1], [])
    with pytest.raises(error):
        run(*arguments)
    assert not driver.events


@needs_compiler
def test_a_segment_of_very_many_kernels(load: Loaded) -> None:
    driver, module = load(copies())
    run = call_of(module, ["first"] * 1000, range(2000), [])
    addresses = tuple(range(16, 16 * 2001, 16))
    run(addresses)
    assert [each[6][:2] for each in driver.events] == list(zip(addresses[::2], addresses[1::2], strict=True))


def test_without_a_library_python_launches(load: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launcher_maker", lambda _: None)
    driver, module = load(copies())
    call_of(module, ["first", "second"], [1, 0, 0, 2], [])((16, 32, 48))
    assert [each[6] for each in driver.events] == [(32, 16, 0), (16, 48, 0)]


def test_a_machine_without_a_compiler_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_launcher.shutil, "which", lambda _: None)
    with pytest.raises(CompilerNotFound, match="no C compiler"):
        build_launcher(launcher_unit(), tmp_path)
    with pytest.raises(CompileFailed, match="native launcher"):
        build_launcher(launcher_unit(), tmp_path, "false")
    with pytest.raises(CompileFailed, match="native launcher"):
        build_launcher(launcher_unit(), tmp_path, str(tmp_path / "missing"))


def test_a_library_that_is_none_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "broken.so"
    path.write_bytes(b"no library")
    assert launcher_maker(path) is None


@needs_compiler
def test_the_target_builds_it(tmp_path: Path) -> None:
    target = CudaTarget("sm_90")
    assert isinstance(target, LaunchingTarget)
    unit = target.launcher_unit()
    assert not unit.kernels and launcher_maker(target.build(unit, tmp_path)) is not None


@needs_compiler
def test_its_source_has_no_warnings(tmp_path: Path) -> None:
    source = tmp_path / "launcher.c"
    source.write_text(launcher_unit().text)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    strict = (compiler, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c", str(source))
    done = subprocess.run(
        (*strict, "-o", str(tmp_path / "launcher.o")), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_compiler
def test_copies_are_launched_natively(load: Loaded) -> None:
    driver, module = load(copies()[:1])
    compiled = {
        COMPARE: CompiledKernel(COMPARE, b"", "entry", 4, 0, 6),
        COPY: CompiledKernel(COPY, b"", "entry", 4, 16, 5),
    }
    tables: list[Any] = []

    def memory(values: list[int]) -> Any:
        tables.append(values)
        at = 64 * len(tables)
        return SimpleNamespace(data_ptr=lambda: at)

    launcher = CopyLauncher(compiled, module.driver, lambda: 99, module.native)
    again = launcher.copies([4, 8, 12], [MemoryCopy(16, 32, (f32, f32), (8,), ((1,), (1,)))], memory)
    driver.words |= {2: 6, 3: 5}
    again()
    again()
    compare, copy = ("launch", 2, 1, 128, 0, STREAM), ("launch", 3, COPYING_BLOCKS, 128, 16, STREAM)
    assert driver.events == [
        (*compare, (64, 192, 256, 1, 3, 0)),
        (*compare, (64, 192, 256, 2, 3, 0)),
        (*copy, (128, 256, 2, 1, 0)),
    ]
    driver.codes[2] = 1
    with pytest.raises(KernelError, match=COMPARE):
        again()
