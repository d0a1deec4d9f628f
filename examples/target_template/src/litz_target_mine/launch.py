"""Build, load and launch: here a file of Python, run as it is. Replaced along with the language."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litz_ir.faults import BY_CODE, fault_error
from litz_ir.interp import storage_dtype
from litz_ir.plan import Kernel
from litz_ir.target import BufferArgument, BufferFunction, SourceUnit
from litz_target_mine.language import ENTRY_POINT


def build_source(unit: SourceUnit, folder: Path) -> Path:
    """Write a source, named after its content, into ``folder``.

    A compiler is called here; what it refuses is a ``litz_ir.errors.CompileFailed`` with its output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(unit.text.encode()).hexdigest()[:20]}.py"
    path.write_text(unit.text, encoding="utf-8")
    return path


class MineModule:
    """Loaded kernels."""

    def __init__(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> None:
        self._functions: dict[str, BufferFunction] = {}
        for unit, path in zip(units, binaries):
            defined = runpy.run_path(str(path))
            for position, name in enumerate(unit.kernels):
                self._functions[name] = launcher(kernels[name], defined[ENTRY_POINT.format(position)])

    def function(self, kernel: str) -> BufferFunction:
        """Return the launch function of a kernel; raises ``KeyError``."""
        return self._functions[kernel]


def launcher(kernel: Kernel, function: Any) -> BufferFunction:
    """Return a function that runs a kernel on buffers; it raises ``KernelError`` for an error code."""
    dtypes = [storage_dtype(each.dtype) for each in kernel.parameters]

    def run(buffers: Sequence[BufferArgument], symbols: Sequence[int | float]) -> None:
        spans = [each.memory[each.offset : each.offset + each.nbytes] for each in buffers]
        with np.errstate(all="ignore"):
            code = function(*[span.view(dtype) for span, dtype in zip(spans, dtypes)], *symbols)
        if code:
            raise fault_error(BY_CODE[code], kernel.name)

    return BufferFunction(run)
