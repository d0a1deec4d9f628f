"""Tests of the OpenCL target around its kernels: the page, names, memory, errors, and what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from opencl_device import TARGET, launchers, needs_device

from litz_ir import Plan, from_text
from litz_ir.device import CPU
from litz_ir.dtypes import bf16, f32, f64, i64
from litz_ir.errors import (
    CodegenError,
    CompileFailed,
    DTypeError,
    GraphError,
    OutOfMemory,
    TargetError,
    ToolchainError,
)
from litz_ir.loops import Axis
from litz_ir.origin import Origin
from litz_ir.plan import CpuLoops, Kernel, KernelOrigin, Launch, Parameter, Phase, Store
from litz_ir.scalar import Load, const, op
from litz_ir.symbols import symbol
from litz_ir.target import BufferArgument, SourceUnit, Target, target_entries
from litz_target_opencl.emit import entry_point
from litz_target_opencl.memory import ClMemory
from litz_target_opencl.target import OpenClTarget

PROJECT = Path(__file__).resolve().parent.parent
HOSTILE = [
    "x\n#error y",
    "a*/ b",
    "back\\",
    "double",
    "__global",
    "float4",
    "linux",
    "NULL",
    "size_t",
    "fault",
    "é",
    "3",
]
HOSTILE += [
    "get_global_id",
    "start_p0",
    "item",
    "v_double",
    "f32",
    "exp",
    "half",
    "image2d_t",
    "",
    "p0",
    "x;y",
    '"',
]


def plan(*kernels: Kernel, operations: Sequence[str] = ()) -> Plan:
    """A plan of kernels with the operations that each computes."""
    empty = from_text('plan empty on opencl "opencl12" () -> () {}')
    assert isinstance(empty, Plan)
    steps = [
        Launch(kernel.name, (), (), (KernelOrigin(operation, Origin()),))
        for kernel, operation in zip(kernels, operations)
    ]
    return replace(empty, kernels=kernels, steps=tuple(steps))


def increment(name: str, read: str, written: str, axis: str = "i0") -> Kernel:
    """A kernel that writes the exponential of its input plus one."""
    loaded = Load(read, (symbol(axis),), f32)
    store = Store(written, symbol(axis), op("exp", op("add", loaded, const(1.0, f32))))
    parameters = (Parameter(read, f32, "in"), Parameter(written, f32, "out"))
    return Kernel(name, parameters, (), (), (), (Phase((Axis(axis, 4),), (store,)),), CpuLoops())


@needs_device
def test_the_readme_runs_and_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


@needs_device
def test_names_of_any_letters_are_safe_in_a_source(tmp_path: Path) -> None:
    memory = ClMemory(TARGET.queue)
    x = np.arange(4, dtype=np.float32)
    kernels = []
    for k, name in enumerate(HOSTILE):
        axis = name if name.isidentifier() else "i0"
        kernels.append(increment(name, HOSTILE[k - 1], f"{HOSTILE[k - 1]}_", axis))
    whole = replace(plan(*kernels, operations=HOSTILE), name="../" + HOSTILE[0])
    (unit,) = TARGET.emit(whole)
    assert all(line.isascii() and not line.endswith("\\") for line in unit.text.splitlines())
    for name, launch in launchers(whole, tmp_path).items():
        given, written = memory.put(x, f32), memory.put(np.zeros_like(x), f32)
        launch.run([memory.buffer(each, 0, 16) for each in (given, written)], [])
        np.testing.assert_allclose(memory.read(written, f32), np.exp(x + 1), rtol=1e-6, err_msg=name)


def test_kernels_of_similar_names_have_entry_points_of_their_own() -> None:
    names = ["a b", "a_b", "a-b", "a_20_b", "A_b", "é", "e"]
    points = [entry_point(name) for name in names]
    assert len(set(points)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z]\w*", point, re.ASCII) for point in points)


@needs_device
def test_bytes_that_a_kernel_cannot_take_are_refused(tmp_path: Path) -> None:
    memory = ClMemory(TARGET.queue)
    launch = launchers(plan(increment("k", "p0", "p1")), tmp_path)["k"]
    tensor = memory.put(np.zeros(4, np.float32), f32)
    good, message = memory.buffer(tensor, 0, 16), "p1, of f32, cannot be bytes"
    for offset, nbytes in ((2, 8), (-4, 16), (4, 16)):
        with pytest.raises(TargetError, match=message):
            launch.run([good, BufferArgument(tensor.buffer, offset, nbytes)], [])
    other = ClMemory(OpenClTarget().queue).put(np.zeros(4, np.float32), f32)
    with pytest.raises(TargetError, match="another OpenCL context"):
        launch.run([good, BufferArgument(other.buffer, 0, 16)], [])


@needs_device
def test_memory_copies_elements_and_nothing_between_them() -> None:
    memory = ClMemory(TARGET.queue)
    storage = memory.put(np.arange(12, dtype=np.float32), f32)
    column = memory.view(storage, f32, (3,), (4,), 4)
    assert not column.dense and memory.view(storage, f32, (4, 3), (1, 4), 0).dense
    memory.write(column, np.array([-1, -2, -3], np.float32))
    kept = memory.read(storage, f32).reshape(3, 4)
    np.testing.assert_array_equal(kept[:, 1], [-1, -2, -3])
    np.testing.assert_array_equal(kept[:, 2], [2, 6, 10])
    copied = memory.copy(column)
    assert memory.geometry(copied) == ((3,), (4,))
    np.testing.assert_array_equal(memory.read(memory.stack([copied, column]), f32), [[-1, -2, -3]] * 2)
    bits = memory.put(np.array(16256, np.uint16), bf16)
    assert (
        memory.read(bits, bf16).shape == ()
        and memory.read(memory.view(bits, bf16, (0, 2), (2, 1), 0), bf16).size == 0
    )
    assert memory.read(memory.empty(0, CPU), memory.empty(0, CPU).dtype).size == 0


@needs_device
def test_errors_of_memory_say_what_to_do() -> None:
    memory = ClMemory(TARGET.queue)
    tensor = memory.put(np.zeros(4, np.float32), f32)
    with pytest.raises(TargetError, match="no addresses"):
        memory.address(tensor)
    with pytest.raises(GraphError, match=r"(?s)got ndarray.*ClMemory\.put"):
        memory.geometry(np.zeros(4))
    with pytest.raises(DTypeError, match="float32 array, got float64"):
        memory.put(np.zeros(4), f32)
    with pytest.raises(DTypeError, match="of f32 is read as i64"):
        memory.read(tensor, i64)
    with pytest.raises(OutOfMemory, match=f"no buffer of {1 << 50} bytes"):
        memory.empty(1 << 50, CPU)


@needs_device
def test_errors_of_building_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="triton"):
        TARGET.build(SourceUnit("u", "triton", "", ()), tmp_path)
    with pytest.raises(CompileFailed) as caught:
        TARGET.build(SourceUnit("a/u", "opencl", "__kernel void f() { int x = y; }", ()), tmp_path)
    assert "y" in caught.value.output
    (tmp_path / "no.o").write_text("nothing")
    with pytest.raises(ToolchainError, match="does not link"):
        TARGET.load([], [tmp_path / "no.o"], {})
    with pytest.raises(KeyError):
        TARGET.load([], [], {}).function("absent")


def test_what_has_no_spelling_is_an_error_at_emission() -> None:
    narrow = Parameter("p2", bf16, "in")
    with pytest.raises(CodegenError, match="no type for bf16"):
        TARGET.emit(plan(replace(increment("k", "p0", "p1"), parameters=(narrow,))))
    many = tuple(Parameter(f"p{k}", f32, "in") for k in range(100))
    with pytest.raises(CodegenError, match="200 arguments"):
        TARGET.emit(plan(replace(increment("k", "p0", "p1"), parameters=many)))


def test_without_a_platform_the_error_names_what_to_install() -> None:
    code = "from litz_target_opencl.target import OpenClTarget as T; T().capabilities(); T().queue"
    environment = {**os.environ, "OCL_ICD_VENDORS": os.devnull, "OCL_ICD_FILENAMES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert "ToolchainError" in done.stderr and "pocl-opencl-icd" in done.stderr


def test_the_entry_point_is_a_target_of_its_own_device_kind() -> None:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        ((name, entry_point),) = tomllib.load(file)["project"]["entry-points"]["litz.targets"].items()
    module, _, attribute = entry_point.partition(":")
    target = getattr(import_module(module), attribute)()
    assert isinstance(target, Target)
    assert target.name == name == target.capabilities().device.kind
    assert {f32, f64, i64} <= target.capabilities().dtypes
    assert name not in target_entries() or target_entries()[name].value == entry_point


def test_it_needs_nothing_of_litz_but_the_ir() -> None:
    code = "import litz_target_opencl.target, litz_target_opencl.memory, sys; print(set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    modules = {name.partition(".")[0] for name in re.findall(r"'([\w.]+)'", found.stdout)}
    loaded = {name for name in modules if name.startswith(("litz", "torch"))}
    assert loaded == {"litz_ir", "litz_target_opencl"}
