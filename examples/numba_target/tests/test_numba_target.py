"""Tests of the Numba target as a distribution: the README, names, errors, registration."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir import from_text
from litz_ir.dtypes import ALL
from litz_ir.errors import CompileFailed, IndexOutOfRange, ToolchainError
from litz_ir.plan import Plan
from litz_ir.target import LaunchFunction, SourceUnit, Target
from litz_ir.target.conformance import case_plan, conformance_cases
from litz_target_numba.target import NumbaTarget

PROJECT = Path(__file__).resolve().parent.parent
Array = npt.NDArray[Any]
RunTwice = Callable[[str, Sequence[Any]], tuple[Sequence[Array], Sequence[Array]]]


def launch_function(plan: Plan, folder: Path) -> LaunchFunction:
    """Build a plan of one kernel."""
    target, (kernel,) = NumbaTarget(), plan.kernels
    (unit,) = target.emit(plan)
    launch = target.load([unit], [target.build(unit, folder)], {kernel.name: kernel}).function(kernel.name)
    assert callable(launch)
    return launch


def plan_of(case: str) -> Plan:
    """Return the plan of a case of the conformance suite."""
    (found,) = (each for each in conformance_cases() if each.name == case)
    return case_plan(found, NumbaTarget().capabilities())


def test_the_readme_runs_and_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (PROJECT / "README.md").read_text(encoding="utf-8")
    example, shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_names_that_python_has_taken_are_changed(tmp_path: Path) -> None:
    plan = from_text("""
        plan taken on numba "numba" () -> () {
          kernel exp(in %range: f32, out %np: f32) { phase [t0: 4] { %np[t0] = exp(%range[t0] + 1.0); } }
        }""")
    assert isinstance(plan, Plan)
    x, o = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    launch_function(plan, tmp_path)([x.ctypes.data, o.ctypes.data], [])
    np.testing.assert_allclose(o, np.exp(x + 1), rtol=1e-6)


def test_names_cannot_add_lines_to_the_source(tmp_path: Path) -> None:
    name = r"x\n    raise SystemExit(1) # \"\\"
    plan = from_text(f"""
        plan '../{name}' on numba "numba" () -> () {{
          kernel '{name}'(in %'{name}': f32, out %'1': f32) {{
            phase [t0: 4] {{ %'1'[t0] = %'{name}'[t0]; }}
          }}
        }}""")
    assert isinstance(plan, Plan)
    x, o = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    launch_function(plan, tmp_path)([x.ctypes.data, o.ctypes.data], [])
    np.testing.assert_array_equal(o, x)
    assert [path.parent for path in tmp_path.rglob("*.py")] == [tmp_path]


def test_names_of_operations_stay_inside_a_comment(run_twice: RunTwice) -> None:
    name = r"%'o\nraise SystemExit(1)'"
    text = f"graph odd on numba (%x: f32[4] fixed) -> ({name}) {{\n"
    text += f"{name} = pointwise f32[i0: 4] fixed {{ -%x[i0] }}\n}}"
    expected, found = run_twice(text, [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(found[0], expected[0])


def test_kernels_whose_names_differ_in_punctuation_alone_are_two_functions(tmp_path: Path) -> None:
    kernels = [
        f"kernel '{name}'(out %o: i64) {{ phase [] {{ %o[0] = {number}; }} }}"
        for number, name in enumerate(("a.b", "a_b", "a b"))
    ]
    plan = from_text(f'plan alike on numba "numba" () -> () {{ {" ".join(kernels)} }}')
    assert isinstance(plan, Plan)
    (unit,), target, known = NumbaTarget().emit(plan), NumbaTarget(), {k.name: k for k in plan.kernels}
    module = target.load([unit], [target.build(unit, tmp_path)], known)
    for number, name in enumerate(known):
        o = np.full(1, -1)
        module.function(name)([o.ctypes.data], [])
        assert o[0] == number


def test_an_index_out_of_range_is_an_index_error(tmp_path: Path) -> None:
    launch = launch_function(plan_of("gather_out_of_range"), tmp_path)
    indices, x, o = np.full(100, 360), np.zeros(360, np.float32), np.ones(100, np.float32)
    with pytest.raises(IndexOutOfRange, match="out of range"):
        launch([indices.ctypes.data, x.ctypes.data, o.ctypes.data], [])
    indices[:] = 359
    launch([indices.ctypes.data, x.ctypes.data, o.ctypes.data], [])
    assert not o.any()


def test_errors_say_what_is_missing(tmp_path: Path) -> None:
    target = NumbaTarget()
    with pytest.raises(ToolchainError, match="triton"):
        target.build(SourceUnit("u", "triton", "", ()), tmp_path)
    with pytest.raises(CompileFailed, match="no Python"):
        target.build(SourceUnit("u", "numba", "def", ()), tmp_path)
    absent = SourceUnit("u", "numba", "", ("k",))
    with pytest.raises(ToolchainError, match="does not load"):
        target.load([absent], [target.build(absent, tmp_path)], {})
    plan = plan_of("no_axes")
    (unit,), (kernel,) = target.emit(plan), plan.kernels
    broken = replace(unit, text=re.sub(r"return 0", "return undefined", unit.text))
    with pytest.raises(CompileFailed, match="does not compile"):
        target.load([broken], [target.build(broken, tmp_path)], {kernel.name: kernel})
    with pytest.raises(KeyError):
        target.load([], [], {}).function("k")


def test_the_entry_point_is_a_target_of_its_own_device_kind() -> None:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        ((name, entry_point),) = tomllib.load(file)["project"]["entry-points"]["litz.targets"].items()
    module, _, attribute = entry_point.partition(":")
    target = getattr(import_module(module), attribute)()
    assert isinstance(target, Target)
    assert target.name == name == target.capabilities().device.kind
    assert target.capabilities().dtypes == set(ALL)


def test_it_needs_nothing_of_litz_but_the_ir() -> None:
    code = "import litz_target_numba.target, sys; print({name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in re.findall(r"'(\w+)'", found.stdout) if name.startswith(("litz", "torch"))}
    assert loaded == {"litz_ir", "litz_target_numba"}
