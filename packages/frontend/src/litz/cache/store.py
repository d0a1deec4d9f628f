"""Entries on disk: a folder per entry, written under a temporary name, checksummed, and renamed once complete.

A damaged entry is a miss with a log line, never an error. Entries are executed after loading: the folder, an entry
and its files must each belong to this user or to root, and be writable for nobody else. Folders above are not
checked: who can write there can replace this folder by another one, but not by one that belongs to this user or to
root.

A folder that cannot be written is only read: it may be part of a container, and belong to root.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from litz.notices import log_once
from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

FOLDERS = ("graphs", "binaries", "fx_graphs", "tiles", "matmuls", "demotions")
"""Names of the folders of the cache, in the order of the fields of :class:`litz.cache.artifacts.ArtifactCache`."""

MANIFEST = "manifest.json"
"""Name of the file with the checksums of an entry."""

Record = Callable[[Path, str, bytes], None]
"""Function called with the folder, the key and the manifest of an entry."""

WRITING, DROPPED = ".writing-", ".dropped-"
"""Prefixes of the folders of entries that are being written, and deleted."""

_USE_INTERVAL = 3600.0
"""Seconds within which further uses of an entry do not touch its folder, whose modification time is the last use."""

_FILE_MODE = 0o644
"""Permissions of files, before the umask: others can read an entry if its folder allows that."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The checked files of an entry."""

    folder: Path
    """Folder of the entry, where its files can be used."""

    files: Mapping[str, bytes]
    """Content of each file, by name."""


class Entries(Protocol):
    """Entries of one kind by key: those of a folder, or those of all tiers of the cache."""

    @property
    def folder(self) -> Path:
        """Folder that entries are written to."""

    @property
    def writable(self) -> bool:
        """True where entries can be written and deleted."""

    def read(self, key: str) -> Mapping[str, bytes] | None:
        """Return the files of an entry; ``None`` where it is missing or damaged."""

    def find(self, key: str) -> Entry | None:
        """Return an entry; ``None`` where it is missing or damaged."""

    def write(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry; return False where it cannot be written."""

    def drop(self, key: str) -> None:
        """Delete an entry, if it exists and can be deleted."""


class Store:
    """A folder of entries by key, safe for several processes: entries are immutable and appear complete.

    Where it is not ``writable`` nothing is added and nothing deleted.
    """

    def __init__(self, folder: Path, record: Record | None = None, *, layer: bool = False) -> None:
        """Open or create the folder; it may be missing from a trusted folder that cannot be written.

        ``record`` is called with each entry that is read or written. A ``layer`` is neither created nor written,
        whatever its permissions. Raises :class:`CacheError` where the folder cannot be created, or where others can
        write to it.
        """
        self.folder: Path = folder
        self.record = record
        self.writable: bool = False
        try:
            if not layer:
                # Parents get the umask's permissions, which may let others write.
                folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                folder.mkdir(exist_ok=True, mode=0o700)
            why = distrust(folder.stat())
        except OSError as error:
            if layer and isinstance(error, (FileNotFoundError, NotADirectoryError)):
                return
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and _is_trusted(folder.parent):
                return
            raise CacheError(
                f"cannot make the cache folder {folder}: {error}", hint="set LITZ_CACHE_DIR"
            ) from error
        if why:
            raise _untrusted(folder, why)
        effective = os.access in os.supports_effective_ids
        self.writable = not layer and os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)

    @staticmethod
    def empty(kind: str) -> Store:
        """Return a folder that has no entry of a kind and takes none."""
        return Store(Path(os.devnull) / kind, layer=True)

    def read(self, key: str) -> Mapping[str, bytes] | None:
        """Return the files of an entry, or ``None`` where it is missing or damaged."""
        found = self.find(key)
        return None if found is None else found.files

    def find(self, key: str) -> Entry | None:
        """Return an entry, or ``None`` where it is missing or damaged."""
        path = self.folder / key
        try:
            return self._find(key) if (path / MANIFEST).exists() else None
        except PermissionError:
            readable = f"chmod -R a+rX {self.folder.parent} makes it readable"
            log_once(f"litz: this user cannot read the cache: {readable}", logging.INFO)
        except (OSError, ValueError, AttributeError) as error:
            if isinstance(error, FileNotFoundError) and not path.exists():
                return None  # another process deleted it
            damaged = f"cache entry {path} is damaged and counts as a cache miss: {error}"
            # It cannot be deleted from a layer, and is met again.
            log.warning("%s", damaged) if self.writable else log_once(damaged)
            self.drop(key)
        return None

    def _find(self, key: str) -> Entry:
        """Return an entry; raise ``ValueError`` and others for a damaged one."""
        path = self.folder / key
        _trust(self.folder.stat())
        state = path.lstat()
        if not stat.S_ISDIR(state.st_mode):
            raise ValueError("it is a link to another place")
        _trust(state)
        manifest = trusted_content(path / MANIFEST, links=False)
        files: dict[str, bytes] = {}
        for name, digest in json.loads(manifest).items():
            if Path(name).name != name:
                raise ValueError(f"entry names a path: {name!r}")
            data = files[name] = trusted_content(path / name, links=False)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"checksum of {name} differs")
        if self.record is not None:
            self.record(self.folder, key, manifest)
        if self.writable and abs(time.time() - state.st_mtime) > _USE_INTERVAL:
            with contextlib.suppress(OSError):  # the next use is noted instead
                os.utime(path)
        return Entry(path, files)

    def path(self, key: str, name: str) -> Path:
        """Return the path of a file of an entry."""
        return self.folder / key / name

    def keys(self) -> list[str]:
        """Return the keys of all entries, sorted."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{MANIFEST}"))

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
            unfinished = Path(tempfile.mkdtemp(dir=self.folder, prefix=WRITING))
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
                log_once(f"litz: the cache {self.folder.parent} cannot be written: {error.strerror or error}")
                log.debug("cache entry %s was not written: %s", key, error)
                return False
        return True

    def drop(self, key: str) -> None:
        """Delete an entry, if it exists and can be deleted; at once for other processes."""
        if not self.writable:
            return
        try:
            doomed = Path(tempfile.mkdtemp(dir=self.folder, prefix=DROPPED))
        except OSError:  # the disk is full
            shutil.rmtree(self.folder / key, ignore_errors=True)
            return
        with contextlib.suppress(OSError):  # it does not exist
            os.rename(self.folder / key, doomed / key)
        shutil.rmtree(doomed, ignore_errors=True)


def created(path: str, flags: int) -> int:
    """Create a file with :data:`_FILE_MODE`."""
    return os.open(path, flags, _FILE_MODE)


def trusted_content(path: Path, *, links: bool = True) -> bytes:
    """Return the content of a trusted file; raise ``OSError`` for a link unless ``links`` are followed."""
    itself = 0 if links else getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | itself), "rb") as file:
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


def require_trusted_root(root: Path) -> None:
    """Raise :class:`CacheError` for a cache folder, the parent of those of all kinds, that others can write to; one
    that is missing will be made."""
    try:
        why = distrust(root.stat())
    except OSError:
        return  # making the folders of the kinds says what is wrong
    if why:
        raise _untrusted(root, why)


def _untrusted(folder: Path, why: str) -> CacheError:
    """Return the error of a folder that is not trusted."""
    hint = f"chmod 700 {folder}, or set LITZ_CACHE_DIR to a folder of yours"
    return CacheError(f"the cache folder {folder} cannot be trusted: {why}", hint=hint)


def distrust(state: os.stat_result) -> str:
    """Return the reason not to execute files from here; empty where only this user and root can write."""
    if hasattr(os, "geteuid") and state.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    if state.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return "others may write to it"
    return ""
