"""The cuda target: its capabilities, and the way from a plan to cubins without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import triton_corpus
import triton_matmuls
from triton_fused_attention import Heads, forward
from triton_scheduled import scheduled

import litz_codegen_triton.target
from litz_codegen_triton.capabilities import CUDA
from litz_codegen_triton.runtime.compile import compile_plan
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.launch import current_chip
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.target import CudaTarget
from litz_ir.dtypes import bf16, f32
from litz_ir.errors import TargetError, ToolchainError
from litz_ir.origin import Origin
from litz_ir.plan import KernelOrigin, Launch, Matmul, Plan, TileRequest
from litz_ir.symbols import SymbolTable
from litz_ir.target import SourceUnit, Target, TunableTarget, load_target

CASES = {case.name: case for case in triton_corpus.cases()}
LARGE = triton_matmuls.matmul("large", 4096, 4096, 4096, result=bf16).kernel
README = Path(__file__).parents[1] / "README.md"


def plan_of(*names: str) -> Plan:
    kernels = tuple(CASES[name].kernel for name in names)
    origin = KernelOrigin(
        "softmax", Origin("softmax", "aten.softmax.int", "", "model.py", 3, "y = x.softmax(1)")
    )
    steps = tuple(Launch(k.name, tuple(p.name for p in k.parameters), (), (origin,)) for k in kernels)
    return Plan("plan", CUDA, "sm_90", SymbolTable(), (), (), (), (), kernels, steps, ())


def test_the_target_is_found_by_its_name() -> None:
    target = load_target("cuda")
    assert isinstance(target, Target) and target.name == "cuda"


def test_capabilities() -> None:
    known = CudaTarget("sm_90").capabilities()
    assert (known.name, known.model.sm_count, known.scratch_bytes) == ("sm_90", 132, 0)
    assert known.max_tile_elements > 0 and f32 in known.atomics and known.device == CUDA
    with pytest.raises(TargetError, match="sm_7"):
        CudaTarget("sm_7").capabilities()


def test_time_grows_with_traffic_and_launches() -> None:
    target = CudaTarget("sm_90")
    assert (
        target.seconds(0, 0, 1)
        < target.seconds(0, 0, 2)
        < target.seconds(10**9, 0, 2)
        < target.seconds(10**9, 10**13, 2)
    )


def test_tiles_can_be_tuned() -> None:
    target = CudaTarget("sm_90")
    assert isinstance(target, TunableTarget)
    kernel = scheduled(CASES["softmax"].kernel)
    first, *others = target.candidates(kernel)
    assert first is kernel and others
    words = [target.described(each) for each in (first, *others)]
    assert len(set(words)) == len(words) and all(each.startswith(("x ", "r ")) for each in words)


@pytest.mark.parametrize(("chip", "grid"), [("sm_80", 0), ("sm_90", 132), ("sm_100", 148)])
def test_chips_with_tma_have_candidates_with_descriptors(chip: str, grid: int) -> None:
    target = CudaTarget(chip)
    found = [each.schedule for each in target.candidates(schedule_kernel(LARGE, target.capabilities()))]
    assert all(isinstance(each, Matmul) for each in found)
    assert max(each.grid for each in found if isinstance(each, Matmul)) == grid
    assert any(isinstance(each, Matmul) and each.descriptors for each in found) == (grid > 0)


def test_unaligned_operands_are_loaded_by_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target, made = CudaTarget("sm_90"), []
    monkeypatch.setattr(litz_codegen_triton.target, "LaunchModule", lambda *args: made.append(args[2]))
    found = target.candidates(scheduled(LARGE))
    kernel = next(k for k in found if isinstance(k.schedule, Matmul) and k.schedule.descriptors)
    (unit,) = target.emit(replace(plan_of("softmax"), kernels=(kernel,)))
    assert "tl.make_tensor_descriptor(" in unit.text
    target.load([unit], [target.build(unit, tmp_path)], {kernel.name: kernel})
    (unaligned,) = made
    built = unaligned(kernel.name)
    assert built.scratch == 0 and "cp.async.bulk" not in built.ptx


@pytest.mark.parametrize(("keys", "count"), [(41, 0), (64, 2)])
def test_unaligned_operands_of_attention_are_loaded_by_address(
    keys: int, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target, made = CudaTarget("sm_90"), []
    monkeypatch.setattr(litz_codegen_triton.target, "LaunchModule", lambda *args: made.append(args[2]))
    kernel = scheduled(forward("attention", Heads(keys=keys), schedule=TileRequest(descriptors=True)))
    (unit,) = target.emit(replace(plan_of("softmax"), kernels=(kernel,)))
    assert unit.text.count("tl.make_tensor_descriptor(") == 2 - count
    binary = target.build(unit, tmp_path)
    launched = CompiledKernel.from_bytes(binary.read_bytes())
    # bf16, swizzled over 64 bytes: 128 rows of 32 elements, in tiles of 64.
    assert [each[1:] for each in launched.descriptors] == [(9, 2, 2, 32, 128, 64, 32, 64)] * count
    assert len({buffer for buffer, *_ in launched.descriptors}) == count
    assert (launched.scratch > 0) == (not count)
    target.load([unit], [binary], {kernel.name: kernel})
    (unaligned,) = made
    built = unaligned(kernel.name)
    assert built.scratch == 0 and not built.descriptors and "cp.async.bulk" not in built.ptx


def test_a_plan_becomes_cubins(tmp_path: Path) -> None:
    target = CudaTarget("sm_90")
    plan = target.schedule(plan_of("softmax", "transpose"))
    units = target.emit(plan)
    assert units == target.emit(plan) and target.schedule(plan) == plan
    assert [unit.kernels for unit in units] == [("softmax",), ("transpose",)]
    assert "model.py:3: y = x.softmax(1)" in units[0].text
    assert [unit.lines for unit in units] == [((1, unit.text.count("\n")),) for unit in units]
    binaries = [target.build(unit, tmp_path) for unit in units]
    found = [CompiledKernel.from_bytes(path.read_bytes()) for path in binaries]
    assert [kernel.name for kernel in found] == ["softmax", "transpose"]
    assert all(path.parent == tmp_path for path in binaries)


def test_a_plan_is_compiled_at_once() -> None:
    found = compile_plan(plan_of("softmax", "gather"), "sm_90")
    assert set(found) == {"softmax", "gather"} and all(kernel.ptx for kernel in found.values())


def test_a_unit_without_its_flags_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no valid build flags"):
        CudaTarget("sm_90").build(SourceUnit("k", "triton", "", ("k",)), tmp_path)


def test_a_unit_whose_name_is_no_function_is_refused(tmp_path: Path) -> None:
    (unit,) = CudaTarget("sm_90").emit(CudaTarget("sm_90").schedule(plan_of("softmax")))
    with pytest.raises(ToolchainError, match=r"cannot be called '\.\./softmax'"):
        CudaTarget("sm_90").build(replace(unit, name="../softmax"), tmp_path / "inner")


@pytest.mark.skipif(current_chip() is not None, reason="this machine has a GPU")
def test_loading_without_a_gpu_says_so(tmp_path: Path) -> None:
    target = CudaTarget("sm_90")
    plan = target.schedule(plan_of("softmax"))
    (unit,) = target.emit(plan)
    with pytest.raises(ToolchainError, match="no CUDA driver"):
        target.load([unit], [target.build(unit, tmp_path)], {"softmax": plan.kernels[0]})


def test_what_loads_cubins_imports_neither_triton_nor_the_emission() -> None:
    program = (
        "import sys; from litz_codegen_triton.target import CudaTarget; CudaTarget('sm_90').capabilities();"
        "print(sorted({'triton', 'litz_codegen_triton.emit.kernel', 'litz_codegen_triton.tune.candidate_configs',"
        " 'litz_codegen_triton.schedule.plan'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_cubins_are_made_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from litz_codegen_triton.target import CudaTarget; print(CudaTarget().chip)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "sm_90"


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "def k0" in done.stdout and "bytes of cubin" in done.stdout
