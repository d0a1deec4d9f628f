"""A folder of any file system that fsspec knows as a remote store: an object store, or a folder on disk."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import fsspec

_ON_DISK = "file"
"""fsspec's name of the file system of this machine, where a file appears before it is complete."""


@dataclass(frozen=True, slots=True)
class FileStore:
    """A folder of a file system."""

    system: Any
    """The file system, an ``fsspec.AbstractFileSystem``."""

    folder: str
    """Path of the folder in it."""

    @staticmethod
    def at(url: str) -> FileStore:
        """Return the store of a URL; raise ``ValueError`` or ``ImportError`` where fsspec has no such file system."""
        system, folder = fsspec.core.url_to_fs(url)
        return FileStore(system, folder.rstrip("/"))

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, or ``None``."""
        try:
            data: bytes = self.system.cat_file(f"{self.folder}/{key}")
        except FileNotFoundError:
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key; on disk by a rename, so that others read all of them or none."""
        path = f"{self.folder}/{key}"
        self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
        if _ON_DISK not in (self.system.protocol, *self.system.protocol):
            self.system.pipe_file(path, data)
            return
        unfinished = f"{path}.writing-{secrets.token_hex(8)}"
        try:
            self.system.pipe_file(unfinished, data)
            self.system.mv(unfinished, path)
        except OSError:
            if self.system.exists(unfinished):
                self.system.rm_file(unfinished)
            raise
