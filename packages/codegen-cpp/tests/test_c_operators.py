"""Host programs that call operators: what the runtime gives them, results of late sizes, and failures."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_runtime import CODES, Failure, Layout, Model, Runtime, model_bytes, plan_of

from litz_codegen_cpp.host import build_runtime, include_paths, refusals
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.isa import detect
from litz_ir.errors import CompilerNotFound

SELECTED = """
plan selected on cpu "any" (%x: f32[n, 8] fixed) -> (%twice, $v, %x2, n) {
  symbols {
    n: int from 1 to 100
    u0: int from 0 to 800 source "places.size(0)"
    v: float source "computed"
  }
  storage s0: n*8
  storage s1: ((u0 + 15)//16)*64
  storage s2: n*32
  buffer %x: f32[n, 8] fixed
  buffer %mask: b1[n, 8] in s0
  buffer %places: i64[u0, 2] strides(1, u0) fixed
  buffer %twice: f32[u0] fixed in s1
  buffer %x2: f32[n, 8] in s2
  kernel k0(in %p0: f32, out %p1: b1) {
    symbols { n: int from 1 to 100 }
    schedule cpu_loops parallel(i0) vector i0 grain 1000
    outer [i0: n*8]
    phase [] { %p1[i0] = %p0[i0] > 0.0; }
  }
  kernel k1(in %p0: i64, in %p1: f32, out %p2: f32) {
    symbols { u0: int from 0 to 800 }
    schedule cpu_loops parallel(i0) vector i0 grain 1000
    outer [i0: u0]
    phase [] {
      %p2[i0] = %p1[indirect(%p0[i0 + u0], size=8, assumed) + indirect(%p0[i0], size=100, assumed)*8]*2.0;
    }
  }
  kernel k2(in %p0: f32, out %p1: f32) {
    symbols { n: int from 1 to 100 }
    schedule cpu_loops parallel(i0) vector i0 grain 1000
    outer [i0: n*8]
    phase [] { %p1[i0] = %p0[i0] + 1.0; }
  }
  allocate s0
  launch k0(%x, %mask; n)
  %places = call test.NAME.default(%mask, 2.5, [1, none])
  free s0
  define u0 from size 0 of %places
  check { index(u0) < 50 } "at most 49 are selected"
  allocate s1
  launch k1(%places, %x, %twice; u0)
  free places
  allocate s2
  launch k2(%x, %x2; n)
  define v { f64(%x2[0, 1]) }
}
"""
Receive = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Layout), ctypes.c_void_p
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runtime, Any, Path]:
    """The runtime, the library of operators, and a folder."""
    folder = tmp_path_factory.mktemp("operators")
    try:
        runtime = Runtime(build_runtime(folder))
    except CompilerNotFound as error:
        pytest.skip(str(error))
    source = Path(__file__).with_name("operators.c")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
    flags += [f"-I{each}" for each in include_paths()]
    subprocess.run(["cc", *flags, source, "-o", folder / "operators.so"], check=True)
    return runtime, ctypes.CDLL(str(folder / "operators.so")), folder


def opened(built: tuple[Runtime, Any, Path], name: str, path: Path, *, given: bool = True) -> Model:
    """The model of the plan above, which calls the operator ``name``."""
    runtime, operators, folder = built
    target = CpuTarget()
    host = target.build(target.emit_host(plan_of(SELECTED.replace("NAME", name))), folder)
    (path / "model.litz").write_bytes(model_bytes(host.read_bytes(), detect().name, ["x"]))
    table = ctypes.addressof(ctypes.c_char.in_dll(operators, "operators"))
    return runtime.open(path / "model.litz", threads=2, operators=table if given else None)


@pytest.fixture
def model(built: tuple[Runtime, Any, Path], tmp_path: Path) -> Iterator[Model]:
    found = opened(built, "nonzero", tmp_path)
    yield found
    found.close()


def received(model: Model, x: np.ndarray, *, refuse: bool = False) -> list[Any]:
    """The results of a run."""
    late: list[np.ndarray] = []

    def receive(_: object, position: int, layout: Any, data: int) -> int:
        about = layout.contents
        assert (position, about.rank, about.strides[0], about.bytes) == (0, 1, 1, about.shape[0] * 4)
        raw = ctypes.string_at(data, about.bytes)
        late.append(np.frombuffer(raw, np.float32))
        return int(refuse)

    symbols = model.symbols_of([x])
    number, count, plus = np.zeros(1), np.zeros(1, np.int64), np.zeros_like(x)
    given = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 4)(None, number.ctypes.data, plus.ctypes.data, count.ctypes.data)
    model.runtime.check("litz_run_receiving", model.entry, symbols, given, outputs, Receive(receive), None)
    return [late[0], float(number[0]), plus, int(count[0])]


def live(built: tuple[Runtime, Any, Path]) -> int:
    return ctypes.c_int.in_dll(built[1], "live").value


def test_sizes_that_depend_on_values(model: Model, built: tuple[Runtime, Any, Path]) -> None:
    for n in (1, 3, 9):
        x = np.random.default_rng(n).standard_normal((n, 8), dtype=np.float32)
        twice, number, plus, count = received(model, x)
        np.testing.assert_array_equal(twice, x[x > 0] * 2)
        np.testing.assert_array_equal(plus, x + 1)
        assert number == float(plus[0, 1]) and count == n
    empty = received(model, np.full((2, 8), -1, np.float32))[0]
    assert empty.shape == (0,)
    assert ctypes.c_double.in_dll(built[1], "last").value == 2.5
    assert live(built) == 0, "results of operators are released"


def test_threads_share_a_model(model: Model, built: tuple[Runtime, Any, Path]) -> None:
    wrong: list[int] = []

    def work(k: int) -> None:
        x = np.random.default_rng(k).standard_normal((4 + k, 8), dtype=np.float32)
        for _ in range(50):
            twice, _, plus, count = received(model, x)
            if not (np.array_equal(twice, x[x > 0] * 2) and np.array_equal(plus, x + 1) and count == 4 + k):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and live(built) == 0


def test_a_model_tells_which_results_are_late(model: Model) -> None:
    library = model.runtime.library
    assert [library.litz_output_is_late(model.entry, k) for k in range(5)] == [1, 0, 0, 0, 0]
    assert library.litz_input_rank(model.entry, 0) == 2 and library.litz_input_rank(model.entry, 1) == -1
    symbols = model.symbols_of([np.zeros((2, 8), np.float32)])
    with pytest.raises(Failure, match="depends on values") as caught:
        model.layout(0, symbols)
    assert caught.value.code == CODES["ARGUMENT"]
    assert [model.layout(k, symbols).dtype for k in (1, 2, 3)] == [12, 11, 4]
    with pytest.raises(Failure, match="litz_run_receiving") as caught:
        model.runtime.check(
            "litz_run", model.entry, symbols, (ctypes.c_void_p * 1)(1), (ctypes.c_void_p * 4)()
        )
    assert caught.value.code == CODES["UNSUPPORTED"]


def test_assertions_and_receivers_that_refuse(model: Model, built: tuple[Runtime, Any, Path]) -> None:
    with pytest.raises(Failure, match="at most 49 are selected") as caught:
        received(model, np.ones((7, 8), np.float32))
    assert caught.value.code == CODES["RUN"]
    with pytest.raises(Failure, match="receiver"):
        received(model, np.ones((2, 8), np.float32), refuse=True)
    assert live(built) == 0
    assert received(model, np.ones((1, 8), np.float32))[0].shape == (8,)


def test_failures_of_operators_have_their_message(built: tuple[Runtime, Any, Path], tmp_path: Path) -> None:
    for name, words in (
        ("fail", "test.fail.default in forward: no such luck with 1 results"),
        ("transposed", "other strides"),
    ):
        model = opened(built, name, tmp_path)
        with pytest.raises(Failure, match=words) as caught:
            received(model, np.ones((3, 8), np.float32))
        assert caught.value.code == CODES["RUN"] and live(built) == 0
        model.close()


def test_operators_that_are_missing_are_named(built: tuple[Runtime, Any, Path], tmp_path: Path) -> None:
    for name, given, words in (
        ("nonzero", False, "test.nonzero.default.*litz_options.operators"),
        ("unknown", True, "test.unknown.default.*registered"),
    ):
        with pytest.raises(Failure, match=words) as caught:
            opened(built, name, tmp_path, given=given)
        assert caught.value.code == CODES["UNSUPPORTED"]


def test_refusals_name_what_is_left() -> None:
    assert refusals(plan_of(SELECTED)) == ()
    found = refusals(plan_of(SELECTED.replace("test.NAME.default", "higher_order.foo")))
    assert [(each.call, each.reason) for each in found] == [
        ("higher_order.foo", "it is a routine of Python alone")
    ]
