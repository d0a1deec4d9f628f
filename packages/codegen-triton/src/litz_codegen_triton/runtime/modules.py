"""Load Triton source text as Python modules, from files: Triton reads a function's source from one."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from litz_ir.errors import ToolchainError


def write_atomically(path: Path, data: bytes) -> Path:
    """Write a file so that no reader sees it incomplete, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(name, path)
    return path


def load_function(text: str, name: str, folder: Path) -> Any:
    """Return the Triton function ``name`` that ``text`` defines, and keep the text as ``folder / name.py``.

    Raises ``ToolchainError`` when the text is no valid module or does not define the function.
    """
    data = text.encode()
    path = write_atomically(folder / f"{name}.py", data)
    # Binaries contain the time of their source, and Python tells versions of a file apart by it: equal texts have one
    # time, others another.
    os.utime(path, (zlib.crc32(data),) * 2)
    spec = importlib.util.spec_from_file_location(f"litz_triton_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return getattr(module, name)
    except (SyntaxError, AttributeError, ImportError, NameError) as error:
        raise ToolchainError(
            f"the source of kernel {name} cannot be imported: {error}", hint=f"read {path}"
        ) from error
