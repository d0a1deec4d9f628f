"""Compilation of the C runtime, which opens models and runs host programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from litz_codegen_cpp.toolchain.build import INCLUDE
from litz_ir.errors import CompileFailed, CompilerNotFound

C_FOLDER = Path(__file__).resolve().parent.parent / "c"
"""The folder of the C runtime: ``include`` and ``src``."""
_RUNTIME_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def runtime_sources() -> tuple[Path, ...]:
    """Return the C files of liblitz_runtime; ``litz.h`` is in ``include`` beside their folder."""
    return tuple(sorted((C_FOLDER / "src").glob("*.c")))


def include_paths() -> tuple[Path, ...]:
    """Return the folders of ``litz.h``, of ``litz/operators.h``, and of ``litz_torch.hpp`` for C++ with libtorch."""
    return C_FOLDER / "include", INCLUDE, C_FOLDER.parent / "cxx"


def build_runtime(folder: Path, compiler: str = "cc", flags: Sequence[str] = ()) -> Path:
    """Compile ``liblitz_runtime.so`` in ``folder`` by a C compiler, with further ``flags``, copy ``litz.h`` beside it,
    and return the library.

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
    shutil.copyfile(C_FOLDER / "include" / "litz.h", folder / "litz.h")
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
