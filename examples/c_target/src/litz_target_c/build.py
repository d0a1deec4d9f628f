"""Build and load sources: one call of a C compiler, one shared library."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from litz_ir.errors import CompileFailed, CompilerNotFound, KernelError, ToolchainError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.plan import Kernel
from litz_ir.target import LaunchFunction
from litz_target_c.emit import entry_point

FLAGS = (
    *("-std=c99", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"),
    "-fwrapv",  # integers wrap
    "-fno-ivopts",  # under -fwrapv, this pass of GCC 12 loses stores
    "-fno-strict-aliasing",  # buffers of different types may share memory
)
_SEARCHED = ("cc", "gcc", "clang")
_TIMEOUT_S = 120.0


def find_compiler(explicit: str | None = None) -> str:
    """Return the path of ``explicit``, or of the first compiler on the search path; raises
    :class:`CompilerNotFound`."""
    tried = (explicit,) if explicit else _SEARCHED
    for name in tried:
        path = shutil.which(name)
        if path:
            return path
    raise CompilerNotFound(
        f"no C compiler: looked for {', '.join(tried)}", looked_for=tried, hint="install gcc or clang"
    )


def compile_source(name: str, text: str, compiler: str, folder: Path) -> Path:
    """Build the shared library of a source, named after its content, in ``folder``; raises :class:`CompileFailed`."""
    digest = hashlib.sha256("\0".join((compiler, *FLAGS, text)).encode()).hexdigest()[:20]
    stem = re.sub(r"\W", "_", name, flags=re.ASCII)[:64]
    out = folder / f"{stem}-{digest}.so"
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{stem}-") as scratch:
        source, built = Path(scratch, "source.c"), Path(scratch, "built.so")
        source.write_text(text, encoding="utf-8")
        command = (compiler, *FLAGS, "-o", str(built), str(source), "-lm")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileFailed(f"{name} could not be compiled: {error}", command=command) from error
        if done.returncode:
            raise CompileFailed(f"{name} does not compile", command=command, output=done.stderr)
        os.replace(built, out)
    return out


class CModule:
    """Loaded kernels. Their functions may be called from several threads at once."""

    def __init__(self, binaries: Sequence[Path], kernels: Mapping[str, Kernel]) -> None:
        """Load the libraries; raises :class:`ToolchainError` for a file that is none."""
        try:
            self._libraries = [ctypes.CDLL(str(binary)) for binary in binaries]
        except OSError as error:
            raise ToolchainError(f"a built library does not load: {error}", hint="build it again") from error
        self._kernels = kernels

    def function(self, kernel: str) -> LaunchFunction:
        """Return the launcher of a kernel; raises ``KeyError``."""
        found = [getattr(library, entry_point(kernel), None) for library in self._libraries]
        native = next((each for each in found if each is not None), None)
        if native is None:
            raise KeyError(kernel)
        known = self._kernels[kernel]
        kinds = [ctypes.c_double if info.kind == "float" else ctypes.c_int64 for info in known.symbols]
        native.argtypes = [*[ctypes.c_void_p] * len(known.parameters), *kinds]
        native.restype = ctypes.c_int64

        def launch(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            code = native(*addresses, *symbols)
            if code in BY_CODE:
                raise fault_error(BY_CODE[code], kernel)
            if code:
                raise KernelError(f"{kernel} reported error code {code}", code=code, node=kernel)

        return launch
