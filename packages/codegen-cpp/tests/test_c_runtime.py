"""liblitz_runtime: models that it opens and runs, and files that it refuses before anything of them runs."""

from __future__ import annotations

import ctypes
import re
import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_runtime import CODES, Failure, Model, Runtime, model_bytes, plan_of, safetensors, stored_zip

from litz_codegen_cpp.host import build_runtime
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.isa import Isa, detect
from litz_ir.errors import CompilerNotFound

SCALED_SOFTMAX = """
plan scaled_softmax on cpu "any" (%x: f32[n, 64] fixed, %w: f32[64] fixed) -> (%o, %y) {
  symbols { n: int from 1 to 1000 }
  storage s0: n*256
  storage s1: n*256
  buffer %x: f32[n, 64] fixed
  buffer %w: f32[64] fixed
  buffer %y: f32[n, 64] fixed in s0
  buffer %o: f32[n, 64] fixed in s1
  kernel scale(in %x: f32, in %w: f32, out %o: f32) {
    symbols { n: int from 0 }
    schedule cpu_loops parallel(i0) vector i1
    outer [i0: n, i1: 64]
    phase [] { %o[i0*64 + i1] = %x[i0*64 + i1] * %w[i1]; }
  }
  kernel softmax(in %x: f32, out %o: f32) {
    symbols { n: int from 0 }
    schedule cpu_loops parallel(i0) vector r0
    outer [i0: n]
    scratch %e: f32[64]
    phase [r0: 64] { $m: f32 = reduce.max { %x[i0*64 + r0] }; }
    phase [r0: 64] { let t0 = exp(%x[i0*64 + r0] - $m); $z: f32 = reduce.sum { t0 }; %e[r0] = t0; }
    phase [r0: 64] { %o[i0*64 + r0] = %e[r0] / $z; }
  }
  allocate s0
  launch scale(%x, %w, %y; n)
  allocate s1
  launch softmax(%y, %o; n)
}
"""


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runtime, bytes, Isa, np.ndarray]:
    """The runtime, built without warnings, the host object of the plan above, its set and its weight."""
    folder = tmp_path_factory.mktemp("c")
    try:
        runtime = Runtime(build_runtime(folder, flags=("-Wall", "-Wextra", "-Werror")))
    except CompilerNotFound as error:
        pytest.skip(str(error))
    isa = detect()
    target = CpuTarget()
    host = target.build(target.emit_host(plan_of(SCALED_SOFTMAX), ["w"]), folder)
    return runtime, host.read_bytes(), isa, np.linspace(0.5, 2, 64, dtype=np.float32)


@pytest.fixture
def model(built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path) -> Iterator[Model]:
    runtime, host, isa, weight = built
    path = tmp_path / "model.litz"
    path.write_bytes(model_bytes(host, isa.name, ["x"], {"scale": (1, weight)}))
    opened = runtime.open(path, threads=3)
    yield opened
    opened.close()


def archive(built: tuple[Runtime, bytes, Isa, np.ndarray], **changes: Any) -> bytes:
    _, host, isa, weight = built
    return model_bytes(host, isa.name, ["x"], {"scale": (1, weight)}, **changes)


def refused(runtime: Runtime, path: Path, data: bytes, **options: object) -> Failure:
    path.write_bytes(data)
    with pytest.raises(Failure) as caught:
        runtime.open(path, **options)
    assert str(caught.value)
    return caught.value


def test_a_program_runs_for_any_size(model: Model, built: tuple[Runtime, bytes, Isa, np.ndarray]) -> None:
    for n in (1, 7, 900):
        x = np.random.default_rng(n).standard_normal((n, 64), dtype=np.float32)
        o, y = model(x)
        np.testing.assert_array_equal(y, x * built[3])
        np.testing.assert_allclose(o, softmax(x * built[3]), rtol=2e-6)


def test_a_model_describes_itself(model: Model) -> None:
    library = model.runtime.library
    assert library.litz_entry_count(model.handle) == 1
    assert library.litz_input_count(model.entry) == 1
    assert library.litz_input_name(model.entry, 0) == b"x"
    assert library.litz_input_name(model.entry, 1) is None
    assert library.litz_entry_isa(model.entry) == detect().name.encode()
    layout = model.layout(0, model.symbols_of([np.empty((5, 64), np.float32)]))
    assert (layout.rank, list(layout.shape[:2]), list(layout.strides[:2]), layout.bytes) == (
        2,
        [5, 64],
        [64, 1],
        1280,
    )


@pytest.mark.parametrize("shape", [(0, 64), (1001, 64), (3, 63)])
def test_sizes_are_checked(model: Model, shape: tuple[int, int]) -> None:
    with pytest.raises(Failure) as caught:
        model(np.zeros(shape, np.float32))
    assert caught.value.code == CODES["ARGUMENT"]


def test_inputs_that_operators_overwrite_are_in_the_manifest(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    for names in ((), ("x",)):
        (tmp_path / "m.litz").write_bytes(archive(built, overwritten=names))
        model = built[0].open(tmp_path / "m.litz")
        assert built[0].library.litz_input_overwritten(model.entry, 0) == len(names)
        model.close()


def test_arrays_that_are_not_given_are_named(model: Model) -> None:
    found = (ctypes.c_int64 * 1)(1)
    for shapes, symbols in ((None, found), ((ctypes.c_void_p * 1)(ctypes.addressof(found)), None)):
        with pytest.raises(Failure, match="1 inputs and 1 symbols") as caught:
            model.runtime.check("litz_symbols_of", model.entry, shapes, symbols)
        assert caught.value.code == CODES["ARGUMENT"]
    with pytest.raises(Failure, match="the values of 1 symbols"):
        model.runtime.check("litz_run", model.entry, None, None, None)


def test_threads_share_a_model(model: Model) -> None:
    inputs = [np.random.default_rng(k).standard_normal((400 + k, 64), dtype=np.float32) for k in range(4)]
    wanted = [model(x)[0] for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not np.array_equal(model(inputs[k])[0], wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_of_a_team_take_no_signals(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    """A handler of the program runs on a thread that the program knows."""
    tasks = Path("/proc/self/task")
    before = {task.name for task in tasks.iterdir()}
    (tmp_path / "m.litz").write_bytes(archive(built))
    model = built[0].open(tmp_path / "m.litz", threads=3)
    team = [task for task in tasks.iterdir() if task.name not in before]
    assert len(team) == 2
    faults = 1 << (signal.SIGSEGV - 1) | 1 << (signal.SIGFPE - 1)  # of the thread that has them
    for task in team:
        for _ in range(500):  # a thread that begins blocks all for a moment
            blocked = int(re.findall(r"SigBlk:\s*(\w+)", (task / "status").read_text())[0], 16)
            if not blocked & faults:
                break
            time.sleep(0.01)
        assert not blocked & faults and blocked >> (signal.SIGTERM - 1) & 1
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    model.close()


def test_weights_of_another_file_or_of_the_caller(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    runtime, _, _, weight = built
    path, x = tmp_path / "model.litz", np.ones((2, 64), np.float32)
    path.write_bytes(archive(built))
    (tmp_path / "other.safetensors").write_bytes(safetensors({"scale": weight * 2}))
    other = runtime.open(path, weights_path=str(tmp_path / "other.safetensors").encode())
    np.testing.assert_array_equal(other(x)[1], x * weight * 2)
    other.close()
    tripled = weight * 3
    given = runtime.open(path, weights={"scale": tripled})
    np.testing.assert_array_equal(given(x)[1], x * tripled)
    given.close()


def test_weights_in_a_file_next_to_the_model(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    runtime, host, isa, weight = built
    path, x = tmp_path / "model.litz", np.ones((2, 64), np.float32)
    data = model_bytes(host, isa.name, ["x"], {"scale": (1, weight)}, sidecar=True)
    failure = refused(runtime, path, data)
    assert failure.code == CODES["IO"] and "weights.safetensors" in str(failure)
    (tmp_path / "weights.safetensors").write_bytes(safetensors({"scale": weight}))
    other = np.ones(3, np.float32)
    for options in (
        {},
        {"weights": {"other": other}},
    ):  # what is given comes before the file, not in its place
        model = runtime.open(path, **options)
        np.testing.assert_array_equal(model(x)[1], x * weight)
        model.close()
    (tmp_path / "weights.safetensors").unlink()
    model = runtime.open(path, weights={"scale": weight})
    np.testing.assert_array_equal(model(x)[1], x * weight)
    model.close()
    failure = refused(runtime, path, data, weights={"other": other})
    assert failure.code == CODES["WEIGHTS"] and "scale" in str(failure)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (np.ones(63, np.float32), "another shape"),
        (np.ones(64, np.float64), "F64"),
        (None, "missing"),
    ],
)
def test_weights_that_do_not_fit(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path, tensor: np.ndarray | None, words: str
) -> None:
    runtime, _, _, weight = built
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors({"other": weight} if tensor is None else {"scale": tensor}))
    failure = refused(runtime, tmp_path / "m.litz", archive(built), weights_path=str(path).encode())
    assert failure.code == CODES["WEIGHTS"] and words in str(failure)


def test_a_newer_format_is_named(built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path) -> None:
    failure = refused(built[0], tmp_path / "m.litz", archive(built, version=2))
    assert failure.code == CODES["VERSION"] and "version 2" in str(failure)


def test_another_instruction_set_is_named(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    _, host, _, weight = built
    failure = refused(built[0], tmp_path / "m.litz", model_bytes(host, "sve2", ["x"], {"scale": (1, weight)}))
    assert failure.code == CODES["ISA"] and "sve2" in str(failure)


def test_a_program_for_another_architecture_is_not_loaded(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    """The base of x86-64 and that of aarch64 have one name."""
    runtime, host, _, weight = built
    other = host[:18] + (243).to_bytes(2, "little") + host[20:]  # RISC-V
    failure = refused(
        runtime, tmp_path / "m.litz", model_bytes(other, "scalar", ["x"], {"scale": (1, weight)})
    )
    assert failure.code == CODES["ISA"] and "another architecture" in str(failure)


def test_a_program_that_needs_torch_names_the_call(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    point = {
        "inputs": [],
        "calls": ["aten.sort.stable"],
        "programs": [{"device": "cpu", "isa": "scalar", "host": None}],
    }
    failure = refused(built[0], tmp_path / "m.litz", archive(built, entry_points={"forward": point}))
    assert failure.code == CODES["UNSUPPORTED"] and "aten.sort.stable" in str(failure)


def test_truncated_files_are_refused(built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path) -> None:
    whole = archive(built)
    for length in (0, 1, 21, 22, 100, len(whole) // 2, len(whole) - 1):
        assert refused(built[0], tmp_path / "m.litz", whole[:length]).code == CODES["FORMAT"]


def test_archives_that_other_readers_read_otherwise_are_refused(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    """A program that checks a model before it is opened has to see the members that are opened."""
    whole = archive(built)
    directory, record = whole.index(b"PK\x01\x02"), len(whole) - 22
    counts = bytearray(whole)
    counts[record + 8] = counts[record + 10] = 2  # of 3: zipfile reads all
    named = bytearray(whole)
    named[whole.index(b"manifest.json")] ^= 1  # in the header before the member
    larger = bytearray(whole)
    struct.pack_into("<H", larger, record + 20, 22)
    twice = stored_zip({"manifest.json": b"{}", "manifest.jsoN": b"{}"}).replace(b"jsoN", b"json")
    cases = {
        "end of a directory": bytes(larger) + bytes(22),
        "does not end at its record": b"x" + whole,
        "more entries": bytes(counts),
        "two names": bytes(named),
        "one name": twice,
        "at its record": whole[:directory] + whole[directory:record] * 2 + whole[record:],
    }
    for words, data in cases.items():
        failure = refused(built[0], tmp_path / "m.litz", data)
        assert failure.code == CODES["FORMAT"] and words in str(failure), (words, str(failure))


HUGE = """
plan huge on cpu "any" (%x: f32[1] fixed, $n: int as n) -> (%o) {
  symbols { n: int from 1 }
  storage s0: n*4
  buffer %x: f32[1] fixed
  buffer %t: f32[n] in s0
  buffer %o: f32[n] fixed
  kernel fill(in %x: f32, out %t: f32) {
    symbols { n: int from 1 }
    schedule cpu_loops parallel(i0) vector i0
    outer [i0: n]
    phase [] { %t[i0] = %x[0]; }
  }
  allocate s0
  launch fill(%x, %t; n)
  launch fill(%t, %o; n)
}
"""


def test_sizes_of_more_than_64_bits(built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path) -> None:
    """A value of a symbol for which the bytes of a tensor are 0 in 64 bits gets no memory, and no layout."""
    runtime, _, isa, _ = built
    target = CpuTarget()
    host = target.build(target.emit_host(plan_of(HUGE)), tmp_path).read_bytes()
    (tmp_path / "m.litz").write_bytes(model_bytes(host, isa.name, ["x"]))
    model = runtime.open(tmp_path / "m.litz")
    symbols = (ctypes.c_int64 * 1)(2**62)
    with pytest.raises(Failure) as caught:
        model.layout(0, symbols)
    assert caught.value.code == CODES["ARGUMENT"]
    x, o = np.ones(1, np.float32), np.zeros(5, np.float32)
    given, results = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(o.ctypes.data)
    with pytest.raises(Failure) as caught:
        runtime.check("litz_run", model.entry, symbols, given, results)
    assert caught.value.code == CODES["MEMORY"]
    symbols[0] = 5
    runtime.check("litz_run", model.entry, symbols, given, results)
    np.testing.assert_array_equal(o, np.ones(5))
    model.close()


def test_flipped_bytes_are_found_before_anything_runs(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    """Bytes of the program, the manifest and the directory; of the weights where they are to be checked."""
    runtime, host, _, _ = built
    whole = archive(built)
    program, manifest, weights = whole.index(b"\x7fELF"), whole.index(b'{"format'), whole.index(b'{"scale"')
    directory = whole.index(b"PK\x01\x02")
    places = [
        program,
        program + len(host) // 2,
        program + len(host) - 1,
        manifest + 30,
        manifest + 200,
        directory + 4,
    ]
    for place in (*places, directory + 10, weights + 300):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        failure = None
        (tmp_path / "m.litz").write_bytes(damaged)
        try:
            runtime.open(tmp_path / "m.litz", verify_weights=1).close()
        except Failure as error:
            failure = error
        if place != directory + 4:  # the version of the program that made an entry, which means nothing
            assert failure is not None and failure.code in (CODES["CHECKSUM"], CODES["FORMAT"]), place


def test_a_program_under_another_sum_is_not_loaded(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    """Not even its constructors run: the object is no ELF file, so loading it would be another error."""
    runtime, _, isa, weight = built
    data = model_bytes(b"not a program", isa.name, ["x"], {"scale": (1, weight)}, files={})
    assert refused(runtime, tmp_path / "m.litz", data).code == CODES["FORMAT"]
    files = {"forward.host.so": {"sha256": "0" * 64, "bytes": 13}}
    data = model_bytes(b"not a program", isa.name, ["x"], {"scale": (1, weight)}, files=files)
    assert refused(runtime, tmp_path / "m.litz", data).code == CODES["CHECKSUM"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[" * 100,
        b'{"format": "litz model"',
        b'{"format": "\\u0000"}',
        b'{"a": 1} x',
        b"nul",
        b'{"a" 1}',
        b'{"a": 01}',
        b'{"a": +1}',
        b'{"a": .5}',
        b'{"a": 1.}',
        b'{"a": 1e}',
        b'{"a": -}',
    ],
)
def test_manifests_that_are_no_json(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path, text: bytes
) -> None:
    assert refused(built[0], tmp_path / "m.litz", stored_zip({"manifest.json": text})).code == CODES["FORMAT"]


def test_numbers_of_a_manifest_have_any_form_of_json(
    built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "m.litz"
    path.write_bytes(archive(built, eps=[0.5, -1.25e-3, 1e300, 10**99, 0, -0.0, 1e-05]))
    built[0].open(path).close()
    assert refused(built[0], path, archive(built, version=1.5)).code == CODES["FORMAT"]


def test_files_that_cannot_be_opened(built: tuple[Runtime, bytes, Isa, np.ndarray], tmp_path: Path) -> None:
    for path in (tmp_path / "absent.litz", tmp_path):
        with pytest.raises(Failure) as caught:
            built[0].open(path)
        assert caught.value.code == CODES["IO"]
