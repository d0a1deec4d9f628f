"""Tests of the C target: the conformance suite, a graph from text to numbers, and errors."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from litz_ir import from_text
from litz_ir.dtypes import ALL, f32, i64
from litz_ir.errors import CodegenError, CompileFailed, CompilerNotFound, ToolchainError
from litz_ir.origin import Origin
from litz_ir.plan import KernelOrigin, Launch, Plan
from litz_ir.scalar import OPS
from litz_ir.target import SourceUnit, Target, requirements_of
from litz_ir.target.conformance import case_plan, conformance_cases, run_conformance
from litz_target_c.build import CModule
from litz_target_c.ops_table import SPELLINGS
from litz_target_c.target import CTarget

PROJECT = Path(__file__).resolve().parent.parent
RANDOM = {"random_numbers", "random_normal"}
NARROW = {
    *(f"{case}_{dtype}" for case in ("rounding_to", "literal_of") for dtype in ALL if dtype.is_low_precision),
    "rounding_after_each_bf16",
    "rounding_after_each_f16",
    "sum_f32_of_bf16",
    "matmul_bf16",
    "matmul_f16",
    "matmul_of_transposed",
    "matmul_of_dequantised",
    "matmul_with_bias",
    "matmul_of_batches",
    "matmul_f8_by_mul",
    "matmul_f8_by_mul_f8",
    "matmul_f8_by_mul_f8_fast",
}
BEYOND = {
    case.name
    for case in conformance_cases()
    if case.nested_reductions or requirements_of(case.kernel).sorted_row != 0 or case.kernel.subkernels
}
"""Cases of nested reductions, sorts and horizontal fusion."""


def plans() -> dict[str, Plan]:
    """The conformance suite's plans, by case."""
    return {case.name: case_plan(case, CTarget().capabilities()) for case in conformance_cases()}


class BuiltOnce(CTarget):
    """Emits each case's kernel as usual, but looks all of them up in one library."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        kernels = [
            k for name, plan in plans().items() if name not in RANDOM | NARROW | BEYOND for k in plan.kernels
        ]
        (unit,) = self.emit(replace(plans()["no_axes"], name="suite", kernels=tuple(kernels)))
        self.library = super().build(unit, folder)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        return self.library


def test_conforms_but_for_what_it_lacks_and_random_numbers(tmp_path: Path) -> None:
    report = run_conformance(BuiltOnce(tmp_path), tmp_path)
    lacking = dict(report.skipped)
    assert set(lacking) == NARROW | BEYOND, report.describe()
    assert all(
        re.search(r"needs .*(bf16|f16|f8|nested reductions|sorts|horizontal fusion)", reason)
        for reason in lacking.values()
    )
    failed = dict(report.failed)
    assert set(failed) == RANDOM, report.describe()
    assert all("CodegenError" in reason and "no spelling in C" in reason for reason in failed.values())
    assert len(report.passed) > 100


def test_every_operation_is_spelled_or_left_out_on_purpose() -> None:
    assert OPS.keys() - SPELLINGS.keys() == {"cast", "random_uniform", "random_normal", "random_bits"}
    assert SPELLINGS.keys() <= OPS.keys()


def test_the_readme_runs_and_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_names_that_c_has_taken_are_changed(tmp_path: Path) -> None:
    plan = from_text("""
        plan taken on c "c99" () -> () {
          kernel exp(in %float: f32, out %exp: f32) { phase [t0: 4] { %exp[t0] = exp(%float[t0] + 1.0); } }
        }""")
    assert isinstance(plan, Plan)
    (unit,) = CTarget().emit(plan)
    module = CTarget().load([unit], [CTarget().build(unit, tmp_path)], {"exp": plan.kernel("exp")})
    x, o = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    module.function("exp")([x.ctypes.data, o.ctypes.data], [])
    np.testing.assert_allclose(o, np.exp(x + 1), rtol=1e-6)


def loaded(text: str, folder: Path) -> tuple[Plan, CModule]:
    """A plan and its kernels, built and loaded."""
    plan = from_text(text)
    assert isinstance(plan, Plan)
    (unit,), target = CTarget().emit(plan), CTarget()
    return plan, target.load([unit], [target.build(unit, folder)], {k.name: k for k in plan.kernels})


@pytest.mark.parametrize("name", ["x\n#error y", "x\r#error y", "back\\", "a*/ b", "??/", "é", '"'])
def test_names_cannot_add_lines_to_the_source_or_leave_the_folder(name: str, tmp_path: Path) -> None:
    plan = from_text("""
        plan copies on c "c99" () -> () {
          kernel k(in %x: f32, out %o: f32) { phase [t0: 4] { %o[t0] = %x[t0]; } }
        }""")
    assert isinstance(plan, Plan)
    kernel = replace(plan.kernel("k"), name=name)
    step = Launch(name, (), (), (KernelOrigin(name, Origin()),))
    (unit,) = CTarget().emit(replace(plan, name=f"../{name}", kernels=(kernel,), steps=(step,)))
    assert len(unit.text.splitlines()) == 12 and unit.text.isascii()
    binary = CTarget().build(unit, tmp_path / "inner")
    assert binary.parent == tmp_path / "inner" and list(tmp_path.iterdir()) == [binary.parent]
    x, o = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    CTarget().load([unit], [binary], {name: kernel}).function(name)([x.ctypes.data, o.ctypes.data], [])
    np.testing.assert_array_equal(o, x)


def test_kernels_whose_names_differ_in_punctuation_alone_are_two_functions(tmp_path: Path) -> None:
    kernels = [
        f"kernel '{name}'(out %o: i64) {{ phase [] {{ %o[0] = {number}; }} }}"
        for number, name in enumerate(("a-b", "a_b", "a b", "a_20_b", "é"))
    ]
    plan, module = loaded(f'plan alike on c "c99" () -> () {{ {" ".join(kernels)} }}', tmp_path)
    for number, kernel in enumerate(plan.kernels):
        o = np.full(1, -1)
        module.function(kernel.name)([o.ctypes.data], [])
        assert o[0] == number


def test_an_index_out_of_range_is_an_index_error(tmp_path: Path) -> None:
    target, plan = CTarget(), plans()["gather_out_of_range"]
    (kernel,) = plan.kernels
    (unit,) = target.emit(plan)
    launch = target.load([unit], [target.build(unit, tmp_path)], {kernel.name: kernel}).function(kernel.name)
    indices, x, o = np.full(100, 360), np.zeros(360, np.float32), np.ones(100, np.float32)
    with pytest.raises(IndexError, match="out of range"):
        launch([indices.ctypes.data, x.ctypes.data, o.ctypes.data], [])
    indices[:] = 359
    launch([indices.ctypes.data, x.ctypes.data, o.ctypes.data], [])
    assert not o.any()


def test_errors_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CodegenError, match="conform_rounding_to_bf16"):
        CTarget().emit(plans()["rounding_to_bf16"])
    with pytest.raises(CompilerNotFound, match="no-such-cc"):
        CTarget("no-such-cc").build(SourceUnit("u", "c", "", ()), tmp_path)
    with pytest.raises(ToolchainError, match="triton"):
        CTarget().build(SourceUnit("u", "triton", "", ()), tmp_path)
    with pytest.raises(CompileFailed) as caught:
        CTarget().build(SourceUnit("u", "c", "int x = y;", ()), tmp_path)
    assert "y" in caught.value.output
    (tmp_path / "no.so").write_text("nothing")
    with pytest.raises(ToolchainError, match="does not load"):
        CTarget().load([], [tmp_path / "no.so"], {})


def test_the_entry_point_is_a_target_of_its_own_device_kind() -> None:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        ((name, entry_point),) = tomllib.load(file)["project"]["entry-points"]["litz.targets"].items()
    module, _, attribute = entry_point.partition(":")
    target = getattr(import_module(module), attribute)()
    assert isinstance(target, Target)
    assert target.name == name == target.capabilities().device.kind
    assert {f32, i64} <= target.capabilities().dtypes


def test_it_needs_nothing_of_litz_but_the_ir() -> None:
    code = "import litz_target_c.target, sys; print({name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in re.findall(r"'(\w+)'", found.stdout) if name.startswith(("litz", "torch"))}
    assert loaded == {"litz_ir", "litz_target_c"}
