"""The CPU target: its capabilities, and calls of its modules."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpp_kernels import I0, I1, Array, M, N, ints, kernel
from test_cpp_emit import load_all, plan_of

from litz_codegen_cpp.capabilities import cache_sizes
from litz_codegen_cpp.emit.kernel import OUT_OF_MEMORY
from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.runtime import call
from litz_codegen_cpp.runtime.call import CpuModule, NativeSegment
from litz_codegen_cpp.runtime.load import LoadedLibrary, make_runtime
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.device import CPU
from litz_ir.dtypes import ALL, f32, f64, i64
from litz_ir.errors import IndexOutOfRange, KernelError, OutOfMemory, ToolchainError
from litz_ir.plan import CpuLoops, Kernel, ScratchArray, Store
from litz_ir.scalar import Const, Indirect, Scalar
from litz_ir.scalar.build import cast, load, op
from litz_ir.symbols import SymbolInfo, symbol
from litz_ir.target import ComparingModule, MemoryPart, SourceUnit, Target
from litz_ir.target.cases.case import Case
from litz_ir.target.conformance import case_plan, conformance_cases, lacking, run_conformance

README = Path(__file__).parents[1] / "README.md"


def scale() -> Kernel:
    value = op("mul", load("x", (I0,), f32), cast(Scalar("a", f64), f32))
    return kernel(
        "scale", "x : o", [("i0", N)], [([], [Store("o", I0, value)])], symbols=(SymbolInfo("a", "float"), *ints("n")),
        schedule=CpuLoops(parallel=("i0",), vector="i0", grain=1000),
    )  # fmt: skip


def lookup() -> Kernel:
    row = Indirect(load("at", (I0,), i64), 10, True, "raised")
    return kernel(
        "lookup", "w at : o", [("i0", N), ("i1", M)],
        [([], [Store("o", I0 * M + I1, load("w", (row * M + I1,), f32))])], dtypes={"at": i64}, symbols=ints("n", "m"),
        schedule=CpuLoops(parallel=("i0", "i1"), vector="i1"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"))
    return load_all(target, [scale(), lookup()], tmp_path_factory.mktemp("target"))


def test_is_a_target_that_knows_its_machine() -> None:
    target = CpuTarget()
    assert isinstance(target, Target)
    known = target.capabilities()
    assert known.device == CPU
    assert known.model.threads == len(os.sched_getaffinity(0))
    assert known.model.vector_bytes in (16, 32, 64)
    assert 0 < known.scratch_bytes <= known.model.l2_bytes
    assert known.dtypes == frozenset(ALL)
    assert CpuTarget(isa="avx2", threads=3).capabilities().model.threads == 3
    assert CpuTarget(isa="avx2").capabilities().name == "avx2"


def test_an_estimate_grows_with_traffic_and_launches() -> None:
    target = CpuTarget(isa="avx2", threads=2)
    assert target.seconds(1 << 30, 0, 1) > target.seconds(1 << 20, 0, 1) > target.seconds(0, 0, 1) > 0
    assert target.seconds(0, 10**12, 0) > target.seconds(0, 10**9, 0)


def test_cache_sizes_are_read_by_level(tmp_path: Path) -> None:
    found = (("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"))
    for number, (level, kind, size) in enumerate(found):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert cache_sizes(tmp_path) == {1: 32 << 10, 2: 2 << 20}
    assert cache_sizes(tmp_path / "missing") == {}


def test_float_symbols_travel_as_doubles(module: CpuModule) -> None:
    x = np.arange(5000, dtype=np.float32)
    o = np.zeros_like(x)
    module.function("scale")([x.ctypes.data, o.ctypes.data], [0.1, 5000])
    np.testing.assert_array_equal(o, x * np.float32(0.1))


@pytest.mark.parametrize("wrong", [10, -11])
def test_an_index_out_of_range_is_raised_after_the_kernel(module: CpuModule, wrong: int) -> None:
    w = np.arange(70, dtype=np.float32)
    at = np.array([3, wrong, -1], dtype=np.int64)
    o = np.zeros(21, dtype=np.float32)
    addresses = [each.ctypes.data for each in (w, at, o)]
    with pytest.raises(IndexOutOfRange, match="lookup"):
        module.function("lookup")(addresses, [3, 7])
    np.testing.assert_array_equal(o.reshape(3, 7)[[0, 2]], w.reshape(10, 7)[[3, 9]])


def test_a_segment_runs_kernels_in_one_call_and_stops_at_an_error(module: CpuModule) -> None:
    w, at = np.arange(70, dtype=np.float32), np.array([1, 2], dtype=np.int64)
    a, b, c = (np.zeros(14, dtype=np.float32) for _ in range(3))
    run = module.segment(["lookup", "scale", "scale"])
    arrays: dict[str, Array] = {"w": w, "at": at, "a": a, "b": b, "c": c}
    address = {name: array.ctypes.data for name, array in arrays.items()}
    buffers = [[address[name] for name in names] for names in (("w", "at", "a"), "ab", "bc")]
    run(buffers, [[2, 7], [2.0, 14], [0.5, 14]])
    np.testing.assert_array_equal(a, w[7:21])
    np.testing.assert_array_equal(b, 2 * a)
    np.testing.assert_array_equal(c, a)
    at[0] = 99
    c[:] = 5
    with pytest.raises(IndexOutOfRange):
        run.run([each for names in buffers for each in names], [2, 7, 2.0, 14, 0.5, 14])
    assert (c == 5).all()


def test_wrong_numbers_of_arguments_are_refused(module: CpuModule) -> None:
    with pytest.raises(KernelError, match="2 buffers"):
        module.function("scale")([0], [1.0, 1])
    with pytest.raises(KeyError):
        module.function("nothing")
    assert call.OUT_OF_MEMORY == OUT_OF_MEMORY
    assert module.address("scale") != module.address("lookup")
    assert module.runtime("scale") == module.runtime("lookup")


@pytest.mark.parametrize("positions", [None, (3,), (5, 0, 900), tuple(range(0, 997, 3))])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_memory_is_compared_with_what_it_was(
    module: CpuModule, width: int, positions: tuple[int, ...] | None
) -> None:
    memory = np.arange(1000).astype(f"u{width}")
    at = None if positions is None else np.array(positions, np.int64)
    content = memory if at is None else memory.take(at)
    part = MemoryPart(memory.ctypes.data, width, None if at is None else at.tobytes(), content.tobytes())
    idle = MemoryPart(memory.ctypes.data, width, None, b"")
    unchanged = module.comparison([idle, part, *[part] * 40])
    assert unchanged is not None and unchanged()
    compared = range(1000) if positions is None else positions
    for place in {compared[0], compared[len(compared) // 2], compared[-1]}:
        memory[place] ^= 1 << (8 * width - 1)
        assert not unchanged()
        memory[place] ^= 1 << (8 * width - 1)
        assert unchanged()
    if positions is not None:
        memory[1] += 1
        assert unchanged()
    nothing = module.comparison([])
    assert nothing is not None and nothing()
    assert CpuModule({}, {}, {}).comparison([part]) is None
    assert isinstance(module, ComparingModule)


def test_no_memory_for_scratch_is_an_error_as_torch_raises_it(tmp_path: Path) -> None:
    plain = scale()
    symbols = (*plain.symbols, *ints("m"))
    made = replace(plain, scratch=(ScratchArray("e", f32, symbol("m")),), symbols=symbols)
    run = load_all(CpuTarget(build_options=BuildOptions(optimize="-O0")), [made], tmp_path).function("scale")
    x, o = np.arange(4, dtype=np.float32), np.zeros(4, dtype=np.float32)
    run([x.ctypes.data, o.ctypes.data], [2.0, 4, 10])
    np.testing.assert_array_equal(o, 2 * x)
    with pytest.raises(RuntimeError, match="can't allocate memory for the scratch of scale") as caught:
        run([x.ctypes.data, o.ctypes.data], [2.0, 4, 1 << 50])
    assert isinstance(caught.value, OutOfMemory)


def test_one_callable_serves_several_threads(module: CpuModule) -> None:
    run = module.function("scale")

    def work(number: int) -> bool:
        x = np.full(3000, number, dtype=np.float32)
        o = np.zeros_like(x)
        for _ in range(30):
            run([x.ctypes.data, o.ctypes.data], [float(number), len(x)])
        return bool((o == number * number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_a_build_is_named_after_its_contents(tmp_path: Path) -> None:
    target = CpuTarget(isa="scalar", build_options=BuildOptions(optimize="-O1"))
    (unit,) = target.emit(plan_of([scale()]))
    first = target.build(unit, tmp_path)
    assert first.parent == tmp_path
    assert target.build(unit, tmp_path) == first
    assert CpuTarget(isa="scalar").build(unit, tmp_path) != first
    with pytest.raises(ToolchainError, match="triton"):
        target.build(SourceUnit("u", "triton", "", ()), tmp_path)


def test_the_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
    assert 'extern "C" int64_t softmax(' in capsys.readouterr().out


class Prebuilt(CpuTarget):
    """All kernels of the cases that a CPU is able to run, in one library, built once."""

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        super().__init__(build_options=BuildOptions(optimize="-O1"))
        able = self.capabilities()
        runnable = [case for case in cases if not lacking(case, able)]
        self.kernels = [kernel for case in runnable for kernel in case_plan(case, able).kernels]
        self.units = super().emit(plan_of(self.kernels))
        self.binaries = [super(Prebuilt, self).build(unit, folder) for unit in self.units]

    def emit(self, plan: object) -> tuple[SourceUnit, ...]:
        return ()

    def load(self, *_: object) -> CpuModule:
        return super().load(self.units, self.binaries, {k.name: k for k in self.kernels})


def test_conforms(tmp_path: Path) -> None:
    report = run_conformance(Prebuilt(tmp_path, conformance_cases()), tmp_path)
    assert not report.failed, report.describe()
    assert len(report.passed) > 100


def reversal() -> Kernel:
    """A kernel on several threads that reads what another thread wrote."""
    value = op("add", load("x", (N - 1 - I0,), f32), Const(1.0, f32))
    return kernel(
        "reversal", "x : o", [("i0", N)], [([], [Store("o", I0, value)])], symbols=ints("n"),
        schedule=CpuLoops(parallel=("i0",), vector="i0", grain=16),
    )  # fmt: skip


def count() -> Kernel:
    """A kernel on one thread."""
    return kernel(
        "count", "x : o", [("i0", N)], [([], [Store("o", I0, op("mul", load("x", (I0,), f32), Const(2.0, f32)))])],
        symbols=ints("n"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"), threads=3)
    return load_all(target, [reversal(), count(), lookup()], tmp_path_factory.mktemp("team"))


@pytest.fixture(scope="module")
def team_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"))
    (unit,) = target.emit(plan_of([reversal(), count()]))
    return target.build(unit, tmp_path_factory.mktemp("region"))


@pytest.mark.parametrize("n", [1, 31, 33, 1000, 4099])
def test_threads_wait_before_a_kernel_that_depends_on_others(team: CpuModule, n: int) -> None:
    names = ["reversal", "count", "reversal", "reversal", "count"] * 4
    x = np.arange(n, dtype=np.float32)
    arrays = [x, *(np.zeros_like(x) for _ in names)]
    run = team.segment(names)
    buffers = [[arrays[k].ctypes.data, arrays[k + 1].ctypes.data] for k in range(len(names))]
    want = [x]
    for name in names:
        want.append(want[-1][::-1] + 1 if name == "reversal" else want[-1] * 2)
    for _ in range(50):
        for array in arrays[1:]:
            array[:] = 0
        run(buffers, [[n]] * len(names))
        for got, expected in zip(arrays, want, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_run_opens_one_parallel_region(team_library: Path) -> None:
    library = LoadedLibrary(team_library, make_runtime(3))
    table = library.runtime
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    opens, asked = region(table.gomp_parallel), list[int]()

    def counted(function: int, argument: int, threads: int, flags: int) -> None:
        asked.append(threads)
        opens(function, argument, threads, flags)

    counting = region(counted)
    table.gomp_parallel = ctypes.cast(counting, ctypes.c_void_p).value
    kernels = [reversal(), count(), reversal()]
    symbols = [library.address(entry_point(each.name)) for each in kernels]
    arrays = [np.ones(5000, dtype=np.float32) for _ in range(4)]
    run = NativeSegment(library, symbols, kernels)
    run.run([a.ctypes.data for k in range(3) for a in arrays[k : k + 2]], [5000] * 3)
    assert asked == [3]
    assert (arrays[3] == 5).all()
    run.run([a.ctypes.data for k in range(3) for a in arrays[k : k + 2]], [20] * 3)
    assert asked == [3], "little work is one thread's"


def test_independent_kernels_need_not_wait_and_a_failure_is_reported(team: CpuModule) -> None:
    w, at = np.arange(70, dtype=np.float32), np.array([1, 99] * 40, dtype=np.int64)
    found, x, y = np.zeros(560, np.float32), np.ones(4000, np.float32), np.zeros(4000, np.float32)
    run = team.segment(["reversal", "lookup", "reversal"], [False, False, True])
    buffers = [[x, y], [w, at, found], [y, x]]
    addresses = [[a.ctypes.data for a in arrays] for arrays in buffers]
    with pytest.raises(IndexOutOfRange, match="lookup"):
        run(addresses, [[4000], [80, 7], [4000]])
    assert (y == 2).all()
    assert (x == 1).all(), "what follows a failure does not run"
