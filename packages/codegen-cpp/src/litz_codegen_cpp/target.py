"""The CPU target: capabilities, cost model, emission, build and load of C++ kernels."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from litz_codegen_cpp import emit
from litz_codegen_cpp.capabilities import cpu_capabilities, thread_count
from litz_codegen_cpp.emit.source.entry_points import LIBRARY, entry_point
from litz_codegen_cpp.emit.source.ops_table import spelled_operations
from litz_codegen_cpp.emit.source.spelling import identifier
from litz_codegen_cpp.runtime.call import CpuModule
from litz_codegen_cpp.runtime.load import LoadedLibrary, RuntimeTable, make_runtime
from litz_codegen_cpp.toolchain.build import (
    BuildOptions,
    StepDowns,
    build_fingerprint,
    command_fingerprint,
    compile_linked,
    compile_object,
    compile_source,
)
from litz_codegen_cpp.toolchain.compilers import Compiler, find_compiler
from litz_codegen_cpp.toolchain.isa import Isa, by_name, detect, runnable
from litz_ir.errors import ToolchainError
from litz_ir.plan import Kernel, Plan
from litz_ir.target import Capabilities, SourceUnit

if TYPE_CHECKING:
    from litz_ir.loops import LoopGraph

__all__ = ["CpuTarget"]

_LIBRARIES = "litz_codegen_cpp.emit.libraries"
"""The module of libraries; loaded where a unit is built."""

_HOST = "litz_codegen_cpp.host"
"""The package of host programs; loaded where one is asked for, since compiling a graph needs none."""


class CpuTarget:
    """C++ kernels for the CPU of this machine, or for a named instruction set.

    ``isa`` is an instruction set or its name. ``compiler`` is a compiler or its command. ``threads`` is the most
    threads that a kernel uses; ``None`` follows the OpenMP runtime's setting at every call. The instruction set and
    the compiler are detected at first use where they are not given.
    """

    name = "cpu"

    interface = 1
    """Version of the entry points of libraries and of the table of ``litz/runtime.h`` that they are called with."""

    def __init__(
        self,
        isa: Isa | str | None = None,
        compiler: Compiler | str | None = None,
        threads: int | None = None,
        build_options: BuildOptions | None = None,
    ) -> None:
        self._isa = by_name(isa) if isinstance(isa, str) else isa
        self._compiler = compiler
        self._threads = threads
        self._options = build_options if build_options is not None else BuildOptions()
        self._step_downs = StepDowns()
        self._runtime: RuntimeTable | None = None

    def arguments(self) -> Mapping[str, str]:
        """Return the command of the compiler, where one was named; another process of this machine detects the
        instruction set, as this one does."""
        chosen = self._compiler
        if isinstance(chosen, Compiler):
            chosen = shlex.join(chosen.command)
        return {"compiler": chosen} if chosen else {}

    def isa(self) -> Isa:
        """Return the instruction set that kernels are compiled for."""
        if self._isa is None:
            self._isa = detect()
        return self._isa

    def compiler(self) -> Compiler:
        """Return the compiler, which is one for the instruction set's architecture; raises
        :class:`CompilerNotFound`."""
        if not isinstance(self._compiler, Compiler):
            self._compiler = find_compiler(self._compiler, machine=self.isa().machine or None)
        return self._compiler

    def capabilities(self) -> Capabilities:
        """Return the capabilities of the CPU."""
        isa = self.isa()
        known = cpu_capabilities(isa.name, isa.vector_bytes, self._threads or thread_count())
        return replace(known, features=isa.features, operations=spelled_operations())

    def runs(self) -> tuple[str, ...]:
        """Return the names of the instruction sets whose libraries this machine runs, best first."""
        return runnable(detect())

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Return the estimated seconds for ``traffic`` bytes and ``flops`` operations, which overlap, after the
        launches."""
        model = self.capabilities().model
        return max(traffic / model.memory_rate, flops / model.flop_rate) + launches * model.launch_seconds

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """Return the C++ units of a plan; raises ``CodegenError``.

        Their flags identify all that is compiled with them, so that a cached binary matches these headers.
        """
        return emit.emit_plan(plan, self.isa().lanes, self._flags(), self._threads or thread_count())

    def _flags(self) -> tuple[str, ...]:
        """Return what identifies a build of kernels, besides their text."""
        isa = self.isa()
        chosen = (self._compiler,) if isinstance(self._compiler, str) else ()
        return (isa.name, command_fingerprint(isa, self._options), *chosen)

    def emit_host(self, plan: Plan, weights: Sequence[str] = ()) -> SourceUnit:
        """Return the C++ unit of a program that needs neither Python nor torch.

        Raises ``CodegenError``, which names the calls that keep the plan from one (``litz_codegen_cpp.host``).
        """
        isa = self.isa()
        chosen = (self._compiler,) if isinstance(self._compiler, str) else ()
        flags = (command_fingerprint(isa, self._options), *chosen)
        unit: SourceUnit = import_module(_HOST).emit_host(plan, isa, weights, flags)
        return unit

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a unit into a shared library in ``folder``, named after its contents; raises ``ToolchainError``.

        A library of routines (:meth:`libraries`) is compiled into an object file.
        """
        if unit.language not in ("c++", LIBRARY):
            raise ToolchainError(f"unit {unit.name} is {unit.language}, this target builds C++")
        isa, compiler, options = self.isa(), self.compiler(), self._options
        if unit.language == LIBRARY:
            out = self._path(unit, folder, ".o")
            return compile_object(unit.text, isa=isa, compiler=compiler, out=out, options=options)
        out, known = self._path(unit, folder, ".so"), self._step_downs
        return compile_source(
            unit.text, isa=isa, compiler=compiler, out=out, options=options, step_downs=known
        )

    def _path(self, unit: SourceUnit, folder: Path, suffix: str) -> Path:
        """Return the path of a unit's binary, which names its contents."""
        fingerprint = build_fingerprint(self.compiler(), self.isa(), self._options)
        digest = hashlib.sha256(f"{fingerprint}\0{unit.text}".encode()).hexdigest()[:20]
        return folder / f"{identifier(unit.name)}-{digest}{suffix}"

    def libraries(self, unit: SourceUnit) -> tuple[SourceUnit, ...]:
        """Return the libraries that a unit can link, which ``build`` makes object files of."""
        isa = self.isa()
        simpler = self._step_downs.usable(self.compiler(), isa) is not isa
        if simpler or unit.language == LIBRARY:
            return ()
        found: tuple[SourceUnit, ...] = import_module(_LIBRARIES).linked_libraries(unit.text, unit.flags)
        return found

    def expected_libraries(self, graph: LoopGraph) -> tuple[SourceUnit, ...]:
        """Return the libraries that the kernels of a graph probably link, to be built while it is scheduled."""
        found: tuple[SourceUnit, ...] = import_module(_LIBRARIES).expected_libraries(graph, self._flags())
        return found

    def build_linked(self, unit: SourceUnit, libraries: Sequence[Path], folder: Path) -> Path:
        """Compile a unit as ``build`` does, with the routines of built libraries; raises ``ToolchainError``."""
        return compile_linked(
            unit.text,
            isa=self.isa(),
            compiler=self.compiler(),
            out=self._path(unit, folder, ".so"),
            options=self._options,
            objects=libraries,
        )

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> CpuModule:
        """Load the libraries of built units; raises ``ToolchainError``."""
        if self._runtime is None:
            self._runtime = make_runtime(self._threads or 0)
        libraries: dict[str, LoadedLibrary] = {}
        for unit, binary in zip(units, binaries, strict=True):
            library = LoadedLibrary(binary, self._runtime)
            libraries.update((kernel, library) for kernel in unit.kernels)
        return CpuModule(libraries, kernels, {kernel: entry_point(kernel) for kernel in libraries})
