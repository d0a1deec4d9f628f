"""Compile Triton source text to cubins; no GPU is needed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from litz_codegen_triton.capabilities import CUDA, chip_capabilities, chip_model
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.modules import load_function
from litz_codegen_triton.runtime.paired_sums import without_paired_sums
from litz_codegen_triton.runtime.sources import plan_sources
from litz_codegen_triton.schedule.plan import schedule_plan
from litz_ir.errors import CompileFailed, TargetError
from litz_ir.plan import Plan

_CHIP = re.compile(r"sm_(\d+)[a-z]?")
_PTX_PARAMETER = re.compile(r"\.param\s")

_DESCRIBED_TYPES = {8: 10, 9: 8, 10: 9}
"""Numbers of element types in the driver's tensor maps where they are other ones than in the instructions that make
tensor maps on the device (f16 to bf16 are 6 to 10 here and there)."""


def chip_number(chip: str) -> int:
    """Return the number of a compute capability, such as 90 for ``sm_90``. Raises ``TargetError`` for other names."""
    match = _CHIP.fullmatch(chip)
    if match is None:
        raise TargetError(
            f"{chip!r} is no compute capability that Triton compiles for", hint="name one such as sm_90"
        )
    return int(match.group(1))


def compile_source(source: KernelSource, chip: str, folder: Path, *, aligned: bool = True) -> CompiledKernel:
    """Compile a kernel for a chip and keep its source text in ``folder``.

    ``aligned`` promises Triton that every buffer starts at a multiple of 16 bytes, which vectorised accesses need;
    without it, only the arguments that ``source`` marks as divisible by 16 are promised. Raises ``CompileFailed``, also
    for a kernel that needs more shared memory than a thread block can have, and ``TargetError`` for an unknown chip.
    """
    model = chip_model(chip)
    function = load_function(source.text, source.name, folder)
    target = GPUTarget(CUDA.kind, chip_number(chip), model.warp_size)
    types = dict(zip(function.arg_names, [*source.signature, *(each.type for each in source.descriptors)]))
    pointers = {position for position, kind in enumerate(source.signature) if kind.startswith("*")}
    divisible = sorted({*source.divisible, *(pointers if aligned else ())})
    attributes = {(position,): [["tt.divisibility", 16]] for position in divisible}
    # Bounds checks are device asserts, which need debug mode; its overflow checks stay off.
    options = {
        "num_warps": source.warps,
        "debug": source.asserts,
        "sanitize_overflow": False,
        "enable_fp_fusion": source.contract,
    }
    try:
        compiled = _compiled_kernel(source, ASTSource(function, types, {}, attributes), target, options)
    except Exception as error:
        # Triton, MLIR, LLVM and ptxas raise exceptions of no common type.
        raise CompileFailed(
            f"Triton failed to compile kernel {source.name}",
            command=("triton.compile", chip),
            output=f"{type(error).__name__}: {error}",
            hint=f"the source is in {folder / (source.name + '.py')}",
        ) from error
    if compiled.shared_bytes > model.shared_bytes:
        raise CompileFailed(
            f"kernel {source.name} needs more shared memory than {chip} has",
            command=("triton.compile", chip),
            output=f"a thread block needs {compiled.shared_bytes} bytes and can have {model.shared_bytes}",
            hint="report the kernel's text form",
        )
    return compiled


def _compiled_kernel(
    source: KernelSource, function: ASTSource, target: GPUTarget, options: Mapping[str, Any]
) -> CompiledKernel:
    """Run Triton's stages and read the facts of a launch from their results."""
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    if _is_inspected():
        built = triton.compile(function, target=target, options=dict(options))
        facts, ptx, cubin = built.metadata, built.asm["ptx"], bytes(built.asm["cubin"])
        whole = without_paired_sums(ptx)
        if whole != ptx:
            ptx, cubin = whole, bytes(backend.make_cubin(whole, {}, parsed, target.arch))
    else:
        facts, ptx, cubin = _staged(function, target, backend, parsed)
    arguments = ptx[ptx.index(".entry") :].split(")", 1)[0]
    return CompiledKernel(
        name=source.name,
        cubin=cubin,
        entry=str(facts.name),
        warps=int(facts.num_warps),
        shared_bytes=int(facts.shared),
        parameters=len(_PTX_PARAMETER.findall(arguments)),
        ptx=ptx,
        scratch=int(facts.global_scratch_size),
        descriptors=_described(source, facts),
    )


def _described(source: KernelSource, facts: Any) -> tuple[tuple[int, ...], ...]:
    """Return the descriptors that a launch makes, as ``CompiledKernel`` has them."""
    chosen = getattr(facts, "tensordesc_meta", None) or ()
    made = []
    for each, layout in zip(source.descriptors, chosen, strict=True):
        size, rank = int(layout["elem_size"]), len(each.shape)
        kind = _DESCRIBED_TYPES.get(int(layout["elem_type"]), int(layout["elem_type"]))
        dims, box = each.shape[::-1], [int(extent) for extent in layout["block_size"]][::-1]
        strides = [stride * size for stride in each.strides[-2::-1]] if rank > 1 else []
        made.append((each.buffer, kind, int(layout["swizzle"]), rank, *dims, *strides, *box))
    return tuple(made)


def _staged(function: ASTSource, target: GPUTarget, backend: Any, options: Any) -> tuple[Any, str, bytes]:
    """Return what ``triton.compile`` does, without its cache: the facts of a kernel, its PTX and its cubin.

    The key of that cache takes as long as several kernels, since it hashes Triton's shared library in every process,
    and its files a twentieth of a kernel's time; litz has a cache of its own.
    """
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, function.language)
    facts: dict[str, Any] = {"hash": "", "target": target, **vars(options)}
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    form = function.make_ir(target, options, functions, modules, context)
    ptx = ""
    for name, stage in stages.items():
        form = stage(form, facts)
        if name == "ptx":
            form = ptx = without_paired_sums(form)
    return SimpleNamespace(**facts), ptx, bytes(form)


def _is_inspected() -> bool:
    """Report whether Triton is asked to show, replace or time what its stages make, which ``triton.compile`` does."""
    asked = knobs.compilation
    hooks = asked.listener, knobs.runtime.add_stages_inspection_hook
    return bool(asked.override or asked.dump_ir or asked.use_ir_loc or any(hooks))


def compile_plan(plan: Plan, chip: str = "sm_90", folder: Path | None = None) -> dict[str, CompiledKernel]:
    """Schedule, emit and compile every kernel of a plan; the results are by kernel name.

    Sources are written to ``folder``, by default a temporary one. Raises ``CodegenError`` and ``CompileFailed``.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="litz-triton-") as temporary:
            return compile_plan(plan, chip, Path(temporary))
    scheduled = schedule_plan(plan, chip_capabilities(chip))
    return {source.name: compile_source(source, chip, folder) for source in plan_sources(scheduled)}
