"""Entries on disk: a folder per entry, written aside, checksummed, put in place by one rename.

Any damage is a miss with a log line, never an error. What is loaded from here is executed: the folder, an entry and
its files each have to belong to this user or to root, and nobody else may write to them. Folders above are not looked
at: who can write there may put another folder in the place of this one, but none of this user's or of root's.

A folder that cannot be written is read: the layer of an image, made by root, is one.
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
from collections.abc import Mapping
from pathlib import Path

from litz.notices import log_once
from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"

FILE_MODE = 0o644
"""What files may be at the most, whatever the umask: others can read an entry once its folder is opened to them."""


class Store:
    """A folder of entries by key. Safe for several processes: entries are immutable and appear whole.

    Where it is not ``writable`` nothing is added and nothing dropped.
    """

    def __init__(self, folder: Path) -> None:
        """Open or make the folder; it may be missing from one that can be trusted and not written.

        Raises :class:`CacheError` when it cannot be made, or when others can write to it.
        """
        self.folder = folder
        self.writable = False
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            why = _distrust(folder.stat())
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
        """The files of an entry, or ``None`` when it is missing or damaged."""
        path = self.folder / key
        try:
            return _files(self.folder, path) if (path / MANIFEST).exists() else None
        except PermissionError:
            readable = f"chmod -R a+rX {self.folder.parent} makes it readable"
            log_once(f"litz: this user cannot read what the cache holds: {readable}", logging.INFO)
        except (OSError, ValueError, AttributeError) as error:
            log.warning("cache entry %s is damaged and is taken for a miss: %s", path, error)
            self.drop(key)
        return None

    def path(self, key: str, name: str) -> Path:
        """Where a file of an entry lies."""
        return self.folder / key / name

    def write(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry; false when it could not be written (a full or read-only disk). Where the folder is
        ``writable`` that is logged.

        An entry that another process wrote meanwhile stands.
        """
        if not self.writable:
            return False
        final = self.folder / key
        aside: Path | None = None
        try:
            aside = Path(tempfile.mkdtemp(dir=self.folder, prefix=".writing-"))
            manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
            for name, data in {**files, MANIFEST: json.dumps(manifest).encode()}.items():
                # Not flushed to the disk, which takes milliseconds: what a power cut leaves fails its checksum.
                with open(aside / name, "wb", opener=_created) as file:
                    file.write(data)
            os.rename(aside, final)
        except OSError as error:
            if aside is not None:
                shutil.rmtree(aside, ignore_errors=True)
            if not (final / MANIFEST).exists():
                log.warning("cache entry %s was not written: %s", key, error)
                return False
        return True

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there and can be."""
        shutil.rmtree(self.folder / key, ignore_errors=True)


def _created(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _files(folder: Path, entry: Path) -> dict[str, bytes]:
    """The files of an entry in a folder; raises ``ValueError`` and more for a damaged one."""
    for each in (folder, entry):
        _trust(each.stat())
    manifest = json.loads(_content(entry / MANIFEST))
    files: dict[str, bytes] = {}
    for name, digest in manifest.items():
        if Path(name).name != name:
            raise ValueError(f"entry names a path: {name!r}")
        data = files[name] = _content(entry / name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"checksum of {name} differs")
    return files


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        _trust(os.fstat(file.fileno()))
        return file.read()


def _trust(state: os.stat_result) -> None:
    why = _distrust(state)
    if why:
        raise ValueError(f"it cannot be trusted: {why}")


def _is_trusted(folder: Path) -> bool:
    try:
        return not _distrust(folder.stat())
    except OSError:
        return False


def _distrust(state: os.stat_result) -> str:
    """Why what lies in a folder, or in a file, is not executed; empty where only this user and root can write it."""
    if hasattr(os, "geteuid") and state.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    if state.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return "others may write to it"
    return ""
