"""Build and load sources: a file of Python, its functions compiled by Numba, error codes as exceptions."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.errors import NumbaError

from litz_ir.errors import CompileFailed, OutOfMemory, ToolchainError
from litz_ir.faults import BY_CODE, fault_error
from litz_ir.plan import Kernel
from litz_ir.target import LaunchFunction, SourceUnit
from litz_target_numba import __version__
from litz_target_numba.emit import entry_point

FLAGS = (f"numba {numba.__version__}", f"litz-target-numba {__version__}")
_OUT_OF_MEMORY = -1
"""Error code of a launch without memory for its scratch arrays; the codes of faults are positive."""


def write_source(unit: SourceUnit, folder: Path) -> Path:
    """Write a source, named after its content, into ``folder``; raises :class:`CompileFailed` if it is no
    Python."""
    digest = hashlib.sha256("\0".join((*unit.flags, unit.text)).encode()).hexdigest()[:20]
    name = re.sub(r"[^-\w]", "_", unit.name, flags=re.ASCII)
    out = folder / f"{name}-{digest}.py"
    _parsed(unit, out)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".py", delete=False, encoding="utf-8") as file:
        file.write(unit.text)
    os.replace(file.name, out)
    return out


def _parsed(unit: SourceUnit, path: Path) -> Any:
    try:
        return compile(unit.text, str(path), "exec")
    except SyntaxError as error:
        raise CompileFailed(
            f"{unit.name} is no Python", output=str(error), hint="emit the plan again"
        ) from error


class NumbaModule:
    """Compiled kernels. Their functions may be called from several threads at once."""

    def __init__(
        self, units: Sequence[SourceUnit], paths: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> None:
        """Run the sources and compile their kernels; raises :class:`ToolchainError`.

        Code comes from the units alone. Their files are where Python looks up lines of source for its errors.
        """
        self._functions: dict[str, Any] = {}
        self._kernels = kernels
        for unit, path in zip(units, paths, strict=True):
            defined: dict[str, Any] = {"__name__": f"litz_{path.stem}"}
            try:
                exec(_parsed(unit, path), defined)
                found = {name: defined[entry_point(name)] for name in unit.kernels}
            except (ImportError, LookupError, NameError) as error:
                raise ToolchainError(
                    f"{unit.name} does not load: {error!r}",
                    hint="emit the plan again with the installed version",
                ) from error
            for name, function in found.items():
                self._functions[name] = _compiled(kernels[name], function)

    def function(self, kernel: str) -> LaunchFunction:
        """Return the launcher of a kernel; raises ``KeyError``."""
        native = self._functions[kernel]
        kinds = [float if info.kind == "float" else int for info in self._kernels[kernel].symbols]

        def launch(addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
            values = [kind(value) for kind, value in zip(kinds, symbols, strict=True)]
            try:
                code = native(*addresses, *values)
            except MemoryError as error:
                raise OutOfMemory(
                    f"can't allocate memory for the scratch of {kernel}", code=_OUT_OF_MEMORY, node=kernel
                ) from error
            if code:
                raise fault_error(BY_CODE[code], kernel)

        return launch


def _compiled(kernel: Kernel, function: Any) -> Any:
    """Return a function that is compiled for the kernel's arguments and for no others."""
    symbols = [types.float64 if info.kind == "float" else types.int64 for info in kernel.symbols]
    try:
        function.compile((types.int64,) * len(kernel.parameters) + tuple(symbols))
    except NumbaError as error:
        raise CompileFailed(
            f"{kernel.name} does not compile", output=str(error), hint="leave the kernel to another target"
        ) from error
    function.disable_compile()
    return function
