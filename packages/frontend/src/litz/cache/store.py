"""Entries on disk: a folder per entry, written under a temporary name, checksummed, and renamed once complete.

A damaged entry is a miss with a log line, never an error. Entries are executed after loading: the folder, an entry
and its files must each belong to this user or to root, and be writable for nobody else. Folders above are not
checked: who can write there can replace this folder by another one, but not by one that belongs to this user or to
root.

A folder that cannot be written is only read: it may be part of a container, and belong to root.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from litz.notices import log_once
from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

FOLDERS = ("graphs", "binaries", "fx_graphs", "tiles", "matmuls", "demotions")
"""Names of the folders of the cache, in the order of the fields of :class:`litz.cache.artifacts.ArtifactCache`."""

MANIFEST = "manifest.json"
"""Name of the file with the checksums of an entry."""

Record = Callable[[Path, str, bytes], None]
"""Function called with the folder, the key and the manifest of an entry."""

_FILE_MODE = 0o644
"""Permissions of files, before the umask: others can read an entry if its folder allows that."""


class Store:
    """A folder of entries by key, safe for several processes: entries are immutable and appear complete.

    Where it is not ``writable`` nothing is added and nothing deleted.
    """

    def __init__(self, folder: Path, record: Record | None = None) -> None:
        """Open or create the folder; it may be missing from a trusted folder that cannot be written.

        ``record`` is called with each entry that is read or written. Raises :class:`CacheError` where the folder
        cannot be created, or where others can write to it.
        """
        self.folder = folder
        self.record = record
        self.writable = False
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            why = distrust(folder.stat())
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and _is_trusted(folder.parent):
                return
            raise CacheError(
                f"cannot make the cache folder {folder}: {error}", hint="set LITZ_CACHE_DIR"
            ) from error
        if why:
            hint = f"chmod 700 {folder}, or set LITZ_CACHE_DIR to a folder of yours"
            raise CacheError(f"the cache folder {folder} cannot be trusted: {why}", hint=hint)
        effective = os.access in os.supports_effective_ids
        self.writable = os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)

    def read(self, key: str) -> dict[str, bytes] | None:
        """Return the files of an entry, or ``None`` where it is missing or damaged."""
        path = self.folder / key
        try:
            return self._read(key) if (path / MANIFEST).exists() else None
        except PermissionError:
            readable = f"chmod -R a+rX {self.folder.parent} makes it readable"
            log_once(f"litz: this user cannot read the cache: {readable}", logging.INFO)
        except (OSError, ValueError, AttributeError) as error:
            log.warning("cache entry %s is damaged and counts as a cache miss: %s", path, error)
            self.drop(key)
        return None

    def _read(self, key: str) -> dict[str, bytes]:
        """Return the files of an entry; raise ``ValueError`` and others for a damaged one."""
        entry = self.folder / key
        for each in (self.folder, entry):
            _trust(each.stat())
        manifest = trusted_content(entry / MANIFEST)
        files: dict[str, bytes] = {}
        for name, digest in json.loads(manifest).items():
            if Path(name).name != name:
                raise ValueError(f"entry names a path: {name!r}")
            data = files[name] = trusted_content(entry / name)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"checksum of {name} differs")
        if self.record is not None:
            self.record(self.folder, key, manifest)
        return files

    def path(self, key: str, name: str) -> Path:
        """Return the path of a file of an entry."""
        return self.folder / key / name

    def write(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry; return False where it cannot be written (a full or read-only disk), and log that if
        ``writable``.

        An entry that another process wrote meanwhile stays.
        """
        if not self.writable:
            return False
        final = self.folder / key
        unfinished: Path | None = None
        try:
            unfinished = Path(tempfile.mkdtemp(dir=self.folder, prefix=".writing-"))
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
            manifest = json.dumps(sums).encode()
            for name, data in {**files, MANIFEST: manifest}.items():
                # Not flushed, which takes milliseconds: files cut short by a power failure fail their checksum.
                with open(unfinished / name, "wb", opener=created) as file:
                    file.write(data)
            os.rename(unfinished, final)
            if self.record is not None:
                self.record(self.folder, key, manifest)
        except OSError as error:
            if unfinished is not None:
                shutil.rmtree(unfinished, ignore_errors=True)
            if not (final / MANIFEST).exists():
                log.warning("cache entry %s was not written: %s", key, error)
                return False
        return True

    def drop(self, key: str) -> None:
        """Delete an entry, if it exists and can be deleted."""
        shutil.rmtree(self.folder / key, ignore_errors=True)


def created(path: str, flags: int) -> int:
    """Create a file with :data:`_FILE_MODE`."""
    return os.open(path, flags, _FILE_MODE)


def trusted_content(path: Path) -> bytes:
    """Return the content of a trusted file."""
    with path.open("rb") as file:
        _trust(os.fstat(file.fileno()))
        return file.read()


def _trust(state: os.stat_result) -> None:
    """Raise ``ValueError`` for a file or folder that is not trusted."""
    why = distrust(state)
    if why:
        raise ValueError(f"it cannot be trusted: {why}")


def _is_trusted(folder: Path) -> bool:
    """Report whether a folder exists and is trusted."""
    try:
        return not distrust(folder.stat())
    except OSError:
        return False


def distrust(state: os.stat_result) -> str:
    """Return the reason not to execute files from here; empty where only this user and root can write."""
    if hasattr(os, "geteuid") and state.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    if state.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return "others may write to it"
    return ""
