"""The toolchain: instruction sets, compilers, builds, simpler instruction sets, loading, and threads."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path

import numpy as np
import pytest

from litz_codegen_cpp.runtime.load import LoadedLibrary, loaded_openmp, make_runtime, open_openmp
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain import build, isa
from litz_codegen_cpp.toolchain.build import BuildOptions, StepDowns, compile_source
from litz_codegen_cpp.toolchain.compilers import Compiler, find_compiler
from litz_ir.errors import CompileFailed, CompilerNotFound, ToolchainError

UNIT = """
#include <litz/memory.h>
#include <litz/runtime.h>
using namespace litz;
extern "C" int64_t slices(litz_runtime* rt, void** buffers, const int64_t* symbols) {
  int64_t* owner = (int64_t*)buffers[0];
  int64_t* slots = (int64_t*)buffers[1];
  const int64_t n = symbols[0], grain = symbols[1];
  slots[0] = slot_count(rt, 5, 5 + n, grain);
  parallel_slots(rt, 5, 5 + n, grain, [=](int64_t b, int64_t e, int64_t slot) {
    for (int64_t i = b; i < e; ++i) owner[i - 5] += slot + 1;
  });
  return 0;
}
extern "C" int64_t refuses(litz_runtime* rt, void**, const int64_t* symbols) {
  int64_t error = 0;
  parallel_for(rt, 0, 100, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      if (i % 7 == 3) report(&error, symbols[0]);
  });
  return error;
}
static void step(void* context, int64_t b, int64_t e) {
  for (int64_t i = b; i < e; ++i) ((float*)context)[i] *= 2;
}
extern "C" int64_t doubles(litz_runtime* rt, void** buffers, const int64_t* symbols) {
  litz_parallel_for(rt, 0, symbols[0], 16, step, buffers[0]);
  return 0;
}
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    try:
        return find_compiler()
    except CompilerNotFound as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def library(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toolchain") / "unit.so"
    return compile_source(UNIT, isa=isa.detect(), compiler=compiler, out=out)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


AVX2 = "avx2 fma f16c bmi1 bmi2 abm popcnt movbe".split()
AVX512 = [*AVX2, *"avx512f avx512bw avx512cd avx512dq avx512vl".split()]


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", AVX512, "avx512"),
        ("x86_64", AVX2, "avx2"),
        ("x86_64", [*AVX2, "avx512f"], "avx2"),
        ("x86_64", ["sse2", "avx"], "scalar"),
        ("aarch64", [], "neon"),
        ("arm64", [], "neon"),
        ("riscv64", AVX512, "scalar"),
    ],
)
def test_instruction_set_follows_the_cpu_flags(machine: str, flags: list[str], name: str) -> None:
    chosen = isa.from_flags(machine, flags)
    assert chosen.name == name
    assert chosen.lanes * 4 == chosen.vector_bytes
    assert isa.by_name(name).lanes == chosen.lanes
    assert chosen.machine in (isa.machine_name(machine), "")


def test_optional_features_add_their_flags() -> None:
    chosen = isa.from_flags("x86_64", [*AVX512, "avx512_bf16"])
    assert chosen.features == {"avx512_bf16"} and "-mavx512bf16" in chosen.flags
    assert isa.step_down(chosen) == isa.by_name("avx512")
    assert isa.step_down(isa.by_name("avx512")) == isa.by_name("avx2")
    assert isa.step_down(isa.by_name("scalar")) is None


def test_cpu_flags_are_read_as_linux_lists_them(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: other\n")
    assert isa.cpu_flags(info) == {"fpu", "avx2", "fma"}
    assert isa.cpu_flags(tmp_path / "absent") == frozenset()


def test_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ToolchainError, match="avx1024") as caught:
        isa.by_name("avx1024")
    assert "avx512" in caught.value.hint


def test_no_compiler_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerNotFound) as caught:
        find_compiler()
    assert caught.value.looked_for == ("g++", "clang++")
    text = str(caught.value)
    assert "g++ is not on PATH" in text and "clang++ is not on PATH" in text and "apt install g++" in text


@pytest.mark.parametrize("by", ["option", "CXX"])
def test_a_named_compiler_that_fails_is_an_error(by: str) -> None:
    missing = "/nowhere/bin/c++"
    with pytest.raises(
        CompilerNotFound, match=r"names '/nowhere/bin/c.*', which is not an executable file"
    ) as caught:
        find_compiler(missing) if by == "option" else find_compiler(cxx=missing)
    assert caught.value.looked_for == (missing,) and by in str(caught.value)


def test_a_compiler_of_another_architecture_is_searched_for_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = "aarch64" if isa.machine_name(platform.machine()) != "aarch64" else "x86_64"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerNotFound, match=f"no C.* compiler for {other}") as caught:
        find_compiler(machine=other)
    assert caught.value.looked_for == (f"{other}-linux-gnu-g++", f"{other}-linux-gnu-clang++")
    assert "apt install g++-aarch64-linux-gnu" in (caught.value.hint or "")
    made = script(tmp_path / f"{other}-linux-gnu-g++", f'echo "{other}-linux-gnu-g++ 12.2.0"')
    assert find_compiler(machine=other).path == made


def test_a_named_compiler_of_another_architecture_is_refused(tmp_path: Path) -> None:
    answer = 'case "$1" in -dumpmachine) echo arm64-apple-darwin;; *) echo "g++ 12.2.0";; esac'
    named = script(tmp_path / "named-g++", answer)
    assert find_compiler(named, machine="aarch64").path == named
    with pytest.raises(CompilerNotFound, match="which compiles for aarch64"):
        find_compiler(named, machine="x86_64")
    silent = script(
        tmp_path / "silent-g++", 'case "$1" in -dumpmachine) exit 1;; *) echo "g++ 12.2.0";; esac'
    )
    assert find_compiler(silent, machine="x86_64").path == silent


@pytest.mark.skipif(isa.machine_name(platform.machine()) != "x86_64", reason="the compiler is that of x86-64")
def test_the_target_of_another_architecture_takes_no_compiler_of_this_one() -> None:
    with pytest.raises(CompilerNotFound, match="compiles for x86_64"):
        CpuTarget("neon", compiler="g++").compiler()
    assert CpuTarget("avx2", compiler="g++").compiler().kind == "gcc"


def test_compilers_are_told_apart(tmp_path: Path) -> None:
    clang = script(tmp_path / "my-c++", 'echo "Debian clang version 16.0.6 (27)"')
    found = find_compiler(cxx=f"{clang} -m64")
    assert (found.kind, found.version, found.command) == ("clang", "16.0.6", (clang, "-m64"))
    gcc = script(tmp_path / "g++-9", 'echo "g++ (GCC) 9.4.0"')
    assert find_compiler(gcc, cxx=clang).kind == "gcc"
    broken = script(tmp_path / "broken", "exit 3")
    with pytest.raises(CompilerNotFound, match="status 3"):
        find_compiler(broken)


def test_a_refused_unit_shows_the_compilers_words(compiler: Compiler, tmp_path: Path) -> None:
    out = tmp_path / "bad.so"
    with pytest.raises(CompileFailed, match="nonsense") as caught:
        compile_source("int nonsense(", isa=isa.detect(), compiler=compiler, out=out)
    assert compiler.path in caught.value.command and "error" in caught.value.output
    assert list(tmp_path.iterdir()) == []


def test_an_old_compiler_gets_a_simpler_instruction_set(compiler: Compiler, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    old = script(
        tmp_path / "old-g++",
        f'echo x >> {log}\ncase "$*" in *-mavx512f*) echo "unrecognized option -mavx512f" >&2; exit 1;; esac\n'
        f'exec {compiler.path} "$@"',
    )
    wrapped = Compiler(old, compiler.kind, compiler.version)
    step_downs, best = StepDowns(), isa.by_name("avx512")
    for name in ("first", "second"):
        out = compile_source(
            'extern "C" int lanes() { return LITZ_LANES; }',
            isa=best,
            compiler=wrapped,
            out=tmp_path / f"{name}.so",
            step_downs=step_downs,
        )
        assert out.exists()
    assert step_downs.usable(wrapped, best) == isa.by_name("avx2")
    assert log.read_text().count("x") == 3


def test_an_internal_compiler_error_is_retried_with_less_optimisation(
    compiler: Compiler, tmp_path: Path
) -> None:
    fragile = script(
        tmp_path / "fragile-g++",
        'case "$*" in *-O2*) echo "x.cpp:1: internal compiler error: in some_pass" >&2; exit 1;; esac\n'
        f'exec {compiler.path} "$@"',
    )
    wrapped, best = Compiler(fragile, compiler.kind, compiler.version), isa.by_name("avx2")
    step_downs = StepDowns()
    source, out = 'extern "C" int lanes() { return LITZ_LANES; }', tmp_path / "unit.so"
    compile_source(source, isa=best, compiler=wrapped, out=out, step_downs=step_downs)
    assert out.exists() and step_downs.usable(wrapped, best) == best


def test_an_endless_compiler_is_stopped(tmp_path: Path) -> None:
    slow = Compiler(script(tmp_path / "slow", "sleep 60"), "gcc", "1.0")
    with pytest.raises(CompileFailed, match=r"did not finish in 0\.2 s"):
        compile_source(
            "", isa=isa.SCALAR, compiler=slow, out=tmp_path / "x.so", options=BuildOptions(timeout_s=0.2)
        )
    assert not (tmp_path / "x.so").exists()


def test_fingerprint_covers_flags_and_compiler(compiler: Compiler) -> None:
    options = BuildOptions()
    base = build.build_fingerprint(compiler, isa.by_name("avx2"), options)
    assert base == build.build_fingerprint(compiler, isa.by_name("avx2"), options)
    assert base != build.build_fingerprint(compiler, isa.by_name("scalar"), options)
    assert base != build.build_fingerprint(compiler, isa.by_name("avx2"), BuildOptions(contract=True))


def test_no_flag_relaxes_ieee_semantics(compiler: Compiler, tmp_path: Path) -> None:
    command = build.compile_command(compiler, isa.detect(), BuildOptions(), tmp_path / "x.so")
    assert "-ffp-contract=off" in command
    assert not {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only"} & set(command)


@pytest.mark.parametrize("threads", [1, 2, 3, 0])
def test_slices_cover_the_range_once(library: Path, threads: int) -> None:
    kernel = LoadedLibrary(library, make_runtime(threads)).function("slices")
    for n, grain in ((0, 1), (1, 1), (2, 1), (7, 1), (100, 1), (100, 30), (100, 60)):
        owner, slots = np.zeros(n, np.int64), np.zeros(1, np.int64)
        assert kernel([owner.ctypes.data, slots.ctypes.data], [n, grain]) == 0
        assert (np.diff(owner) >= 0).all() and (owner >= 1).all() and (owner <= slots[0]).all()
        assert slots[0] <= max(1, n // grain) and (threads == 0 or slots[0] <= threads)
        sizes = np.bincount(owner, minlength=1)[1:]
        if n and open_openmp() is not None and threads:
            assert len(sizes) == slots[0] and sizes.max() - sizes.min() <= 1


def test_serial_runtime_has_one_slice(library: Path) -> None:
    kernel = LoadedLibrary(library, make_runtime(4, serial=True)).function("slices")
    owner, slots = np.zeros(1000, np.int64), np.zeros(1, np.int64)
    assert kernel([owner.ctypes.data, slots.ctypes.data], [1000, 1]) == 0
    assert slots[0] == 1 and (owner == 1).all()


def test_error_codes_come_back(library: Path) -> None:
    loaded = LoadedLibrary(library)
    assert loaded.function("refuses")([], [17]) == 17
    x = np.arange(100, dtype=np.float32)
    assert loaded.function("doubles")([x.ctypes.data], [100]) == 0
    np.testing.assert_array_equal(x, 2 * np.arange(100, dtype=np.float32))


def test_loading_says_what_is_wrong(library: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no kernel absent"):
        LoadedLibrary(library).function("absent")
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(library.read_bytes()[:100])
    with pytest.raises(ToolchainError, match=r"cannot load .*damaged\.so"):
        LoadedLibrary(damaged)


def test_the_openmp_library_in_the_process_is_found_under_any_name(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    row = "7f0000000000-7f0000001000 r-xp 00000000 08:01 123                        {}\n"
    maps.write_text(
        row.format("/usr/lib/libm.so.6") + row.format("/site packages/torch.libs/libgomp-1ce9de80.so.1")
    )
    assert loaded_openmp(maps) == Path("/site packages/torch.libs/libgomp-1ce9de80.so.1")
    maps.write_text(row.format("/usr/lib/libm.so.6") + row.format("/opt/lib/libiomp5.so"))
    assert loaded_openmp(maps) == Path("/opt/lib/libiomp5.so")
    maps.write_text(row.format("/usr/lib/libm.so.6") + "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n")
    assert loaded_openmp(maps) is None
    assert loaded_openmp(tmp_path / "absent") is None


def test_libraries_are_written_atomically(compiler: Compiler, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "folder" / "unit.so"
    compile_source(UNIT, isa=isa.detect(), compiler=compiler, out=out)
    assert os.listdir(out.parent) == ["unit.so"]
