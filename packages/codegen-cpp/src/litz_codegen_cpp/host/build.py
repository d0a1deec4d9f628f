"""Compilation of host programs to shared objects, and of the C runtime that opens them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from litz_codegen_cpp.host.program import LIBRARY
from litz_codegen_cpp.toolchain.build import INCLUDE, BuildOptions, build_fingerprint, compile_source
from litz_codegen_cpp.toolchain.compilers import Compiler
from litz_codegen_cpp.toolchain.isa import Isa
from litz_ir.errors import CompileFailed, CompilerNotFound
from litz_ir.target import SourceUnit

C_FOLDER = Path(__file__).resolve().parent.parent / "c"
"""The folder of the C runtime: ``include`` and ``src``."""
LIBRARY_FOLDER = INCLUDE / "litz" / "library"
"""The folder of the routines' sources."""
_RUNTIME_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def build_host(
    unit: SourceUnit, folder: Path, *, isa: Isa, compiler: Compiler, options: BuildOptions = BuildOptions()
) -> Path:
    """Compile a unit of :func:`emit_host` to a shared object in ``folder``, named after its contents.

    The routines that it calls are linked into it; they are compiled once for a folder and instruction set. The object
    needs the C library alone. Raises :class:`ToolchainError`.
    """
    fingerprint = f"{build_fingerprint(compiler, isa, options)}\0{_interface_digest()}"
    digest = hashlib.sha256(f"{fingerprint}\0{unit.text}".encode()).hexdigest()[:20]
    out = folder / f"{unit.name}-{digest}.host.so"
    if out.exists():
        return out
    extra = [f"-I{C_FOLDER / 'include'}", "-fvisibility=hidden", "-Wl,--gc-sections"]
    if LIBRARY in unit.flags:
        built = hashlib.sha256(fingerprint.encode()).hexdigest()[:20]
        for source in sorted(LIBRARY_FOLDER.glob("*.cpp")):
            routines = folder / f"{source.stem}-{isa.name}-{built}.o"
            if not routines.exists():
                flags = ("-c", "-fvisibility=hidden", "-ffunction-sections")
                text = source.read_text(encoding="utf-8")
                compile_source(text, isa=isa, compiler=compiler, out=routines, options=options, extra=flags)
            extra.append(str(routines))
    return compile_source(unit.text, isa=isa, compiler=compiler, out=out, options=options, extra=tuple(extra))


def runtime_sources() -> tuple[Path, ...]:
    """Return the C files of liblitz_runtime; ``litz.h`` is in ``include`` beside their folder."""
    return tuple(sorted((C_FOLDER / "src").glob("*.c")))


def build_runtime(folder: Path, compiler: str = "cc", flags: Sequence[str] = ()) -> Path:
    """Compile ``liblitz_runtime.so`` in ``folder`` by a C compiler, with further ``flags``, and return it.

    Raises :class:`CompilerNotFound`, and :class:`CompileFailed` with the compiler's output.
    """
    path = shutil.which(compiler)
    if path is None:
        raise CompilerNotFound(
            f"there is no C compiler {compiler!r}",
            looked_for=(compiler,),
            hint="install one, or name another",
        )
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "liblitz_runtime.so"
    includes = (f"-I{C_FOLDER / 'include'}", f"-I{INCLUDE}")
    sources = [str(source) for source in runtime_sources()]
    command = (path, *_RUNTIME_FLAGS, *flags, *includes, "-o", str(out), *sources, "-ldl")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise CompileFailed(
            f"{compiler} refused the C runtime\n{done.stderr}",
            command=command,
            output=done.stderr,
            hint="the runtime is C11 with POSIX threads: use a newer compiler",
        )
    return out


@cache
def _interface_digest() -> str:
    """Return a digest of the interface between host objects and the runtime."""
    return hashlib.sha256((C_FOLDER / "include" / "litz_host.h").read_bytes()).hexdigest()
