"""Binaries of a model as paths that the dynamic linker takes: files in memory, or in a private folder."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from threading import Lock

_SHARED_OBJECT = ".so"
"""Suffix of binaries that are linked; others are read."""


class Binaries:
    """Binaries of one model by name, each with a path while this object lives.

    A shared object is a file in memory, so that no folder has to allow execution; where the system refuses to
    execute those, and for other binaries, it is in a temporary folder of this user.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None

    def path(self, name: str, sha256: str, content: memoryview) -> Path:
        """Return the path of a binary with this checksum, which was compared."""
        if name.endswith(_SHARED_OBJECT) and hasattr(os, "memfd_create"):
            found = _memory_file(sha256).holding(content)
            if found is not None:
                return found
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="litz-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / name
        path.write_bytes(content)
        return path


class _MemoryFile:
    """A file in memory with a binary, open until the process ends.

    The dynamic linker compares libraries by path, and keeps them: a descriptor that was closed and used again would
    name another library.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._path: Path | None = None
        self._refused = False

    def holding(self, content: memoryview) -> Path | None:
        """Return a path from which the content was linked, or ``None`` where the system refuses that."""
        with self._lock:
            if self._path is None and not self._refused:
                self._path = _linked(content)
                self._refused = self._path is None
            return self._path


@functools.cache
def _memory_file(sha256: str) -> _MemoryFile:
    """Return the file in memory for a binary, one for each content: models that share one share the file."""
    return _MemoryFile()


def _linked(content: memoryview) -> Path | None:
    """Return the path of a new file in memory that the dynamic linker has linked; ``None`` where it refuses."""
    try:
        descriptor = os.memfd_create("litz", os.MFD_CLOEXEC)
    except OSError:
        return None
    path = Path(f"/proc/self/fd/{descriptor}")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError:
        os.close(descriptor)  # nothing was linked
        return None
    return path
