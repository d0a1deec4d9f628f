"""The quota of a cache folder: the entries used least recently are deleted where entries exceed it.

A file among the entries has the bytes that were counted last, and a line for each entry that was written since, so
that a write knows the sum without looking at the entries. Deleted entries are counted until the next count.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from litz.cache.store import DROPPED, FOLDERS, WRITING, Store, created
from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

_USAGE, _LOCK = f"{FOLDERS[0]}/.usage", f"{FOLDERS[0]}/.usage.lock"
"""Paths of the file with the sum of bytes, and of the lock of the process that deletes entries: in a folder of entries,
which others cannot write, unlike the folder around it."""

_LONGEST = 1 << 16
"""Bytes of the file with the sum from which entries are counted anew."""

_TARGET = 0.9
"""Part of the quota that entries take after some were deleted, so that not every write deletes some."""

_IN_USE = 300.0
"""Seconds since the last write or noted use within which writes of others delete no entry: a compilation that wrote a
binary loads it later. It is the time limit of a unit."""

_ABANDONED = 3600.0
"""Age in seconds from which an unfinished entry is that of a process that was killed."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a collection."""

    entries: int
    """Number of entries that were deleted."""

    freed: int
    """Their bytes."""

    bytes: int
    """Bytes of the entries that stay."""


@functools.cache
def keeper(root: Path, quota: int) -> QuotaKeeper:
    """Return the keeper of a cache folder's quota, one for each process."""
    return QuotaKeeper(root, quota)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class QuotaKeeper:
    """Keeper of the quota of the cache folder ``root``, in bytes. Failures are log lines: they cost disk space
    alone."""

    root: Path
    """The cache folder."""

    quota: int
    """Most bytes of all entries."""

    def added(self, size: int) -> None:
        """Note an entry of ``size`` bytes; delete entries where the quota is exceeded, but none that is new."""
        try:
            if self._sum(size) > self.quota:
                collect(self.root, self.quota, unused=_IN_USE)
        except (OSError, CacheError) as error:
            log.warning("the quota of the cache %s is not kept: %s", self.root, error)

    def _sum(self, size: int) -> int:
        """Return the bytes of all entries, with those just written."""
        path = self.root / _USAGE
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "r+b") as file:
            text = file.read(_LONGEST)
            if text and len(text) < _LONGEST:
                file.write(b"%d\n" % size)
                with contextlib.suppress(ValueError):  # a write was cut short
                    return size + sum(map(int, text.split()))
        total = sum(bytes_of(entry) for entry in _entries(self.root))
        _note(self.root, total)
        return total


def collect(root: Path, quota: int, unused: float = 0.0) -> Collected:
    """Delete entries of a cache folder, the least recently used first, until they take nine tenths of ``quota`` bytes;
    nothing where they take less than the quota, or another process does this at present.

    Entries that were written or noted as used in the last ``unused`` seconds stay. Entries of killed processes go too.
    Raises ``OSError`` and :class:`CacheError`.
    """
    stores = {kind: Store(root / kind) for kind in FOLDERS}
    try:
        with FileLock(root / _LOCK, timeout=0):
            return _collect(root, quota, stores, unused)
    except Timeout:
        return Collected(0, 0, sum(bytes_of(entry) for entry in _entries(root)))


def _collect(root: Path, quota: int, stores: Mapping[str, Store], unused: float) -> Collected:
    """Delete entries, as :func:`collect` says."""
    _remove_unfinished(root)
    found = []
    for entry in _entries(root):
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            found.append((entry.stat().st_mtime, bytes_of(entry), entry))
    total, count, freed = sum(size for _, size, _ in found), 0, 0
    if total > quota:
        now = time.time()
        for used, size, entry in sorted(found):
            if total - freed <= _TARGET * quota:
                break
            if abs(now - used) < unused:
                continue
            stores[entry.parent.name].drop(entry.name)
            count, freed = count + 1, freed + size
    _note(root, total - freed)
    return Collected(count, freed, total - freed)


def _note(root: Path, total: int) -> None:
    """Write the sum of bytes anew."""
    unfinished = root / f"{_USAGE}-{secrets.token_hex(8)}"  # several threads may be here
    with open(unfinished, "wb", opener=created) as file:
        file.write(b"%d\n" % total)
    os.replace(unfinished, root / _USAGE)


def _entries(root: Path) -> Iterator[Path]:
    """Yield the folders of all entries of a cache folder."""
    for kind in FOLDERS:
        with contextlib.suppress(FileNotFoundError), os.scandir(root / kind) as found:
            yield from (Path(each.path) for each in found if not each.name.startswith("."))


def bytes_of(entry: Path) -> int:
    """Return the bytes of an entry's files; 0 where it was deleted meanwhile."""
    try:
        with os.scandir(entry) as files:
            return sum(each.stat(follow_symlinks=False).st_size for each in files)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _remove_unfinished(root: Path) -> None:
    """Delete what killed processes left half written or half deleted."""
    now = time.time()
    for kind in FOLDERS:
        for path in (root / kind).glob(".*"):
            with contextlib.suppress(OSError):
                known = path.name.startswith((WRITING, DROPPED))
                if known and abs(now - path.lstat().st_mtime) > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)
