"""From Triton source text to a cubin, with no GPU at hand."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from litz_codegen_triton.capabilities import chip_capabilities, shared_memory_limit
from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
from litz_codegen_triton.runtime.modules import load_function, write_atomically
from litz_codegen_triton.runtime.paired_sums import without_paired_sums
from litz_codegen_triton.schedule.plan import schedule_plan
from litz_ir.errors import CompileFailed, TargetError, ToolchainError
from litz_ir.plan import KernelOrigin, Launch, Plan

_CHIP = re.compile(r"sm_(\d+)[a-z]?")
_PTX_PARAMETER = re.compile(r"\.param\s")
_MAGIC = "litz cubin 1"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's binary and what launching it takes.

    ``shared_bytes`` is bytes of shared memory per program, ``parameters`` the number of arguments that the binary
    takes: those of the source, and pointers of Triton's own after them. The first of these points to ``scratch``
    bytes of the device's memory for each program, if it needs any. ``ptx`` is the assembly that it came from.
    """

    name: str
    cubin: bytes
    entry: str
    warps: int
    shared_bytes: int
    parameters: int
    ptx: str = ""
    scratch: int = 0

    def to_bytes(self) -> bytes:
        """One file's content: a line of JSON, then the cubin."""
        head = {
            "format": _MAGIC, "name": self.name, "entry": self.entry, "warps": self.warps,
            "shared_bytes": self.shared_bytes,
            "parameters": self.parameters, "scratch": self.scratch,
        }  # fmt: skip
        return json.dumps(head, sort_keys=True).encode() + b"\n" + self.cubin

    @staticmethod
    def from_bytes(data: bytes) -> CompiledKernel:
        """Read :meth:`to_bytes`, the assembly left out; raises ``ToolchainError`` on anything else."""
        line, found, cubin = data.partition(b"\n")
        try:
            head = json.loads(line)
            if not found or head.pop("format") != _MAGIC:
                raise ValueError("wrong format")
            return CompiledKernel(cubin=cubin, **head)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolchainError(f"not a compiled kernel: {error}", hint="build it again") from error


def chip_number(chip: str) -> int:
    """90 for ``sm_90``; raises ``TargetError`` for what is no NVIDIA chip."""
    match = _CHIP.fullmatch(chip)
    if match is None:
        raise TargetError(f"{chip!r} is no chip that Triton compiles for", hint="such as sm_90")
    return int(match.group(1))


def compile_source(source: KernelSource, chip: str, folder: Path, *, aligned: bool = True) -> CompiledKernel:
    """Compile a kernel for a chip; the source text is kept in ``folder``. Raises ``CompileFailed``, also for a kernel
    that wants more shared memory than the chip has, and ``TargetError`` for a chip that is not known.

    ``aligned`` takes every buffer to start at a multiple of 16 bytes, which loads and stores of 16 bytes need; without
    it only those are that the source promises.
    """
    limit = shared_memory_limit(chip)
    function = load_function(source.text, source.name, folder)
    target = GPUTarget("cuda", chip_number(chip), 32)
    types = dict(zip(function.arg_names, source.signature))
    pointers = {position for position, kind in enumerate(source.signature) if kind.startswith("*")}
    divisible = sorted({*source.divisible, *(pointers if aligned else ())})
    attributes = {(position,): [["tt.divisibility", 16]] for position in divisible}
    # Index checks are device asserts, which debug mode keeps; its overflow checks are not wanted.
    options = {"num_warps": source.warps, "debug": source.asserts, "sanitize_overflow": False}
    try:
        built = triton.compile(ASTSource(function, types, {}, attributes), target=target, options=options)
        described = _described(source, built, target, options)
    except Exception as error:
        # Triton raises whatever its many parts raise.
        raise CompileFailed(
            f"Triton refused kernel {source.name}",
            command=("triton.compile", chip),
            output=f"{type(error).__name__}: {error}",
            hint=f"the source is in {folder / (source.name + '.py')}",
        ) from error
    if described.shared_bytes > limit:
        raise CompileFailed(
            f"kernel {source.name} wants more shared memory than {chip} has",
            command=("triton.compile", chip),
            output=f"{described.shared_bytes} bytes, of which a program can have {limit}",
            hint="report the kernel's text form",
        )
    return described


def _described(
    source: KernelSource, built: Any, target: GPUTarget, options: Mapping[str, Any]
) -> CompiledKernel:
    ptx, cubin = without_paired_sums(built.asm["ptx"]), bytes(built.asm["cubin"])
    if ptx != built.asm["ptx"]:
        backend = make_backend(target)
        parsed = backend.parse_options(dict(options))
        cubin = bytes(backend.make_cubin(ptx, {}, parsed, target.arch))
    arguments = ptx[ptx.index(".entry") :].split(")", 1)[0]
    return CompiledKernel(
        name=source.name,
        cubin=cubin,
        entry=str(built.metadata.name),
        warps=int(built.metadata.num_warps),
        shared_bytes=int(built.metadata.shared),
        parameters=len(_PTX_PARAMETER.findall(arguments)),
        ptx=ptx,
        scratch=int(built.metadata.global_scratch_size),
    )


def compile_plan(plan: Plan, chip: str = "sm_90", folder: Path | None = None) -> dict[str, CompiledKernel]:
    """Compile every kernel of a plan; sources go to ``folder``, by default one that is removed again.

    Raises ``CodegenError`` and ``CompileFailed``.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="litz-triton-") as temporary:
            return compile_plan(plan, chip, Path(temporary))
    own = schedule_plan(plan, chip_capabilities(chip))
    return {source.name: compile_source(source, chip, folder) for source in plan_sources(own)}


def plan_sources(plan: Plan) -> tuple[KernelSource, ...]:
    """The Triton source of each kernel of a scheduled plan, with the user's lines."""
    return tuple(emit_kernel(kernel, origins=launch_origins(plan, kernel.name)) for kernel in plan.kernels)


def launch_origins(plan: Plan, kernel: str) -> Sequence[KernelOrigin]:
    """Where the operations that a kernel fuses came from, as its first launch says."""
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel == kernel:
            return step.origins
    return ()


def write_compiled(kernel: CompiledKernel, folder: Path) -> Path:
    """Keep a compiled kernel as one file in ``folder``."""
    return write_atomically(folder / f"{kernel.name}.cubin", kernel.to_bytes())
