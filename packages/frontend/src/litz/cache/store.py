"""Entries on disk: a folder per entry, written aside, checksummed, put in place by one rename.

Any damage is a miss with a log line, never an error. Folders that others can write are refused: what is loaded from
here is executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"


class Store:
    """A folder of entries by key. Safe for several processes: entries are immutable and appear whole."""

    def __init__(self, folder: Path) -> None:
        """Open or make the folder; raises :class:`CacheError` when it cannot be made or is not this user's alone."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CacheError(
                f"cannot make the cache folder {folder}: {error}", hint="set LITZ_CACHE_DIR"
            ) from error
        _check_owner(folder)

    def read(self, key: str) -> dict[str, bytes] | None:
        """The files of an entry, or ``None`` when it is missing or damaged."""
        path = self.folder / key
        try:
            raw = (path / MANIFEST).read_bytes()
        except OSError:
            return None
        try:
            manifest = json.loads(raw)
            files: dict[str, bytes] = {}
            for name, digest in manifest.items():
                if Path(name).name != name:
                    raise ValueError(f"entry names a path: {name!r}")
                data = (path / name).read_bytes()
                if hashlib.sha256(data).hexdigest() != digest:
                    raise ValueError(f"checksum of {name} differs")
                files[name] = data
        except (OSError, ValueError, AttributeError) as error:
            log.warning("cache entry %s is damaged and is taken for a miss: %s", path, error)
            self.drop(key)
            return None
        return files

    def path(self, key: str, name: str) -> Path:
        """Where a file of an entry lies."""
        return self.folder / key / name

    def write(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry; false when it could not be written (a full or read-only disk), which is logged.

        An entry that another process wrote meanwhile stands.
        """
        final = self.folder / key
        aside: Path | None = None
        try:
            aside = Path(tempfile.mkdtemp(dir=self.folder, prefix=".writing-"))
            manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
            for name, data in {**files, MANIFEST: json.dumps(manifest).encode()}.items():
                # Not flushed to the disk, which takes milliseconds: what a power cut leaves fails its checksum.
                (aside / name).write_bytes(data)
            os.rename(aside, final)
        except OSError as error:
            if aside is not None:
                shutil.rmtree(aside, ignore_errors=True)
            if not (final / MANIFEST).exists():
                log.warning("cache entry %s was not written: %s", key, error)
                return False
        return True

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there."""
        shutil.rmtree(self.folder / key, ignore_errors=True)


def _check_owner(folder: Path) -> None:
    state = folder.stat()
    if hasattr(os, "getuid") and state.st_uid != os.getuid():
        raise CacheError(
            f"the cache folder {folder} belongs to another user", hint="set LITZ_CACHE_DIR to one of yours"
        )
    if state.st_mode & stat.S_IWOTH or state.st_mode & stat.S_IWGRP:
        raise CacheError(f"others may write to the cache folder {folder}", hint=f"chmod 700 {folder}")
